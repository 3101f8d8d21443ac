"""Sessions: private ones, shared ones with epochs, batches and attempts, and what becomes of those that fail."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import time as wall
from pathlib import Path
from typing import Any

import pytest

from lake_core import Lake
from lake_core.delta.errors import ManagedTable, MixedRearrangement
from lake_core.errors import AlreadyExists, InvalidKey, NotFound, PreconditionFailed
from lake_core.lake import SharedSession
from lake_core.lake.errors import (
    Conflict,
    DatasetExists,
    DatasetNotFound,
    ReadOnly,
    SessionClosed,
    StaleAttempt,
    StaleEpoch,
)
from lake_core.lake.publish.commit_to_branch import commit_to_branch
from lake_core.lake.repository import Repository
from lake_core.lake.session import publish_session
from lake_core.lake.session.read_record import ReadRecord
from lake_core.store import MemoryStore
from lake_core.testing.manual_clock import ManualClock
from tests.lake.lakes import SCHEMA, create_tables, ids, plain, rows, values
from tests.processes import CONTEXT


def test_a_private_session_is_seen_whole_or_not_at_all(lake: Lake, store: MemoryStore) -> None:
    pinned = lake.at("main")
    with lake.session(message="two things") as s:
        s.delta("t/orders").append(rows([50]))
        s.delta("t/orders").append(rows([51]))
        s.put("notes.txt", b"two")
        assert ids(s.delta("t/orders")) == [*range(10), 50, 51]
        assert bytes(s.get("notes.txt")) == b"two"
        assert ids(lake.delta("t/orders")) == ids(plain(store, "t/orders")) == list(range(10))
    assert s.result is not None
    assert s.result.versions == {"t/orders": 1}
    assert ids(lake.delta("t/orders")) == ids(plain(store, "t/orders")) == [*range(10), 50, 51]
    assert plain(store, "t/orders").version == 1, "one publish, one version"
    assert ids(pinned.delta("t/orders")) == list(range(10))
    assert bytes(pinned.get("notes.txt")) == b"one"
    assert lake.log()[0].message == "two things"
    assert s.publish() == s.result


def test_an_error_abandons_it(lake: Lake, store: MemoryStore) -> None:
    before = lake.list_branches()
    with pytest.raises(ZeroDivisionError), lake.session() as s:
        s.delta("t/orders").append(rows([50]))
        s.put("x", b"1")
        raise ZeroDivisionError
    assert lake.list_branches() == before
    assert ids(plain(store, "t/orders")) == list(range(10))
    with pytest.raises(SessionClosed):
        s.put("y", b"1")
    with pytest.raises(SessionClosed):
        s.publish()


def test_a_session_is_an_object_store(lake: Lake) -> None:
    with lake.session() as s:
        first = s.put("a/x", b"1", if_absent=True)
        with pytest.raises(AlreadyExists):
            s.put("a/x", b"2", if_absent=True)
        with pytest.raises(PreconditionFailed):
            s.put("a/x", b"2", if_match="other")
        s.put("a/x", b"2", if_match=first.etag)
        s.put("a/y/z", b"3")
        assert [meta.key for meta in s.list("a/")] == ["a/x", "a/y/z"]
        assert s.list_folders("a/") == ["y"]
        assert s.list_folders() == ["a", "t"]
        s.delete(["a/y/z", "never-there"])
        with pytest.raises(NotFound):
            s.get("a/y/z")
        with pytest.raises(InvalidKey):
            s.put("_lake/x", b"")
        with pytest.raises(InvalidKey):
            s.put("t/orders", b"")
    assert bytes(lake.at().get("a/x", 0, 1)) == b"2"
    with pytest.raises(ReadOnly, match="session"):
        lake.at("main").put("x", b"1")
    with pytest.raises(ReadOnly):
        lake.at("main").delete(["a/x"])


def test_a_put_never_replaces_a_data_file(lake: Lake) -> None:
    file = f"t/orders/{lake.delta('t/orders').files(['path'])['path'][0].as_py()}"
    session = lake.session()
    with pytest.raises(AlreadyExists):
        session.put(file, b"garbage")
    with pytest.raises(ReadOnly):
        session.put(file, b"garbage", if_match="x")
    with pytest.raises(ReadOnly):
        session.delete(["notes.txt", "t/orders/_delta_log/00000000000000000000.json"])
    session.delete([file])
    assert session.exists("notes.txt"), "a refused deletion deleted something"
    session.publish()
    assert ids(lake.delta("t/orders")) == list(range(10))


def test_tables_do_not_nest_and_do_not_take_the_place_of_files(lake: Lake, store: MemoryStore) -> None:
    store.put("landing/somebody.csv", b"1")
    with lake.session() as s:
        s.put("files/a", b"1")
        for path in ("t/orders", "t/orders/inner", "t", "files", "landing"):
            with pytest.raises(DatasetExists):
                s.create_delta(path, SCHEMA)
        for path in ("_lake/x", ".hidden", ""):
            with pytest.raises(InvalidKey):
                s.create_delta(path, SCHEMA)
        with pytest.raises(DatasetNotFound, match="t/orders"):
            s.delta("t/other")
        assert sorted(s.datasets()) == ["t/orders"]


def test_dropping_and_creating_again_goes_on_with_the_log(lake: Lake, store: MemoryStore) -> None:
    with lake.session() as s:
        s.delta("t/orders").append(rows([50]), txn=("job", 3))
    with lake.session() as s:
        s.drop("t/orders")
        with pytest.raises(DatasetNotFound):
            s.delta("t/orders")
    assert lake.list_datasets() == []
    assert ids(plain(store, "t/orders")) == []
    assert ids(lake.delta("t/orders", ref="main~1")) == [*range(10), 50]
    with lake.session() as s:
        result = s.create_delta("t/orders", SCHEMA).append(rows([1]), txn=("job", 3))
        assert not result.skipped, "the marker belongs to the dropped table"
    assert ids(lake.delta("t/orders")) == ids(plain(store, "t/orders")) == [1]
    assert plain(store, "t/orders").version == 3
    with lake.session() as s:
        s.drop("t/orders")
        s.create_delta("t/orders", SCHEMA, partition_by=["p"]).append(rows([2]))
    assert ids(lake.delta("t/orders")) == ids(plain(store, "t/orders")) == [2]
    assert plain(store, "t/orders").version == 4


def test_markers_make_a_repeated_batch_a_no_op(lake: Lake) -> None:
    for expected in (False, True):
        with lake.session() as s:
            assert s.delta("t/orders").append(rows([70]), txn=("orders", 7)).skipped is expected
    assert ids(lake.delta("t/orders")) == [*range(10), 70]
    # Two at once: the later one finds it when it publishes.
    first, second = lake.session(), lake.session()
    for session in (first, second):
        session.delta("t/orders").append(rows([80]), txn=("orders", 8))
    second.put("also", b"1")
    first.publish()
    result = second.publish()
    assert [write.path for write in result.skipped] == ["t/orders"]
    assert bytes(lake.at().get("also")) == b"1"
    assert ids(lake.delta("t/orders")) == [*range(10), 70, 80]


def test_reverting_lowers_the_marker_again(lake: Lake, store: MemoryStore) -> None:
    with lake.session() as s:
        s.delta("t/orders").append(rows([70]), txn=("orders", 7))
    lake.revert("main")
    assert ids(lake.delta("t/orders")) == ids(plain(store, "t/orders")) == list(range(10))
    with lake.session() as s:
        assert not s.delta("t/orders").append(rows([70]), txn=("orders", 7)).skipped
    assert ids(lake.delta("t/orders")) == [*range(10), 70]


def test_a_session_rearranges_a_table_or_changes_it(lake: Lake) -> None:
    with lake.session() as s:
        for id in range(20, 24):
            s.delta("t/orders").append(rows([id]))
    with lake.session() as s:
        s.delta("t/orders").optimize()
        with pytest.raises(MixedRearrangement):
            s.delta("t/orders").append(rows([90]))
        s.put("x", b"1")
    history = lake.delta("t/orders").history()
    assert history[0]["operation"] == "OPTIMIZE"
    assert ids(lake.delta("t/orders")) == [*range(10), 20, 21, 22, 23]
    # A rearrangement does not conflict with appends.
    first, second = lake.session(), lake.session()
    first.delta("t/orders").append(rows([30]))
    first.delta("t/orders").append(rows([31]))
    first.publish()
    with lake.session() as s:
        s.delta("t/orders").append(rows([32]))
    second.delta("t/orders").optimize()
    second.publish()
    assert ids(lake.delta("t/orders")) == [*range(10), 20, 21, 22, 23, 30, 31, 32]


def test_others_cannot_write_past_the_lake(lake: Lake, store: MemoryStore) -> None:
    table = plain(store, "t/orders")
    for write in (
        lambda: table.append(rows([1])),
        lambda: table.delete(),
        table.vacuum,
        table.checkpoint,
        table.optimize,
    ):
        with pytest.raises(ManagedTable, match=r"Lake\.open"):
            write()
    assert ids(table) == list(range(10))


def test_a_shared_session_is_written_by_parts_and_published_once(lake: Lake, store: MemoryStore) -> None:
    opened = lake.open_session("main", message="shared")
    with pytest.raises(ReadOnly):
        opened.put("x", b"1")
    first, second = opened.join(), opened.join()
    first.delta("t/orders").append(rows([50]))
    first.put("a", b"1")
    assert ids(second.delta("t/orders")) == list(range(10)), "not flushed yet"
    first.flush()
    second.delta("t/orders").append(rows([51]))
    second.flush()
    assert ids(second.delta("t/orders")) == [*range(10), 50, 51]
    assert bytes(second.get("a")) == b"1"
    assert ids(lake.delta("t/orders", ref=opened.id)) == [*range(10), 50, 51]
    assert ids(lake.delta("t/orders")) == list(range(10))
    result = opened.publish()
    assert result.versions == {"t/orders": 1}
    assert opened.publish().commit == result.commit
    assert ids(plain(store, "t/orders")) == [*range(10), 50, 51]
    assert lake.log()[0].message == "shared"
    first.put("late", b"1")
    with pytest.raises(SessionClosed, match="published"):
        first.flush()
    with pytest.raises(SessionClosed):
        opened.abandon()


def test_parts_that_change_the_same_conflict(lake: Lake) -> None:
    opened = lake.open_session()
    first, second = opened.join(), opened.join()
    first.put("same", b"1")
    second.put("same", b"2")
    first.delta("t/orders").delete("id = 1")
    second.delta("t/orders").update({"v": "5"}, "id = 1")
    first.flush()
    with pytest.raises(Conflict) as caught:
        second.flush()
    assert caught.value.keys == ("same",)
    assert caught.value.datasets == ("t/orders",)
    assert opened.publish().versions == {"t/orders": 1}


def test_resuming_fences_what_came_before(lake: Lake) -> None:
    opened = lake.open_session(id="run-1")
    stale = lake.get_session("run-1", epoch=opened.epoch).join()
    stale.put("stale", b"1")
    resumed = lake.open_session(id="run-1")
    assert (opened.epoch, resumed.epoch) == (1, 2)
    with pytest.raises(StaleEpoch):
        stale.flush()
    with pytest.raises(StaleEpoch):
        lake.get_session("run-1", epoch=opened.epoch).join()
    with lake.get_session("run-1", epoch=resumed.epoch).join() as part:
        part.put("fresh", b"1")
    lake.get_session("run-1").publish()
    assert lake.at().exists("fresh")
    assert not lake.at().exists("stale")


@pytest.mark.parametrize("state", ["open", "failed"])
def test_who_takes_a_session_over_alone_can_publish_it(lake: Lake, state: str) -> None:
    opened = lake.open_session(id="run-1")
    with opened.join() as part:
        part.put("rows", b"1")
    if state == "failed":
        opened.fail("its worker does not answer")
    settled = lake.get_session("run-1")
    settled.fence()
    with pytest.raises(StaleEpoch):
        lake.get_session("run-1", epoch=opened.epoch).publish()
    assert not lake.at().exists("rows")
    assert settled.record.state == state
    settled.publish()
    assert lake.at().exists("rows")


def test_a_session_that_another_process_has_resumed_is_not_taken_over(lake: Lake) -> None:
    opened = lake.open_session(id="run-1")
    resumed = lake.open_session(id="run-1")
    opened.fence()
    with resumed.join() as part:
        part.put("rows", b"1")
    resumed.publish()
    opened.fence()
    assert lake.get_session("run-1").record.is_published


def test_a_later_attempt_replaces_an_earlier_one(lake: Lake) -> None:
    opened = lake.open_session()

    def attempt(number: int, ids_: list[int]) -> None:
        with opened.join(task="orders", attempt=number) as part:
            part.delta("t/orders").append(rows(ids_), txn=("job", 1))
            part.put("report", b"%d" % number)

    attempt(0, [50])
    with opened.join(task="other") as part:
        part.put("other", b"1")
    attempt(0, [51])  # the same attempt is there already
    assert ids(lake.delta("t/orders", ref=opened.id)) == [*range(10), 50]
    attempt(2, [52])
    with pytest.raises(StaleAttempt):
        attempt(1, [53])
    result = opened.publish()
    assert ids(lake.delta("t/orders")) == [*range(10), 52]
    assert bytes(lake.at().get("report")) == b"2"
    assert lake.at().exists("other")
    assert result.versions == {"t/orders": 1}


def test_an_attempt_that_others_have_built_on_cannot_be_replaced(lake: Lake) -> None:
    opened = lake.open_session()
    with opened.join(task="orders", attempt=0) as part:
        part.delta("t/orders").append(rows([50]))
    with opened.join() as part:
        part.delta("t/orders").update({"v": "9"}, "id = 50")
    message = r"other tasks build on it: session .* conflicts with these changes in 1 place\. .*\. Discard those tasks"
    with pytest.raises(Conflict, match=message), opened.join(task="orders", attempt=1) as part:
        part.delta("t/orders").append(rows([51]))


def test_a_conflict_keeps_the_session_and_the_rest_can_go_on(lake: Lake, store: MemoryStore) -> None:
    create_tables(lake, "t/lines")
    session = lake.session()
    session.delta("t/orders").overwrite(rows([1]))
    session.delta("t/lines").append(rows([60]))
    session.put("report", b"1")
    with lake.session() as s:
        s.delta("t/orders").append(rows([50]))
    with pytest.raises(Conflict) as caught:
        session.publish()
    error = caught.value
    assert error.datasets == ("t/orders",)
    assert error.kinds == {"t/orders": "ConcurrentAppend"}
    assert error.commit == lake.log()[0].id
    assert error.session == session.id
    assert [session.state for session in lake.list_sessions()] == ["failed"]
    assert ids(lake.delta("t/orders", ref=session.id)) == [1]
    with pytest.raises(SessionClosed):
        lake.get_session(session.id).join()
    fork = lake.get_session(session.id).fork(without=["t/orders"])
    assert fork.lineage == session.id
    lake.get_session(fork.id).publish()
    assert ids(lake.delta("t/lines")) == [*range(10), 60]
    assert ids(lake.delta("t/orders")) == [*range(10), 50]
    assert bytes(lake.at().get("report")) == b"1"
    assert ids(plain(store, "t/lines")) == [*range(10), 60]
    # The failed one can be resumed too, and conflicts again as long as nothing changed.
    lake.open_session(id=session.id)
    with pytest.raises(Conflict):
        lake.get_session(session.id).publish()


def test_sessions_expire_by_an_entry(lake: Lake, time: ManualClock) -> None:
    opened = lake.open_session(expires_in=dt.timedelta(hours=1))
    part = opened.join()
    part.put("x", b"1")
    time.pass_days(0.03)
    part.flush()  # renews
    time.pass_days(0.03)
    assert opened.join().exists("x")
    time.pass_days(0.1)
    part.put("y", b"1")
    with pytest.raises(SessionClosed, match="expired"):
        part.flush()
    assert lake.repository.refs().session(opened.id).state == "expired"
    assert lake.list_sessions() == []
    with pytest.raises(SessionClosed, match="expired"):
        opened.publish()
    for wrong in (dt.timedelta(0), dt.timedelta(days=8)):
        with pytest.raises(ValueError, match="7 days"):
            lake.open_session(expires_in=wrong)


def test_abandoned_sessions_leave_nothing(lake: Lake) -> None:
    opened = lake.open_session()
    with opened.join() as part:
        part.put("x", b"1")
    opened.abandon()
    opened.abandon()
    assert not lake.at().exists("x")
    assert lake.list_sessions() == []
    assert [session.state for session in lake.list_sessions(include_ended=True)] == ["abandoned"]
    with pytest.raises(SessionClosed):
        opened.publish()


def test_serializable_sessions_may_rely_on_what_they_read(lake: Lake) -> None:
    """The foo and bar of two arrays: what is written to bar depends on what was read of foo."""
    with lake.session() as s:
        s.put("foo", b"1")
        s.put("bar", b"1")
    for isolation, refused in (("snapshot", False), ("serializable", True)):
        session = lake.session(isolation=isolation)  # type: ignore[arg-type]
        session.put("bar", bytes(session.get("foo")) + b"!")
        with lake.session() as s:
            s.put("foo", isolation.encode())
        if not refused:
            session.publish()
            continue
        with pytest.raises(Conflict) as caught:
            session.publish()
        assert caught.value.kinds == {"foo": "ReadChanged"}
    reader = lake.session(isolation="serializable")
    assert reader.exists("foo")
    with lake.session() as s:
        s.put("foo", b"changed")
    reader.publish()  # it wrote nothing, so it cannot conflict
    lake.settings.update(isolation="serializable")
    # Two that only write do not rely on anything.
    first, second = lake.session(), lake.session()
    for number, session in enumerate((first, second)):
        session.delta("t/orders").append(rows([40 + number]))
        session.put(f"own-{number}", b"1")
    first.publish()
    second.publish()
    shared = lake.open_session()
    with shared.join() as part:
        assert part.exists("foo")
        assert ids(part.delta("t/orders")) == [*range(10), 40, 41]
        part.put("bar", b"2")
    with lake.session(isolation="snapshot") as s:
        s.delta("t/orders").append(rows([50]))
    with pytest.raises(Conflict, match="it was read here, and changed there"):
        shared.publish()


def _change(lake: Lake, key: str) -> None:
    with lake.session(isolation="snapshot") as s:
        s.put(key, b"changed")


@pytest.fixture
def foo(lake: Lake) -> Lake:
    """A lake whose sessions are serializable, with a file `foo`."""
    with lake.session() as s:
        s.put("foo", b"1")
    lake.settings.update(isolation="serializable")
    return lake


def test_forks_rely_on_what_the_first_session_read(foo: Lake) -> None:
    opened = foo.open_session()
    with opened.join() as part:
        part.put("bar", bytes(part.get("foo")))
        part.put("own", b"1")
    fork = opened.fork(without=["bar"])
    again = fork.fork()
    assert list(again.record.reads) == ["foo"]
    _change(foo, "foo")
    for session in (opened, fork, again):
        with pytest.raises(Conflict) as caught:
            session.publish()
        assert caught.value.kinds == {"foo": "ReadChanged"}
        assert caught.value.is_stale
    assert not foo.at().exists("own")


def test_a_private_session_that_was_kept_relies_on_what_it_read(foo: Lake) -> None:
    session = foo.session(id="reader")
    session.put("bar", bytes(session.get("foo")))
    _change(foo, "foo")
    with pytest.raises(Conflict, match=r"in a new session, which reads what is there now$"):
        session.publish()
    kept = foo.get_session("reader")
    assert list(kept.record.reads) == ["foo"]
    assert kept.record.isolation == "serializable"
    resumed = foo.open_session(id="reader", isolation="snapshot")
    with resumed.join() as part:
        part.put("more", b"1")
    for again in (resumed.fork(), resumed):
        with pytest.raises(Conflict):
            again.publish()


def test_a_session_relies_on_what_was_read_before_it_began(foo: Lake) -> None:
    record = ReadRecord()
    state = foo.at(on_read=record.add)
    assert len(state.delta("t/orders").to_arrow()) == 10
    assert bytes(state.get("foo")) == b"1"
    assert not state.exists("absent")
    before = foo.list_branches()["main"]
    assert record.by_commit() == {before: {"t/orders/*", "foo", "absent"}}
    _change(foo, "other")
    session = foo.session()
    session.put("bar", b"1")
    for commit, reads in record.by_commit().items():
        session.rely_on(commit, *reads)
    _change(foo, "absent")
    with pytest.raises(Conflict) as caught:
        session.publish()
    assert caught.value.kinds == {"absent": "ReadChanged"}
    late = foo.session()
    with pytest.raises(Conflict, match="do the work again") as caught:
        late.rely_on(before, "foo", "absent")
    assert caught.value.kinds == {"absent": "ReadChanged"}
    assert [commit.id for commit in caught.value.contradictions[0].commits] == [foo.list_branches()["main"]]
    foo.session(isolation="snapshot").rely_on(before, "absent")


def test_a_shared_session_relies_on_what_is_read_outside_of_its_writers(foo: Lake) -> None:
    opened = foo.open_session(id="run")
    state = foo.at("run", on_read=foo.get_session("run").rely_on)
    with opened.join() as part:
        assert len(state.delta("t/orders").to_arrow()) == 10
        part.put("bar", b"1")
    assert list(opened.record.reads) == []
    assert list(foo.get_session("run").record.reads) == ["t/orders/*"]
    _change(foo, "foo")
    with pytest.raises(Conflict):
        opened.rely_on(foo.list_branches()["main"], "foo")
    with foo.session(isolation="snapshot") as s:
        s.delta("t/orders").append(rows([50]))
    with pytest.raises(Conflict) as caught:
        opened.publish()
    assert set(caught.value.kinds.values()) == {"ReadChanged"}
    opened.rely_on(opened.commit, "late")
    assert list(foo.get_session("run").record.reads) == ["t/orders/*"], "it accepts no more writes"


def test_change_data_is_told_once_and_whole(lake: Lake, store: MemoryStore) -> None:
    with lake.session() as s:
        s.create_delta("t/cdf", SCHEMA, properties={"delta.enableChangeDataFeed": "true"}).append(rows(range(4)))
    with lake.session() as s:
        s.delta("t/cdf").append(rows([10]))
        s.delta("t/cdf").update({"v": "7"}, "id = 1")
        s.delta("t/cdf").delete("id = 2")
    feed = plain(store, "t/cdf").changes(1).read_all()
    rows_ = sorted(zip(feed["_change_type"].to_pylist(), feed["id"].to_pylist(), feed["v"].to_pylist(), strict=True))
    assert rows_ == [("delete", 2, 0), ("insert", 10, 0), ("update_postimage", 1, 7), ("update_preimage", 1, 0)]
    assert values(lake.delta("t/cdf")) == {0: 0, 1: 7, 3: 0, 10: 0}


def _orphan(root: str, session: str, epoch: int) -> None:
    lake = Lake.open(root)
    part = lake.get_session(session, epoch=epoch).join()
    part.delta("t/orders").append(rows([666]))
    part.put("orphan", b"1")
    Path(f"{root}.ready").touch()
    while not Path(f"{root}.go").exists():
        wall.sleep(0.02)
    try:
        part.flush()
    except (SessionClosed, StaleEpoch) as error:
        Path(f"{root}.refused").write_text(type(error).__name__)


def test_a_stopped_process_that_wakes_up_after_the_publish_is_refused(tmp_path: Path) -> None:
    root = str(tmp_path / "lake")
    lake = Lake.create(root)
    create_tables(lake, "t/orders")
    opened = lake.open_session(id="run")
    orphan = CONTEXT.Process(target=_orphan, args=(root, "run", opened.epoch))
    orphan.start()
    assert orphan.pid is not None
    while not Path(f"{root}.ready").exists():
        wall.sleep(0.02)
    os.kill(orphan.pid, signal.SIGSTOP)
    resumed = lake.open_session(id="run")
    with lake.get_session("run", epoch=resumed.epoch).join() as part:
        part.delta("t/orders").append(rows([50]))
    lake.get_session("run").publish()
    Path(f"{root}.go").touch()
    os.kill(orphan.pid, signal.SIGCONT)
    orphan.join(30)
    assert Path(f"{root}.refused").exists()
    assert ids(lake.delta("t/orders")) == ids(plain(lake.repository.root, "t/orders")) == [*range(10), 50]
    assert not lake.at().exists("orphan")
    assert lake.maintenance.verify() == []


def test_a_handle_writes_and_publishes_at_its_own_epoch(lake: Lake) -> None:
    first = lake.open_session("main")
    resumed = lake.open_session("main", id=first.id)
    with pytest.raises(StaleEpoch):
        first.join()
    with pytest.raises(StaleEpoch):
        first.publish()
    first.fail("too late to say")
    assert lake.get_session(first.id).record.state == "open"
    assert lake.get_session(first.id).epoch == resumed.epoch


def test_a_publisher_of_an_older_epoch_is_refused(lake: Lake) -> None:
    """It would publish half of what the process does that has resumed the session."""
    first = lake.open_session("main")
    resumed = lake.open_session("main", id=first.id)
    with lake.get_session(first.id, epoch=resumed.epoch).join() as part:
        part.put("half", b"1")
    with pytest.raises(StaleEpoch, match="resumed"):
        lake.get_session(first.id, epoch=first.epoch).publish()
    assert not lake.at("main").exists("half")
    assert lake.get_session(first.id).record.state == "open"
    lake.get_session(first.id, epoch=resumed.epoch).publish()
    assert lake.at("main").exists("half")


def test_a_failed_session_is_kept_for_as_long_as_is_asked(lake: Lake, time: ManualClock) -> None:
    handle = lake.open_session("main")
    with handle.join() as part:
        part.put("a", b"1")
    lake.get_session(handle.id, epoch=handle.epoch - 1).fail("a check said no", keep=dt.timedelta(hours=2))
    assert lake.get_session(handle.id).record.state == "open", "a process that has lost the session says nothing of it"
    handle.fail("a check said no", keep=dt.timedelta(hours=2))
    record = lake.get_session(handle.id).record
    assert (record.state, record.reason) == ("failed", "a check said no")
    assert bytes(lake.at(handle.id).get("a")) == b"1"
    with pytest.raises(SessionClosed, match="a check said no"):
        handle.join()
    handle = lake.open_session("main", id=handle.id)
    handle.fail("again", keep=dt.timedelta(hours=2))
    time.pass_days(0.125)
    assert lake.get_session(handle.id).record.state == "expired"
    handle.fail("too late")
    assert lake.get_session(handle.id).record.state == "expired"


def test_batches_have_the_same_names_in_the_journal_as_ever(lake: Lake) -> None:
    opened = lake.open_session(id="run")
    with opened.join(task="orders", attempt=2) as writer:
        writer.put("x", b"1")
    state = lake.repository.journal.state()
    (key,) = state.under("batch/run/")
    batch = state[key]
    assert batch.keys() == {"id", "part", "before", "after", "output", "attempt", "done"}
    assert (batch["part"], batch["output"], batch["attempt"], batch["done"]) == (writer.id, "orders", 2, True)


def _of_version(store: MemoryStore, version: int) -> Lake:
    """Return a lake as another format version has it."""
    body = json.loads(store.get("_lake/format.json")) | {"version": version}
    store.put("_lake/format.json", json.dumps(body).encode())
    return Lake.open(store)


def test_the_entry_of_a_flush_does_not_grow_with_the_session(lake: Lake) -> None:
    opened = lake.open_session(id="run")
    sizes = []
    for number in range(8):
        with opened.join(task=str(number)) as writer:
            writer.put(str(number), b"1")
        entry = lake.repository.journal.entry(lake.repository.journal.head())
        sizes.append(len(lake.repository.journal._reader.codec.encode(entry)))
    assert max(sizes) < 1.1 * min(sizes)
    assert len(lake.get_session("run").record.batches) == 8


@pytest.mark.parametrize("upgraded", [False, True])
def test_a_session_of_an_earlier_version_goes_on(upgraded: bool) -> None:
    store = MemoryStore()
    Lake.create(store)
    lake = _of_version(store, 2)
    lake.open_session(id="run")
    with lake.get_session("run").join(task="a", attempt=0) as writer:
        writer.put("a", b"first")
    assert lake.repository.journal.state().under("batch/") == []
    if upgraded:
        lake.maintenance.upgrade()
        lake = Lake.open(store)
    with lake.get_session("run").join(task="b") as writer:
        writer.put("b", b"1")
    with lake.get_session("run").join(task="a", attempt=1) as writer:
        writer.put("a2", b"second")
    state = lake.get_session("run")
    assert [batch.task for batch in state.record.batches] == ["b", "a"]
    assert not state.exists("a"), "the later attempt replaced the earlier one, wherever its batch is"
    with pytest.raises(StaleAttempt):
        lake.get_session("run").join(task="a", attempt=0)
    state.publish()
    assert sorted(meta.key for meta in lake.at().list()) == ["a2", "b"]


def test_a_collection_lets_the_batches_of_a_published_session_go(lake: Lake) -> None:
    opened = lake.open_session(id="run")
    with opened.join(task="a") as writer:
        writer.put("a", b"1")
    kept = lake.open_session(id="other")
    with kept.join(task="a") as writer:
        writer.put("b", b"1")
    opened.publish()
    lake.maintenance.gc()
    state = lake.repository.journal.state()
    assert state.under("batch/run/") == []
    assert len(state.under("batch/other/")) == 1
    assert opened.publish().commit == lake.log(limit=1)[0].id, "repeated, the same result"


def test_a_conflict_of_an_older_handle_leaves_the_session_to_who_resumed_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process resumes the session while the publish is at work, which then finds a conflict."""
    first = lake.open_session(id="run")
    with first.join(task="x") as writer:
        writer.put("notes.txt", b"mine")
    with lake.session() as other:
        other.put("notes.txt", b"theirs")

    resumed: list[SharedSession] = []

    def late(repository: Repository, source: Any, *rest: Any) -> Any:
        try:
            return commit_to_branch(repository, source, *rest)
        finally:
            resumed.append(lake.open_session(id="run"))

    monkeypatch.setattr(publish_session, "commit_to_branch", late)
    with pytest.raises(Conflict):
        first.publish()
    assert len(resumed) == 1
    assert lake.get_session("run").record.state == "open"


@pytest.mark.parametrize("hours", [1, 100])
def test_a_session_that_fails_by_a_conflict_is_kept_as_long_as_its_publisher_says(
    lake: Lake, time: ManualClock, hours: int
) -> None:
    session = lake.open_session(id="run")
    with session.join() as writer:
        writer.put("notes.txt", b"mine")
    with lake.session() as other:
        other.put("notes.txt", b"theirs")
    with pytest.raises(Conflict):
        session.publish(keep=dt.timedelta(hours=hours))
    kept = lake.get_session("run").record.expires - time()
    assert kept / dt.timedelta(hours=1) == pytest.approx(hours, abs=0.01)
