"""Purging: what goes, what stays, and that writers and readers who slept meanwhile notice."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from lake_core.errors import PreconditionFailed, StoreUnavailable
from lake_core.journal import ZED_NAMING, Action, Journal, State
from lake_core.journal.errors import (
    AppendOutcomeUnknown,
    AppendTimeout,
    HistoryPurged,
    JournalDamaged,
    NoSuchEntry,
    PurgeUnsupported,
)
from lake_core.store import LocalStore, ObjectMeta, ObjectStore
from tests.journal.clocks import START, Clock
from tests.journal.plans import count
from tests.journal.stores import Do, ScriptedStore

FAR = START + timedelta(days=9999)
"""Everything that may be purged is from before then."""


def _open(store: ObjectStore, clock: Clock, **options: int) -> Journal:
    return Journal(store, "refs", clock=clock, **options)  # type: ignore[arg-type]


def _daily(store: ObjectStore, clock: Clock, days: int, **options: int) -> Journal:
    """Append one entry per day."""
    journal = _open(store, clock, **options)
    for _ in range(days):
        journal.append(count)
        clock.advance(days=1)
    return journal


def _numbers(store: ObjectStore) -> list[int]:
    return [int(meta.key[5:25]) for meta in store.list("refs/0")]


def test_purging_keeps_the_state_and_what_is_young(store: ScriptedStore, clock: Clock) -> None:
    journal = _daily(store, clock, 30)
    assert journal.purge(FAR) == 22
    assert _numbers(store) == list(range(23, 31)), "the last eight days"
    assert store.get("refs/TAIL") == b"23 22"
    for handle in (journal, _open(store, clock)):
        assert handle.state() == {"n": 30}
        assert handle.state().number == 30
        assert [entry.number for entry in handle.entries(23)] == list(range(23, 31))
        assert [handle.state_at(number)["n"] for number in range(22, 31)] == list(range(22, 31))
        assert handle.state_at(START + timedelta(days=21)).number == 22
    entry = journal.append(count)
    assert entry is not None
    assert entry.number == 31
    assert _open(store, clock).state() == {"n": 31}


def test_purging_stops_at_the_given_time(store: ScriptedStore, clock: Clock) -> None:
    journal = _daily(store, clock, 30)
    assert journal.purge(START) == 0
    assert not store.exists("refs/TAIL")
    assert journal.purge(START + timedelta(days=5)) == 5
    assert journal.purge(START + timedelta(days=5)) == 0
    assert journal.purge(START + timedelta(days=10)) == 5
    assert store.get("refs/TAIL") == b"11 10"
    assert _numbers(store)[0] == 11
    assert [meta.key[-25:] for meta in store.list("refs/bases/")] == [f"{10:020d}.json"]
    with pytest.raises(ValueError, match="zone"):
        journal.purge(datetime(2024, 1, 1))


def test_the_newest_entry_stays(store: ScriptedStore, clock: Clock) -> None:
    journal = _daily(store, clock, 3)
    clock.advance(days=100)
    assert journal.purge(FAR) == 2
    assert _numbers(store) == [3]
    assert _open(store, clock).state() == {"n": 3}
    assert journal.purge(FAR) == 0
    single = Journal(store, "single", clock=clock)
    single.append(count)
    clock.advance(days=100)
    assert single.purge(FAR) == 0


def test_what_is_gone_is_named(store: ScriptedStore, clock: Clock) -> None:
    open_journal = _daily(store, clock, 30)
    open_journal.purge(FAR)
    for journal in (open_journal, _open(store, clock)):
        for ask in (
            lambda journal=journal: journal.state_at(21),
            lambda journal=journal: journal.state_at(START + timedelta(days=20)),
            lambda journal=journal: list(journal.entries(22)),
            lambda journal=journal: journal.entry(1),
        ):
            with pytest.raises(HistoryPurged, match=r"retained from") as raised:
                ask()
            assert raised.value.first == 23
        with pytest.raises(NoSuchEntry):
            journal.state_at(31)


def test_a_handle_keeps_what_it_has(store: ScriptedStore, clock: Clock) -> None:
    """The state that it saw last is no less true for being purged."""
    journal, other = _daily(store, clock, 5), _open(store, clock)
    other.append(count)
    clock.advance(days=30)
    other.append(count)
    assert other.purge(FAR) == 6
    assert journal.state_at(5) == {"n": 5} == journal.state(refresh=False)
    with pytest.raises(HistoryPurged):
        journal.state_at(4)
    with pytest.raises(HistoryPurged):
        other.state_at(5)


def test_nothing_young_by_the_stores_clock_is_purged(tmp_path: Path) -> None:
    """The clock of whoever purges is a month ahead, and the entries say that they are old."""
    clock = Clock()
    journal = _daily(LocalStore(tmp_path), clock, 30)
    assert journal.purge(FAR) == 0
    assert journal.head() == len(list(journal.entries(1))) == 30


def test_nothing_young_by_its_own_time_is_purged(store: ScriptedStore, clock: Clock) -> None:
    """The clock of a writer was ahead of the store's, which says that the entries are old."""
    ahead = Clock()
    ahead.advance(days=1000)
    _daily(store, ahead, 5)
    clock.advance(days=500)
    assert _open(store, clock).purge(FAR) == 0
    clock.advance(days=600)
    assert _open(store, clock).purge(FAR) == 4


