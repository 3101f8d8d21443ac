"""Icechunk repositories in a lake of real files, read by icechunk as plain repositories."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from pathlib import Path

import icechunk
import numpy as np
import pytest
import zarr

from lake_core import Lake
from lake_core.icechunk import Repository, RepositoryConfig
from lake_core.icechunk.dataset_format import IcechunkFormat
from lake_core.icechunk.errors import DamagedObject, InvalidRefName, UnsupportedSpecVersion
from lake_core.icechunk.file_header import FileType, encode_file
from lake_core.lake.errors import Collected, Conflict, DatasetNotFound, NothingToApply, ReadOnly, SessionClosed
from lake_core.lake.gc import collect
from lake_core.lake.gc.retention import HISTORY
from lake_core.lake.publish import commit_to_branch
from lake_core.store import LocalStore, ObjectStore
from lake_core.testing.manual_clock import ManualClock
from tests.lake.arrays import CHUNK, PATH, chunk_values, create_array, filled, outside, outside_values, set_chunk
from tests.lake.lakes import SCHEMA, ids, rows


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Create a lake with the array `values`, whose chunk 0 holds 0."""
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        store = session.create_icechunk(PATH).store
        create_array(store)
        set_chunk(store, 0, 0)
    return lake


def write(lake: Lake, chunk: int, value: int, branch: str = "main") -> None:
    with lake.session(branch) as session:
        set_chunk(session.icechunk(PATH).store, chunk, value)


# Plain readers


def test_icechunk_reads_what_is_published(lake: Lake, tmp_path: Path) -> None:
    write(lake, 3, 7)
    assert outside_values(tmp_path) == filled(c0=0, c3=7)


def test_icechunk_finds_the_branch_main_alone(lake: Lake, tmp_path: Path) -> None:
    repository = outside(tmp_path)
    assert (repository.list_branches(), repository.list_tags()) == ({"main"}, set())


def test_many_flushes_of_a_session_become_one_snapshot(lake: Lake, tmp_path: Path) -> None:
    before = len(list(outside(tmp_path).ancestry(branch="main")))
    with lake.session() as session:
        for number in range(3):
            set_chunk(session.icechunk(PATH).store, number, number + 10)
            session.icechunk(PATH).session.commit(f"step {number}")
    assert len(list(outside(tmp_path).ancestry(branch="main"))) == before + 1
    assert outside_values(tmp_path) == filled(c0=10, c1=11, c2=12)


def test_icechunk_tells_what_a_published_snapshot_changed(lake: Lake, tmp_path: Path) -> None:
    before = outside(tmp_path).lookup_branch("main")
    with lake.session() as session:
        set_chunk(session.icechunk(PATH).store, 1, 1)
        session.icechunk(PATH).session.commit("first")
        set_chunk(session.icechunk(PATH).store, 2, 2)
    changed = outside(tmp_path).diff(from_snapshot_id=before, to_branch="main")
    assert {path: sorted(chunks) for path, chunks in changed.updated_chunks.items()} == {"/values": [[1], [2]]}


def test_what_icechunk_commits_to_the_folder_is_published_upon(lake: Lake, tmp_path: Path) -> None:
    session = lake.session()
    set_chunk(session.icechunk(PATH).store, 1, 1)
    other = outside(tmp_path).writable_session("main")
    set_chunk(other.store, 2, 2)
    other.commit("by icechunk")
    session.publish()
    assert outside_values(tmp_path) == chunk_values(lake.icechunk(PATH).store) == filled(c0=0, c1=1, c2=2)


