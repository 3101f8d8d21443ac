"""Repositories in S3, over HTTP: written, maintained and read by this package and by icechunk in turns."""

from __future__ import annotations

from typing import Any

import icechunk
import pytest
import zarr

from lake_core.icechunk import ConflictDetector, RebaseFailedError, Repository
from lake_core.icechunk.errors import ConflictError, RepositoryAlreadyExists, SnapshotNotFound
from lake_core.store import open_store
from tests.icechunk.histories import FUTURE, read_everything, repository_with_history, values, write, written_at
from tests.store.s3_server import S3Server

Options = dict[str, Any]


def storage(url: str, options: Options) -> icechunk.Storage:
    """Return the storage of icechunk for a location in S3."""
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    return icechunk.s3_storage(
        bucket=bucket,
        prefix=prefix,
        region="us-east-1",
        endpoint_url=options["endpoint_url"],
        allow_http=True,
        force_path_style=True,
        access_key_id=options["key"],
        secret_access_key=options["secret"],
    )


def commit_in_two_sessions(repository: Any, solver: Any) -> None:
    """Create an array, write it in two sessions, of which the later one is rebased, and give the result a tag."""
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(4, 200), chunks=(1, 200), dtype="i4", compressors=None)
    first = session.commit("create")
    one, other = repository.writable_session("main"), repository.writable_session("main")
    for row, session in ((0, one), (1, other)):
        zarr.open_array(session.store, path="a")[row] = row + 1
        zarr.open_array(session.store, path="a")[row + 2, :2] = row + 3
    one.commit("one")
    repository.create_tag("both", other.commit("other", rebase_with=solver))
    repository.create_branch("dev", first)


def rows(repository: Any, **ref: str) -> list[int]:
    """Return the first column of the array."""
    session = repository.readonly_session(**(ref or {"branch": "main"}))
    return list(zarr.open_array(session.store, path="a", mode="r")[:, 0].tolist())  # type: ignore[union-attr]


def test_what_two_sessions_commit_is_read_by_icechunk(s3_url: str, s3_options: Options) -> None:
    commit_in_two_sessions(Repository.create(s3_url, storage_options=s3_options), ConflictDetector())
    theirs = icechunk.Repository.open(storage(s3_url, s3_options))
    assert [info.message for info in theirs.ancestry(branch="main")][:-1] == ["other", "one", "create"]
    assert (rows(theirs), rows(theirs, tag="both"), rows(theirs, branch="dev")) == ([1, 2, 3, 4], [1, 2, 3, 4], [0] * 4)
    session = theirs.writable_session("dev")
    zarr.open_array(session.store, path="a")[3] = 9
    session.commit("icechunk's")
    assert rows(Repository.open(s3_url, storage_options=s3_options), branch="dev") == [0, 0, 0, 9]


def test_what_icechunk_commits_is_read_and_committed_on(s3_url: str, s3_options: Options) -> None:
    commit_in_two_sessions(icechunk.Repository.create(storage(s3_url, s3_options)), icechunk.ConflictDetector())
    ours = Repository.open(s3_url, storage_options=s3_options)
    assert [info.message for info in ours.ancestry(branch="main")][:-1] == ["other", "one", "create"]
    assert (rows(ours), rows(ours, tag="both"), rows(ours, branch="dev")) == ([1, 2, 3, 4], [1, 2, 3, 4], [0] * 4)
    session = ours.writable_session("main")
    zarr.open_array(session.store, path="a")[3] = 9
    session.commit("ours")
    assert rows(icechunk.Repository.open(storage(s3_url, s3_options))) == [1, 2, 3, 9]


def test_a_branch_moves_for_one_of_two_commits(s3_url: str, s3_options: Options) -> None:
    ours = Repository.create(s3_url, storage_options=s3_options)
    commit_in_two_sessions(ours, ConflictDetector())
    theirs = icechunk.Repository.open(storage(s3_url, s3_options))
    late, later = ours.writable_session("main"), theirs.writable_session("main")
    zarr.open_array(late.store, path="a")[0] = 10
    zarr.open_array(later.store, path="a")[0] = 11
    earlier = theirs.writable_session("main")
    zarr.open_array(earlier.store, path="a")[0] = 7
    earlier.commit("earlier")
    with pytest.raises(ConflictError):
        late.commit("late")
    with pytest.raises(RebaseFailedError):
        late.commit("late", rebase_with=ConflictDetector())
    with pytest.raises(icechunk.ConflictError):
        later.commit("later")
    assert rows(ours)[0] == 7


def test_a_repository_is_created_once(s3_url: str, s3_options: Options) -> None:
    Repository.create(s3_url, storage_options=s3_options)
    with pytest.raises(RepositoryAlreadyExists):
        Repository.create(s3_url, storage_options=s3_options)
    assert Repository.create(s3_url, storage_options=s3_options, exist_ok=True).list_branches() == {"main"}


@pytest.mark.parametrize("fault", ["drop_before", "drop_after"])
def test_a_commit_whose_answer_is_lost_counts_once(
    s3_url: str, s3_options: Options, s3_endpoint: S3Server, fault: str
) -> None:
    repository = Repository.create(s3_url, storage_options=s3_options)
    commit_in_two_sessions(repository, ConflictDetector())
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[3] = 9
    s3_endpoint.fault(fault, method="PUT", key="branch.main")
    session.commit("lost")
    assert [info.message for info in repository.ancestry(branch="main")][:2] == ["lost", "other"]
    assert rows(repository) == [1, 2, 3, 9]


@pytest.mark.extended
def test_old_snapshots_expire_and_are_collected(s3_url: str, s3_options: Options) -> None:
    repository, ids = repository_with_history(open_store(s3_url, storage_options=s3_options))
    before = read_everything(repository)
    assert repository.expire_snapshots(written_at(repository, ids[3])) >= {ids[0], ids[2]}
    summary = repository.garbage_collect(FUTURE)
    assert (summary.snapshots_deleted, summary.chunks_deleted) == (2, 1)
    after = read_everything(repository)
    assert {name: history[0] for name, history in after.items()} == {name: old[0] for name, old in before.items()}
    with pytest.raises(SnapshotNotFound):
        values(repository, snapshot_id=ids[2])
    theirs = icechunk.Repository.open(storage(s3_url, s3_options))
    assert values(theirs) == values(repository) == [0, 10, 20, 30, 40, 5, 6, 7]
    write(theirs, 0, 5)
    assert values(repository)[0] == 5
