"""A lake with a long history: old commits are archived, and all that asks for them finds them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from lake_core import Lake
from lake_core.graveler import Commit
from lake_core.journal import Action, Add, Delete, Update
from lake_core.lake.errors import RefNotFound
from lake_core.lake.gc.collect import CollectionRefused
from lake_core.lake.refs.commit_record import commit_value
from lake_core.store import MemoryStore, ObjectStore
from lake_core.testing.manual_clock import ManualClock
from tests.journal.stores import ScriptedStore

COMMITS = 1000
START = datetime(2026, 1, 1, tzinfo=UTC)


def write_history(store: ObjectStore, *, version: int = 2) -> list[str]:
    """Create a lake in which main and an old branch have many commits; return main's, oldest first."""
    Lake.create(store, clock=ManualClock(START))
    body = json.loads(store.get("_lake/format.json")) | {"version": version}
    store.put("_lake/format.json", json.dumps(body).encode())
    lake = Lake.open(store, clock=ManualClock(START))
    journal = lake.repository.journal
    refs = lake.repository.refs()
    commits = [refs.commit(refs.branch("main"))]
    for number in range(1, COMMITS):
        date = START + timedelta(minutes=number)
        commit = Commit.create("ada", f"commit {number}", date, "", parents=(commits[-1],))
        actions: list[Action] = [
            Add(f"commit/{commit.id}", commit_value(commit)),
            Update("branch/main", {"commit": commit.id}),
            Update("place/main", {"commit": commit.id}),
        ]
        if number == 5:
            actions.append(Add("branch/old", {"commit": commit.id}))
        journal.append(lambda state, actions=actions: actions)
        commits.append(commit)
    return [commit.id for commit in commits]


@pytest.fixture(scope="module")
def history() -> tuple[MemoryStore, list[str]]:
    store = MemoryStore()
    return store, write_history(store)


@pytest.fixture
def commits(history: tuple[MemoryStore, list[str]]) -> list[str]:
    return history[1]


@pytest.fixture
def store(history: tuple[MemoryStore, list[str]]) -> ScriptedStore:
    copy = MemoryStore()
    for meta in history[0].list():
        copy.put(meta.key, history[0].get(meta.key))
    return ScriptedStore(copy)


def test_the_whole_log_is_there(store: ScriptedStore, commits: list[str]) -> None:
    assert [commit.id for commit in Lake.open(store).log()] == commits[::-1]


def test_old_commits_are_found_by_id_prefix_and_expression(store: ScriptedStore, commits: list[str]) -> None:
    lake = Lake.open(store)
    assert lake.log(commits[3], limit=1)[0].message == "commit 3"
    assert lake.log(commits[3][:12], limit=1)[0].id == commits[3]
    assert lake.log("main~900", limit=1)[0].id == commits[-901]
    with pytest.raises(RefNotFound):
        lake.log("0" * 64)


def _publish(lake: Lake) -> None:
    with lake.session() as s:
        s.put("file", b"new")


@pytest.mark.parametrize(
    "use",
    [
        Lake.status,
        Lake.list_branches,
        lambda lake: lake.log(limit=10),
        lambda lake: lake.log("old", limit=1),
        lambda lake: lake.diff("main~1", "main"),
        lambda lake: lake.at("old").exists("file"),
        lambda lake: lake.create_branch("dev"),
        _publish,
    ],
    ids=["status", "branches", "log", "log of an old branch", "diff", "read an old branch", "branch", "publish"],
)
def test_daily_work_reads_no_archived_commit(store: ScriptedStore, use: Callable[[Lake], object]) -> None:
    use(Lake.open(store))
    assert [call for call in store.asked if "archive/" in call] == []


def test_an_old_branch_is_merged(store: ScriptedStore, commits: list[str]) -> None:
    lake = Lake.open(store)
    with lake.session("old") as s:
        s.put("late", b"1")
    lake.merge("old", into="main")
    assert lake.at().get("late") == b"1"


def test_garbage_collection_removes_archived_commits(store: ScriptedStore, commits: list[str]) -> None:
    now = START + timedelta(days=60)
    lake = Lake.open(store, clock=ManualClock(now))
    collected = lake.maintenance.gc()
    assert collected.commits == COMMITS - 2, "all but the heads of main and of the old branch"
    assert [commit.id for commit in Lake.open(store).log()] == commits[-1:]
    assert [commit.id for commit in Lake.open(store).log("old")] == [commits[5]]


def test_opening_a_lake_reads_no_link_of_a_collected_commit(store: ScriptedStore, commits: list[str]) -> None:
    clock = ManualClock(START + timedelta(days=60))
    Lake.open(store, clock=clock).maintenance.gc()
    store.asked.clear()
    lake = Lake.open(store, clock=clock)
    _publish(lake)
    assert [call for call in store.asked if "archive/" in call] == []
    assert not any(key.startswith("commit-link/") for key, _ in lake.repository.refs().state.loaded_records())
    link = lake.repository.refs().link(commits[500])
    assert link is not None
    assert (link.parents, link.has_content) == ((commits[499],), False)


def test_a_collection_keeps_the_archived_commits_of_its_history(store: ScriptedStore, commits: list[str]) -> None:
    lake = Lake.open(store, clock=ManualClock(START + timedelta(days=8, minutes=499, seconds=30)))
    lake.maintenance.gc(history=timedelta(days=8))
    assert [commit.id for commit in Lake.open(store).log()] == commits[:498:-1]


def test_a_damaged_archive_is_reported_and_nothing_is_collected(store: ScriptedStore) -> None:
    for meta in store.list("_lake/refs/archive/"):
        store.put(meta.key, b"damaged")
    problems = Lake.open(store).maintenance.verify()
    assert [(problem.kind, problem.key) for problem in problems] == [("unreadable", "_lake/refs")]
    assert "_lake/refs/archive/" in problems[0].detail
    with pytest.raises(CollectionRefused):
        Lake.open(store).maintenance.gc()


def test_a_lake_of_version_1_stays_as_it_is_until_it_is_upgraded() -> None:
    store = MemoryStore()
    commits = write_history(store, version=1)
    assert list(store.list("_lake/refs/archive/")) == []
    lake = Lake.open(store)
    assert lake.maintenance.upgrade() == 3
    assert lake.maintenance.upgrade() == 3, "a second time changes nothing"
    assert list(store.list("_lake/refs/archive/")) != []
    assert json.loads(store.get("_lake/format.json"))["version"] == 3
    assert [commit.id for commit in Lake.open(store).log()] == commits[::-1]
    assert [commit.id for commit in lake.log()] == commits[::-1], "the handle that was open goes on"


def test_a_handle_that_was_open_before_an_upgrade_publishes() -> None:
    store = MemoryStore()
    write_history(store, version=1)
    before = Lake.open(store)
    before.log(limit=1)
    Lake.open(store).maintenance.upgrade()
    for number in range(70):
        with before.session() as s:
            s.put("file", b"%d" % number)
    assert len(Lake.open(store).log()) == COMMITS + 70


def test_an_archived_commit_that_a_collection_let_go_is_gone_for_other_handles(
    store: ScriptedStore, commits: list[str]
) -> None:
    lake = Lake.open(store)
    lake.log()
    Lake.open(store).repository.journal.append(lambda state: [Delete(f"commit/{commits[10]}")])
    with pytest.raises(RefNotFound):
        lake.log(commits[10])