def test_a_pointer_that_another_checkout_moves_meanwhile_accuses_nobody(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(commit_to_branch, "try_check_out", lambda *_: False)
        write(lake, 3, 7)
    is_behind = IcechunkFormat.is_behind

    def overtaken(self: IcechunkFormat, key: str, store: ObjectStore, other: ObjectStore) -> bool:
        monkeypatch.setattr(IcechunkFormat, "is_behind", is_behind)
        Lake.open(tmp_path).maintenance.checkout()
        return self.is_behind(key, store, other)

    monkeypatch.setattr(IcechunkFormat, "is_behind", overtaken)
    lake.maintenance.checkout()
    assert outside_values(tmp_path) == filled(c0=0, c3=7)


def test_nothing_is_adopted_from_a_folder_that_is_behind_main(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(commit_to_branch, "try_check_out", lambda *_: False)
        write(lake, 3, 7)
    with pytest.raises(NothingToApply):
        lake.maintenance.adopt(PATH)
    lake.maintenance.checkout()
    assert outside_values(tmp_path) == filled(c0=0, c3=7)


def test_what_icechunk_commits_to_the_same_chunk_is_a_conflict(lake: Lake, tmp_path: Path) -> None:
    session = lake.session()
    set_chunk(session.icechunk(PATH).store, 1, 1)
    other = outside(tmp_path).writable_session("main")
    set_chunk(other.store, 1, 2)
    other.commit("by icechunk")
    with pytest.raises(Conflict) as caught:
        session.publish()
    assert caught.value.kinds == {PATH: "ChunkDoubleUpdate"}


def test_icechunk_commits_on_what_a_lake_published(lake: Lake, tmp_path: Path) -> None:
    other = outside(tmp_path).writable_session("main")
    set_chunk(other.store, 5, 5)
    other.commit("by icechunk")
    lake.maintenance.adopt(PATH)
    assert chunk_values(lake.icechunk(PATH).store) == filled(c0=0, c5=5)


# Sessions


def test_handles_of_one_session_share_what_they_hold(lake: Lake) -> None:
    session = lake.session()
    first, other = session.icechunk(PATH), session.icechunk(PATH)
    set_chunk(first.store, 4, 4)
    assert chunk_values(other.store) == filled(c0=0, c4=4)


def test_a_session_that_fails_leaves_nothing(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the job died"), lake.session() as session:
        set_chunk(session.icechunk(PATH).store, 4, 4)
        raise RuntimeError("the job died")
    assert outside_values(tmp_path) == filled(c0=0)


def test_a_published_session_takes_no_more(lake: Lake) -> None:
    with lake.session() as session:
        store = session.icechunk(PATH).store
        set_chunk(store, 4, 4)
    with pytest.raises(SessionClosed):
        zarr.open_group(store, mode="r+").attrs["late"] = 1


def test_an_older_handle_does_not_write_to_a_dropped_repository(lake: Lake) -> None:
    session = lake.session()
    store = session.icechunk(PATH).store
    session.drop(PATH)
    session.create_icechunk(PATH)
    with pytest.raises(DatasetNotFound, match="was dropped"):
        create_array(store, "late")


def test_a_commit_only_reads(lake: Lake) -> None:
    with pytest.raises(ValueError, match="read"):
        set_chunk(lake.icechunk(PATH).store, 1, 1)


def test_sessions_that_write_different_chunks_merge(lake: Lake, tmp_path: Path) -> None:
    first, second = lake.session(), lake.session()
    set_chunk(first.icechunk(PATH).store, 1, 1)
    set_chunk(second.icechunk(PATH).store, 2, 2)
    first.publish()
    second.publish()
    assert outside_values(tmp_path) == filled(c0=0, c1=1, c2=2)


def test_a_conflict_names_the_array_and_its_chunks(lake: Lake) -> None:
    first, second = lake.session(), lake.session()
    for number, session in enumerate((first, second)):
        for chunk in (3, 8):
            set_chunk(session.icechunk(PATH).store, chunk, number)
    first.publish()
    with pytest.raises(Conflict, match=r"/values, chunks \[3\], \[8\]") as caught:
        second.publish()
    assert caught.value.kinds == {PATH: "ChunkDoubleUpdate"}


def test_a_resize_conflicts_with_chunks_that_others_write(lake: Lake) -> None:
    first, second = lake.session(), lake.session()
    zarr.open_array(first.icechunk(PATH).store, path="values", mode="r+").resize((CHUNK,))
    set_chunk(second.icechunk(PATH).store, 8, 8)
    first.publish()
    with pytest.raises(Conflict) as caught:
        second.publish()
    assert caught.value.kinds == {PATH: "ChunksUpdatedInUpdatedArray"}


@pytest.mark.parametrize("resizes_first", [True, False])
def test_a_chunk_does_not_go_unseen_where_another_session_makes_the_array_smaller(
    lake: Lake, resizes_first: bool
) -> None:
    resizing, writing = lake.session(), lake.session()
    zarr.open_array(resizing.icechunk(PATH).store, path="values", mode="r+").resize((CHUNK,))
    set_chunk(writing.icechunk(PATH).store, 8, 8)
    first, second = (resizing, writing) if resizes_first else (writing, resizing)
    first.publish()
    with pytest.raises(Conflict):
        second.publish()


def test_a_chunk_stays_that_an_array_lost_and_grew_back_over_on_the_other_branch(lake: Lake) -> None:
    lake.create_branch("dev")
    for length in (CHUNK, 10 * CHUNK):
        with lake.session("dev") as session:
            zarr.open_array(session.icechunk(PATH).store, path="values", mode="r+").resize((length,))
    with lake.session("dev") as session:
        create_array(session.icechunk(PATH).store, "others")
    lake.cherry_pick("dev", onto="main")  # from here on a merge brings each write by itself
    write(lake, 8, 8)
    with pytest.raises(Conflict, match=r"/values, chunks \[8\]"):
        lake.merge("dev")


def test_two_sessions_that_create_one_repository_merge_their_arrays(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    first, second = lake.session(), lake.session()
    for name, session in (("a", first), ("b", second)):
        store = session.create_icechunk(PATH).store
        create_array(store, name)
        set_chunk(store, 1, 1, name)
    first.publish()
    second.publish()
    assert [outside_values(tmp_path, name=name) for name in "ab"] == [filled(c1=1)] * 2


def test_a_table_and_an_array_publish_together(lake: Lake, tmp_path: Path) -> None:
    with lake.session() as session:
        session.create_delta("tables/stations", SCHEMA).append(rows([1]))
        set_chunk(session.icechunk(PATH).store, 1, 1)
    assert (ids(lake.delta("tables/stations")), chunk_values(lake.icechunk(PATH).store)) == ([1], filled(c0=0, c1=1))
    assert len(lake.log()) == 3


@pytest.mark.parametrize("array", ["foo", "other"])
def test_a_serializable_session_fails_where_what_it_read_has_changed(lake: Lake, array: str) -> None:
    with lake.session() as session:
        for name in ("foo", "bar"):
            create_array(session.icechunk(PATH).store, name)
        create_array(session.create_icechunk("arrays/apart").store, "other")
    reader = lake.session(isolation="serializable")
    path = PATH if array == "foo" else "arrays/apart"
    value = chunk_values(reader.icechunk(path).store, array)[2]
    set_chunk(reader.icechunk(PATH).store, 0, value + 1, "bar")
    with lake.session() as writer:
        set_chunk(writer.icechunk(path).store, 2, 9, array)
    with pytest.raises(Conflict) as caught:
        reader.publish()
    assert "ReadChanged" in caught.value.kinds.values()


def test_a_session_that_is_not_serializable_relies_on_nothing_it_read(lake: Lake) -> None:
    reader = lake.session()
    chunk_values(reader.icechunk(PATH).store)
    set_chunk(reader.icechunk(PATH).store, 5, 5)
    write(lake, 2, 2)
    reader.publish()
    assert chunk_values(lake.icechunk(PATH).store) == filled(c0=0, c2=2, c5=5)


# Branches, tags and history


@pytest.mark.parametrize("kind", ["branch", "tag"])
def test_a_repository_has_no_branches_and_tags_of_its_own(lake: Lake, kind: str) -> None:
    repository = lake.session().icechunk(PATH)
    snapshot = repository.lookup_branch("main")
    with pytest.raises(InvalidRefName, match=f"lake.create_{kind}"):
        getattr(repository, f"create_{kind}")("dev", snapshot)


def test_a_read_only_handle_makes_no_branches_either(lake: Lake) -> None:
    repository = lake.icechunk(PATH)
    with pytest.raises((InvalidRefName, ReadOnly)):
        repository.create_branch("dev", repository.lookup_branch("main"))


def test_a_branch_with_many_commits_merges_as_one_snapshot(lake: Lake, tmp_path: Path) -> None:
    lake.create_branch("dev")
    for number in (1, 2, 3):
        write(lake, number, number, "dev")
    write(lake, 8, 8)
    before = len(list(outside(tmp_path).ancestry(branch="main")))
    lake.merge("dev")
    assert len(list(outside(tmp_path).ancestry(branch="main"))) == before + 1
    assert outside_values(tmp_path) == filled(c0=0, c1=1, c2=2, c3=3, c8=8)


def test_branches_merge_again_and_again(lake: Lake) -> None:
    lake.create_branch("dev")
    for number in (1, 3, 5):
        write(lake, number, number, "dev")
        write(lake, number + 1, number + 1)
        lake.merge("dev")
        lake.merge("main", into="dev")
    expected = filled(c0=0, c1=1, c2=2, c3=3, c4=4, c5=5, c6=6)
    assert [chunk_values(lake.icechunk(PATH, ref=ref).store) for ref in ("main", "dev")] == [expected, expected]


def test_a_cherry_picked_chunk_does_not_contradict_itself(lake: Lake) -> None:
    lake.create_branch("dev")
    write(lake, 1, 1, "dev")
    lake.cherry_pick("dev", onto="main")
    write(lake, 2, 2, "dev")
    lake.merge("dev")
    assert chunk_values(lake.icechunk(PATH).store) == filled(c0=0, c1=1, c2=2)


def test_a_revert_keeps_what_came_later(lake: Lake, tmp_path: Path) -> None:
    write(lake, 1, 1)
    write(lake, 2, 2)
    lake.revert("main~1")
    assert outside_values(tmp_path) == filled(c0=0, c2=2)


def test_a_deleted_array_is_brought_back_by_a_revert(lake: Lake, tmp_path: Path) -> None:
    with lake.session() as session:
        del zarr.open_group(session.icechunk(PATH).store, mode="r+")["values"]
    lake.revert("main")
    assert outside_values(tmp_path) == filled(c0=0)


def test_a_merge_by_strategy_takes_a_repository_whole(lake: Lake, tmp_path: Path) -> None:
    lake.create_branch("dev")
    write(lake, 1, 1, "dev")
    write(lake, 1, 2)
    write(lake, 3, 3)
    lake.merge("dev", strategy="theirs")
    assert outside_values(tmp_path) == filled(c0=0, c1=1)


def test_plain_readers_see_the_arrays_of_a_dropped_repository_go(lake: Lake, tmp_path: Path) -> None:
    with lake.session() as session:
        session.drop(PATH)
    assert outside(tmp_path).readonly_session("main").store is not None
    with pytest.raises(Exception, match=r"not found|does not exist|No array"):
        outside_values(tmp_path)


def test_a_comparison_names_arrays_and_counts_chunks(lake: Lake) -> None:
    with lake.session() as session:
        store = session.icechunk(PATH).store
        create_array(store, "more")
        set_chunk(store, 1, 1, "more")
        set_chunk(store, 0, 5)
        set_chunk(store, 7, 7)
    (change,) = lake.compare("main~1", "main").datasets
    listed = [(node.path, node.kind, node.chunks_written, node.chunks_erased) for node in change.comparison.nodes]
    assert listed == [("/more", "added", 1, 0), ("/values", "changed", 2, 0)]


def test_older_states_are_read(lake: Lake) -> None:
    write(lake, 0, 1)
    lake.create_tag("v1")
    write(lake, 0, 2)
    assert [chunk_values(lake.icechunk(PATH, ref=ref).store)[0] for ref in ("main~2", "v1", "main")] == [0, 1, 2]


# Markers


def test_a_marked_commit_counts_once(lake: Lake) -> None:
    skipped = []
    for value in (1, 2):
        with lake.session() as session:
            repository = session.icechunk(PATH)
            set_chunk(repository.store, 1, value)
            skipped.append(repository.session.commit("daily", txn=("daily", 7)).skipped)
    assert (skipped, chunk_values(lake.icechunk(PATH).store)[1]) == ([False, True], 1)


def test_of_two_sessions_with_one_marker_the_second_is_skipped(lake: Lake) -> None:
    sessions = [lake.session(), lake.session()]
    for value, session in enumerate(sessions):
        repository = session.icechunk(PATH)
        set_chunk(repository.store, 1, value)
        repository.session.commit("daily", txn=("daily", 7))
    sessions[0].publish()
    assert [write.path for write in sessions[1].publish().skipped] == [PATH]
    assert chunk_values(lake.icechunk(PATH).store)[1] == 0


def test_a_reverted_commit_lowers_its_marker(lake: Lake) -> None:
    for _ in range(2):
        with lake.session() as session:
            repository = session.icechunk(PATH)
            set_chunk(repository.store, 1, 1)
            assert not repository.session.commit("daily", txn=("daily", 7)).skipped
        lake.revert("main")
    assert chunk_values(lake.icechunk(PATH).store) == filled(c0=0)


def test_what_icechunk_commits_to_the_folder_leaves_markers_as_they_are(lake: Lake, tmp_path: Path) -> None:
    def load(version: int, commits_outside: bool = True) -> bool:
        with lake.session() as session:
            repository = session.icechunk(PATH)
            set_chunk(repository.store, 1, version)
            skipped = repository.session.commit("daily", txn=("daily", version)).skipped
            if commits_outside:
                other = outside(tmp_path).writable_session("main")
                set_chunk(other.store, 2 + version, version)
                other.commit("by icechunk")
        return skipped

    assert [load(1), load(2), load(2, commits_outside=False)] == [False, False, True]
    assert chunk_values(lake.icechunk(PATH).store) == filled(c0=0, c1=2, c3=1, c4=2)


# Configuration


def test_a_configuration_is_published_and_read_by_icechunk(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        session.create_icechunk(PATH, config=RepositoryConfig(inline_chunk_threshold_bytes=0))
    config = icechunk.Repository.fetch_config(icechunk.local_filesystem_storage(str(tmp_path / PATH)))
    assert config is not None
    assert config.inline_chunk_threshold_bytes == 0


def test_a_changed_configuration_comes_with_a_snapshot(lake: Lake, tmp_path: Path) -> None:
    before = outside(tmp_path).lookup_branch("main")
    with lake.session() as session:
        repository = session.icechunk(PATH, config=RepositoryConfig(inline_chunk_threshold_bytes=0))
        repository.save_config()
    assert outside(tmp_path).lookup_branch("main") != before
    assert lake.icechunk(PATH).config.inline_chunk_threshold_bytes == 0


def _save_outside(root: Path, threshold: int) -> None:
    repository = Repository.open(root / PATH)
    repository.config.inline_chunk_threshold_bytes = threshold
    repository.save_config()


def test_a_configuration_that_another_client_saves_is_adopted(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        session.create_icechunk(PATH, config=RepositoryConfig(inline_chunk_threshold_bytes=0))
    _save_outside(tmp_path, 777)
    with lake.session() as session:
        zarr.create_group(session.icechunk(PATH).store, path="g")
    assert lake.icechunk(PATH).config.inline_chunk_threshold_bytes == 777
    assert Repository.open(tmp_path / PATH).config.inline_chunk_threshold_bytes == 777
    assert "g" in zarr.open_group(outside(tmp_path).readonly_session("main").store, mode="r")


@pytest.mark.parametrize("has_one", [False, True])
def test_a_configuration_that_another_client_saves_is_not_replaced(tmp_path: Path, has_one: bool) -> None:
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        session.create_icechunk(PATH, config=RepositoryConfig(inline_chunk_threshold_bytes=0) if has_one else None)
    _save_outside(tmp_path, 777)
    session = lake.session()
    repository = session.icechunk(PATH)
    repository.config.inline_chunk_threshold_bytes = 33
    repository.save_config()
    with pytest.raises(Conflict, match="its configuration was changed on main too"):
        session.publish()
    assert Repository.open(tmp_path / PATH).config.inline_chunk_threshold_bytes == 777


# Garbage


def _old(root: Path) -> None:
    """Make all files of the repository forty days old."""
    for file in (root / PATH).rglob("*"):
        if file.is_file():
            os.utime(file, (file.stat().st_atime, file.stat().st_mtime - 40 * 86_400))


def test_collection_takes_what_no_state_reaches(tmp_path: Path) -> None:
    time = ManualClock(dt.datetime.now(dt.UTC) - dt.timedelta(days=40))
    lake = Lake.create(tmp_path, clock=time)
    with lake.session() as session:
        store = session.create_icechunk(PATH).store
        create_array(store)
        for value in range(4):
            set_chunk(store, 0, value)
            session.icechunk(PATH).session.commit("provisional")
    time.pass_days(40)
    _old(tmp_path)
    assert len(list((tmp_path / PATH / "chunks").iterdir())) == 4
    lake.maintenance.gc()
    left = {
        folder: len(list((tmp_path / PATH / folder).iterdir()))
        for folder in ("chunks", "manifests", "snapshots", "transactions")
    }
    assert left == {"chunks": 1, "manifests": 1, "snapshots": 2, "transactions": 1}
    assert outside_values(tmp_path) == filled(c0=3)


def test_collection_keeps_the_history_that_icechunk_walks(tmp_path: Path) -> None:
    time = ManualClock(dt.datetime.now(dt.UTC) - dt.timedelta(days=100))
    lake = Lake.create(tmp_path, clock=time)
    with lake.session() as session:
        create_array(session.create_icechunk(PATH).store)
    for value in range(3):
        write(lake, 0, value)
        time.pass_days(33)
    _old(tmp_path)
    lake.maintenance.gc()
    assert len(list((tmp_path / PATH / "chunks").iterdir())) == 1
    assert len(list(outside(tmp_path).ancestry(branch="main"))) == 5
    assert outside_values(tmp_path) == filled(c0=2)
    assert lake.maintenance.verify() == []


def test_collection_keeps_what_an_open_session_reaches(tmp_path: Path) -> None:
    time = ManualClock(dt.datetime.now(dt.UTC) - dt.timedelta(days=100))
    lake = Lake.create(tmp_path, clock=time)
    with lake.session() as session:
        create_array(session.create_icechunk(PATH).store)
    time.pass_days(94)
    shared = lake.open_session(id="shared", expires_in=dt.timedelta(days=7))
    with shared.join() as part:
        set_chunk(part.icechunk(PATH).store, 0, 1)
    _old(tmp_path)
    time.pass_days(6)
    lake.maintenance.gc()
    lake.get_session("shared").publish()
    assert outside_values(tmp_path) == filled(c0=1)


@pytest.mark.parametrize("commits", [1, 2])
@pytest.mark.parametrize("folder", ["chunks", "manifests", "snapshots"])
def test_a_repository_that_is_being_collected_is_not_created_anew(tmp_path: Path, folder: str, commits: int) -> None:
    lake = Lake.create(tmp_path)
    lake.create_branch("other")
    with lake.session() as session:
        repository = session.create_icechunk(PATH)
        create_array(repository.store)
        for chunk in range(commits):
            set_chunk(repository.store, chunk, 7)
            repository.session.commit("provisional")
    pending = [str(file.relative_to(tmp_path)) for file in (tmp_path / PATH / folder).iterdir()]
    collect._announce(lake.repository, pending, (), collect._Marks(lake.repository, HISTORY))
    with pytest.raises(Collected):
        lake.cherry_pick("main", onto="other")


# Bringing in


def _plain_repository(root: Path) -> icechunk.Repository:
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(root / PATH)))
    for value in range(2):
        session = repository.writable_session("main")
        if not value:
            create_array(session.store)
        set_chunk(session.store, value, value)
        session.commit(f"commit {value}")
    return repository


def test_a_repository_that_stands_is_brought_in(tmp_path: Path) -> None:
    _plain_repository(tmp_path)
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        assert chunk_values(session.import_icechunk(PATH).store) == filled(c0=0, c1=1)
    write(lake, 2, 2)
    assert outside_values(tmp_path) == filled(c0=0, c1=1, c2=2)


def test_tags_of_a_repository_that_was_brought_in_stay_in_the_folder(tmp_path: Path) -> None:
    repository = _plain_repository(tmp_path)
    repository.create_tag("v1", repository.lookup_branch("main"))
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        session.import_icechunk(PATH)
    write(lake, 0, 9)
    assert chunk_values(outside(tmp_path).readonly_session(tag="v1").store) == filled(c0=0, c1=1)
    assert lake.icechunk(PATH).list_tags() == set()
    assert lake.maintenance.verify() == []


def test_a_repository_of_an_unreadable_state_is_refused(tmp_path: Path) -> None:
    _plain_repository(tmp_path)
    (tmp_path / PATH / "repo").write_bytes(b"")
    session = Lake.create(tmp_path).session()
    with pytest.raises(DamagedObject, match="repo"):
        session.import_icechunk(PATH)


def test_a_repository_that_another_client_upgraded_is_kept_whole_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    lake = Lake.create(tmp_path, clock=clock)
    cells = np.arange(1000)
    for value in range(2):
        with lake.session() as session:
            for path in (PATH, "arrays/other"):
                repository = session.create_icechunk(path, exist_ok=True)
                zarr.create_array(repository.store, name="x", data=cells + value, compressors=None, overwrite=True)
    folder = tmp_path / PATH
    # What a later icechunk leaves: an object `repo` of its own, and neither refs nor a configuration.
    (folder / "repo").write_bytes(encode_file(FileType.REPO_INFO, b"its own format", spec_version=3))
    shutil.rmtree(folder / "refs")
    chunk = folder / "chunks" / "ZZZZZZZZZZZZZZZZZZZ0"
    chunk.write_bytes(b"what only that one knows of")
    before = {path for path in folder.rglob("*") if path.is_file()}

    array = zarr.open_array(lake.icechunk(PATH).store, path="x")
    assert array[:3].tolist() == [1, 2, 3], "its own last state"  # type: ignore[union-attr]
    with pytest.raises(UnsupportedSpecVersion, match=PATH), lake.session() as session:
        zarr.open_array(session.icechunk(PATH).store, path="x")[:] = 5
    with lake.session() as session:
        zarr.open_array(session.icechunk("arrays/other").store, path="x")[:] = 5
    with pytest.raises(Conflict, match=f"{PATH}.*version 3"):
        lake.maintenance.adopt(PATH)
    assert not lake.maintenance.checkout().objects
    problems = lake.maintenance.verify()
    assert [(each.kind, each.key) for each in problems] == [("changed", PATH)]
    assert "version 3 of the Icechunk specification" in problems[0].detail
    clock.pass_days(100)
    for each in tmp_path.rglob("*"):
        os.utime(each, (0, 0))
    collected = lake.maintenance.gc().keys
    assert any(key.startswith("arrays/other/chunks/") for key in collected)
    assert not any(key.startswith(f"{PATH}/") for key in collected)
    assert before <= {path for path in folder.rglob("*") if path.is_file()}
    assert f"{PATH} is kept whole: repo follows version 3" in caplog.text
    lake.maintenance.release(PATH)
    assert lake.maintenance.verify() == []


@pytest.mark.parametrize("encoding", [None, {"name": "default", "separator": "."}, {"name": "v2", "separator": "."}])
@pytest.mark.parametrize("in_tree", [True, False])
def test_a_plain_zarr_store_becomes_a_repository(
    tmp_path: Path, encoding: dict[str, str] | None, in_tree: bool
) -> None:
    values = np.arange(36).reshape(6, 6)
    folder = tmp_path / (PATH if not in_tree else "elsewhere")
    group = zarr.create_group(folder, attributes={"title": "weather"})
    group.create_array("grid", data=values, chunks=(4, 4), chunk_key_encoding=encoding)
    group.create_array("scalar", data=np.array(5))
    lake = Lake.create(tmp_path)
    if in_tree:
        with lake.session() as session:
            for file in folder.rglob("*"):
                if file.is_file():
                    session.put(f"{PATH}/{file.relative_to(folder)}", file.read_bytes())
    with lake.session() as session:
        session.import_zarr(PATH)
    brought = zarr.open_group(outside(tmp_path).readonly_session("main").store, mode="r")
    assert (brought["grid"][:] == values).all()  # type: ignore[index]
    assert (brought["scalar"][()], dict(brought.attrs)) == (5, {"title": "weather"})  # type: ignore[index]


def test_plain_files_that_a_repository_replaced_are_not_lost_by_a_revert(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        session.put(f"{PATH}/zarr.json", b'{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    with lake.session() as session:
        session.import_zarr(PATH)
    with pytest.raises(Conflict, match="copy them from an older commit"):
        lake.revert("main")


def test_a_folder_without_a_hierarchy_is_refused_and_keeps_its_files(lake: Lake) -> None:
    session = lake.session()
    session.put("plain/readme.txt", b"no arrays")
    with pytest.raises(ValueError, match=r"zarr\.json"):
        session.import_zarr("plain")
    assert (bytes(session.get("plain/readme.txt")), "plain" in session.datasets()) == (b"no arrays", False)


def test_a_lake_with_arrays_is_exported(lake: Lake, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    write(lake, 1, 1)
    target = tmp_path_factory.mktemp("export")
    lake.maintenance.export(LocalStore(target))
    assert (target / "_lakefs").exists()


def test_a_lake_with_arrays_verifies(lake: Lake) -> None:
    lake.create_branch("dev")
    write(lake, 1, 1, "dev")
    write(lake, 2, 2)
    lake.merge("dev")
    assert lake.maintenance.verify() == []


@pytest.mark.parametrize("values", [(5, 0), (5, 7, 5)])
def test_a_chunk_that_was_set_again_since_is_not_reverted_below_it(lake: Lake, values: tuple[int, ...]) -> None:
    written = []
    for value in values:
        write(lake, 0, value)
        written.append(lake.list_branches()["main"])
    with pytest.raises(Conflict, match="set the same"):
        lake.revert(written[0])
    for commit in reversed(written):
        lake.revert(commit)
    assert chunk_values(lake.icechunk(PATH).store) == filled(c0=0)


def test_an_attribute_that_was_set_back_since_is_not_reverted_below_it(lake: Lake) -> None:
    for value in (1, 2, 1):
        with lake.session() as session:
            zarr.open_group(session.icechunk(PATH).store).attrs["unit"] = value
    with pytest.raises(Conflict, match="set the same"):
        lake.revert("main~1")


def test_what_was_deleted_since_does_not_come_back_after_its_creation_was_undone(lake: Lake) -> None:
    with lake.session() as session:
        create_array(session.icechunk(PATH).store, "other")
    with lake.session() as session:
        del zarr.open_group(session.icechunk(PATH).store)["other"]
    with pytest.raises(Conflict, match="set the same"):
        lake.revert("main~1")
