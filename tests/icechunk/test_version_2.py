"""Repositories of version 2: what is written, by one process and by several at once."""

from __future__ import annotations

import json
import multiprocessing
import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
import zstandard

from lake_core.errors import StoreUnavailable
from lake_core.icechunk import (
    BasicConflictSolver,
    ConflictDetector,
    ConflictType,
    ManifestConfig,
    ManifestSplitCondition,
    ManifestSplitDimCondition,
    ManifestSplittingConfig,
    RebaseFailedError,
    RepoAvailability,
    Repository,
    RepositoryConfig,
    RepoStatus,
    SessionMode,
    UpdateType,
    VirtualChunkContainer,
    VirtualChunkSpec,
    local_filesystem_store,
    upgrade_icechunk_repository,
)
from lake_core.icechunk.errors import (
    ConfigConflict,
    ConflictError,
    DamagedObject,
    FeatureDisabled,
    IcechunkError,
    InvalidAmend,
    InvalidArrayMetadata,
    InvalidChunkIndex,
    InvalidMove,
    InvalidVirtualReference,
    MissingObject,
    NoChangesToCommit,
    NotInAncestry,
    RefAlreadyExists,
    RefNotFound,
    RepositoryReadOnly,
    SnapshotNotFound,
    UnsupportedSpecVersion,
    WrongSessionMode,
)
from lake_core.icechunk.file_header import FileType, encode_file
from lake_core.icechunk.flatbuffer_writer import FlatbufferWriter
from lake_core.icechunk.identifier import INITIAL_SNAPSHOT, encode_id
from lake_core.icechunk.repo_info_file import decode_repo_info, encode_repo_info
from lake_core.store import LocalStore, MemoryStore, ObjectStore
from tests.icechunk.operations import create_base, state

ROOT = encode_id(INITIAL_SNAPSHOT)


def new_repository(**options: Any) -> Repository:
    return Repository.create(MemoryStore(), spec_version=2, **options)


def with_arrays(repository: Repository) -> str:
    session = repository.writable_session("main")
    create_base(session)
    return session.commit("base")


def write(repository: Repository, number: int, branch: str = "main") -> str:
    session = repository.writable_session(branch)
    zarr.create_group(session.store, path=f"n{number}")
    return session.commit(f"n{number}", {"number": number})


def kinds(repository: Repository) -> list[str]:
    return [type(update.kind).__name__ for update in repository.ops_log()]


def backups(store: ObjectStore) -> set[str]:
    return {meta.key.removeprefix("overwritten/") for meta in store.list("overwritten/")}


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


# Backups


@pytest.mark.parametrize("most", [1, 2, 5, 8])
def test_the_log_goes_on_in_backups_and_the_others_are_deleted(most: int) -> None:
    repository = new_repository(config=RepositoryConfig(num_updates_per_repo_info_file=most))
    expected = ["RepoInitialized"]
    for number in range(40):
        write(repository, number)
        expected.insert(0, "NewCommit")
        assert kinds(repository) == expected
    info = repository.assets.layout.info()
    assert len(info.updates) <= most + 1
    named = {update.backup for update in info.updates} - {None}
    assert named <= backups(repository.storage)
    assert {update.backup_path for update in repository.ops_log()} - {None} <= backups(repository.storage)


def test_few_backups_stay_beside_a_long_log() -> None:
    repository = new_repository()
    for number in range(150):
        repository.set_metadata({"number": number})
    assert len(kinds(repository)) == 151
    assert len(backups(repository.storage)) <= 13


def test_a_log_whose_backup_is_gone_says_so() -> None:
    repository = new_repository(config=RepositoryConfig(num_updates_per_repo_info_file=3))
    for number in range(10):
        repository.set_metadata({"number": number})
    before = repository.assets.layout.info().before_updates
    repository.storage.delete([f"overwritten/{before}"])
    with pytest.raises(MissingObject, match="operations log"):
        list(repository.ops_log())


