"""Pools that several parts of one session write, and publishes of tables, arrays and pools together that die."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lake_core import Lake
from lake_core.lake.errors import Conflict
from lake_core.pool import Pool, PoolLake
from lake_core.pool.key_range import KeyRange
from lake_core.store import FolderStore, MemoryStore, ObjectMeta, ObjectStore
from lake_core.store.object_store import Bytes
from lake_core.testing import FaultStore
from lake_core.testing.fault_store import FaultMode
from lake_core.testing.manual_clock import ManualClock
from tests.lake.arrays import PATH as ARRAYS
from tests.lake.arrays import chunk_values, create_array, filled, set_chunk
from tests.lake.lakes import SCHEMA, died_at, ids, opened, rows
from tests.processes import run_together

PATH = "events/raw"
TABLE = "tables/stations"


def keys(pool: Pool) -> list[int]:
    """Return the keys of a pool's values, in its order."""
    return [record["k"] for record in pool.scan().records()]


def create_pool(lake: Lake) -> Lake:
    with lake.session() as session:
        session.create_pool(PATH, key="k", order="asc").load([{"k": 0}])
    return lake


def _load_part(root: Path, epoch: int, part: int) -> None:
    with Lake.open(root).get_session("shared", epoch=epoch).join(task=f"part {part}") as writer:
        for value in range(3):
            writer.pool(PATH).load([{"k": 10 * part + value}])


def test_parts_in_many_processes_load_one_pool(tmp_path: Path) -> None:
    lake = create_pool(Lake.create(tmp_path))
    shared = lake.open_session(id="shared")
    run_together(_load_part, [(tmp_path, shared.epoch, part) for part in (1, 2)])
    lake.get_session("shared").publish()
    pool = PoolLake.open(tmp_path / PATH).pool("raw")
    assert (keys(pool), len(list(pool.log()))) == ([0, 10, 11, 12, 20, 21, 22], 2)


def test_a_later_attempt_at_a_part_replaces_what_an_earlier_one_loaded(tmp_path: Path) -> None:
    lake = create_pool(Lake.create(tmp_path))
    shared = lake.open_session(id="shared")
    first = shared.join(task="part", attempt=0)
    first.pool(PATH).load([{"k": 1}])
    first.flush()
    with shared.join(task="part", attempt=1) as second:
        second.pool(PATH).load([{"k": 2}])
    lake.get_session("shared").publish()
    assert keys(lake.pool(PATH)) == [0, 2]


def test_parts_see_what_others_flushed(tmp_path: Path) -> None:
    shared = create_pool(Lake.create(tmp_path)).open_session(id="shared")
    one, other = shared.join(), shared.join()
    other.pool(PATH).load([{"k": 2}])
    one.pool(PATH).load([{"k": 1}])
    one.flush()
    other.flush()
    assert keys(other.pool(PATH)) == [0, 1, 2]


def test_parts_that_replace_the_same_records_conflict(tmp_path: Path) -> None:
    shared = create_pool(Lake.create(tmp_path)).open_session(id="shared")
    one, other = shared.join(), shared.join()
    for number, part in enumerate((one, other)):
        pool = part.pool(PATH)
        pool.replace(pool.write_objects([{"k": number}]), [KeyRange()])
    one.flush()
    with pytest.raises(Conflict) as caught:
        other.flush()
    assert caught.value.kinds == {PATH: "ReadChanged"}


# Crashes


def _store(time: ManualClock) -> MemoryStore:
    store = MemoryStore(clock=time)
    lake = Lake.create(store, clock=time)
    with lake.session() as session:
        session.create_pool(PATH, key="k", order="asc").load([{"k": 0}])
        create_array(session.create_icechunk(ARRAYS).store)
        session.create_delta(TABLE, SCHEMA).append(rows([0]))
    return store


def _work(lake: Lake) -> None:
    with lake.session() as session:
        session.pool(PATH).load([{"k": 1}])
        set_chunk(session.icechunk(ARRAYS).store, 1, 1)
        session.delta(TABLE).append(rows([1]))


def _work_shared(lake: Lake) -> None:
    shared = lake.open_session(id="shared")
    with shared.join(task="pool") as part:
        part.pool(PATH).load([{"k": 1}])
    with shared.join(task="others") as part:
        set_chunk(part.icechunk(ARRAYS).store, 1, 1)
        part.delta(TABLE).append(rows([1]))
    shared.publish()


def _published(lake: Lake) -> tuple[list[int], list[int], list[int]]:
    return keys(lake.pool(PATH)), ids(lake.delta(TABLE)), chunk_values(lake.icechunk(ARRAYS).store)


def _check(operation: int, mode: FaultMode, work: Callable[[Lake], None]) -> str | None:
    """Let a publish die at a store operation, and the next one go on.

    Return what it left, "old" or "new"; None where it lived.
    """
    old, new = ([0], [0], filled()), ([0, 1], [0, 1], filled(c1=1))
    store, time, fired = died_at(operation, mode, work, _store)
    lake = opened(store, time)
    survived = _published(lake)
    assert survived in (old, new), f"operation {operation}"
    with lake.session() as session:
        session.pool(PATH).load([{"k": 2}])
    assert keys(PoolLake.open(FolderStore(store, PATH)).pool("raw")) == [*survived[0], 2], f"operation {operation}"
    return ("old" if survived == old else "new") if fired else None


@pytest.mark.exhaustive
@pytest.mark.parametrize(("work", "step"), [(_work, 1), (_work_shared, 3)])
@pytest.mark.parametrize("mode", ["before", "after"])
def test_a_table_an_array_and_a_pool_are_published_all_or_none(
    mode: FaultMode, work: Callable[[Lake], None], step: int
) -> None:
    outcomes = set()
    for operation in range(1, 600, step):
        outcome = _check(operation, mode, work)
        if outcome is None:
            assert outcomes == {"old", "new"}
            return
        outcomes.add(outcome)
    raise AssertionError("a publish takes more than 600 operations")


class _Writes(FaultStore):
    """Notes the numbers of the operations that write."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, 0)
        self.numbers: list[int] = []

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        self.numbers.append(self.operations + 1)
        return super()._put(key, data, if_absent, if_match, unique)


def test_a_table_an_array_and_a_pool_are_published_all_or_none_by_their_last_writes() -> None:
    time = ManualClock()
    writing = _Writes(_store(time))
    _work(opened(writing, time))
    outcomes = [_check(number, "after", _work) for number in writing.numbers[-8:]]
    assert outcomes == sorted(outcomes, reverse=True)
    assert set(outcomes) == {"old", "new"}