def test_journals_with_one_fixed_snapshot_are_not_purged(store: ScriptedStore, clock: Clock) -> None:
    journal = Journal(store, "refs", naming=ZED_NAMING, clock=clock)
    journal.append(count)
    with pytest.raises(PurgeUnsupported, match=r"snap\.zng"):
        journal.purge(FAR)


def test_tail_rises_before_anything_is_deleted(store: ScriptedStore, clock: Clock) -> None:
    journal = _daily(store, clock, 30)
    store.asked.clear()
    tails: list[bytes] = []
    store.on_delete = lambda keys: tails.append(bytes(store.inner.get("refs/TAIL")))
    journal.purge(FAR)
    assert tails == [b"23 22"]
    base, tail, gone = (
        next(index for index, asked in enumerate(store.asked) if asked.startswith(start))
        for start in ("put refs/bases/", "put refs/TAIL", "delete refs/0")
    )
    assert base < tail < gone
    assert f"get refs/bases/{22:020d}.json" in store.asked[base:tail], "read back before it is relied on"


def test_a_base_that_does_not_read_back_purges_nothing(store: ScriptedStore, clock: Clock) -> None:
    journal = _daily(store, clock, 30)

    def on_put(key: str, do: Do) -> ObjectMeta:
        return store.inner.put(key, b"torn") if "bases" in key else do()

    store.on_put = on_put
    with pytest.raises(JournalDamaged, match="nothing was purged"):
        journal.purge(FAR)
    assert not store.exists("refs/TAIL")
    assert len(_numbers(store)) == 30


def test_tail_never_falls(store: ScriptedStore, clock: Clock) -> None:
    """Another purge gets further while this one is about to raise TAIL."""
    journal = _daily(store, clock, 30)
    other = _open(store.inner, clock)
    raced: list[int] = []

    def on_put(key: str, do: Do) -> ObjectMeta:
        if key == "refs/TAIL" and not raced:
            raced.append(other.purge(FAR))
        return do()

    store.on_put = on_put
    journal.purge(START + timedelta(days=5))
    assert raced == [22]
    assert store.get("refs/TAIL") == b"23 22"
    assert [meta.key[-25:] for meta in store.list("refs/bases/")] == [f"{22:020d}.json"], (
        "swept, though put after the race was lost"
    )
    assert _open(store, clock).state_at(22) == {"n": 22}


def test_a_lost_answer_about_tail_is_settled(store: ScriptedStore, clock: Clock) -> None:
    journal = _daily(store, clock, 30)
    answers = iter([StoreUnavailable("before"), None, PreconditionFailed("by whom?")])

    def on_put(key: str, do: Do) -> ObjectMeta:
        if key != "refs/TAIL":
            return do()
        error = next(answers, None)
        if isinstance(error, StoreUnavailable):
            raise error
        do()
        raise StoreUnavailable("after")

    store.on_put = on_put
    assert journal.purge(FAR) == 22


# Sleepers


def _sleeps(store: ScriptedStore, clock: Clock, days: int = 40) -> None:
    """Let others append daily and purge, as while a process sleeps."""
    _daily(store.inner, clock, days).purge(FAR)


@pytest.mark.parametrize("delete_works", [True, False])
def test_a_writer_that_slept_while_planning_does_not_believe_in_a_purged_number(
    store: ScriptedStore, clock: Clock, delete_works: bool
) -> None:
    journal = _daily(store, clock, 5)
    slept: list[int] = []

    def plan(state: State) -> Sequence[Action]:
        if not slept:
            slept.append(state.number)
            _sleeps(store, clock)
        return count(state)

    def on_delete(keys: Sequence[str]) -> None:
        if not delete_works:
            raise StoreUnavailable("no answer")

    store.on_delete = on_delete
    entry = journal.append(plan, deadline=timedelta(days=99))
    assert slept == [5]
    assert f"put refs/{6:020d}.json" in store.asked, "it did put over the purged number"
    assert entry is not None
    assert entry.number == 46
    assert journal.state() == {"n": 46} == _open(store, clock).state()
    assert (6 in _numbers(store)) is not delete_works
    assert [each.number for each in journal.entries(40)] == list(range(40, 47))
    store.on_delete = lambda keys: None
    clock.advance(days=1)
    journal.purge(FAR)
    assert 6 not in _numbers(store), "swept"


def test_a_writer_whose_clocks_slept_too_learns_from_tail(store: ScriptedStore, clock: Clock) -> None:
    journal = _daily(store, Clock(), 5)
    journal.state()
    _sleeps(store, clock)
    entry = journal.append(count)
    assert entry is not None
    assert entry.number == 46
    assert f"put refs/{6:020d}.json" in store.asked
    assert 6 not in _numbers(store)
    assert journal.state() == {"n": 46}


