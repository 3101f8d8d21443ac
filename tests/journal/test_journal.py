"""What a journal promises to one caller: state, entries, time travel, polling."""

from __future__ import annotations

import pickle
import threading
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from lake_core.errors import InvalidKey
from lake_core.journal import ZED_NAMING, Action, Add, Append, Delete, Entry, Journal, Naming, State, Update
from lake_core.journal.errors import AppendTimeout, EntryTooLarge, InvalidAction, KeyExists, KeyMissing, NoSuchEntry
from lake_core.store import LocalStore, MemoryStore, ObjectStore
from lake_core.testing import FaultStore
from tests.journal.clocks import START, Clock
from tests.journal.plans import count
from tests.store.round_trips import RoundTripStore


def test_an_empty_journal_needs_no_creation() -> None:
    store = MemoryStore()
    journal = Journal(store, "refs")
    assert journal.head() == 0
    state = journal.state()
    assert dict(state) == {}
    assert state.number == 0
    assert state.time == datetime(1970, 1, 1, tzinfo=UTC)
    assert list(journal.entries(1)) == []
    assert journal.state_at(0) == {}
    assert journal.state_at(START) == {}
    assert journal.purge(START) == 0
    assert list(store.list()) == [], "reading writes nothing"


def test_entries_add_up_to_the_state() -> None:
    clock = Clock()
    journal = Journal(MemoryStore(), "refs", clock=clock)
    first = journal.append(lambda state: [Add("main", {"commit": "a", "tags": [1, None, 2.5]}), Add("dev", "b")])
    clock.advance(seconds=5)
    second = journal.append(lambda state: [Delete("dev"), Add("test", state["dev"]), Update("main", "c")])
    assert first is not None
    assert second is not None
    assert (first.number, second.number) == (1, 2)
    assert first.writer != second.writer
    assert (first.time, second.time) == (START, START + timedelta(seconds=5))
    for handle in (journal, Journal(journal.store, "refs")):
        state = handle.state()
        assert dict(state) == {"main": "c", "test": "b"}
        assert list(state) == ["main", "test"]
        assert len(state) == 2
        assert (state.number, state.time) == (2, second.time)
        assert list(handle.entries(1)) == [first, second]
        assert list(handle.entries(2)) == [second]
        assert list(handle.entries(1, 1)) == [first]
        assert list(handle.entries(3)) == []
        record = state.record("test")
        assert record is not None
        assert (record.number, record.time) == (2, second.time)
        assert state.record("dev") is None
        assert "dev" not in state
        assert 7 not in state
        with pytest.raises(KeyError):
            state["dev"]


def test_a_plan_with_nothing_to_do_writes_nothing() -> None:
    journal = Journal(MemoryStore(), "refs")
    assert journal.append(lambda state: ()) is None
    assert journal.head() == 0


def test_what_a_plan_raises_passes_through() -> None:
    class Refused(Exception):
        pass

    def refuse(state: State) -> list[Action]:
        raise Refused(state.number)

    journal, other = Journal(MemoryStore(), "refs"), None
    journal.append(count)
    other = Journal(journal.store, "refs")
    other.append(count)
    with pytest.raises(Refused, match="2"):
        journal.append(refuse)
    assert journal.head() == 2


def test_only_the_newest_state_may_refuse() -> None:
    """The handle's state is older than another writer's entry, which gives the plan something to do."""
    journal = Journal(MemoryStore(), "refs")
    journal.state()
    Journal(journal.store, "refs").append(lambda state: [Add("main", 1)])
    numbers: list[int] = []

    def plan(state: State) -> list[Action]:
        numbers.append(state.number)
        return [Update("main", state["main"] + 1)] if "main" in state else []

    assert journal.append(plan) is not None
    assert numbers == [0, 1]
    assert journal.state(refresh=False) == {"main": 2}
    Journal(journal.store, "refs").append(lambda state: [Add("dev", 1)])
    journal.append(lambda state: [Update("dev", 2)])
    assert journal.state(refresh=False)["dev"] == 2


@pytest.mark.parametrize(
    ("actions", "error", "key"),
    [
        ([Add("main", 1)], KeyExists, "main"),
        ([Update("dev", 1)], KeyMissing, "dev"),
        ([Delete("dev")], KeyMissing, "dev"),
        ([Add("dev", 1), Add("dev", 2)], KeyExists, "dev"),
        ([Delete("main"), Update("main", 2)], KeyMissing, "main"),
    ],
)
def test_actions_that_do_not_fit_are_refused(actions: list[Action], error: type[Exception], key: str) -> None:
    journal = Journal(MemoryStore(), "refs")
    journal.append(lambda state: [Add("main", 0)])
    with pytest.raises(error, match=repr(key)) as raised:
        journal.append(lambda state: actions)
    assert raised.value.key == key  # type: ignore[attr-defined]
    assert journal.head() == 1
    assert Journal(journal.store, "refs").state() == {"main": 0}


