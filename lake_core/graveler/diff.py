"""The differences of two trees. Shared ranges are skipped by name; the others are compared by key **and** identity."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, TypeAlias

from lake_core.graveler.record import Record, identity_of, split_value
from lake_core.graveler.result import RecordDifference

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.graveler.metarange import Metarange
    from lake_core.graveler.reader import RangeReader


def differences(
    reader: RangeReader, before: Metarange, after: Metarange, prefix: bytes = b"", *, exact: bool = False
) -> Iterator[RecordDifference]:
    """Yield the records that differ, by key. With `exact`, also yield those that differ only in their values.

    A range that is in both trees has the same records in both, so it is not read.
    """
    common = set(before.ids).intersection(after.ids)
    left = _Side(reader, before, common, prefix)
    right = _Side(reader, after, common, prefix)
    while (bound := min((side.end for side in (left, right) if side.end is not None), default=None)) is not None:
        for old, new in _unequal(left.take(bound), right.take(bound)):
            # Equal values are dropped before any of them is decoded.
            for key in sorted({key for key, _ in old.items() ^ new.items()}):
                first, second = old.get(key), new.get(key)
                if exact or first is None or second is None or identity_of(first) != identity_of(second):
                    yield RecordDifference(key, _record(key, first), _record(key, second))


_Records: TypeAlias = "tuple[Sequence[bytes], Sequence[bytes]]"
"""Keys and their values, in order."""
_STRIDE = 256


def _unequal(left: _Records, right: _Records) -> Iterator[tuple[dict[bytes, bytes], dict[bytes, bytes]]]:
    """Yield the parts of two runs of records that differ, by key, without long parts that are equal."""
    (keys, values), (others, other_values) = left, right
    at = other = 0
    while at < len(keys) and other < len(others):
        if keys[at : at + _STRIDE] == others[other : other + _STRIDE] and (
            values[at : at + _STRIDE] == other_values[other : other + _STRIDE]
        ):
            at, other = at + _STRIDE, other + _STRIDE
            continue
        # Both parts end at the same key, so that what follows can be equal again.
        bound = min(keys[min(at + _STRIDE, len(keys)) - 1], others[min(other + _STRIDE, len(others)) - 1])
        end, other_end = bisect_right(keys, bound, at), bisect_right(others, bound, other)
        yield (
            dict(zip(keys[at:end], values[at:end], strict=True)),
            dict(zip(others[other:other_end], other_values[other:other_end], strict=True)),
        )
        at, other = end, other_end
    yield dict(zip(keys[at:], values[at:], strict=True)), dict(zip(others[other:], other_values[other:], strict=True))


def _record(key: bytes, value: bytes | None) -> Record | None:
    return None if value is None else Record(key, *split_value(value))


class _Side:
    """The records of the ranges that only this tree has, one range at a time."""

    def __init__(self, reader: RangeReader, tree: Metarange, common: set[bytes], prefix: bytes) -> None:
        self._reader = reader
        self._prefix = prefix
        self._ids = iter(
            [name.decode() for at, name in enumerate(tree.ids) if name not in common and within(tree, at, prefix)]
        )
        self._keys: Sequence[bytes] = ()
        self._values: Sequence[bytes] = ()
        self._at = self._stop = 0
        self.end: bytes | None = None
        self._next()

    def take(self, bound: bytes) -> _Records:
        """Take the records up to a key, which is not above `end`."""
        if self.end is None:
            return (), ()
        stop = bisect_right(self._keys, bound, self._at, self._stop)
        taken = self._keys[self._at : stop], self._values[self._at : stop]
        self._at = stop
        if stop == self._stop:
            self._next()
        return taken

    def _next(self) -> None:
        self.end = None
        for name in self._ids:
            columns = self._reader.columns(name)
            self._keys, self._values = columns.keys, columns.values
            self._at, self._stop = bounds(self._keys, self._prefix)
            if self._at < self._stop:
                self.end = self._keys[self._stop - 1]
                return


def within(tree: Metarange, at: int, prefix: bytes) -> bool:
    """Return whether a range may contain keys with a prefix."""
    if not prefix:
        return True
    if tree.max_keys[at] < prefix:
        return False
    end_key = after_prefix(prefix)
    return end_key is None or tree[at].min_key < end_key


def bounds(keys: Sequence[bytes], prefix: bytes) -> tuple[int, int]:
    """Return the positions [first, end) of the keys with a prefix."""
    if not prefix:
        return 0, len(keys)
    end_key = after_prefix(prefix)
    first = bisect_left(keys, prefix)
    return first, len(keys) if end_key is None else bisect_left(keys, end_key, first)


def after_prefix(prefix: bytes) -> bytes | None:
    """Return the first key that sorts after all keys with a prefix, or None if there is none."""
    short = prefix.rstrip(b"\xff")
    return short[:-1] + bytes((short[-1] + 1,)) if short else None