def test_collection_deletes_backups_that_nothing_names() -> None:
    repository = new_repository()
    write(repository, 1)
    repository.storage.put("overwritten/repo.30000000000000.00000000000000000000", b"x")
    summary = repository.garbage_collect(datetime.now(UTC) + timedelta(hours=1))
    assert summary.backups_deleted == 1
    assert kinds(repository) == ["GCRan", "NewCommit", "RepoInitialized"]


# Races


def _commit_many(arguments: tuple[str, int, int]) -> list[str]:
    folder, worker, count = arguments
    ids = []
    for number in range(count):
        session = Repository.open(folder).writable_session("main")
        zarr.create_group(session.store, path=f"n{worker}x{number}")
        ids.append(str(session.commit(f"{worker} {number}", rebase_with=ConflictDetector())))
        if number % 3 == 0:
            Repository.open(folder).create_tag(f"t{worker}-{number}", ids[-1])
    return ids


def test_eight_processes_lose_no_acknowledged_commit_on_local_files(tmp_path: Path) -> None:
    first = write(Repository.create(tmp_path, spec_version=2), 0)
    with multiprocessing.get_context("spawn").Pool(8) as pool:
        ids = pool.map(_commit_many, [(str(tmp_path), worker, 6) for worker in range(8)])
    repository = Repository.open(tmp_path)
    history = [info.id for info in repository.ancestry(branch="main")]
    assert sorted(history) == sorted([*(each for some in ids for each in some), first, ROOT])
    assert len(list(repository.readonly_session("main").node_paths())) == 50
    assert len(repository.list_tags()) == 16
    assert kinds(repository).count("NewCommit") == 49
    assert kinds(repository).count("TagCreated") == 16


def test_a_commit_that_is_late_conflicts() -> None:
    repository = new_repository()
    write(repository, 0)
    session = repository.writable_session("main")
    zarr.create_group(session.store, path="late")
    write(repository, 1)
    with pytest.raises(ConflictError):
        session.commit("late")
    session.commit("late", rebase_with=ConflictDetector())
    newest, previous = list(repository.ancestry(branch="main"))[:2]
    assert (newest.message, previous.message) == ("late", "n1")
    assert newest.metadata == {"__icechunk": {"rebase_attempts": 1}}


# Amending


def test_an_amended_commit_has_both_changes_and_the_parent_of_the_replaced_one() -> None:
    repository = new_repository()
    base = with_arrays(repository)
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[0] = 7
    replaced = session.commit("first try", {"try": 1})
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="b")[1] = 8
    amended = session.amend("second try", metadata={"try": 2})
    assert [(info.id, info.message, info.metadata) for info in repository.ancestry(branch="main")][:2] == [
        (amended, "second try", {"try": 2}),
        (base, "base", {}),
    ]
    assert repository.diff(from_snapshot_id=base, to_snapshot_id=amended).updated_chunks == {"/a": [[0]], "/b": [[1]]}
    assert repository.lookup_snapshot(replaced).message == "first try"
    kind = next(repository.ops_log()).kind
    assert kind == UpdateType.CommitAmended("main", replaced, amended)  # type: ignore[attr-defined]
    repository.garbage_collect(datetime.now(UTC) + timedelta(hours=1))
    with pytest.raises(SnapshotNotFound):
        repository.lookup_snapshot(replaced)
    values = state(repository.readonly_session("main"))
    assert (values["/a"]["values"][0], values["/b"]["values"][1]) == (7, 8)


def test_what_cannot_be_amended() -> None:
    repository = new_repository()
    session = repository.writable_session("main")
    zarr.create_group(session.store)
    with pytest.raises(InvalidAmend):
        session.amend("x")
    with_arrays(repository)
    session = repository.writable_session("main")
    with pytest.raises(NoChangesToCommit):
        session.amend("x")
    zarr.create_group(session.store, path="n")
    write(repository, 1)
    with pytest.raises(ConflictError):
        session.amend("x")
    moving = repository.rearrange_session("main")
    moving.move("/a", "/m")
    moving.commit("moved")
    session = repository.writable_session("main")
    zarr.create_group(session.store, path="n")
    with pytest.raises(WrongSessionMode):
        session.amend("x")


