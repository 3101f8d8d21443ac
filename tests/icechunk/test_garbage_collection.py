"""Garbage collection deletes what icechunk deletes, and nothing that a branch or tag reaches."""

from __future__ import annotations

import json
import os
import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import zarr

from lake_core.icechunk import GCSummary, Repository
from lake_core.icechunk.collection_mark import MARK_KEY
from lake_core.icechunk.errors import DamagedObject
from lake_core.icechunk.identifier import decode_id, encode_id, encode_ids
from lake_core.icechunk.object_ids import decode_names
from lake_core.store import LocalStore, MemoryStore
from lake_core.testing import FaultStore
from tests.icechunk.cases import CASES, expected, names, open_case
from tests.icechunk.histories import (
    FUTURE,
    copy_of,
    objects,
    read_everything,
    repository_with_history,
    theirs,
    values,
    write,
    written_at,
)
from tests.racing_store import RacingStore
from tests.skip_rule import NO_CASES

needs_cases = pytest.mark.skipif(not CASES.exists(), reason=NO_CASES)
SOUND = [name for name in names(damaged=False) if name != "duplicate-path"]


def with_garbage(store: Any = None) -> tuple[Repository, MemoryStore]:
    """Return a repository with an expired stretch, a reset branch and chunks of a session that was never committed."""
    store = store or MemoryStore()
    repository, ids = repository_with_history(store)
    write(repository, 5, 500)
    repository.reset_branch("main", ids[4])
    zarr.open_array(repository.writable_session("main").store, path="a")[6] = 600
    repository.expire_snapshots(written_at(repository, ids[3]))
    return repository, store


def counts(summary: Any) -> tuple[int, ...]:
    return (
        summary.snapshots_deleted,
        summary.transaction_logs_deleted,
        summary.manifests_deleted,
        summary.chunks_deleted,
        summary.bytes_deleted,
    )


@needs_cases
@pytest.mark.parametrize("name", SOUND)
def test_exactly_the_garbage_of_a_case_is_deleted(name: str, tmp_path: Path) -> None:
    shutil.copytree(CASES / name, tmp_path / "case")
    store = LocalStore(tmp_path / "case")
    before = objects(store)
    garbage = {folder: set(expected(name)["garbage"].get(folder, ())) for folder in before}
    repository = open_case(name, tmp_path / "case")
    planned = repository.garbage_collect(FUTURE, dry_run=True)
    assert objects(store) == before
    assert repository.garbage_collect(FUTURE) == planned
    assert objects(store) == {folder: present - garbage[folder] for folder, present in before.items()}
    assert counts(repository.garbage_collect(FUTURE)) == (0, 0, 0, 0, 0)


@needs_cases
@pytest.mark.parametrize(
    "name", ["garbage", "expired", "collected", "refs", "commits-40", "rewrite-manifests", "resize", "split-axis"]
)
def test_both_collect_the_same(name: str, tmp_path: Path) -> None:
    for copy in ("ours", "theirs"):
        shutil.copytree(CASES / name, tmp_path / copy)
    summary = open_case(name, tmp_path / "ours").garbage_collect(FUTURE)
    assert counts(theirs(tmp_path / "theirs").garbage_collect(FUTURE)) == counts(summary)
    assert objects(LocalStore(tmp_path / "ours")) == objects(LocalStore(tmp_path / "theirs"))


@needs_cases
@pytest.mark.parametrize("name", ["garbage", "expired", "refs", "commits-40"])
def test_icechunk_reads_what_was_collected(name: str, tmp_path: Path) -> None:
    shutil.copytree(CASES / name, tmp_path / "case")
    open_case(name, tmp_path / "case").garbage_collect(FUTURE)
    other, untouched = theirs(tmp_path / "case"), theirs(CASES / name)
    for info in untouched.ancestry(branch="main"):
        mine, reference = (repository.readonly_session(snapshot_id=info.id).store for repository in (other, untouched))
        if info.parent_id is None:
            continue
        for path, member in zarr.open_group(reference, mode="r").members(max_depth=None):
            if isinstance(member, zarr.Array):
                assert np.array_equal(zarr.open_array(mine, path=path, mode="r")[...], member[...])


