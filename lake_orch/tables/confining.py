"""Keeping the rows of a merge inside the run's partitions: any other fails the merge before anything is visible."""

from __future__ import annotations

import pyarrow as pa

from lake_core.delta.conform import plain
from lake_core.delta.errors import RowsOutsidePredicate
from lake_core.expression import InvalidExpression, Predicate, matching, parse_predicate
from lake_orch.errors import DefinitionMismatch
from lake_orch.tables.casting import mapped
from lake_orch.tables.data import Rows
from lake_orch.tables.data.spark_frame import is_spark_dataframe


def confined(rows: Rows, where: str, what: str) -> Rows:
    """The same rows, which raise RowsOutsidePredicate as they are read if one lies outside `where`.

    Raises DefinitionMismatch where they lack the columns by which that is told.
    """
    if is_spark_dataframe(rows):
        from pyspark.sql import functions as F

        from lake_core.spark.predicate import to_column
        from lake_core.spark.write import arrow_schema

        inside = to_column(_parsed(where, arrow_schema(rows), what))
        # In this form it is known for our own error when the job fails with it.
        error = f"\n{RowsOutsidePredicate.__module__}.{RowsOutsidePredicate.__qualname__}: {_message('some', what, where)}"
        return rows.where(F.when(inside, F.lit(True)).otherwise(F.raise_error(F.lit(error)).cast("boolean")))
    schema: pa.Schema = rows.schema
    predicate = _parsed(where, plain(schema.empty_table()).schema, what)

    def check(table: pa.Table) -> pa.Table:
        outside = table.num_rows - matching(plain(table), predicate).num_rows
        if outside:
            raise RowsOutsidePredicate(_message(f"{outside} of {table.num_rows}", what, where))
        return table

    return mapped(rows, check, schema)


def _message(count: str, what: str, where: str) -> str:
    return f"{count} rows of {what} lie outside the run's partitions, {where!r}: filter the rows. Nothing was written"


def _parsed(where: str, schema: pa.Schema, what: str) -> Predicate:
    try:
        return parse_predicate(where, schema)
    except InvalidExpression as error:
        raise DefinitionMismatch(
            f"{what} is to be merged into the run's partitions, {where!r}, and its rows cannot be told to lie there: {error}. Give them "
            f"the columns that partition_expr names"
        ) from None
