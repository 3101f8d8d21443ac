"""`DeltaTable`: a table at a location, as a handle on one snapshot that moves forward with each write."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, TypeAlias

import pyarrow as pa

from lake_core.delta import scan
from lake_core.delta.action import Metadata, Protocol
from lake_core.delta.action_fields import PARTITION_VALUES
from lake_core.delta.changes import Bound, read_changes
from lake_core.delta.checkpoint_writer import write_checkpoint
from lake_core.delta.clock import Clock, now_ms, system_clock
from lake_core.delta.commit_time import CommitTimes, Instant, parse_instant
from lake_core.delta.definition import check_same, new_metadata, new_protocol
from lake_core.delta.errors import (
    SchemaMismatch,
    TableAlreadyExists,
)
from lake_core.delta.features import check_writable, required_features, upgraded
from lake_core.delta.history import history
from lake_core.delta.log_segment import log_exists
from lake_core.delta.marker import Txn, check_transaction, set_transaction
from lake_core.delta.numpy_arrays import texts
from lake_core.delta.operations.delete import delete
from lake_core.delta.operations.merge import Merge, MergeText, merge
from lake_core.delta.operations.update import update
from lake_core.delta.operations.write import SchemaMode, Write, plan_append, plan_overwrite
from lake_core.delta.path import data_keys, locate_all, open_roots
from lake_core.delta.properties import checkpoint_interval
from lake_core.delta.result import OperationResult, WriteResult, recorded_operation, recorded_write
from lake_core.delta.skipping import num_records
from lake_core.delta.snapshot import Snapshot, load_snapshot
from lake_core.delta.transaction import Committed, Operation, commit, commit_first, partition_by_text
from lake_core.store import ObjectStore, open_store

ArrowData: TypeAlias = "pa.Table | pa.RecordBatch | pa.RecordBatchReader"
"""Rows to write; anything with `__arrow_c_stream__` serves as well."""

_LOG = logging.getLogger(__name__)

Location: TypeAlias = "str | PathLike[str] | ObjectStore"


class DeltaTable:
    """A Delta table on any object store.

    The handle shows one snapshot: `refresh` moves it to the latest version, and so does every write of its own. Appends
    follow whatever others committed meanwhile; an overwrite that would drop rows it has not seen is refused.

        table = DeltaTable.create("s3://bucket/orders", schema, partition_by=["day"])
        table.append(rows, txn=("nightly-load", 17))
        table.to_arrow(columns=["id"], where="day >= DATE '2024-01-01'")
    """

    def __init__(self, snapshot: Snapshot, clock: Clock) -> None:
        self._snapshot, self._clock = snapshot, clock

    @classmethod
    def create(
        cls,
        url_or_store: Location,
        schema: pa.Schema,
        *,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        exist_ok: bool = False,
        clock: Clock | None = None,
    ) -> DeltaTable:
        """Create an empty table, at the lowest protocol that serves its schema and properties (reader 1, writer 2 for most).

        With `exist_ok` a table that stands there already is opened, if its schema and partitioning are the same.
        Raises TableAlreadyExists, SchemaMismatch, UnsupportedType, InvalidProperty, UnsupportedWriterFeature.
        """
        store = _store(url_or_store, storage_options)
        clock = clock or system_clock
        protocol, rest = new_protocol(properties or {})
        metadata = new_metadata(schema, partition_by, rest, now_ms(clock))
        protocol = upgraded(protocol, required_features(metadata))
        try:
            if not cls.exists(store):
                parameters = {"partitionBy": partition_by_text(metadata.partition_columns), "isManaged": "false"}
                commit_first(store, Operation("CREATE TABLE", parameters, protocol=protocol, metadata=metadata), now_ms(clock))
                return cls(load_snapshot(store, 0), clock)
            raise TableAlreadyExists(f"a table stands at {store.url()}. Open it, or pass exist_ok=True")
        except TableAlreadyExists:
            if not exist_ok:
                raise
        table = cls(load_snapshot(store), clock)
        check_same(table.metadata, metadata, store)
        return table

    @classmethod
    def open(
        cls,
        url_or_store: Location,
        *,
        version: int | None = None,
        timestamp: Instant | None = None,
        allowed_roots: Sequence[Location] = (),
        storage_options: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
    ) -> DeltaTable:
        """The table at `version`, or the last one committed at or before `timestamp`; the latest by default.

        A timestamp is an aware datetime or ISO 8601 text with a zone, not after the last commit.
        A log may name data files outside of the table's own root (that of a shallow clone does): they are read from folders
        under the `allowed_roots` only.

        Raises TableNotFound, VersionNotFound, LogGap, CorruptCommit, CorruptCheckpoint, UnsupportedReaderFeature, and the
        Missing… and Malformed… errors.
        """
        if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
            raise ValueError(f"a version is a whole number, not {version!r}")
        if timestamp is not None:
            if version is not None:
                raise ValueError("a table is opened at a version or at a timestamp, not at both")
            parse_instant(timestamp)
        store = _store(url_or_store, storage_options)
        options = storage_options or store.storage_options
        roots = open_roots(allowed_roots, options)
        snapshot = load_snapshot(store, version, allowed_roots=roots)
        if timestamp is not None:
            stood = CommitTimes(snapshot).version_at(timestamp)
            snapshot = snapshot if stood == snapshot.version else load_snapshot(store, stood, allowed_roots=roots)
        return cls(snapshot, clock or system_clock)

    @classmethod
    def exists(cls, url_or_store: Location, *, storage_options: Mapping[str, Any] | None = None) -> bool:
        """Whether a Delta log with a commit or a checkpoint stands at the location."""
        return log_exists(_store(url_or_store, storage_options))

    @property
    def version(self) -> int:
        """The version that this handle shows."""
        return self._snapshot.version

    @property
    def schema(self) -> pa.Schema:
        """The table's columns, partition columns included; timestamps in microseconds, UTC."""
        return self._snapshot.metadata.arrow_schema

    @property
    def metadata(self) -> Metadata:
        return self._snapshot.metadata

    @property
    def protocol(self) -> Protocol:
        return self._snapshot.protocol

    @property
    def properties(self) -> dict[str, str]:
        """The table properties, unknown ones included."""
        return dict(self._snapshot.metadata.configuration)

    @property
    def store(self) -> ObjectStore:
        """The store at the table's root."""
        return self._snapshot.store

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that this handle shows."""
        return self._snapshot

    @property
    def is_blank(self) -> bool:
        """Whether the table was created and nothing else: the state in which a crash of its first writer leaves it."""
        return self.version == 0 and not len(self._snapshot.files(["path"]))

    def refresh(self) -> DeltaTable:
        """Move to the latest version; returns the handle itself."""
        self._snapshot = self._snapshot.refreshed()
        return self

    def files(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The data files: path (relative to the root, decoded; a URL where it lies elsewhere), size (bytes),
        modification_time (milliseconds), partition_values, num_records (null where unknown), stats (JSON). `columns` picks some of
        them, which is faster.
        """
        wanted = list(_FILE_COLUMNS) if columns is None else list(columns)
        unknown = [name for name in wanted if name not in _FILE_COLUMNS]
        if unknown:
            raise SchemaMismatch(f"files() has no column {unknown[0]!r}; there are {', '.join(_FILE_COLUMNS)}")
        found = self._snapshot.files(list(dict.fromkeys(_FILE_COLUMNS[name] for name in wanted)))
        arrays = []
        for name in wanted:
            column = found[_FILE_COLUMNS[name]]
            if name == "path":
                column = self._paths(column)
            elif name == "num_records":
                column = num_records(column)
            arrays.append(column)
        return pa.Table.from_arrays(arrays, schema=pa.schema([(name, _FILE_TYPES[name]) for name in wanted]))

    def _paths(self, paths: pa.ChunkedArray) -> pa.ChunkedArray:
        if not self._snapshot.allowed_roots:
            return data_keys(paths, self.store)
        keys, elsewhere = locate_all(paths, self._snapshot.roots)
        return pa.chunked_array([texts([elsewhere[row].url(key) if row in elsewhere else key for row, key in enumerate(keys)])])

    def to_arrow(self, columns: Sequence[str] | None = None, where: str | None = None) -> pa.Table:
        """The rows, with these columns, for which `where` (Spark SQL) is true. Files that cannot hold such rows are not opened.

        Raises SchemaMismatch, InvalidExpression, DataFileMissing, CorruptDataFile, PathOutsideTable.
        """
        return scan.read_rows(scan.plan_scan(self._snapshot, columns, where))

    def to_batches(self, columns: Sequence[str] | None = None, where: str | None = None) -> pa.RecordBatchReader:
        """`to_arrow`, a batch at a time: for tables that do not fit into memory. What is wrong with a data file is raised on the way."""
        return scan.stream_rows(scan.plan_scan(self._snapshot, columns, where))

    def changes(
        self, start: Bound, end: Bound | None = None, *, columns: Sequence[str] | None = None, where: str | None = None
    ) -> pa.RecordBatchReader:
        """What the versions `start` to `end` changed, both included (`end`: this handle's version by default): the change data feed.

        The table's columns (or those of `columns`), then `_change_type` (insert, delete, update_preimage, update_postimage),
        `_commit_version` and `_commit_timestamp`, for which `where` (Spark SQL over all of these) is true; in the order of the
        versions. Columns are those of the last version, all nullable: what earlier ones lack is null. A timestamp stands for the
        versions committed at or after it (`start`), at or before it (`end`).

        Raises ChangeDataFeedDisabled, IncompatibleSchema, VersionNotFound, SchemaMismatch, InvalidExpression; while it is read
        also DataFileMissing, CorruptDataFile, CorruptDeletionVector, PathOutsideTable and, for what happened between the first
        and the last version, the first two.
        """
        return read_changes(self._snapshot, start, end, columns, where)

    def append(self, arrow: ArrowData, *, schema_mode: SchemaMode | None = None, txn: Txn | None = None) -> WriteResult:
        """Add rows. Never conflicts with other appends. `schema_mode="merge"` adds columns that the table lacks.

        Raises SchemaMismatch, UnsupportedType, ConstraintViolation, InvalidTransaction, UnsupportedWriterFeature,
        UnsupportedExpression, MetadataChanged, CommitTimeout, CommitOutcomeUnknown.
        """
        return self._write(arrow, lambda schema: self.plan_append(schema, schema_mode), txn)

    def overwrite(
        self,
        arrow: ArrowData,
        *,
        where: str | None = None,
        dynamic: bool = False,
        schema_mode: SchemaMode | None = None,
        partition_by: Sequence[str] | None = None,
        txn: Txn | None = None,
    ) -> WriteResult:
        """Replace all rows, or those for which `where` is true, or with `dynamic` all rows of the partitions that get new ones.

        The new rows must lie inside `where`; no rows at all just clear it. `schema_mode="merge"` adds columns that the table
        lacks, `"overwrite"` makes the data's schema (and `partition_by`) the table's. Raises RowsOutsidePredicate,
        InvalidExpression, AppendOnlyTable, ConcurrentAppend and its siblings where others wrote there since this handle's
        version, and what `append` raises.
        """

        def plan(schema: pa.Schema) -> Write:
            return self.plan_overwrite(schema, where=where, dynamic=dynamic, schema_mode=schema_mode, partition_by=partition_by)

        return self._write(arrow, plan, txn)

    def delete(self, where: str | None = None, *, txn: Txn | None = None) -> OperationResult:
        """Delete the rows for which `where` (Spark SQL) is true, all rows without it. Only files that hold one are written anew.

        Raises InvalidExpression, AppendOnlyTable, ConcurrentModification and its kinds, and what reading and writing raise.
        """
        return self.operate(lambda snapshot, now: delete(snapshot, where, now), txn)

    def update(self, changes: Mapping[str, str], where: str | None = None, *, txn: Txn | None = None) -> OperationResult:
        """Set columns to the values of SQL expressions (`{"price": "price * 2"}`) in the rows for which `where` is true.

        Raises SchemaMismatch, InvalidExpression, EvaluationFailed, ConstraintViolation, and what `delete` raises.
        """
        return self.operate(lambda snapshot, now: update(snapshot, changes, where, now), txn)

    def merge(self, source: ArrowData, on: str, *, alias: tuple[str, str] = ("t", "s")) -> Merge[OperationResult]:
        """Merge rows into the table: `table.merge(rows, "t.id = s.id").when_matched_update("*").when_not_matched_insert("*").execute()`.

        `alias` names the table and the source in expressions. The source is held in memory.
        """
        rows = _reader(source)

        def execute(text: MergeText, txn: Txn | None) -> OperationResult:
            return self.operate(lambda snapshot, now: merge(snapshot, rows.read_all(), text, now), txn)

        return Merge(on, alias, execute)

    def plan_append(self, data: pa.Schema, schema_mode: SchemaMode | None = None) -> Write:
        """An append to this snapshot, for writers that bring rows into data files themselves; raises as `append`."""
        return plan_append(self._snapshot, data, now_ms(self._clock), schema_mode)

    def plan_overwrite(
        self,
        data: pa.Schema,
        *,
        where: str | None = None,
        dynamic: bool = False,
        schema_mode: SchemaMode | None = None,
        partition_by: Sequence[str] | None = None,
    ) -> Write:
        """An overwrite of this snapshot, for writers that bring rows into data files themselves; raises as `overwrite`."""
        now = now_ms(self._clock)
        return plan_overwrite(self._snapshot, data, now, where=where, dynamic=dynamic, schema_mode=schema_mode, partition_by=partition_by)

    def txn_version(self, app_id: str) -> int | None:
        """The version that an application recorded last in this snapshot."""
        return self._snapshot.transaction_version(app_id)

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The commits up to this version, newest first: `version`, `timestamp` (when it was committed, in milliseconds since
        the epoch) and the other fields of their commitInfo."""
        return history(self._snapshot, limit)

    def checkpoint(self) -> None:
        """Write a checkpoint of this version, and point `_last_checkpoint` at it unless it points further."""
        check_writable(self._snapshot.protocol, self._snapshot.metadata)
        write_checkpoint(self._snapshot, now_ms(self._clock))

    def recorded(self, txn: Txn | None) -> WriteResult | None:
        """What an earlier attempt with this marker wrote, looked up in the latest version; None if there was none.

        Raises InvalidTransaction, UnsupportedWriterFeature.
        """
        if not self._is_recorded(txn):
            return None
        assert txn is not None
        return recorded_write(self.store, self.version, set_transaction(txn, None))

    def _is_recorded(self, txn: Txn | None) -> bool:
        check_transaction(txn)
        check_writable(self._snapshot.protocol, self._snapshot.metadata)
        if txn is None:
            return False
        latest = self._snapshot.refreshed()
        recorded = latest.transaction_version(txn[0])
        if recorded is None or recorded < txn[1]:
            return False
        self._snapshot = latest
        return True

    def commit(self, operation: Operation, txn: Txn | None) -> WriteResult:
        """Commit a write (of `plan_append` or `plan_overwrite`), on top of the snapshot that it was planned on."""
        done = self._commit(operation, txn)
        if done.already_recorded:
            assert txn is not None
            return recorded_write(self.store, self.version, set_transaction(txn, None))
        metrics = operation.metrics
        return WriteResult(done.version, False, metrics["numOutputRows"], metrics["numFiles"], metrics["numOutputBytes"])

    def operate(self, plan: Callable[[Snapshot, int], Operation | None], txn: Txn | None) -> OperationResult:
        """Plan an operation on this snapshot (`plan` takes it and the time, in milliseconds), and commit it.

        A marker that is recorded already makes it a no-op. Where there is nothing to do but a marker to set, the marker is
        committed alone.
        """
        if self._is_recorded(txn):
            assert txn is not None
            return recorded_operation(self.store, self.version, set_transaction(txn, None))
        start = time.monotonic()
        operation = plan(self._snapshot, now_ms(self._clock))
        if operation is None:
            if txn is None:
                return OperationResult(self.version)
            operation = Operation("SET TRANSACTION", {}, self._snapshot)
        metrics = {**operation.metrics, "executionTimeMs": int((time.monotonic() - start) * 1000)}
        done = self._commit(replace(operation, metrics=metrics), txn)
        if done.already_recorded:
            assert txn is not None
            return recorded_operation(self.store, self.version, set_transaction(txn, None))
        return OperationResult(done.version, False, metrics)

    def _commit(self, operation: Operation, txn: Txn | None) -> Committed:
        now = now_ms(self._clock)
        done = commit(replace(operation, transaction=None if txn is None else set_transaction(txn, now)), now)
        self._snapshot = done.snapshot
        if not done.already_recorded:
            self._checkpoint_if_due(done)
        return done

    def _write(self, arrow: ArrowData, plan: Callable[[pa.Schema], Write], txn: Txn | None) -> WriteResult:
        reader = _reader(arrow)
        earlier = self.recorded(txn)
        if earlier is not None:
            return earlier
        write = plan(reader.schema)
        adds, changes = write.writer.write(pa.Table.from_batches([batch]) for batch in reader)
        return self.commit(write.operation(adds, changes), txn)

    def _checkpoint_if_due(self, done: Committed) -> None:
        # The commit stands, whatever happens here: an error now would make the caller repeat it. Readers only lose time.
        try:
            if done.version % checkpoint_interval(self.metadata.configuration) == 0:
                write_checkpoint(done.snapshot, now_ms(self._clock))
                self._snapshot = done.snapshot.on_checkpoint()
        except Exception:
            _LOG.warning("version %d of %s is committed, but its checkpoint failed", done.version, self.store.url(), exc_info=True)

    def __repr__(self) -> str:
        return f"DeltaTable({self.store.url()!r}, version={self.version})"


_FILE_COLUMNS: Mapping[str, str] = {
    "path": "path",
    "size": "size",
    "modification_time": "modificationTime",
    "partition_values": "partitionValues",
    "num_records": "stats",
    "stats": "stats",
}
_FILE_TYPES: Mapping[str, pa.DataType] = {
    "path": pa.string(),
    "size": pa.int64(),
    "modification_time": pa.int64(),
    "partition_values": PARTITION_VALUES,
    "num_records": pa.int64(),
    "stats": pa.string(),
}


def _store(location: Location, storage_options: Mapping[str, Any] | None) -> ObjectStore:
    return location if isinstance(location, ObjectStore) else open_store(location, storage_options=storage_options)


def _reader(arrow: ArrowData) -> pa.RecordBatchReader:
    if isinstance(arrow, pa.RecordBatchReader):
        return arrow
    if isinstance(arrow, pa.RecordBatch):
        return pa.Table.from_batches([arrow]).to_reader()
    if isinstance(arrow, pa.Table):
        return arrow.to_reader()
    if hasattr(arrow, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(arrow)
    raise SchemaMismatch(f"rows are a pyarrow Table, RecordBatch or RecordBatchReader, not {type(arrow).__name__}")