@needs_cases
@pytest.mark.parametrize(
    "name",
    [
        "bad-manifest-truncated",
        "bad-manifest-magic",
        "bad-spec-version-2",
        "bad-snapshot-missing",
        "bad-ref-garbage",
        "bad-manifest-missing",
        "bad-fb-root-offset",
        "bad-fb-vector-length",
    ],
)
def test_nothing_is_deleted_where_what_is_reached_cannot_be_read(name: str, tmp_path: Path) -> None:
    shutil.copytree(CASES / name, tmp_path / "case")
    store = LocalStore(tmp_path / "case")
    stray = encode_id(bytes(range(12)))
    for folder in ("chunks", "manifests", "snapshots", "transactions"):
        store.put(f"{folder}/{stray}", b"x")
    before = objects(store)
    with pytest.raises(Exception, match=r"damaged|version 2"):
        open_case(name, tmp_path / "case").garbage_collect(FUTURE)
    assert objects(store) == before


@needs_cases
def test_objects_with_other_names_are_left_alone(tmp_path: Path) -> None:
    shutil.copytree(CASES / "bad-extra-files", tmp_path / "case")
    before = objects(LocalStore(tmp_path / "case"))
    assert counts(open_case("bad-extra-files", tmp_path / "case").garbage_collect(FUTURE)) == (0, 0, 0, 0, 0)
    assert objects(LocalStore(tmp_path / "case")) == before


@pytest.mark.parametrize(
    "name",
    [
        "0" * 19,
        "0" * 21,
        "0" * 19 + "1",
        "i" * 20,
        "abcdefghjkmnpqrstv0g",
        "0" * 19 + "é",
        "0" * 20 + ".tmp",
        "sub/" + "0" * 16,
    ],
)
def test_names_that_are_no_ids_are_never_deleted(name: str) -> None:
    repository, store = with_garbage()
    store.put("chunks/" + name, b"x")
    repository.garbage_collect(FUTURE)
    assert store.exists("chunks/" + name)


def test_names_and_ids_are_each_other_in_bulk() -> None:
    ids = np.random.default_rng(5).integers(0, 256, (1000, 12), np.uint8)
    file_names = encode_ids(ids)
    assert file_names == [encode_id(row.tobytes()) for row in ids]
    assert [decode_id(name) for name in file_names] == [row.tobytes() for row in ids]
    valid, decoded = decode_names([*file_names, "x"])
    assert (decoded == ids).all()
    assert valid.tolist() == [True] * 1000 + [False]


def test_younger_objects_are_kept(tmp_path: Path) -> None:
    repository, _store = with_garbage(LocalStore(tmp_path))
    summary = repository.garbage_collect(FUTURE, dry_run=True)
    assert summary.chunks_deleted > 0
    assert repository.garbage_collect(datetime.now(UTC) - timedelta(hours=1)) == GCSummary()


def test_a_second_collection_reads_no_manifest_and_finds_later_garbage(tmp_path: Path) -> None:
    repository, _ = with_garbage(LocalStore(tmp_path))
    _age(tmp_path, 3600)
    before = datetime.now(UTC) - timedelta(minutes=30)
    assert repository.garbage_collect(before).chunks_deleted > 0
    counting = _Counting(LocalStore(tmp_path), 0)
    assert Repository.open(counting).garbage_collect(before) == GCSummary()
    assert not [key for key in counting.read if key.startswith("manifests/")]
    # Neither a later session's chunks nor a branch that goes are missed.
    zarr.open_array(repository.writable_session("main").store, path="a")[0] = 1234
    assert repository.garbage_collect(FUTURE, dry_run=True).chunks_deleted == 1
    repository.delete_branch("side")
    summary = repository.garbage_collect(FUTURE)
    assert (summary.snapshots_deleted, summary.chunks_deleted) == (1, 2)


def test_references_are_read_until_everything_is_known_to_be_reached(tmp_path: Path) -> None:
    repository, _ = with_garbage(LocalStore(tmp_path))
    _age(tmp_path, 3600)
    repository.garbage_collect(datetime.now(UTC) - timedelta(minutes=30))
    write(repository, 0, 9)
    counting = _Counting(LocalStore(tmp_path), 0)
    assert Repository.open(counting).garbage_collect(FUTURE, max_concurrent_manifest_fetches=1) == GCSummary()
    # The newest snapshots come first, with all of their manifests in any order.
    assert len([key for key in counting.read if key.startswith("manifests/")]) < len(list(counting.list("manifests/")))


def _age(folder: Path, seconds: int) -> None:
    """Let all objects look as if they had been written some time ago."""
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (time.time() - seconds,) * 2)


