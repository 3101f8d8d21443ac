"""`DeltaTable`: a table at a location, as a handle on one snapshot that moves forward with each write."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa

from lake_core import runtime
from lake_core.clock import Clock, now_ms, system_clock
from lake_core.delta.action import Protocol
from lake_core.delta.checkpoint_writer import write_checkpoint
from lake_core.delta.conflict import Reads
from lake_core.delta.definition import asked_protocol, check_empty, check_same, new_metadata
from lake_core.delta.errors import (
    InvalidMerge,
    InvalidTransaction,
    SchemaMismatch,
    TableAlreadyExists,
)
from lake_core.delta.features import READER_VERSION, WRITER_VERSION, check_writable, upgraded_for
from lake_core.delta.log_cleanup import clean_log
from lake_core.delta.operations import alter
from lake_core.delta.operations.convert import convert
from lake_core.delta.operations.delete import delete
from lake_core.delta.operations.merge import Merge, MergeText, merge
from lake_core.delta.operations.optimize import optimize
from lake_core.delta.operations.restore import restore
from lake_core.delta.operations.runner import Runner, run_here
from lake_core.delta.operations.update import update
from lake_core.delta.operations.vacuum import Orphans, VacuumResult, vacuum
from lake_core.delta.operations.write import SchemaMode, Write, plan_append, plan_overwrite
from lake_core.delta.properties import checkpoint_interval
from lake_core.delta.result import OperationResult, recorded_operation
from lake_core.delta.set_transaction import recorded_version, set_transaction
from lake_core.delta.snapshot import Snapshot, load_snapshot
from lake_core.delta.table_view import Location, TableView
from lake_core.delta.transaction import Committed, Operation, commit, commit_first, partition_by_text
from lake_core.store import store_at
from lake_core.txn import Txn, check_txn

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping, Sequence

    from lake_core.delta.commit_time import Instant

ArrowData: TypeAlias = "pa.Table | pa.RecordBatch | pa.RecordBatchReader"
"""Rows to write; anything with `__arrow_c_stream__` serves as well."""

_WRITERS = 2
_LOG = logging.getLogger(__name__)


class DeltaTable(TableView):
    """A Delta table on any object store.

    The handle shows one snapshot: `refresh` moves it to the latest version, and so does every write of its own. Appends
    follow whatever others committed in the meantime; an overwrite that would drop rows it has not seen is refused.

        table = DeltaTable.create("s3://bucket/orders", schema, partition_by=["day"])
        table.append(rows, txn=("nightly-load", 17))
        table.to_arrow(columns=["id"], where="day >= DATE '2024-01-01'")
    """

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
        """Create an empty table, at the lowest protocol for its schema and properties (mostly reader 1, writer 2).

        With `exist_ok`, an existing table is opened if its schema and partitioning are the same.
        Raises TableAlreadyExists, FolderNotEmpty, SchemaMismatch, UnsupportedType, InvalidProperty,
        UnsupportedWriterFeature.
        """
        store = store_at(url_or_store, storage_options)
        clock = clock or system_clock
        protocol, plain_properties = asked_protocol(Protocol(READER_VERSION, WRITER_VERSION), properties or {})
        metadata = new_metadata(schema, partition_by, plain_properties, now_ms(clock))
        protocol = upgraded_for(protocol, None, metadata)
        check_writable(protocol, metadata, store)
        try:
            if not cls.exists(store):
                check_empty(store)
                parameters = {"partitionBy": partition_by_text(metadata.partition_columns), "isManaged": "false"}
                commit_first(
                    store, Operation("CREATE TABLE", parameters, protocol=protocol, metadata=metadata), now_ms(clock)
                )
                return cls.at(load_snapshot(store, 0), clock)
            raise TableAlreadyExists(f"a table exists at {store.url()} already: open it, or pass exist_ok=True")
        except TableAlreadyExists:
            if not exist_ok:
                raise
        table = cls.at(load_snapshot(store), clock)
        check_same(table.metadata, metadata, store)
        return table

    def append(
        self, arrow: ArrowData, *, schema_mode: SchemaMode | None = None, txn: Txn | None = None
    ) -> OperationResult:
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
    ) -> OperationResult:
        """Replace all rows, those for which `where` is true, or (`dynamic`) those of the partitions that get new ones.

        The new rows must lie inside `where`; no rows at all just clear it. `schema_mode="merge"` adds columns that the
        table lacks, `"overwrite"` makes the data's schema (and `partition_by`) the table's. Raises
        RowsOutsidePredicate, InvalidExpression, AppendOnlyTable, ConcurrentAppend and its siblings where others wrote
        there since this handle's version, and what `append` raises.
        """

        def plan(schema: pa.Schema) -> Write:
            return self.plan_overwrite(
                schema, where=where, dynamic=dynamic, schema_mode=schema_mode, partition_by=partition_by
            )

        return self._write(arrow, plan, txn)

    def delete(self, where: str | None = None, *, txn: Txn | None = None) -> OperationResult:
        """Delete the rows for which `where` (Spark SQL) is true, all rows without it.

        Only files that hold one are written anew.

        Raises InvalidExpression, AppendOnlyTable, ConcurrentModification and its kinds, and what reading and writing
        raise.
        """
        return self.operate(lambda snapshot, now: delete(snapshot, where, now), txn)

    def update(
        self, changes: Mapping[str, str], where: str | None = None, *, txn: Txn | None = None
    ) -> OperationResult:
        """Set columns to SQL expressions (`{"price": "price * 2"}`) in the rows for which `where` is true.

        Raises SchemaMismatch, InvalidExpression, EvaluationFailed, ConstraintViolation, and what `delete` raises.
        """
        return self.operate(lambda snapshot, now: update(snapshot, changes, where, now), txn)

    def merge(self, source: ArrowData, on: str, *, alias: tuple[str, str] = ("t", "s")) -> Merge:
        """Merge rows into the table, by clauses that are added to the result.

        For example: `table.merge(rows, "t.id = s.id").when_matched_update("*").when_not_matched_insert("*").execute()`.

        `alias` names the table and the source in expressions. The source is held in memory.
        """
        rows = _Once(_reader(source))

        def execute(text: MergeText, txn: Txn | None) -> OperationResult:
            return self.operate(lambda snapshot, now: merge(snapshot, rows.read(), text, now), txn)

        return Merge(on, alias, execute)

    def optimize(
        self,
        where: str | None = None,
        *,
        target_size: int | None = None,
        zorder_by: Sequence[str] = (),
        txn: Txn | None = None,
    ) -> OperationResult:
        """Put small files together, or with `zorder_by` sort rows so that filters on these columns skip files.

        Files grow up to `target_size` bytes (`delta.targetFileSize`, else 128 MiB). `where`: only these partitions. No
        row changes, so other writers may go on.

        Raises InvalidPredicate, InvalidExpression, SchemaMismatch, ConcurrentDeleteRead where a file was rewritten
        in the meantime, and what reading and writing raise.
        """

        def plan(snapshot: Snapshot, now: int) -> Operation | None:
            return optimize(snapshot, now, where=where, target_size=target_size, zorder_by=zorder_by)

        return self.operate(plan, txn)

    def vacuum(
        self,
        retention: dt.timedelta | str | None = None,
        *,
        mode: Literal["full", "lite"] = "full",
        orphans: Orphans = "own",
        dry_run: bool = False,
        allow_unsafe: bool = False,
        run: Runner = run_here,
    ) -> VacuumResult:
        """Delete data files that were removed, or never committed, longer ago than `retention`.

        It is a timedelta or an interval such as '14 days', and the table's own by default.

        `full` lists the table's folder; `lite` only reads the log, and so finds no orphans. A file that no commit in
        the log names goes only if its name is one that this writer gives. `orphans="delta"` also takes the names that
        other Delta writers give; files that Spark writes without Delta have the same names, so use it only where nobody
        puts such files into the table's folder. The result's `unknown` lists what stays. `dry_run` only tells. Moves
        the handle to the latest version. `run` says who lists and deletes. Raises UnsafeRetention for a retention below
        the table's own unless `allow_unsafe`.
        """
        self.refresh()
        self._check_writable()
        now = now_ms(self._clock)
        return vacuum(
            self._snapshot,
            now,
            retention=retention,
            mode=mode,
            orphans=orphans,
            dry_run=dry_run,
            allow_unsafe=allow_unsafe,
            run=run,
        )

    def restore(
        self, version: int | None = None, timestamp: Instant | None = None, *, txn: Txn | None = None
    ) -> OperationResult:
        """Bring back the table as it was at a version or a time, as a new version; the markers of that time too.

        Raises VersionNotFound, AppendOnlyTable, DataFileMissing where a file of that version was vacuumed, and
        ConcurrentModification and its kinds.
        """
        if (version is None) == (timestamp is None):
            raise ValueError("pass either a version or a timestamp to restore")
        target = type(self).open(self.store, version=version, timestamp=timestamp).snapshot
        return self.operate(lambda snapshot, now: restore(snapshot, target, now), txn)

    @classmethod
    def convert(
        cls,
        url_or_store: Location,
        *,
        partition_by: pa.Schema | Sequence[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        run: Runner = run_here,
    ) -> DeltaTable:
        """Make a table of a folder of Parquet files, where they lie.

        Partitions are read from folder names such as `day=2024-01-01/`.

        `partition_by`: the partition columns if they are not to be inferred, with types if a schema. Raises
        TableAlreadyExists, ConvertFailed, SchemaMismatch, UnsupportedType, CorruptDataFile. `run` says who reads the
        files: this process by default.
        """
        store, clock = store_at(url_or_store, storage_options), clock or system_clock
        files = store.data_root
        commit_first(store, convert(files, partition_by, now_ms(clock), run), now_ms(clock))
        return cls.at(load_snapshot(store, 0), clock)

    def set_properties(self, properties: Mapping[str, str], *, txn: Txn | None = None) -> OperationResult:
        """Set table properties.

        One that switches a feature on (`delta.enableChangeDataFeed`, …) upgrades the protocol as far as it needs.

        Raises InvalidProperty, UnsupportedWriterFeature, MetadataChanged.
        """
        return self.operate(lambda snapshot, _: alter.set_properties(snapshot, properties), txn)

    def unset_properties(self, names: Sequence[str], *, txn: Txn | None = None) -> OperationResult:
        """Take table properties away. Raises InvalidProperty, MetadataChanged."""
        return self.operate(lambda snapshot, _: alter.unset_properties(snapshot, names), txn)

    def add_constraint(self, name: str, sql: str, *, txn: Txn | None = None) -> OperationResult:
        """Add a CHECK constraint, which every row that is there must keep; null does not.

        Raises ConstraintViolation, InvalidExpression, InvalidProperty, ConcurrentAppend and its siblings.
        """
        return self.operate(lambda snapshot, _: alter.add_constraint(snapshot, name, sql), txn)

    def drop_constraint(self, name: str, *, txn: Txn | None = None) -> OperationResult:
        """Drop a CHECK constraint. Raises ConstraintNotFound, MetadataChanged."""
        return self.operate(lambda snapshot, _: alter.drop_constraint(snapshot, name), txn)

    def add_columns(self, schema: pa.Schema, *, txn: Txn | None = None) -> OperationResult:
        """Add nullable columns; fields inside a struct by a struct of its name with the new fields.

        Columns that already exist are passed over. Raises SchemaMismatch, UnsupportedType, MetadataChanged.
        """
        return self.operate(lambda snapshot, _: alter.add_columns(snapshot, schema), txn)

    def rename_column(self, column: str, name: str, *, txn: Txn | None = None) -> OperationResult:
        """Rename a column, or a field inside one (by dots).

        Needs `delta.columnMapping.mode`. Raises SchemaMismatch, MetadataChanged.
        """
        return self.operate(lambda snapshot, _: alter.rename_column(snapshot, column, name), txn)

    def drop_columns(self, names: Sequence[str], *, txn: Txn | None = None) -> OperationResult:
        """Drop columns, or fields inside columns (by dots).

        Needs `delta.columnMapping.mode`. Raises SchemaMismatch, MetadataChanged.
        """
        return self.operate(lambda snapshot, _: alter.drop_columns(snapshot, names), txn)

    def drop_not_null(self, column: str, *, txn: Txn | None = None) -> OperationResult:
        """Allow nulls in a column, or a field inside one (by dots). Raises SchemaMismatch, MetadataChanged."""
        return self.operate(lambda snapshot, _: alter.drop_not_null(snapshot, column), txn)

    def set_comments(self, comments: Mapping[str, str | None], *, txn: Txn | None = None) -> OperationResult:
        """Give columns, or fields inside them (by dots), a comment; None takes it away.

        Raises SchemaMismatch, MetadataChanged.
        """
        return self.operate(lambda snapshot, _: alter.set_comments(snapshot, comments), txn)

    def reorder_columns(self, names: Sequence[str], *, txn: Txn | None = None) -> OperationResult:
        """Put these columns first, in this order. Raises SchemaMismatch, MetadataChanged."""
        return self.operate(lambda snapshot, _: alter.reorder_columns(snapshot, names), txn)

    def plan_append(self, data: pa.Schema, schema_mode: SchemaMode | None = None) -> Write:
        """Plan an append to this snapshot, for writers that bring rows into data files themselves.

        Raises as `append`.
        """
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
        """Plan an overwrite of this snapshot, for writers that bring rows into data files themselves.

        Raises as `overwrite`.
        """
        now = now_ms(self._clock)
        return plan_overwrite(
            self._snapshot, data, now, where=where, dynamic=dynamic, schema_mode=schema_mode, partition_by=partition_by
        )

    def checkpoint(self) -> None:
        """Write a checkpoint of this version, and point `_last_checkpoint` at it unless it points further."""
        self._check_writable()
        write_checkpoint(self._snapshot, now_ms(self._clock))
        self.clean_log()

    def clean_log(self) -> list[str]:
        """Delete log files that no version within `delta.logRetentionDuration` (30 days) needs, as checkpoints do.

        Returns their keys. Inside a lake none: its history keeps them.
        """
        self._check_writable()
        if self.store.versioned:
            return []
        return clean_log(self._snapshot, now_ms(self._clock))

    def recorded(self, txn: Txn | None) -> OperationResult | None:
        """Return the result of an earlier attempt with this marker, by the latest version; None if there was none.

        Raises InvalidTransaction, UnsupportedWriterFeature.
        """
        check_txn(txn, InvalidTransaction)
        self._check_writable()
        if txn is None:
            return None
        latest = self._snapshot.refreshed()
        recorded = recorded_version(latest, txn[0], now_ms(self._clock))
        if recorded is None or recorded < txn[1]:
            return None
        self._snapshot = latest
        return recorded_operation(self.store, self.version, set_transaction(txn, None))

    def _check_writable(self) -> None:
        check_writable(self._snapshot.protocol, self._snapshot.metadata, self.store)

    def commit(self, operation: Operation, txn: Txn | None) -> OperationResult:
        """Commit a write (of `plan_append` or `plan_overwrite`), on top of the snapshot that it was planned on."""
        return self._committed(operation, txn)

    def operate(self, plan: Callable[[Snapshot, int], Operation | None], txn: Txn | None) -> OperationResult:
        """Plan an operation on this snapshot (`plan` takes it and the time, in milliseconds), and commit it.

        A marker that is already recorded makes it a no-op. If there is nothing to do except setting a marker, the
        commit contains only the marker.
        """
        earlier = self.recorded(txn)
        if earlier is not None:
            return earlier
        start = runtime.monotonic()
        operation = plan(self._snapshot, now_ms(self._clock))
        if operation is None:
            if txn is None:
                return OperationResult(self.version)
            # That there is nothing to do was read from the whole table.
            operation = Operation("SET TRANSACTION", {}, self._snapshot, reads=Reads.WHOLE_TABLE)
        metrics = {**operation.metrics, "executionTimeMs": int((runtime.monotonic() - start) * 1000)}
        return self._committed(replace(operation, metrics=metrics), txn)

    def _committed(self, operation: Operation, txn: Txn | None) -> OperationResult:
        """Commit an operation, and return what it did, or what an attempt with the same marker did that was faster."""
        committed = self._commit(operation, txn)
        if committed.already_recorded and txn is not None:
            return recorded_operation(self.store, self.version, set_transaction(txn, None))
        return OperationResult(committed.version, False, operation.metrics)

    def _commit(self, operation: Operation, txn: Txn | None) -> Committed:
        now = now_ms(self._clock)
        if operation.protocol is not None:
            check_writable(operation.protocol, operation.metadata or self.metadata, self.store)
        committed = commit(replace(operation, transaction=None if txn is None else set_transaction(txn, now)), now)
        self._snapshot = committed.snapshot
        if not committed.already_recorded:
            self._checkpoint_if_due(committed)
        return committed

    def _write(self, arrow: ArrowData, plan: Callable[[pa.Schema], Write], txn: Txn | None) -> OperationResult:
        reader = _reader(arrow)
        earlier = self.recorded(txn)
        if earlier is not None:
            return earlier
        write = plan(reader.schema)
        adds, changes = replace(write.writer, threads=_WRITERS).write(
            pa.Table.from_batches([batch]) for batch in reader
        )
        return self.commit(write.operation(adds, changes), txn)

    def _checkpoint_if_due(self, committed: Committed) -> None:
        if self.store.versioned:
            return  # the lake writes what is derived, once main has the version
        # The commit is valid whatever happens here: an error now would make the caller repeat it. Readers only lose
        # time.
        try:
            if committed.version % checkpoint_interval(self.metadata.configuration) == 0:
                write_checkpoint(committed.snapshot, now_ms(self._clock))
                self._snapshot = committed.snapshot.on_checkpoint()
                clean_log(self._snapshot, now_ms(self._clock))
        except Exception:
            what = "its checkpoint, or the clean-up of its log, failed"
            _LOG.warning(
                "version %d of %s is committed, but %s", committed.version, self.store.url(), what, exc_info=True
            )


class _Once:
    """Rows that are read once, when they are needed first, and then held: a merge that lost a race is executed again.

    A reader that failed half-way is not read on: the rest of its rows would pass for all of them.
    """

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader: pa.RecordBatchReader | None = reader
        self._rows: pa.Table | None = None

    def read(self) -> pa.Table:
        if self._rows is None:
            reader, self._reader = self._reader, None
            if reader is None:
                raise InvalidMerge(
                    "the source of this merge failed while it was read and cannot be read again: start another merge"
                )
            self._rows = reader.read_all()
        return self._rows


def _reader(arrow: ArrowData) -> pa.RecordBatchReader:
    if isinstance(arrow, pa.RecordBatchReader):
        return arrow
    if isinstance(arrow, pa.RecordBatch):
        return pa.Table.from_batches([arrow]).to_reader()
    if isinstance(arrow, pa.Table):
        return arrow.to_reader()
    if hasattr(arrow, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(arrow)
    raise SchemaMismatch(f"rows must be a pyarrow Table, RecordBatch or RecordBatchReader, not {type(arrow).__name__}")
