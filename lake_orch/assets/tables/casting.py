"""Casts of rows to the schema that an asset declares, only where every value is preserved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from lake_core.delta.schema import is_text
from lake_core.expression.coercion import is_number
from lake_orch.assets.tables.rows import Rows
from lake_orch.errors import DefinitionMismatch
from lake_orch.spark.type_name import spark_type_name


def cast_rows(
    rows: Rows,
    schema: pa.Schema,
    name: str,
    computed: frozenset[str] = frozenset(),
    *,
    declared_by: str = "lake/schema",
) -> Rows:
    """Cast rows to these columns and types.

    Numbers, decimals and units of time are converted only exactly. No time zone is assumed. Columns and fields of
    structs are matched by name, ignoring case; fields that the rows lack are null.

    Args:
        rows: The rows to cast.
        schema: The columns and types that the table has or gets.
        name: The name of the rows in errors.
        computed: The columns that may be missing, in lower case.
        declared_by: What declares the columns, for errors.

    Raises:
        DefinitionMismatch: The columns or types differ. A value that does not fit raises it while the rows are read, in
            a Spark job SchemaMismatch.
    """
    schema_of_rows = rows.schema
    names = {name.lower() for name in schema_of_rows.names}
    expected = pa.schema(
        [child for child in schema if child.name.lower() not in computed or child.name.lower() in names]
    )
    missing = [child.name for child in expected if child.name.lower() not in names]
    differences = [f"it lacks {', '.join(missing)}"] * bool(missing)
    differences += _differences(list(schema_of_rows), list(expected), "")
    if differences:
        raise DefinitionMismatch(
            f"{name} does not have the columns that {declared_by} declares: {'; '.join(differences)}. "
            "Nothing was written"
        )
    return rows.cast(expected, name)


def check_names(data: pa.Schema, schema: pa.Schema, name: str, declared_by: str) -> None:
    """Raise DefinitionMismatch for a column that a schema does not have by exactly this name, or that comes twice."""
    count = Counter(data.names)
    other = [column for column in count if column not in schema.names]
    twice = [column for column in count if count[column] > 1]
    if other or twice:
        differences = [f"it has {', '.join(other)} too"] * bool(other)
        differences += [f"it has {', '.join(twice)} several times"] * bool(twice)
        raise DefinitionMismatch(
            f"{name} does not have the columns that {declared_by} declares: {'; '.join(differences)}. "
            "Nothing was written"
        )


def _differences(data: Sequence[pa.Field], table: Sequence[pa.Field], path: str) -> list[str]:
    """Return what keeps columns, or the fields of a struct, from being cast."""
    names = {child.name.lower() for child in table}
    folded = Counter(child.name.lower() for child in data)
    extra = [path + child.name for child in data if child.name.lower() not in names]
    twice = [path + child.name for child in data if child.name.lower() in names and folded[child.name.lower()] > 1]
    differences = [f"it has {', '.join(extra)} too"] * bool(extra)
    differences += [f"it has {', '.join(twice)}, which are one column if case is ignored"] * bool(twice)
    types = {child.name.lower(): child.type for child in data}
    for child in table:
        kind = types.get(child.name.lower())
        if kind is not None:
            differences += _difference(kind, child.type, path + child.name)
    return differences


def _difference(source: pa.DataType, target: pa.DataType, path: str) -> list[str]:
    types = pa.types
    if types.is_dictionary(source) or types.is_run_end_encoded(source):
        source = source.value_type
    if source == target or types.is_null(source):
        return []
    if types.is_struct(source) and types.is_struct(target):
        return _differences(list(source), list(target), f"{path}.")
    if types.is_map(source) and types.is_map(target):
        keys = _difference(source.key_type, target.key_type, f"{path}.key")
        return keys + _difference(source.item_type, target.item_type, f"{path}.value")
    if _is_list(source) and _is_list(target):
        return _difference(source.value_type, target.value_type, f"{path}.element")
    if _castable(source, target):
        return []
    return [f"{path} is {spark_type_name(source)} instead of {spark_type_name(target)}"]


def _castable(source: pa.DataType, target: pa.DataType) -> bool:
    types = pa.types
    if types.is_timestamp(source) and types.is_timestamp(target):
        return (source.tz is None) == (target.tz is None)
    for family in (is_number, is_text, _is_bytes, types.is_date):
        if family(source):
            return bool(family(target))
    return False


def _is_list(kind: pa.DataType) -> bool:
    return hasattr(kind, "value_field") and not pa.types.is_map(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))
