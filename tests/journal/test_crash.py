"""Death before and after every operation on the store: the state is the old or the new, and others go on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import pytest

from lake_core.errors import StoreUnavailable
from lake_core.journal import ZED_NAMING, Journal
from lake_core.journal.errors import JournalError
from lake_core.store import MemoryStore, ObjectStore
from lake_core.testing import FaultStore, StoreDied
from lake_core.testing.fault_store import FaultMode
from tests.journal.clocks import START, Clock
from tests.journal.plans import count

ENTRIES = 15
FAR = START + timedelta(days=9999)


def _open(store: ObjectStore, clock: Clock, zed: bool = False) -> Journal:
    naming = ZED_NAMING if zed else None
    every = {"snapshot_every": 4, "head_every": 4}
    return Journal(store, "refs", clock=clock, naming=naming, **every)  # type: ignore[arg-type]


def _prepared(zed: bool = False) -> tuple[MemoryStore, Clock]:
    """At the sixteenth entry HEAD and a snapshot are due, and an old snapshot goes."""
    clock = Clock()
    store = MemoryStore(clock=clock)
    journal = _open(store, clock, zed)
    for _ in range(ENTRIES):
        journal.append(count)
        clock.advance(days=1)
    return store, clock


def _operations(work: Callable[[Journal], object], zed: bool = False) -> int:
    inner, clock = _prepared(zed)
    store = FaultStore(inner, 0)
    work(_open(store, clock, zed))
    return store.operations


def _check(store: ObjectStore, clock: Clock, zed: bool, *numbers: int) -> int:
    """Check that the journal is whole, ends at one of the numbers and can be continued. Return that number."""
    journal = _open(store, clock, zed)
    end = journal.state().number
    assert end in numbers
    assert journal.state() == {"n": end}
    first = int(store.get("refs/TAIL").split()[0]) if store.exists("refs/TAIL") else 1
    entries = list(journal.entries(first))
    assert [entry.number for entry in entries] == list(range(first, end + 1))
    assert [entry.actions[0].value for entry in entries] == list(range(first, end + 1))  # type: ignore[union-attr]
    for number in range(first, end + 1):
        assert journal.state_at(number) == {"n": number}
    assert len({entry.writer for entry in entries}) == len(entries)
    for number in range(end + 1, end + 7):
        entry = journal.append(count)
        assert entry is not None
        assert entry.number == number
    assert _open(store, clock, zed).state() == {"n": end + 6}
    assert journal.head() == end + 6
    return end


@pytest.mark.parametrize("zed", [False, True], ids=["json", "zed"])
@pytest.mark.parametrize("mode", ["before", "after"])
def test_dying_while_appending(mode: FaultMode, zed: bool) -> None:
    ends = set()
    count_of = _operations(lambda journal: journal.append(count), zed)
    assert count_of >= 10
    for at in range(1, count_of + 1):
        inner, clock = _prepared(zed)
        with pytest.raises(StoreDied):
            _open(FaultStore(inner, at, mode), clock, zed).append(count)
        ends.add(_check(inner, clock, zed, ENTRIES, ENTRIES + 1))
    assert ends == {ENTRIES, ENTRIES + 1}


@pytest.mark.parametrize("mode", ["before", "after"])
def test_an_answer_lost_while_appending(mode: FaultMode) -> None:
    """At any one operation: the append is carried through, or says that nothing was written, and lives on."""
    for at in range(1, _operations(lambda journal: journal.append(count)) + 1):
        inner, clock = _prepared()
        journal = _open(FaultStore(inner, at, mode, error=StoreUnavailable("no answer")), clock)
        entry = journal.append(count)
        assert entry is not None
        assert entry.number == ENTRIES + 1
        assert journal.state() == {"n": ENTRIES + 1}
        _check(inner, clock, False, ENTRIES + 1)


@pytest.mark.parametrize("mode", ["before", "after"])
def test_dying_while_purging(mode: FaultMode) -> None:
    tails = set()
    count_of = _operations(lambda journal: journal.purge(FAR))
    assert count_of >= 15
    for at in range(1, count_of + 1):
        inner, clock = _prepared()
        with pytest.raises(StoreDied):
            _open(FaultStore(inner, at, mode), clock).purge(FAR)
        tail = bytes(inner.get("refs/TAIL")) if inner.exists("refs/TAIL") else b""
        tails.add(tail)
        assert tail or len(list(inner.list("refs/0"))) == ENTRIES, "nothing is deleted before TAIL rose"
        copy = _copied(inner, clock)
        _check(copy, clock, False, ENTRIES)
        _open(inner, clock).purge(FAR)
        remaining = sorted(meta.key[5:25] for meta in inner.list("refs/0"))
        assert remaining == [f"{number:020d}" for number in range(8, ENTRIES + 1)], "the next purge finishes it"
        assert [meta.key for meta in inner.list("refs/bases/")] == [f"refs/bases/{7:020d}.json"]
        _check(inner, clock, False, ENTRIES)
    assert tails == {b"", b"8 7"}


def _copied(store: ObjectStore, clock: Clock) -> MemoryStore:
    copy = MemoryStore(clock=clock)
    for meta in store.list():
        copy.put(meta.key, store.get(meta.key))
    return copy


@pytest.mark.parametrize("mode", ["before", "after"])
def test_an_answer_lost_while_purging(mode: FaultMode) -> None:
    for at in range(1, _operations(lambda journal: journal.purge(FAR)) + 1):
        inner, clock = _prepared()
        journal = _open(FaultStore(inner, at, mode, error=StoreUnavailable("no answer")), clock)
        try:
            journal.purge(FAR)
        except (StoreUnavailable, JournalError):
            journal.purge(FAR)
        assert inner.get("refs/TAIL") == b"8 7"
        assert journal.state() == {"n": ENTRIES}
        _check(inner, clock, False, ENTRIES)


@pytest.mark.parametrize("work", ["state", "head", "state_at", "entries"])
@pytest.mark.parametrize("mode", ["before", "after"])
def test_dying_while_reading(work: str, mode: FaultMode) -> None:
    reads: dict[str, Callable[[Journal], object]] = {
        "state": lambda journal: journal.state(),
        "head": lambda journal: journal.head(),
        "state_at": lambda journal: journal.state_at(START + timedelta(days=3, hours=1)),
        "entries": lambda journal: list(journal.entries(1)),
    }
    for at in range(1, _operations(reads[work]) + 1):
        inner, clock = _prepared()
        inner.put("refs/HEAD", b"garbage")
        store = FaultStore(inner, at, mode)
        # The last read of a missing key may succeed.
        with suppress(StoreDied):
            reads[work](_open(store, clock))
        assert store.fired
        _check(inner, clock, False, ENTRIES)
