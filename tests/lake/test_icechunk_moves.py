"""Moved nodes of version 2 in a lake: no merge, publish or revert leaves a node twice, or brings a deleted one back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import zarr

from lake_core.icechunk import RepoAvailability, Repository, RepoStatus
from lake_core.lake import Lake
from lake_core.lake.errors import Conflict
from lake_core.lake.session.write_session import WriteSession
from lake_core.store import LocalStore, MemoryStore
from lake_core.testing import FaultStore
from lake_core.testing.fault_store import StoreDied

PATH = "arrays/w"


@pytest.fixture
def lake() -> Lake:
    """A lake with a repository that has one array, `/a`."""
    lake = Lake.create(MemoryStore())
    with lake.session() as session:
        _create(session)
    return lake


def _create(session: WriteSession) -> None:
    group = zarr.create_group(session.create_icechunk(PATH, spec_version=2).store)
    group.create_array("a", shape=(8,), chunks=(2,), dtype="i8", compressors=None)[:] = 1


def _move(session: WriteSession, source: str, target: str) -> None:
    rearrangement = session.icechunk(PATH).rearrange_session("main")
    rearrangement.move(source, target)
    rearrangement.commit("moved")


def _delete(session: WriteSession, path: str) -> None:
    session.icechunk(PATH).session.delete_node(path)


def _paths(lake: Lake) -> list[str]:
    return sorted(lake.icechunk(PATH).readonly_session("main").node_paths())


def test_a_revert_brings_no_second_node_of_an_id_back(lake: Lake) -> None:
    with lake.session() as session:
        _move(session, "/a", "/b")
    with lake.session() as session:
        _delete(session, "/b")
    with pytest.raises(Conflict, match="set the same in it"):
        lake.revert("main~1")
    lake.revert("main")
    lake.revert("main~2")
    assert _paths(lake) == ["/", "/a"]


@pytest.mark.parametrize("first", [_delete, _move])
@pytest.mark.parametrize("by_branch", [False, True])
def test_what_one_side_deletes_and_the_other_moves_conflicts(
    lake: Lake, first: Callable[..., None], by_branch: bool
) -> None:
    def act(session: WriteSession, is_first: bool) -> None:
        if (first is _delete) == is_first:
            _delete(session, "/a")
        else:
            _move(session, "/a", "/b")

    if by_branch:
        lake.create_branch("dev")
        with lake.session("dev") as session:
            act(session, False)
        with lake.session() as session:
            act(session, True)
        with pytest.raises(Conflict):
            lake.merge("dev")
    else:
        late = lake.session()
        act(late, False)
        with lake.session() as session:
            act(session, True)
        with pytest.raises(Conflict):
            late.publish()
    assert _paths(lake) == (["/"] if first is _delete else ["/", "/b"])


@pytest.mark.parametrize("squash", [True, False])
def test_an_array_that_both_sides_deleted_does_not_come_back_though_one_had_moved_it(lake: Lake, squash: bool) -> None:
    lake.create_branch("dev")
    with lake.session("dev") as session:
        _move(session, "/a", "/b")
    for branch, path in (("dev", "/b"), ("main", "/a")):
        with lake.session(branch) as session:
            _delete(session, path)
    deleted = lake.list_branches()["dev"]
    lake.merge("dev", squash=squash)
    with pytest.raises(Conflict):
        lake.revert(deleted)


def test_what_is_read_only_takes_no_merge_until_it_is_online_again(lake: Lake) -> None:
    lake.create_branch("dev")
    with lake.session("dev") as session:
        _delete(session, "/a")
    with lake.session() as session:
        session.icechunk(PATH).set_status(RepoStatus(RepoAvailability.read_only))
    with pytest.raises(Conflict, match="read-only"):
        lake.merge("dev")
    assert _paths(lake) == ["/", "/a"]
    with lake.session() as session:
        session.icechunk(PATH).set_status(RepoStatus(RepoAvailability.online))
    lake.merge("dev")
    assert _paths(lake) == ["/"]


class _Dying(FaultStore):
    def _put(self, key, data, if_absent, if_match, unique):  # type: ignore[no-untyped-def]
        if key == f"{PATH}/repo":
            raise StoreDied("the process dies before its checkout")
        return super()._put(key, data, if_absent, if_match, unique)


def test_a_checkout_never_takes_away_what_another_client_did_in_the_folder(tmp_path: Path) -> None:
    lake = Lake.create(str(tmp_path))
    with lake.session() as session:
        _create(session)
    with pytest.raises(StoreDied), Lake.open(_Dying(LocalStore(str(tmp_path)), 0)).session() as session:
        zarr.open_array(session.icechunk(PATH).store, path="a")[:2] = 5
    folder = Repository.open(tmp_path / PATH)
    folder.create_branch("feature", folder.lookup_branch("main"))
    other = folder.writable_session("feature")
    zarr.open_array(other.store, path="a")[:] = 7
    tip = other.commit("work of another client")
    folder.create_tag("release", tip)
    with Lake.open(str(tmp_path)).session() as session:
        zarr.open_array(session.icechunk(PATH).store, path="a")[2:4] = 6
    after = Repository.open(tmp_path / PATH)
    assert (after.list_branches(), after.list_tags()) == ({"main", "feature"}, {"release"})
    assert zarr.open_array(after.readonly_session("main").store, path="a")[:4].tolist() == [5, 5, 6, 6]
    assert zarr.open_array(after.readonly_session(tag="release").store, path="a")[:].tolist() == [7] * 8


def _names(session: WriteSession) -> list[str]:
    return sorted(zarr.open_group(session.icechunk(PATH).store, mode="r+"))


def test_a_session_shows_what_it_has_moved(lake: Lake) -> None:
    session = lake.session()
    before = _names(session)
    _move(session, "/a", "/b")
    assert (before, _names(session)) == (["a"], ["b"])


def test_what_a_session_has_written_is_moved_with_its_array(lake: Lake) -> None:
    with lake.session() as session:
        zarr.open_array(session.icechunk(PATH).store, path="a")[:2] = 5
        _move(session, "/a", "/b")
        zarr.open_array(session.icechunk(PATH).store, path="b")[2:4] = 6
    assert zarr.open_array(lake.icechunk(PATH).store, path="b", mode="r")[:6].tolist() == [5, 5, 6, 6, 1, 1]


def test_a_session_shows_what_was_committed_in_it_by_another_handle(lake: Lake) -> None:
    session = lake.session()
    array = zarr.open_array(session.icechunk(PATH).store, path="a")
    own = session.icechunk(PATH).writable_session("main")
    zarr.open_array(own.store, path="a")[0] = 7
    own.commit("by itself")
    assert array[0] == 7
