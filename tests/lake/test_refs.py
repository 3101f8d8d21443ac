"""Branches, tags, ref expressions, the log, protected branches."""

from __future__ import annotations

import pytest

from lake_core import Lake
from lake_core.errors import LakeError
from lake_core.graveler import Commit
from lake_core.lake.errors import (
    InvalidRef,
    LakeAlreadyExists,
    LakeNotFound,
    NothingToApply,
    ProtectedBranch,
    RefExists,
    RefNotFound,
    UnsupportedLake,
)
from lake_core.lake.publish.commit_to_branch import commit_to_branch
from lake_core.lake.session.private_session import _PrivateSource
from lake_core.store import MemoryStore
from lake_core.testing.manual_clock import ManualClock
from tests.lake.lakes import ids, rows


def _put(lake: Lake, branch: str, key: str) -> str:
    with lake.session(branch) as s:
        s.put(key, key.encode())
    assert s.result is not None
    return s.result.commit


def test_create_and_open(store: MemoryStore, time: ManualClock) -> None:
    with pytest.raises(LakeNotFound, match=r"Lake\.create"):
        Lake.open(store)
    assert not Lake.exists(store)
    lake = Lake.create(store, clock=time)
    assert Lake.exists(store)
    assert lake.list_branches().keys() == {"main"}
    with pytest.raises(LakeAlreadyExists):
        Lake.create(store)
    assert Lake.create(store, exist_ok=True).id == lake.id == Lake.open(store).id
    body = bytes(store.get("_lake/format.json"))
    store.put("_lake/format.json", body.replace(b'"version": 3', b'"version": 4'))
    with pytest.raises(UnsupportedLake, match="version 4"):
        Lake.open(store)
    store.put("_lake/format.json", b"{")
    with pytest.raises(UnsupportedLake, match="damaged"):
        Lake.open(store)


def test_expressions(empty: Lake, time: ManualClock) -> None:
    lake = empty
    commit = _put(lake, "main", "one")
    time.pass_days(1)
    between = time.now.isoformat()
    time.pass_days(1)
    two = _put(lake, "main", "two")
    lake.create_branch("dev", at="main~1")
    _put(lake, "dev", "three")
    merged = lake.merge("dev").commit
    lake.create_tag("v1", at="main^2")

    def at(ref: str) -> set[str]:
        return {meta.key for meta in lake.at(ref).list()}

    assert at("main") == at("main@") == at(merged) == at(merged[:12]) == {"one", "two", "three"}
    assert at("main~1") == at("main^1") == at("main^") == at(two) == {"one", "two"}
    assert at("main^2") == at("dev") == at("v1") == {"one", "three"}
    assert at("main~2") == at(commit) == at("v1~1") == at("main^2~") == at(f"main@{{{between}}}") == {"one"}
    assert at("main~3") == set()
    assert at("main^0") == at("main")
    for wrong in (
        "",
        "main~x",
        "main~~~~~~",
        "main^3",
        "no-such",
        "main@{yesterday}",
        "main@{2026-01-01T00:00:00}",
        "v1@",
        "a/b",
        "main@{1999-01-01T00:00:00Z}",
    ):
        with pytest.raises((InvalidRef, RefNotFound)):
            lake.at(wrong)


def test_a_ref_that_leads_nowhere_says_why(empty: Lake, time: ManualClock) -> None:
    before = time.now.isoformat()
    time.pass_days(1)
    _put(empty, "main", "one")
    empty.create_branch("dev")
    with pytest.raises(RefNotFound, match=r"branch 'dev' did not exist at"):
        empty.at(f"dev@{{{before}}}")
    with pytest.raises(RefNotFound, match=r"'dev\^2' names a parent that does not exist: commit \w{12} has 1 parent$"):
        empty.at("dev^2")
    with pytest.raises(RefNotFound, match=r"the branch 'other' does not exist; the branches are dev, main"):
        empty.merge("dev", into="other")


