"""`DeltaTable`: a handle on one snapshot of a table, which moves to the new version with each write."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import pyarrow as pa

from lake_core import runtime
from lake_core.clock import Clock, now_ms, system_clock
from lake_core.delta.action import Protocol
from lake_core.delta.checksum_writer import write_checksum
from lake_core.delta.clustering import check_clustering, clustered_by, clustering_columns, clustering_domain
from lake_core.delta.commit_actions import partition_by_text
from lake_core.delta.conflict import Reads
from lake_core.delta.definition import asked_protocol, check_empty, check_same, new_metadata
from lake_core.delta.errors import (
    InvalidMerge,
    InvalidTransaction,
    SchemaMismatch,
    TableAlreadyExists,
)
from lake_core.delta.features import CLUSTERING, READER_VERSION, WRITER_VERSION, check_writable, upgraded, upgraded_for
from lake_core.delta.fit import fit_rows
from lake_core.delta.operation import Operation
from lake_core.delta.operations import alter
from lake_core.delta.operations.delete import delete
from lake_core.delta.operations.update import update
from lake_core.delta.operations.write import SchemaMode, Write, plan_append, plan_overwrite
from lake_core.delta.properties import checkpoint_interval
from lake_core.delta.result import OperationResult, recorded_operation
from lake_core.delta.set_transaction import recorded_version, set_transaction
from lake_core.delta.snapshot import Snapshot, load_snapshot
from lake_core.delta.table_view import Location, TableView
from lake_core.delta.transaction import Committed, commit, commit_first
from lake_core.runner import Runner, run_here
from lake_core.store import store_at
from lake_core.txn import Txn, check_txn

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping, Sequence

    from lake_core.delta.commit_time import Instant
    from lake_core.delta.operations.merge import Merge, MergeText
    from lake_core.delta.operations.vacuum import Orphans, VacuumResult
    from lake_core.delta.parquet_options import WriterProperties
    from lake_core.delta.version_checksum import VersionChecksum
    from lake_core.store import ObjectStore

ArrowData: TypeAlias = "pa.Table | pa.RecordBatch | pa.RecordBatchReader"
"""Rows to write. Any object with `__arrow_c_stream__` is accepted as well."""

_WRITERS = 2
_LOG = logging.getLogger(__name__)


class DeltaTable(TableView):
    """A Delta table on any object store.

    The handle reads one snapshot. `refresh` moves it to the latest version, and so does each write through it. Appends
    are committed on top of what others committed in the meantime. An overwrite fails if it would drop rows that others
    have added since the handle's version.

        table = DeltaTable.create("s3://bucket/orders", schema, partition_by=["day"])
        table.append(rows, txn=("nightly-load", 17))
        table.to_arrow(columns=["id"], where="day >= DATE '2024-01-01'")
    """

    _on_commit: Callable[[Snapshot], object] | None = None
    _checksum: VersionChecksum | None = None

    @classmethod
    def at(
        cls, snapshot: Snapshot, clock: Clock | None = None, on_commit: Callable[[Snapshot], object] | None = None
    ) -> Self:
        """Return a handle on a snapshot that is loaded already.

        `on_commit` is called with each snapshot that a commit through the handle leads to.
        """
        table = super().at(snapshot, clock)
        table._on_commit = on_commit
        return table

    def __getstate__(self) -> dict[str, Any]:
        # What is called on a commit belongs to the process.
        return self.__dict__ | {"_on_commit": None}

    @classmethod
    def create(
        cls,
        url_or_store: Location,
        schema: pa.Schema,
        *,
        partition_by: Sequence[str] = (),
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
        table._follow_up(Committed(table.snapshot, 0), adds_are_new=True)
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
        where: str | None = None,
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
        self, where: str | None = None, *, deletion_vectors: bool | None = None, txn: Txn | None = None
    ) -> OperationResult:
        """Delete the rows for which `where` (Spark SQL) is true, or all rows if it is not given.

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
        where: str | None = None,
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

    def optimize(
        self,
        where: str | None = None,
        *,
        target_size: int | None = None,
        zorder_by: Sequence[str] = (),
        purge: bool = False,
        full: bool = False,
        writer_properties: WriterProperties | None = None,
        txn: Txn | None = None,
    ) -> OperationResult:
        """Combine small files, or with `zorder_by` sort rows so that filters on these columns skip files.

        A clustered table is sorted by its own columns: the files that are new, with `full` all files. With `purge`,
        only files with deleted rows are written anew, without these rows. Files get up to `target_size` bytes, by
        default `delta.targetFileSize`, else 128 MiB. `where` selects partitions. No row changes, so other writers can
        commit meanwhile.

        Raises:
            InvalidPredicate: `where` is not about partition columns alone.
            InvalidExpression: The SQL does not parse, names an unknown column, or uses what is not supported.
            SchemaMismatch: `zorder_by` names columns that the table cannot be sorted by, or the table is clustered by
                its own; or `full` is true, and the table is not clustered.
            InvalidProperty: `target_size` is not a number of bytes, or the table's own property is not a size.
            ConcurrentModification: Another writer rewrote a file meanwhile. Refresh the table, and run it again.
            UnsupportedWriterFeature: The table needs a feature that this writer does not support, or belongs to a lake
                and was opened outside of a session.
            CommitTimeout: Other writers committed first until the deadline. Run it again.
            CommitOutcomeUnknown: The store stopped answering during the commit. Repeat it with the same `txn`.
        """
        from lake_core.delta.operations.optimize import optimize

        def plan(snapshot: Snapshot, now: int) -> Operation | None:
            return optimize(
                snapshot,
                now,
                where=where,
                target_size=target_size,
                zorder_by=zorder_by,
                purge=purge,
                full=full,
                parquet=None if writer_properties is None else writer_properties.options(self.properties),
            )

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
        """Delete data files that were removed from the table, or never committed, longer ago than `retention`.

        The retention is a timedelta or an interval such as '14 days'. The default is the table's own.

        `full` lists the table's folder; `lite` reads only the log, so it finds no orphans. An orphan, a file that no
        commit in the log names, is deleted only if its name has the form that this writer uses. `orphans="delta"` also
        deletes those named as other Delta writers do; Spark names files the same way when it writes them without Delta,
        so use it only if no such files are put into the table's folder. The result's `unknown` lists the orphans that
        stay. `dry_run` deletes nothing. The handle moves to the latest version. `run` calls the functions that list and
        delete.

        Raises:
            UnsafeRetention: The retention is shorter than the table's own, so readers and writers could lose files.
                Raise it, or pass `allow_unsafe`.
            UnsupportedWriterFeature: The table needs a feature that this writer does not support, or belongs to a lake
                and was opened outside of a session.
            ValueError: `mode`, `orphans` or `retention` is not valid.
        """
        from lake_core.delta.operations.vacuum import vacuum

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
        target = type(self).open(self.store, version=version, timestamp=timestamp).snapshot
        return self.operate(lambda snapshot, now: restore(snapshot, target, now), txn)

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
        from lake_core.delta.operations.clone import clone

        store, clock = store_at(url_or_store, storage_options), clock or system_clock
        if type(self).exists(store):
            raise TableAlreadyExists(f"a table exists at {store.url()} already: choose another place for the clone")
        check_empty(store)
        operation, now = clone(self._snapshot, store, now_ms(clock), shallow=shallow), now_ms(clock)
        assert operation.protocol is not None
        check_writable(operation.protocol, self.metadata, store)
        commit_first(store, operation, now)
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

    def set_properties(self, properties: Mapping[str, str], *, txn: Txn | None = None) -> OperationResult:
        """Set table properties.

        A property that enables a feature, such as `delta.enableChangeDataFeed`, upgrades the protocol if it must.

        Raises:
            InvalidProperty: A property has an invalid value, or cannot be set on a table that exists.
            UnsupportedWriterFeature: The table, or the property, needs a feature that this writer does not support.
            MetadataChanged: Another writer changed the table's schema or properties. Refresh the table, and run it
                again.
        """
        return self.operate(lambda snapshot, _: alter.set_properties(snapshot, properties), txn)

    def unset_properties(self, names: Sequence[str], *, txn: Txn | None = None) -> OperationResult:
        """Remove table properties.

        Raises:
            InvalidProperty: A property cannot be unset, because files depend on it, or it is a constraint.
            MetadataChanged: Another writer changed the table's schema or properties. Refresh the table, and run it
                again.
        """
        return self.operate(lambda snapshot, _: alter.unset_properties(snapshot, names), txn)

    def add_constraint(self, name: str, sql: str, *, txn: Txn | None = None) -> OperationResult:
        """Add a CHECK constraint. It must be true for every existing row; a row for which it is null violates it.

        Raises:
            ConstraintViolation: Rows of the table violate it. Update or delete these first.
            InvalidExpression: The SQL does not parse, names an unknown column, or uses what is not supported.
            InvalidProperty: The table has a constraint of that name already. Choose another name.
            ConcurrentModification: Another writer committed what this operation contradicts. Refresh the table, and run
                it again.
        """
        return self.operate(lambda snapshot, _: alter.add_constraint(snapshot, name, sql), txn)

    def drop_constraint(self, name: str, *, txn: Txn | None = None) -> OperationResult:
        """Drop a CHECK constraint.

        Raises:
            ConstraintNotFound: The table has no such constraint. The message lists those that it has.
            MetadataChanged: Another writer changed the table's schema or properties. Refresh the table, and run it
                again.
        """
        return self.operate(lambda snapshot, _: alter.drop_constraint(snapshot, name), txn)

    def add_columns(self, schema: pa.Schema, *, txn: Txn | None = None) -> OperationResult:
        """Add nullable columns. To add fields to a struct, pass a struct of the same name with the new fields.

        Columns that already exist are ignored.

        Raises:
            SchemaMismatch: A column has a rule that the existing rows do not meet, or does not fit the table's schema.
            UnsupportedType: A type has no Delta type, or needs a cast that only you can choose. Cast the column.
            MetadataChanged: Another writer changed the table's schema or properties. Refresh the table, and run it
                again.
        """
        return self.operate(lambda snapshot, _: alter.add_columns(snapshot, schema), txn)

    def rename_column(self, column: str, name: str, *, txn: Txn | None = None) -> OperationResult:
        """Rename a column, or a field inside one (by dots).

        Needs `delta.columnMapping.mode`.

        Raises:
            SchemaMismatch: The table has no such column, uses it in a rule, or lacks column mapping.
            MetadataChanged: Another writer changed the table's schema or properties. Refresh the table, and run it
                again.
        """
        return self.operate(lambda snapshot, _: alter.rename_column(snapshot, column, name), txn)

    def drop_columns(self, names: Sequence[str], *, txn: Txn | None = None) -> OperationResult:
        """Drop columns, or fields inside columns (by dots).

        Needs `delta.columnMapping.mode`.

        Raises:
            SchemaMismatch: The table has no such column, partitions by it, uses it in a rule, or lacks column mapping.
            MetadataChanged: Another writer changed the table's schema or properties. Refresh the table, and run it
                again.
        """
        return self.operate(lambda snapshot, _: alter.drop_columns(snapshot, names), txn)

    def widen_column(self, column: str, kind: pa.DataType, *, txn: Txn | None = None) -> OperationResult:
        """Give a column, or a field inside one (by dots), a wider type, such as `pa.int64()` to one of int32.

        Needs `delta.enableTypeWidening`. Data files stay as they are.

        Raises:
            SchemaMismatch: The table has no such column, uses it in a rule, or the type is not a wider one.
            MetadataChanged: Another writer changed the table's schema or properties. Refresh the table, and run it
                again.
        """
        return self.operate(lambda snapshot, _: alter.widen_column(snapshot, column, kind), txn)

    def cluster_by(self, names: Sequence[str], *, txn: Txn | None = None) -> OperationResult:
        """Cluster the table by up to four columns, or fields inside them (by dots); by none with an empty list.

        `optimize` sorts the rows by them. Files that are sorted by other columns stay until `optimize(full=True)`.

        Raises:
            SchemaMismatch: The table has no such column, has partitions, or the column's values have no order.
            InvalidProperty: A column gets no statistics. Change the properties that choose these first.
            MetadataChanged: Another writer changed the table's schema or properties. Refresh the table, and run it
                again.
        """
        return self.operate(lambda snapshot, _: alter.cluster_by(snapshot, names), txn)

    def drop_not_null(self, column: str, *, txn: Txn | None = None) -> OperationResult:
        """Allow nulls in a column, or a field inside one (by dots).

        Raises:
            SchemaMismatch: The table has no such column.
            MetadataChanged: Another writer changed the table's schema or properties. Refresh the table, and run it
                again.
        """
        return self.operate(lambda snapshot, _: alter.drop_not_null(snapshot, column), txn)

    def set_comments(self, comments: Mapping[str, str | None], *, txn: Txn | None = None) -> OperationResult:
        """Set the comments of columns, or of fields inside them (by dots); None removes a comment.

        Raises:
            SchemaMismatch: The table has no such column.
            MetadataChanged: Another writer changed the table's schema or properties. Refresh the table, and run it
                again.
        """
        return self.operate(lambda snapshot, _: alter.set_comments(snapshot, comments), txn)

    def reorder_columns(self, names: Sequence[str], *, txn: Txn | None = None) -> OperationResult:
        """Move these columns to the front, in this order.

        Raises:
            SchemaMismatch: The table has no such column, or one is named twice.
            MetadataChanged: Another writer changed the table's schema or properties. Refresh the table, and run it
                again.
        """
        return self.operate(lambda snapshot, _: alter.reorder_columns(snapshot, names), txn)

    def drop_feature(self, feature: str) -> None:
        """Drop a table feature by its name in the protocol, such as `deletionVectors`, so that other clients can write.

        Its properties are removed. Files with deletion vectors are written anew before. Older versions may need the
        feature until they are past the retention: then the table gets the feature `checkpointProtection` instead, which
        can be dropped after that. There are several commits; if one fails, call it again.

        Raises:
            FeatureInUse: The table uses the feature, or is in a lake. The message says what to do first.
            ConcurrentModification: Another writer changed the table meanwhile. Refresh it, and call it again.
        """
        from lake_core.delta.features import PROTECTED_BEFORE
        from lake_core.delta.operations.drop_feature import VECTORS, drop_feature, turned_off

        self._check_writable()
        metadata = turned_off(self._snapshot, feature)
        if feature == VECTORS:
            names = [name for name in self.properties if name not in metadata.configuration]
            self.unset_properties(names)
            self.optimize(purge=True)
        self.operate(lambda snapshot, _: drop_feature(snapshot, feature, turned_off(snapshot, feature)), None)
        if int(self.properties.get(PROTECTED_BEFORE, self.version)) < self.version:
            self.set_properties({PROTECTED_BEFORE: str(self.version)})  # an append came between
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
        where: str | None = None,
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

    def checkpoint(self, *, run: Runner | None = None, part_rows: int | None = None) -> None:
        """Write a checkpoint of this version, and point `_last_checkpoint` to it unless it points to a later one.

        With `run`, which calls tasks, a table with more than `part_rows` (500,000) files and tombstones gets a
        checkpoint of several parts, one written by each task. The log is then not cleaned.

        Raises:
            CheckpointRace: Another process writes the same parts. The table is as it was.
            UnsupportedWriterFeature: The table needs a feature that this writer does not support, or belongs to a lake
                and was opened outside of a session.
        """
        from lake_core.delta.checkpoint_writer import write_checkpoint

        self._check_writable()
        now, target = now_ms(self._clock), self.store.derived_root
        if run is not None:
            from lake_core.delta.checkpoint_parts import PART_ROWS, write_checkpoint_parts

            write_checkpoint_parts(
                self._snapshot, now, run, part_rows=PART_ROWS if part_rows is None else part_rows, target=target
            )
            return
        write_checkpoint(self._snapshot, now, target)
        self.clean_log()

    def compact_log(self) -> str | None:
        """Write a log compaction file of the commits since the last checkpoint, and return its key.

        Readers read it instead of these commits. Returns None if there is nothing to compact. In a lake nothing is
        compacted, because its history needs each commit.
        """
        from lake_core.delta.compaction_writer import write_compaction

        self._check_writable()
        return None if self.store.versioned else write_compaction(self._snapshot)

    def clean_log(self) -> list[str]:
        """Delete log files that no version within `delta.logRetentionDuration` (30 days) needs, and return their keys.

        Checkpoints do this too. In a lake nothing is deleted, because the lake's history needs the log files.
        """
        from lake_core.delta.log_cleanup import clean_log

        self._check_writable()
        if self.store.versioned:
            return []
        return clean_log(self._snapshot, now_ms(self._clock))

    def recorded(self, txn: Txn | None) -> OperationResult | None:
        """Return the result of an earlier attempt with this `txn`, or None if the latest version has none.

        Raises:
            InvalidTransaction: `txn` is not a pair of an application id and a version.
            UnsupportedWriterFeature: The table needs a feature that this writer does not support, or belongs to a lake
                and was opened outside of a session.
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
        """Commit a write that `plan_append` or `plan_overwrite` planned on this snapshot."""
        return self._committed(operation, txn)

    def operate(self, plan: Callable[[Snapshot, int], Operation | None], txn: Txn | None) -> OperationResult:
        """Plan an operation on this snapshot (`plan` takes it and the time, in milliseconds), and commit it.

        If the table has this `txn` already, nothing is committed. If there is nothing to do but to record the `txn`,
        the commit has only the txn action.
        """
        earlier = self.recorded(txn)
        if earlier is not None:
            return earlier
        start = runtime.monotonic()
        operation = plan(self._snapshot, now_ms(self._clock))
        if operation is None:
            if txn is None:
                return OperationResult(self.version)
            # To find that there is nothing to do, the plan has read the whole table.
            operation = Operation("SET TRANSACTION", {}, self._snapshot, reads=Reads.WHOLE_TABLE)
        metrics = {**operation.metrics, "executionTimeMs": int((runtime.monotonic() - start) * 1000)}
        return self._committed(replace(operation, metrics=metrics), txn)

    def _committed(self, operation: Operation, txn: Txn | None) -> OperationResult:
        """Commit an operation and return its result, or that of another attempt with the same `txn` that was faster."""
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
        if self._on_commit is not None:
            self._on_commit(committed.snapshot)
        if not committed.already_recorded:
            self._follow_up(committed, adds_are_new=operation.restored is None or operation.data_change)
        return committed

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

    def _follow_up(self, committed: Committed, *, adds_are_new: bool) -> None:
        """Write the files that are derived from a commit: its checksum, and the checkpoint that may be due."""
        if self.store.versioned:
            return  # the lake writes derived files once main has the version
        # The commit is valid whatever happens here. An error now would make the caller repeat the write, while a
        # checkpoint that is missing only costs readers time.
        try:
            interval = checkpoint_interval(self.metadata.configuration)
            is_due = committed.version > 0 and committed.version % interval == 0
            self._checksum = write_checksum(committed.snapshot, self._checksum, adds_are_new=adds_are_new, count=is_due)
            if is_due:
                from lake_core.delta.checkpoint_writer import write_checkpoint
                from lake_core.delta.log_cleanup import clean_log

                files = write_checkpoint(committed.snapshot, now_ms(self._clock))
                self._snapshot = committed.snapshot.on_checkpoint(files)
                clean_log(self._snapshot, now_ms(self._clock))
        except Exception:
            what = "its checksum, its checkpoint, or the clean-up of its log failed"
            _LOG.warning(
                "version %d of %s is committed, but %s", committed.version, self.store.url(), what, exc_info=True
            )


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