DEEP: Any = None
for _ in range(70):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "actions",
    [
        [Add("a", float("nan"))],
        [Add("a", float("inf"))],
        [Add("a", object())],
        [Add("a", {1: 2})],
        [Add("a", {"b": {None: 2}})],
        [Add("a", b"bytes")],
        [Add("a", "\ud800")],
        [Add("a", {"\ud800": 1})],
        [Add("\ud800", 1)],
        [Add("a", DEEP)],
        [Add("a" * 5000, 1)],
        [Add("a", 10**5000)],
        [Add(7, 1)],  # type: ignore[arg-type]
        [Delete(None)],  # type: ignore[arg-type]
        ["a"],
    ],
)
def test_what_cannot_be_written_is_refused(actions: list[Any]) -> None:
    journal = Journal(MemoryStore(), "refs")
    with pytest.raises(InvalidAction):
        journal.append(lambda state: actions)
    assert list(journal.store.list()) == []


def test_too_large_an_entry_is_refused() -> None:
    journal = Journal(MemoryStore(), "refs", max_entry_bytes=1000)
    with pytest.raises(EntryTooLarge, match="at most 1000"):
        journal.append(lambda state: [Add("a", "x" * 1000)])
    assert list(journal.store.list()) == []


def test_callers_objects_are_not_shared() -> None:
    journal = Journal(MemoryStore(), "refs")
    value = {"tags": (1, 2)}
    entry = journal.append(lambda state: [Add("a", value)])
    value["tags"] = (3,)
    assert journal.state() == {"a": {"tags": [1, 2]}}
    assert entry == journal.entry(1)


def test_times_rise_whatever_the_clock_does() -> None:
    clock = Clock()
    journal = Journal(MemoryStore(), "refs", clock=clock)
    for step in (0, 0, -3600, 7200, -7200):
        clock.advance(seconds=step)
        journal.append(count)
    times = [entry.time for entry in Journal(journal.store, "refs", clock=clock).entries(1)]
    microsecond = timedelta(microseconds=1)
    assert times[:3] == [START, START + microsecond, START + 2 * microsecond]
    assert times[3:] == [START + timedelta(hours=1), START + timedelta(hours=1) + microsecond]


def test_a_clock_at_the_end_of_time_stops_nobody() -> None:
    journal = Journal(MemoryStore(), "refs", clock=lambda: datetime.max.replace(tzinfo=UTC))
    journal.append(count)
    later = Journal(journal.store, "refs")
    later.append(count)
    assert later.head() == 2
    assert later.state_at(datetime.max.replace(tzinfo=UTC)).number == 2


def test_clocks_of_any_zone_are_fine_and_those_of_none_are_refused() -> None:
    east = Journal(MemoryStore(), "refs", clock=lambda: datetime(2024, 1, 1, 5, tzinfo=timezone(timedelta(hours=5))))
    entry = east.append(count)
    assert entry is not None
    assert entry.time == START
    assert entry.time.tzinfo is UTC
    with pytest.raises(ValueError, match="zone"):
        Journal(MemoryStore(), "refs", clock=datetime.now).append(count)


def test_time_travel_by_number_and_time() -> None:
    clock = Clock()
    journal = Journal(MemoryStore(), "refs", clock=clock, snapshot_every=4)
    for _ in range(30):
        clock.advance(seconds=10)
        journal.append(count)
    for handle in (journal, Journal(journal.store, "refs", clock=clock)):
        for number in range(31):
            assert handle.state_at(number).get("n", 0) == number
            time = START + timedelta(seconds=10 * number)
            assert handle.state_at(time).number == number
            assert (
                handle.state_at((time + timedelta(seconds=9)).astimezone(timezone(timedelta(hours=-7)))).number
                == number
            )
    assert journal.state_at(START - timedelta(days=9999)).number == 0
    with pytest.raises(NoSuchEntry, match="ends at entry 30"):
        journal.state_at(31)
    with pytest.raises(NoSuchEntry):
        journal.entry(31)
    for wrong in (datetime(2024, 1, 1), -1):
        with pytest.raises(ValueError):
            journal.state_at(wrong)
    with pytest.raises(ValueError):
        journal.entries(0)


def test_states_are_immutable_and_large_ones_share() -> None:
    journal = Journal(MemoryStore(), "refs")
    journal.append(lambda state: [Add(f"k{i:05d}", i) for i in range(20_000)])
    states = [journal.state(refresh=False)]
    for i in range(1000):
        journal.append(
            lambda state, i=i: [Update(f"k{i:05d}", -1), Delete(f"k{i + 10_000:05d}"), Add(f"new{i:04d}", i)]
        )  # type: ignore[misc]
        states.append(journal.state(refresh=False))
    for number, state in enumerate(states):
        assert len(state) == 20_000
        assert state.number == number + 1
        if number % 250 == 0:
            expected = {
                f"k{i:05d}": -1 if i < number else i for i in range(20_000) if not 10_000 <= i < 10_000 + number
            }
            assert dict(state) == expected | {f"new{i:04d}": i for i in range(number)}
            assert list(state) == sorted(state)


