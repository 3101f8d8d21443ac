"""A store that dies before or after each operation of a publish: readers see the old state or the new one.

The next process goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from lake_core import Lake
from lake_core.errors import LakeError
from lake_core.store import MemoryStore, ObjectStore
from lake_core.testing import FaultStore
from lake_core.testing.fault_store import FaultMode, StoreDied
from lake_core.testing.manual_clock import ManualClock
from tests.lake.lakes import create_tables, ids, opened, plain, rows

TABLES = ("t/a", "t/b", "t/c")
TXN = ("job", 1)
_LATE = 45
"""Operations that belong to the publish itself, at least."""


def before(time: ManualClock) -> MemoryStore:
    store = MemoryStore(clock=time)
    lake = Lake.create(store, clock=time)
    create_tables(lake, *TABLES)
    with lake.session() as s:
        s.put("report.json", b"old")
    return store


def work(lake: Lake) -> None:
    """Publish three tables and a file at once."""
    with lake.session(message="work") as s:
        for path in TABLES:
            s.delta(path).append(rows(range(100, 103)), txn=TXN)
            s.delta(path).delete("id = 0")
        s.put("report.json", b"new")


def work_shared(lake: Lake) -> None:
    """Publish the same from two parts of a shared session."""
    opened = lake.open_session(id="shared")
    with opened.join(task="tables") as part:
        for path in TABLES:
            part.delta(path).append(rows(range(100, 103)), txn=TXN)
            part.delta(path).delete("id = 0")
    with opened.join(task="files") as part:
        part.put("report.json", b"new")
    opened.publish()


OLD, NEW = list(range(10)), [*range(1, 10), 100, 101, 102]


def states(store: ObjectStore, time: ManualClock) -> list[object]:
    """Return what a reader of the lake and plain readers find, each as old (False) or new (True)."""
    at = Lake.open(store, clock=time).at("main")
    contents = [ids(at.delta(path)) for path in TABLES]
    assert all(each in (OLD, NEW) for each in contents)
    report = bytes(at.get("report.json"))
    assert report in (b"old", b"new")
    assert len({each == NEW for each in contents} | {report == b"new"}) == 1, "a reader of the lake saw half of it"
    apart = [ids(plain(store, path)) for path in TABLES]
    assert all(each in (OLD, NEW) for each in apart), "a plain reader saw half of a version"
    return [report == b"new", *(each == NEW for each in apart)]


def sweep(
    doing: Callable[[Lake], None],
    mode: FaultMode,
    *,
    sampled: int = 1,
    make: Callable[[ManualClock], ObjectStore] | None = None,
    late: int = _LATE,
) -> tuple[int, list[bool]]:
    """Die at every operation in turn.

    Of the operations before the publish itself, which is the last `late` ones, only every `sampled`-th is tried.

    `make`: the lake to begin with. Returns how many operations there are, and whether the state was new after each
    death.
    """
    make = make or before
    time = ManualClock()
    whole = FaultStore(make(time), 0)
    doing(Lake.open(whole, clock=time))
    outcomes: list[bool] = []
    early = max(1, whole.operations - late)
    writes = -1
    for at in [*range(1, early, sampled), *range(early, whole.operations + 1, 1 if late else sampled)]:
        time = ManualClock()
        store = FaultStore(make(time), at, mode)
        with suppress(StoreDied):
            doing(Lake.open(store, clock=time))
        assert store.fired
        if store.writes == writes:
            continue  # the operation read: the store is as the death before left it
        writes = store.writes
        published, *checkouts = states(store.inner, time)
        assert published or not any(checkouts), "checked out before it was published"
        outcomes.append(bool(published))
        # The next process does the same work. Markers show which parts are already there.
        lake = opened(store.inner, time)
        time.pass_days(0.01)
        if not published:
            with suppress(LakeError):
                lake.get_session("shared").abandon()
            work(lake)
        else:
            _retry(lake)
        lake.maintenance.checkout()
        assert states(store.inner, time) == [True] * 4
        assert lake.maintenance.verify() == []
    return whole.operations, outcomes


def _retry(lake: Lake) -> None:
    with lake.session(message="retry") as s:
        for path in TABLES:
            assert s.delta(path).append(rows(range(100, 103)), txn=TXN).skipped


@pytest.mark.parametrize("doing", [pytest.param(work, marks=pytest.mark.extended), work_shared])
@pytest.mark.parametrize("sampled", [11, pytest.param(3, marks=pytest.mark.exhaustive)])
def test_death_at_operations_of_a_publish(doing: Callable[[Lake], None], sampled: int) -> None:
    operations, outcomes = sweep(doing, "before", sampled=sampled, late=0)
    assert operations > 30
    assert outcomes == sorted(outcomes), "the state went back"
    assert not outcomes[0]
    assert outcomes[-1]


@pytest.mark.stress
@pytest.mark.parametrize("mode", ["before", "after"])
@pytest.mark.parametrize("doing", [work, work_shared])
def test_death_at_each_operation_of_a_publish(doing: Callable[[Lake], None], mode: FaultMode) -> None:
    _, outcomes = sweep(doing, mode)
    assert outcomes == sorted(outcomes)


def test_death_between_publication_and_checkout_is_seen_and_mended(time: ManualClock) -> None:
    whole = FaultStore(before(ManualClock()), 0)
    work(Lake.open(whole, clock=ManualClock()))
    writes = -1
    for at in range(whole.operations, 0, -1):
        store = FaultStore(before(time), at)
        with suppress(StoreDied):
            work(Lake.open(store, clock=time))
        if store.writes == writes:
            continue
        writes = store.writes
        lake = opened(store.inner, time)
        published, *checkouts = states(store.inner, time)
        if published and not all(checkouts):
            break
    else:
        raise AssertionError("no operation lies between")
    assert lake.status().pending_checkout == [lake.log()[0].id]
    # The next writer completes it first, whatever it writes.
    with lake.session() as s:
        s.put("other", b"1")
    assert states(store.inner, time) == [True] * 4
    assert lake.status().pending_checkout == []
