"""Any interleaving of handles, clocks and purges gives what a dict and a list of its past would give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lake_core.journal import Action, Add, Delete, Entry, Journal, State, Update
from lake_core.journal.errors import HistoryPurged, KeyExists, KeyMissing
from lake_core.store import MemoryStore
from tests.examples import examples
from tests.journal.clocks import START, Clock

HANDLES = st.integers(0, 3)
KEYS = st.sampled_from(["a", "b", "c/d", "ü"])
PATIENCE = timedelta(days=99_999)
MICROSECOND = timedelta(microseconds=1)

Steps = list[tuple[str, int, int]]
STEPS: st.SearchStrategy[Steps] = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append", "refresh", "purge", "sleep"]), HANDLES, st.integers(0, 12)
    ),
    max_size=6,
)
"""What others do while a plan is made."""


class JournalModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.store = MemoryStore(clock=self.clock)
        self.handles = [self._open() for _ in range(4)]
        self.past: list[tuple[datetime, dict[str, object]]] = [(START - timedelta(days=99_999), {})]
        """The state after each entry, with its time."""
        self.entries: list[Entry] = []
        self.first = 1
        self.value = 0

    def _open(self) -> Journal:
        return Journal(
            self.store,
            "refs",
            clock=self.clock,
            snapshot_every=5,
            head_every=3,
        )

    @property
    def newest(self) -> dict[str, object]:
        return self.past[-1][1]

    def _append(self, handle: int, plan: Callable[[State], Sequence[Action]]) -> Entry | None:
        """Append, and note what must have come of it."""
        entry = self.handles[handle].append(plan, deadline=PATIENCE)
        if entry is None:
            return None
        assert entry.number == len(self.past)
        state = dict(self.newest)
        for action in entry.actions:
            if isinstance(action, Delete):
                del state[action.key]
            else:
                assert (action.key in state) is isinstance(action, Update)
                state[action.key] = action.value
        assert self.past[-1][0] < entry.time == max(entry.time, self.clock.now)
        self.past.append((entry.time, state))
        self.entries.append(entry)
        assert self.handles[handle].state(refresh=False) == state
        return entry

    def _set(self, key: str) -> Callable[[State], Sequence[Action]]:
        self.value += 1
        value = self.value
        return lambda state: [Update(key, [state[key][0] + 1, value]) if key in state else Add(key, [1, value])]

    @rule(handle=HANDLES, key=KEYS, meanwhile=STEPS)
    def set(self, handle: int, key: str, meanwhile: Steps) -> None:
        plan, planned = self._set(key), list[dict[str, object]]()

        def interrupted(state: State) -> Sequence[Action]:
            planned.append(dict(state))
            if len(planned) == 1:
                for kind, other, amount in meanwhile:
                    if other != handle:
                        self._step(kind, other, amount)
            return plan(state)

        before = len(self.past)
        assert self._append(handle, interrupted) is not None
        assert planned[-1] == self.past[-2][1], "planned on the state that it follows"
        assert len(self.past) > before

    def _step(self, kind: str, handle: int, amount: int) -> None:
        if kind == "append":
            self._append(handle, self._set(f"key{amount}"))
        elif kind == "refresh":
            self.refresh(handle)
        elif kind == "purge":
            self.purge(handle, amount)
        else:
            self.clock.advance(days=amount)

    @rule(handle=HANDLES, key=KEYS)
    def delete(self, handle: int, key: str) -> None:
        """Nothing to do for an absent key, as of the newest state."""
        present = key in self.newest
        entry = self._append(handle, lambda state: [Delete(key)] if key in state else [])
        assert (entry is not None) is present

    @rule(handle=HANDLES, key=KEYS)
    def create(self, handle: int, key: str) -> None:
        self.value += 1
        if key in self.newest:
            with pytest.raises(KeyExists):
                self._append(handle, lambda state: [Add(key, [0, self.value])])
        else:
            self._append(handle, lambda state: [Add(key, [0, self.value])])

    @rule(handle=HANDLES, old=KEYS, new=KEYS)
    def rename(self, handle: int, old: str, new: str) -> None:
        error = KeyMissing if old not in self.newest else KeyExists if new in self.newest and new != old else None

        def plan(state: State) -> Sequence[Action]:
            return [Delete(old), Add(new, state.get(old))]

        if error is None:
            self._append(handle, plan)
        else:
            with pytest.raises(error):
                self._append(handle, plan)

    @rule(handle=HANDLES)
    def refresh(self, handle: int) -> None:
        state = self.handles[handle].state()
        assert state == self.newest
        assert state.number == len(self.past) - 1 == self.handles[handle].head()

    @rule(handle=HANDLES)
    def reopen(self, handle: int) -> None:
        self.handles[handle] = self._open()

    @rule(days=st.integers(-3, 12), microseconds=st.integers(0, 2))
    def sleep(self, days: int, microseconds: int) -> None:
        self.clock.advance(days=days, microseconds=microseconds)

    @rule(handle=HANDLES, days=st.integers(0, 20))
    def purge(self, handle: int, days: int) -> None:
        before = self.clock.now - timedelta(days=days)
        keys = {meta.key for meta in self.store.list("refs/0")}
        deleted = self.handles[handle].purge(before)
        left = {meta.key for meta in self.store.list("refs/0")}
        assert len(keys - left) == deleted
        assert left <= keys
        first = len(self.past) - len(left)
        assert left == {f"refs/{number:020d}.json" for number in range(first, len(self.past))}
        assert first >= self.first
        for entry in self.entries[self.first - 1 : first - 1]:
            assert entry.time < before
            assert entry.time < self.clock.now - timedelta(days=8)
        self.first = max(first, 1)

    @rule(garbage=st.sampled_from([b"", b"x", b"0", b"3", b"99999"]))
    def spoil_head(self, garbage: bytes) -> None:
        self.store.put("refs/HEAD", garbage)

    @rule(data=st.data())
    def spoil_snapshot(self, data: st.DataObject) -> None:
        keys = [meta.key for meta in self.store.list("refs/snapshots/")]
        if keys:
            key = data.draw(st.sampled_from(keys))
            if data.draw(st.booleans()):
                self.store.delete([key])
            else:
                self.store.put(key, self.store.get(key)[:-2])

    @rule(handle=HANDLES, data=st.data())
    def travel(self, handle: int, data: st.DataObject) -> None:
        journal = self.handles[handle]
        number = data.draw(st.integers(0, len(self.past) - 1))
        time, state = self.past[number]
        if number < self.first - 1:
            cached = journal._cached
            if cached is not None and number == cached.state.number:
                assert journal.state_at(number) == state, "the handle still has it"
            else:
                with pytest.raises(HistoryPurged):
                    journal.state_at(number)
            if number:
                with pytest.raises(HistoryPurged):
                    journal.state_at(time)
            return
        actual = journal.state_at(number)
        assert actual == state
        assert actual.number == number
        for moment in (time, time + MICROSECOND):
            expected = max(index for index, (created, _) in enumerate(self.past) if created <= moment)
            actual = journal.state_at(moment) if number else journal.state_at(0)
            assert actual.number == (expected if number else 0)
            assert actual == self.past[actual.number][1]

    @rule(handle=HANDLES, data=st.data())
    def follow(self, handle: int, data: st.DataObject) -> None:
        start = data.draw(st.integers(1, len(self.past)))
        journal = self.handles[handle]
        if start < self.first:
            with pytest.raises(HistoryPurged):
                list(journal.entries(start))
        else:
            assert list(journal.entries(start)) == self.entries[start - 1 :]
            end = data.draw(st.integers(start, len(self.past) + 2))
            assert list(journal.entries(start, end)) == self.entries[start - 1 : end]

    @invariant()
    def a_fresh_handle_sees_the_newest_state(self) -> None:
        assert self._open().state() == self.newest


TestJournalModel = JournalModel.TestCase
TestJournalModel.settings = settings(
    max_examples=examples(60), stateful_step_count=30, suppress_health_check=list(HealthCheck)
)
