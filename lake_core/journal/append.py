"""Appends an entry: put if absent, verify if the response is lost, plan again if another writer came first.

Section Journal Concurrency Control of zed-lake-format, with one exception: an entry is never put before the entry in
front of it was read. A gap would hide entries that were acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lake_core import runtime
from lake_core.errors import AlreadyExists, InvalidKey, NotFound, StoreError, StoreUnavailable
from lake_core.journal.clock import AFTER_FAILURE, JournalClock, Moment, pause_after_loss
from lake_core.journal.entry import Action, Add, Delete, Entry, Update
from lake_core.journal.errors import (
    AppendOutcomeUnknown,
    AppendTimeout,
    CorruptEntry,
    EntryTooLarge,
    InvalidAction,
    JournalDamaged,
)
from lake_core.journal.state import State

if TYPE_CHECKING:
    from lake_core.journal.reader import Reader

Result = TypeVar("Result")

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Append(Generic[Result]):
    """The result of a plan for a state."""

    actions: Sequence[Action]
    """The actions of the entry. Empty if nothing is to be appended."""
    result: Result
    """The result for the caller of `Journal.append`."""


Plan = Callable[[State], Sequence[Action] | Append[Any]]

ENTRY = object()
"""The result of a plan without a result of its own: the entry itself."""


@dataclass(frozen=True, slots=True)
class Appended:
    """An entry that is in the journal."""

    entry: Entry
    state: State
    """The state with it."""
    started: Moment
    """Before it was put."""


@dataclass(slots=True)
class Appender:
    """An append in progress."""

    reader: Reader
    clock: JournalClock
    writer: str
    end: float
    """The deadline, by the machine's monotonic clock."""
    put_seconds: float = 0.0
    """The approximate duration of a put."""

    def run(
        self, plan: Plan, initial: State | None, refresh: Callable[[], State], forget: Callable[[], None]
    ) -> tuple[Appended | None, object]:
        """Append the actions that the plan returns for the newest state.

        Return the entry (None without actions) and the plan's result.

        `initial` is a state to start from instead of reading the journal. If the put at the next number succeeds, it
        was the newest state. `refresh` reads the newest state. `forget` drops what it has cached.
        """
        fresh = initial is None
        state = self._newest(refresh) if initial is None else initial
        lost = 0
        while True:
            refusal: Exception | None = None
            actions: tuple[Action, ...] = ()
            result: object = ENTRY
            try:
                actions, result = _planned(plan, state)
            except Exception as error:
                refusal = error
            if not actions:
                # A plan may refuse only the newest state.
                if not fresh:
                    fresh, newest = True, self._newest(refresh)
                    if newest.number != state.number:
                        state = newest
                        continue
                if refusal is not None:
                    raise refusal
                return None, result
            entry = Entry(state.number + 1, self._time_after(state), self.writer, actions)
            data, entry = self._encode(entry)
            started = self.clock.moment()
            if self._try_put(entry, data):
                if self._is_valid(entry, started):
                    return Appended(entry, state.advanced([entry]), started), result
                forget()
            lost += 1
            if runtime.monotonic() >= self.end:
                raise AppendTimeout(
                    f"{self.reader.entry_key(entry.number)} was written by another writer or purged, like the "
                    f"{lost - 1} entries before it. Nothing was written: "
                    "try again, or let fewer writers append to this journal"
                )
            runtime.sleep(pause_after_loss(lost, self.put_seconds))
            fresh, state = True, self._newest(refresh)

    def _newest(self, refresh: Callable[[], State]) -> State:
        attempt = 0
        while True:
            try:
                return refresh()
            except StoreUnavailable as error:
                attempt += 1
                if runtime.monotonic() >= self.end:
                    raise AppendTimeout(
                        f"{self.reader.prefix} could not be read before the deadline, and nothing was written: {error}"
                    ) from error
                AFTER_FAILURE.wait(attempt)

    def _time_after(self, state: State) -> datetime:
        now = self.clock.now()
        if state.number == 0 or now > state.time:
            return now
        # The clock of another writer is ahead, or at the largest possible time.
        return state.time + _MICROSECOND if state.time < datetime.max.replace(tzinfo=state.time.tzinfo) else state.time

    def _encode(self, entry: Entry) -> tuple[bytes, Entry]:
        """Encode an entry. Returns its bytes, and the entry as others will read it.

        Raises InvalidAction for an entry that could not be read again: it would stop every reader.
        """
        data = self.reader.codec.encode(entry)
        if len(data) > self.reader.max_entry_bytes:
            raise EntryTooLarge(
                f"the entry has {len(data)} bytes, but readers accept at most {self.reader.max_entry_bytes}: "
                "write fewer changes at once"
            )
        try:
            return data, replace(self.reader.codec.decode(entry.number, data), writer=entry.writer)
        except CorruptEntry as error:
            raise InvalidAction(f"the actions could not be read again: {error}") from None

    def _try_put(self, entry: Entry, data: bytes) -> bool:
        """Put the entry. Return True if it is stored, and False if another writer's entry is.

        Raises AppendOutcomeUnknown, AppendTimeout, StoreError.
        """
        key = self.reader.entry_key(entry.number)
        put, attempt = True, 0
        unknown: StoreError | None = None
        while True:
            failure: StoreError | None = None
            try:
                if put:
                    self._put(key, data)
                    return True
            except AlreadyExists:
                # Another append put it, or this one did and the store's first response was lost.
                pass
            except InvalidKey:
                raise
            except StoreUnavailable as error:
                unknown = error
            except StoreError as error:
                failure = error
            try:
                stored = self.reader.data(entry.number)
                return self._owns(entry, data, stored)
            except NotFound:
                if failure is not None:
                    raise failure from None
                # It never arrived, or not yet: try the same number again, never the next.
                put = True
            except StoreUnavailable as error:
                put, unknown = False, unknown or failure or error
            attempt += 1
            if runtime.monotonic() >= self.end:
                raise self._unknown(entry, unknown)
            AFTER_FAILURE.wait(attempt)

    def _put(self, key: str, data: bytes) -> None:
        began = runtime.monotonic()
        try:
            self.reader.store.put(key, data, if_absent=True)
        finally:
            self.put_seconds += (runtime.monotonic() - began - self.put_seconds) / 4

    def _owns(self, entry: Entry, data: bytes, stored: bytes) -> bool:
        try:
            return self.reader.codec.owns(entry, data, stored)
        except CorruptEntry:
            # The entry is damaged, so it is not ours. Reading the journal will raise an error.
            return False

    def _is_valid(self, entry: Entry, started: Moment) -> bool:
        """Return whether an entry that was put is valid. It is not if its number was purged while its writer slept."""
        attempt = 0
        while True:
            try:
                tail = self.reader.tail()
                break
            except (StoreError, JournalDamaged) as error:
                attempt += 1
                if not isinstance(error, StoreUnavailable) or runtime.monotonic() >= self.end:
                    raise self._unknown(entry, error) from error
                AFTER_FAILURE.wait(attempt)
        if tail.first <= entry.number:
            return True
        if self.clock.asleep(started):
            # Either it was put in time, read, and purged days later; or it was put over a purged number.
            raise self._unknown(entry, None)
        # An entry this young is never purged: the number had been purged before. Entries before TAIL are ignored.
        with suppress(StoreError):
            self.reader.store.delete([self.reader.entry_key(entry.number)])
        return False

    def _unknown(self, entry: Entry, reason: Exception | None) -> AppendOutcomeUnknown:
        why = (
            f"the store gave no clear answer ({reason})"
            if reason
            else "the store contradicts itself, or this process was suspended for days"
        )
        return AppendOutcomeUnknown(
            f"it is unknown whether {self.reader.entry_key(entry.number)} was appended: {why}. Check later "
            f"whether the writer of that entry is {entry.writer}",
            number=entry.number,
            writer=entry.writer,
        )


def _planned(plan: Plan, state: State) -> tuple[tuple[Action, ...], object]:
    """Ask the plan, and check its actions against the state.

    Raises InvalidAction, KeyExists, KeyMissing, and what the plan raises.
    """
    planned = plan(state)
    actions, result = (
        (tuple(planned.actions), planned.result) if isinstance(planned, Append) else (tuple(planned), ENTRY)
    )
    for action in actions:
        if not isinstance(action, (Add, Update, Delete)) or not isinstance(action.key, str):
            raise InvalidAction(
                f"a plan must return Add, Update and Delete actions on keys that are strings, not {str(action)[:80]}"
            )
    state.check(actions)
    return actions, result
