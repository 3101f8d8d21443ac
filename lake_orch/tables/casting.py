"""Casts of rows to the schema that an asset declares, only where every value is preserved."""

from __future__ import annotations

import pyarrow as pa

from lake_orch.errors import DefinitionMismatch
from lake_orch.spark.type_name import spark_type_name
from lake_orch.tables.rows import Rows


def cast_rows(rows: Rows, schema: pa.Schema, name: str, computed: frozenset[str] = frozenset()) -> Rows:
    """Cast rows to these columns and types.

    Numbers, decimals and units of time are converted only exactly. No time zone is assumed.

    Args:
        rows: The rows to cast.
        schema: The columns and types that the table has or gets.
        name: The name of the rows in errors.
        computed: The columns that may be missing, in lower case.

    Raises:
        DefinitionMismatch: The columns or types differ. A value that does not fit raises it while the rows are read.
    """
    schema_of_rows = rows.schema
    names = {name.lower() for name in schema_of_rows.names}
    expected = pa.schema(
        [child for child in schema if child.name.lower() not in computed or child.name.lower() in names]
    )
    _check(schema_of_rows, expected, name)
    return rows.cast(expected, name)


def _check(data: pa.Schema, table: pa.Schema, name: str) -> None:
    types = {child.name.lower(): child.type for child in reversed(list(data))}
    names = {child.name.lower() for child in table}
    missing = [child.name for child in table if child.name.lower() not in types]
    extra = [column for column in data.names if column.lower() not in names]
    differences = [f"it lacks {', '.join(missing)}"] * bool(missing) + [f"it has {', '.join(extra)} too"] * bool(extra)
    differences += [
        f"{child.name} is {spark_type_name(kind)} instead of {spark_type_name(child.type)}"
        for child in table
        if (kind := types.get(child.name.lower())) is not None and not _castable(kind, child.type)
    ]
    if differences:
        raise DefinitionMismatch(
            f"{name} does not have the columns that lake/schema declares: {'; '.join(differences)}. Nothing was written"
        )


def _castable(source: pa.DataType, target: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(source) or types.is_run_end_encoded(source):
        source = source.value_type
    if source == target or types.is_null(source):
        return True
    if types.is_timestamp(source) and types.is_timestamp(target):
        return (source.tz is None) == (target.tz is None)
    for family in (_is_number, _is_text, _is_bytes, types.is_date, types.is_nested):
        if family(source):
            return bool(family(target))
    return False


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))
