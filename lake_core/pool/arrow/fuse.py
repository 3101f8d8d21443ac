"""Fuses the values of a stream into one table: one schema for all of their types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake_core.pool.arrow.arrays import integers, valid
from lake_core.pool.arrow.arrow_type import NULL_CHILD, arrow_type
from lake_core.pool.arrow.bodies import validity
from lake_core.pool.arrow.column_writer import union_codes
from lake_core.pool.arrow.columns import Column, read_columns, values_of
from lake_core.pool.arrow.table import struct_array, to_table
from lake_core.pool.fused_type import JSON, Conflicts, fused_type, fused_types
from lake_core.pool.ndjson import format_json
from lake_core.pool.types import NULL, ArrayType, ErrorType, MapType, RecordType, SetType, Type, UnionType, under

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.pool.zng.frame import Source


def fuse(source: Source, *, conflicts: Conflicts = "union") -> pa.Table:
    """Return the values of ZNG streams as one table, in their order.

    Fields that a record does not have are null. A field that has several types gets their common type.
    Integers of 64 bits and floats become float64 if that holds each of the integers exactly. Otherwise they have no
    common type.

    Args:
        source: The bytes, or a file.
        conflicts: How types without a common one are fused: into a union, or into JSON text.

    Raises:
        InvalidZng: The bytes are damaged.
        InvalidJson: A number that is to become JSON text is infinite or not a number.
    """
    columns = list(read_columns(source))
    try:
        return _fused(columns, conflicts, round_integers=True)
    except InexactInteger:
        return _fused(columns, conflicts, round_integers=False)


class InexactInteger(Exception):
    """An integer is not exact as a float."""


def _fused(columns: Sequence[Column], conflicts: Conflicts, *, round_integers: bool) -> pa.Table:
    type = fused_types(dict.fromkeys(column.type for column in columns), conflicts, round_integers=round_integers)
    return to_table(type, widen_columns(columns, type))


def widen_columns(columns: Sequence[Column], type: Type) -> list[pa.Array]:
    """Return the values of columns, widened to the type that their types are fused into, in the order of their rows."""
    arrays = [_widened(column.values, column.type, type) for column in columns]
    rows = np.concatenate([column.rows for column in columns]) if columns else np.zeros(0, np.int64)
    if bool((np.diff(rows) < 0).any()):
        order = np.argsort(rows)
        arrays = [pa.concat_arrays(arrays).take(integers(order))]
    return arrays


def _widened(array: pa.Array, type: Type, target: Type) -> pa.Array:
    """Return values of a type, widened to a fused type that includes it."""
    if target == JSON and type != JSON:
        texts = [format_json(value) for value in values_of(type, array)]
        return pa.array([None if text == "null" else text for text in texts], pa.string())
    type, target = under(type), under(target)
    if type == target:
        return array
    if type == NULL:
        return _nulls(target, len(array))
    match type, target:
        case _, UnionType():
            return _in_union(array, type, target)
        case RecordType(), RecordType():
            columns = {each.name: (array.field(number), each.type) for number, each in enumerate(type.fields)}
            fields = [
                _widened(*columns[each.name], each.type) if each.name in columns else _nulls(each.type, len(array))
                for each in target.fields
            ]
            return struct_array([each.name for each in target.fields], fields, len(array), nulls_of=array)
        case (ArrayType(inner), ArrayType(target_inner)) | (SetType(inner), SetType(target_inner)):
            return _list(array, target, _widened(array.values, inner, target_inner))
        case MapType(), MapType():
            entries = array.values
            pair = [
                _widened(entries.field(0), type.key, target.key),
                _widened(entries.field(1), type.value, target.value),
            ]
            return _list(array, target, struct_array(("key", "value"), pair, len(entries)))
        case ErrorType(inner), ErrorType(target_inner):
            return _widened(array, inner, target_inner)
    try:
        return array.cast(arrow_type(target))
    except pa.ArrowInvalid:
        raise InexactInteger from None


def _list(array: pa.Array, type: Type, values: pa.Array) -> pa.Array:
    bitmap = validity(valid(array))
    return pa.Array.from_buffers(
        arrow_type(type), len(array), [bitmap, array.offsets.buffers()[1]], children=[values], offset=array.offset
    )


def _nulls(type: Type, count: int) -> pa.Array:
    """Return nulls of a type."""
    plain = under(type)
    if isinstance(plain, ErrorType):
        return _nulls(plain.inner, count)
    if isinstance(plain, UnionType):
        codes = np.full(count, len(plain.types), np.int8)
        return _union(plain, codes, np.arange(count), [_nulls(member, 0) for member in plain.types])
    if isinstance(plain, RecordType):
        return struct_array(
            [each.name for each in plain.fields],
            [_nulls(each.type, count) for each in plain.fields],
            count,
            nulls_of=pa.nulls(count),
        )
    return pa.nulls(count, arrow_type(plain))


def _union(
    type: UnionType, codes: npt.NDArray[np.int8], offsets: npt.NDArray[np.integer[Any]], children: Sequence[pa.Array]
) -> pa.Array:
    """Return values of a union. The code after that of its last type represents null."""
    nulls = pa.nulls(int((codes == len(type.types)).sum()))
    names = [*(str(number) for number in range(len(type.types))), NULL_CHILD]
    return pa.UnionArray.from_dense(
        integers(codes.astype(np.int8)), integers(offsets.astype(np.int32)), [*children, nulls], names
    )


def _in_union(array: pa.Array, type: Type, target: UnionType) -> pa.Array:
    """Return values as values of a union that has a type for each of theirs. They may be values of another union."""
    if isinstance(type, UnionType):
        codes, offsets = union_codes(array)
        sources = [(member, array.field(number), codes == number, offsets) for number, member in enumerate(type.types)]
    else:
        # An error can hold a value of a union, which is null by its code.
        is_union = pa.types.is_union(array.type)
        has_value = union_codes(array)[0] < array.type.num_fields - 1 if is_union else valid(array)
        sources = [(type, array, has_value, np.arange(len(array), dtype=np.int32))]
    children: list[list[pa.Array]] = [[] for _ in target.types]
    new_codes = np.full(len(array), len(target.types), np.int8)
    new_offsets = np.zeros(len(array), np.int32)
    for member, values, rows, positions in sources:
        code = _code_of(member, target)
        start = sum(map(len, children[code]))
        selected = values.take(integers(positions[rows]))
        children[code].append(_widened(selected, member, target.types[code]))
        new_codes[rows] = code
        new_offsets[rows] = start + np.arange(len(selected))
    nulls = new_codes == len(target.types)
    new_offsets[nulls] = np.arange(int(nulls.sum()))
    joined = [
        pa.concat_arrays(parts) if parts else _nulls(member, 0)
        for parts, member in zip(children, target.types, strict=True)
    ]
    return _union(target, new_codes, new_offsets, joined)


def _code_of(type: Type, union: UnionType) -> int:
    """Return the position of the type in a union that a type was fused into."""
    if type in union.types:
        return union.types.index(type)
    return next(
        position
        for round_integers in (False, True)
        for position, member in enumerate(union.types)
        if fused_type(member, type, "union", round_integers=round_integers) == member
    )