def test_an_empty_commit_is_allowed_where_it_is_asked_for() -> None:
    repository = new_repository()
    session = repository.writable_session("main")
    with pytest.raises(NoChangesToCommit):
        session.commit("nothing")
    session.commit("nothing", allow_empty=True)
    assert repository.diff(from_snapshot_id=ROOT, to_branch="main").is_empty()


def test_a_flushed_snapshot_is_listed_until_it_is_collected() -> None:
    repository = new_repository()
    base = with_arrays(repository)
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[0] = 7
    flushed = session.flush("detached", {"k": 1})
    assert repository.lookup_snapshot(flushed).parent_id == base
    repository.garbage_collect(datetime.now(UTC) - timedelta(hours=1))
    repository.create_branch("kept", flushed)
    assert state(repository.readonly_session("kept"))["/a"]["values"][0] == 7
    repository.delete_branch("kept")
    summary = repository.garbage_collect(datetime.now(UTC) + timedelta(hours=1))
    assert (summary.snapshots_deleted, summary.transaction_logs_deleted) == (1, 1)
    with pytest.raises(SnapshotNotFound):
        repository.lookup_snapshot(flushed)


def test_rewritten_manifests_may_take_the_place_of_the_newest_commit() -> None:
    repository = Repository.open_or_create(MemoryStore(), create_version=2)
    base = with_arrays(repository)
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[0] = 7
    session.commit("write")
    tip = repository.rewrite_manifests("rewritten", branch="main", commit_method="amend")
    assert [info.id for info in repository.ancestry(branch="main")] == [tip, base, ROOT]
    assert repository.diff(from_snapshot_id=base, to_snapshot_id=tip).updated_chunks == {"/a": [[0]]}
    assert state(repository.readonly_session("main"))["/a"]["values"] == [7, 1, 2, 3]


# Moving


def moved(repository: Repository, *moves: tuple[str, str]) -> str:
    session = repository.rearrange_session("main")
    for old, new in moves:
        session.move(old, new)
    return session.commit("moved")


def test_moves_keep_ids_and_values() -> None:
    repository = new_repository()
    base = with_arrays(repository)
    before = repository.readonly_session("main")
    tip = moved(repository, ("/g", "/h"), ("/a", "/h/a"), ("/b", "/t"), ("/h/x", "/b"), ("/t", "/h/x"))
    after = repository.readonly_session("main")
    assert {path: after.get_node_id(path) for path in after.node_paths()} == {
        new: before.get_node_id(old)
        for old, new in {
            **{"/": "/", "/g": "/h", "/g/sub": "/h/sub"},
            **{"/a": "/h/a", "/b": "/h/x", "/g/x": "/b"},
        }.items()
    }
    assert state(after)["/h/x"]["values"] == [0, 1]
    assert state(after)["/b"]["values"] == [0, 1, 2, 3]
    difference = repository.diff(from_snapshot_id=base, to_snapshot_id=tip)
    assert difference.moved_nodes == [
        ("/g/x", "/b"),
        ("/g", "/h"),
        ("/a", "/h/a"),
        ("/g/sub", "/h/sub"),
        ("/b", "/h/x"),
    ]
    assert replace(difference, moved_nodes=[]).is_empty()
    manifests = {
        path: node.manifests
        for path, node in repository.assets.snapshot(after._base_id).nodes.items()
        if hasattr(node, "manifests")
    }
    assert manifests["/h/a"] == before.array("/a").manifests


def test_a_session_reads_what_it_has_moved() -> None:
    repository = new_repository()
    with_arrays(repository)
    session = repository.rearrange_session("main")
    assert session.mode is SessionMode.rearrange
    session.move("/g", "/h")
    assert session.node("/g") is None
    assert state(session)["/h/x"]["values"] == [0, 1, 2, 3]
    assert session.status().moved_nodes == [("/g", "/h"), ("/g/sub", "/h/sub"), ("/g/x", "/h/x")]
    with pytest.raises(WrongSessionMode):
        zarr.create_group(session.store, path="new")
    session.move("/h", "/g")
    assert session.status().is_empty()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *(("/missing", "/m"), ("/g", "/g"), ("/g", "/g/sub/g"), ("/a", "/b"), ("/a", "/missing/a"), ("/", "/r")),
        ("/b", "/a/b"),
    ],
)
def test_moves_that_are_refused(old: str, new: str) -> None:
    repository = new_repository()
    with_arrays(repository)
    with pytest.raises(InvalidMove):
        repository.rearrange_session("main").move(old, new)


