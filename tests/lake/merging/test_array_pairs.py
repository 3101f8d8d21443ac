"""Two changes of one array beside one another come to what they come to in turn, or conflict.

The values of both are the same, so that nothing but the rules tells them apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import pytest
import zarr

from lake_core import Lake
from lake_core.lake.errors import Conflict
from lake_core.lake.session.write_session import WriteSession
from lake_core.store import MemoryStore
from tests.examples import stride

PATH = "arrays/r"
Change: TypeAlias = Callable[[WriteSession], object]


def _array(session: WriteSession) -> Any:
    return zarr.open_array(session.icechunk(PATH).store, path="v", mode="r+")


def _count(session: WriteSession) -> None:
    array = _array(session)
    array[0] += 1


def _set(*values: float) -> Change:
    return lambda session: _array(session).__setitem__(slice(2, 2 + len(values)), values)


def _append(*values: float) -> Change:
    return lambda session: _array(session).append(np.array(values, "f8"))


def _shift(chunks: int) -> Change:
    return lambda session: session.icechunk(PATH).session.shift_array("/v", (chunks,))


def _erase(session: WriteSession) -> None:
    asyncio.run(session.icechunk(PATH).store.delete("v/c/1"))


def _in_turn(*changes: Change) -> Change:
    return lambda session: [change(session) for change in changes]


CHANGES: dict[str, Change] = {
    "count": _count,
    "set": _set(7, 7),
    "set the fill value": _set(np.nan, np.nan),
    "append": _append(1, 2),
    "append the fill value": _append(np.nan, np.nan),
    "append a chunk, and fill its end": _append(1, 2, np.nan, np.nan),
    "shift": _shift(1),
    "shift back": _shift(-1),
    "shift, and set": _in_turn(_shift(1), _set(7, 7)),
    "set, and shift": _in_turn(_set(7, 7), _shift(-1)),
    "make longer": lambda session: _array(session).resize((10,)),
    "make shorter": lambda session: _array(session).resize((4,)),
    "erase": _erase,
    "set an attribute": lambda session: _array(session).attrs.update(unit="mm"),
}


def _lake(version: int) -> Lake:
    lake = Lake.create(MemoryStore())
    with lake.session() as session:
        store = session.create_icechunk(PATH, spec_version=version).store
        array = zarr.create_array(store, name="v", shape=(8,), chunks=(2,), dtype="f8", fill_value=np.nan)
        array[:6] = np.arange(6.0)
        zarr.create_array(store, name="other", shape=(2,), chunks=(1,), dtype="i4")
    return lake


def _values(lake: Lake) -> tuple[list[str], dict[str, Any]]:
    array = zarr.open_array(lake.icechunk(PATH).store, path="v", mode="r")
    values: Any = array[:]
    return [str(value) for value in values], dict(array.attrs)


def _one_after_another(version: int, *changes: Change) -> tuple[list[str], dict[str, Any]]:
    lake = _lake(version)
    for change in changes:
        with lake.session() as session:
            change(session)
    return _values(lake)


def _by_sessions(lake: Lake, *changes: Change) -> None:
    sessions = [lake.session() for _ in changes]
    for number, (session, change) in enumerate(zip(sessions, changes, strict=True)):
        change(session)
        # So that no two commits are the same.
        zarr.open_array(session.icechunk(PATH).store, path="other", mode="r+")[number] = 1
    for session in sessions:
        session.publish()


def _by_tasks(lake: Lake, *changes: Change) -> None:
    shared = lake.open_session("main", id="shared")
    writers = [shared.join(task=f"t{number}") for number in range(len(changes))]
    for writer, change in zip(writers, changes, strict=True):
        change(writer)
    for writer in writers:
        writer.__exit__(None, None, None)
    shared.publish()


def _by_branches(lake: Lake, *changes: Change) -> None:
    for number in range(len(changes)):
        lake.create_branch(f"b{number}")
    for number, change in enumerate(changes):
        with lake.session(f"b{number}") as session:
            change(session)
            zarr.open_array(session.icechunk(PATH).store, path="other", mode="r+")[number] = 1
    for number in range(len(changes)):
        lake.merge(f"b{number}")


def _pairs() -> list[tuple[str, str]]:
    """Return each change beside itself, and pairs of two: some of them in `make test`."""
    different = [pair for pair in product(CHANGES, CHANGES) if pair[0] != pair[1]]
    return [*((name, name) for name in CHANGES), *different[:: stride(13)]]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("both", [_by_sessions, _by_tasks, _by_branches], ids=["sessions", "tasks", "branches"])
@pytest.mark.sampled(2)
def test_two_changes_come_to_what_they_come_to_in_turn(both: Callable[..., None], version: int) -> None:
    pairs, conflicts, wrong = _pairs(), 0, []
    for first, second in pairs:
        lake = _lake(version)
        try:
            both(lake, CHANGES[first], CHANGES[second])
        except Conflict:
            conflicts += 1
            continue
        orders = [(first, second), (second, first)]
        if _values(lake) not in [_one_after_another(version, *map(CHANGES.__getitem__, order)) for order in orders]:
            wrong.append((first, second))
    assert wrong == []
    assert conflicts < len(pairs)
