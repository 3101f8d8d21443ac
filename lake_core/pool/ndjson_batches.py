"""Reads lines of JSON as batches of values.

Values of one shape become columns. The values are those that `read_ndjson` yields.
"""

from __future__ import annotations

import json
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.pool import types
from lake_core.pool.arrow.table import struct_array
from lake_core.pool.errors import InvalidType, InvalidValue
from lake_core.pool.ndjson import parse_line, refuse_constant
from lake_core.pool.types import ArrayType, Field, RecordType, Type
from lake_core.pool.value_batch import ValueBatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lake_core.pool.value import Value

_Shape: TypeAlias = Any
"""The shape of values that have the same type.

It is the Python type of a scalar, the names and shapes of a record's fields, or a tuple with the shape of an array's
elements.
"""
_LINES: Final = 8192
_SCALARS: Final[dict[_Shape, tuple[Type, pa.DataType]]] = {
    int: (types.INT64, pa.int64()),
    float: (types.FLOAT64, pa.float64()),
    str: (types.STRING, pa.string()),
    bool: (types.BOOL, pa.bool_()),
    type(None): (types.NULL, pa.null()),
}
_NULL: Final = type(None)


class _NotColumnar(Exception):
    """Values cannot be read as columns."""


def read_ndjson_batches(lines: Iterable[str]) -> Iterator[ValueBatch]:
    """Yield the values of lines in batches, in their order; empty lines are skipped.

    Raises InvalidJson, with the line's number.
    """
    decoder = json.JSONDecoder(parse_constant=refuse_constant)
    source = iter(lines)
    number = 1
    while chunk := list(islice(source, _LINES)):
        yield _batch(chunk, number, decoder)
        number += len(chunk)


def _batch(lines: Sequence[str], number: int, decoder: json.JSONDecoder) -> ValueBatch:
    """Return the values of lines. `number`: that of the first line."""
    groups: dict[_Shape, tuple[list[int], list[dict[str, Any]]]] = {}
    others: list[int] = []
    for row, line in enumerate(lines):
        try:
            record, end = decoder.raw_decode(line)
            if type(record) is not dict or line[end:].strip(" \t\r\n"):
                raise _NotColumnar
            shape = _shape(record)
            # The comparison of two deep shapes can also exceed the limit of recursions.
            group = groups.get(shape)
        except (_NotColumnar, ValueError, RecursionError):
            others.append(row)
            continue
        if group is None:
            group = groups[shape] = ([], [])
        group[0].append(row)
        group[1].append(record)
    rows: list[list[int]] = []
    batches: list[ValueBatch] = []
    for shape, (positions, records) in groups.items():
        try:
            batch = ValueBatch.of_column(_type(shape), _array(shape, records))
        except (_NotColumnar, pa.ArrowException, InvalidType, InvalidValue, OverflowError, ValueError, RecursionError):
            others += positions
            continue
        rows.append(positions)
        batches.append(batch)
    values = [(row, parse_line(lines[row], number + row)) for row in sorted(others)]
    read: list[tuple[int, Value]] = [(row, value) for row, value in values if value is not None]
    rows.append([row for row, _ in read])
    batches.append(ValueBatch.of_values([value for _, value in read]))
    order = np.argsort(np.fromiter(chain.from_iterable(rows), np.int64), kind="stable")
    batch = ValueBatch.concat(batches)
    return batch if len(groups) == 1 and not others else batch.take(order)


def _shape(value: Any) -> _Shape:
    """Return the shape of a value. Raises _NotColumnar for arrays of several types."""
    kind = type(value)
    if kind is dict:
        kinds = tuple(map(type, value.values()))
        if dict in kinds or list in kinds:
            return tuple(value), tuple(map(_shape, value.values()))
        return tuple(value), kinds
    if kind is list:
        elements = {_shape(each) for each in value}
        distinct = elements - {_NULL}
        # A null among containers has no column of its own.
        if len(distinct) > 1 or (_NULL in elements and distinct and distinct.isdisjoint(_SCALARS)):
            raise _NotColumnar
        return (distinct.pop() if distinct else _NULL,)
    return kind


@lru_cache(maxsize=4096)
def _type(shape: _Shape) -> Type:
    """Return the type of a shape. Raises InvalidType."""
    if shape in _SCALARS:
        return _SCALARS[shape][0]
    if len(shape) == 1:
        return ArrayType(_type(shape[0]))
    return RecordType(tuple(Field(name, _type(inner)) for name, inner in zip(*shape, strict=True)))


def _array(shape: _Shape, values: Sequence[Any]) -> pa.Array:
    """Return values of a shape as an array.

    Raises _NotColumnar for infinity, and the errors of Arrow for other numbers and texts.
    """
    if shape in _SCALARS:
        array = pa.array(values, _SCALARS[shape][1])
        if shape is float and pc.any(pc.is_inf(array)).as_py():
            raise _NotColumnar
        return array
    if len(shape) == 1:
        elements = _array(shape[0], list(chain.from_iterable(values)))
        offsets = np.append(0, np.cumsum([len(each) for each in values])).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), elements)
    names, shapes = shape
    columns = zip(*[each.values() for each in values], strict=True) if names else ()
    return struct_array(
        names, [_array(inner, column) for inner, column in zip(shapes, columns, strict=True)], len(values)
    )
