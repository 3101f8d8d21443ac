"""Fuses the values of a stream into one table: one schema for all of their types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake_core.pool.arrow.arrays import integers, numbers_of, valid
from lake_core.pool.arrow.arrow_type import NULL_CHILD, arrow_type
from lake_core.pool.arrow.bodies import Positions, distinct, validity
from lake_core.pool.arrow.column_writer import union_codes
from lake_core.pool.arrow.columns import FEWEST_ROWS, Column, read_columns, values_of
from lake_core.pool.arrow.table import struct_array, to_table
from lake_core.pool.fused_type import JSON, Conflicts, components, fused_type, fused_types, is_composite
from lake_core.pool.ndjson import format_json
from lake_core.pool.types import (
    NULL,
    ArrayType,
    ErrorType,
    MapType,
    RecordType,
    SetType,
    Type,
    UnionType,
    fields_of,
    under,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
    """Return the values of columns, widened to the type that their types are fused into, in the order of their rows.

    Columns of few rows are widened together, because each array of records has all fields of the type.
    """
    return [_assembled(*_parts(group), type) for group in _consecutive(columns)]


@dataclass(frozen=True, slots=True)
class _Part:
    """Values of one type among others.

    Attributes:
        values: The values.
        type: Their type.
        rows: The position of each among all values; None if they are all of the values, in their order.
    """

    values: pa.Array
    type: Type
    rows: Positions | None

    @property
    def at(self) -> Positions:
        """Return the position of each among all values."""
        return np.arange(len(self.values)) if self.rows is None else self.rows


def _consecutive(columns: Sequence[Column]) -> Iterator[list[Column]]:
    """Yield columns in groups. All rows of a group come before those of the next one."""
    if len(columns) < 2:
        yield from ([each] for each in columns)
        return
    filled = [each for each in columns if len(each.rows)]
    last = np.maximum.accumulate([int(each.rows.max()) for each in filled])
    first = np.minimum.accumulate([int(each.rows.min()) for each in reversed(filled)])[::-1]
    group: list[Column] = []
    rows = 0
    for number, each in enumerate(filled):
        group.append(each)
        rows += len(each.rows)
        is_last = number + 1 == len(filled)
        if is_last or (rows >= FEWEST_ROWS and last[number] < first[number + 1]):
            yield group
            group, rows = [], 0


def _parts(columns: Sequence[Column]) -> tuple[list[_Part], int]:
    """Return columns as parts of an array, and the length of that array."""
    rows = np.concatenate([each.rows for each in columns])
    if len(columns) == 1 and not bool((np.diff(rows) < 0).any()):
        return [_Part(columns[0].values, columns[0].type, None)], len(rows)
    ranks = np.empty(len(rows), np.int64)
    ranks[np.argsort(rows, kind="stable")] = np.arange(len(rows))
    positions = np.split(ranks, np.cumsum([len(each.rows) for each in columns])[:-1])
    return [_Part(each.values, each.type, at) for each, at in zip(columns, positions, strict=True)], len(rows)


def _assembled(parts: Sequence[_Part], count: int, target: Type) -> pa.Array:
    """Return values of a fused type that includes the types of all parts. Rows that no part has are null."""
    plain = under(target)
    parts = [part for part in parts if len(part.values) and under(part.type) != NULL]
    if target == JSON or all(under(part.type) == plain for part in parts):
        return _placed([_of_one_type(part, target) for part in parts], parts, count, target)
    match plain:
        case UnionType():
            return _in_union(parts, count, plain)
        case RecordType(fields):
            pieces: dict[str, list[_Part]] = {}
            for part in parts:
                for number, each in enumerate(fields_of(part.type)):
                    pieces.setdefault(each.name, []).append(_Part(part.values.field(number), each.type, part.rows))
            columns = [_assembled(pieces.get(each.name, ()), count, each.type) for each in fields]
            is_valid = np.zeros(count, np.bool_)
            for part in parts:
                is_valid[slice(None) if part.rows is None else part.rows] = valid(part.values)
            return struct_array([each.name for each in fields], columns, count, is_valid=is_valid)
        case ArrayType() | SetType() | MapType():
            return _lists(parts, count, plain)
        case ErrorType(inner):
            carried = [_Part(part.values, components(part.type)[0], part.rows) for part in parts]
            return _assembled(carried, count, inner)
    return _placed([_of_one_type(part, target) for part in parts], parts, count, target)


def _of_one_type(part: _Part, target: Type) -> pa.Array:
    """Return the values of a part as JSON text, or cast to a primitive type. Values of the type stay as they are."""
    if target == JSON and part.type != JSON:
        texts = [format_json(value) for value in values_of(part.type, part.values)]
        return pa.array([None if text == "null" else text for text in texts], pa.string())
    if under(part.type) == under(target):
        return part.values
    try:
        return part.values.cast(arrow_type(target))
    except pa.ArrowInvalid:
        raise InexactInteger from None


def _placed(arrays: Sequence[pa.Array], parts: Sequence[_Part], count: int, type: Type) -> pa.Array:
    """Return values of a type, given in the order of the parts that they are of, in the order of their rows."""
    if not arrays:
        return _nulls(type, count)
    if len(parts) == 1 and parts[0].rows is None:
        return arrays[0]
    rows = np.concatenate([part.at for part in parts])
    order = np.full(count, len(rows), np.int64)
    order[rows] = np.arange(len(rows))
    joined = pa.concat_arrays([*arrays, _nulls(type, 1)] if len(rows) < count else arrays)
    return joined.take(integers(order))


def _lists(parts: Sequence[_Part], count: int, target: Type) -> pa.Array:
    """Return arrays, sets or maps of a fused type."""
    inner: list[list[_Part]] = [[] for _ in components(target)]
    ends, is_valid = [np.zeros(1, np.int64)], []
    for part in parts:
        # The accessors of pyarrow give all elements, also those outside of a slice.
        offsets = part.values.offsets
        bounds = numbers_of(offsets, "<i4").astype(np.int64)
        start = int(ends[-1][-1])
        ends.append(bounds[1:] - bounds[0] + start)
        is_valid.append(valid(part.values))
        elements = part.values.values.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))
        rows = np.arange(start, start + len(elements))
        columns = [elements.field(0), elements.field(1)] if isinstance(target, MapType) else [elements]
        for pieces, values, type in zip(inner, columns, components(part.type), strict=True):
            pieces.append(_Part(values, type, rows))
    length = int(ends[-1][-1])
    children = [_assembled(pieces, length, type) for pieces, type in zip(inner, components(target), strict=True)]
    values = struct_array(("key", "value"), children, length) if isinstance(target, MapType) else children[0]
    mask = np.concatenate(is_valid)
    lists = pa.Array.from_buffers(
        arrow_type(target),
        len(mask),
        [validity(mask), pa.py_buffer(np.concatenate(ends).astype(np.int32))],
        children=[values],
    )
    return _placed([lists], [_Part(lists, target, np.concatenate([part.at for part in parts]))], count, target)


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
            is_valid=np.zeros(count, np.bool_),
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


def _in_union(parts: Sequence[_Part], count: int, target: UnionType) -> pa.Array:
    """Return values as values of a union that has a type for each of theirs. They may be values of other unions."""
    alternatives = [alternative for part in parts for alternative in _alternatives(part)]
    codes = np.full(count, len(target.types), np.int8)
    code_of: dict[Type, int] = {}
    for each in alternatives:
        if each.type not in code_of:
            code_of[each.type] = _code_of(each.type, target)
        codes[each.at] = code_of[each.type]
    offsets = np.zeros(count, np.int64)
    for code in distinct(codes).tolist():
        of_code = codes == code
        offsets[of_code] = np.arange(int(of_code.sum()))
    members: list[list[_Part]] = [[] for _ in target.types]
    for each in alternatives:
        members[code_of[each.type]].append(_Part(each.values, each.type, offsets[each.at]))
    children = [
        _assembled(pieces, sum(len(piece.values) for piece in pieces), member)
        for pieces, member in zip(members, target.types, strict=True)
    ]
    return _union(target, codes, offsets, children)


def _alternatives(part: _Part) -> Iterator[_Part]:
    """Yield the values of a part that are not null, by the types that they have below a union."""
    array, type = part.values, under(part.type)
    if isinstance(type, UnionType):
        codes, offsets = union_codes(array)
        sources = [(member, array.field(number), codes == number, offsets) for number, member in enumerate(type.types)]
    else:
        # An error can hold a value of a union, which is null by its code.
        is_union = pa.types.is_union(array.type)
        has_value = union_codes(array)[0] < array.type.num_fields - 1 if is_union else valid(array)
        sources = [(type, array, has_value, np.arange(len(array), dtype=np.int32))]
    for member, values, has_value, positions in sources:
        yield _Part(values.take(integers(positions[has_value])), member, part.at[has_value])


def _code_of(type: Type, union: UnionType) -> int:
    """Return the position of the type in a union that a type was fused into."""
    if type in union.types:
        return union.types.index(type)
    if is_composite(type):
        alike = [number for number, each in enumerate(union.types) if under(each).__class__ is under(type).__class__]
        if len(alike) == 1:
            return alike[0]
    return next(
        position
        for round_integers in (False, True)
        for position, member in enumerate(union.types)
        if fused_type(member, type, "union", round_integers=round_integers) == member
    )
