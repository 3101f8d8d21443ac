"""Projections: records with some of their fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.pool.errors import InvalidValue
from lake_core.pool.types import NULL, RecordType, Type, under
from lake_core.pool.value import Value, split_record
from lake_core.pool.zng.tag import tagged
from lake_core.pool.zson.type_text import format_type

if TYPE_CHECKING:
    from collections.abc import Collection


def projected_type(type: Type, names: Collection[str]) -> Type:
    """Return a record type with the fields of some names, in the order of the type. Null stays null.

    Raises:
        InvalidValue: The type is not a record.
    """
    record = under(type)
    if record == NULL:
        return NULL
    if not isinstance(record, RecordType):
        raise InvalidValue(
            f"values of the type {format_type(type)} have no columns; scan the pool without `columns` and `where`"
        )
    return RecordType(tuple(each for each in record.fields if each.name in names))


def projected_value(value: Value, names: Collection[str]) -> Value:
    """Return a record with the fields of some names. Raises InvalidValue if the value is not a record, InvalidZng."""
    type, record = projected_type(value.type, names), under(value.type)
    if not isinstance(record, RecordType) or value.body is None:
        return Value(type, None)
    bodies = split_record(record, value.body)
    return Value(
        type, b"".join([tagged(body) for each, body in zip(record.fields, bodies, strict=True) if each.name in names])
    )
