"""Batches of values in the order of a pool: sorting and searching them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.pool.arrow.arrays import booleans, integers, numbers_of, true
from lake_core.pool.key_column import KeyColumn, Keys, key_sizes
from lake_core.pool.order import compare_in_pool, compare_values, pool_key, sorted_positions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake_core.pool.arrow.arrays import Mask
    from lake_core.pool.arrow.bodies import Positions
    from lake_core.pool.batch_list import BatchList
    from lake_core.pool.config import PoolConfig
    from lake_core.pool.value import Value
    from lake_core.pool.value_batch import ValueBatch

_PIECE_BYTES: Final = 1 << 20
_PIECE_VALUES: Final = 1 << 14
_TIED_BYTES: Final = 4 << 20
"""Values with equal keys are compared by their bodies in groups of about this size."""


@dataclass(frozen=True, slots=True, eq=False)
class SortedBatch:
    """Values in the order of a pool.

    Attributes:
        config: The pool.
        batch: The values.
        keys: Their keys; None where they have to be compared one by one.
    """

    config: PoolConfig
    batch: ValueBatch
    keys: KeyColumn | None

    @classmethod
    def of(cls, config: PoolConfig, batch: ValueBatch) -> SortedBatch:
        """Return a batch whose values are in the order of the pool already. Raises InvalidZng."""
        return cls(config, batch, keys_of(batch, config))

    def __len__(self) -> int:
        return len(self.batch)

    def slice(self, start: int, stop: int) -> SortedBatch:
        """Return the values from a position to another. Nothing is copied."""
        keys = None if self.keys is None else self.keys.slice(start, stop)
        return SortedBatch(self.config, self.batch.slice(start, stop), keys)

    def filter(self, mask: Mask) -> SortedBatch:
        """Return the values for which a mask is true."""
        if mask.all():
            return self
        keys = None if self.keys is None else self.keys.take(np.flatnonzero(mask))
        return SortedBatch(self.config, self.batch.filter(mask), keys)

    def key(self, row: int) -> Value:
        """Return the first key of the value at a position."""
        return pool_key(self.batch.value(row), self.config.keys[0])

    def key_sizes(self) -> Positions:
        """Return how many bytes the first key of each value has."""
        return key_sizes(self.batch, self.config.keys[0]) if self.keys is None else self.keys.sizes

    def repeats(self) -> Mask:
        """Return which values have the same first key as the one before; False for the first value."""
        keys = self.keys
        repeats = np.zeros(len(self), np.bool_)
        if keys is None:
            all_keys = [self.key(row) for row in range(len(self))]
            repeats[1:] = [not compare_values(*pair) for pair in pairwise(all_keys)]
        elif len(self) > 1:
            repeats[1:] = _repeated(keys)
        return repeats

    def is_sorted(self) -> bool:
        """Return whether the values are in the order of the pool; True where their keys do not compare as columns."""
        if self.keys is None or len(self) < 2:
            return True
        descending = self.config.descending
        before, after = self.keys.slice(0, len(self) - 1), self.keys.slice(1, len(self))
        one, other = (after, before) if descending else (before, after)
        falls = np.where(one.valid & other.valid, _greater(one.keys, other.keys), ~one.valid & other.valid)
        if falls.any():
            return False
        ties = _repeated(self.keys)
        if not ties.any():
            return True
        bodies = self.batch.bodies.binary()
        before_bodies, after_bodies = (bodies.slice(start, len(self) - 1).filter(booleans(ties)) for start in (0, 1))
        one_body, other_body = (after_bodies, before_bodies) if descending else (before_bodies, after_bodies)
        falls = pc.if_else(one_body.is_null(), other_body.is_valid(), pc.greater(one_body, other_body))
        return not true(falls).any()

    def count_before(self, bound: Value, bound_keys: KeyColumn | None, *, equal: bool) -> int:
        """Return how many values come before a value.

        Args:
            bound: The value.
            bound_keys: Its keys.
            equal: Whether to count equal values too.
        """
        low, high = 0, len(self)
        if isinstance(keys := self.keys, KeyColumn) and bound_keys is not None:
            low, high = _equal_keys(keys, bound_keys, descending=self.config.descending)
        limit = 1 if equal else 0
        while low < high:
            middle = (low + high) // 2
            value = self.batch.value(middle)
            if compare_in_pool(value, bound, self.config.keys, descending=self.config.descending) < limit:
                low = middle + 1
            else:
                high = middle
        return low


def _greater(ones: Keys, others: Keys) -> Mask:
    if isinstance(ones, np.ndarray):
        greater: Mask = ones > others
    else:
        greater = true(pc.greater(ones, others))
    return greater


def keys_of(batch: ValueBatch, config: PoolConfig) -> KeyColumn | None:
    """Return the keys that a pool sorts a batch by; None where they have to be compared one by one.

    Raises InvalidZng.
    """
    return KeyColumn.of(batch, config.keys[0]) if len(config.keys) == 1 else None


def sort_batch(batch: ValueBatch | BatchList, keys: KeyColumn | None, config: PoolConfig) -> Iterator[SortedBatch]:
    """Yield values in the order of a pool, in pieces. Raises InvalidZng where a key is damaged.

    Args:
        batch: The values.
        keys: Their keys, as `keys_of` returns them.
        config: The pool.
    """
    order = _order(batch, keys, config)
    size = max(1, min(_PIECE_VALUES, _PIECE_BYTES * len(batch) // max(batch.nbytes, 1)))
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        yield SortedBatch(config, batch.take(rows), None if keys is None else keys.take(rows))


def _order(batch: ValueBatch | BatchList, keys: KeyColumn | None, config: PoolConfig) -> Positions:
    """Return the positions of values in the order of a pool: by key, then by bytes, then in their current order."""
    if keys is None:
        return np.array(sorted_positions(list(batch.values()), config.keys, descending=config.descending), np.int64)
    order = _order_by_key(keys, descending=config.descending)
    repeats = _repeated(keys.take(order)) if len(order) > 1 else np.zeros(0, np.bool_)
    if not repeats.any():
        return order
    begins_run = ~np.append(False, repeats)  # a run of values with equal keys
    ties = np.flatnonzero(~begins_run | np.append(repeats, False))
    runs = np.cumsum(begins_run)[ties]
    for start, stop in pairwise(_bounds(runs, batch.body_sizes()[order[ties]])):
        part = ties[start:stop]
        order[part] = _order_by_body(batch, order[part], runs[start:stop], descending=config.descending)
    return order


def _bounds(runs: Positions, sizes: Positions) -> list[int]:
    """Divide values into groups of whole runs, so that copies of the bodies of a group take little memory.

    Args:
        runs: The run of each value, ascending.
        sizes: The size of each value.
    """
    starts = np.append(np.flatnonzero(np.diff(runs, prepend=-1)), len(runs))
    bytes_before = np.append(0, np.cumsum(sizes))
    bounds = [0]
    while bounds[-1] < len(runs):
        past = np.searchsorted(bytes_before, bytes_before[bounds[-1]] + _TIED_BYTES)
        following = min(int(np.searchsorted(starts, past)), len(starts) - 1)
        bounds.append(int(starts[following]))
    return bounds


def _order_by_body(batch: ValueBatch | BatchList, rows: Positions, runs: Positions, *, descending: bool) -> Positions:
    """Return the positions of values in the order of their bodies, then of the positions, run by run."""
    bodies = batch.take(rows).bodies.binary()
    indices = pc.sort_indices(
        pa.table({"run": integers(runs), "body": bodies, "row": integers(rows)}),
        [("run", "ascending"), ("body", *_direction(descending)), ("row", "ascending")],
    )
    in_order: Positions = rows[numbers_of(indices, "<u8")]
    return in_order


def _order_by_key(keys: KeyColumn, *, descending: bool) -> Positions:
    """Return the positions of keys in the order of a pool, equal keys in their current order. Null is the largest."""
    if isinstance(keys.keys, np.ndarray):
        valid, nulls = np.flatnonzero(keys.valid), np.flatnonzero(~keys.valid)
        numbers = keys.keys if len(valid) == len(keys) else keys.keys[valid]
        order: Positions = valid[np.argsort(~numbers if descending else numbers, kind="stable")]
        return np.concatenate([nulls, order] if descending else [order, nulls])
    indices = pc.sort_indices(
        pa.table({"key": keys.keys, "row": integers(np.arange(len(keys)))}),
        [("key", *_direction(descending)), ("row", "ascending")],
    )
    positions: Positions = numbers_of(indices, "<u8").astype(np.int64)
    return positions


def _direction(descending: bool) -> tuple[str, str]:
    """Return the order of a sort key, and where null is placed."""
    return ("descending", "at_start") if descending else ("ascending", "at_end")


def _repeated(keys: KeyColumn) -> Mask:
    """Return which keys, from the second one on, are equal to the one before."""
    before, after = keys.slice(0, len(keys) - 1), keys.slice(1, len(keys))
    if isinstance(before.keys, np.ndarray):
        same = before.keys == after.keys
    else:
        same = true(pc.equal(before.keys, after.keys))
    repeated: Mask = np.where(before.valid & after.valid, same, before.valid == after.valid)
    return repeated


def _equal_keys(keys: KeyColumn, bound: KeyColumn, *, descending: bool) -> tuple[int, int]:
    """Return the range of sorted keys that equal a key; the range of all keys unless both are numbers of one family."""
    if not isinstance(keys.keys, np.ndarray) or keys.family != bound.family or not bound.valid[0]:
        return 0, len(keys)
    nulls = len(keys) - int(np.count_nonzero(keys.valid))
    if descending:
        numbers = ~keys.keys[nulls:]
        key = ~bound.keys[0]
        return nulls + int(np.searchsorted(numbers, key, "left")), nulls + int(np.searchsorted(numbers, key, "right"))
    numbers = keys.keys[: len(keys) - nulls]
    return int(np.searchsorted(numbers, bound.keys[0], "left")), int(np.searchsorted(numbers, bound.keys[0], "right"))
