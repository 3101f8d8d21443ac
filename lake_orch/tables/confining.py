"""Keeping the rows of a merge inside the run's partitions: any other fails the merge before anything is visible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from dagster import PartitionsDefinition, TimeWindowPartitionsDefinition

from lake_core.delta.conform import plain
from lake_core.delta.errors import RowsOutsidePredicate
from lake_core.delta.row_writer import Scope
from lake_core.expression import InvalidExpression, Predicate, columns, parse_predicate
from lake_orch.errors import DefinitionMismatch
from lake_orch.tables.casting import mapped
from lake_orch.tables.data import Rows
from lake_orch.tables.data.spark_frame import is_spark_dataframe


def partitions_name(keys: Sequence[str], asset: str, replace_where: str | None) -> str:
    """Name the rows that a run may write, as its user knows them."""
    if len(keys) == 1:
        name = f"partition {keys[0]!r} of {asset}"
    else:
        name = f"the run's {len(keys)} partitions of {asset} ({', '.join(map(repr, keys[:2]))}{', …' if len(keys) > 2 else ''})"
    return f"{name} and lake/replace_where {replace_where!r}" if replace_where else name


def partitions_remedy(keys: Sequence[str], definition: PartitionsDefinition, columns: Sequence[str], schema: pa.Schema) -> str:
    """Say what to do about rows of other partitions. `columns`: those that the partitions stand for."""
    remedy = f"Give rows of the run's partitions only, by {' and '.join(f'`{name}`' for name in columns)} (partition_expr)"
    texts = [child.name for child in schema if child.name.lower() in {name.lower() for name in columns} and pa.types.is_string(child.type)]
    if texts and keys and isinstance(definition, TimeWindowPartitionsDefinition):
        remedy += f"; `{texts[0]}` is text, and has to spell its values as the partition keys do, such as {keys[0]!r}"
    return f"{remedy}. Nothing was written"


def confined(rows: Rows, where: str, what: str, name: str = "", remedy: str = "") -> Rows:
    """Return the same rows, which raise RowsOutsidePredicate as they are read if one lies outside `where`.

    `name`, `remedy`: as for `Scope`. Raises DefinitionMismatch where they lack the columns by which that is told.
    """
    name = name or f"the run's partitions, {where!r}"
    remedy = remedy or "Filter the rows. Nothing was written"
    if is_spark_dataframe(rows):
        from pyspark.sql import functions as F

        from lake_core.spark.predicate import to_column
        from lake_core.spark.write import arrow_schema

        predicate = _parsed(where, arrow_schema(rows), what)
        scope = Scope(where, predicate, name, remedy)
        inside = to_column(predicate)
        # In this form it is known for our own error when the job fails with it.
        error = f"\n{RowsOutsidePredicate.__module__}.{RowsOutsidePredicate.__qualname__}: "
        shown = [part for path in dict.fromkeys(column.path for column in columns(predicate)) for part in _shown(path)]
        before, after = scope.error("some", "\0").split("\0")
        text = F.concat(F.lit(error + before), *shown[1:], F.lit(after))
        return rows.where(F.when(inside, F.lit(True)).otherwise(F.raise_error(text).cast("boolean")))
    schema: pa.Schema = rows.schema
    scope = Scope(where, _parsed(where, plain(schema.empty_table()).schema, what), name, remedy)

    def check(table: pa.Table) -> pa.Table:
        scope.check(plain(table))
        return table

    return mapped(rows, check, schema)


def _shown(path: tuple[str, ...]) -> list[Any]:
    """What one row has in a column, in Spark, behind a comma."""
    from pyspark.sql import functions as F

    column = F.col(".".join(f"`{name.replace('`', '``')}`" for name in path))
    return [F.lit(", "), F.lit(f"`{'.'.join(path)}` is "), F.coalesce(column.cast("string"), F.lit("null"))]


def _parsed(where: str, schema: pa.Schema, what: str) -> Predicate:
    try:
        return parse_predicate(where, schema)
    except InvalidExpression as error:
        raise DefinitionMismatch(
            f"{what} is to be merged into the run's partitions, {where!r}, and its rows cannot be told to lie there: {error}. Give them "
            f"the columns that partition_expr names"
        ) from None