class _Counting(FaultStore):
    """A store that tells which objects were read."""

    def __init__(self, inner: Any, at: int) -> None:
        super().__init__(inner, at)
        self.read: list[str] = []

    def _get(self, key: str, start: int | None, end: int | None) -> Any:
        self.read.append(key)
        return super()._get(key, start, end)

    def _get_many(self, requests: Any) -> Any:
        self.read += [key for key, _, _ in requests]
        return super()._get_many(requests)


@pytest.mark.parametrize(
    "mark",
    [
        b"",
        b"{}",
        b"[1]",
        b'{"before": "x", "seconds": 1, "snapshots": ""}',
        b'{"before": 1, "seconds": -1, "snapshots": ""}',
        b'{"before": 1, "seconds": 1, "snapshots": "AAAA"}',
        b'{"before": 1, "seconds": NaN, "snapshots": ""}',
        json.dumps({"before": 2**62, "seconds": 0, "snapshots": ""}).encode(),
    ],
)
def test_a_mark_that_lies_never_makes_a_collection_delete_more(mark: bytes) -> None:
    repository, store = with_garbage()
    content = read_everything(repository)
    store.put(MARK_KEY, mark)
    repository.garbage_collect(FUTURE)
    assert read_everything(Repository.open(store)) == content


def test_what_is_written_while_a_collection_reads_is_kept() -> None:
    _, store = with_garbage()
    now = datetime.now(UTC)
    whole = FaultStore(copy_of(store), 0)
    Repository.open(whole).garbage_collect(now)
    for at in range(1, whole.operations + 1):
        copy = copy_of(store)
        racing = RacingStore(copy, at, lambda copy=copy: write(Repository.open(copy), 3, 333))  # type: ignore[misc]
        Repository.open(racing).garbage_collect(now)
        assert values(Repository.open(copy))[3] == 333
        read_everything(Repository.open(copy))


def test_a_tag_set_on_garbage_while_a_collection_reads_keeps_it() -> None:
    repository, ids = repository_with_history()
    dropped = write(repository, 5, 500)
    repository.reset_branch("main", ids[4])
    whole = FaultStore(copy_of(repository.storage), 0)
    Repository.open(whole).garbage_collect(FUTURE)
    # The deletions and the mark, and before them a last look at the refs, and at whether they are still in force.
    after_the_last_look = 10
    for at in range(1, whole.operations - after_the_last_look):
        copy = copy_of(repository.storage)
        racing = RacingStore(copy, at, lambda copy=copy: Repository.open(copy).create_tag("kept", dropped))  # type: ignore[misc]
        Repository.open(racing).garbage_collect(FUTURE)
        assert values(Repository.open(copy), tag="kept")[5] == 500


@pytest.mark.parametrize("mode", [pytest.param("before", marks=pytest.mark.exhaustive), "after"])
def test_a_death_anywhere_leaves_everything_reachable_and_the_next_collection_finishes(mode: Any) -> None:
    repository, store = with_garbage()
    content = read_everything(repository)
    whole = FaultStore(copy_of(store), 0)
    Repository.open(whole).garbage_collect(FUTURE)
    left = objects(whole.inner)
    assert whole.operations > 15
    writes = -1
    for at in range(1, whole.operations + 1):
        copy = copy_of(store)
        dying = FaultStore(copy, at, mode)
        try:
            Repository.open(dying).garbage_collect(FUTURE)
        except Exception as error:
            assert "die" in str(error)
        if dying.writes == writes:
            continue  # the operation read: the store is as the death before left it
        writes = dying.writes
        assert read_everything(Repository.open(copy)) == content
        Repository.open(copy).garbage_collect(FUTURE)
        assert objects(copy) == left


def test_limits_that_allow_nothing_are_refused() -> None:
    repository, _ = with_garbage()
    with pytest.raises(ValueError, match="at least one"):
        repository.garbage_collect(FUTURE, max_snapshots_in_memory=0)


def test_the_storage_of_native_chunks_is_what_icechunk_says(tmp_path: Path) -> None:
    repository, _ = with_garbage(LocalStore(tmp_path))
    with pytest.warns(DeprecationWarning):
        reference = icechunk.Repository.total_chunks_storage(theirs(tmp_path))
    assert repository.total_chunks_storage() == reference > 0


def test_a_damaged_snapshot_that_nothing_reaches_is_garbage() -> None:
    repository, store = with_garbage()
    store.put("snapshots/" + encode_id(b"x" * 12), b"no snapshot")
    assert repository.garbage_collect(FUTURE).snapshots_deleted > 0
    with pytest.raises(DamagedObject):
        store.delete(["snapshots/" + repository.lookup_branch("main")])
        repository.garbage_collect(FUTURE)
