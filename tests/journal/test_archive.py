"""The archive: old records leave the snapshots, and are there whenever they are asked for."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lake_core.errors import StoreError
from lake_core.journal import Action, Add, ArchiveRule, Delete, Journal, JsonCodec, State, Update
from lake_core.journal.errors import JournalDamaged, KeyMissing
from lake_core.journal.record import StateRecord
from lake_core.journal.segment import OpenSegment, encode_segment, table_of
from lake_core.store import LocalStore, MemoryStore, ObjectMeta, ObjectStore
from lake_core.testing import FaultStore, StoreDied
from lake_core.testing.fault_store import FaultMode
from tests.imports import imported
from tests.journal.clocks import START, Clock
from tests.journal.stores import Do, ScriptedStore

FAR = START + timedelta(days=9999)


def _pinned(state: State) -> Iterator[str]:
    return (f"commit/{state[key]}" for key in state.under("branch/"))


RULE = ArchiveRule("commit/", _pinned, recent=6, batch=5)


def _open(store: ObjectStore, clock: Clock, rule: ArchiveRule | None = RULE) -> Journal:
    return Journal(store, "refs", clock=clock, archive=rule, snapshot_every=4, head_every=4)


def _commit(journal: Journal, name: str, branch: str = "main") -> None:
    """Add a commit, and let a branch point at it."""

    def plan(state: State) -> Sequence[Action]:
        key = f"branch/{branch}"
        return [Add(f"commit/{name}", {"name": name}), Update(key, name) if key in state else Add(key, name)]

    journal.append(plan)


def _filled(store: ObjectStore, clock: Clock, count: int = 60) -> Journal:
    journal = _open(store, clock)
    for number in range(count):
        _commit(journal, f"c{number:04d}")
        clock.advance(hours=1)
    return journal


def _segments(store: ObjectStore) -> list[str]:
    return [meta.key for meta in store.list("refs/archive/")]


def _reads(store: ScriptedStore) -> list[str]:
    return [call for call in store.asked if "archive/" in call]


def test_all_records_are_there(store: ScriptedStore, clock: Clock) -> None:
    _filled(store, clock)
    state = _open(store, clock).state()
    commits = [f"commit/c{number:04d}" for number in range(60)]
    assert len(list(state.loaded_records())) < 20
    assert list(state) == ["branch/main", *commits]
    assert len(state) == 61
    assert state.under("commit/") == commits
    assert state.under("commit/c003") == commits[30:40]
    assert dict(state)["commit/c0007"] == {"name": "c0007"}
    record = state.record("commit/c0007")
    assert record is not None
    assert (record.number, record.time) == (8, START + timedelta(hours=7))
    assert {key for key, _ in state.records_under("commit/")} == set(commits)
    assert "commit/other" not in state


def test_the_values_are_those_of_a_journal_without_an_archive(clock: Clock) -> None:
    archived, plain = MemoryStore(clock=clock), MemoryStore(clock=clock)
    journals = [_open(archived, clock), _open(plain, clock, None)]
    for number in range(40):
        for journal in journals:
            _commit(journal, f"c{number:04d}")
    assert dict(_open(archived, clock).state()) == dict(_open(plain, clock).state())


def test_opening_appending_and_recent_records_read_no_segment(store: ScriptedStore, clock: Clock) -> None:
    _filled(store, clock)
    store.asked.clear()
    journal = _open(store, clock)
    _commit(journal, "next")
    state = journal.state()
    assert state["commit/c0059"] == {"name": "c0059"}
    assert state.under("branch/") == ["branch/main"]
    assert _reads(store) == []


def test_a_pinned_record_stays(store: ScriptedStore, clock: Clock) -> None:
    journal = _open(store, clock)
    _commit(journal, "old", branch="dev")
    for number in range(60):
        _commit(journal, f"c{number:04d}")
    store.asked.clear()
    assert _open(store, clock).state()["commit/old"] == {"name": "old"}
    assert _reads(store) == []


def test_a_process_that_appends_for_long_holds_few_records(store: ScriptedStore, clock: Clock) -> None:
    journal = _filled(store, clock, 200)
    assert len(list(journal.state(refresh=False).loaded_records())) < 20


def test_a_process_that_appends_alone_reads_no_snapshot_again(store: ScriptedStore, clock: Clock) -> None:
    _filled(store, clock, 30)
    assert [call for call in store.asked if call.startswith("get refs/snapshots/")] == []


def test_segments_are_few(store: ScriptedStore, clock: Clock) -> None:
    _filled(store, clock, 400)
    assert len(_open(store, clock).state().archive.segments) <= 4


def test_a_deleted_record_is_gone_and_can_be_added_again(store: ScriptedStore, clock: Clock) -> None:
    journal = _filled(store, clock)
    journal.append(lambda state: [Delete("commit/c0003")])
    for handle in (journal, _open(store, clock)):
        assert "commit/c0003" not in handle.state()
        assert "commit/c0003" not in handle.state().under("commit/")
    for number in range(60, 80):
        _commit(journal, f"c{number:04d}")
    assert "commit/c0003" not in _open(store, clock).state(), "the snapshots since then say so"
    with pytest.raises(KeyMissing):
        journal.append(lambda state: [Delete("commit/c0003")])
    _commit(journal, "c0003")
    for number in range(80, 100):
        _commit(journal, f"c{number:04d}")
    state = _open(store, clock).state()
    assert state["commit/c0003"] == {"name": "c0003"}
    assert len(state.under("commit/")) == 100


def test_segments_lose_what_was_deleted(store: ScriptedStore, clock: Clock) -> None:
    journal = _filled(store, clock, 100)
    journal.append(lambda state: [Delete(key) for key in state.under("commit/")[:60]])
    for number in range(100, 120):
        _commit(journal, f"c{number:04d}")
    archive = _open(store, clock).state().archive
    assert sum(segment.count for segment in archive.segments) < 60
    assert not archive.removed


def test_a_reader_with_an_older_snapshot_finds_records_whose_segment_was_merged_and_deleted(
    store: ScriptedStore, clock: Clock
) -> None:
    _filled(store, clock, 30)
    reader = _open(store, clock)
    state = reader.state()
    names = {segment.name for segment in state.archive.segments}
    journal = _open(store, clock)
    for number in range(30, 300):
        _commit(journal, f"c{number:04d}")
    clock.advance(days=9)
    journal.purge(clock.now)
    assert not names.intersection(key.removeprefix("refs/") for key in _segments(store))
    assert state["commit/c0002"] == {"name": "c0002"}
    assert state.under("commit/c0002") == ["commit/c0002"]
    commits = {f"commit/c{number:04d}" for number in range(30)}
    assert set(state.under("commit/")) == commits, "not what was written since"
    assert {key for key, _ in state.records_under("commit/")} == commits
    assert "commit/c0002" in state


def test_purging_deletes_segments_that_no_snapshot_names_and_that_are_old(store: ScriptedStore, clock: Clock) -> None:
    journal = _filled(store, clock, 100)
    store.put("refs/archive/left-by-a-dead-writer.parquet", b"")
    clock.advance(days=7)
    journal.purge(clock.now)
    assert "refs/archive/left-by-a-dead-writer.parquet" in _segments(store)
    clock.advance(days=2)
    journal.purge(clock.now)
    named = {f"refs/{segment.name}" for segment in _open(store, clock).state().archive.segments}
    bases = {
        f"refs/{segment.name}"
        for meta in store.list("refs/bases/")
        for segment in JsonCodec().decode_snapshot(store.get(meta.key)).archive.segments
    }
    assert set(_segments(store)) == named | bases
    assert len(_open(store, clock).state()) == 101


def test_a_purged_journal_keeps_its_archive(store: ScriptedStore, clock: Clock) -> None:
    journal = _filled(store, clock, 100)
    clock.advance(days=20)
    journal.append(lambda state: [Add("x", 1)])
    journal.purge(clock.now)
    for meta in store.list("refs/snapshots/"):
        store.delete([meta.key])
    state = _open(store, clock).state()
    assert len(state.under("commit/")) == 100
    assert state["commit/c0000"] == {"name": "c0000"}


def test_two_processes_that_archive_in_turns_lose_nothing(store: ScriptedStore, clock: Clock) -> None:
    journals = [_open(store, clock) for _ in range(3)]
    for number in range(120):
        _commit(journals[number % 3], f"c{number:04d}")
    for journal in (*journals, _open(store, clock)):
        assert len(journal.state().under("commit/")) == 120


def test_a_process_whose_snapshot_another_one_replaced_goes_on_from_the_other(
    store: ScriptedStore, clock: Clock
) -> None:
    first = _filled(store, clock, count=19)
    second = _open(store, clock)
    second.state()

    def replaced(key: str, do: Do) -> ObjectMeta:
        if "snapshots/" in key:
            store.on_put = lambda _, do: do()
            second.purge(clock() - timedelta(days=9))  # which writes a snapshot of the same number before
        return do()

    store.on_put = replaced
    _commit(first, "c0019")
    for _ in range(20):  # so that the segments of the replaced snapshot are deleted, while its writer stays awake
        clock.advance(hours=12)
        second.state()
    _open(store, clock).purge(clock() - timedelta(days=9))
    for number in range(20, 28):
        _commit(second, f"c{number:04d}")
    assert _open(store, clock).state().under("commit/") == [f"commit/c{number:04d}" for number in range(28)]


def test_an_archived_record_that_is_added_again_stops_no_process_that_has_it_outside_of_the_archive(
    store: ScriptedStore, clock: Clock
) -> None:
    early = _open(store, clock)
    early.state()
    _filled(store, clock, count=20)
    assert early.state().is_loaded("commit/c0001")
    _open(store, clock).append(lambda state: [Add("commit/c0001", {"name": "c0001"})])
    assert early.state().number == 21
    early.append(lambda state: [Add("branch/new", "c0001")])
    assert list(early.state()) == list(_open(store, clock).state())


def test_deleting_archived_records_decodes_none(
    store: ScriptedStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = _filled(store, clock)
    monkeypatch.delattr(OpenSegment, "_decode")
    journal.append(lambda state: [Delete(f"commit/c{number:04d}") for number in range(20)])
    assert "commit/c0019" not in journal.state()
    assert "commit/c0020" in journal.state()


def test_records_that_are_archived_at_once_wait_for_no_newer_ones(store: ScriptedStore, clock: Clock) -> None:
    _filled(store, clock)
    journal = _open(store, clock, ArchiveRule("commit", _pinned, recent=1000, batch=5, at_once="commit-link/"))
    journal.append(lambda state: [Add(f"commit-link/c{number}", {"of": number}) for number in range(9)])
    journal.write_snapshot()
    state = _open(store, clock).state()
    assert not any(key.startswith("commit-link/") for key, _ in state.loaded_records())
    assert state["commit-link/c3"] == {"of": 3}
    assert len(state.under("commit-link/")) == 9
    assert dict(state.records_under("commit-link/"))["commit-link/c8"].value == {"of": 8}
    assert len(state.under("commit/")) == len(list(state.records_under("commit/"))) == 60, "the others, and no more"


def test_a_key_that_is_longer_than_all_archived_ones_is_missing(store: ScriptedStore, clock: Clock) -> None:
    _filled(store, clock)
    state = _open(store, clock).state()
    assert f"commit/{'c' * 99}" not in state
    assert state.under(f"commit/{'c' * 99}") == []


def test_a_missing_segment_is_named(store: ScriptedStore, clock: Clock) -> None:
    _filled(store, clock)
    keys = _segments(store)
    store.delete(keys)
    state = _open(store, clock).state()
    assert state["branch/main"] == "c0059"
    with pytest.raises(JournalDamaged, match=r"refs/archive/.*\.parquet is missing: restore it from a backup"):
        state["commit/c0000"]
    with pytest.raises(JournalDamaged, match="is missing"):
        state.under("commit/")
    with pytest.raises(JournalDamaged, match="is missing"):
        list(state.records_under("commit/"))


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"not a segment"])
def test_a_damaged_segment_is_named(store: ScriptedStore, clock: Clock, damage: bytes) -> None:
    _filled(store, clock)
    for key in _segments(store):
        store.put(key, damage)
    with pytest.raises(JournalDamaged, match=r"refs/archive/.* is damaged"):
        _open(store, clock).state()["commit/c0000"]


def test_an_append_that_cannot_archive_is_durable_all_the_same(
    store: ScriptedStore, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    journal = _filled(store, clock)
    for key in _segments(store):
        store.put(key, b"damaged")
    for number in range(60, 90):
        _commit(journal, f"c{number:04d}")
    assert _open(store, clock).state()["branch/main"] == "c0089"


def test_a_journal_with_an_archive_can_be_read_by_a_handle_without_a_rule(store: ScriptedStore, clock: Clock) -> None:
    _filled(store, clock)
    assert _open(store, clock, None).state()["commit/c0001"] == {"name": "c0001"}


@pytest.mark.parametrize("mode", ["before", "after"])
def test_dying_while_archiving(mode: FaultMode) -> None:
    start = Clock()
    filled = MemoryStore(clock=start)
    _filled(filled, start, 55)

    def prepared() -> tuple[MemoryStore, Clock]:
        clock = Clock()
        clock.advance(seconds=start.passed)
        store = MemoryStore(clock=clock)
        for meta in filled.list():
            store.put(meta.key, filled.get(meta.key))
        return store, clock

    def work(store: ObjectStore, clock: Clock) -> None:
        journal = _open(store, clock)
        for number in range(55, 67):
            _commit(journal, f"c{number:04d}")
        clock.advance(days=9)
        journal.purge(clock.now)

    inner, clock = prepared()
    counted = FaultStore(inner, 0)
    work(counted, clock)
    assert len(_segments(inner)) > 1
    for at in range(1, counted.operations + 1):
        inner, clock = prepared()
        with pytest.raises((StoreDied, StoreError)):
            work(FaultStore(inner, at, mode), clock)
        journal = _open(inner, clock)
        count = len(journal.state().under("commit/"))
        assert 55 <= count <= 67
        for number in range(count, count + 12):
            _commit(journal, f"c{number:04d}")
        assert _open(inner, clock).state().under("commit/") == [f"commit/c{n:04d}" for n in range(count + 12)]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_random_histories(seed: int) -> None:
    _check_history(seed)


@pytest.mark.exhaustive
@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6))
def test_many_random_histories(seed: int) -> None:
    _check_history(seed)


def _check_history(seed: int) -> None:
    """Do random appends, deletions and purges with three handles, and compare with a dictionary."""
    chance = random.Random(seed)
    clock = Clock()
    store = MemoryStore(clock=clock)
    journals = [_open(store, clock) for _ in range(3)]
    model: dict[str, object] = {}
    names = 0

    def append(journal: Journal) -> None:
        nonlocal names
        branch = f"branch/{chance.choice('ab')}"
        held = {f"commit/{value}" for key, value in model.items() if key.startswith("branch/")}
        actions: list[Action] = []
        for key in sorted(key for key in model if key.startswith("commit/") and key not in held):
            if chance.random() < 0.02:
                actions.append(Delete(key))
                del model[key]
        if chance.random() < 0.1 and (gone := sorted({f"commit/{n}" for n in range(names)} - model.keys())):
            name = chance.choice(gone).removeprefix("commit/")
        else:
            name, names = f"{names}", names + 1
        actions += [Add(f"commit/{name}", {"of": name}), (Update if branch in model else Add)(branch, name)]
        model[f"commit/{name}"], model[branch] = {"of": name}, name
        journal.append(lambda state: actions)

    for _ in range(chance.randrange(20, 90)):
        clock.advance(hours=chance.choice([1, 1, 1, 30, 200]))
        at = chance.randrange(3)
        if chance.random() < 0.05:
            journals[at].purge(clock.now)
        elif chance.random() < 0.1:
            journals[at] = _open(store, clock)
        else:
            append(journals[at])
        if chance.random() < 0.2:
            state = journals[chance.randrange(3)].state()
            assert dict(state) == model
    for journal in (*journals, _open(store, clock)):
        state = journal.state()
        assert dict(state) == model
        assert {key: record.value for key, record in state.records_under("")} == model
        assert state.under("commit/1") == sorted(key for key in model if key.startswith("commit/1"))


def test_threads_share_a_segment() -> None:
    records = [(f"commit/c{number:05d}", StateRecord({"n": number}, number, START)) for number in range(40_000)]
    segment = OpenSegment("segment", encode_segment(table_of(records)))

    start = Barrier(8)

    def read(seed: int) -> bool:
        sample = random.Random(seed).sample(records, 40)
        start.wait()
        return all(segment.record(key) == record for key, record in sample)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(16)))


def test_a_state_with_an_archive_can_be_pickled(tmp_path: Path, clock: Clock) -> None:
    state = _filled(LocalStore(tmp_path), clock).state()
    assert "commit/c0001" in state
    copy = pickle.loads(pickle.dumps(state))
    assert dict(copy) == dict(state)


def test_on_local_files(tmp_path: Path, clock: Clock) -> None:
    store = LocalStore(tmp_path)
    _filled(store, clock)
    assert len(_open(store, clock).state()) == 61


def test_reading_imports_no_pandas(tmp_path: Path, clock: Clock) -> None:
    """Commands of a lake with a long history would wait for it."""
    _filled(LocalStore(tmp_path), clock)
    read = (
        "from lake_core.journal import Journal\n"
        "from lake_core.store import LocalStore\n"
        f"assert len(Journal(LocalStore({str(tmp_path)!r}), 'refs').state()) == 61"
    )
    assert imported(read, ("pandas",)) == []
