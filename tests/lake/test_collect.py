"""Garbage collection: what is reachable stays whatever happens at the same time, the rest goes."""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lake_core import Lake
from lake_core.errors import LakeError, NotFound
from lake_core.lake.errors import Collected
from lake_core.lake.gc import collect
from lake_core.lake.gc.collect import CollectionRefused
from lake_core.lake.gc.retention import HISTORY
from lake_core.lake.refs.refs_state import RefsState
from lake_core.lake.state.content import OBJECTS, address_of, new_item
from lake_core.store import MemoryStore
from lake_core.testing import FaultStore
from lake_core.testing.fault_store import FaultMode, StoreDied
from lake_core.testing.manual_clock import ManualClock
from tests.lake.lakes import SCHEMA, create_tables, ids, opened, plain, rows
from tests.processes import run_together


def _content(store: MemoryStore) -> set[str]:
    return {meta.key for meta in store.list(f"{OBJECTS}/")}


def _files(store: MemoryStore, path: str) -> set[str]:
    return {meta.key for meta in store.list(f"{path}/") if "_delta_log" not in meta.key}


def test_what_no_retained_commit_reaches_goes(lake: Lake, store: MemoryStore, time: ManualClock) -> None:
    old = address_of(new_item(b"one", time()).entry.etag)
    assert old in _content(store)
    with lake.session() as s:
        s.put("notes.txt", b"two")
        s.delta("t/orders").overwrite(rows([1]))
    before = _files(store, "t/orders")
    time.pass_days(20)
    assert lake.maintenance.gc().keys == ()  # history is kept for 30 days
    time.pass_days(15)
    planned = lake.maintenance.gc(dry_run=True)
    assert old in planned.keys
    assert planned.bytes > 0
    assert old in _content(store)
    collected = lake.maintenance.gc()
    assert set(collected.keys) >= set(planned.keys)
    assert old not in _content(store)
    assert len(_files(store, "t/orders")) < len(before)
    assert lake.maintenance.verify() == []
    assert ids(lake.delta("t/orders")) == ids(plain(store, "t/orders")) == [1]
    assert bytes(lake.at().get("notes.txt")) == b"two"
    with pytest.raises(LakeError):
        lake.at("main~3")


def test_states_are_read_only_where_an_object_is_old(lake: Lake, time: ManualClock) -> None:
    phases: list[str] = []
    assert lake.maintenance.gc(dry_run=True, progress=lambda phase, _: phases.append(phase)).keys == ()
    assert phases == []
    time.pass_days(9)
    lake.maintenance.gc(dry_run=True, progress=lambda phase, _: phases.append(phase))
    assert phases == ["marked"]


def test_branches_tags_and_sessions_keep_what_they_reach(lake: Lake, store: MemoryStore, time: ManualClock) -> None:
    lake.create_branch("dev")
    lake.create_tag("v1")
    with lake.session("dev") as s:
        s.delta("t/orders").append(rows([50]))
    with lake.session() as s:
        s.delta("t/orders").overwrite(rows([1]))
        s.delete(["notes.txt"])
    time.pass_days(60)
    shared = lake.open_session("dev")
    with shared.join() as part:
        part.delta("t/orders").append(rows([60]))
        part.put("in-session", b"kept")
    with lake.session() as s:
        s.delta("t/orders").vacuum(retention=dt.timedelta(0), allow_unsafe=True)
    time.pass_days(0.5)
    lake.maintenance.gc()
    assert ids(lake.delta("t/orders", ref="dev")) == [*range(10), 50]
    assert ids(lake.delta("t/orders", ref="v1")) == list(range(10))
    assert ids(lake.delta("t/orders", ref=shared.id)) == [*range(10), 50, 60]
    assert bytes(lake.at(shared.id).get("in-session")) == b"kept"
    assert bytes(lake.at("v1").get("notes.txt")) == b"one"
    assert lake.maintenance.verify() == []
    shared.publish()
    lake.merge("dev")
    assert ids(lake.delta("t/orders")) == ids(plain(store, "t/orders")) == [1, 50, 60]


def test_unpublished_objects_live_longer_than_any_session(lake: Lake, store: MemoryStore, time: ManualClock) -> None:
    session = lake.session()
    session.put("late", b"late bytes")
    session.delta("t/orders").append(rows([77]))
    files = _files(store, "t/orders")
    time.pass_days(6.9)
    lake.maintenance.gc()
    assert _files(store, "t/orders") == files
    session.publish()
    assert bytes(lake.at().get("late")) == b"late bytes"
    assert 77 in ids(lake.delta("t/orders"))

    abandoned = lake.session()
    abandoned.put("never", b"never bytes")
    abandoned.delta("t/orders").append(rows([78]))
    abandoned.abandon()
    orphans = _files(store, "t/orders") - files
    time.pass_days(7.9)
    assert not set(lake.maintenance.gc().keys) & orphans
    time.pass_days(0.2)
    gone = lake.maintenance.gc().keys
    assert set(gone) & orphans
    assert address_of(new_item(b"never bytes", time()).entry.etag) in gone
    assert lake.maintenance.verify() == []


