"""Splits a field of records into parts of one type each, below unions and records that are null.

Nothing is flattened: Arrow gives the children of a record its nulls, but a union cannot have any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.pool.arrow.arrays import booleans, integers, valid
from lake_core.pool.arrow.column_writer import union_codes
from lake_core.pool.types import NULL, ErrorType, RecordType, Type, UnionType, under

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.pool.arrow.arrays import Integers


class Part(NamedTuple):
    """Values of one type that a field has in some of the records.

    Attributes:
        values: An array that holds the values.
        rows: The positions of the records; None for all of them.
        positions: The position of each record's value in the array; None where it is that of the record itself.
    """

    values: pa.Array
    rows: Integers | None
    positions: Integers | None


def parts_of(
    array: pa.Array,
    type: Type,
    path: Sequence[str],
    rows: Integers | None = None,
    positions: Integers | None = None,
) -> Iterator[Part]:
    """Yield the values that a field has, by their types. Records that are in no part do not have the field.

    Args:
        array: The records. With `positions`, an array that holds them.
        type: Their type.
        path: The path of names to the field.
        rows: The positions of the records; None for all of them.
        positions: The position of each record in the array, below a union; None where it is the same.
    """
    plain = plain_type(type)
    if isinstance(plain, UnionType):
        codes, offsets = union_codes(array)
        if rows is None:
            rows = np.arange(len(array))
        at = rows if positions is None else positions
        codes, offsets = codes[at], offsets[at]
        for number, member in enumerate(plain.types):
            chosen = np.flatnonzero(codes == number)
            if len(chosen):
                yield from parts_of(array.field(number), member, path, rows[chosen], offsets[chosen])
    elif not path:
        if rows is not None and positions is None and not pa.types.is_nested(array.type):
            # One array with nulls is evaluated faster than two groups of records.
            has_value = np.zeros(len(array), np.bool_)
            has_value[rows] = True
            array, rows = pc.if_else(booleans(has_value), array, pa.nulls(1, array.type)[0]), None
        if plain != NULL:
            yield Part(array, rows, positions)
    elif isinstance(plain, RecordType):
        names = [each.name for each in plain.fields]
        if path[0] not in names:
            return
        number = names.index(path[0])
        if array.null_count:
            has_value = valid(array)
            if positions is not None and rows is not None:
                chosen = np.flatnonzero(has_value[positions])
                rows, positions = rows[chosen], positions[chosen]
            else:
                rows = np.flatnonzero(has_value) if rows is None else rows[has_value[rows]]
        if positions is None or len(positions):
            yield from parts_of(array.field(number), plain.fields[number].type, path[1:], rows, positions)


def plain_type(type: Type) -> Type:
    """Return the type without its names and errors, which have the Arrow type of what they hold."""
    plain = under(type)
    return plain_type(plain.inner) if isinstance(plain, ErrorType) else plain


def grouped(count: int, fields: Sequence[Sequence[Part]]) -> Iterator[tuple[Integers | None, list[pa.Array | None]]]:
    """Yield groups of records in which each field is in one part: their positions, and the values of each field.

    Args:
        count: How many records there are.
        fields: The parts of each field.

    Yields:
        The positions; None for all of the records. For each field its values, or None where the records lack it.
    """
    if all(not parts or (len(parts) == 1 and parts[0].rows is None) for parts in fields):
        yield None, [parts[0].values if parts else None for parts in fields]
        return
    groups = np.zeros(count, np.int64)
    coded = []
    for parts in fields:
        codes, positions = np.zeros(count, np.int64), np.zeros(count, np.int64)
        for code, part in enumerate(parts, 1):
            rows = np.arange(count) if part.rows is None else part.rows
            codes[rows] = code
            positions[rows] = rows if part.positions is None else part.positions
        coded.append((parts, codes, positions))
        groups = np.unique(groups * (len(parts) + 1) + codes, return_inverse=True)[1]
    for group in range(int(groups.max(initial=-1)) + 1):
        rows = np.flatnonzero(groups == group)
        yield (
            rows,
            [
                parts[codes[rows[0]] - 1].values.take(integers(positions[rows])) if codes[rows[0]] else None
                for parts, codes, positions in coded
            ],
        )
