"""Append and overwrite: write rows to data files first, then commit the files to add and to remove."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import pyarrow as pa

from lake_core.delta.action_fields import PARTITION_VALUES
from lake_core.delta.commit_actions import partition_by_text
from lake_core.delta.conflict import Reads
from lake_core.delta.conform import without_new_voids
from lake_core.delta.definition import check_partitioning
from lake_core.delta.errors import SchemaMismatch
from lake_core.delta.features import upgraded_for
from lake_core.delta.operation import Operation
from lake_core.delta.operations.marking import Replaced, marks_rows
from lake_core.delta.operations.rewrite import check_not_append_only, logs_changes, on_partitions_only, rewrite, sizes
from lake_core.delta.row_writer import ReplaceWhere, RowWriter, row_writer
from lake_core.delta.scan import Scan, files_of_partitions, plan_scan
from lake_core.delta.schema import schema_from_arrow
from lake_core.delta.schema_evolution import evolved, replaced, with_schema
from lake_core.delta.skipping import partition_table
from lake_core.expression import And, Column, Filters, In, IsNull, Or, Predicate, parse_where
from lake_core.runner import Runner, run_here

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.delta.action import Metadata
    from lake_core.delta.data_file import AddFile
    from lake_core.delta.snapshot import Snapshot

SchemaMode: TypeAlias = Literal["merge", "overwrite"]


@dataclass(frozen=True, slots=True)
class Write:
    """A planned write: the writer of its data files, and the actions that it will commit."""

    snapshot: Snapshot
    writer: RowWriter
    """Under the metadata that the write gives the table."""
    parameters: dict[str, str]
    replaces: Literal["nothing", "all", "partitions"] | ReplaceWhere
    """`partitions`: all rows of the partitions that get new ones. A ReplaceWhere: the rows for which it is true."""

    def operation(self, adds: Sequence[AddFile], changes: Sequence[AddFile], run: Runner = run_here) -> Operation:
        """Return the commit for rows that are in data files. Rewrites the files that are replaced in part."""
        rows, size = sum(add.rows for add in adds), sum(add.size for add in adds)
        metrics = {"numFiles": len(adds), "numOutputRows": rows, "numOutputBytes": size}
        plain = Operation("WRITE", self.parameters, self.snapshot, metrics, adds=list(adds)).defining(
            self.writer.final_metadata
        )
        match self.replaces:
            case "nothing":
                return plain
            case "all":
                return self._replacing(plain, Replaced(self._files()), Reads.WHOLE_TABLE)
            case "partitions":
                if not adds:
                    return plain
                predicate = _partitions_of(adds, self.snapshot.metadata)
                return self._replacing(plain, Replaced(self._files(predicate)), predicate)
            case ReplaceWhere():
                return self._replacing_rows(plain, self.replaces, changes, run)

    def _replacing_rows(
        self, plain: Operation, condition: ReplaceWhere, changes: Sequence[AddFile], run: Runner
    ) -> Operation:
        predicate = condition.predicate
        if on_partitions_only(predicate, self.snapshot.metadata):
            return self._replacing(plain, Replaced(self._files(predicate)), predicate)
        scan = self._scan(predicate)
        keeper = replace(self.writer, replace_where=None, log_inserts=False)
        files, rewritten = rewrite(scan, keeper, None, run, by_vectors=marks_rows(self.snapshot, None))
        metrics = {**plain.metrics, "numDeletedRows": rewritten.changed, "numCopiedRows": rewritten.copied}
        # Change data files must hold all changes of a commit. If no row is deleted, adds and removes are enough.
        logged = [*rewritten.changes, *changes] if rewritten.changes else []
        return replace(
            self._replacing(replace(plain, metrics=metrics), files, predicate),
            adds=[*plain.adds, *rewritten.adds],
            changes=logged,
            read_files=scan.files,
        )

    def replaced_files(self) -> pa.Table:
        """Return the actions of files that may hold rows to replace, by their statistics."""
        match self.replaces:
            case "nothing":
                return self._files().slice(0, 0)
            case ReplaceWhere(predicate=predicate):
                return self._scan(predicate).files
            case _:
                return self._files()

    def _scan(self, predicate: Predicate) -> Scan:
        # The columns that this write adds are null in the existing rows.
        return plan_scan(replace(self.snapshot, metadata=self.writer.metadata), None, predicate)

    def _files(self, predicate: Predicate | None = None) -> pa.Table:
        return files_of_partitions(self.snapshot, ["size"], predicate)

    @staticmethod
    def _replacing(plain: Operation, files: Replaced, reads: Reads | Predicate) -> Operation:
        removed = {"numRemovedFiles": len(files.gone), "numRemovedBytes": sizes(files.gone)}
        return replace(
            plain,
            metrics={**plain.metrics, **removed, **files.metrics},
            removes=files.removes,
            restored=files.restored,
            reads=reads,
        )


def plan_append(snapshot: Snapshot, data: pa.Schema, now: int, schema_mode: SchemaMode | None = None) -> Write:
    """Plan an append of rows of this schema.

    `now`: milliseconds. Raises SchemaMismatch, UnsupportedType, UnsupportedExpression.
    """
    if schema_mode not in (None, "merge"):
        raise SchemaMismatch(
            f"schema_mode of an append must be 'merge' or None, not {schema_mode!r}, "
            "because an append keeps the existing columns"
        )
    metadata = _planned(snapshot.metadata, data, schema_mode)
    writer = _writer(snapshot, metadata, now)
    writer.check_fits(_fitted(data, metadata, schema_mode))
    return Write(snapshot, writer, _parameters("Append", metadata), "nothing")


def plan_overwrite(
    snapshot: Snapshot,
    data: pa.Schema,
    now: int,
    *,
    where: str | Filters | None = None,
    dynamic: bool = False,
    schema_mode: SchemaMode | None = None,
    partition_by: Sequence[str] | None = None,
) -> Write:
    """Plan an overwrite with rows of this schema.

    It replaces all rows, those for which `where` is true, or (`dynamic`) those of the partitions that get rows. `now`:
    milliseconds since the epoch.

    Raises SchemaMismatch, UnsupportedType, UnsupportedExpression, InvalidExpression, AppendOnlyTable.
    """
    check_not_append_only(snapshot)
    if where is not None and dynamic:
        raise SchemaMismatch(
            "an overwrite replaces either the rows that match `where` or the partitions that get rows "
            "(dynamic): pass only one of them"
        )
    if schema_mode == "overwrite" and (where is not None or dynamic):
        raise SchemaMismatch(
            "schema_mode='overwrite' replaces the whole table: pass neither `where` nor dynamic with it"
        )
    if partition_by is not None and schema_mode != "overwrite":
        raise SchemaMismatch(
            "the partitioning of a table can only change together with its schema: pass schema_mode='overwrite' too"
        )
    metadata = _planned(snapshot.metadata, data, schema_mode, partition_by)
    if dynamic and not metadata.partition_columns:
        raise SchemaMismatch(
            "the table has no partitions to overwrite one by one: overwrite the whole table, or pass `where`"
        )
    parameters = _parameters("Overwrite", metadata)
    replace_where = None
    if where is not None:
        predicate, text = parse_where(where, metadata.arrow_schema, now=now)
        replace_where = ReplaceWhere(text, predicate)
        parameters["predicate"] = text
    if dynamic:
        parameters["isDynamicPartitionOverwrite"] = "true"
    writer = _writer(snapshot, metadata, now, replace_where)
    if (
        replace_where is not None
        and logs_changes(snapshot)
        and not on_partitions_only(replace_where.predicate, metadata)
    ):
        writer = replace(writer, log_inserts=True)
    writer.check_fits(_fitted(data, metadata, schema_mode))
    return Write(snapshot, writer, parameters, "partitions" if dynamic else replace_where or "all")


def _writer(snapshot: Snapshot, metadata: Metadata, now: int, replace_where: ReplaceWhere | None = None) -> RowWriter:
    protocol = upgraded_for(snapshot.protocol, snapshot.metadata, metadata)
    return row_writer(snapshot.data_root, metadata, protocol, now, replace_where)


def _planned(
    metadata: Metadata, data: pa.Schema, mode: SchemaMode | None, partition_by: Sequence[str] | None = None
) -> Metadata:
    if mode is None:
        return metadata
    if mode not in ("merge", "overwrite"):
        raise SchemaMismatch(f"schema_mode must be 'merge', 'overwrite' or None, not {mode!r}")
    if mode == "merge":
        return evolved(metadata, data)
    schema = replaced(metadata.schema, schema_from_arrow(data))
    columns = metadata.partition_columns if partition_by is None else tuple(partition_by)
    check_partitioning(schema, columns)
    return (
        metadata
        if (schema, columns) == (metadata.schema, metadata.partition_columns)
        else with_schema(metadata, schema, columns)
    )


def _fitted(data: pa.Schema, metadata: Metadata, mode: SchemaMode | None) -> pa.Schema:
    """Return the schema of the rows that have to fit: evolution leaves out new columns that have only nulls."""
    return without_new_voids(data, metadata.arrow_schema) if mode == "merge" else data


def _parameters(mode: str, metadata: Metadata) -> dict[str, str]:
    return {"mode": mode, "partitionBy": partition_by_text(metadata.partition_columns)}


def _partitions_of(adds: Sequence[AddFile], metadata: Metadata) -> Predicate:
    """Return a predicate that is true for the rows of the files' partitions."""
    distinct = {tuple(add.partition_values.items()) for add in adds}
    values = partition_table(
        pa.table({"partitionValues": pa.array([list(pairs) for pairs in distinct], PARTITION_VALUES)}), metadata
    )
    tuples: list[Predicate] = []
    for row in range(len(values)):
        parts: list[Predicate] = []
        for name in values.column_names:
            column, value = Column((name,), values.schema.field(name).type), values[name][row]
            # A list of one: a comparison takes no NaN.
            parts.append(In(column, (value,)) if value.is_valid else IsNull(column))
        tuples.append(And(tuple(parts)) if len(parts) > 1 else parts[0])
    return Or(tuple(tuples)) if len(tuples) > 1 else tuples[0]
