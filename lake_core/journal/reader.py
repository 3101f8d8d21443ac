"""Reads a journal: runs of entries, snapshots, and the state that they add up to."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lake_core.errors import NotFound
from lake_core.journal.archive import SegmentSource
from lake_core.journal.errors import (
    CorruptEntry,
    CorruptSnapshot,
    HistoryPurged,
    JournalDamaged,
    KeyExists,
    KeyMissing,
    NoSuchEntry,
)
from lake_core.journal.pointer import Pointer, Tail, read_head, read_tail
from lake_core.journal.state import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake_core.journal.codec import Codec
    from lake_core.journal.entry import Entry
    from lake_core.journal.naming import Naming
    from lake_core.store import ObjectStore

_LOG = logging.getLogger(__name__)

_LONGEST_STRIDE = 32
"""How many entries are requested at once. Times the largest entry, it bounds the memory that hostile entries take."""
_BEYOND_HINT = 8
"""How many entries are first requested beyond HEAD, which is written only now and then."""
_LOADS = 8
"""How often to start over with a journal that is purged faster than it can be read."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A state that was read from the store, with details of how it was read."""

    state: State
    replayed: int
    """How many entries it took."""
    head: Pointer
    """HEAD, as it was before."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of the journal in a folder. It does not cache anything: each call reads from the store."""

    store: ObjectStore
    prefix: str
    """The folder with its slash, or empty."""
    codec: Codec
    naming: Naming
    max_entry_bytes: int
    max_snapshot_bytes: int

    def entry_key(self, number: int) -> str:
        """Return the key of an entry."""
        return self.prefix + self.naming.entry(number)

    def head(self) -> Pointer:
        """Read the hint about the journal's end."""
        return read_head(self.store, self.prefix + self.naming.head)

    def tail(self) -> Tail:
        """Read the start of the journal. Raises JournalDamaged."""
        return read_tail(self.store, self.prefix + self.naming.tail)

    def data(self, number: int) -> bytes:
        """Read an entry's bytes. Raises NotFound, CorruptEntry."""
        return self._bounded(number, self.store.get(self.entry_key(number), 0, self.max_entry_bytes + 1))

    def decode(self, number: int, data: bytes) -> Entry:
        """Decode an entry. Raises CorruptEntry that names the key."""
        try:
            return self.codec.decode(number, data)
        except CorruptEntry as error:
            raise self._corrupt(number, str(error)) from None

    def stands(self, number: int) -> bool:
        """Return whether an object exists at this entry's key."""
        return self.store.exists(self.entry_key(number))

    def forward(self, after: int, hint: int = 0, limit: int | None = None) -> Iterator[list[Entry]]:
        """Yield the entries after a number, in batches, up to the first one that is missing.

        `hint`: the number up to which entries may exist. Strides grow, so a hint that is too low costs few round trips;
        one that is too high costs one.
        """
        left, beyond = limit, _BEYOND_HINT if hint > after else 1
        while left is None or left > 0:
            if hint > after:
                stride = hint - after
            else:
                stride, beyond = beyond, 2 * beyond
            count = min(stride, _LONGEST_STRIDE, _LONGEST_STRIDE if left is None else left)
            batch, ended = self._stride(after + 1, count)
            if batch:
                yield batch
            if ended:
                return
            after += len(batch)
            left = None if left is None else left - len(batch)

    def _stride(self, first: int, count: int) -> tuple[list[Entry], bool]:
        """Read up to `count` entries from the number `first` on.

        Returns them, and whether the one after them is missing.
        """
        ended = False
        while count:
            keys = [self.entry_key(number) for number in range(first, first + count)]
            try:
                bodies = self.store.get_many([(key, 0, self.max_entry_bytes + 1) for key in keys])
            except NotFound as error:
                if error.key in keys:
                    count, ended = keys.index(error.key), True
                else:
                    count, ended = count // 2, count == 1
                continue
            numbers = range(first, first + count)
            return [
                self.decode(number, self._bounded(number, data)) for number, data in zip(numbers, bodies, strict=True)
            ], ended
        return [], ended

    def replay(self, state: State, hint: int = 0, until: int | None = None) -> State:
        """Apply the entries that follow the state, up to `until` or to the end.

        Raises CorruptEntry where one does not fit.
        """
        for batch in self.forward(state.number, hint, None if until is None else until - state.number):
            state = self.advance(state, batch)
        return state

    def advance(self, state: State, batch: list[Entry]) -> State:
        """Apply a batch of entries that follows the state. Raises CorruptEntry where an entry does not fit."""
        try:
            return state.advanced(batch)
        except (KeyExists, KeyMissing):
            pass
        for entry in batch:
            try:
                state = state.advanced([entry])
            except (KeyExists, KeyMissing) as error:
                raise self._corrupt(entry.number, f"it contradicts the entries before it: {error}") from None
        return state

    def load(self, until: int | None = None) -> Loaded:
        """Load the newest state, or that after the entry `until`, from the nearest snapshot and the entries after it.

        Raises HistoryPurged, NoSuchEntry, CorruptEntry, JournalDamaged.
        """
        floor = 0 if until is None else self._retained(until)
        for _ in range(_LOADS):
            head = self.head() if until is None else Pointer(until, None)
            if (start := self._start(floor, until)) is not None:
                state = self.replay(start, head.value or 0, until)
                if until is None:
                    state = self._check_gap(state, head.value or 0)
            # TAIL is read last, because missing entries that were purged in the meantime look like the journal's end.
            tail = self.tail()
            if start is not None and tail.first <= start.number + 1:
                if until is not None and state.number < until:
                    raise NoSuchEntry(
                        f"the journal {self.prefix} ends at entry {state.number}: there is no entry {until}"
                    )
                return Loaded(state, state.number - start.number, head)
            if start is None and tail.first - 1 <= floor:
                raise JournalDamaged(
                    f"{self.prefix}{self.naming.base(floor)} is missing or damaged, and the entries up to {floor} "
                    "are purged: restore it from a backup"
                )
            floor = tail.first - 1
            if until is not None and until < floor:
                raise self.purged(until, tail)
        raise JournalDamaged(f"the journal {self.prefix} was purged {_LOADS} times while it was read: try again")

    def purged(self, number: int, tail: Tail) -> HistoryPurged:
        """Return the error for a purged entry, which names the entries that are retained."""
        return HistoryPurged(
            f"entry {number} of the journal {self.prefix} is purged: "
            f"entries are retained from {tail.first} on, states from {tail.first - 1} on",
            first=tail.first,
        )

    def snapshots(self) -> list[tuple[int, str]]:
        """List the cached snapshots by number and key, newest first."""
        if self.naming.fixed_snapshot is not None:
            return []
        return self.numbered(self.naming.snapshots)

    def numbered(self, folder: str) -> list[tuple[int, str]]:
        """List the objects below a folder that are named as entries are, by number and key, newest first."""
        prefix = self.prefix + folder
        names = [(self.naming.number(meta.key[len(prefix) :]), meta.key) for meta in self.store.list(prefix)]
        return sorted(((number, key) for number, key in names if number is not None), reverse=True)

    def snapshot(self, key: str) -> State | None:
        """Read a snapshot; None if it is missing, damaged or too large."""
        try:
            body = self.store.get(key, 0, self.max_snapshot_bytes + 1)
            if body.size > self.max_snapshot_bytes:
                raise CorruptSnapshot(f"it has {body.size} bytes, but at most {self.max_snapshot_bytes} are read")
            state = self.codec.decode_snapshot(body)
            return replace(state, archive=replace(state.archive, source=self.segments(), snapshot=state.number))
        except NotFound:
            return None
        except CorruptSnapshot as error:
            _LOG.warning("skipped the snapshot %s: %s", key, error)
            return None

    def segments(self) -> SegmentSource:
        """Return the segments of the journal, to be read when they are needed."""
        return SegmentSource(self.store, self.prefix, lambda: self.load().state.archive)

    def _retained(self, until: int) -> int:
        tail = self.tail()
        if until < tail.first - 1:
            raise self.purged(until, tail)
        return tail.first - 1

    def _start(self, floor: int, until: int | None) -> State | None:
        """Return the newest valid snapshot to replay from. It is not older than `floor`, the last purged entry."""
        fixed = self.naming.fixed_snapshot
        candidates = self.snapshots() if fixed is None else [(None, self.prefix + fixed)]
        for number, key in candidates:
            if number is None or (floor <= number and (until is None or number <= until)):
                state = self.snapshot(key)
                if state is None or state.number < floor or (until is not None and state.number > until):
                    continue
                if number is None or state.number == number:
                    return state
                _LOG.warning("skipped the snapshot %s: it claims to be the snapshot of entry %d", key, state.number)
        if floor == 0:
            return State.empty()
        base = self.snapshot(self.prefix + self.naming.base(floor))
        return base if base is not None and base.number == floor else None

    def _check_gap(self, state: State, hint: int) -> State:
        """Raise JournalDamaged if HEAD names an entry after the last one: an append there would hide the damage."""
        while hint > state.number and self.stands(hint):
            newer = self.replay(state, hint)
            if newer.number == state.number:
                if self.tail().first > state.number + 1:
                    return state
                raise JournalDamaged(
                    f"{self.entry_key(state.number + 1)} is missing, though entry {hint} exists: "
                    "restore it from a backup"
                )
            state = newer
        return state

    def _bounded(self, number: int, data: bytes) -> bytes:
        if len(data) > self.max_entry_bytes:
            raise self._corrupt(number, f"it is larger than {self.max_entry_bytes} bytes")
        return data

    def _corrupt(self, number: int, reason: str) -> CorruptEntry:
        key = self.entry_key(number)
        return CorruptEntry(
            f"{key} cannot be read, so neither can the entries after it: {reason}. Restore it from a backup, "
            "or remove it if another program wrote it",
            key=key,
        )
