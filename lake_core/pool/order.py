"""The total order of values, by which pools sort their records.

Nulls come last. Numbers, durations and times compare as numbers, whatever their types; NaN is the smallest.
Other values compare within their type, and by the order of types otherwise.
"""

from __future__ import annotations

import math
from functools import cmp_to_key
from typing import TYPE_CHECKING, Any, TypeVar

from lake_core.pool import types
from lake_core.pool.primitive import DECODERS, decode_ip
from lake_core.pool.type_value import decode_type
from lake_core.pool.types import (
    FLOATS,
    NUMBERS,
    SIGNED,
    UNSIGNED,
    ArrayType,
    ErrorType,
    PrimitiveType,
    SetType,
    Type,
    under,
)
from lake_core.pool.value import NULL_VALUE, Value
from lake_core.pool.zng.tag import split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_NATIVE: dict[Type, Callable[[bytes], Any]] = {
    **{type: DECODERS[type] for type in (*UNSIGNED, *SIGNED, types.BOOL)},
    types.BYTES: bytes,
    types.STRING: bytes,
    types.IP: lambda body: (len(body), body),
}
"""Types whose values Python compares as pools do, and the functions from a body to the object that it compares."""
_Comparable = TypeVar("_Comparable", int, bytes, float)


def compare_values(one: Value, other: Value) -> int:
    """Return -1, 0 or 1 if a value sorts before, with or after another. Raises InvalidZng."""
    if one.body is None or other.body is None:
        return (one.body is None) - (other.body is None)
    return _compare_bodies(under(one.type), one.body, under(other.type), other.body)


def _compare_bodies(type: Type, body: bytes, other_type: Type, other: bytes) -> int:
    if (
        isinstance(type, PrimitiveType)
        and isinstance(other_type, PrimitiveType)
        and type in NUMBERS
        and other_type in NUMBERS
    ):
        return _compare_numbers(type, body, other_type, other)
    if type != other_type:
        return -1 if type.sort_key < other_type.sort_key else 1
    if type == types.BOOL:
        return _compare(DECODERS[types.BOOL](body), DECODERS[types.BOOL](other))
    if type == types.IP:
        decode_ip(body), decode_ip(other)
        return _compare(len(body), len(other)) or _compare(body, other)
    if type == types.TYPE:
        one_key, other_key = decode_type(body).sort_key, decode_type(other).sort_key
        return (one_key > other_key) - (one_key < other_key)
    if isinstance(type, ArrayType | SetType):
        return _compare_elements(type.element, split(body), split(other))
    return _compare(body, other)


def _compare(one: _Comparable, other: _Comparable) -> int:
    return (one > other) - (one < other)


def _compare_numbers(type: PrimitiveType, body: bytes, other_type: PrimitiveType, other: bytes) -> int:
    one_number, other_number = DECODERS[type](body), DECODERS[other_type](other)
    if type not in FLOATS and other_type not in FLOATS:
        return _compare(one_number, other_number)
    # An integer is rounded to a float to compare it with one.
    one_float, other_float = float(one_number), float(other_number)
    if math.isnan(one_float) or math.isnan(other_float):
        return math.isnan(other_float) - math.isnan(one_float)
    return _compare(one_float, other_float)


def _compare_elements(type: Type, ones: Sequence[bytes | None], others: Sequence[bytes | None]) -> int:
    for one, other in zip(ones, others, strict=False):
        if order := compare_values(Value(type, one), Value(type, other)):
            return order
    return _compare(len(ones), len(others))


def pool_key(value: Value, path: Sequence[str]) -> Value:
    """Return the key that a pool sorts a value by.

    A value without such a field, and the error `missing`, sort as null.
    """
    key = value.field(*path)
    if key is None or (isinstance(key.type, ErrorType) and key.type.inner == types.STRING and key.body == b"missing"):
        return NULL_VALUE
    return key


def compare_in_pool(one: Value, other: Value, paths: Sequence[Sequence[str]], *, descending: bool) -> int:
    """Return -1, 0 or 1 if a value comes before, with or after another in a pool.

    Args:
        one: A value.
        other: Another.
        paths: The pool's keys, as paths of field names. Values with equal keys are compared by their bytes.
        descending: Whether the pool is in descending order. That is the order of the bytes, too.
    """
    one_keys, other_keys = ([pool_key(value, path) for path in paths] for value in (one, other))
    return compare_by_keys(one, one_keys, other, other_keys, descending=descending)


def compare_by_keys(
    one: Value, one_keys: Iterable[Value], other: Value, other_keys: Iterable[Value], *, descending: bool
) -> int:
    """Compare two values in a pool, given their keys; see `compare_in_pool`."""
    orders = (compare_values(*pair) for pair in zip(one_keys, other_keys, strict=True))
    order = next(filter(None, orders), 0) or compare_values(
        Value(types.BYTES, one.body), Value(types.BYTES, other.body)
    )
    return -order if descending else order


def sorted_positions(values: Sequence[Value], paths: Sequence[Sequence[str]], *, descending: bool = False) -> list[int]:
    """Return the positions of values in the order in which a pool stores them; see `compare_in_pool`.

    Raises InvalidZng.
    """
    keys = [[pool_key(value, path) for path in paths] for value in values]
    native = [
        _native_key({under(each[number].type) for each in keys if each[number].body is not None})
        for number in range(len(paths))
    ]

    def sort_key(position: int) -> tuple[Any, ...]:
        body = values[position].body
        parts = [make(key) for make, key in zip(native, keys[position], strict=True)]
        return (*parts, (body is None, body))

    return sorted(range(len(values)), key=sort_key, reverse=descending)


def _native_key(distinct: set[Type]) -> Callable[[Value], Any]:
    """Return a function that turns keys of some types into objects that Python compares as pools compare the keys."""
    if len(distinct) == 1 and (decode := _NATIVE.get(next(iter(distinct)))):
        return lambda key: (True, None) if key.body is None else (False, decode(key.body))
    return cmp_to_key(compare_values)
