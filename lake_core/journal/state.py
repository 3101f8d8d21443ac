"""The state of a journal: values by key, as of one entry."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lake_core.journal.archive import NO_ARCHIVE, Archive
from lake_core.journal.entry import EPOCH, Action, Add, Delete, Entry
from lake_core.journal.errors import KeyExists, KeyMissing
from lake_core.journal.record import StateRecord

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True, eq=False)
class State(Mapping[str, Any]):
    """The values of all keys after the entry `number`: an immutable mapping, iterated in the order of keys.

    States of one handle share their common parts, so a state costs almost nothing. Values are shared too: never change
    one in place.
    """

    number: int
    """The last entry in it; 0 before the first."""
    time: datetime
    """The time of that entry, in UTC."""
    _base: Mapping[str, StateRecord]
    _changes: Mapping[str, StateRecord | None]
    """The changes since the base; None for a deleted key."""
    _count: int
    _base_keys: list[tuple[str, ...]] = field(default_factory=list)
    """The base's keys in order, computed when first needed, and shared by the states of that base."""
    _sorted: list[tuple[str, ...]] = field(default_factory=list)
    archive: Archive = NO_ARCHIVE
    """The records that are read only when they are needed."""

    @classmethod
    def empty(cls) -> State:
        """Return the state before the first entry."""
        return cls(0, EPOCH, {}, {}, 0)

    @classmethod
    def of(
        cls, number: int, time: datetime, records: Mapping[str, StateRecord], archive: Archive = NO_ARCHIVE
    ) -> State:
        """Return the state with these records. The caller must not change them from now on."""
        return cls(number, time, records, {}, len(records), archive=archive)

    def archived(self, keys: Set[str], archive: Archive) -> State:
        """Return the state with another archive, which has the records of these keys from now on."""
        records = {key: record for key, record in self.loaded_records() if key not in keys}
        return State.of(self.number, self.time, records, archive)

    @property
    def current_archive(self) -> Archive:
        """Return the archive without the keys that were deleted since it was written."""
        return self.archive.without(_deleted(self._changes))

    def record(self, key: str) -> StateRecord | None:
        """Return a key's value with its last change; None for an absent key. May read the archive."""
        record = self._loaded_record(key)
        return self.archive.record(key) if record is None and key not in self._changes else record

    def is_loaded(self, key: str) -> bool:
        """Return whether a key exists outside of the archive."""
        return self._loaded_record(key) is not None

    def loaded_records(self) -> Iterator[tuple[str, StateRecord]]:
        """Walk the records outside of the archive, in the order of keys."""
        for key in self._loaded_keys(""):
            record = self._loaded_record(key)
            assert record is not None
            yield key, record

    def records_under(self, prefix: str) -> Iterator[tuple[str, StateRecord]]:
        """Walk the records whose keys start with `prefix`, in no particular order.

        Reads the archive in the order in which it is stored, which is faster than key by key.
        """
        for key in self._loaded_keys(prefix):
            record = self._loaded_record(key)
            assert record is not None
            yield key, record
        if self.archive.overlaps(prefix):
            for key, record in self.archive.records(prefix):
                if key not in self._changes and key not in self._base:
                    yield key, record

    def _loaded_record(self, key: str) -> StateRecord | None:
        try:
            return self._changes[key]
        except KeyError:
            return self._base.get(key)

    def is_same(self, other: State) -> bool:
        """Return whether another state has the same number, the same records, and the same archive."""
        return (
            self.number == other.number
            and self.archive.segments == other.archive.segments
            and self.current_archive.removed == other.current_archive.removed
            and dict(self.loaded_records()) == dict(other.loaded_records())
        )

    def check(self, actions: Iterable[Action]) -> None:
        """Raise KeyExists or KeyMissing unless the actions can follow this state."""
        changes: dict[str, StateRecord | None] = {}
        self._apply(changes, self._count, actions, self.number + 1, self.time, is_appended=False)

    def advanced(self, entries: Iterable[Entry]) -> State:
        """Return the state after these entries, which follow it.

        Raises KeyExists or KeyMissing where one does not fit.
        """
        changes = dict(self._changes)
        number, time, count = self.number, self.time, self._count
        for entry in entries:
            number, time = entry.number, max(time, entry.time)
            count = self._apply(changes, count, entry.actions, number, entry.time, is_appended=True)
        # A new base now and then keeps both the copies above and the merges here small.
        if len(changes) <= 64 + 4 * math.isqrt(len(self._base)):
            return State(number, time, self._base, changes, count, self._base_keys, archive=self.archive)
        merged = dict(self._base)
        for key, record in changes.items():
            if record is None:
                merged.pop(key, None)
            else:
                merged[key] = record
        return State(number, time, merged, {}, count, archive=self.archive.without(_deleted(changes)))

    def _apply(
        self,
        changes: dict[str, StateRecord | None],
        count: int,
        actions: Iterable[Action],
        number: int,
        time: datetime,
        *,
        is_appended: bool,
    ) -> int:
        """Apply actions to the changes since the base. Returns the number of keys outside of the archive.

        `is_appended`: whether they are those of an entry, which its writer has checked.
        """
        for action in actions:
            key = action.key
            record = changes[key] if key in changes else self._loaded_record(key)
            if isinstance(action, Add):
                # The archive is not asked: an archived key is only ever added again with the same value. Other handles
                # may have that key outside of the archive.
                if record is not None and not (is_appended and record.value == action.value):
                    raise KeyExists(f"{key!r} already exists: update it, or choose another key", key=key)
            elif record is None and (key in changes or not self.archive.has(key)):
                verb = "deleted" if isinstance(action, Delete) else "updated"
                raise KeyMissing(f"{key!r} does not exist, so it cannot be {verb}", key=key)
            if isinstance(action, Delete):
                changes[key] = None
                count -= record is not None
            else:
                changes[key] = StateRecord(action.value, number, time)
                count += record is None
        return count

    def __getitem__(self, key: str) -> Any:
        record = self.record(key)
        if record is None:
            raise KeyError(key)
        return record.value

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, str):
            return False
        return self.is_loaded(key) or (key not in self._changes and self.archive.has(key))

    def __len__(self) -> int:
        return len(self.under("")) if self.archive else self._count

    def under(self, prefix: str) -> Sequence[str]:
        """Return the keys that start with `prefix`, in order.

        The cost depends on their number, not on the number of all keys.
        """
        keys = self._loaded_keys(prefix)
        if not self.archive.overlaps(prefix):
            return keys
        archived = {key for key in self.archive.keys(prefix) if key not in self._changes}
        return sorted(archived.union(keys))

    def _loaded_keys(self, prefix: str) -> list[str]:
        # Sorted when first needed. If several threads race, each sorts, which does no harm.
        if not self._base_keys:
            self._base_keys.append(tuple(sorted(self._base)))
        keys = self._base_keys[0]
        at = bisect_left(keys, prefix)
        end = at
        while end < len(keys) and keys[end].startswith(prefix):
            end += 1
        matches = [key for key in keys[at:end] if key not in self._changes]
        matches += [key for key, record in self._changes.items() if record is not None and key.startswith(prefix)]
        matches.sort()
        return matches

    def __iter__(self) -> Iterator[str]:
        if not self._sorted:
            self._sorted.append(tuple(self.under("")))
        return iter(self._sorted[0])

    def __repr__(self) -> str:
        more = ", and an archive" if self.archive else ""
        return f"State(number={self.number}, time={self.time.isoformat()}, {self._count} keys{more})"


def _deleted(changes: Mapping[str, StateRecord | None]) -> Iterator[str]:
    return (key for key, record in changes.items() if record is None)
