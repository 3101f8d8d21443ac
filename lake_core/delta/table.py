"""`DeltaTable`: a handle on one snapshot of a table, which moves to the new version with each write."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import pyarrow as pa

from lake_core.clock import Clock, now_ms, system_clock
from lake_core.delta.action import Protocol
from lake_core.delta.clustering import check_clustering, clustered_by, clustering_columns, clustering_domain
from lake_core.delta.commit_actions import partition_by_text
from lake_core.delta.definition import asked_protocol, check_empty, check_same, new_metadata
from lake_core.delta.errors import (
    ConcurrentModification,
    InvalidMerge,
    SchemaMismatch,
    TableAlreadyExists,
)
from lake_core.delta.features import CLUSTERING, READER_VERSION, WRITER_VERSION, check_writable, upgraded, upgraded_for
from lake_core.delta.fit import fit_rows
from lake_core.delta.operation import Operation
from lake_core.delta.operations.delete import delete
from lake_core.delta.operations.update import update
from lake_core.delta.operations.write import SchemaMode, Write, plan_append, plan_overwrite
from lake_core.delta.snapshot import Snapshot, load_snapshot
from lake_core.delta.table_definition import AlterableTable
from lake_core.delta.table_maintenance import MaintainedTable
from lake_core.delta.transaction import Committed, commit_first
from lake_core.runner import Runner, run_here
from lake_core.store import store_at

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lake_core.delta.commit_time import Instant
    from lake_core.delta.operations.merge import Merge, MergeText
    from lake_core.delta.parquet_options import WriterProperties
    from lake_core.delta.result import OperationResult
    from lake_core.delta.table_view import Location
    from lake_core.expression import Filters
    from lake_core.store import ObjectStore
    from lake_core.txn import Txn

ArrowData: TypeAlias = "pa.Table | pa.RecordBatch | pa.RecordBatchReader"
"""Rows to write. Any object with `__arrow_c_stream__` is accepted as well."""

_WRITERS = 2


class DeltaTable(AlterableTable, MaintainedTable):
    """A Delta table on any object store.

    The handle reads one snapshot. `refresh` moves it to the latest version, and so does each write through it. Appends
    are committed on top of what others committed in the meantime. An overwrite fails if it would drop rows that others
    have added since the handle's version.

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
        partition_by: Sequence[str] | None = None,
        cluster_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        exist_ok: bool = False,
        clock: Clock | None = None,
    ) -> DeltaTable:
        """Create an empty table. Its protocol is the lowest for its schema and properties (mostly reader 1, writer 2).

        `optimize` sorts a table by the columns of `cluster_by`, which take the place of partitions. With `exist_ok`, an
        existing table is opened if it has the same schema, partitioning and clustering.

        Raises:
            TableAlreadyExists: A table exists there, and `exist_ok` is false. Open it.
            FolderNotEmpty: The folder holds other files. Choose another one, or convert its Parquet files.
            SchemaMismatch: The columns to partition or to cluster by do not fit the schema, or the existing table is
                another one.
            UnsupportedType: A type has no Delta type, or needs a cast that only you can choose. Cast the column.
            InvalidProperty: A property has an invalid value.
            UnsupportedWriterFeature: The properties ask for a feature that this writer does not support.
        """
        store = store_at(url_or_store, storage_options)
        clock = clock or system_clock
        protocol, plain_properties = asked_protocol(Protocol(READER_VERSION, WRITER_VERSION), properties or {})
        metadata = new_metadata(schema, partition_by, plain_properties, now_ms(clock))
        protocol = upgraded_for(protocol, None, metadata)
        domains = [clustering_domain(metadata, cluster_by)] if cluster_by else []
        if domains:
            check_clustering(metadata, domains)
            protocol = upgraded(protocol, {CLUSTERING})
        check_writable(protocol, metadata, store)
        try:
            if not cls.exists(store):
                check_empty(store)
                parameters = {"partitionBy": partition_by_text(metadata.partition_columns), "isManaged": "false"}
                if domains:
                    parameters["clusterBy"] = partition_by_text(clustered_by(metadata, domains).names)
                operation = Operation("CREATE TABLE", parameters, protocol=protocol, metadata=metadata, domains=domains)
                commit_first(store, operation, now_ms(clock))
                return cls._created(store, clock)
            raise TableAlreadyExists(f"a table exists at {store.url()} already: open it, or pass exist_ok=True")
        except TableAlreadyExists:
            if not exist_ok:
                raise
        table = cls.at(load_snapshot(store), clock)
        check_same(table.metadata, metadata, store)
        if clustering_columns(table.snapshot.domains) != clustering_columns(domains):
            names = list(table.detail().clustering_columns)
            raise SchemaMismatch(f"the table at {store.url()} is clustered by {names}, not by {list(cluster_by)}")
        return table

    @classmethod
    def _created(cls, store: ObjectStore, clock: Clock, allowed_roots: tuple[ObjectStore, ...] = ()) -> Self:
        table = cls.at(load_snapshot(store, 0, allowed_roots=allowed_roots), clock)
        table.follow_up(Committed(table.snapshot, 0), adds_are_new=True)
        return table

    def append(
        self,
        arrow: ArrowData,
        *,
        schema_mode: SchemaMode | None = None,
        writer_properties: WriterProperties | None = None,
        txn: Txn | None = None,
    ) -> OperationResult:
        """Add rows. Appends never conflict. `schema_mode="merge"` adds columns that the table does not have.

        `writer_properties` choose how the Parquet files are written, where not as the table's properties say.

        Raises:
            InvalidProperty: The `writer_properties` have an invalid value.
            SchemaMismatch: The rows do not fit the table's columns. Nothing was written.
            UnsupportedType: A type has no Delta type, or needs a cast that only you can choose. Cast the column.
            ConstraintViolation: Rows break a rule of the table, such as NOT NULL or a CHECK constraint.
            UnsupportedExpression: A rule of the table uses SQL that this writer does not evaluate. Write with another
                client.
            UnsupportedWriterFeature: The table needs a feature that this writer does not support, or belongs to a lake
                and was opened outside of a session.
            InvalidTransaction: `txn` is not a pair of an application id and a version.
            MetadataChanged: Another writer changed the table's schema or properties. Refresh the table, and run it
                again.
            CommitTimeout: Other writers committed first until the deadline. Run it again.
            CommitOutcomeUnknown: The store stopped answering during the commit. Repeat it with the same `txn`.
        """
        rows = _fitted(arrow, self.schema)
        return self._write(rows, lambda schema: self.plan_append(schema, schema_mode), txn, writer_properties)

    def overwrite(
        self,
        arrow: ArrowData,
        *,
        where: str | Filters | None = None,
        dynamic: bool = False,
        schema_mode: SchemaMode | None = None,
        partition_by: Sequence[str] | None = None,
        writer_properties: WriterProperties | None = None,
        txn: Txn | None = None,
    ) -> OperationResult:
        """Replace all rows, those for which `where` is true, or with `dynamic` the partitions that get new rows.

        `where` must be true for the new rows; without new rows, the old ones are only deleted. `schema_mode="merge"`
        adds columns that the table does not have; `"overwrite"` replaces the table's schema, and its partitioning by
        `partition_by`. An overwrite also raises what `append` raises.

        Raises:
            RowsOutsidePredicate: `where` is not true for a new row. Nothing became visible.
            InvalidExpression: The SQL does not parse, names an unknown column, or uses what is not supported.
            AppendOnlyTable: The property `delta.appendOnly` forbids deleting and changing rows.
            ConcurrentModification: Others changed the part that is replaced since this handle's version. Refresh the
                table, and run it again.
        """

        def plan(schema: pa.Schema) -> Write:
            return self.plan_overwrite(
                schema, where=where, dynamic=dynamic, schema_mode=schema_mode, partition_by=partition_by
            )

        rows = arrow if schema_mode == "overwrite" else _fitted(arrow, self.schema)
        return self._write(rows, plan, txn, writer_properties)

    def delete(
        self, where: str | Filters | None = None, *, deletion_vectors: bool | None = None, txn: Txn | None = None
    ) -> OperationResult:
        """Delete the rows for which `where` is true, or all rows if it is not given.

        `where` is Spark SQL, or filters as values: see `to_arrow`.

        Only files with such rows are rewritten. With deletion vectors no file is: its deleted rows are listed beside
        it. `deletion_vectors` chooses for this operation what the property `delta.enableDeletionVectors` says for all.

        Raises:
            InvalidProperty: `deletion_vectors` is true, and the table does not allow them. Set the property first.
            InvalidExpression: The SQL does not parse, names an unknown column, or uses what is not supported.
            AppendOnlyTable: The property `delta.appendOnly` forbids deleting and changing rows.
            ConcurrentModification: Another writer committed what this operation contradicts. Refresh the table, and run
                it again.
            UnsupportedWriterFeature: The table needs a feature that this writer does not support, or belongs to a lake
                and was opened outside of a session.
            InvalidTransaction: `txn` is not a pair of an application id and a version.
            DataFileMissing: A file was vacuumed meanwhile. Refresh the table, and run it again.
            CommitTimeout: Other writers committed first until the deadline. Run it again.
            CommitOutcomeUnknown: The store stopped answering during the commit. Repeat it with the same `txn`.
        """

        def plan(snapshot: Snapshot, now: int) -> Operation | None:
            return delete(snapshot, where, now, deletion_vectors=deletion_vectors)

        return self.operate(plan, txn)

    def update(
        self,
        changes: Mapping[str, str],
        where: str | Filters | None = None,
        *,
        deletion_vectors: bool | None = None,
        txn: Txn | None = None,
    ) -> OperationResult:
        """Set columns to SQL expressions (`{"price": "price * 2"}`) in the rows for which `where` is true.

        An update also raises what `delete` raises.

        Raises:
            SchemaMismatch: The table has no such column, or one is assigned twice.
            InvalidExpression: The SQL does not parse, names an unknown column, or uses what is not supported.
            EvaluationFailed: An expression fails for a row, such as by a division by zero.
            ConstraintViolation: Rows break a rule of the table, such as NOT NULL or a CHECK constraint.
        """

        def plan(snapshot: Snapshot, now: int) -> Operation | None:
            return update(snapshot, changes, where, now, deletion_vectors=deletion_vectors)

        return self.operate(plan, txn)

    def merge(self, source: ArrowData, on: str, *, alias: tuple[str, str] = ("t", "s")) -> Merge:
        """Merge rows into the table, by clauses that are added to the result.

        For example: `table.merge(rows, "t.id = s.id").when_matched_update("*").when_not_matched_insert("*").execute()`.

        `alias` names the table and the source in expressions. The source is held in memory.
        """
        from lake_core.delta.operations.merge import Merge, merge

        rows = _Once(_reader(source))

        def execute(text: MergeText, txn: Txn | None) -> OperationResult:
            return self.operate(lambda snapshot, now: merge(snapshot, rows.read(), text, now), txn)

        return Merge(on, alias, execute)

    def restore(
        self, version: int | None = None, timestamp: Instant | None = None, *, txn: Txn | None = None
    ) -> OperationResult:
        """Restore the table to an earlier version or time, in a new version, with the txn actions of that time.

        Raises:
            VersionNotFound: The table has no such version, or its log no longer has what reading it needs.
            DataFileMissing: A file of that version was vacuumed. Restore a later one.
            AppendOnlyTable: The property `delta.appendOnly` forbids deleting and changing rows.
            ConcurrentModification: Another writer committed what this operation contradicts. Refresh the table, and run
                it again.
            UnsupportedWriterFeature: The table needs a feature that this writer does not support, or belongs to a lake
                and was opened outside of a session.
            ValueError: Both a version and a timestamp are given, or neither.
        """
        from lake_core.delta.operations.restore import restore

        if (version is None) == (timestamp is None):
            raise ValueError("pass either a version or a timestamp to restore")
        roots = self._snapshot.allowed_roots
        target = type(self).open(self.store, version=version, timestamp=timestamp, allowed_roots=roots).snapshot
        before = self.version
        result = self.operate(lambda snapshot, now: restore(snapshot, target, now), txn)
        if result.version == before and not result.skipped:
            # Nothing was to be restored on what this handle has seen, which may be the version that it was opened at.
            newest = self._snapshot.refreshed().version
            if newest != before:
                raise ConcurrentModification(
                    f"the table is at version {newest}, and this handle at {before}", version=newest
                )
        return result

    def clone(
        self,
        url_or_store: Location,
        *,
        shallow: bool = True,
        storage_options: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
    ) -> DeltaTable:
        """Create a table with the rows, the definition and the row ids of this handle's version.

        A shallow clone copies no file: it names those of this table, and is lost with them. Before this table is
        vacuumed, or the garbage of its lake collected, drop the clone, or keep the version (in a lake, by a tag). A
        deep clone has its own files, and the transaction identifiers of this table. Neither belongs to a lake.

        Raises:
            TableAlreadyExists: A table exists there already.
            FolderNotEmpty: The folder holds other files. Choose another one.
            PathOutsideTable: This table is a shallow clone itself, and was opened without the roots of its files, or
                the clone is to be a deep one.
        """
        from lake_core.delta.operations.clone import clone, protocol_of_clone

        store, clock = store_at(url_or_store, storage_options), clock or system_clock
        if type(self).exists(store):
            raise TableAlreadyExists(f"a table exists at {store.url()} already: choose another place for the clone")
        check_empty(store)
        check_writable(protocol_of_clone(self.protocol), self.metadata, store)
        now = now_ms(clock)
        commit_first(store, clone(self._snapshot, store, now, shallow=shallow), now)
        return type(self)._created(store, clock, self._snapshot.roots if shallow else ())

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
        """Convert a folder of Parquet files to a table. The files are not copied.

        Partitions are read from folder names such as `day=2024-01-01/`. Pass `partition_by` to name the partition
        columns instead of inferring them; a schema also gives their types. `run` calls the functions that read the
        files; by default, in this process.

        Raises:
            TableAlreadyExists: A table exists there already. Open it.
            ConvertFailed: The folder has no Parquet files, or they cannot be a table as they are. Nothing was written.
            SchemaMismatch: The schemas of the files, or `partition_by`, do not fit together.
            UnsupportedType: A type has no Delta type, or needs a cast that only you can choose. Cast the column.
            CorruptDataFile: A file is not valid Parquet.
        """
        from lake_core.delta.operations.convert import convert

        store, clock = store_at(url_or_store, storage_options), clock or system_clock
        files = store.data_root
        commit_first(store, convert(files, partition_by, now_ms(clock), run), now_ms(clock))
        return cls._created(store, clock)

    def drop_feature(self, feature: str) -> None:
        """Drop a table feature by its name in the protocol, such as `deletionVectors`, so that other clients can write.

        Its properties are removed. Files that depend on the feature are written anew before: those with deletion
        vectors, and all files of tables with column mapping or widened columns. Older versions may need the
        feature until they are past the retention: then the table gets the feature `checkpointProtection` instead, which
        can be dropped after that. There are several commits; if one fails, call it again.

        Raises:
            FeatureInUse: The table uses the feature, or is in a lake. The message says what to do first.
            ConcurrentModification: Another writer changed the table meanwhile. Refresh it, and call it again.
        """
        from lake_core.delta.operations.drop_feature import VECTORS, drop_feature, protect_since, turned_off
        from lake_core.delta.operations.plain_files import WITH_TRACES, write_plain

        self._check_writable()
        metadata = turned_off(self._snapshot, feature)
        if feature == VECTORS:
            names = [name for name in self.properties if name not in metadata.configuration]
            self.unset_properties(names)
            self.optimize(purge=True)
        elif feature in WITH_TRACES:
            self.operate(lambda snapshot, now: write_plain(snapshot, turned_off(snapshot, feature), feature, now), None)
        self.operate(lambda snapshot, _: drop_feature(snapshot, feature, turned_off(snapshot, feature)), None)
        self.operate(lambda snapshot, _: protect_since(snapshot, feature), None)
        self.checkpoint()

    def plan_append(self, data: pa.Schema, schema_mode: SchemaMode | None = None) -> Write:
        """Plan an append to this snapshot, for callers that write the data files themselves.

        Raises what `append` raises.
        """
        return plan_append(self._snapshot, data, now_ms(self._clock), schema_mode)

    def plan_overwrite(
        self,
        data: pa.Schema,
        *,
        where: str | Filters | None = None,
        dynamic: bool = False,
        schema_mode: SchemaMode | None = None,
        partition_by: Sequence[str] | None = None,
    ) -> Write:
        """Plan an overwrite of this snapshot, for callers that write the data files themselves.

        Raises what `overwrite` raises.
        """
        now = now_ms(self._clock)
        return plan_overwrite(
            self._snapshot, data, now, where=where, dynamic=dynamic, schema_mode=schema_mode, partition_by=partition_by
        )

    def _write(
        self,
        arrow: ArrowData,
        plan: Callable[[pa.Schema], Write],
        txn: Txn | None,
        writer_properties: WriterProperties | None,
    ) -> OperationResult:
        reader = _reader(arrow)
        earlier = self.recorded(txn)
        if earlier is not None:
            return earlier
        write = plan(reader.schema)
        parquet = None if writer_properties is None else writer_properties.options(self.properties)
        adds, changes = replace(write.writer, threads=_WRITERS, parquet=parquet).write(
            pa.Table.from_batches([batch]) for batch in reader
        )
        return self.commit(write.operation(adds, changes), txn)


class _Once:
    """Rows that are read when they are first needed, and then held, because a merge that lost a race runs again.

    If reading fails halfway, the rows are not read again: the rest would be taken for all of them.
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


def _fitted(arrow: ArrowData, columns: pa.Schema) -> ArrowData:
    """Return rows with the types of these columns where their values fit them. A stream is not looked into."""
    if isinstance(arrow, pa.RecordBatchReader) or not hasattr(arrow, "__len__"):
        return arrow
    return fit_rows(arrow if isinstance(arrow, pa.Table) else _reader(arrow).read_all(), columns)


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
