"""Journals, which hold all mutable state of a lake (zed-lake-format, Transaction Journal and Configuration State)."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, overload

from lake_core import runtime
from lake_core.clock import system_clock
from lake_core.errors import AlreadyExists, NotFound, StoreError
from lake_core.journal.append import ENTRY, Append, Appender, Plan, Result
from lake_core.journal.clock import JournalClock, Moment
from lake_core.journal.codec import Codec, JsonCodec
from lake_core.journal.errors import (
    AppendTimeout,
    CorruptEntry,
    HistoryPurged,
    JournalDamaged,
    JournalError,
    NoSuchEntry,
)
from lake_core.journal.naming import Naming
from lake_core.journal.pointer import Pointer, raise_head
from lake_core.journal.purge import purge
from lake_core.journal.reader import Outline, Reader
from lake_core.journal.single_snapshot import SingleSnapshotReader
from lake_core.journal.snapshot_files import write_snapshot
from lake_core.store.key import check_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lake_core.journal.archive import Archive
    from lake_core.journal.archive_rule import ArchiveRule
    from lake_core.journal.entry import Action, Entry
    from lake_core.journal.state import State
    from lake_core.store import ObjectStore

_LOG = logging.getLogger(__name__)

DEADLINE = timedelta(seconds=60)
"""The default deadline of an append."""

_RELOADED = 4096
"""After so many entries, a handle reads the newest snapshot again if the journal archives old records."""


@dataclass(frozen=True, slots=True)
class _CachedState:
    """The newest state that a handle has read."""

    state: State
    moment: Moment
    """Entries that follow the state were written after this moment."""


class Journal:
    """A handle on the journal in a folder of a store: a mapping of keys to values, changed by atomic, numbered entries.

    A journal need not be created: a folder without entries is an empty journal. Handles are cheap, cache the newest
    state that they have read, can be pickled, and can be shared by threads, whose appends then take turns.

    `archive`: the rule by which old records leave the snapshots. `snapshot_every`: entries between cached snapshots.
    `head_every`: entries between writes of HEAD, which is only a hint. `max_entry_bytes`, `max_snapshot_bytes`: larger
    ones are neither written nor read. `clock` returns aware datetimes.
    """

    def __init__(
        self,
        store: ObjectStore,
        folder: str,
        *,
        codec: Codec | None = None,
        naming: Naming | None = None,
        archive: ArchiveRule | None = None,
        clock: Callable[[], datetime] = system_clock,
        snapshot_every: int = 64,
        head_every: int = 8,
        max_entry_bytes: int = 8 << 20,
        max_snapshot_bytes: int = 256 << 20,
    ) -> None:
        if snapshot_every < 1 or head_every < 1:
            raise ValueError("snapshot_every and head_every are numbers of entries, and must be at least 1")
        prefix = check_key(folder) + "/" if folder else ""
        self._clock = JournalClock(clock)
        naming = naming or Naming()
        reader = Reader if naming.fixed_snapshot is None else SingleSnapshotReader
        self._reader = reader(
            store, prefix, codec or JsonCodec(), naming, max_entry_bytes, max_snapshot_bytes, self._clock
        )
        self._outline: tuple[Outline, Moment] | None = None
        self.archive = archive
        """The rule by which old records leave the snapshots."""
        self._snapshot_every = snapshot_every
        self._head_every = head_every
        self._cached: _CachedState | None = None
        self._heal_head = False
        self._replayed = 0
        self._reload_at = _RELOADED
        self._put_seconds = 0.0
        self._lock = threading.Lock()
        self._turn = threading.RLock()

    @property
    def store(self) -> ObjectStore:
        """Return the store of the journal."""
        return self._reader.store

    @property
    def folder(self) -> str:
        """Return the folder that it is in."""
        return self._reader.prefix.removesuffix("/")

    def __repr__(self) -> str:
        return f"Journal({self._reader.store!r}, {self.folder!r})"

    # Reading

    def look(self) -> None:
        """Read HEAD and list the snapshots, so that a caller can read other objects at the same time.

        The next reading of the state begins with them.

        Raises JournalDamaged, StoreError.
        """
        moment = self._clock.moment()
        self._outline = self._reader.look(), moment

    def head(self) -> int:
        """Return the number of the last entry; 0 for an empty journal. Writes HEAD again if it names another entry.

        Raises CorruptEntry, JournalDamaged, StoreError.
        """
        number = self.state().number
        head = self._reader.head()
        if self._misleads(head, number, self._head_every):
            # A reader without write access does not need a better hint.
            with suppress(StoreError):
                self._write_head(number)
        return number

    def state(self, refresh: bool = True) -> State:
        """Return the newest state; with `refresh=False` the newest that this handle has read, if any.

        Raises CorruptEntry, JournalDamaged, StoreError.
        """
        cached = self._cached
        return cached.state if cached is not None and not refresh else self._refresh()

    def resume(self, state: State) -> None:
        """Continue from a state that was read by other means, as if this handle had read it."""
        self._remember(state, self._clock.moment())

    def state_at(self, when: datetime | int) -> State:
        """Return the state as it was at a time (an aware datetime), or after the entry of a number.

        Raises HistoryPurged, which names what is retained; NoSuchEntry for a number that does not exist yet;
        CorruptEntry, JournalDamaged, StoreError; ValueError for a time without a zone and for a negative number.
        """
        if isinstance(when, datetime):
            if when.tzinfo is None:
                raise ValueError("a time needs a time zone")
            return self._state_at_time(when.astimezone(UTC))
        if when < 0:
            raise ValueError("entries count from 1")
        cached = self._cached
        return cached.state if cached is not None and cached.state.number == when else self._reader.load(when).state

    def entry(self, number: int) -> Entry:
        """Return one entry. Raises NoSuchEntry, HistoryPurged, CorruptEntry, StoreError."""
        for entry in self.entries(number, number):
            return entry
        raise NoSuchEntry(f"the journal {self._reader.prefix} has no entry {number} yet")

    def entries(self, start: int, end: int | None = None) -> Iterator[Entry]:
        """Return a lazy iterator of the entries from `start` to `end`, both included, or to the journal's end.

        Raises HistoryPurged, CorruptEntry, JournalDamaged, StoreError; ValueError for a start below 1.
        """
        if start < 1:
            raise ValueError("entries count from 1")
        return self._entries(start, end)

    def _entries(self, start: int, end: int | None) -> Iterator[Entry]:
        cached = self._cached
        sure = 0 if cached is None else cached.state.number
        hint = sure or self._reader.head().value or 0
        if end is not None:
            sure, hint = min(sure, end), min(hint, end)
        next_number, checked = start, None
        batches = self._reader.forward(start - 1, hint, None if end is None else max(0, end - start + 1))
        while (batch := self._next(batches, next_number)) is not None:
            if checked is None or self._clock.asleep(checked):
                checked = self._clock.moment()
                self._check_retained(next_number)
            yield from batch
            next_number += len(batch)
        if end is None or next_number <= end:
            self._check_retained(next_number)
        if next_number <= sure:
            raise JournalDamaged(
                f"{self._reader.entry_key(next_number)} is missing, though entry {sure} existed: "
                "restore it from a backup"
            )

    def _next(self, batches: Iterator[list[Entry]], first: int) -> list[Entry] | None:
        """Return the next batch, if any, of the entries from the number `first` on."""
        try:
            return next(batches, None)
        except CorruptEntry:
            # A suspended writer may have left it before TAIL.
            self._check_retained(first)
            raise

    # Writing

    def create(self) -> None:
        """Write HEAD and TAIL of an empty journal if they are missing: this package does not need them, but `zed` does.

        Raises StoreError.
        """
        for name, data in ((self._reader.naming.tail, b"1 0"), (self._reader.naming.head, b"0")):
            with suppress(AlreadyExists):
                self._reader.store.put(self._reader.prefix + name, data, if_absent=True)

    @overload
    def append(self, plan: Callable[[State], Append[Result]], *, deadline: timedelta = DEADLINE) -> Result: ...

    @overload
    def append(self, plan: Callable[[State], Sequence[Action]], *, deadline: timedelta = DEADLINE) -> Entry | None: ...

    def append(self, plan: Plan, *, deadline: timedelta = DEADLINE) -> Any:
        """Append one entry with the actions that `plan` returns for the newest state.

        Return the plan's result, or the entry if the plan returns only actions.

        The plan is called with the newest state, and again whenever another writer's entry came first, so it must not
        have side effects. An error that it raises is passed on, once it is certain that the state was the newest.
        Without actions nothing is appended, and the entry is None. On return the entry is durable, and this handle's
        state includes it.

        Raises KeyExists, KeyMissing, InvalidAction, EntryTooLarge (nothing was written); AppendTimeout (nothing was
        written); AppendOutcomeUnknown; CorruptEntry, JournalDamaged; what the store raises when it refuses permanently.
        """
        end = runtime.monotonic() + deadline.total_seconds()
        if not self._turn.acquire(timeout=min(max(0.0, deadline.total_seconds()), threading.TIMEOUT_MAX)):
            raise AppendTimeout(
                f"other threads appended to {self._reader.prefix} for {deadline}: "
                "try again, or open one handle for each thread"
            )
        try:
            return self._append(plan, end)
        finally:
            self._turn.release()

    def _append(self, plan: Plan, end: float) -> Any:
        append = Appender(self._reader, self._clock, runtime.uuid4().hex, end)
        append.put_seconds = self._put_seconds
        cached = self._cached
        trusted = None if cached is None or self._clock.asleep(cached.moment) else cached.state
        appended, result = append.run(plan, trusted, self._refresh, self._forget)
        self._put_seconds = append.put_seconds
        if appended is None:
            return None if result is ENTRY else result
        state = self._remember(appended.state, appended.started)
        try:
            self._keep_up(appended.state, appended.started)
        except (StoreError, JournalError) as error:
            _LOG.warning("entry %d is written, but its snapshot or HEAD is not: %s", state.number, error)
        return appended.entry if result is ENTRY else result

    def write_snapshot(self) -> None:
        """Write a snapshot of the newest state now. Archives old records if there is a rule for that.

        Raises CorruptEntry, JournalDamaged, StoreError.
        """
        moment = self._clock.moment()
        state = self._refresh()
        if state.number:
            self._write_snapshot(state, moment)

    def purge(self, before: datetime) -> int:
        """Delete entries older than a time (an aware datetime), after replacing them by a snapshot of their state.

        Returns how many were deleted.

        The newest entry stays, and so do entries younger than 8 days by their own time or by the store's clock.
        Raises PurgeUnsupported, JournalDamaged, CorruptEntry, StoreError; ValueError for a time without a zone.
        """
        if before.tzinfo is None:
            raise ValueError("a time needs a time zone")
        moment = self._clock.moment()
        newest = self._archived(self._refresh(), moment)
        return purge(self._reader, newest, before.astimezone(UTC), self._clock.now())

    # Remembering

    def _refresh(self) -> State:
        """Read the newest state from the store. Reads only new entries if those read before can be trusted."""
        started, cached = self._clock.moment(), self._cached
        if cached is not None and not self._holds_too_much(cached.state):
            try:
                state = self._reader.replay(cached.state)
            except CorruptEntry:
                # A suspended writer may have left it before TAIL.
                if not self._clock.asleep(cached.moment):
                    raise
            else:
                if not self._clock.asleep(cached.moment):
                    return self._remember(state, started)
        outline, self._outline = self._outline, None
        if outline is not None and self._clock.asleep(outline[1]):
            outline = None
        loaded = self._reader.load(outline=None if outline is None else outline[0])
        with self._lock:
            self._heal_head |= self._misleads(loaded.head, loaded.state.number, 2 * self._head_every)
            self._replayed = loaded.replayed
        return self._remember(loaded.state, started)

    def _holds_too_much(self, state: State) -> bool:
        """Return whether to read the journal anew, because a state has records that were archived since it was read."""
        if self.archive is None or state.number < self._reload_at:
            return False
        self._reload_at = state.number + _RELOADED
        return state.number - state.archive.snapshot > _RELOADED

    def _remember(self, state: State, moment: Moment) -> State:
        with self._lock:
            if self._cached is None or state.number >= self._cached.state.number:
                self._cached = _CachedState(state, moment)
        return state

    def _forget(self) -> None:
        with self._lock:
            self._cached = None

    def _check_retained(self, number: int) -> None:
        tail = self._reader.tail()
        if tail.first > number:
            raise self._reader.purged(number, tail)

    def _state_at_time(self, when: datetime) -> State:
        newest = self._refresh()
        if when >= newest.time:
            return newest
        tail = self._reader.tail()
        low, high = tail.first - 1, newest.number
        # The last entry before that time: after `low`, if any, and before `high`.
        while high - low > 1:
            middle = (low + high) // 2
            try:
                time = self._reader.decode(middle, self._reader.data(middle)).time
            except NotFound:
                self._check_retained(middle)
                raise JournalDamaged(f"{self._reader.entry_key(middle)} is missing: restore it from a backup") from None
            low, high = (middle, high) if time <= when else (low, middle)
        state = self._reader.load(low).state
        if state.time > when:
            raise HistoryPurged(
                f"the journal {self._reader.prefix} has purged its state of {when.isoformat()}: states are "
                f"retained from {state.time.isoformat()} (entry {state.number}) on",
                first=tail.first,
            )
        return state

    # Keeping up

    def _keep_up(self, state: State, moment: Moment) -> None:
        """Write HEAD and a snapshot when they are due. Raises StoreError; the entry is valid nevertheless."""
        number = state.number
        if self._heal_head or number % self._head_every == 0:
            self._write_head(number)
        if number % self._snapshot_every == 0 or self._replayed > 2 * self._snapshot_every:
            self._replayed = 0
            self._write_snapshot(state, moment)

    def _write_snapshot(self, state: State, moment: Moment) -> None:
        state = self._archived(state, moment)
        written = write_snapshot(self._reader, state)
        if written is not None:
            self._remember(replace(state, archive=replace(state.archive, etag=written.etag)), moment)

    def _archived(self, state: State, moment: Moment) -> State:
        """Return the state to write as a snapshot: without its old records, if the journal archives them.

        Raises JournalDamaged, StoreError.
        """
        if self.archive is None and not state.archive:
            return state
        # Snapshots form one chain: an archive that does not come from the newest may name segments that are deleted.
        if not self._is_newest_snapshot(state.archive):
            state = self._reader.load().state
        if self.archive is not None and (keys := self.archive.old_keys(state)):
            from lake_core.journal.archiving import archive_records  # few processes need Parquet for a journal

            state = archive_records(self._reader, state, self.archive.prefix, keys)
        return self._remember(replace(state, archive=replace(state.archive, snapshot=state.number, etag="")), moment)

    def _is_newest_snapshot(self, archive: Archive) -> bool:
        """Return whether an archive is that of the newest snapshot, or there is none. Raises StoreError."""
        for number, key in self._reader.snapshots():
            if number != archive.snapshot:
                return False
            # Two processes may have written a snapshot of this number, each with segments of its own.
            try:
                return self._reader.store.head(key).etag == archive.etag
            except NotFound:
                return False
        return True

    def _write_head(self, number: int) -> None:
        self._heal_head = False
        raise_head(self._reader.store, self._reader.prefix + self._reader.naming.head, number, self._reader.has_entry)

    def _misleads(self, head: Pointer, number: int, far: int) -> bool:
        """Return whether a HEAD is damaged, too high, or at least `far` entries below the last one."""
        if head.value is None:
            return head.etag is not None or number >= far
        return head.value > number or number - head.value >= far

    # Pickling

    def __getstate__(self) -> dict[str, object]:
        transient = ("_lock", "_turn", "_cached", "_outline")
        return {name: value for name, value in self.__dict__.items() if name not in transient}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._cached = None
        self._outline = None
        self._lock = threading.Lock()
        self._turn = threading.RLock()