def test_a_session_older_than_a_week_is_refused(lake: Lake, time: ManualClock) -> None:
    session = lake.session()
    session.put("late", b"1")
    time.pass_days(7.1)
    with pytest.raises(LakeError, match="expired"):
        session.publish()


def test_foreign_files_are_never_touched(lake: Lake, store: MemoryStore, time: ManualClock) -> None:
    store.put("landing/zone.csv", b"1")
    store.put("t/elsewhere/part-0.parquet", b"1")
    time.pass_days(90)
    lake.maintenance.gc()
    assert store.exists("landing/zone.csv")
    assert store.exists("t/elsewhere/part-0.parquet")


def test_nothing_goes_where_a_live_dataset_cannot_be_read(lake: Lake, store: MemoryStore, time: ManualClock) -> None:
    with lake.session() as s:
        s.delta("t/orders").append(rows([5]))
    time.pass_days(60)
    with lake.session() as s:
        s.put("x", b"1")
    entry = lake.at().view.get("t/orders/_delta_log/00000000000000000001.json")
    assert entry is not None
    store.delete([entry.entry.address])
    before = {meta.key for meta in store.list()}
    with pytest.raises(CollectionRefused, match="nothing was deleted"):
        Lake.open(store, clock=time).maintenance.gc()
    assert before <= {meta.key for meta in store.list()}


def test_an_ended_retention_lets_files_of_history_go(lake: Lake, store: MemoryStore, time: ManualClock) -> None:
    with lake.session() as s:
        s.delta("t/orders").overwrite(rows([1]))
    time.pass_days(10)
    with lake.session() as s:
        s.delta("t/orders").vacuum()
    time.pass_days(0.1)
    assert lake.maintenance.gc().commits == 0, "history itself is kept for 30 days"
    assert len(_files(store, "t/orders")) <= 2
    assert ids(lake.delta("t/orders")) == [1]
    assert bytes(lake.at("main~1").get("notes.txt")) == b"one"


def test_plain_readers_keep_their_versions_for_the_tables_own_retention(
    lake: Lake, store: MemoryStore, time: ManualClock
) -> None:
    with lake.session() as s:
        s.delta("t/orders").set_properties({"delta.deletedFileRetentionDuration": "interval 60 days"})
    reader = plain(store, "t/orders")
    with lake.session() as s:
        s.delta("t/orders").overwrite(rows([1]))
    time.pass_days(45)
    lake.maintenance.gc()
    assert ids(reader) == list(range(10))


def _condemn(lake: Lake, keys: list[str]) -> str:
    repository = lake.repository
    return collect._announce(repository, keys, (), collect._Marks(repository, HISTORY))


def _finish(lake: Lake, id: str) -> list[str]:
    marks = collect._Marks(lake.repository, HISTORY)
    return collect._finish(lake.repository, id, marks, lambda phase, count: None)


def test_content_to_be_deleted_that_a_publish_reuses_is_put_again(
    lake: Lake, store: MemoryStore, time: ManualClock
) -> None:
    digest = new_item(b"garbage", time()).entry.etag
    garbage = address_of(digest)
    store.put(garbage, b"garbage")
    session = lake.session()
    session.put("again", b"garbage")  # found stored already
    id = _condemn(lake, [garbage])
    session.publish()
    assert _finish(lake, id) == [garbage]
    assert not store.exists(garbage)
    assert store.exists(address_of(digest, 1))
    assert bytes(lake.at().get("again")) == b"garbage"
    # On record for longer than any session: one that began before is still warned.
    with lake.session() as s:
        s.put("third", b"garbage")
    assert bytes(lake.at().get("third")) == b"garbage"
    assert lake.maintenance.verify() == []


def test_a_range_that_would_have_the_name_of_one_to_be_deleted_gets_another(lake: Lake, store: MemoryStore) -> None:
    twin = Lake.open(store, clock=ManualClock())
    session = lake.session()
    session.put("a", b"1")
    tree = twin.session()
    tree.put("a", b"1")
    applied = lake.repository.graveler.build(
        lake.at().view.tree,
        iter([(b"a", tree.view.get("a").record("a"))]),  # type: ignore[union-attr]
    )
    id = _condemn(lake, [f"_lakefs/{name}" for name in lake.repository.graveler.names(applied.tree)])
    session.publish()
    assert applied.tree != lake.at().view.tree
    _finish(lake, id)
    fresh = Lake.open(store, clock=ManualClock())
    assert bytes(fresh.at().get("a")) == b"1"
    assert fresh.maintenance.verify() == []


