"""Appends along one dimension that are put one behind the other, chunks and all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr

from lake_core.icechunk import AppendSolver, BasicConflictSolver, ConflictType, RebaseFailedError, Repository
from lake_core.store import MemoryStore

START = pd.Timestamp("2024-01-01")


def days(first: int, end: int) -> xr.Dataset:
    """Return a dataset of some days. One of its variables is large enough for native chunks, the other is not."""
    numbers = np.arange(first, end)
    return xr.Dataset(
        {
            "temperature": (("time", "x"), numbers[:, None] * 1000.0 + np.arange(200)),
            "cloudy": (("time",), numbers % 3),
            "height": (("x",), np.arange(200)),
        },
        coords={"time": START + pd.to_timedelta(numbers, "D")},
    )


def append(session: Any, dataset: xr.Dataset) -> None:
    dataset.drop_vars("height").to_zarr(session.store, append_dim="time", zarr_format=3, consolidated=False)


def create(location: Any, chunk: int = 2) -> Repository:
    repository = Repository.create(location)
    session = repository.writable_session("main")
    encoding = {"temperature": {"chunks": (chunk, 100)}, "cloudy": {"chunks": (chunk,)}, "time": {"chunks": (chunk,)}}
    days(0, 4).to_zarr(session.store, zarr_format=3, consolidated=False, encoding=encoding)
    session.commit("first")
    return repository


def dataset_of(session: Any) -> xr.Dataset:
    return xr.open_zarr(session.store, consolidated=False, chunks=None).load()


def test_appends_follow_one_another_and_no_chunk_is_copied(tmp_path: Path) -> None:
    repository = create(tmp_path)
    sessions = [repository.writable_session("main") for _ in range(3)]
    for session, (first, end) in zip(sessions, [(4, 6), (6, 10), (10, 13)], strict=True):
        append(session, days(first, end))
    chunks = {meta.key for meta in repository.storage.list("chunks/")}
    for session in sessions:
        session.commit("appended", rebase_with=AppendSolver("time"))
    xr.testing.assert_identical(dataset_of(repository.readonly_session("main")), days(0, 13))
    assert {meta.key for meta in repository.storage.list("chunks/")} == chunks
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path)))
    xr.testing.assert_identical(dataset_of(theirs.readonly_session("main")), days(0, 13))


def test_an_append_is_put_behind_several_commits() -> None:
    repository = create(MemoryStore())
    late = repository.writable_session("main")
    append(late, days(8, 10))
    for first in (4, 6):
        session = repository.writable_session("main")
        append(session, days(first, first + 2))
        session.commit("appended")
    late.rebase(AppendSolver("time"))
    xr.testing.assert_identical(dataset_of(late), days(0, 10))
    late.commit("late")
    xr.testing.assert_identical(dataset_of(repository.readonly_session("main")), days(0, 10))


def test_an_append_that_does_not_fill_whole_chunks_is_refused() -> None:
    repository = create(MemoryStore())
    early, late = repository.writable_session("main"), repository.writable_session("main")
    append(early, days(4, 5))
    append(late, days(5, 6))
    early.commit("early")
    with pytest.raises(RebaseFailedError, match="append whole chunks") as caught:
        late.commit("late", rebase_with=AppendSolver("time"))
    assert caught.value.snapshot == repository.lookup_branch("main")
    assert {conflict.path for conflict in caught.value.conflicts} == {"/temperature", "/cloudy", "/time"}
    assert dataset_of(late).sizes["time"] == 5


def test_arrays_that_were_appended_to_by_different_lengths_are_refused() -> None:
    repository = create(MemoryStore())
    early, late = repository.writable_session("main"), repository.writable_session("main")
    append(early, days(4, 6))
    cloudy = zarr.open_array(early.store, path="cloudy")
    cloudy.resize((8,))
    append(late, days(6, 8))
    early.commit("early")
    with pytest.raises(RebaseFailedError, match="different lengths"):
        late.rebase(AppendSolver("time"))


def test_an_array_that_only_one_side_has_appended_to_is_refused() -> None:
    repository = create(MemoryStore())
    early, late = repository.writable_session("main"), repository.writable_session("main")
    zarr.open_array(early.store, path="cloudy").resize((6,))
    append(late, days(6, 8))
    early.commit("early")
    with pytest.raises(RebaseFailedError, match="cannot be moved"):
        late.rebase(AppendSolver("time"))


def test_a_new_array_of_the_dimension_cannot_be_moved() -> None:
    repository = create(MemoryStore())
    early, late = repository.writable_session("main"), repository.writable_session("main")
    append(early, days(4, 6))
    append(late, days(6, 8))
    zarr.create_array(late.store, name="rain", shape=(6,), chunks=(2,), dtype="i4", dimension_names=["time"])
    early.commit("early")
    with pytest.raises(RebaseFailedError, match="/rain"):
        late.rebase(AppendSolver("time"))


@pytest.mark.parametrize("change", ["old cells", "attributes", "another dimension"])
def test_what_is_more_than_an_append_conflicts(change: str) -> None:
    repository = create(MemoryStore())
    early, late = repository.writable_session("main"), repository.writable_session("main")
    append(early, days(4, 6))
    early.commit("early")
    array: Any = zarr.open_array(late.store, path="temperature")
    if change == "another dimension":
        array.resize((6, 300))
    else:
        array.resize((6, 200))
    if change == "old cells":
        array[0] = 0
    elif change == "attributes":
        array.attrs["units"] = "K"
    with pytest.raises(RebaseFailedError) as caught:
        late.rebase(AppendSolver("time"))
    assert ConflictType.ZarrMetadataDoubleUpdate in {conflict.conflict_type for conflict in caught.value.conflicts}


def test_another_solver_resolves_the_rest() -> None:
    repository = create(MemoryStore())
    early, late = repository.writable_session("main"), repository.writable_session("main")
    for session, first, value in [(early, 4, 1), (late, 6, 2)]:
        append(session, days(first, first + 2))
        zarr.open_array(session.store, path="height")[:] = value
    early.commit("early")
    with pytest.raises(RebaseFailedError) as caught:
        late.rebase(AppendSolver("time"))
    assert [(conflict.conflict_type.name, conflict.path) for conflict in caught.value.conflicts] == [
        ("ChunkDoubleUpdate", "/height")
    ]
    late.commit("late", rebase_with=AppendSolver("time", BasicConflictSolver()))
    after = dataset_of(repository.readonly_session("main"))
    xr.testing.assert_identical(after.drop_vars("height"), days(0, 8).drop_vars("height"))
    assert set(after["height"].values.tolist()) == {2}


def test_groups_are_moved_on_their_own() -> None:
    repository = Repository.create(MemoryStore())
    session = repository.writable_session("main")
    for name, length in [("one", 4), ("two", 2)]:
        zarr.create_array(
            session.store, name=f"{name}/a", shape=(length,), chunks=(1,), dtype="i4", dimension_names=["time"]
        )[:] = 1
    session.commit("first")
    early, late = repository.writable_session("main"), repository.writable_session("main")
    for session, value, lengths in [(early, 2, (1, 2)), (late, 3, (3, 1))]:
        for name, length in zip(("one", "two"), lengths, strict=True):
            array: Any = zarr.open_array(session.store, path=f"{name}/a")
            before = array.shape[0]
            array.resize((before + length,))
            array[before:] = value
    early.commit("early")
    late.commit("late", rebase_with=AppendSolver("time"))
    store = repository.readonly_session("main").store
    assert zarr.open_array(store, path="one/a", mode="r")[...].tolist() == [1, 1, 1, 1, 2, 3, 3, 3]  # type: ignore[union-attr]
    assert zarr.open_array(store, path="two/a", mode="r")[...].tolist() == [1, 1, 2, 2, 3]  # type: ignore[union-attr]
