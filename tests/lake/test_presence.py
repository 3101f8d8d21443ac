"""No publish references an object that is gone: what a publish brings back is looked up before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from lake_core import Lake
from lake_core.delta.errors import DataFileMissing
from lake_core.icechunk.errors import SnapshotNotFound
from lake_core.lake.errors import Collected
from lake_core.lake.session.write_session import WriteSession
from lake_core.pool.errors import ObjectsVacuumed
from lake_core.store import MemoryStore
from lake_core.testing.manual_clock import ManualClock
from tests.journal.stores import ScriptedStore
from tests.lake.arrays import create_array, set_chunk
from tests.lake.lakes import rows

FORMATS = ["table", "pool", "array"]


@pytest.fixture
def store(time: ManualClock) -> ScriptedStore:
    return ScriptedStore(MemoryStore(clock=time))


@pytest.fixture
def lake(store: ScriptedStore, time: ManualClock) -> Lake:
    return Lake.create(store, clock=time)


def create(session: WriteSession) -> None:
    session.create_delta("table", rows([]).schema)
    session.create_pool("pool", key="k", order="asc")
    create_array(session.create_icechunk("array").store)


def write(session: WriteSession, format: str) -> None:
    """Write what is replaced later."""
    if format == "table":
        session.delta("table").append(rows([1]))
    elif format == "pool":
        session.pool("pool").load([{"k": 1}])
    else:
        set_chunk(session.icechunk("array").store, 1, 1)


def replace(session: WriteSession, format: str) -> None:
    """Replace what was written, so that its objects are not needed any longer."""
    if format == "table":
        session.delta("table").overwrite(rows([2]))
    elif format == "pool":
        session.pool("pool").delete("k = 1")
    else:
        set_chunk(session.icechunk("array").store, 1, 2)


def end_retention(session: WriteSession, format: str) -> None:
    if format == "table":
        session.delta("table").vacuum("0 hours", allow_unsafe=True)
    elif format == "pool":
        session.pool("pool").vacuum(retention=timedelta(0))
    else:
        repository = session.icechunk("array")
        repository.expire_snapshots(session.clock())


def commit(lake: Lake, change: Callable[[WriteSession, str], None], format: str, branch: str = "main") -> str:
    with lake.session(branch) as s:
        change(s, format)
    return lake.repository.refs().branch(branch)


def forget(lake: Lake, time: ManualClock, format: str) -> None:
    """Delete what only older commits reach, and let the list of the deleted objects expire. The commits stay."""
    time.pass_days(10)
    commit(lake, end_retention, format)
    time.pass_days(1)
    assert lake.maintenance.gc().keys
    time.pass_days(9)
    with lake.session() as s:
        s.put("other", b"%d" % len(lake.log()))
    lake.maintenance.gc()
    assert lake.repository.refs().under("collection/") == {}


@pytest.mark.parametrize("format", FORMATS)
def test_a_revert_to_collected_objects_is_refused(lake: Lake, time: ManualClock, format: str) -> None:
    with lake.session() as s:
        create(s)
    commit(lake, write, format)
    replaced = commit(lake, replace, format)
    forget(lake, time, format)
    before = lake.log()[0].id
    with pytest.raises(Collected, match="write the data again") as refused:
        lake.revert(replaced)
    assert "a tag keeps" in str(refused.value)
    assert f"{format}/" in str(refused.value) or "manifests/" in str(refused.value), "it names what is gone"
    assert lake.log()[0].id == before
    assert lake.maintenance.verify() == []


@pytest.mark.parametrize("format", FORMATS)
def test_a_pick_of_collected_objects_is_refused(lake: Lake, time: ManualClock, format: str) -> None:
    with lake.session() as s:
        create(s)
    lake.create_branch("dev")
    written = commit(lake, write, format)
    commit(lake, replace, format)
    forget(lake, time, format)
    with pytest.raises(Collected):
        lake.cherry_pick(written, onto="dev")
    assert lake.maintenance.verify() == []


@pytest.mark.parametrize("format", FORMATS)
def test_a_merge_of_a_commit_that_was_named_too_late_is_refused(lake: Lake, time: ManualClock, format: str) -> None:
    with lake.session() as s:
        create(s)
    lake.create_branch("dev")
    written = commit(lake, write, format, "dev")
    commit(lake, replace, format, "dev")
    forget(lake, time, format)
    lake.create_branch("late", at=written)
    with pytest.raises(Collected):
        lake.merge("late")
    assert "late" in lake.list_branches()
    problems = {problem.key.partition("/")[0] for problem in lake.maintenance.verify()}
    assert problems <= {format}, "of the branch, not of main"
    lake.delete_branch("late")
    assert lake.maintenance.verify() == []


@pytest.mark.parametrize("format", FORMATS)
def test_a_revert_to_objects_that_are_there_succeeds(lake: Lake, time: ManualClock, format: str) -> None:
    with lake.session() as s:
        create(s)
    kept = commit(lake, write, format)
    lake.create_tag("kept", at=kept)
    replaced = commit(lake, replace, format)
    time.pass_days(10)
    commit(lake, end_retention, format)
    lake.maintenance.gc()
    lake.revert(replaced)
    assert lake.maintenance.verify() == []


def test_a_restored_plain_file_is_always_there(lake: Lake, time: ManualClock) -> None:
    with lake.session() as s:
        create(s)
        s.put("file", b"1")
    with lake.session() as s:
        s.delete(["file"])
    deleted = lake.log()[0].id
    commit(lake, write, "table")
    commit(lake, replace, "table")
    forget(lake, time, "table")
    lake.revert(deleted)
    assert lake.at().get("file") == b"1"


def test_a_table_is_not_restored_to_collected_files(lake: Lake, time: ManualClock) -> None:
    with lake.session() as s:
        create(s)
    commit(lake, write, "table")
    version = lake.delta("table").version
    commit(lake, replace, "table")
    forget(lake, time, "table")
    with pytest.raises(DataFileMissing, match="cannot be restored"), lake.session() as s:
        s.delta("table").restore(version)
    assert lake.maintenance.verify() == []


def test_a_pool_is_not_restored_to_collected_objects(lake: Lake, time: ManualClock) -> None:
    with lake.session() as s:
        create(s)
    commit(lake, write, "pool")
    commit(lake, replace, "pool")
    replaced = next(iter(lake.pool("pool").log())).id
    forget(lake, time, "pool")
    with pytest.raises(ObjectsVacuumed), lake.session() as s:
        s.pool("pool").revert(replaced)
    assert lake.maintenance.verify() == []


def test_a_repository_is_not_reset_to_collected_chunks(lake: Lake, time: ManualClock) -> None:
    with lake.session() as s:
        create(s)
    commit(lake, write, "array")
    snapshot = lake.icechunk("array").lookup_branch("main")
    commit(lake, replace, "array")
    with lake.session() as s:
        s.icechunk("array").reset_branch("main", snapshot)
        s.abandon()
    forget(lake, time, "array")
    with pytest.raises(SnapshotNotFound, match="were collected"), lake.session() as s:
        s.icechunk("array").reset_branch("main", snapshot)
    assert lake.maintenance.verify() == []


def test_an_ended_retention_does_not_begin_again(lake: Lake, time: ManualClock) -> None:
    with lake.session() as s:
        create(s)
    commit(lake, write, "table")
    time.pass_days(10)
    commit(lake, end_retention, "table")
    ended = lake.repository.refs().under("retention/")
    assert set(ended) == {"table"}
    with lake.session() as s:
        s.delta("table").vacuum()
    assert lake.repository.refs().under("retention/") == ended


def test_usual_publishes_and_merges_look_up_nothing(lake: Lake, store: ScriptedStore) -> None:
    with lake.session() as s:
        create(s)
    lake.create_branch("dev")
    store.asked.clear()
    for format in FORMATS:
        commit(lake, write, format, "dev")
    lake.merge("dev")
    looks = [call for call in store.asked if call.startswith("head") and call.partition(" ")[2].startswith("table/")]
    assert store.asked
    assert [call for call in looks if call.endswith(".parquet")] == []