def test_what_was_published_after_marking_is_spared(lake: Lake, store: MemoryStore, time: ManualClock) -> None:
    digest = new_item(b"spared", time()).entry.etag
    store.put(address_of(digest), b"spared")
    with lake.session() as s:
        s.put("kept", b"spared")  # published between the marks and the entry that condemns
    id = _condemn(lake, [address_of(digest)])
    assert _finish(lake, id) == []
    assert bytes(lake.at().get("kept")) == b"spared"


def test_a_data_file_that_is_being_collected_cannot_be_brought_back(lake: Lake, store: MemoryStore) -> None:
    with lake.session() as s:
        s.delta("t/orders").overwrite(rows([1]))
    old = _files(store, "t/orders")
    _condemn(lake, sorted(old))
    with pytest.raises(Collected):
        lake.revert("main")


@pytest.mark.parametrize(
    ("mode", "sampled"),
    [
        ("before", 7),
        ("after", 11),
        pytest.param("before", 1, marks=pytest.mark.exhaustive),
        pytest.param("after", 3, marks=pytest.mark.exhaustive),
    ],
)
def test_a_collection_interrupted_anywhere_is_safe_to_repeat(mode: FaultMode, sampled: int) -> None:
    def new_store() -> tuple[MemoryStore, ManualClock]:
        time = ManualClock()
        store = MemoryStore(clock=time)
        lake = Lake.create(store, clock=time)
        create_tables(lake, "t/a", "t/b")
        for number in range(3):
            with lake.session() as s:
                s.put("file", b"%d" % number)
                s.delta("t/a").overwrite(rows([number]))
        time.pass_days(60)
        return store, time

    store, time = new_store()
    whole = FaultStore(store, 0)
    garbage = Lake.open(whole, clock=time).maintenance.gc().keys
    assert len(garbage) > 5
    for at in range(1, whole.operations + 1, sampled):
        store, time = new_store()
        dying = FaultStore(store, at, mode)
        with suppress(StoreDied, CollectionRefused):
            Lake.open(dying, clock=time).maintenance.gc()
        lake = opened(store, time)
        assert ids(lake.delta("t/a")) == ids(plain(store, "t/a")) == [2]
        assert ids(lake.delta("t/b")) == list(range(10))
        with lake.session() as s:
            s.put("old again", b"0")  # content that is garbage
        lake.maintenance.gc()
        assert bytes(lake.at().get("old again")) == b"0"
        assert lake.maintenance.verify() == []
        assert lake.maintenance.gc(dry_run=True).keys == ()


COMMON = [b"common content %d" % number for number in range(8)]
DAYS = 60


def _later() -> dt.datetime:
    return dt.datetime.now(dt.UTC) + dt.timedelta(days=DAYS)


def _publisher(root: str, worker: int, count: int) -> None:
    """Put and delete files, overwrite a table, and use content again after it was garbage."""
    lake = Lake.open(root)
    number = tries = 0
    while number < count:
        tries += 1
        assert tries < 20 * count
        try:
            with lake.session(message=f"{worker}/{number}") as s:
                for file in range(6):
                    s.put(f"{worker}/junk-{file}", b"%d %d %d" % (worker, number, file))
                    if number % 3 == 0:
                        with suppress(NotFound):
                            s.delete([f"{worker}/common-{file}"])
                    else:
                        s.put(f"{worker}/common-{file}", COMMON[(number + file) % len(COMMON)])
                s.create_delta(f"t/{worker}", SCHEMA, exist_ok=True).overwrite(rows([number]))
        except (Collected, NotFound, LakeError) as error:
            # By the collector's clock everything is two months old, so unpublished objects are collected too. Such
            # publishes are refused.
            assert (
                "collected" in str(error)
                or "missing" in str(error)
                or "does not exist" in str(error)
                or isinstance(error, NotFound)
            ), error
            continue
        number += 1
    Path(f"{root}.{worker}").write_text(str(tries - count))


def _collector(root: str, workers: int) -> None:
    lake = Lake.open(root, clock=_later)
    total = 0
    start = time.monotonic()
    while len(list(Path(root).parent.glob(f"{Path(root).name}.*"))) < workers:
        assert time.monotonic() - start < 1200
        total += len(lake.maintenance.gc().keys)
    total += len(lake.maintenance.gc().keys)
    Path(f"{root}-collected").write_text(str(total))


def _work(root: str, worker: int, workers: int, count: int) -> None:
    if worker == workers:
        _collector(root, workers)
    else:
        _publisher(root, worker, count)