def test_a_writer_that_slept_past_its_deadline_wrote_nothing(store: ScriptedStore, clock: Clock) -> None:
    journal = _daily(store, clock, 5)
    with pytest.raises(AppendTimeout, match=f"{6:020d}.json was written by another writer or purged"):
        journal.append(lambda state: _sleeps(store, clock) or count(state))  # type: ignore[func-returns-value]
    assert journal.state() == {"n": 45}
    assert 6 not in _numbers(store)


def test_a_writer_that_slept_between_appends_reads_anew(store: ScriptedStore, clock: Clock) -> None:
    journal = _daily(store, clock, 5)
    _sleeps(store, clock)
    entry = journal.append(count)
    assert entry is not None
    assert entry.number == 46
    assert f"put refs/{6:020d}.json" not in store.asked[-20:]
    assert journal.state() == {"n": 46}


@pytest.mark.parametrize("landed", [True, False])
def test_a_writer_that_slept_while_putting_says_that_it_does_not_know(
    store: ScriptedStore, clock: Clock, landed: bool
) -> None:
    """Its entry counted and was purged since, or it was put over a purged number: nobody can tell them apart."""
    journal = _daily(store, clock, 5)
    slept: list[bool] = []

    def on_put(key: str, do: Do) -> ObjectMeta:
        if slept or not key.endswith(f"{6:020d}.json"):
            return do()
        slept.append(True)
        if landed:
            result = do()
        _sleeps(store, clock)
        return result if landed else do()

    store.on_put = on_put
    with pytest.raises(AppendOutcomeUnknown, match="suspended for days") as raised:
        journal.append(count)
    assert raised.value.number == 6
    assert _open(store, clock).state() == {"n": 46 if landed else 45}
    assert journal.append(count) is not None
    assert journal.state() == {"n": 47 if landed else 46}


def test_a_reader_that_slept_notices(store: ScriptedStore, clock: Clock) -> None:
    """What follows its state is purged, which looks like the journal's end."""
    journal = _daily(store, clock, 5)
    _sleeps(store, clock)
    assert journal.state() == {"n": 45}


def test_a_reader_that_slept_does_not_take_junk_for_entries(store: ScriptedStore, clock: Clock) -> None:
    """A sleeping writer put it over a purged number, and died before it could look at TAIL."""
    journal, writer = _daily(store, clock, 5), _open(store, clock)
    writer.append(count)
    junk = store.get(f"refs/{6:020d}.json")
    _sleeps(store, clock)
    store.inner.put(f"refs/{6:020d}.json", junk)
    for read in (
        lambda: list(journal.entries(6)),
        lambda: list(journal.entries(6, 6)),
    ):
        with pytest.raises(HistoryPurged):
            read()
    store.inner.put(f"refs/{7:020d}.json", b"junk")
    assert journal.state() == {"n": 46}
    assert journal.state().number == 46
    with pytest.raises(HistoryPurged):
        list(journal.entries(6))


def test_a_reader_that_sleeps_while_it_reads_notices(store: ScriptedStore, clock: Clock) -> None:
    for cached in (True, False):
        journal = _daily(store, clock, 5)
        reader = _open(store, clock)
        if cached:
            reader.state()
        slept: list[str] = []

        def on_get(key: str, slept: list[str] = slept) -> None:
            if not slept and key.startswith("refs/0"):
                slept.append(key)
                _sleeps(store, clock)

        store.on_get = on_get
        assert reader.state() == {"n": journal.state()["n"]}
        assert slept


def test_a_clock_that_was_set_back_is_not_trusted(store: ScriptedStore, clock: Clock) -> None:
    journal = Journal(store, "refs", clock=clock)
    journal.append(count)
    _sleeps(store, clock)
    clock.now = START - timedelta(days=3)
    assert journal.state() == {"n": 41}


def test_a_journal_is_purged_while_it_is_read(store: ScriptedStore, clock: Clock) -> None:
    """The reader has listed snapshots that are gone when it asks for them."""
    _daily(store, clock, 30, snapshot_every=10)
    reader = _open(store, clock)
    raced: list[int] = []

    def on_get(key: str) -> None:
        if "snapshots" in key and not raced:
            raced.append(_daily(store.inner, clock, 40).purge(FAR))
            store.inner.delete(
                [meta.key for meta in store.inner.list("refs/snapshots/") if meta.key < f"refs/snapshots/{40:020d}"]
            )

    store.on_get = on_get
    assert reader.state() == {"n": 70}


def test_without_snapshots_the_base_stands_in(store: ScriptedStore, clock: Clock) -> None:
    journal = _daily(store, clock, 30)
    journal.purge(FAR)
    store.delete([meta.key for meta in store.list("refs/snapshots/")])
    assert _open(store, clock).state() == {"n": 30}
    store.put(f"refs/bases/{22:020d}.json", b"torn")
    with pytest.raises(JournalDamaged, match=f"bases/{22:020d}"):
        _open(store, clock).state()


def test_many_entries_are_swept_in_batches(store: ScriptedStore, clock: Clock) -> None:
    journal = _open(store, clock)
    for _ in range(2100):
        journal.append(count)
    clock.advance(days=10)
    assert journal.purge(FAR) == 2099
    assert _numbers(store) == [2100]
    assert journal.state() == {"n": 2100}
