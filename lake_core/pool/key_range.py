"""Ranges of keys, by which a scan skips data that it need not read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lake_core.pool.errors import InvalidValue
from lake_core.pool.key_column import KeyColumn
from lake_core.pool.order import compare_values, pool_key
from lake_core.pool.rows import value_of
from lake_core.pool.types import NUMBERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lake_core.pool.arrow.arrays import Mask
    from lake_core.pool.sorted_batch import SortedBatch
    from lake_core.pool.value import Value
    from lake_core.pool.value_batch import ValueBatch


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys from `start` (inclusive) to `stop` (exclusive). None means that there is no bound.

    Keys that do not compare with a bound are outside: nulls, and keys of other types, unless both are numbers.
    """

    start: Value | None = None
    stop: Value | None = None

    @classmethod
    def of(cls, start: Any, stop: Any) -> KeyRange:
        """Return the range between two Python objects, as `load` takes them, or values. Raises InvalidValue."""
        return cls(None if start is None else key_value(start), None if stop is None else key_value(stop))

    @property
    def is_bounded(self) -> bool:
        """Return whether there is a bound."""
        return self.start is not None or self.stop is not None

    def intersection(self, other: KeyRange) -> KeyRange:
        """Return the keys that are in both ranges, or more where their bounds do not compare."""
        start, stop = self.start, self.stop
        if start is None or (
            other.start is not None and _comparable(other.start, start) and compare_values(other.start, start) > 0
        ):
            start = other.start
        if stop is None or (
            other.stop is not None and _comparable(other.stop, stop) and compare_values(other.stop, stop) < 0
        ):
            stop = other.stop
        return KeyRange(start, stop)

    def overlaps(self, smallest: Value, largest: Value) -> bool:
        """Return whether keys between two, both included, can be in the range."""
        if self.start is not None and compare_values(largest, self.start) < 0:
            return False
        return self.stop is None or compare_values(smallest, self.stop) < 0

    def contains(self, value: Value, path: Sequence[str]) -> bool:
        """Return whether the key of a pool's value, at a path of field names, is in the range."""
        return self.holds(pool_key(value, path).under())

    def holds(self, key: Value) -> bool:
        """Return whether a key is in the range."""
        if self.start is not None and not (_comparable(key, self.start) and compare_values(key, self.start) >= 0):
            return False
        return self.stop is None or (_comparable(key, self.stop) and compare_values(key, self.stop) < 0)

    def batches_within(self, read: Callable[[], Iterable[SortedBatch]]) -> Iterator[SortedBatch]:
        """Yield the values of sorted batches whose keys are in the range. Batches after it are not read."""
        for batch in read():
            yield batch.filter(self.mask(batch.batch, batch.keys, batch.config.keys[0]))
            if len(batch) and self._is_passed(batch.key(len(batch) - 1), descending=batch.config.descending):
                return

    def mask(self, batch: ValueBatch, keys: KeyColumn | None, path: Sequence[str]) -> Mask:
        """Return which values of a batch have a key in the range.

        Args:
            batch: The values.
            keys: Their keys; None where they have to be compared one by one.
            path: The path of field names to the key.
        """
        if not self.is_bounded:
            return np.ones(len(batch), np.bool_)
        bounds = {each: KeyColumn.of_key(each) for each in (self.start, self.stop) if each is not None}
        if keys is None or any(bound is None or bound.family != keys.family for bound in bounds.values()):
            return np.array([self.contains(value, path) for value in batch.values()], np.bool_)
        mask = keys.valid.copy()
        if self.start is not None and (start := bounds[self.start]) is not None:
            mask &= ~keys.below(start)
        if self.stop is not None and (stop := bounds[self.stop]) is not None:
            mask &= keys.below(stop)
        return mask

    def _is_passed(self, key: Value, *, descending: bool) -> bool:
        """Return whether a key comes after the range in the order of a pool."""
        if descending:
            return self.start is not None and compare_values(key, self.start) < 0
        return self.stop is not None and compare_values(key, self.stop) >= 0


def _comparable(key: Value, bound: Value) -> bool:
    return key.body is not None and (key.type == bound.type or (key.type in NUMBERS and bound.type in NUMBERS))


def key_value(key: Any) -> Value:
    """Return a key as the value that `load` stores it as; see `value_of`. Raises InvalidValue, also for None."""
    value = value_of(key).under()
    if value.body is None:
        raise InvalidValue(f"{key!r} is not a key; give a number, a string, bytes, a time, an address, or a Value")
    return value