def _race(folder: Path, workers: int, count: int, garbage: int) -> tuple[int, int]:
    """Run publishers against a collector.

    Return how many objects were collected, and how many were put again elsewhere.
    """
    root = str(folder / "lake")
    lake = Lake.create(root)
    for content in [*COMMON, *(b"garbage %d" % number for number in range(garbage))]:
        lake.repository.content.store(new_item(content, _later()))
    for path in (folder / "lake/_lake/objects").rglob("*"):
        os.utime(path, (0, 0))
    run_together(_work, [(root, worker, workers, count) for worker in range(workers + 1)])
    lake = Lake.open(root, clock=_later)
    assert lake.maintenance.verify() == []
    for worker in range(workers):
        assert ids(lake.delta(f"t/{worker}")) == ids(plain(lake.repository.root, f"t/{worker}")) == [count - 1]
        at = lake.at()
        assert [bytes(at.get(f"{worker}/junk-{file}")) for file in range(6)] == [
            b"%d %d %d" % (worker, count - 1, file) for file in range(6)
        ]
        if (count - 1) % 3:
            assert [bytes(at.get(f"{worker}/common-{file}")) for file in range(6)] == [
                COMMON[(count - 1 + file) % 8] for file in range(6)
            ]
    again = sum("-" in meta.key.rsplit("/", 1)[-1] for meta in lake.repository.root.list(f"{OBJECTS}/"))
    print(json.dumps({"collected": int(Path(f"{root}-collected").read_text()), "again": again}))
    return int(Path(f"{root}-collected").read_text()), again


def test_collecting_while_others_publish(tmp_path: Path) -> None:
    collected, _ = _race(tmp_path, workers=2, count=5, garbage=200)
    assert collected >= 200


@pytest.mark.stress
@pytest.mark.timeout(1800)
def test_collecting_a_thousand_objects_while_eight_publish(tmp_path: Path) -> None:
    collected, again = _race(tmp_path, workers=7, count=60, garbage=500)
    assert collected >= 1000
    assert again >= 1


def test_commits_named_by_nothing_cannot_be_named_again(lake: Lake, time: ManualClock) -> None:
    old = lake.log()[1].id
    with lake.session() as s:
        s.put("x", b"1")
    time.pass_days(60)
    lake.maintenance.gc()
    refs = RefsState(lake.repository.journal.state())
    assert f"commit/{old}" not in refs.state
    with pytest.raises(LakeError):
        lake.create_branch("late", at=old)


def _private(lake: Lake) -> Callable[[], object]:
    session = lake.session()
    session.delta("t/orders").append(rows([7]))
    session.put("new.txt", b"new")
    return session.publish


def _kept_after_a_conflict(lake: Lake) -> Callable[[], object]:
    session = lake.session()
    session.put("notes.txt", b"mine")
    with lake.session() as other:
        other.put("notes.txt", b"theirs")
    return session.publish


def _update(name: str, *arguments: str, **options: Any) -> Callable[[Lake], Callable[[], object]]:
    """Return what makes the call that takes changes of `dev` over, or undoes them."""
    return lambda lake: partial(getattr(lake, name), *arguments, **options)


WRITERS: dict[str, Callable[[Lake], Callable[[], object]]] = {
    "private": _private,
    "failed": _kept_after_a_conflict,
    "merge": _update("merge", "dev"),
    "squash": _update("merge", "dev", squash=True),
    "pick": _update("cherry_pick", "dev", onto="main"),
    "revert": _update("revert", "dev", branch="dev"),
    "tag": _update("create_tag", "late", at="dev"),
    "branch": _update("create_branch", "late", at="dev"),
}


@pytest.mark.parametrize("days", [10, 20, 45])
@pytest.mark.parametrize("name", WRITERS)
def test_a_process_that_is_suspended_before_its_entry_publishes_nothing_that_was_collected(
    name: str, days: int, lake: Lake, store: MemoryStore, time: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection runs each day, also after the first one is forgotten."""
    lake.create_branch("dev")
    with lake.session("dev") as session:
        session.delta("t/orders").append(rows([8]))
        session.put("dev.txt", b"of dev")
    publish = WRITERS[name](lake)
    journal = lake.repository.journal
    append = journal.append

    def suspended(plan: Any) -> Any:
        monkeypatch.setattr(journal, "append", append)
        others = opened(store, time)
        for day in range(days):
            time.pass_days(1)
            if day == 0 and name != "revert":
                others.delete_branch("dev")
            others.maintenance.gc()
        return append(plan)

    monkeypatch.setattr(journal, "append", suspended)
    with suppress(LakeError):
        publish()
    now = opened(store, time)
    assert now.maintenance.verify() == []
    for ref in (*now.list_branches(), *now.list_tags()):
        assert now.delta("t/orders", ref=ref).to_arrow().num_rows > 0
    for record in now.list_sessions():
        assert record.state in ("published", "expired") or now.get_session(record.id).delta("t/orders").to_arrow()
