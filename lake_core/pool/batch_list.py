"""Several batches of values that are sorted as one, without a copy of all their bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lake_core.pool.arrow.arrays import binaries, integers
from lake_core.pool.value_batch import ValueBatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lake_core.pool.arrow.bodies import Positions
    from lake_core.pool.types import Type
    from lake_core.pool.value import Value
    from lake_core.pool.value_batch import Codes

_LARGE_BYTES: Final = 8 << 20


def large_batches(batches: Iterable[ValueBatch]) -> Iterator[ValueBatch]:
    """Yield the values of batches in batches of some megabytes, in which each step on a batch has less to do."""
    group: list[ValueBatch] = []
    size = 0
    for batch in batches:
        group.append(batch)
        size += batch.nbytes
        if size >= _LARGE_BYTES:
            # The batches that were copied together are not needed while the next ones are read.
            large = ValueBatch.concat(group)
            group, size = [], 0
            yield large
    if group:
        yield ValueBatch.concat(group)


@dataclass(frozen=True, slots=True, eq=False)
class BatchList:
    """Batches of values, read as one.

    Attributes:
        types: The distinct types.
        codes: The position of each value's type among the types.
        parts: The batches.
        starts: The position of the first value of each batch among all values.
    """

    types: tuple[Type, ...]
    codes: Codes
    parts: tuple[ValueBatch, ...]
    starts: Positions

    @classmethod
    def of(cls, parts: Sequence[ValueBatch]) -> BatchList:
        """Return batches as one. Taking values visits each batch, so there should be few; see `large_batches`."""
        types: dict[Type, int] = {}
        codes = []
        for part in parts:
            numbers = np.array([types.setdefault(type, len(types)) for type in part.types], np.int32)
            codes.append(numbers[part.codes] if len(numbers) else part.codes)
        starts = np.cumsum([0, *map(len, parts)])[:-1]
        return cls(tuple(types), np.concatenate([np.zeros(0, np.int32), *codes]), tuple(parts), starts)

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        """Return how many bytes the values take, with their tags."""
        return sum(part.nbytes for part in self.parts)

    def body_sizes(self) -> Positions:
        """Return how many bytes each body has; 0 for null."""
        return np.concatenate([np.zeros(0, np.int64), *(part.body_sizes() for part in self.parts)])

    def values(self) -> Iterator[Value]:
        """Yield the values one by one."""
        for part in self.parts:
            yield from part.values()

    def take(self, rows: Positions) -> ValueBatch:
        """Return the values at positions."""
        if len(self.parts) == 1:
            return self.parts[0].take(rows)
        part_of = np.searchsorted(self.starts, rows, side="right") - 1
        # Values are taken part by part, and then put in order.
        by_part = np.argsort(part_of, kind="stable")
        bounds = np.searchsorted(part_of[by_part], np.arange(len(self.parts) + 1))
        pieces = [binaries([])]
        for number, part in enumerate(self.parts):
            of_part = by_part[bounds[number] : bounds[number + 1]]
            if len(of_part):
                pieces.append(part.encoded.take(integers(rows[of_part] - self.starts[number])))
        position = np.empty(len(rows), np.int64)
        position[by_part] = np.arange(len(rows))
        return ValueBatch(self.types, self.codes[rows], pa.concat_arrays(pieces).take(integers(position)))
