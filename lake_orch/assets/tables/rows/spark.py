"""Rows of a PySpark DataFrame, classic or Connect. Imported only for such a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lake_core.delta import DeltaTable, OperationResult
from lake_core.delta.errors import RowsOutsidePredicate
from lake_core.delta.operations.merge import Merge
from lake_core.delta.operations.write import Write
from lake_core.expression import columns, quote_identifier
from lake_core.spark import merge_delta
from lake_core.spark.predicate import to_column
from lake_core.spark.runner import run_in
from lake_core.spark.write import arrow_schema, write_files
from lake_core.txn import Txn
from lake_orch.assets.description import AssetPath, ColumnLineage
from lake_orch.assets.tables.rows.column_lineage import column_lineage, tracked
from lake_orch.assets.tables.rows.partition_guard import PartitionGuard
from lake_orch.assets.tables.rows.protocol import BrokenRows, RowCondition
from lake_orch.assets.tables.rows.spark_cast import cast_exactly

_UTC = "TIMESTAMP '1970-01-01 00:00:00Z' + ({} - TIMESTAMP_NTZ '1970-01-01 00:00:00')"
"""An instant from a timestamp without a zone.

The session's zone does not affect the difference of two such timestamps.
"""


@dataclass(frozen=True, slots=True)
class SparkRows:
    """A DataFrame: executors compute and write its rows."""

    data: DataFrame

    @property
    def schema(self) -> pa.Schema:
        """Return the columns and the Arrow types that stand for their Spark types."""
        return arrow_schema(self.data)

    def cast(self, schema: pa.Schema, name: str) -> SparkRows:
        """Return the columns of a schema, which Spark casts when it computes the rows.

        A value that cannot be converted exactly fails the job with SchemaMismatch.
        """
        return SparkRows(cast_exactly(self.data, self.schema, schema, name))

    def assume_utc(self, types: Mapping[str, pa.DataType]) -> SparkRows:
        """Convert whole columns. Nested fields are unchanged."""
        naive = [name for name, kind in types.items() if pa.types.is_timestamp(kind)]
        return SparkRows(self.data.withColumns({name: F.expr(_UTC.format(quote_identifier(name))) for name in naive}))

    def guarded(self, guard: PartitionGuard, name: str) -> SparkRows:
        """Return the rows with a filter that fails the job at a row outside the guard's slice."""
        replace_where = guard.replace_where_of_source(self.schema, name)
        inside = to_column(replace_where.predicate)
        # In this form, `lake_error` recognizes the error if the job fails with it.
        error = f"\n{RowsOutsidePredicate.__module__}.{RowsOutsidePredicate.__qualname__}: "
        shown = [
            part
            for path in dict.fromkeys(column.path for column in columns(replace_where.predicate))
            for part in _shown(path)
        ]
        before, after = replace_where.error("some", "\0").split("\0")
        text = F.concat(F.lit(error + before), *shown[1:], F.lit(after))
        return SparkRows(self.data.where(F.when(inside, F.lit(True)).otherwise(F.raise_error(text).cast("boolean"))))

    def mapped(self, change: Callable[[pa.Table], pa.Table], schema: pa.Schema) -> None:
        """Return None: the executors that compute the rows may lack the packages that the function needs."""

    def sorted_by(self, columns: Sequence[str]) -> SparkRows:
        """Return the rows sorted within each partition of Spark, without a shuffle."""
        return SparkRows(self.data.sortWithinPartitions(*map(quote_identifier, columns)))

    def with_unique(self, keys: Sequence[str]) -> SparkRows:
        """Return the same rows: the merge checks their keys in the executors."""
        return self

    def write(self, table: DeltaTable, plan: Write, txn: Txn) -> OperationResult:
        """Write the rows as data files in the executors, and commit them in this process."""
        plan.writer.check_fits(self.schema)
        adds, changes = write_files(self.data, plan.writer)
        return table.commit(plan.operation(adds, changes, run_in(self.data.sparkSession)), txn)

    def merge_into(self, table: DeltaTable, on: str, *, alias: tuple[str, str]) -> Merge:
        """Return a merge of the rows into a table, which runs in the executors."""
        return merge_delta(self.data, table, on, alias=alias)

    def head(self, count: int) -> pa.Table | None:
        """Return None: reading the first rows would compute them again."""
        return None

    def tracked_as(self, asset_key: AssetPath) -> SparkRows:
        """Return the rows with an asset's key in their plan, which `column_lineage` finds again."""
        return SparkRows(tracked(self.data, asset_key))

    def column_lineage(self, upstream: Iterable[AssetPath]) -> ColumnLineage | None:
        """Return the columns of upstream assets from which Spark's plan computes each column, or None if unknown."""
        return column_lineage(self.data, upstream)

    def broken(self, conditions: Sequence[RowCondition]) -> tuple[int, list[BrokenRows]]:
        """Evaluate all conditions in one pass. Each condition with a sample takes one more."""
        breaks = [f"NOT coalesce(({condition.sql}), false)" for condition in conditions]
        counts = [f"count_if({sql}) AS condition_{number}" for number, sql in enumerate(breaks)]
        (row,) = self.data.selectExpr("count(*) AS total", *counts).collect()
        broken = []
        for number, (condition, sql) in enumerate(zip(conditions, breaks, strict=True)):
            count, sample = int(row[f"condition_{number}"]), None
            if count and condition.shown:
                first = self.data.where(sql).limit(condition.shown).collect()
                sample = pa.Table.from_pylist([row.asDict(recursive=True) for row in first])
            broken.append(BrokenRows(count, sample))
        return int(row["total"]), broken

    @contextmanager
    def held(self) -> Iterator[None]:
        """Persist the rows in the executors for the `with` block, so that every read returns the same rows."""
        self.data.persist()
        try:
            yield
        finally:
            self.data.unpersist()


def _shown(path: tuple[str, ...]) -> list[Column]:
    """Return SQL for the text of a column's value in one row, after a comma."""
    column = F.col(".".join(map(quote_identifier, path)))
    return [F.lit(", "), F.lit(f"`{'.'.join(path)}` is "), F.coalesce(column.cast("string"), F.lit("null"))]