def test_writable_sessions_do_not_move() -> None:
    repository = new_repository()
    with_arrays(repository)
    with pytest.raises(WrongSessionMode):
        repository.writable_session("main").move("/a", "/m")


def test_nothing_is_rebased_over_moves() -> None:
    repository = new_repository()
    with_arrays(repository)
    session, other = repository.writable_session("main"), repository.rearrange_session("main")
    zarr.open_array(session.store, path="b")[0] = 1
    other.move("/b", "/c")
    moved(repository, ("/a", "/m"))
    for late in (session, other):
        with pytest.raises(RebaseFailedError) as raised:
            late.commit("late", rebase_with=BasicConflictSolver())
        (conflict,) = raised.value.conflicts
        assert (conflict.conflict_type, conflict.path) == (ConflictType.MoveOperationCannotBeRebased, "")


def test_moves_are_rebased_over_writes() -> None:
    repository = new_repository()
    with_arrays(repository)
    session = repository.rearrange_session("main")
    session.move("/g", "/h")
    other = repository.writable_session("main")
    zarr.open_array(other.store, path="g/x")[0] = 55
    zarr.create_group(other.store, path="g/new")
    other.commit("theirs")
    session.commit("moved", rebase_with=ConflictDetector())
    after = state(repository.readonly_session("main"))
    assert after["/h/x"]["values"][0] == 55
    assert "/h/new" in after
    assert "/g" not in after


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ("create /m", ConflictType.NewNodeConflictsWithExistingNode),
        ("delete /a", ConflictType.ZarrMetadataUpdateOfDeletedArray),
    ],
)
def test_moves_for_which_there_is_no_place_are_refused(change: str, kind: ConflictType) -> None:
    repository = new_repository()
    with_arrays(repository)
    session = repository.rearrange_session("main")
    session.move("/a", "/m")
    other = repository.writable_session("main")
    if change == "create /m":
        zarr.create_group(other.store, path="m")
    else:
        del zarr.open_group(other.store)["a"]
    other.commit("theirs")
    with pytest.raises(RebaseFailedError) as raised:
        session.commit("moved", rebase_with=ConflictDetector())
    assert [conflict.conflict_type for conflict in raised.value.conflicts] == [kind]


# Expiration and collection


