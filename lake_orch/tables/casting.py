"""Bringing rows into the schema that an asset declares: only where every value stays what it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pyarrow as pa

from lake_core.delta.conform import plain
from lake_core.delta.schema import schema_from_arrow, schema_to_json
from lake_orch.errors import DefinitionMismatch
from lake_orch.tables.data import Rows
from lake_orch.tables.data.spark_frame import is_spark_dataframe
from lake_orch.tables.type_name import spark_type_name


def cast_rows(rows: Rows, schema: pa.Schema, what: str, computed: frozenset[str] = frozenset()) -> Rows:
    """Rows in these columns and types. Numbers, decimals and units of time are converted where that is exact; a zone is never made up.

    `computed`: columns that may be missing. Raises DefinitionMismatch for other columns and types, at once; for a value that does not fit,
    when it comes.
    """
    given = _schema_of(rows)
    wanted = pa.schema([child for child in schema if child.name.lower() not in computed or _index(given, child.name) is not None])
    _check(given, wanted, what)
    if is_spark_dataframe(rows):
        from pyspark.sql.types import StructType

        # Nulls are the table's to refuse: Spark would go by what a column may hold, not by what it does.
        nullable = pa.schema([child.with_nullable(True) for child in wanted])
        return rows.to(StructType.fromJson(json.loads(schema_to_json(schema_from_arrow(nullable)))))

    def cast(table: pa.Table) -> pa.Table:
        columns = []
        for child in wanted:
            column = table.column(_index(table.schema, child.name) or 0)
            try:
                columns.append(column if column.type == child.type else column.cast(child.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise DefinitionMismatch(
                    f"column {child.name!r} of {what} has a value that is no {spark_type_name(child.type)}: {error}. Nothing was written"
                ) from None
        return pa.Table.from_arrays(columns, names=wanted.names)

    target = pa.schema([pa.field(child.name, child.type) for child in wanted])
    return mapped(rows, lambda table: cast(plain_texts(table)), target)


def mapped(
    rows: pa.Table | pa.RecordBatchReader, change: Callable[[pa.Table], pa.Table], schema: pa.Schema
) -> pa.Table | pa.RecordBatchReader:
    """Rows of Arrow with a function applied to them: at once, or as they come."""
    if isinstance(rows, pa.Table):
        return change(rows)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            yield from change(pa.Table.from_batches([batch])).cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


def plain_texts(table: pa.Table) -> pa.Table:
    """Rows with dictionaries decoded, and in the types that a table gives them, where that changes nothing else."""
    dictionaries = [child for child in table.schema if pa.types.is_dictionary(child.type) or pa.types.is_run_end_encoded(child.type)]
    if not dictionaries:
        return table
    decoded = plain(table.select([child.name for child in dictionaries]))
    for child in decoded.schema:
        table = table.set_column(table.schema.get_field_index(child.name), child, decoded[child.name])
    return table


def _schema_of(rows: Rows) -> pa.Schema:
    if is_spark_dataframe(rows):
        from lake_core.spark.write import arrow_schema

        return arrow_schema(rows)
    return rows.schema


def _check(given: pa.Schema, wanted: pa.Schema, what: str) -> None:
    names = {name.lower() for name in given.names}
    missing = [child.name for child in wanted if child.name.lower() not in names]
    extra = [name for name in given.names if name.lower() not in {child.name.lower() for child in wanted}]
    wrong = [
        f"{child.name} is {spark_type_name(own.type)} instead of {spark_type_name(child.type)}"
        for child in wanted
        if (own := next((one for one in given if one.name.lower() == child.name.lower()), None)) is not None
        and not _castable(own.type, child.type)
    ]
    told = [f"it lacks {', '.join(missing)}"] * bool(missing) + [f"it has {', '.join(extra)} too"] * bool(extra) + wrong
    if told:
        raise DefinitionMismatch(f"{what} does not have the columns that lake/schema declares: {'; '.join(told)}. Nothing was written")


def _castable(given: pa.DataType, wanted: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(given) or types.is_run_end_encoded(given):
        given = given.value_type
    if given == wanted or types.is_null(given):
        return True
    if types.is_timestamp(given) and types.is_timestamp(wanted):
        return (given.tz is None) == (wanted.tz is None)
    for family in (_is_number, _is_text, _is_bytes, types.is_date, types.is_nested):
        if family(given):
            return bool(family(wanted))
    return False


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _index(schema: pa.Schema, name: str) -> int | None:
    return next((index for index, own in enumerate(schema.names) if own.lower() == name.lower()), None)
