"""Projections: records with some of their fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.pool.errors import InvalidValue
from lake_core.pool.types import NULL, RecordType, Type, fields_of, under
from lake_core.pool.value import Value, split_record
from lake_core.pool.zng.tag import tagged
from lake_core.pool.zson.type_text import format_type

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


def projected_type(type: Type, names: Collection[str]) -> Type:
    """Return a record type with the fields of some names, in the order of the type. Null stays null.

    Raises:
        InvalidValue: The type is not a record.
    """
    record = _record(type)
    return NULL if record is None else RecordType(tuple(each for each in record.fields if each.name in names))


def _record(type: Type) -> RecordType | None:
    """Return a type as a record, or None for null. Raises InvalidValue for any other."""
    record = under(type)
    if record == NULL:
        return None
    if not isinstance(record, RecordType):
        raise InvalidValue(
            f"values of the type {format_type(type)} have no columns; scan the pool without `columns` and `where`"
        )
    return record


def selected_type(type: Type, names: Sequence[str]) -> Type:
    """Return a record type with the fields of some names, in the order of the names. Null stays null.

    Raises:
        InvalidValue: The type is not a record.
    """
    record = _record(type)
    if record is None:
        return NULL
    fields = {each.name: each for each in record.fields}
    return RecordType(tuple(fields[name] for name in names if name in fields))


def selected_value(value: Value, names: Sequence[str]) -> Value:
    """Return a record with the fields of some names, in the order of the names.

    Raises InvalidValue if the value is not a record, InvalidZng.
    """
    type, record = selected_type(value.type, names), under(value.type)
    if not isinstance(record, RecordType) or value.body is None:
        return Value(type, None)
    bodies = dict(zip([each.name for each in record.fields], split_record(record, value.body), strict=True))
    return Value(type, b"".join([tagged(bodies[each.name]) for each in fields_of(type)]))
