"""Rows of Arrow: a table in memory, or a stream of record batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta import DeltaTable, OperationResult
from lake_core.delta.conform import convert_exactly, plain
from lake_core.delta.operations.write import Write
from lake_core.expression import InvalidExpression, evaluate, parse_predicate
from lake_core.txn import Txn
from lake_orch.assets.description import AssetPath, ColumnLineage
from lake_orch.assets.tables.rows.partition_guard import PartitionGuard
from lake_orch.assets.tables.rows.protocol import BrokenRows, RowCondition
from lake_orch.errors import DefinitionMismatch, InvalidDefinition
from lake_orch.spark.type_name import spark_type_name

if TYPE_CHECKING:
    from lake_core.delta.operations.merge import Merge

_THREADS = 2
"""The number of threads that encode files."""


@dataclass(frozen=True, slots=True)
class ArrowRows:
    """A `pyarrow.Table`, or a `pyarrow.RecordBatchReader`, which is read once."""

    data: pa.Table | pa.RecordBatchReader

    @property
    def schema(self) -> pa.Schema:
        """Return the columns and their Arrow types."""
        return self.data.schema

    def cast(self, schema: pa.Schema, name: str) -> ArrowRows:
        """Return the columns of a schema in its types. A table is converted at once, a stream batch by batch.

        Raises DefinitionMismatch for a value that cannot be converted exactly.
        """

        def cast(table: pa.Table) -> pa.Table:
            columns = []
            for child in schema:
                column = _column(table, child.name)
                try:
                    columns.append(convert_exactly(column, child.type))
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                    raise DefinitionMismatch(
                        f"column {child.name!r} of {name} has a value that is not {spark_type_name(child.type)}: "
                        f"{error}. Nothing was written"
                    ) from None
            return pa.Table.from_arrays(columns, names=schema.names)

        target = pa.schema([pa.field(child.name, child.type) for child in schema])
        return self.mapped(cast, target)

    def assume_utc(self, types: Mapping[str, pa.DataType]) -> ArrowRows:
        """Return the rows with the columns of `types` cast to them, so that clock times become instants in UTC."""
        target = pa.schema([child.with_type(types.get(child.name, child.type)) for child in self.schema])
        return self.mapped(lambda table: table.cast(target), target)

    def guarded(self, guard: PartitionGuard, name: str) -> ArrowRows:
        """Check a table at once, and a stream batch by batch as it is read.

        Raises RowsOutsidePredicate for a row outside the guard's slice.
        """
        replace_where = guard.replace_where_of_source(plain(self.schema.empty_table()).schema, name)

        def checked(table: pa.Table) -> pa.Table:
            replace_where.check(plain(table))
            return table

        return self.mapped(checked, self.schema)

    def sorted_by(self, columns: Sequence[str]) -> ArrowRows:
        """Return a table sorted by these columns, nulls last. A stream keeps its order.

        Raises InvalidDefinition for types without order.
        """
        if not isinstance(self.data, pa.Table):
            # The rows of a stream are written in their order.
            return self
        names = {name.lower(): name for name in self.data.column_names}
        try:
            return ArrowRows(self.data.sort_by([(names[name.lower()], "ascending") for name in columns]))
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise InvalidDefinition(
                f"rows cannot be sorted by {', '.join(columns)}, which lake/cluster_by names: {error}"
            ) from None

    def with_unique(self, keys: Sequence[str]) -> ArrowRows:
        """Return the rows as a table in memory, after checking that no key occurs twice or is null.

        Raises DuplicateKeys, NullKeys.
        """
        from lake_core.delta.operations.merge_keys import check_keys

        # A merge holds its source in memory in any case.
        table = self.data if isinstance(self.data, pa.Table) else self.data.read_all()
        check_keys(plain(table), keys)
        return ArrowRows(table)

    def write(self, table: DeltaTable, plan: Write, txn: Txn) -> OperationResult:
        """Write the rows as data files in this process, batch by batch, and commit them."""
        plan.writer.check_fits(self.schema)
        reader: pa.RecordBatchReader = self.data.to_reader() if isinstance(self.data, pa.Table) else self.data
        adds, changes = replace(plan.writer, threads=_THREADS).write(pa.Table.from_batches([batch]) for batch in reader)
        return table.commit(plan.operation(adds, changes), txn)

    def merge_into(self, table: DeltaTable, on: str, *, alias: tuple[str, str]) -> Merge:
        """Return a merge of the rows into a table, which runs in this process."""
        return table.merge(self.data, on, alias=alias)

    def head(self, count: int) -> pa.Table | None:
        """Return the first rows of a table, or None for a stream, which can be read only once."""
        return self.data.slice(0, count) if isinstance(self.data, pa.Table) else None

    def tracked_as(self, asset_key: AssetPath) -> ArrowRows:
        """Return the same rows: Arrow data carries no lineage."""
        return self

    def column_lineage(self, upstream: Iterable[AssetPath]) -> ColumnLineage | None:
        """Return None: Arrow data carries no lineage."""
        return None

    def broken(self, conditions: Sequence[RowCondition]) -> tuple[int, list[BrokenRows]]:
        """Count the rows of a table, and find those that break each condition.

        Raises InvalidDefinition for SQL that cannot be evaluated, and for a stream.
        """
        if not isinstance(self.data, pa.Table):
            raise InvalidDefinition(
                f"{conditions[0].name} reads the rows, and a stream can be read once: return a table"
            )
        broken = []
        for condition in conditions:
            try:
                predicate = parse_predicate(condition.sql, self.schema)
            except InvalidExpression as error:
                raise InvalidDefinition(f"{condition.name} cannot be evaluated: {error}") from None
            breaks = pc.invert(pc.fill_null(evaluate(predicate, self.data), False))
            first = pc.indices_nonzero(breaks)[: condition.shown]
            broken.append(BrokenRows(int(pc.sum(breaks).as_py() or 0), self.data.take(first)))
        return len(self.data), broken

    def held(self) -> AbstractContextManager[None]:
        """Return a context that does nothing: a table is in memory."""
        return nullcontext()

    def mapped(self, change: Callable[[pa.Table], pa.Table], schema: pa.Schema) -> ArrowRows:
        """Return the rows as changed by a function, which is called at once for a table, and lazily for a stream."""
        if isinstance(self.data, pa.Table):
            return ArrowRows(change(self.data))
        reader = self.data

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in reader:
                yield from change(pa.Table.from_batches([batch])).cast(schema).to_batches()

        return ArrowRows(pa.RecordBatchReader.from_batches(schema, batches()))


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    return table.column(
        next(index for index, column in enumerate(table.column_names) if column.lower() == name.lower())
    )
