"""Garbage collection beside publishes and other collectors, which act between any two operations of one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import pytest

from lake_core import Lake
from lake_core.delta.errors import DataFileMissing
from lake_core.errors import LakeError
from lake_core.lake.errors import Collected, Conflict
from lake_core.lake.gc import collect
from lake_core.lake.gc.deletion import DeleteTask
from lake_core.lake.gc.retention import HISTORY
from lake_core.lake.refs.lease import LeaseConfig
from lake_core.lake.refs.pending_deletions import PREFIX
from lake_core.lake.state.content import OBJECTS, address_of, new_item
from lake_core.runner import RunnerFailed
from lake_core.store import MemoryStore, ObjectStore
from lake_core.testing import FaultStore
from lake_core.testing.manual_clock import ManualClock
from tests.lake.lakes import create_tables, ids, plain, rows

T = TypeVar("T")
Act = Callable[[Lake], None]
GARBAGE = [b"garbage %d" % number for number in range(3)]
"""Content that no state reaches. Only some of it is used again."""


class _Interrupted(FaultStore):
    """A store that lets another process act before an operation."""

    def __init__(self, inner: MemoryStore, at: int, act: Callable[[], None]) -> None:
        super().__init__(inner, 0)
        self._number, self._act = at, act

    def _run(self, what: str, operation: Callable[[], T]) -> T:
        self._number -= 1
        if self._number == 0:
            self._act()
        return super()._run(what, operation)


def _stored(clock: ManualClock) -> MemoryStore:
    """Return a store with a lake, a commit past its retention, and content that nothing reaches."""
    store = MemoryStore(clock=clock)
    lake = Lake.create(store, clock=clock)
    create_tables(lake, "t/a")
    with lake.session() as s:
        s.put("file", b"old")
        s.delta("t/a").overwrite(rows([1]))
    with lake.session() as s:
        s.put("file", b"new")
        s.delta("t/a").overwrite(rows([2]))
    for content in GARBAGE:
        lake.repository.content.store(new_item(content, clock()))
    clock.pass_days(60)
    return store


def _open(store: ObjectStore, clock: ManualClock) -> Lake:
    """Open a lake whose publishers do not wait for the one that is interrupted."""
    lake = Lake.open(store, clock=clock)
    return Lake(replace(lake.repository, lease_config=LeaseConfig(patience=0.0)))


def _collect(lake: Lake) -> None:
    with suppress(collect.CollectionRefused):
        lake.maintenance.gc()


def _use_again(lake: Lake) -> None:
    """Publish content that is garbage until then."""
    with lake.session() as s:
        for number, content in enumerate(GARBAGE[:2]):
            s.put(f"again/{number}", content)
        s.put("old again", b"old")


def _use_again_in_a_shared_session(lake: Lake) -> None:
    session = lake.open_session()
    with session.join() as part:
        part.put("again/0", GARBAGE[0])
        part.delta("t/a").append(rows([3]))
    with session.join() as part:
        part.put("again/1", GARBAGE[1])
    session.publish()


def _bring_back(lake: Lake) -> None:
    """Publish an older version of the table again, unless its files are being collected or others changed it."""
    with suppress(Collected, DataFileMissing, Conflict), lake.session() as s:
        s.put("brought", b"back")
        s.delta("t/a").restore(version=1)


def _in_turn(*acts: Act) -> Act:
    def act(lake: Lake) -> None:
        for each in acts:
            each(lake)

    return act


OTHERS = {
    "collects": _collect,
    "publishes": _use_again,
    "collects and publishes": _in_turn(_collect, _use_again),
    "publishes and collects": _in_turn(_use_again, _collect),
    "collects, and collects again": _in_turn(_collect, _collect),
    "collects and publishes from a shared session": _in_turn(_collect, _use_again_in_a_shared_session),
}
PROCESSES = {
    "collects": _collect,
    "publishes": _use_again,
    "publishes from a shared session": _use_again_in_a_shared_session,
    "brings back": _bring_back,
}


@pytest.mark.parametrize(
    ("step", "is_announced"),
    [
        (23, True),
        pytest.param(1, True, marks=pytest.mark.exhaustive),
        pytest.param(1, False, marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("process", PROCESSES)
def test_what_is_published_stays(process: str, other: str, step: int, is_announced: bool) -> None:
    at, is_over = 0, False
    while not is_over:
        at += step
        clock = ManualClock()
        store = _stored(clock)
        if is_announced:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(collect, "_finish", lambda *arguments: [])
                lake = _open(store, clock)
                lake.maintenance.gc()
            lake.repository.content.store(new_item(GARBAGE[2], clock()))  # so that the final list is another
        interrupted = _Interrupted(store, at, lambda: OTHERS[other](_open(store, clock)))  # noqa: B023
        PROCESSES[process](_open(interrupted, clock))
        is_over = interrupted.operations < at
        _check(store, clock, at)
    assert at > 23


def _check(store: MemoryStore, clock: ManualClock, at: int) -> None:
    """Check that all that is published can be read, now and after more publishes and collections."""
    for days, act in [(0.0, _use_again), (0.1, _collect), (9.0, _use_again), (9.0, _collect)]:
        lake = _open(store, clock)
        assert lake.maintenance.verify() == [], f"interrupted at {at}"
        head = lake.at()
        for number, content in enumerate(GARBAGE[:2]):
            if head.exists(f"again/{number}"):
                assert bytes(head.get(f"again/{number}")) == content
        assert ids(lake.delta("t/a")) == ids(plain(store, "t/a"))
        clock.pass_days(days)
        act(lake)


def _announced(store: MemoryStore, clock: ManualClock) -> tuple[Lake, str]:
    """Return a lake with an announced collection of the garbage, and its id."""
    lake = _open(store, clock)
    keys = [address_of(new_item(content, clock()).entry.etag) for content in GARBAGE]
    return lake, collect._announce(lake.repository, keys, (), collect._Marks(lake.repository, HISTORY))


def test_deletions_of_a_slow_collector_spare_what_is_used_since() -> None:
    clock = ManualClock()
    store = _stored(clock)
    _, id = _announced(store, clock)
    late: list[Callable[[], None]] = []

    def put_off(task: Callable[[int], T], count: int) -> Iterator[T]:
        late.extend(lambda number=number: task(number) for number in range(count))
        raise RunnerFailed("cut off")

    with pytest.raises(RunnerFailed, match="cut off"):
        _open(store, clock).maintenance.gc(run=put_off)
    lake = _open(store, clock)
    _use_again(lake)
    lake.maintenance.gc()
    assert "done" in lake.repository.refs().under(PREFIX)[id]
    _use_again(lake)
    assert late
    for deletion in late:
        deletion()
    _check(store, clock, 0)


def test_a_deletion_by_others_than_the_first_follows_its_list() -> None:
    clock = ManualClock()
    store = _stored(clock)
    lake, id = _announced(store, clock)
    lake.repository.content.store(new_item(GARBAGE[0], clock()))  # renewed, because a writer is about to use it
    refs = lake.repository.refs()
    with pytest.raises(RunnerFailed):
        lake.maintenance.gc(run=_fails)
    value = lake.repository.refs().under(PREFIX)[id]
    assert value["final"] is True
    assert value["list"] != refs.under(PREFIX)[id]["list"]
    clock.pass_days(0.01)
    lake.repository.content.store(new_item(GARBAGE[1], clock()))  # too late: another process may be deleting it
    deleted = _open(store, clock).maintenance.gc().keys
    addresses = [address_of(new_item(content, clock()).entry.etag) for content in GARBAGE]
    assert [address in deleted for address in addresses] == [False, True, True]
    _use_again(_open(store, clock))
    _check(store, clock, 0)


def _fails(task: Callable[[int], T], count: int) -> Iterable[T]:
    if isinstance(task, DeleteTask):
        raise RunnerFailed("no executors")
    return map(task, range(count))


def test_a_runner_that_fails_is_not_said_to_refuse() -> None:
    clock = ManualClock()
    store = _stored(clock)
    lake = _open(store, clock)

    def fails(task: Callable[[int], T], count: int) -> Iterable[T]:
        raise RunnerFailed("no executors")

    with pytest.raises(RunnerFailed, match="no executors"):
        lake.maintenance.gc(run=fails)


def test_lists_that_a_collector_left_behind_are_deleted() -> None:
    clock = ManualClock()
    store = _stored(clock)
    for number in range(1, 60):
        with suppress(LakeError):
            _open(FaultStore(store, number), clock).maintenance.gc()
        store.put(f"again/{number}", b"%d" % number)
    for _ in range(3):
        clock.pass_days(20)
        _open(store, clock).maintenance.gc()
    left = {meta.key for meta in store.list("_lake/gc/") if "/marks/" not in meta.key}
    assert left == {value["list"] for value in _open(store, clock).repository.refs().under(PREFIX).values()}


def test_more_commits_than_an_entry_holds_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "_MOST_COMMITS", 2)
    clock = ManualClock()
    store = _stored(clock)
    lake = _open(store, clock)
    for number in range(6):
        with lake.session() as s:
            s.put("file", b"%d" % number)
    clock.pass_days(60)
    with lake.session() as s:
        s.put("file", b"last")
    old = [commit.id for commit in lake.log()][2:]
    assert lake.maintenance.gc().commits == len(old) > 6
    for id in old:
        with pytest.raises(LakeError):
            lake.create_branch("late", at=id)
    _check(store, clock, 0)


def test_a_failed_session_keeps_what_a_collection_deletes_in_the_meantime() -> None:
    clock = ManualClock()
    store = _stored(clock)
    at, is_over = 0, False
    while not is_over:
        at += 1
        clock = ManualClock()
        store = _stored(clock)
        interrupted = _Interrupted(store, at, lambda: _collect(_open(store, clock)))  # noqa: B023
        session = _open(interrupted, clock).session()
        session.put("file", GARBAGE[0])
        with _open(store, clock).session() as s:
            s.put("file", b"another")
        with suppress(Collected):
            with pytest.raises(Conflict):
                session.publish()
            failed = _open(store, clock).at(session.id)
            assert bytes(failed.get("file")) == GARBAGE[0]
        is_over = interrupted.operations < at
        assert _open(store, clock).maintenance.verify() == []
        assert {meta.key for meta in store.list(f"{OBJECTS}/")}
    assert at > 10
