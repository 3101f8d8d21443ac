"""Rewritten manifests: fewer, split as the configuration says, with the same references."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import zarr

from lake_core.icechunk import (
    ConflictError,
    ManifestConfig,
    ManifestSplitCondition,
    ManifestSplitDimCondition,
    ManifestSplittingConfig,
    Repository,
    RepositoryConfig,
)
from lake_core.icechunk.errors import RefNotFound
from lake_core.store import LocalStore, MemoryStore, ObjectStore
from lake_core.testing import FaultStore
from tests.icechunk.histories import FUTURE, copy_of, read_everything, theirs, values, write
from tests.racing_store import RacingStore

IN_SPLITS_OF_3 = RepositoryConfig(
    manifest=ManifestConfig(
        splitting=ManifestSplittingConfig.from_dict(
            {
                ManifestSplitCondition.or_conditions(
                    [ManifestSplitCondition.name_matches("^a$"), ManifestSplitCondition.path_matches("/none")]
                ): {ManifestSplitDimCondition.Axis(0): 3}
            }
        )
    )
)


def with_small_manifests(store: ObjectStore) -> Repository:
    """Return a repository with an array of 9 chunks that was appended to 8 times, and one of no chunks."""
    repository = Repository.create(store)
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(1,), chunks=(1,), dtype="i4")[:] = 1
    zarr.create_array(session.store, name="empty", shape=(4,), chunks=(1,), dtype="i4")
    session.commit("create")
    for end in range(2, 10):
        session = repository.writable_session("main")
        array = zarr.open_array(session.store, path="a")
        array.resize((end,))
        array[end - 1] = end
        session.commit(f"to {end}")
    return repository


def extents(repository: Repository) -> list[Any]:
    return sorted(ref.extents for ref in repository.readonly_session("main").array("/a").manifests)


def test_small_manifests_become_one() -> None:
    repository = with_small_manifests(MemoryStore())
    assert len(extents(repository)) == 9
    repository.rewrite_manifests("merge", branch="main")
    assert extents(repository) == [((0, 9),)]
    assert values(repository) == list(range(1, 10))


@pytest.mark.parametrize(("config", "before"), [(None, 8), (IN_SPLITS_OF_3, 6)], ids=["one split", "splits of 3"])
def test_manifests_that_a_rewrite_does_without_are_counted(config: RepositoryConfig | None, before: int) -> None:
    store = MemoryStore()
    with_small_manifests(store)
    repository = Repository.open(store, config=config)
    counts = [repository.mergeable_manifests("main")]
    repository.rewrite_manifests("merge", branch="main")
    assert [*counts, repository.mergeable_manifests("main")] == [before, 0]


def test_manifests_are_split_as_the_configuration_says() -> None:
    store = MemoryStore()
    with_small_manifests(store)
    repository = Repository.open(store, config=IN_SPLITS_OF_3)
    repository.rewrite_manifests("split", branch="main")
    assert extents(repository) == [((0, 3),), ((3, 6),), ((6, 9),)]
    assert values(repository) == list(range(1, 10))


def test_the_commit_changes_nothing_and_notes_the_rules(tmp_path: Path) -> None:
    with_small_manifests(LocalStore(tmp_path))
    repository = Repository.open(tmp_path, config=IN_SPLITS_OF_3)
    parent = repository.lookup_branch("main")
    snapshot_id = repository.rewrite_manifests("split", branch="main", metadata={"why": "test", "splitting_config": 1})
    assert repository.diff(from_snapshot_id=parent, to_snapshot_id=snapshot_id).is_empty()
    metadata = repository.lookup_snapshot(snapshot_id).metadata
    assert metadata["why"] == "test"
    condition = {"or": [{"name_matches": {"regex": "^a$"}}, {"path_matches": {"regex": "/none"}}]}
    assert metadata["splitting_config"] == {"split_sizes": [[condition, [{"condition": {"Axis": 0}, "num_chunks": 3}]]]}


def test_both_note_the_default_rules_alike(tmp_path: Path) -> None:
    repository = with_small_manifests(LocalStore(tmp_path))
    ours = repository.lookup_snapshot(repository.rewrite_manifests("ours", branch="main"))
    other = theirs(tmp_path)
    snapshot_id = other.rewrite_manifests("theirs", branch="main")
    assert repository.lookup_snapshot(snapshot_id).metadata == ours.metadata


def test_icechunk_reads_and_commits_on_rewritten_manifests(tmp_path: Path) -> None:
    repository = with_small_manifests(LocalStore(tmp_path))
    snapshot_id = repository.rewrite_manifests("merge", branch="main")
    other = theirs(tmp_path)
    assert values(other) == list(range(1, 10))
    write(other, 0, 100)
    assert values(Repository.open(tmp_path))[:2] == [100, 2]
    difference = other.diff(from_snapshot_id=snapshot_id, to_branch="main")
    assert {path: [list(chunk) for chunk in chunks] for path, chunks in difference.updated_chunks.items()} == {
        "/a": [[0]]
    }


def test_many_small_arrays_share_one_manifest() -> None:
    repository = with_small_manifests(MemoryStore())
    for number in range(5):
        session = repository.writable_session("main")
        zarr.create_array(session.store, name=f"b{number}", shape=(2,), chunks=(1,), dtype="i4")[:] = number + 1
        session.commit(f"b{number}")
    info = repository.lookup_snapshot(repository.rewrite_manifests("pack", branch="main"))
    assert [manifest.num_chunk_refs for manifest in info.manifests] == [9 + 5 * 2]


def test_what_was_cut_off_does_not_come_back() -> None:
    repository = with_small_manifests(MemoryStore())
    for length in (4, 9):
        session = repository.writable_session("main")
        zarr.open_array(session.store, path="a").resize((length,))
        session.commit(f"{length} long")
    repository.rewrite_manifests("merge", branch="main")
    assert values(repository) == [1, 2, 3, 4, 0, 0, 0, 0, 0]


def test_a_commit_that_came_first_stays() -> None:
    store = MemoryStore()
    with_small_manifests(store)
    operations = _operations(store)
    outcomes = set()
    for at in range(2, operations + 1):
        copy = copy_of(store)
        racing = RacingStore(copy, at, lambda copy=copy: write(Repository.open(copy), 0, 100))  # type: ignore[misc]
        try:
            Repository.open(racing).rewrite_manifests("merge", branch="main")
            outcomes.add("committed")
        except ConflictError:
            outcomes.add("refused")
        assert values(Repository.open(copy)) == [100, 2, 3, 4, 5, 6, 7, 8, 9]
    assert outcomes == {"committed", "refused"}


@pytest.mark.parametrize("mode", [pytest.param("before", marks=pytest.mark.exhaustive), "after"])
def test_a_death_anywhere_leaves_the_old_or_the_new_state(mode: Any) -> None:
    store = MemoryStore()
    repository = with_small_manifests(store)
    content = read_everything(repository)["main"]
    writes = -1
    for at in range(1, _operations(store) + 1):
        copy = copy_of(store)
        dying = FaultStore(copy, at, mode)
        with pytest.raises(Exception, match="die"):
            Repository.open(dying).rewrite_manifests("merge", branch="main")
        if dying.writes == writes:
            continue  # the operation read: the store is as the death before left it
        writes = dying.writes
        survivor = Repository.open(copy)
        assert read_everything(survivor)["main"][-len(content) :] == content
        survivor.rewrite_manifests("merge", branch="main")
        survivor.garbage_collect(FUTURE)
        assert extents(survivor) == [((0, 9),)]
        assert read_everything(survivor)["main"][-len(content) :] == content


def test_a_branch_that_does_not_exist_is_refused() -> None:
    with pytest.raises(RefNotFound):
        with_small_manifests(MemoryStore()).rewrite_manifests("merge", branch="none")


def _operations(store: MemoryStore) -> int:
    whole = FaultStore(copy_of(store), 0)
    Repository.open(whole).rewrite_manifests("merge", branch="main")
    return whole.operations
