"""Chunks that move within their array: shifts and functions, held to a model of cells."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from lake_core.icechunk import Repository, Session
from lake_core.icechunk.errors import InvalidChunkIndex, NodeNotFound
from lake_core.store import MemoryStore

FILL = -1


def array_of(session: Session, cells: npt.NDArray[np.int64], chunks: tuple[int, ...]) -> None:
    array = zarr.create_array(session.store, name="a", shape=cells.shape, chunks=chunks, dtype="i8", fill_value=FILL)
    array[...] = cells


def cells_of(session: Session) -> npt.NDArray[np.int64]:
    return np.asarray(zarr.open_array(session.store, path="a", mode="r")[...])


@pytest.fixture
def repository() -> Repository:
    return Repository.create(MemoryStore(), spec_version=2)


def shifted(cells: npt.NDArray[np.int64], chunk: int, offset: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Move cells one by one."""
    result = np.full(cells.shape, FILL, np.int64)
    for place in product(*map(range, cells.shape)):
        target = tuple(position + chunk * step for position, step in zip(place, offset, strict=True))
        if all(0 <= position < length for position, length in zip(target, cells.shape, strict=True)):
            result[target] = cells[place]
    return result


@given(
    grid=st.tuples(st.integers(1, 3), st.integers(1, 4)),
    offsets=st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=1, max_size=3),
    holes=st.sets(st.integers(0, 11)),
    is_committed=st.booleans(),
)
def test_a_shift_moves_whole_chunks(
    grid: tuple[int, int], offsets: list[tuple[int, int]], holes: set[int], is_committed: bool
) -> None:
    repository = Repository.create(MemoryStore(), spec_version=2)
    session = repository.writable_session("main")
    cells = np.arange(grid[0] * grid[1] * 4).reshape(grid[0] * 2, grid[1] * 2)
    for number in holes:
        if number < grid[0] * grid[1]:
            row, column = divmod(number, grid[1])
            cells[row * 2 : row * 2 + 2, column * 2 : column * 2 + 2] = FILL
    array_of(session, cells, (2, 2))
    if is_committed:
        session.commit("cells")
        session = repository.writable_session("main")
    for offset in offsets:
        session.shift_array("a", offset)
        cells = shifted(cells, 2, offset)
    session.commit("shifted", allow_empty=True)
    assert np.array_equal(cells_of(repository.readonly_session("main")), cells)


def test_a_window_rolls_without_reading(repository: Repository) -> None:
    session = repository.writable_session("main")
    array_of(session, np.arange(6), (2,))
    session.shift_array("/a", [-1])
    zarr.open_array(session.store, path="a")[4:] = [6, 7]
    assert cells_of(session).tolist() == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("has_inverse", "expected"), [(False, [0, 1, 0, 1, 4, 5]), (True, [FILL, FILL, 0, 1, 4, 5])], ids=["alone", "both"]
)
def test_a_function_moves_chunks(repository: Repository, has_inverse: bool, expected: list[int]) -> None:
    session = repository.writable_session("main")
    array_of(session, np.array([0, 1, FILL, FILL, 4, 5]), (2,))

    def forward(index: Iterable[int]) -> list[int] | None:
        (place,) = index
        return [1] if place == 0 else None

    def backward(index: Iterable[int]) -> list[int]:
        (place,) = index
        return [{0: 1, 1: 0, 2: 2}[place]]

    session.reindex_array("a", forward, backward if has_inverse else None)
    assert cells_of(session).tolist() == expected


def test_chunks_are_reversed(repository: Repository) -> None:
    session = repository.writable_session("main")
    array_of(session, np.arange(6), (2,))
    session.reindex_array("a", lambda index: [2 - place for place in index])
    assert cells_of(session).tolist() == [4, 5, 2, 3, 0, 1]


@pytest.mark.parametrize("target", [[3], [-1], [0, 0]], ids=repr)
def test_an_index_outside_of_the_array_is_refused(repository: Repository, target: list[int]) -> None:
    session = repository.writable_session("main")
    array_of(session, np.arange(6), (2,))
    with pytest.raises(InvalidChunkIndex):
        session.reindex_array("a", lambda index: target)
    assert cells_of(session).tolist() == list(range(6))


@pytest.mark.parametrize("offset", [[], [1, 2], [0.5]], ids=repr)
def test_an_offset_of_another_shape_is_refused(repository: Repository, offset: list[int]) -> None:
    session = repository.writable_session("main")
    array_of(session, np.arange(6), (2,))
    with pytest.raises(InvalidChunkIndex):
        session.shift_array("a", offset)


def test_there_must_be_an_array(repository: Repository) -> None:
    with pytest.raises(NodeNotFound):
        repository.writable_session("main").shift_array("a", [1])


def test_chunks_of_several_shapes_do_not_move(repository: Repository) -> None:
    session = repository.writable_session("main")
    array_of(session, np.arange(5), (2,))
    document = json.loads(session.array("/a").user_data)
    session.discard_changes()
    document["chunk_grid"] = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [[2, 3]]}}
    session.set_metadata("/a", json.dumps(document).encode())
    with pytest.raises(InvalidChunkIndex, match="several shapes"):
        session.shift_array("a", [1])
