"""What this package writes, icechunk opens, reads, compares and commits on; and the other way round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import zarr

from lake_core.icechunk import Repository, RepositoryConfig

LARGE = (400,)


def theirs(folder: Path) -> icechunk.Repository:
    return icechunk.Repository.open(icechunk.local_filesystem_storage(str(folder)))


def write_commits(repository: Any) -> list[str]:
    """Write the same three commits by either package."""
    session = repository.writable_session("main")
    root = zarr.create_group(session.store, attributes={"title": "océan"})
    root.create_array("g/inline", shape=(7, 5), chunks=(2, 2), dtype="i4", fill_value=-1, dimension_names=["x", None])
    root.create_array("native", shape=(1000,), chunks=LARGE, dtype="f8")
    root.create_array("scalar", shape=(), dtype="i8")
    root["g/inline"][:] = np.arange(35).reshape(7, 5)  # type: ignore[index]
    root["native"][:] = np.arange(1000.0)  # type: ignore[index]
    root["scalar"][...] = 42  # type: ignore[index]
    ids = [session.commit("first", metadata={"author": "me", "n": [1, 2.5, None]})]
    session = repository.writable_session("main")
    root = zarr.open_group(session.store)
    root["native"].resize((1600,))  # type: ignore[union-attr]
    root["native"][1200:1600] = 7  # type: ignore[index]
    root["g/inline"][0, 0] = 99  # type: ignore[index]
    ids.append(session.commit("second"))
    session = repository.writable_session("main")
    root = zarr.open_group(session.store)
    root["g/inline"].resize((3, 5))  # type: ignore[union-attr]
    del root["scalar"]
    root.attrs["title"] = "changed"
    return [*ids, session.commit("third")]


def everything(session: Any) -> dict[str, Any]:
    root = zarr.open_group(session.store, mode="r")
    arrays = {
        name: member[...].tolist() for name, member in root.members(max_depth=None) if isinstance(member, zarr.Array)
    }  # type: ignore[index,union-attr]
    return {"attributes": dict(root.attrs), **arrays}


def difference(value: Any) -> dict[str, Any]:
    kinds = ("new_groups", "new_arrays", "deleted_groups", "deleted_arrays", "updated_groups", "updated_arrays")
    chunks = {path: sorted(map(list, indexes)) for path, indexes in value.updated_chunks.items()}
    return {**{kind: sorted(getattr(value, kind)) for kind in kinds}, "chunks": chunks}


@pytest.mark.parametrize("writer", ["ours", "theirs"])
def test_both_read_the_same_at_every_commit(tmp_path: Path, writer: str) -> None:
    if writer == "ours":
        ids = write_commits(Repository.create(tmp_path))
    else:
        ids = write_commits(icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path))))
    ours, other = Repository.open(tmp_path), theirs(tmp_path)
    for snapshot_id in ids:
        assert everything(ours.readonly_session(snapshot_id=snapshot_id)) == everything(
            other.readonly_session(snapshot_id=snapshot_id)
        )
    assert [info.metadata for info in ours.ancestry(branch="main")] == [
        info.metadata for info in other.ancestry(branch="main")
    ]
    for before, after in [("1CECHNKREP0F1RSTCMT0", ids[0]), (ids[0], ids[1]), (ids[1], ids[2]), (ids[0], ids[2])]:
        mine = ours.diff(from_snapshot_id=before, to_snapshot_id=after)
        assert difference(mine) == difference(other.diff(from_snapshot_id=before, to_snapshot_id=after))


def test_the_same_changes_are_recorded_alike(tmp_path: Path) -> None:
    mine = write_commits(Repository.create(tmp_path / "ours"))
    other = write_commits(icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "theirs"))))
    ours, reference = Repository.open(tmp_path / "ours"), Repository.open(tmp_path / "theirs")
    for before, after in [(0, 1), (1, 2), (0, 2)]:
        our_difference = ours.diff(from_snapshot_id=mine[before], to_snapshot_id=mine[after])
        assert difference(our_difference) == difference(
            reference.diff(from_snapshot_id=other[before], to_snapshot_id=other[after])
        )


def test_each_commits_on_the_other(tmp_path: Path) -> None:
    write_commits(Repository.create(tmp_path))
    for repository, value in [(theirs(tmp_path), 1), (Repository.open(tmp_path), 2), (theirs(tmp_path), 3)]:
        session = repository.writable_session("main")
        zarr.open_array(session.store, path="native")[value * 400] = value * 1000
        session.commit(f"by turns {value}")
    expected = everything(theirs(tmp_path).readonly_session("main"))
    assert [expected["native"][index] for index in (400, 800, 1200)] == [1000, 2000, 3000]
    assert everything(Repository.open(tmp_path).readonly_session("main")) == expected


def test_many_small_arrays_share_manifests_that_icechunk_reads(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path)
    session = repository.writable_session("main")
    root = zarr.create_group(session.store)
    for number in range(60):
        root.create_array(f"a{number}", shape=(4,), chunks=(2,), dtype="i4")[:] = number + 1
    info = repository.lookup_snapshot(session.commit("many"))
    assert len(info.manifests) == 1
    assert everything(theirs(tmp_path).readonly_session("main"))["a59"] == [60] * 4


def test_appended_references_go_to_a_manifest_of_their_own(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path)
    session = repository.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(10,), chunks=(1,), dtype="i4")
    array[:] = np.arange(10)
    first = repository.lookup_snapshot(session.commit("first"))
    for end in range(11, 100):
        session = repository.writable_session("main")
        array = zarr.open_array(session.store, path="a")
        array.resize((end,))
        array[end - 1] = end - 1
        session.commit(f"to {end}")
        if end == 12:
            files = {file.id for file in repository.lookup_snapshot(repository.lookup_branch("main")).manifests}
            assert {file.id for file in first.manifests} < files
            assert len(files) == 3
    assert len(repository.lookup_snapshot(repository.lookup_branch("main")).manifests) <= 64
    assert everything_of(theirs(tmp_path)) == list(range(99))
    assert everything_of(repository) == list(range(99))


def everything_of(repository: Any) -> Any:
    return zarr.open_array(repository.readonly_session("main").store, path="a", mode="r")[...].tolist()  # type: ignore[union-attr]


def test_split_manifests_are_read_by_icechunk(tmp_path: Path) -> None:
    from lake_core.icechunk import (
        ManifestConfig,
        ManifestSplitCondition,
        ManifestSplitDimCondition,
        ManifestSplittingConfig,
    )

    splitting = ManifestSplittingConfig.from_dict(
        {
            ManifestSplitCondition.name_matches("^a"): {
                ManifestSplitDimCondition.Axis(0): 2,
                ManifestSplitDimCondition.Any(): 3,
            }
        }
    )
    repository = Repository.create(tmp_path, config=RepositoryConfig(manifest=ManifestConfig(splitting=splitting)))
    session = repository.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(4, 6), chunks=(1, 1), dtype="i4")
    array[:] = np.arange(24).reshape(4, 6)
    repository.lookup_snapshot(session.commit("split"))
    assert len(repository.readonly_session("main").array("/a").manifests) == 4
    other = theirs(tmp_path)
    assert everything_of(other) == np.arange(24).reshape(4, 6).tolist()
    session = other.writable_session("main")
    zarr.open_array(session.store, path="a")[0, 0] = 100
    session.commit("theirs")
    assert everything_of(Repository.open(tmp_path))[0][0] == 100
    assert len(Repository.open(tmp_path).readonly_session("main").array("/a").manifests) == 4


@pytest.mark.parametrize("between", [0, 1])
def test_a_txn_is_committed_once_though_icechunk_has_committed_since(tmp_path: Path, between: int) -> None:
    session = Repository.create(tmp_path).writable_session("main")
    zarr.create_group(session.store)
    recorded = session.commit("load", txn=("load", 1))
    for number in range(2):
        other = theirs(tmp_path).writable_session("main")
        zarr.open_group(other.store).create_group(f"icechunk-{number}")
        other.commit("by icechunk")
    for number in range(between):
        session = Repository.open(tmp_path).writable_session("main")
        zarr.open_group(session.store).create_group(f"own-{number}")
        session.commit("without a txn")
    again = Repository.open(tmp_path).writable_session("main")
    zarr.open_group(again.store).create_group("again")
    result = again.commit("load", txn=("load", 1))
    assert (result, result.skipped) == (recorded, True)
