"""Garbage collection beside what happens at one exact moment of it: between its marks, its lists and its deletions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.journal import Add, Delete, Journal
from lake_core.lake.errors import Collected, Conflict, ContentGone, DatasetNotFound
from lake_core.lake.gc import collect
from lake_core.lake.publish import merge
from lake_core.lake.refs.pending_deletions import PREFIX, DeletionLists, encode_list
from lake_core.lake.refs.refs_state import RefsState
from lake_core.store import FolderStore, MemoryStore
from lake_core.testing import FaultStore
from lake_core.testing.fault_store import StoreDied
from lake_core.testing.manual_clock import ManualClock
from tests.lake.lakes import create_tables, ids, opened, rows

WEEK = timedelta(days=7)


def _lake(*contents: bytes) -> tuple[Lake, MemoryStore, ManualClock]:
    """Return a lake with a commit per content of the file `f`."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    lake = Lake.create(store, clock=clock)
    for content in contents:
        with lake.session() as s:
            s.put("f", content)
    return lake, store, clock


def _with_versions() -> tuple[Lake, MemoryStore, ManualClock]:
    """Return a lake with a table, whose version 1 is past the retention."""
    lake, store, clock = _lake(b"f")
    create_tables(lake, "t/a")
    for number in (1, 2):
        with lake.session() as s:
            s.delta("t/a").overwrite(rows([number]))
    clock.pass_days(60)
    with lake.session() as s:
        s.put("f", b"another")
    return lake, store, clock