def test_branches_and_tags(lake: Lake) -> None:
    lake.create_branch("dev")
    with pytest.raises(RefExists):
        lake.create_branch("dev")
    assert lake.create_branch("dev", exist_ok=True) == lake.list_branches()["main"]
    lake.create_tag("v1")
    for taken in ("dev", "main", "v1"):
        with pytest.raises(RefExists):
            lake.create_tag(taken)
    lake.delete_tag("v1")
    with pytest.raises(RefNotFound):
        lake.at("v1")
    with pytest.raises(RefExists, match="was"):
        lake.create_tag("v1")
    for bad in ("", "-x", "a b", "a/b", "é", "x" * 101, "f" * 64, "a."):
        with pytest.raises(InvalidRef):
            lake.create_branch(bad)
    lake.delete_branch("dev")
    with pytest.raises(RefNotFound):
        lake.session("dev")
    with pytest.raises(InvalidRef):
        lake.delete_branch("main")
    with pytest.raises(RefNotFound):
        lake.create_branch("late", at="0" * 64)


def test_log_and_diff(lake: Lake) -> None:
    with lake.session(message="append", metadata={"run": "17"}) as s:
        s.delta("t/orders").append(rows([50]))
    commits = lake.log()
    assert [commit.message for commit in commits] == ["append", "notes", "begin", "Repository created"]
    assert commits[0].metadata["run"] == "17"
    assert all(commit.is_named_right for commit in commits)
    assert [commit.generation for commit in commits] == [4, 3, 2, 1]
    assert [commit.message for commit in lake.log(dataset="t/orders")] == ["append", "begin"]
    assert len(lake.log(limit=2)) == 2
    changes = list(lake.diff("main~3", "main"))
    assert [(each.key, each.kind, each.dataset) for each in changes] == [
        ("notes.txt", "added", None),
        ("t/orders/_delta_log/00000000000000000000.json", "added", "t/orders"),
        ("t/orders/_delta_log/00000000000000000001.json", "added", "t/orders"),
    ]
    assert [each.kind for each in lake.diff("main", "main~2")] == ["removed", "removed"]
    assert list(lake.diff("main", "main")) == []
    assert [each.key for each in lake.diff("main~3", "main", prefix="notes")] == ["notes.txt"]


def test_a_commit_is_what_its_id_says(lake: Lake) -> None:
    first: Commit = lake.log()[-1]
    assert first.parents == ()
    assert first.metarange_id == ""
    assert first.generation == 1


def test_protected_branches_take_merges_only(lake: Lake) -> None:
    lake.settings.protect("ma*")
    lake.create_branch("dev")
    with pytest.raises(ProtectedBranch, match=r"ma\*"):
        _put(lake, "main", "x")
    with pytest.raises(ProtectedBranch):
        lake.revert("main")
    _put(lake, "dev", "x")
    lake.merge("dev")
    assert lake.at().exists("x")
    lake.settings.unprotect("ma*")
    _put(lake, "main", "y")
    with pytest.raises(RefNotFound):
        lake.settings.unprotect("ma*")


def test_merge_revert_and_cherry_pick(lake: Lake) -> None:
    lake.create_branch("dev")
    first, second = _put(lake, "dev", "first"), _put(lake, "dev", "second")
    lake.cherry_pick(second, onto="main")
    assert lake.at().exists("second")
    assert not lake.at().exists("first")
    assert lake.log()[0].metadata["cherry-pick-origin"] == second
    with pytest.raises(NothingToApply):
        lake.cherry_pick(second, onto="main")
    lake.merge("dev", message="both")
    assert lake.at().exists("first")
    assert lake.log()[0].message == "both"
    assert len(lake.log()[0].parents) == 2
    with pytest.raises(NothingToApply):
        lake.merge("dev")
    lake.revert(first)
    assert lake.at().exists("second")
    assert not lake.at().exists("first")
    with pytest.raises(NothingToApply):
        lake.revert(first)
    lake.merge("main", into="dev")
    assert lake.list_branches()["dev"] != lake.list_branches()["main"]
    assert not list(lake.diff("dev", "main"))
    with pytest.raises(NothingToApply):
        lake.revert(lake.log()[-1].id)


