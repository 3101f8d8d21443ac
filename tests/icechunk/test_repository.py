"""Repositories: creation, refs, conflicts, markers, forks and configuration."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from lake_core.icechunk import (
    CompressionConfig,
    ConflictError,
    ManifestConfig,
    ManifestSplitCondition,
    ManifestSplitDimCondition,
    ManifestSplittingConfig,
    NoChangesToCommit,
    Repository,
    RepositoryConfig,
)
from lake_core.icechunk.errors import (
    ConfigConflict,
    InvalidConfig,
    InvalidRefName,
    MissingObject,
    RefAlreadyExists,
    RefNotFound,
    RepositoryAlreadyExists,
    RepositoryNotFound,
    UnmergeableFork,
)
from lake_core.icechunk.identifier import encode_id
from lake_core.store import FolderStore, LocalStore, MemoryStore
from tests.processes import CONTEXT
from tests.racing_store import RacingStore


@pytest.fixture
def repository() -> Repository:
    repository = Repository.create(MemoryStore())
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(8,), chunks=(1,), dtype="i4", compressors=None)
    session.commit("first")
    return repository


def write(repository: Repository, index: int, value: int, **options: Any) -> Any:
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[index] = value
    return session.commit(f"{index} = {value}", **options)


def values(repository: Repository) -> list[int]:
    return list(zarr.open_array(repository.readonly_session("main").store, path="a", mode="r")[...].tolist())  # type: ignore[union-attr]


def test_a_repository_is_created_once(tmp_path: Path) -> None:
    with pytest.raises(RepositoryNotFound):
        Repository.open(tmp_path)
    Repository.create(tmp_path)
    assert Repository.exists(tmp_path)
    with pytest.raises(RepositoryAlreadyExists):
        Repository.create(tmp_path)
    assert Repository.open_or_create(tmp_path).list_branches() == {"main"}


def test_a_folder_of_other_objects_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("x")
    with pytest.raises(RepositoryAlreadyExists, match="other"):
        Repository.create(tmp_path)


def test_an_interrupted_creation_is_finished(tmp_path: Path) -> None:
    Repository.create(tmp_path, config=RepositoryConfig(inline_chunk_threshold_bytes=9))
    LocalStore(tmp_path).delete(["refs/branch.main/ref.json"])
    assert Repository.create(tmp_path).list_branches() == {"main"}


def _create_and_commit(store: MemoryStore) -> None:
    session = Repository.create(store).writable_session("main")
    zarr.create_array(session.store, name="a", shape=(8,), chunks=(1,), dtype="i4", compressors=None)
    session.commit("first")


@pytest.mark.parametrize("at", range(1, 7))
def test_a_repository_that_another_process_creates_meanwhile_is_opened(at: int) -> None:
    inner = MemoryStore()
    racing = RacingStore(inner, at, lambda: _create_and_commit(inner))
    assert len(list(Repository.create(racing, exist_ok=True).ancestry(branch="main"))) in (1, 2)
    assert racing.operations >= at


@pytest.mark.parametrize("at", range(1, 4))
def test_a_repository_that_is_just_created_is_not_taken_for_damaged(at: int) -> None:
    inner = MemoryStore()
    racing = RacingStore(inner, at, lambda: _create_and_commit(inner))
    try:
        repository = Repository.open(racing)
    except RepositoryNotFound:
        repository = Repository.open(inner)
    assert repository.list_branches() == {"main"}


def test_a_creation_that_has_only_begun_is_no_repository() -> None:
    store = MemoryStore()
    _create_and_commit(store)
    store.delete([meta.key for meta in store.list() if meta.key not in ("snapshots/1CECHNKREP0F1RSTCMT0",)])
    with pytest.raises(RepositoryNotFound):
        Repository.open(store)


def test_a_folder_of_another_store_holds_a_repository(tmp_path: Path) -> None:
    store = FolderStore(LocalStore(tmp_path), "datasets/x")
    Repository.create(store)
    assert Repository.open(tmp_path / "datasets" / "x").list_branches() == {"main"}


def test_refs(repository: Repository) -> None:
    first = repository.lookup_branch("main")
    second = write(repository, 0, 1)
    repository.create_tag("v1", first)
    repository.create_branch("dev", first)
    assert repository.readonly_session(tag="v1").snapshot_id == first
    with pytest.raises(RefAlreadyExists):
        repository.create_tag("v1", second)
    repository.delete_tag("v1")
    with pytest.raises(RefAlreadyExists, match="cannot be used again"):
        repository.create_tag("v1", second)
    with pytest.raises(RefNotFound):
        repository.lookup_tag("v1")
    repository.delete_branch("dev")
    assert (repository.list_branches(), repository.list_tags()) == ({"main"}, set())
    with pytest.raises(InvalidRefName):
        repository.delete_branch("main")
    with pytest.raises(ConflictError):
        repository.reset_branch("main", first, from_snapshot_id=first)
    repository.reset_branch("main", first)
    assert repository.lookup_branch("main") == first


@pytest.mark.parametrize("name", ["", "a/b", "é", "..\n", " x", "x" * 300])
def test_names_that_no_ref_may_have(repository: Repository, name: str) -> None:
    with pytest.raises(InvalidRefName):
        repository.create_branch(name, repository.lookup_branch("main"))


def test_a_branch_that_moved_is_a_conflict(repository: Repository) -> None:
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[0] = 1
    base, tip = session.snapshot_id, write(repository, 1, 2)
    with pytest.raises(ConflictError) as caught:
        session.commit("late")
    assert (caught.value.expected_parent, caught.value.actual_parent) == (base, tip)
    assert session.has_uncommitted_changes
    assert pickle.loads(pickle.dumps(caught.value)).actual_parent == tip


def test_an_untouched_session_has_nothing_to_commit(repository: Repository) -> None:
    with pytest.raises(NoChangesToCommit):
        repository.writable_session("main").commit("nothing")


def test_a_session_as_of_a_time(repository: Repository) -> None:
    first = next(repository.ancestry(branch="main"))
    write(repository, 0, 1)
    assert repository.readonly_session("main", as_of=first.written_at).snapshot_id == first.id


def test_times_grow_though_the_clock_runs_backwards() -> None:
    clock = iter([datetime(2030, 1, 1, tzinfo=UTC) - timedelta(days=day) for day in range(20)])
    repository = Repository.create(MemoryStore(), clock=lambda: next(clock))
    session = repository.writable_session("main")
    zarr.create_group(session.store)
    session.commit("late")
    newest, oldest = repository.ancestry(branch="main")
    assert newest.written_at > oldest.written_at


def test_a_txn_is_committed_once(repository: Repository) -> None:
    first = write(repository, 0, 1, txn=("app", 7))
    write(repository, 1, 1)
    again = write(repository, 0, 2, txn=("app", 7))
    assert not first.skipped
    assert (again, again.skipped) == (first, True)
    assert not write(repository, 0, 3, txn=("app", 8)).skipped
    assert not write(repository, 0, 3, txn=("other", 1)).skipped
    assert values(repository)[:2] == [3, 1]


def test_markers_expire() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    repository = Repository.create(MemoryStore(), clock=lambda: now, txn_retention=timedelta(days=1))
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(8,), chunks=(1,), dtype="i4")
    session.commit("first", txn=("app", 1))
    now += timedelta(hours=23)
    assert write(repository, 0, 1, txn=("app", 1)).skipped
    now += timedelta(hours=2)
    assert not write(repository, 0, 1, txn=("app", 1)).skipped


def test_forks_are_merged(repository: Repository) -> None:
    session = repository.writable_session("main")
    forks = [pickle.loads(pickle.dumps(session.fork())) for _ in range(3)]
    with pytest.raises(UnmergeableFork, match="merge the forks"):
        session.commit("too early")
    for number, fork in enumerate(forks):
        zarr.open_array(fork.store, path="a")[number] = number + 1
    session.merge(*(pickle.loads(pickle.dumps(fork)) for fork in forks))
    session.commit("merged")
    assert values(repository)[:3] == [1, 2, 3]


def test_forks_that_wrote_the_same_chunk_are_refused(repository: Repository) -> None:
    session = repository.writable_session("main")
    forks = [session.fork(), session.fork()]
    for number, fork in enumerate(forks):
        zarr.open_array(fork.store, path="a")[0] = number + 1
    with pytest.raises(UnmergeableFork, match="two forks wrote"):
        session.merge(*forks)
    assert not session.has_uncommitted_changes


def test_a_session_tells_its_changes(repository: Repository) -> None:
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[3] = 1
    zarr.create_group(session.store, path="g")
    status = session.status()
    assert (status.updated_chunks, status.new_groups) == ({"/a": [[3]]}, {"/g"})
    session.discard_changes()
    assert session.status().is_empty()


def test_the_references_of_a_box_come_from_its_own_manifests() -> None:
    splitting = ManifestSplittingConfig.from_dict(
        {ManifestSplitCondition.AnyArray(): {ManifestSplitDimCondition.Axis(0): 2}}
    )
    repository = Repository.create(MemoryStore(), config=RepositoryConfig(manifest=ManifestConfig(splitting=splitting)))
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", data=np.arange(1, 7), chunks=(1,))
    session.commit("six chunks")
    session = repository.writable_session("main")
    array = session.array("/a")
    for ref in array.manifests:
        if ref.extents != ((2, 4),):
            repository.storage.delete([f"manifests/{encode_id(ref.manifest_id)}"])
    session.erase_chunk("/a", (2,))
    zarr.open_array(session.store, path="a")[3:5] = [10, 11]
    references = Repository.open(repository.storage).readonly_session("main").references(array, ((2, 4),))
    assert references.index.tolist() == [[2, 3]]
    changed = session.references(array, ((2, 4),))
    assert changed.index.tolist() == [[3]]
    assert changed[0] != references[1]
    with pytest.raises(MissingObject):
        session.references(array)


def test_the_configuration_is_kept_and_saved_by_one_at_a_time(tmp_path: Path) -> None:
    splitting = ManifestSplittingConfig.from_dict(
        {
            ManifestSplitCondition.path_matches("^/g") & ManifestSplitCondition.name_matches("x$"): {
                ManifestSplitDimCondition.Axis(1): 3
            },
            ManifestSplitCondition.AnyArray(): {
                ManifestSplitDimCondition.DimensionName("t"): 5,
                ManifestSplitDimCondition.Any(): 7,
            },
        }
    )
    config = RepositoryConfig(compression=CompressionConfig(level=5), manifest=ManifestConfig(splitting=splitting))
    Repository.create(tmp_path, config=config)
    first, other = Repository.open(tmp_path), Repository.open(tmp_path)
    assert first.config == config
    first.config.inline_chunk_threshold_bytes = 10
    first.save_config()
    with pytest.raises(ConfigConflict):
        other.save_config()
    assert Repository.open(tmp_path).config.inline_chunk_threshold_bytes == 10


def test_a_configuration_that_is_not_valid_is_refused() -> None:
    with pytest.raises(InvalidConfig):
        Repository.create(MemoryStore(), config=RepositoryConfig(inline_chunk_threshold_bytes=-1))


def _commit_several(folder: Path, writer: int) -> int:
    acknowledged = 0
    for number in range(10):
        while True:
            session = Repository.open(folder).writable_session("main")
            zarr.open_array(session.store, path="a")[writer * 10 + number] = 1
            try:
                session.commit("one")
            except ConflictError:
                continue
            acknowledged += 1
            break
    return acknowledged


def test_local_files_lose_no_acknowledged_commit(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path)
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(30,), chunks=(1,), dtype="i4")
    session.commit("first")
    with CONTEXT.Pool(3) as pool:
        assert sum(pool.starmap(_commit_several, [(tmp_path, writer) for writer in range(3)])) == 30
    assert values(repository) == [1] * 30
    assert len(list(repository.ancestry(branch="main"))) == 32