def _act(
    patch: pytest.MonkeyPatch,
    step: str,
    *,
    before: Callable[[], Any] = bool,
    after: Callable[[], Any] = bool,
    at: int,
    of: object = collect,
) -> None:
    """Let another process act before or after a step of collection is taken for the `at`-th time."""
    real, calls = getattr(of, step), 0

    def taken(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        is_due = calls == at
        if is_due:
            before()
        result = real(*arguments, **options)
        if is_due:
            after()
        return result

    patch.setattr(of, step, taken)


def test_threads_with_refs_of_different_times_find_all_lists() -> None:
    store = MemoryStore()
    journal = Journal(store, "refs")
    names = ["old", "new", "newest"]
    for name in names:
        store.put(f"list {name}", encode_list([name]))
    old, new, newest = (Add(f"{PREFIX}{name}", {"list": f"list {name}"}) for name in names)
    journal.append(lambda _: [old])
    earlier = RefsState(journal.state())
    journal.append(lambda _: [Delete(old.key), new, newest])
    later = RefsState(journal.state())
    reads, is_reading, go_on = 0, threading.Event(), threading.Event()

    class Slow(FaultStore):
        def _get(self, key: str, start: int | None, end: int | None) -> Any:
            nonlocal reads
            reads += 1
            if reads == 2:
                is_reading.set()
                assert go_on.wait(10)
            return super()._get(key, start, end)

    lists = DeletionLists(Slow(store, 0))
    pending: list[frozenset[str]] = []
    thread = threading.Thread(target=lambda: pending.append(lists.pending(later).keys))
    thread.start()
    assert is_reading.wait(10)
    assert lists.pending(earlier).keys == {"old"}
    go_on.set()
    thread.join()
    assert pending == [{"new", "newest"}]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_branch_begins_only_at_a_commit_whose_objects_are_kept(
    monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    """The refs keep a commit, but no ref names it when the final list is made."""
    lake, store, clock = _lake(b"one", b"two", b"three")
    old = lake.log()[1].id
    clock.pass_days(60)
    other = opened(store, clock)
    if is_late:  # it uses what is listed, and is past the retention when a later collector continues

        def publish() -> None:
            nonlocal old
            for content in (b"two", b"four"):
                with other.session() as s:
                    s.put("f", content)
            old = other.log()[1].id

        with monkeypatch.context() as patch:
            _act(patch, "_announce", before=publish, at=1)
            patch.setattr(collect, "_finish", lambda *arguments: [])
            lake.maintenance.gc()
        clock.pass_days(40)
        with other.session() as s:
            s.put("f", b"five")
        clock.pass_days(40)
        _act(monkeypatch, "_announce", before=lambda: other.create_branch("late", at=old), at=1)
    else:  # a branch was there when the commit would have been removed
        _act(
            monkeypatch,
            "_announce",
            before=lambda: other.create_branch("early", at=old),
            after=lambda: other.delete_branch("early"),
            at=1,
        )
    lake.maintenance.gc()
    if not is_late:
        other.create_branch("late", at=old)
    assert other.maintenance.verify() == []
    assert bytes(other.at("late").get("f")) == b"two"


def test_a_cherry_pick_of_a_commit_that_a_collection_drops_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    lake, store, clock = _lake(b"f")
    lake.create_branch("side")
    with lake.session(branch="side") as s:
        s.put("picked", b"precious")
    clock.pass_days(60)
    publish = merge.commit_to_branch
    refused: list[ContentGone] = []

    def publish_late(*arguments: Any) -> Any:
        """Publish when the commit is no longer retained, and it is decided what will be deleted."""

        def try_to_publish() -> None:
            with pytest.raises(ContentGone) as caught:
                publish(*arguments)
            refused.append(caught.value)

        other = opened(store, clock)
        other.delete_branch("side")
        with pytest.MonkeyPatch.context() as patch:
            _act(patch, "add", after=try_to_publish, at=2, of=collect._Marks)
            other.maintenance.gc()
        raise refused[0]

    monkeypatch.setattr(merge, "commit_to_branch", publish_late)
    with pytest.raises(ContentGone):
        lake.cherry_pick("side", onto="main")
    assert opened(store, clock).maintenance.verify() == []


def test_a_flush_does_not_bring_back_files_that_a_collection_deletes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork of the session might be published when the collection is forgotten."""
    lake, store, clock = _with_versions()
    session = lake.open_session(expires_in=WEEK)
    writer = opened(store, clock).get_session(session.id).join()

    def restore() -> None:
        writer.delta("t/a").restore(version=1)
        with pytest.raises(Collected):
            writer.flush()

    _act(monkeypatch, "add", after=restore, at=2, of=collect._Marks)
    assert lake.maintenance.gc().keys
    assert writer.state == "open"
    assert lake.maintenance.verify() == []


def test_a_session_that_uses_collected_files_is_not_kept() -> None:
    lake, store, clock = _with_versions()
    session = opened(store, clock).session()
    session.delta("t/a").restore(version=1)
    session.put("f", b"mine")
    with lake.session() as s:
        s.put("f", b"theirs")
    assert lake.maintenance.gc().keys
    clock.pass_days(6.9)
    with pytest.raises(Conflict) as raised:
        session.publish()
    assert raised.value.session is None
    assert lake.list_sessions() == []
    assert lake.maintenance.verify() == []


def test_a_fork_uses_nothing_that_a_collection_deletes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session ends, and is collected, while it is forked."""
    lake, store, clock = _lake(b"f")
    session = lake.open_session(expires_in=WEEK)
    with session.join() as part:
        part.put("g", b"forked")
    forking = opened(store, clock).get_session(session.id)
    append = forking._repository.journal.append

    def append_late(plan: Any) -> Any:
        clock.pass_days(60)
        lake.get_session(session.id).abandon()
        lake.maintenance.gc()
        return append(plan)

    monkeypatch.setattr(forking._repository.journal, "append", append_late)
    with pytest.raises(Exception, match=r"abandoned|expired|does not exist"):
        forking.fork()
    assert opened(store, clock).maintenance.verify() == []


def test_a_list_that_is_named_late_is_not_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector is suspended for days between the put of its list and the entry that names it."""
    lake, store, clock = _lake(b"old", b"new")
    clock.pass_days(60)
    with lake.session() as s:
        s.put("f", b"newest")
    slow, other = opened(store, clock), opened(store, clock)
    append = slow.repository.journal.append
    results: list[Any] = []

    def append_late(plan: Any) -> Any:
        if "announce" not in getattr(plan, "func", plan).__qualname__ or results:
            return append(plan)
        clock.pass_days(9)
        with pytest.MonkeyPatch.context() as patch:
            _act(patch, "_decide", before=lambda: results.append(append(plan)), at=1)
            other.maintenance.gc()
        if not results:
            results.append(append(plan))
        _check_lists(other)
        return results[0]

    monkeypatch.setattr(slow.repository.journal, "append", append_late)
    slow.maintenance.gc()
    assert results
    _check_lists(other)
    assert other.maintenance.verify() == []


def _check_lists(lake: Lake) -> None:
    for value in lake.repository.refs().under(PREFIX).values():
        assert lake.repository.root.exists(value["list"])


def test_publishers_with_older_refs_find_the_first_list_until_all_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher of an earlier release would not notice that the final list has replaced it."""
    lake, store, clock = _lake(b"old", b"new")
    clock.pass_days(60)
    with lake.session() as s:
        s.put("f", b"newest")
    seen: list[frozenset[str]] = []
    refs: list[RefsState] = []
    _act(monkeypatch, "_announce", after=lambda: refs.append(lake.repository.refs()), at=1)
    pending = lambda: seen.append(DeletionLists(store).pending(refs[0]).keys)  # noqa: E731
    _act(monkeypatch, "_decide", before=lambda: (_renew(opened(store, clock), b"old"), pending()), after=pending, at=1)
    opened(store, clock).maintenance.gc()
    assert seen[0] == seen[1]
    _check_lists(lake)


def _renew(lake: Lake, content: bytes) -> None:
    with lake.session() as s:
        s.put("again", content)


def _others(store: MemoryStore, clock: ManualClock) -> DeltaTable:
    return DeltaTable.open(FolderStore(store, "t/a"), clock=clock)


def test_a_release_that_dies_leaves_the_files_of_others_alone() -> None:
    at, is_over = 30, False
    while not is_over:
        at += 1
        _, store, clock = _with_versions()
        try:
            opened(FaultStore(store, at), clock).maintenance.release("t/a")
            is_over = True
        except StoreDied:
            with suppress(DatasetNotFound):
                opened(store, clock).maintenance.release("t/a")
        _others(store, clock).append(rows([3]))
        for number in range(2):
            clock.pass_days(40)
            with opened(store, clock).session() as s:
                s.put("f", b"%d" % number)
            opened(store, clock).maintenance.gc()
        assert ids(_others(store, clock)) == [2, 3], f"died at {at}"
    assert at > 40


def test_a_collection_spares_what_was_released_since_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    _, store, clock = _with_versions()
    with monkeypatch.context() as patch:
        patch.setattr(collect, "_finish", lambda *arguments: [])
        opened(store, clock).maintenance.gc()
    opened(store, clock).maintenance.release("t/a")
    _others(store, clock).restore(version=1)
    assert opened(store, clock).maintenance.gc().keys
    assert ids(_others(store, clock)) == [1]


def test_a_table_is_not_imported_while_its_files_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    lake, store, clock = _with_versions()

    def import_again() -> None:
        other = opened(store, clock)
        other.maintenance.release("t/a")
        _others(store, clock).restore(version=1)
        session = other.session()
        session.import_delta("t/a")
        with pytest.raises(Collected):
            session.publish()

    _act(monkeypatch, "delete_listed", before=import_again, at=1)
    lake.maintenance.gc()
    assert lake.maintenance.verify() == []