def test_main_only_moves_forward(lake: Lake) -> None:
    """Every move of main is a commit on the head before it, so that the checked-out log of a table never rewinds."""
    heads = []
    for number in range(3):
        with lake.session() as s:
            s.delta("t/orders").append(rows([50 + number]))
        heads.append(lake.list_branches()["main"])
    lake.revert("main~1")
    log = lake.log(first_parent=True)
    assert [commit.id for commit in log[1:4]] == heads[::-1]
    assert ids(lake.delta("t/orders")) == [*range(10), 50, 52]


def test_errors_are_ours(lake: Lake) -> None:
    for wrong in (
        lambda: lake.at("nope"),
        lambda: lake.merge("nope"),
        lambda: lake.delta("nope"),
        lambda: lake.get_session("s-nope").publish(),
    ):
        with pytest.raises(LakeError):
            wrong()


@pytest.mark.parametrize("name", ["datasets", "at", "session", "lineage", "merge", "retention:t/orders", "lake:next"])
def test_names_of_the_lake_itself_are_refused_in_metadata(lake: Lake, name: str) -> None:
    before = lake.log(limit=1)[0]
    with pytest.raises(ValueError, match=f"'{name}'.*use another name"):
        lake.session(metadata={name: "mine"})
    with pytest.raises(ValueError, match=f"'{name}'.*use another name"):
        lake.open_session(id="mine", metadata={name: "mine"})
    assert lake.list_sessions() == []
    session = lake.session()
    session.put("notes.txt", b"mine")
    session.metadata[name] = "mine"
    with pytest.raises(ValueError, match=f"'{name}'.*use another name"):
        session.publish()
    assert lake.log(limit=1)[0] == before
    del session.metadata[name]
    session.publish()
    assert lake.at().get("notes.txt") == b"mine"


def test_each_name_that_the_lake_writes_in_metadata_is_refused(lake: Lake) -> None:
    """One of each operation that makes a commit."""
    lake.create_branch("dev")
    shared = lake.open_session()
    with shared.join() as writer:
        writer.put("shared.txt", b"1")
        writer.delta("t/orders").vacuum()
    written = set(lake.get_session(shared.id).record.metadata)
    assert written == {"retention:t/orders"}
    shared.publish()
    picked = _put(lake, "dev", "picked.txt")
    lake.cherry_pick(picked, onto="main")
    lake.revert("main")
    with lake.session("dev") as s:
        s.put("notes.txt", b"here")
        s.delta("t/orders").append(rows([50]))
    _put(lake, "main", "notes.txt")
    lake.merge("dev", strategy="theirs")
    _put(lake, "dev", "later.txt")
    lake.merge("dev", squash=True)
    written |= {name for commit in lake.log() for name in commit.metadata}
    assert {"datasets", "at", "session", "lineage", "lake", "merge", "squash", "strategy"} <= written
    assert {"resolved", "revert", "cherry-pick-origin", "cherry-pick-committer"} <= written
    for name in written:
        with pytest.raises(ValueError, match="use another name"):
            lake.session(metadata={name: "mine"})


def test_a_lake_that_has_such_metadata_already_goes_on(lake: Lake) -> None:
    session = lake.session(metadata={"owner": "sales"})
    session.put("notes.txt", b"mine")
    source = _PrivateSource(lake.repository, session)
    session.metadata["datasets"] = "orders, customers"
    commit_to_branch(lake.repository, source)
    with lake.session() as s:
        s.delta("t/orders").append(rows([50]))
    assert s.result is not None
    assert s.result.is_checked_out
    assert [commit.message for commit in lake.log(dataset="t/orders")] == ["", "begin"]
    lake.revert("main~1")
    assert ids(lake.delta("t/orders")) == [*range(10), 50]
