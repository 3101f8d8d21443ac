"""Expiration cuts histories as icechunk does, and leaves what is kept readable to both."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import zarr

from lake_core.icechunk import Repository
from lake_core.icechunk.errors import ConflictError, DamagedObject, MissingObject
from lake_core.store import LocalStore, MemoryStore
from lake_core.testing import FaultStore
from tests.icechunk.histories import (
    FUTURE,
    copy_of,
    read_everything,
    repository_with_history,
    theirs,
    values,
    write,
    written_at,
)
from tests.racing_store import RacingStore
from tests.skip_rule import NO_CASES

ROOT = "1CECHNKREP0F1RSTCMT0"


def history(repository: Any, **ref: str) -> list[str]:
    return [info.id for info in repository.ancestry(**(ref or {"branch": "main"}))]


def test_the_oldest_kept_snapshot_follows_the_first_one() -> None:
    repository, ids = repository_with_history()
    expired = repository.expire_snapshots(written_at(repository, ids[3]))
    assert history(repository) == [ids[4], ids[3], ROOT]
    assert expired == set(ids[:3])


def test_a_dry_run_tells_what_would_expire() -> None:
    repository, ids = repository_with_history()
    before = copy_of(repository.storage)
    would_expire = repository.expire_snapshots(written_at(repository, ids[3]), dry_run=True, delete_expired_tags=True)
    assert {meta.key: repository.storage.get(meta.key) for meta in repository.storage.list()} == {
        meta.key: before.get(meta.key) for meta in before.list()
    }
    assert would_expire == repository.expire_snapshots(written_at(repository, ids[3]), delete_expired_tags=True)


def test_a_tag_keeps_its_expired_snapshot() -> None:
    repository, ids = repository_with_history()
    before = values(repository, tag="second")
    repository.expire_snapshots(written_at(repository, ids[3]))
    assert history(repository, tag="second") == [ids[1], ROOT]
    assert values(repository, tag="second") == before


@pytest.mark.parametrize("delete_branches", [False, True])
@pytest.mark.parametrize("delete_tags", [False, True])
@pytest.mark.parametrize("kept", [0, 1, 2, 4, 5])
def test_both_expire_the_same(tmp_path: Path, kept: int, delete_branches: bool, delete_tags: bool) -> None:
    repository, ids = repository_with_history(LocalStore(tmp_path / "ours"))
    shutil.copytree(tmp_path / "ours", tmp_path / "theirs")
    time = written_at(repository, ids[kept]) if kept < 5 else FUTURE
    options = {"delete_expired_branches": delete_branches, "delete_expired_tags": delete_tags}
    reference = theirs(tmp_path / "theirs")
    assert repository.expire_snapshots(time, **options) == reference.expire_snapshots(time, **options)
    mine, other = theirs(tmp_path / "ours"), theirs(tmp_path / "theirs")
    assert (mine.list_branches(), mine.list_tags()) == (other.list_branches(), other.list_tags())
    for branch in mine.list_branches():
        assert history(mine, branch=branch) == history(other, branch=branch)
    for tag in mine.list_tags():
        assert history(mine, tag=tag) == history(other, tag=tag)


def test_icechunk_reads_compares_and_commits_on_what_was_expired(tmp_path: Path) -> None:
    repository, ids = repository_with_history(LocalStore(tmp_path))
    repository.expire_snapshots(written_at(repository, ids[3]))
    other = theirs(tmp_path)
    assert values(other) == values(repository)
    difference = other.diff(from_snapshot_id=ids[3], to_branch="main")
    assert {path: [list(chunk) for chunk in chunks] for path, chunks in difference.updated_chunks.items()} == {
        "/a": [[4]]
    }
    write(other, 0, 1000)
    assert values(Repository.open(tmp_path))[0] == 1000
    assert len(history(Repository.open(tmp_path))) == 4


def test_what_a_snapshot_says_of_itself_stays(tmp_path: Path) -> None:
    repository, ids = repository_with_history()
    before = repository.lookup_snapshot(ids[3])
    repository.expire_snapshots(before.written_at)
    after = repository.lookup_snapshot(ids[3])
    assert after.parent_id == ROOT
    assert (after.message, after.written_at, after.manifests) == (before.message, before.written_at, before.manifests)


def test_a_session_on_a_kept_snapshot_commits_after_the_expiration() -> None:
    repository, _ids = repository_with_history()
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[0] = 5
    repository.expire_snapshots(FUTURE)
    session.commit("after")
    assert values(repository)[:5] == [5, 10, 20, 30, 40]


def test_nothing_is_written_where_a_snapshot_is_gone() -> None:
    repository, ids = repository_with_history()
    store = repository.storage
    store.delete([f"snapshots/{ids[0]}"])
    before = {meta.key: meta.etag for meta in store.list()}
    with pytest.raises(MissingObject, match=ids[0]):
        repository.expire_snapshots(FUTURE)
    assert {meta.key: meta.etag for meta in store.list()} == before


def test_a_rewrite_by_another_client_in_between_is_seen() -> None:
    store = MemoryStore()
    repository, ids = repository_with_history(store)
    time = written_at(repository, ids[3])
    operations = _operations_of_expiration(store, time)
    for at in range(1, operations + 1):
        copy = copy_of(store)
        racing = RacingStore(copy, at, lambda copy=copy: Repository.open(copy).expire_snapshots(time))  # type: ignore[misc]
        Repository.open(racing).expire_snapshots(time)
        assert history(Repository.open(copy)) == [ids[4], ids[3], ROOT]


def _operations_of_expiration(store: MemoryStore, time: datetime) -> int:
    whole = FaultStore(copy_of(store), 0)
    Repository.open(whole).expire_snapshots(time, delete_expired_branches=True, delete_expired_tags=True)
    return whole.operations


@pytest.mark.parametrize("mode", [pytest.param("before", marks=pytest.mark.exhaustive), "after"])
def test_a_death_anywhere_leaves_every_ref_whole_and_the_next_call_finishes(mode: Any) -> None:
    store = MemoryStore()
    repository, ids = repository_with_history(store)
    time = written_at(repository, ids[3])
    old = read_everything(repository)
    operations = _operations_of_expiration(store, time)
    assert operations > 12
    writes = -1
    for at in range(1, operations + 1):
        copy = copy_of(store)
        dying = FaultStore(copy, at, mode)
        with pytest.raises(Exception, match=r"the store (died|dies)"):
            Repository.open(dying).expire_snapshots(time, delete_expired_branches=True, delete_expired_tags=True)
        if dying.writes == writes:
            continue  # the operation read: the store is as the death before left it
        writes = dying.writes
        assert {name: contents[0] for name, contents in read_everything(Repository.open(copy)).items()}["main"] == old[
            "main"
        ][0]
        Repository.open(copy).expire_snapshots(time, delete_expired_branches=True, delete_expired_tags=True)
        assert history(Repository.open(copy)) == [ids[4], ids[3], ROOT]
        assert Repository.open(copy).list_tags() == set()


def test_a_time_without_a_zone_is_refused() -> None:
    repository, _ = repository_with_history()
    with pytest.raises(ValueError, match="zone"):
        repository.expire_snapshots(datetime.now())


def test_a_branch_that_moves_meanwhile_is_not_deleted() -> None:
    store = MemoryStore()
    _repository, _ids = repository_with_history(store)
    time = datetime.now(UTC) + timedelta(seconds=1)
    total = _operations_of_expiration(store, time)
    outcomes = set()
    for at in range(1, total + 1):
        copy = copy_of(store)
        racing = RacingStore(copy, at, lambda copy=copy: write(Repository.open(copy), 6, 60, "side"))  # type: ignore[misc]
        try:
            Repository.open(racing).expire_snapshots(time, delete_expired_branches=True)
        except ConflictError:
            outcomes.add("refused")
            assert values(Repository.open(copy), branch="side")[6] == 60
    assert outcomes == {"refused"}


def test_a_snapshot_that_is_its_own_ancestor_is_an_error(tmp_path: Path) -> None:
    from tests.icechunk.cases import CASES, open_case

    if not CASES.exists():
        pytest.skip(NO_CASES)
    shutil.copytree(CASES / "bad-parent-cycle", tmp_path / "case")
    with pytest.raises(DamagedObject, match="ancestor"):
        open_case("bad-parent-cycle", tmp_path / "case").expire_snapshots(FUTURE)
    with pytest.raises(DamagedObject, match="ancestor"):
        open_case("bad-parent-cycle", tmp_path / "case").garbage_collect(FUTURE)
