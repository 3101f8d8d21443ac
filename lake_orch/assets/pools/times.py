"""Conversion of texts to times, for records from JSON, which has no times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from lake_core.pool import types
from lake_core.pool.errors import InvalidValue
from lake_core.pool.types import Field, RecordType, Type
from lake_core.pool.value import Value, split_record
from lake_core.pool.zng.tag import tagged
from lake_core.pool.zson.primitive_text import parse_primitive


def with_times(values: Iterable[Value], names: Sequence[str]) -> Iterator[Value]:
    """Yield values with times (RFC 3339) in place of texts, in fields of these names. Any other text is unchanged."""
    return (_with_times(value, tuple(names)) for value in values) if names else iter(values)


def _with_times(value: Value, names: tuple[str, ...]) -> Value:
    positions = _positions(value.type, names)
    if value.body is None or not positions or not isinstance(value.type, RecordType):
        return value
    bodies = split_record(value.type, value.body)
    fields = list(value.type.fields)
    for position in positions:
        body = bodies[position]
        if body is None:
            continue
        try:
            bodies[position] = parse_primitive(types.TIME, body.decode())
        except (InvalidValue, ValueError):
            continue
        fields[position] = Field(fields[position].name, types.TIME)
    return Value(RecordType(tuple(fields)), b"".join(map(tagged, bodies)))


@lru_cache(maxsize=1024)
def _positions(type: Type, names: tuple[str, ...]) -> tuple[int, ...]:
    """Return the positions of the text fields of a record that have these names."""
    fields = type.fields if isinstance(type, RecordType) else ()
    return tuple(position for position, each in enumerate(fields) if each.name in names and each.type == types.STRING)
