"""Reads whole ZNG streams as columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

import numpy as np

from lake_core.pool.arrow.bodies import PADDING, Bodies, Positions, buffer_of, positions_by_number
from lake_core.pool.arrow.column_reader import read_column, read_fields
from lake_core.pool.arrow.column_writer import write_column
from lake_core.pool.arrow.outline import Sizes, located_values
from lake_core.pool.errors import InvalidZng
from lake_core.pool.value import Value
from lake_core.pool.zng.reader import read_payloads
from lake_core.pool.zng.tag import split

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    import pyarrow as pa

    from lake_core.pool.types import Type
    from lake_core.pool.zng.frame import Source
    from lake_core.pool.zng.typedef import TypeDecoder

_COLUMN_BYTES: Final = 4 << 20
"""How many bytes of frames become columns at once: smaller columns take more time, as each step has a fixed cost."""
FEWEST_ROWS: Final = 1024
"""How many rows of several types are converted at once, at least: arrays of fused records have the fields of all."""
_MAX_CELLS: Final = 1 << 26
_MAX_CELLS_PER_BYTE: Final = 64


@dataclass(frozen=True, slots=True)
class Column:
    """Values of one type.

    Attributes:
        type: Their type.
        values: The values, of its Arrow type.
        rows: The position of each among all values of the stream.
    """

    type: Type
    values: pa.Array
    rows: Positions


@dataclass(frozen=True, slots=True)
class EncodedColumn:
    """Encoded values of one type.

    Attributes:
        type: Their type.
        bodies: The values.
        rows: The position of each among all values of the stream.
    """

    type: Type
    bodies: Bodies
    rows: Positions


def read_encoded_columns(source: Source, frames: Iterable[Sizes] = ()) -> Iterator[EncodedColumn]:
    """Yield the values of ZNG streams as columns, without decoding them.

    A column holds the values of one type in a few frames.

    Args:
        source: The bytes, or a file.
        frames: How many bytes each value has, frame by frame, as far as that is known. It is verified.

    Raises:
        InvalidZng: The bytes are damaged.
    """
    return chain.from_iterable(_encoded_groups(source, frames))


def _encoded_groups(source: Source, frames: Iterable[Sizes]) -> Iterator[Iterator[EncodedColumn]]:
    """Yield the columns of a few frames at a time."""
    row = 0
    known = iter(frames)
    for types, payloads in read_payloads(source, _COLUMN_BYTES):
        data = buffer_of(*payloads)
        end = len(data) - len(PADDING)
        sizes = list(islice(known, len(payloads)))
        ids, bodies = located_values(data, end, np.concatenate(sizes) if len(sizes) == len(payloads) else None)
        yield _by_type(types, ids, bodies, row)
        row += len(ids)


def _by_type(types: TypeDecoder, ids: Positions, bodies: Bodies, row: int) -> Iterator[EncodedColumn]:
    for id, rows in positions_by_number(ids):
        yield EncodedColumn(types.lookup(id), bodies if len(rows) == len(ids) else bodies.select(rows), row + rows)


def read_columns(
    source: Source, names: Collection[str] | None = None, frames: Iterable[Sizes] = ()
) -> Iterator[Column]:
    """Yield the values of ZNG streams as columns. A column holds the values of one type in a few frames.

    See `read_column_groups`.
    """
    return chain.from_iterable(read_column_groups(source, names, frames))


def read_column_groups(
    source: Source, names: Collection[str] | None = None, frames: Iterable[Sizes] = ()
) -> Iterator[list[Column]]:
    """Yield the values of ZNG streams, a few frames at a time, as columns of one type each.

    Args:
        source: The bytes, or a file.
        names: Read only the fields of these names, which requires that the values are records.
        frames: How many bytes each value has; see `read_encoded_columns`.

    Raises:
        InvalidZng: The bytes are damaged.
        InvalidValue: Names are given, and values are not records.
    """
    for columns in _encoded_groups(source, frames):
        yield [column_of(each.type, each.bodies, each.rows, each.bodies.end, names) for each in columns]


def gathered(groups: Iterable[Sequence[Column]]) -> Iterator[list[Column]]:
    """Yield groups of columns with the values of several groups together, as long as those have few rows and bytes."""
    pending: list[Column] = []
    rows = size = end = 0
    for columns in groups:
        filled = [each for each in columns if len(each.rows)]
        if not filled:
            continue
        shift = end - min(int(each.rows[0]) for each in filled)
        pending += [replace(each, rows=each.rows + shift) for each in filled] if shift else filled
        end = shift + max(int(each.rows[-1]) for each in filled) + 1
        rows += sum(len(each.rows) for each in filled)
        size += sum(each.values.nbytes for each in filled)
        if rows >= FEWEST_ROWS or size >= _COLUMN_BYTES:
            yield pending
            pending, rows, size, end = [], 0, 0, 0
    if pending:
        yield pending


def column_of(type: Type, bodies: Bodies, rows: Positions, size: int, names: Collection[str] | None = None) -> Column:
    """Return bodies as a column. Raises InvalidZng, InvalidValue; see `read_columns`.

    Args:
        type: The type of the values.
        bodies: The values.
        rows: The position of each in its stream.
        size: How many bytes the values were read from.
        names: Read only the fields of these names.
    """
    cells = len(rows) * type.nodes
    # A record that is null takes one byte, however many columns it has.
    if cells > max(_MAX_CELLS, _MAX_CELLS_PER_BYTE * size):
        raise InvalidZng(
            f"{len(rows)} values in {size} bytes would expand to {cells} values in columns; read them one by one"
        )
    if names is None:
        return Column(type, read_column(type, bodies), rows)
    projected, values = read_fields(type, bodies, names)
    return Column(projected, values, rows)


def values_of(type: Type, array: pa.Array) -> list[Value]:
    """Return the values of an array one by one. Raises InvalidValue."""
    return [Value(type, split(encoded)[0]) for encoded in write_column(type, array).to_pylist()]
