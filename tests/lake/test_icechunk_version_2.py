"""Repositories of version 2 of the Icechunk specification as datasets of a lake."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from lake_core.icechunk import Repository, RepositoryConfig, upgrade_icechunk_repository
from lake_core.icechunk.errors import InvalidAmend, InvalidRefName
from lake_core.lake import Lake
from lake_core.lake.errors import Conflict
from lake_core.testing import ManualClock

PATH = "arrays/weather"


def create(lake: Lake, version: int = 2) -> None:
    with lake.session() as session:
        store = session.create_icechunk(PATH, spec_version=version).store
        group = zarr.create_group(store, attributes={"title": "weather"})
        group.create_array("x", shape=(4000,), chunks=(1000,), dtype="i4", fill_value=-1, compressors=None)


def write(lake: Lake, chunk: int, value: int, branch: str = "main") -> None:
    with lake.session(branch) as session:
        array(session.icechunk(PATH).store)[chunk * 1000 : (chunk + 1) * 1000] = value


def array(store: Any) -> Any:
    return zarr.open_array(store, path="x")


def values(store: Any) -> list[int]:
    return [int(each) for each in np.asarray(zarr.open_array(store, path="x", mode="r")[::1000])]


def outside(root: Path) -> Repository:
    return Repository.open(root / PATH)


def outside_values(root: Path) -> list[int]:
    return values(outside(root).readonly_session("main").store)


def test_a_plain_reader_finds_each_publish_as_a_commit(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    create(lake)
    write(lake, 0, 7)
    write(lake, 1, 8)
    repository = outside(tmp_path)
    assert repository.spec_version == 2
    assert outside_values(tmp_path) == [7, 8, -1, -1]
    assert len(list(repository.ancestry(branch="main"))) == 4
    assert [type(update.kind).__name__ for update in repository.ops_log()] == [*["NewCommit"] * 3, "RepoInitialized"]
    assert not (tmp_path / PATH / "refs").exists()
    assert not (tmp_path / PATH / "overwritten").exists()
    assert lake.maintenance.verify(full=True) == []
    newest, previous = list(repository.ancestry(branch="main"))[:2]
    changes = repository.diff(from_snapshot_id=previous.id, to_snapshot_id=newest.id)
    assert changes.updated_chunks == {"/x": [[1]]}


def test_version_1_is_the_default(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        zarr.create_group(session.create_icechunk(PATH).store)
    assert outside(tmp_path).spec_version == 1


def test_merge_revert_and_time_travel(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    create(lake)
    write(lake, 0, 1)
    lake.create_branch("dev")
    write(lake, 1, 2, "dev")
    write(lake, 2, 3)
    lake.merge("dev", into="main")
    assert outside_values(tmp_path) == values(lake.icechunk(PATH).store) == [1, 2, 3, -1]
    lake.create_branch("other")
    write(lake, 0, 5, "other")
    write(lake, 0, 6)
    with pytest.raises(Conflict, match="both wrote"):
        lake.merge("other", into="main")
    lake.revert("main")
    assert outside_values(tmp_path) == [1, 2, 3, -1]
    assert lake.maintenance.verify(full=True) == []


def test_commits_of_another_client_are_adopted(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    create(lake)
    write(lake, 0, 1)
    session = outside(tmp_path).writable_session("main")
    array(session.store)[1000:2000] = 2
    session.commit("by another client")
    outside(tmp_path).set_metadata({"owner": "another"})
    write(lake, 2, 3)
    assert outside_values(tmp_path) == values(lake.icechunk(PATH).store) == [1, 2, 3, -1]
    assert outside(tmp_path).metadata == {"owner": "another"}
    assert lake.maintenance.verify(full=True) == []


def test_tags_and_settings_of_another_client_are_adopted_too(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    create(lake)
    write(lake, 0, 1)
    repository = outside(tmp_path)
    tip = repository.lookup_branch("main")
    repository.create_tag("v1", tip)
    write(lake, 0, 2)
    assert outside(tmp_path).lookup_tag("v1") == tip
    assert values(outside(tmp_path).readonly_session(tag="v1").store)[0] == 1
    assert lake.maintenance.verify(full=True) == []


def test_collection_keeps_what_plain_readers_find(tmp_path: Path) -> None:
    clock = ManualClock()
    lake = Lake.create(tmp_path, clock=clock)
    create(lake)
    for value in range(5):
        write(lake, 0, value)
    clock.pass_days(100)
    for each in tmp_path.rglob("*"):
        os.utime(each, (0, 0))
    collected = lake.maintenance.gc().keys
    assert sum(f"{PATH}/chunks/" in key for key in collected) == 4
    outside(tmp_path).create_tag("kept", outside(tmp_path).lookup_branch("main"))
    write(lake, 0, 9)
    clock.pass_days(100)
    for each in tmp_path.rglob("*"):
        os.utime(each, (0, 0))
    assert not any(f"{PATH}/chunks/" in key for key in lake.maintenance.gc().keys), "the tag reaches the chunk"
    assert outside_values(tmp_path)[0] == 9
    assert values(outside(tmp_path).readonly_session(tag="kept").store)[0] == 4
    assert len(list(outside(tmp_path).ancestry(branch="main"))) == 8
    assert lake.maintenance.verify(full=True) == []
    write(lake, 1, 1)
    assert outside_values(tmp_path)[:2] == [9, 1]


def test_an_imported_repository_keeps_its_branches_and_history(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / PATH, spec_version=2)
    session = repository.writable_session("main")
    data = zarr.create_array(session.store, name="x", shape=(4000,), chunks=(1000,), dtype="i4", compressors=None)
    data[:] = 1
    first = session.commit("first")
    repository.create_branch("dev", first)
    lake = Lake.create(tmp_path)
    with lake.session() as publishing:
        publishing.import_icechunk(PATH)
    write(lake, 0, 5)
    assert outside_values(tmp_path) == [5, 1, 1, 1]
    assert values(outside(tmp_path).readonly_session("dev").store) == [1, 1, 1, 1]
    assert [info.message for info in outside(tmp_path).ancestry(branch="main")][1:] == [
        "first",
        "Repository initialized",
    ]
    with pytest.raises(InvalidRefName), lake.session() as refused:
        refused.icechunk(PATH).create_branch("more", first)
    with pytest.raises(InvalidAmend), lake.session() as refused:
        amending = refused.icechunk(PATH).writable_session("main")
        array(amending.store)[:] = 3
        amending.amend("no")
    assert lake.maintenance.verify(full=True) == []


def test_a_repository_that_is_upgraded_in_its_folder_is_adopted(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    create(lake, 1)
    write(lake, 0, 1)
    lake.create_branch("dev")
    write(lake, 1, 2, "dev")
    late = lake.session()
    array(late.icechunk(PATH).store)[2000:3000] = 3
    upgrade_icechunk_repository(outside(tmp_path), dry_run=False)
    assert values(lake.icechunk(PATH).store) == [1, -1, -1, -1]
    late.publish()
    assert outside(tmp_path).spec_version == 2
    assert outside_values(tmp_path) == values(lake.icechunk(PATH).store) == [1, -1, 3, -1]
    lake.merge("dev", into="main")
    lake.merge("main", into="dev")
    for branch in ("main", "dev"):
        assert values(lake.session(branch).icechunk(PATH).store) == [1, 2, 3, -1]
    write(lake, 3, 4, "dev")
    lake.merge("dev", into="main")
    assert outside_values(tmp_path) == [1, 2, 3, 4]
    assert not [each for each in (tmp_path / PATH / "refs").rglob("*") if each.is_file()]
    assert lake.maintenance.verify(full=True) == []


def test_settings_of_a_session_are_published_and_conflict(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    create(lake)
    one, other = lake.session(), lake.session()
    one.icechunk(PATH).set_metadata({"a": 1})
    other.icechunk(PATH).set_metadata({"a": 2})
    one.publish()
    assert outside(tmp_path).metadata == {"a": 1}
    with pytest.raises(Conflict):
        other.publish()
    with lake.session() as session:
        repository = session.icechunk(PATH)
        repository.config.inline_chunk_threshold_bytes = 9
        repository.save_config()
    assert Repository.fetch_config(tmp_path / PATH) == RepositoryConfig(inline_chunk_threshold_bytes=9)


def test_nodes_moved_in_a_session_are_published(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    create(lake)
    write(lake, 0, 1)
    with lake.session() as session:
        moving = session.icechunk(PATH).rearrange_session("main")
        moving.move("/x", "/y")
        moving.commit("moved")
    store = outside(tmp_path).readonly_session("main").store
    assert [int(each) for each in np.asarray(zarr.open_array(store, path="y", mode="r")[::1000])] == [1, -1, -1, -1]
    newest, previous = list(outside(tmp_path).ancestry(branch="main"))[:2]
    changes = outside(tmp_path).diff(from_snapshot_id=previous.id, to_snapshot_id=newest.id)
    assert changes.moved_nodes == [("/x", "/y")]
    assert not changes.new_arrays
    assert not changes.deleted_arrays
    assert lake.maintenance.verify(full=True) == []
