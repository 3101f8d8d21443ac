"""The curves along which OPTIMIZE sorts: a number for each row, by which rows near each other are alike in each column.

The Z-curve interleaves the bits of the columns' ranks. The Hilbert curve, by which clustered tables are sorted, has no
jumps: rows that follow each other on it differ by one step in one column. It is computed as in J. Skilling,
"Programming the Hilbert curve" (2004).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from lake_core.delta.numpy_arrays import numbers
from lake_core.delta.statistics import leaf_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

_BITS = 16
"""The most bits of a column's rank that count."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve through the values of some columns. Picklable. False if there is none to sort by."""

    columns: tuple[tuple[str, ...], ...] = ()
    """The paths of the columns."""
    is_hilbert: bool = False

    def __bool__(self) -> bool:
        return bool(self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the columns as text."""
        return tuple(".".join(path) for path in self.columns)

    def values(self, rows: pa.Table) -> list[pa.ChunkedArray]:
        """Return the values of the curve's columns."""
        return [leaf_values(rows, path) for path in self.columns]

    def positions(self, columns: Iterable[pa.ChunkedArray]) -> npt.NDArray[np.uint64]:
        """Return a number for each row, by the ranks of its values. Nulls come last."""
        ranks = [
            numbers(pc.rank(column, sort_keys="ascending", tiebreaker="dense")).astype(np.uint64) - 1
            for column in columns
        ]
        return self.number(ranks, [int(rank.max(initial=0)) for rank in ranks])

    def number(self, columns: Sequence[npt.NDArray[np.uint64]], highest: Sequence[int]) -> npt.NDArray[np.uint64]:
        """Return a number for each row, by numbers from 0 to the highest of each column."""
        width = len(columns)
        bits = min(_BITS, 64 // width) if width <= 64 else 1
        scaled = [
            column * ((1 << bits) - 1) // max(1, most) for column, most in zip(columns[:64], highest, strict=False)
        ]
        return _interleaved(_along_hilbert(scaled, bits) if self.is_hilbert else scaled, bits)


def _interleaved(columns: Sequence[npt.NDArray[np.uint64]], bits: int) -> npt.NDArray[np.uint64]:
    """Interleave the lowest bits of columns, those of the first one highest."""
    width = len(columns)
    total = np.zeros(len(columns[0]), dtype=np.uint64)
    for number, column in enumerate(columns):
        for bit in range(bits):
            total |= ((column >> np.uint64(bit)) & np.uint64(1)) << np.uint64(bit * width + width - 1 - number)
    return total


def _along_hilbert(columns: Sequence[npt.NDArray[np.uint64]], bits: int) -> list[npt.NDArray[np.uint64]]:
    """Return coordinates in the form whose interleaved bits are positions on the Hilbert curve."""
    axes = [column.copy() for column in columns]
    planes = [np.uint64(1 << bit) for bit in range(bits - 1, 0, -1)]
    for plane in planes:
        below = plane - np.uint64(1)
        for axis in axes:
            is_set = (axis & plane) != 0
            swapped = np.where(is_set, np.uint64(0), (axes[0] ^ axis) & below)
            axis ^= swapped
            axes[0] ^= np.where(is_set, below, swapped)
    for before, axis in pairwise(axes):
        axis ^= before
    turned = np.zeros(len(axes[0]), dtype=np.uint64)
    for plane in planes:
        turned ^= np.where((axes[-1] & plane) != 0, plane - np.uint64(1), np.uint64(0))
    return [axis ^ turned for axis in axes]
