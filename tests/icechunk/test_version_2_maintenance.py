"""Expiration, collection and upgrades of repositories of version 2."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import zarr

from lake_core.icechunk import (
    ConflictDetector,
    RebaseFailedError,
    Repository,
    RepositoryConfig,
    upgrade_icechunk_repository,
)
from lake_core.icechunk.errors import (
    ConflictError,
    NotInAncestry,
    RefAlreadyExists,
    UnsupportedSpecVersion,
)
from lake_core.icechunk.identifier import encode_id
from lake_core.store import MemoryStore, ObjectStore
from lake_core.store.object_store import ObjectMeta
from lake_core.testing import FaultStore
from tests.icechunk.operations import state
from tests.icechunk.version_2 import ROOT, aged, kinds, new_repository, with_arrays, write


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


class Interrupted(FaultStore):
    """A store that does something else before one of its requests."""

    def __init__(self, inner: ObjectStore, moment: int, other: Callable[[], object]) -> None:
        super().__init__(inner, 10**9)
        self.moment, self.other = moment, other

    def _step(self) -> None:
        self.moment -= 1
        if self.moment == 0:
            self.other()

    def _get(self, key: str, start: int | None, end: int | None) -> Any:
        self._step()
        return super()._get(key, start, end)

    def _head(self, key: str) -> ObjectMeta:
        self._step()
        return super()._head(key)

    def _list(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        self._step()
        return super()._list(prefix, start_after)

    def _put(self, key: str, data: Any, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        self._step()
        return super()._put(key, data, if_absent, if_match, unique)

    def _delete(self, keys: Sequence[str]) -> None:
        self._step()
        super()._delete(keys)


CHANGES: dict[str, Callable[[Repository], object]] = {
    "create a tag": lambda repository: repository.create_tag("new", repository.lookup_branch("main")),
    "create a branch": lambda repository: repository.create_branch("new", repository.lookup_branch("main")),
    "delete a tag": lambda repository: repository.delete_tag("kept"),
    "delete a branch": lambda repository: repository.delete_branch("dev"),
    "reset a branch": lambda repository: repository.reset_branch("dev", ROOT),
    "commit": lambda repository: write(repository, 9),
}


def refs(repository: Repository) -> tuple[dict[str, str], dict[str, str]]:
    """Return branches by their messages, as ids are random, and tags."""

    def message(snapshot_id: str) -> str:
        return str(repository.lookup_snapshot(snapshot_id).message)

    return (
        {name: message(repository.lookup_branch(name)) for name in sorted(repository.list_branches())},
        {name: message(repository.lookup_tag(name)) for name in sorted(repository.list_tags())},
    )


def base_of_version_1() -> MemoryStore:
    store = MemoryStore()
    repository = Repository.create(store)
    first = write(repository, 0)
    repository.create_branch("dev", first)
    repository.create_tag("kept", first)
    write(repository, 1)
    return store


@pytest.mark.parametrize("outer", ["upgrade", "change"])
@pytest.mark.parametrize("change", CHANGES)
def test_what_was_acknowledged_during_an_upgrade_holds_after_it(change: str, outer: str) -> None:
    plain = base_of_version_1()
    before = refs(Repository.open(plain))
    CHANGES[change](Repository.open(plain))
    after = refs(Repository.open(plain))
    for moment in range(1, 200):
        store = base_of_version_1()
        handle = Repository.open(store)
        acknowledged: list[bool] = []

        def do_change(repository: Repository, acknowledged: list[bool] = acknowledged) -> None:
            try:
                CHANGES[change](repository)
                acknowledged.append(True)
            except (UnsupportedSpecVersion, ConflictError):
                acknowledged.append(False)

        if outer == "upgrade":
            interrupted = Interrupted(store, moment, lambda handle=handle, do=do_change: do(handle))  # type: ignore[misc]
            upgrade_icechunk_repository(Repository.open(interrupted), dry_run=False)
        else:
            interrupted = Interrupted(
                store,
                moment,
                lambda handle=handle: upgrade_icechunk_repository(handle, dry_run=False),  # type: ignore[misc]
            )
            do_change(Repository.open(interrupted))
        if interrupted.moment > 0:
            assert moment > 5
            break
        upgraded = Repository.open(store)
        assert upgraded.spec_version == 2
        assert refs(upgraded) in ([after] if acknowledged == [True] else [before, after]), moment


class _UpgradedWhileListed(FaultStore):
    """A store in which a repository is upgraded when its garbage is looked for."""

    def _list(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        if prefix == "chunks/" and not self.exists("repo"):
            upgrade_icechunk_repository(Repository.open(self._inner), dry_run=False)
        return super()._list(prefix, start_after)


def test_a_collection_deletes_nothing_of_a_repository_that_is_upgraded_meanwhile() -> None:
    store = MemoryStore()
    repository = Repository.create(store)
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(4,), chunks=(1,), dtype="i8", compressors=None)[:] = 7
    session.commit("values")
    before = {meta.key for meta in store.list("snapshots/")} | {meta.key for meta in store.list("manifests/")}
    late = Repository.open(_UpgradedWhileListed(store, 10**9))
    with pytest.raises(UnsupportedSpecVersion, match="open it again"):
        late.garbage_collect(datetime.now(UTC) + timedelta(days=1))
    assert before <= {meta.key for meta in store.list()}
    values = zarr.open_array(Repository.open(store).readonly_session("main").store, path="a")[:]
    assert values.tolist() == [7] * 4


def test_the_configuration_is_saved_after_an_upgrade() -> None:
    repository = Repository.create(MemoryStore(), config=RepositoryConfig(inline_chunk_threshold_bytes=100))
    upgraded = upgrade_icechunk_repository(repository, dry_run=False)
    upgraded.config.inline_chunk_threshold_bytes = 200
    upgraded.save_config()
    assert Repository.open(upgraded.storage).config.inline_chunk_threshold_bytes == 200


def test_chunks_of_a_deleted_array_are_none_of_the_one_created_at_its_path() -> None:
    repository = Repository.create(MemoryStore(), spec_version=2)
    session = repository.writable_session("main")
    options: dict[str, Any] = {"shape": (8,), "chunks": (2,), "dtype": "i1", "compressors": None}
    zarr.create_array(session.store, name="a", **options)[:] = 9
    base = session.commit("base")
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[2:4] = 1
    session.commit("writes chunk 1")
    session = repository.writable_session("main")
    session.delete_node("/a")
    zarr.create_array(session.store, name="a", **options)[4:6] = 1
    tip = session.amend("creates it again")
    changes = repository.diff(from_snapshot_id=base, to_snapshot_id=tip)
    assert changes.updated_chunks == {"/a": [[2]]}