def aged(store: ObjectStore, count: int) -> tuple[Repository, list[str], datetime]:
    """Return a repository of commits that are an hour apart, and the time of the first."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    now = [start]
    repository = Repository.create(store, spec_version=2, clock=lambda: now[0])
    ids = []
    for number in range(count):
        now[0] += timedelta(hours=1)
        ids.append(write(repository, number))
    now[0] += timedelta(hours=1)
    return repository, ids, start


def test_an_expired_history_keeps_its_logs() -> None:
    repository, ids, start = aged(MemoryStore(), 6)
    repository.create_tag("kept", ids[1])
    everything = repository.diff(from_snapshot_id=ROOT, to_branch="main")
    older_than = start + timedelta(hours=4, minutes=30)
    assert repository.expire_snapshots(older_than, dry_run=True) == {ids[0], ids[2], ids[3]}
    assert repository.expire_snapshots(older_than) == {ids[0], ids[2], ids[3]}
    assert [info.id for info in repository.ancestry(branch="main")] == [ids[5], ids[4], ROOT]
    assert [info.id for info in repository.ancestry(tag="kept")] == [ids[1], ROOT]
    repository.garbage_collect(datetime.now(UTC) + timedelta(hours=1))
    assert repository.diff(from_snapshot_id=ROOT, to_branch="main") == everything
    session = repository.writable_session("main")
    zarr.create_group(session.store, path="late")
    session.commit("late")
    assert sorted(meta.key[10:] for meta in repository.storage.list("snapshots/")) == sorted(
        [ROOT, ids[1], ids[4], ids[5], session.snapshot_id]
    )
    repository.expire_snapshots(start + timedelta(hours=5, minutes=30))
    info = repository.assets.layout.info()
    entry = info.snapshot(repository._existing(ids[5]))
    assert [encode_id(log) for log in entry.pruned_logs] == ids[:5]


def test_expired_branches_and_tags_are_deleted_on_request() -> None:
    repository, ids, start = aged(MemoryStore(), 3)
    repository.create_tag("old", ids[0])
    repository.create_branch("old", ids[0])
    repository.create_branch("root", ROOT)
    repository.expire_snapshots(start + timedelta(hours=9), delete_expired_branches=True, delete_expired_tags=True)
    assert repository.list_branches() == {"main", "root"}
    assert repository.list_tags() == set()
    assert repository.lookup_branch("main") == ids[2]
    with pytest.raises(RefAlreadyExists):
        repository.create_tag("old", ids[2])


def test_collection_keeps_all_that_is_reached() -> None:
    repository = new_repository()
    with_arrays(repository)
    session = repository.writable_session("main")
    array = zarr.create_array(
        session.store, name="big", shape=(1000,), chunks=(500,), dtype="f8", compressors=None, fill_value=0
    )
    array[:] = 1.0
    session.commit("big")
    abandoned = repository.writable_session("main")
    zarr.open_array(abandoned.store, path="big")[:] = 2.0
    before = state(repository.readonly_session("main"))
    summary = repository.garbage_collect(datetime.now(UTC) + timedelta(hours=1))
    assert summary.chunks_deleted == 2
    assert state(repository.readonly_session("main")) == before


# Upgrading


def version_1(store: ObjectStore) -> Repository:
    config = RepositoryConfig(inline_chunk_threshold_bytes=3)
    repository = Repository.create(store, config=config)
    first = with_arrays(repository)
    write(repository, 1)
    repository.create_branch("dev", first)
    write(repository, 2, "dev")
    repository.create_tag("v1", first)
    repository.create_tag("gone", first)
    repository.delete_tag("gone")
    return repository


def facts(repository: Repository) -> dict[str, Any]:
    return {
        "branches": {name: repository.lookup_branch(name) for name in repository.list_branches()},
        "tags": {name: repository.lookup_tag(name) for name in repository.list_tags()},
        "history": {
            name: [replace(info, manifests=None) for info in repository.ancestry(branch=name)]
            for name in repository.list_branches()
        },
        "states": {name: state(repository.readonly_session(name)) for name in repository.list_branches()},
        "config": repository.config,
    }


def test_an_upgrade_changes_nothing_that_is_read() -> None:
    store = MemoryStore()
    repository = version_1(store)
    before = facts(repository)
    reader, writer = repository.readonly_session("dev"), repository.writable_session("main")
    assert upgrade_icechunk_repository(repository, dry_run=True).spec_version == 1
    upgraded = upgrade_icechunk_repository(repository, dry_run=False)
    assert upgraded.spec_version == 2
    assert facts(upgraded) == facts(Repository.open(store)) == before
    assert [meta.key for meta in store.list("refs/")] == []
    assert not store.exists("config.yaml")
    with pytest.raises(RefAlreadyExists):
        upgraded.create_tag("gone", upgraded.lookup_branch("main"))
    assert state(reader) == before["states"]["dev"]
    zarr.create_group(writer.store, path="after")
    writer.commit("by a session that was opened before")
    assert "/after" in state(Repository.open(store).readonly_session("main"))
    assert kinds(upgraded)[:2] == ["NewCommit", "RepoMigrated"]
    assert sorted(kinds(upgraded)[2:]) == sorted(
        ["RepoInitialized", "BranchCreated", *["NewCommit"] * 3, "TagCreated", "TagCreated", "TagDeleted"]
    )
    with pytest.raises(UnsupportedSpecVersion):
        upgrade_icechunk_repository(upgraded, dry_run=False)


def test_files_of_version_1_may_stay() -> None:
    store = MemoryStore()
    upgrade_icechunk_repository(version_1(store), dry_run=False, delete_unused_v1_files=False)
    assert store.exists("refs/branch.main/ref.json")
    write(Repository.open(store), 5)
    assert len(list(Repository.open(store).ancestry(branch="main"))) == 4


class LateWriter(MemoryStore):
    """A store in which another client moves main at the moment that `repo` is written."""

    late: Any = None

    def _put(self, key: str, data: Any, if_absent: bool, if_match: str | None, unique: bool) -> Any:
        result = super()._put(key, data, if_absent, if_match, unique)
        if key == "repo" and self.late is not None:
            late, self.late = self.late, None
            late()
        return result


def test_a_commit_during_the_upgrade_is_not_lost() -> None:
    from lake_core.icechunk.layout_v1 import LayoutV1
    from lake_core.icechunk.refs import RefKind, encode_ref, ref_key

    store = LateWriter()
    repository = version_1(store)
    session = repository.writable_session("main")
    zarr.create_group(session.store, path="late")
    snapshot = session._commit("late", None).write(session.change_set, session.snapshot)

    def late() -> None:
        tip = LayoutV1(store).lookup(RefKind.BRANCH, "main")
        store.put(ref_key(RefKind.BRANCH, "main"), encode_ref(snapshot.snapshot_id), if_match=tip.etag)

    store.late = late
    upgraded = upgrade_icechunk_repository(repository, dry_run=False)
    assert [info.message for info in upgraded.ancestry(branch="main")][:2] == ["late", "n1"]
    assert "/late" in state(upgraded.readonly_session("main"))


# Damage


def test_any_damage_of_repo_is_an_error_of_ours_and_no_endless_work() -> None:
    repository = new_repository(config=RepositoryConfig(inline_chunk_threshold_bytes=1))
    with_arrays(repository)
    write(repository, 1)
    repository.create_tag("v1", repository.lookup_branch("main"))
    repository.set_metadata({"a": {"b": [1, 2.5, "text"]}})
    data = bytes(repository.storage.get("repo"))
    body = zstandard.ZstdDecompressor().decompress(data[39:], max_output_size=2**20)
    random = np.random.default_rng(7)
    outcomes = set()
    for _ in range(1500):
        broken = bytearray(body)
        for _ in range(int(random.integers(1, 4))):
            broken[int(random.integers(len(broken)))] = int(random.integers(256))
        cut = int(random.integers(len(broken))) if random.random() < 0.1 else len(broken)
        file = data[:39] + zstandard.ZstdCompressor().compress(bytes(broken[:cut]))
        try:
            info = decode_repo_info(file)
            for entry in info.snapshots.values():
                dict(entry.metadata)
                list(info.ancestry(entry.snapshot_id))
            list(info.updates)
            dict(info.metadata)
            outcomes.add("read")
        except (DamagedObject, UnsupportedSpecVersion) as error:
            assert "repo" in str(error)
            outcomes.add("error")
    assert outcomes == {"read", "error"}


def test_a_loop_of_parents_ends_in_an_error() -> None:
    repository = new_repository()
    ids = [repository._existing(write(repository, number)) for number in range(2)]
    info = repository.assets.layout.info()
    entries = dict(info.snapshots)
    entries[ids[0]] = replace(entries[ids[0]], parent_id=ids[1])
    data = repository.storage.get("repo")
    repository.storage.put("repo", encode_repo_info(replace(info, snapshots=entries)), if_match=data.etag)
    for walk in (
        lambda: list(repository.ancestry(branch="main")),
        lambda: repository.expire_snapshots(datetime.now(UTC)),
        lambda: repository.garbage_collect(datetime.now(UTC)),
        lambda: repository.chunk_storage_stats(),
    ):
        with pytest.raises(DamagedObject, match="its own ancestor"):
            walk()


def test_a_repository_that_lost_its_state_says_so(tmp_path: Path) -> None:
    repository = Repository.create(LocalStore(tmp_path), spec_version=2)
    assert repository.spec_version == 2
    repository.storage.delete(["repo"])
    with pytest.raises(IcechunkError, match="repo"):
        repository.list_branches()


# Virtual chunks by the name of their container


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


# Rectilinear grids


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


# Answers that are lost


class LosesAnswers(MemoryStore):
    """A store that does not answer some puts of `repo`, before or after they take effect."""

    plan: list[str]

    def _put(self, key: str, data: Any, if_absent: bool, if_match: str | None, unique: bool) -> Any:
        outcome = self.plan.pop(0) if key == "repo" and getattr(self, "plan", None) else "answered"
        if outcome == "lost before":
            raise StoreUnavailable("no answer", key=key)
        result = super()._put(key, data, if_absent, if_match, unique)
        if outcome == "lost after":
            raise StoreUnavailable("no answer", key=key)
        return result


def test_a_commit_whose_answer_is_lost_counts_once() -> None:
    store = LosesAnswers()
    repository = Repository.create(store, spec_version=2)
    write(repository, 0)
    session = repository.writable_session("main")
    zarr.create_group(session.store, path="n")
    store.plan = ["lost after"]
    session.commit("once")
    session = repository.writable_session("main")
    zarr.create_group(session.store, path="m")
    store.plan = ["lost before"]
    with pytest.raises(StoreUnavailable):
        session.commit("again")
    session.commit("again")
    assert [info.message for info in repository.ancestry(branch="main")][:3] == ["again", "once", "n0"]
    assert kinds(repository) == ["NewCommit", "NewCommit", "NewCommit", "RepoInitialized"]


def test_a_session_whose_commit_is_unconfirmed_finds_it_beneath_later_ones() -> None:
    store = LosesAnswers()
    repository = Repository.create(store, spec_version=2)
    write(repository, 0)
    session = repository.writable_session("main")
    zarr.create_group(session.store, path="n")
    store.plan = ["lost before"]
    with pytest.raises(StoreUnavailable):
        session.commit("first")
    write(repository, 1)
    session.commit("first", rebase_with=ConflictDetector())
    assert [info.message for info in repository.ancestry(branch="main")][:3] == ["first", "n1", "n0"]


def test_texts_that_share_their_bytes_do_not_fill_the_memory() -> None:
    repository = new_repository()
    data = bytes(repository.storage.get("repo"))
    body = zstandard.ZstdDecompressor().decompress(data[39:], max_output_size=2**20)
    writer = FlatbufferWriter()
    writer.buffer[:] = body
    root = int.from_bytes(body[:4], "little")
    vtable = root - int.from_bytes(body[root : root + 4], "little", signed=True)
    deleted = root + int.from_bytes(body[vtable + 4 + 2 * 3 : vtable + 6 + 2 * 3], "little")
    offsets = writer.offsets(deleted, 100_000)
    for number in range(100_000):
        writer.link(offsets + 4 * number)
    writer.buffer += (2**20).to_bytes(4, "little") + b"x" * 2**20
    file = encode_file(FileType.REPO_INFO, writer.finish(), spec_version=2)
    with pytest.raises(DamagedObject, match="stand for"):
        decode_repo_info(file)


def test_a_session_whose_base_has_expired_is_not_rebased() -> None:
    repository, _, start = aged(MemoryStore(), 2)
    session = repository.writable_session("main")
    zarr.create_group(session.store, path="late")
    write(repository, 7)
    write(repository, 8)
    repository.expire_snapshots(start + timedelta(hours=2, minutes=30))
    with pytest.raises(NotInAncestry, match="new session"):
        session.commit("late", rebase_with=ConflictDetector())
    assert session.has_uncommitted_changes


def test_a_session_on_the_first_snapshot_is_rebased_over_expired_ones() -> None:
    repository, _, start = aged(MemoryStore(), 0)
    late, refused = repository.writable_session("main"), repository.writable_session("main")
    for session, path in ((late, "/other"), (refused, "/n0")):
        session.set_metadata(path, b'{"zarr_format": 3, "node_type": "group"}')
    for number in range(3):
        write(repository, number)
    repository.expire_snapshots(start + timedelta(days=900))
    assert len(list(repository.ancestry(branch="main"))) == 2
    late.commit("late", rebase_with=ConflictDetector())
    with pytest.raises(RebaseFailedError, match="/n0"):
        refused.commit("refused", rebase_with=ConflictDetector())


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
