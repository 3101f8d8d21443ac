"""Rows in another order, also where a column has more bytes than one Arrow array can hold."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lake_core.delta.numpy_arrays import integers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

_MOST_BYTES = 1 << 30
"""`take` joins all chunks of a column first, which fails from 2 GiB of strings on."""
_PIECE_BYTES = 64 << 20


def in_order(rows: pa.Table, order: npt.NDArray[np.integer]) -> Iterator[pa.Table]:
    """Yield the rows of these numbers, in this order: in one table, or in several if there are many bytes."""
    if all(column.nbytes <= _MOST_BYTES for column in rows.columns):
        yield rows.take(integers(order))
        return
    batches = rows.to_batches()
    starts = np.cumsum([0, *(batch.num_rows for batch in batches[:-1])])
    step = max(1, _PIECE_BYTES * rows.num_rows // rows.nbytes)
    for start in range(0, len(order), step):
        yield from _gathered(rows.schema, batches, starts, order[start : start + step])


def _gathered(
    schema: pa.Schema,
    batches: Sequence[pa.RecordBatch],
    starts: npt.NDArray[np.int64],
    order: npt.NDArray[np.integer],
) -> Iterator[pa.Table]:
    """Take rows from each batch by itself. Divide rows that are too large together."""
    numbers = np.searchsorted(starts, order, side="right") - 1
    by_batch = np.argsort(numbers, kind="stable")
    bounds = [0, *(np.flatnonzero(np.diff(numbers[by_batch])) + 1), len(order)]
    taken = []
    for first, last in pairwise(bounds):
        positions = by_batch[first:last]
        number = int(numbers[positions[0]])
        taken.append(batches[number].take(integers(order[positions] - starts[number])))
    gathered = pa.Table.from_batches(taken, schema)
    if len(order) > 1 and max(column.nbytes for column in gathered.columns) > _MOST_BYTES:
        middle = len(order) // 2
        yield from _gathered(schema, batches, starts, order[:middle])
        yield from _gathered(schema, batches, starts, order[middle:])
        return
    back = np.empty(len(order), dtype=np.int64)
    back[by_batch] = np.arange(len(order))
    yield gathered.take(integers(back))
