"""Repositories of version 2: what is written, and what each version has."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import zarr

from lake_core.icechunk import (
    ManifestConfig,
    ManifestSplitCondition,
    ManifestSplitDimCondition,
    ManifestSplittingConfig,
    RepoAvailability,
    Repository,
    RepositoryConfig,
    RepoStatus,
    UpdateType,
    VirtualChunkContainer,
    VirtualChunkSpec,
    local_filesystem_store,
)
from lake_core.icechunk.errors import (
    ConfigConflict,
    FeatureDisabled,
    InvalidArrayMetadata,
    InvalidChunkIndex,
    InvalidVirtualReference,
    RefAlreadyExists,
    RefNotFound,
    RepositoryReadOnly,
    SnapshotNotFound,
    UnsupportedSpecVersion,
)
from lake_core.store import MemoryStore
from tests.icechunk.operations import state
from tests.icechunk.version_2 import ROOT, kinds, new_repository, with_arrays, write


def test_a_new_repository_has_three_objects() -> None:
    repository = new_repository()
    assert sorted(meta.key for meta in repository.storage.list()) == [
        "repo",
        f"snapshots/{ROOT}",
        f"transactions/{ROOT}",
    ]
    assert repository.spec_version == 2
    assert Repository.fetch_spec_version(repository.storage) == 2
    assert [(info.id, info.metadata) for info in repository.ancestry(branch="main")] == [
        (ROOT, {"__icechunk": {"is_root": True}})
    ]


def test_version_1_is_the_default() -> None:
    assert Repository.create(MemoryStore()).spec_version == 1
    with pytest.raises(UnsupportedSpecVersion, match="not 3"):
        Repository.create(MemoryStore(), spec_version=3)


def test_what_was_left_by_an_interrupted_creation_of_the_other_version_is_replaced() -> None:
    for left, wanted in ((1, 2), (2, 1)):
        store = MemoryStore()
        Repository.create(store, spec_version=left)
        store.delete(["repo", "refs/branch.main/ref.json"])
        repository = Repository.create(store, spec_version=wanted)
        with_arrays(repository)
        assert repository.spec_version == wanted
        assert len(list(repository.ancestry(branch="main"))) == 2


def test_history_is_read_from_one_object() -> None:
    repository = new_repository()
    ids = [write(repository, number) for number in range(3)]
    store = repository.storage
    store.delete([meta.key for meta in store.list("snapshots/")])
    history = [(info.id, info.parent_id, info.message, info.metadata) for info in repository.ancestry(branch="main")]
    assert history == [
        (ids[2], ids[1], "n2", {"number": 2}),
        (ids[1], ids[0], "n1", {"number": 1}),
        (ids[0], ROOT, "n0", {"number": 0}),
        (ROOT, None, "Repository initialized", {"__icechunk": {"is_root": True}}),
    ]


def test_values_and_differences() -> None:
    repository = new_repository()
    first = with_arrays(repository)
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[1] = 9
    second = session.commit("second")
    assert state(repository.readonly_session("main"))["/a"]["values"] == [0, 9, 2, 3]
    assert state(repository.readonly_session(snapshot_id=first))["/a"]["values"] == [0, 1, 2, 3]
    assert repository.diff(from_snapshot_id=first, to_snapshot_id=second).updated_chunks == {"/a": [[1]]}


def test_branches_tags_and_their_log() -> None:
    repository = new_repository()
    first = with_arrays(repository)
    repository.create_tag("v1", first)
    repository.create_branch("dev", first)
    write(repository, 1, "dev")
    with pytest.raises(RefAlreadyExists):
        repository.create_tag("v1", first)
    with pytest.raises(RefAlreadyExists):
        repository.create_branch("dev", first)
    with pytest.raises(SnapshotNotFound):
        repository.create_branch("x", "0" * 20)
    repository.delete_tag("v1")
    with pytest.raises(RefAlreadyExists, match="deleted"):
        repository.create_tag("v1", first)
    with pytest.raises(RefNotFound):
        repository.delete_tag("v1")
    repository.reset_branch("dev", first)
    repository.delete_branch("dev")
    with pytest.raises(RefNotFound):
        repository.lookup_branch("dev")
    assert kinds(repository) == [
        *("BranchDeleted", "BranchReset", "TagDeleted", "NewCommit"),
        *("BranchCreated", "TagCreated", "NewCommit", "RepoInitialized"),
    ]
    deleted = next(update.kind for update in repository.ops_log() if isinstance(update.kind, UpdateType.TagDeleted))  # type: ignore[attr-defined]
    assert (deleted.name, deleted.previous_snap_id) == ("v1", first)


def test_entries_of_the_log_have_rising_times_though_the_clock_stands_still() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    repository = new_repository(clock=lambda: now)
    for number in range(3):
        write(repository, number)
    times = [update.updated_at for update in repository.ops_log()]
    assert times == sorted(set(times), reverse=True)


def test_the_configuration_is_stored_as_it_is() -> None:
    config = RepositoryConfig(inline_chunk_threshold_bytes=7, num_updates_per_repo_info_file=20)
    config.set_virtual_chunk_container(VirtualChunkContainer("file:///d/", local_filesystem_store("/d"), "data"))
    rule = ManifestSplitCondition.name_matches("a") | ManifestSplitCondition.AnyArray()
    sizes = {rule: {ManifestSplitDimCondition.Axis(0): 3, ManifestSplitDimCondition.Any(): 5}}
    config.manifest = ManifestConfig(splitting=ManifestSplittingConfig.from_dict(sizes))
    repository = new_repository(config=config)
    assert Repository.open(repository.storage).config == config
    other = Repository.open(repository.storage)
    repository.config.inline_chunk_threshold_bytes = 8
    repository.save_config()
    other.config.inline_chunk_threshold_bytes = 9
    with pytest.raises(ConfigConflict):
        other.save_config()
    assert Repository.fetch_config(repository.storage) == repository.config


def test_metadata_flags_and_status() -> None:
    repository = new_repository()
    first = with_arrays(repository)
    repository.set_metadata({"a": 1, "b": [1.5, None]})
    assert repository.update_metadata({"a": 2}) == {"a": 2, "b": [1.5, None]} == repository.metadata
    repository.set_feature_flag("create_tag", False)
    with pytest.raises(FeatureDisabled):
        repository.create_tag("v1", first)
    assert [flag.name for flag in repository.disabled_feature_flags()] == ["create_tag"]
    repository.set_feature_flag("create_tag", None)
    repository.create_tag("v1", first)
    repository.set_feature_flag("move_node", False)
    with pytest.raises(FeatureDisabled):
        repository.rearrange_session("main")
    session = repository.writable_session("main")
    zarr.create_group(session.store, path="n")
    repository.set_status(RepoStatus(RepoAvailability.read_only, limited_availability_reason="moving house"))
    for refused in (
        lambda: repository.writable_session("main"),
        lambda: session.commit("n"),
        lambda: repository.create_branch("dev", first),
        lambda: repository.set_metadata({}),
        lambda: repository.expire_snapshots(datetime.now(UTC)),
        lambda: repository.garbage_collect(datetime.now(UTC)),
    ):
        with pytest.raises(RepositoryReadOnly, match="moving house"):
            refused()
    assert state(repository.readonly_session("main"))
    repository.set_status(RepoStatus(RepoAvailability.online))
    session.commit("n")


def test_version_1_has_none_of_it() -> None:
    repository = Repository.create(MemoryStore())
    with_arrays(repository)
    session = repository.writable_session("main")
    for refused in (
        repository.get_metadata,
        repository.get_status,
        repository.feature_flags,
        repository.ops_log,
        lambda: repository.set_metadata({"a": 1}),
        lambda: repository.rearrange_session("main"),
        lambda: session.amend("x"),
    ):
        with pytest.raises(UnsupportedSpecVersion, match="upgrade"):
            refused()


def virtual_repository(folder: Path, version: int) -> Repository:
    (folder / "data").mkdir()
    (folder / "data" / "part.bin").write_bytes(np.arange(20, dtype="<i4").tobytes())
    config = RepositoryConfig()
    prefix = f"file://{folder}/data/"
    config.set_virtual_chunk_container(VirtualChunkContainer(prefix, local_filesystem_store(str(folder)), "data"))
    Repository.create(folder / "r", config=config, spec_version=version)
    repository = Repository.open(folder / "r", authorize_virtual_chunk_access={prefix: None})
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="v", shape=(20,), chunks=(10,), dtype="<i4", compressors=None)
    session.commit("array")
    return repository


def test_a_location_may_name_its_container(tmp_path: Path) -> None:
    repository = virtual_repository(tmp_path, 2)
    session = repository.writable_session("main")
    session.store.set_virtual_ref("v/c/0", "vcc://data/part.bin", offset=0, length=40)
    spec = VirtualChunkSpec([1], "vcc://data/part.bin", 40, 40)
    session.store.set_virtual_refs("v", [spec])
    for wrong in ("vcc://other/part.bin", "vcc://data/", "vcc:///part.bin"):
        with pytest.raises(InvalidVirtualReference):
            session.store.set_virtual_ref("v/c/0", wrong, offset=0, length=40)
    session.commit("virtual")
    reader = repository.readonly_session("main")
    assert np.asarray(zarr.open_array(reader.store, path="v", mode="r")[:]).tolist() == list(range(20))
    assert session.reference(session.array("/v"), (0,)).location == "vcc://data/part.bin"  # type: ignore[union-attr]
    assert reader.all_virtual_chunk_locations() == [f"file://{tmp_path}/data/part.bin"]


def test_version_1_stores_no_names_of_containers(tmp_path: Path) -> None:
    session = virtual_repository(tmp_path, 1).writable_session("main")
    with pytest.raises(InvalidVirtualReference, match="upgrade"):
        session.store.set_virtual_ref("v/c/0", "vcc://data/part.bin", offset=0, length=40)


def test_rectilinear_grids_are_stored_by_version_2_only() -> None:
    repository, earlier = new_repository(), Repository.create(MemoryStore())
    documents = []
    for target in (repository, earlier):
        session = target.writable_session("main")
        zarr.create_array(session.store, name="a", shape=(10, 12), chunks=(5, 4), dtype="i4", compressors=None)
        document = json.loads(session.array("/a").user_data)
        session.discard_changes()
        runs = {"kind": "inline", "chunk_shapes": [[1, 2, 7], [[5, 2], 2]]}
        document["chunk_grid"] = {"name": "rectilinear", "configuration": runs}
        documents.append(json.dumps(document).encode())
        if target is earlier:
            with pytest.raises(InvalidArrayMetadata, match="upgrade"):
                session.set_metadata("/r", documents[1])
            return
        session.set_metadata("/r", documents[0])
        assert session.array("/r").grid == (3, 3)
        session.write_chunk("/r", (2, 2), b"x" * 56)
        with pytest.raises(InvalidChunkIndex):
            session.write_chunk("/r", (3, 0), b"x")
        session.commit("rectilinear")
        again = target.writable_session("main")
        assert again.fetch(again.reference(again.array("/r"), (2, 2))) == b"x" * 56  # type: ignore[arg-type]
        longer = json.loads(documents[0])
        longer["chunk_grid"]["configuration"]["chunk_shapes"][0] = [1, 2, 7, 3]
        longer["shape"] = [13, 12]
        again.set_metadata("/r", json.dumps(longer).encode())
        assert again.array("/r").grid == (4, 3)
        longer["chunk_grid"]["configuration"]["chunk_shapes"][0] = [2, 1, 7, 3]
        with pytest.raises(InvalidArrayMetadata, match="delete it before"):
            again.set_metadata("/r", json.dumps(longer).encode())


def test_sessions_travel_to_other_processes() -> None:
    repository = Repository.create(MemoryStore(), spec_version=2)
    with_arrays(repository)
    reader = pickle.loads(pickle.dumps(repository.readonly_session("main")))
    assert state(reader)["/a"]["values"] == [0, 1, 2, 3]
    session = repository.writable_session("main")
    fork = pickle.loads(pickle.dumps(session.fork()))
    zarr.open_array(fork.store, path="a")[0] = 4
    session.merge(fork)
    session.commit("by a worker")
    assert state(repository.readonly_session("main"))["/a"]["values"] == [4, 1, 2, 3]