def test_a_handle_remembers() -> None:
    """After its own append a handle knows the state without reading.

    A refresh reads the new entries, and looks once for one after them.
    """
    store = FaultStore(MemoryStore(), 0)
    journal = Journal(store, "refs")
    for _ in range(5):
        journal.append(count)
    before = store.operations
    assert journal.state(refresh=False) == {"n": 5}
    assert store.operations == before
    journal.state()
    assert store.operations == before + 1
    journal.append(count)
    assert store.operations == before + 3, "a put, and a look at TAIL"


@pytest.mark.parametrize("entries", [10, 1000])
def test_opening_costs_what_came_since_the_last_snapshot(entries: int) -> None:
    store = RoundTripStore(MemoryStore())
    journal = Journal(store, "refs")
    before = store.count
    for _ in range(entries):
        journal.append(count)
    assert (store.count - before) / entries < 2.7
    before = store.count
    store.requests.clear()
    assert Journal(store, "refs").state() == {"n": entries}
    # HEAD beside the list of snapshots; then a snapshot, the entries since, some that are not there, and TAIL.
    assert store.count - before == 2
    assert len(store.requests) <= 4 + 64 + 16
    assert len(list(store.list("refs/snapshots/"))) == min(3, entries // 64)


def test_a_stale_hint_costs_few_round_trips() -> None:
    store = RoundTripStore(MemoryStore())
    journal = Journal(store, "refs", head_every=10**9, snapshot_every=10**9)
    for _ in range(1000):
        journal.append(count)
    before = store.count
    assert Journal(store, "refs").state() == {"n": 1000}
    assert store.count - before < 1000 / 80 + 8


def test_handles_are_pickled() -> None:
    store = MemoryStore()
    journal = Journal(store, "refs", snapshot_every=2, naming=Naming(suffix=".j"))
    journal.append(count)
    copy = pickle.loads(pickle.dumps(journal))
    copy.append(count)
    assert journal.state() == copy.state() == {"n": 2}
    assert [meta.key for meta in store.list("refs/snapshots/")] == ["refs/snapshots/00000000000000000002.j"]


def test_threads_share_a_handle(tmp_path: Path) -> None:
    journal = Journal(LocalStore(tmp_path), "refs")
    appended: list[Entry | None] = []

    def work() -> None:
        for _ in range(25):
            appended.append(journal.append(count))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert journal.state() == {"n": 200}
    assert sorted(entry.number for entry in appended if entry) == list(range(1, 201))


def test_a_thread_that_waits_for_its_turn_keeps_its_deadline() -> None:
    journal = Journal(MemoryStore(), "refs")
    inside, leave = threading.Event(), threading.Event()

    def slow(state: State) -> list[Action]:
        inside.set()
        leave.wait(20)
        return []

    thread = threading.Thread(target=lambda: journal.append(slow))
    thread.start()
    inside.wait(20)
    with pytest.raises(AppendTimeout, match="other threads"):
        journal.append(count, deadline=timedelta(seconds=0.05))
    leave.set()
    thread.join()


@pytest.mark.parametrize("folder", ["refs", "a/b/c", "", "naïve"])
def test_journals_lie_in_any_folder(folder: str) -> None:
    store = MemoryStore()
    store.put("other/file", b"")
    journal = Journal(store, folder, snapshot_every=2)
    for _ in range(5):
        journal.append(count)
    assert Journal(store, folder).state() == {"n": 5}
    assert journal.folder == folder
    assert repr(journal) == f"Journal({store!r}, {folder!r})"


def test_hostile_folders_are_refused() -> None:
    with pytest.raises(InvalidKey):
        Journal(MemoryStore(), "../refs")
    with pytest.raises(ValueError):
        Journal(MemoryStore(), "refs", snapshot_every=0)


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path)


def test_the_names_of_zed(store: ObjectStore) -> None:
    journal = Journal(store, "branches", naming=ZED_NAMING, snapshot_every=10, head_every=1)
    journal.create()
    assert (store.get("branches/HEAD"), store.get("branches/TAIL")) == (b"0", b"1 0")
    assert journal.head() == 0
    for _ in range(25):
        journal.append(count)
    names = sorted(meta.key for meta in store.list())
    assert names == sorted(
        ["branches/HEAD", "branches/TAIL", "branches/snap.zng", *(f"branches/{n}.zng" for n in range(1, 26))]
    )
    assert store.get("branches/HEAD") == b"25"
    assert Journal(store, "branches", naming=ZED_NAMING).state() == {"n": 25}
    assert journal.state_at(7) == {"n": 7}
    journal.create()
    assert store.get("branches/HEAD") == b"25"


def test_a_plan_gives_its_caller_a_result() -> None:
    journal = Journal(MemoryStore(), "refs")

    def take(state: State) -> Append[int]:
        number = state.get("n", 0) + 1
        return Append([Update("n", number) if "n" in state else Add("n", number)], number)

    assert journal.append(take) == 1
    assert journal.append(take) == 2
    assert journal.state() == {"n": 2}


def test_a_plan_without_actions_gives_a_result_too() -> None:
    journal = Journal(MemoryStore(), "refs")
    assert journal.append(lambda state: Append((), "nothing to do")) == "nothing to do"
    assert journal.state().number == 0
