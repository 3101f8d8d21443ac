"""Reads a journal: runs of entries, snapshots, and the state that they add up to."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

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
    from collections.abc import Iterator, Sequence

    from lake_core.journal.clock import JournalClock
    from lake_core.journal.codec import Codec
    from lake_core.journal.entry import Entry
    from lake_core.journal.naming import Naming
    from lake_core.journal.record import StateRecord
    from lake_core.store import ObjectStore

_LOG = logging.getLogger(__name__)

_LONGEST_STRIDE = 80
"""How many entries are requested at once: those after a snapshot, in one round trip.

Times the largest entry, it bounds the memory that hostile entries take.
"""
_BEYOND_HINT = 8
"""How many entries are first requested beyond HEAD, which is written only now and then."""
_LOADS = 8
"""How often to start over with a journal that is purged faster than it can be read."""


class Outline(NamedTuple):
    """Where a reader begins. It may be outdated: loading finds the entries that were written since."""

    head: Pointer
    snapshots: Sequence[tuple[int, str]]
    """The cached snapshots by number and key, newest first."""


class Start(NamedTuple):
    """A snapshot, and what was read together with it."""

    state: State | None
    """None if there is no valid snapshot that is new enough."""
    tail: Tail
    entries: Sequence[Entry] = ()
    """The first of those that follow the snapshot."""
    is_end: bool = False
    """Whether no more follow, or none are wanted."""


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
    clock: JournalClock

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

    def has_entry(self, number: int) -> bool:
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
                stride = hint - after + _BEYOND_HINT
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
        numbers = range(first, first + count)
        bodies = self.store.gather(*(partial(self._data_if_present, number) for number in numbers))
        present = list(takewhile(lambda body: body is not None, bodies))
        entries = [
            self.decode(number, self._bounded(number, data))
            for number, data in zip(numbers, present, strict=False)
            if data is not None
        ]
        return entries, len(entries) < count

    def _data_if_present(self, number: int) -> bytes | None:
        try:
            return self.store.get(self.entry_key(number), 0, self.max_entry_bytes + 1)
        except NotFound:
            return None

    def replay(self, state: State, hint: int = 0, until: int | None = None) -> State:
        """Apply the entries that follow the state, up to `until` or to the end.

        Raises CorruptEntry where one does not fit.
        """
        for batch in self.forward(state.number, hint, None if until is None else until - state.number):
            state = self.advance(state, batch)
        return state

    def advance(self, state: State, batch: Sequence[Entry]) -> State:
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

    def look(self) -> Outline:
        """Read what tells where to read on, in one round trip. Raises JournalDamaged, StoreError."""
        return Outline(*self.store.gather(self.head, self.snapshots))

    def load(self, until: int | None = None, outline: Outline | None = None) -> Loaded:
        """Load the newest state, or that after the entry `until`, from the nearest snapshot and the entries after it.

        `outline`: what `look` returned, now or some time ago.

        Raises HistoryPurged, NoSuchEntry, CorruptEntry, JournalDamaged.
        """
        floor = 0 if until is None else self._retained(until)
        for _ in range(_LOADS):
            head, snapshots = outline or self.look()
            outline = None
            if until is not None:
                head = Pointer(until, None)
            start = self.start(floor, until, snapshots, head.value or 0)
            tail = start.tail
            if start.state is None and tail.first - 1 <= floor:
                raise JournalDamaged(
                    f"{self.prefix}{self.naming.base(floor)} is missing or damaged, and the entries up to {floor} "
                    "are purged: restore it from a backup"
                )
            if start.state is not None:
                state = self._continued(start.state, start, until, head.value or 0)
                if not start.is_end or self.clock.long_ago(state.time):
                    # TAIL is read last, because missing entries that were purged in the meantime look like the end.
                    # A young state needs no second look: the entry after it would be too young to be purged.
                    tail = self.tail()
                if tail.first <= start.state.number + 1:
                    if until is not None and state.number < until:
                        raise NoSuchEntry(
                            f"the journal {self.prefix} ends at entry {state.number}: there is no entry {until}"
                        )
                    return Loaded(state, state.number - start.state.number, head)
            floor = tail.first - 1
            if until is not None and until < floor:
                raise self.purged(until, tail)
        raise JournalDamaged(f"the journal {self.prefix} was purged {_LOADS} times while it was read: try again")

    def _continued(self, state: State, start: Start, until: int | None, hint: int) -> State:
        """Apply the entries that follow the state of a start. Raises CorruptEntry, JournalDamaged."""
        state = self.advance(state, start.entries)
        if not start.is_end:  # HEAD lags by more than it should: by how much is not known
            state = self.replay(state, max(hint, state.number + 2 * _BEYOND_HINT), until)
        return self._check_gap(state, hint) if until is None else state

    def purged(self, number: int, tail: Tail) -> HistoryPurged:
        """Return the error for a purged entry, which names the entries that are retained."""
        return HistoryPurged(
            f"entry {number} of the journal {self.prefix} is purged: "
            f"entries are retained from {tail.first} on, states from {tail.first - 1} on",
            first=tail.first,
        )

    def snapshots(self) -> list[tuple[int, str]]:
        """List the cached snapshots by number and key, newest first."""
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
            archive = replace(state.archive, source=self.segments(), snapshot=state.number, etag=body.etag)
            return replace(state, archive=archive)
        except NotFound:
            return None
        except CorruptSnapshot as error:
            _LOG.warning("skipped the snapshot %s: %s", key, error)
            return None

    def segments(self) -> SegmentSource:
        """Return the segments of the journal, to be read when they are needed."""
        return SegmentSource(self.store, self.prefix, self._newest_records)

    def _newest_records(self, prefix: str, missing: str) -> dict[str, StateRecord] | None:
        """Return the newest records with a prefix of keys, None if the newest archive names the missing object."""
        state = self.load().state
        if missing in {self.prefix + segment.name for segment in state.archive.segments}:
            return None
        return dict(state.records_under(prefix))

    def _retained(self, until: int) -> int:
        tail = self.tail()
        if until < tail.first - 1:
            raise self.purged(until, tail)
        return tail.first - 1

    def start(self, floor: int, until: int | None, snapshots: Sequence[tuple[int, str]], hint: int) -> Start:
        """Read the newest valid snapshot that is not newer than `until`.

        It is not older than `floor`, the last purged entry. `hint`: the number up to which entries may exist.
        """
        usable = [(n, key) for n, key in snapshots if floor <= n and (until is None or n <= until)]
        if not usable and floor:
            usable = [(floor, self.prefix + self.naming.base(floor))]
        number, key = usable[0] if usable else (0, "")
        count = min(max(hint - number, 0) + _BEYOND_HINT, _LONGEST_STRIDE)
        count = count if until is None else min(count, until - number)
        state, (entries, is_end), tail = self.store.gather(
            lambda: self._snapshot_of(number, key) if key else State.empty(),
            lambda: self._stride(number + 1, count),
            self.tail,
        )
        if state is not None:
            return Start(state, tail, entries, is_end or number + len(entries) == until)
        older = (self._snapshot_of(number, key) for number, key in usable[1:])
        state = next((state for state in older if state is not None), None) or self.base(floor)
        return Start(state, tail, is_end=state is not None and state.number == until)

    def base(self, floor: int) -> State | None:
        """Return the state that replaces the purged entries, None if it is missing or damaged."""
        return self._snapshot_of(floor, self.prefix + self.naming.base(floor)) if floor else State.empty()

    def _snapshot_of(self, number: int, key: str) -> State | None:
        """Read the snapshot as of an entry; None if it is missing or damaged, or that of another entry."""
        state = self.snapshot(key)
        if state is None or state.number == number:
            return state
        _LOG.warning("skipped the snapshot %s: it claims to be the snapshot of entry %d", key, state.number)
        return None

    def _check_gap(self, state: State, hint: int) -> State:
        """Raise JournalDamaged if HEAD names an entry after the last one: an append there would hide the damage."""
        while hint > state.number and self.has_entry(hint):
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
