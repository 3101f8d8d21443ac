"""Bringing rows into the schema that an asset declares: only where every value stays what it is."""

from __future__ import annotations

import pyarrow as pa

from lake_orch.errors import DefinitionMismatch
from lake_orch.tables.rows import Rows
from lake_orch.tables.type_name import spark_type_name


def cast_rows(rows: Rows, schema: pa.Schema, name: str, computed: frozenset[str] = frozenset()) -> Rows:
    """Bring rows into these columns and types. Numbers, decimals and units of time are converted where that is exact; a zone is never
    made up.

    Args:
        name: what errors call the rows.
        computed: columns that may be missing, in lower case.

    Raises DefinitionMismatch for other columns and types, at once; for a value that does not fit, when it comes.
    """
    schema_of_rows = rows.schema
    names = {name.lower() for name in schema_of_rows.names}
    expected = pa.schema([child for child in schema if child.name.lower() not in computed or child.name.lower() in names])
    _check(schema_of_rows, expected, name)
    return rows.cast(expected, name)


def _check(given: pa.Schema, wanted: pa.Schema, name: str) -> None:
    types = {child.name.lower(): child.type for child in reversed(list(given))}
    names = {child.name.lower() for child in wanted}
    missing = [child.name for child in wanted if child.name.lower() not in types]
    extra = [own for own in given.names if own.lower() not in names]
    differences = [f"it lacks {', '.join(missing)}"] * bool(missing) + [f"it has {', '.join(extra)} too"] * bool(extra)
    differences += [
        f"{child.name} is {spark_type_name(own)} instead of {spark_type_name(child.type)}"
        for child in wanted
        if (own := types.get(child.name.lower())) is not None and not _castable(own, child.type)
    ]
    if differences:
        raise DefinitionMismatch(
            f"{name} does not have the columns that lake/schema declares: {'; '.join(differences)}. Nothing was written"
        )


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
