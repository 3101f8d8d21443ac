"""Arrays that several processes write in one session of a lake, and processes that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from lake_core import Lake
from lake_core.icechunk import Repository
from lake_core.lake.errors import Conflict
from lake_core.store import FolderStore, MemoryStore, ObjectStore
from lake_core.testing.fault_store import FaultMode
from lake_core.testing.manual_clock import ManualClock
from tests.lake.arrays import CHUNKS, PATH, chunk_values, create_array, filled, outside_values, set_chunk
from tests.lake.lakes import SCHEMA, died_at, ids, opened, rows
from tests.processes import CONTEXT, run_together

TABLE = "tables/stations"


def _begin(root: Path) -> Lake:
    lake = Lake.create(root)
    with lake.session() as session:
        create_array(session.create_icechunk(PATH).store)
    return lake


def _write_part(root: Path, epoch: int, part: int, attempt: int = 0, dies: bool = False) -> None:
    session = Lake.open(root).get_session("shared", epoch=epoch)
    with session.join(task=f"part {part}", attempt=attempt) as writer:
        store = writer.icechunk(PATH).store
        for chunk in range(part, CHUNKS, 4):
            set_chunk(store, chunk, 100 + chunk + (1000 if dies else 0))
            if dies and chunk > part:
                writer.flush()
                os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.extended
def test_parts_in_many_processes_write_one_array(tmp_path: Path) -> None:
    lake = _begin(tmp_path)
    shared = lake.open_session(id="shared")
    run_together(_write_part, [(tmp_path, shared.epoch, part) for part in range(4)])
    lake.get_session("shared").publish()
    assert outside_values(tmp_path) == [100 + chunk for chunk in range(CHUNKS)]


def test_a_killed_part_is_replaced_by_its_next_attempt(tmp_path: Path) -> None:
    lake = _begin(tmp_path)
    shared = lake.open_session(id="shared")
    killed = CONTEXT.Process(target=_write_part, args=(tmp_path, shared.epoch, 0, 0, True))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert chunk_values(lake.get_session("shared").icechunk(PATH).store)[4] == 1104
    run_together(_write_part, [(tmp_path, shared.epoch, part, 1) for part in range(4)])
    lake.get_session("shared").publish()
    assert outside_values(tmp_path) == [100 + chunk for chunk in range(CHUNKS)]


def test_parts_see_what_others_flushed(tmp_path: Path) -> None:
    lake = _begin(tmp_path)
    shared = lake.open_session(id="shared")
    first, other = shared.join(), shared.join()
    handle = other.icechunk(PATH)
    set_chunk(first.icechunk(PATH).store, 1, 1)
    first.flush()
    set_chunk(handle.store, 2, 2)
    other.flush()
    assert chunk_values(handle.store) == filled(c1=1, c2=2)
    assert outside_values(tmp_path) == filled()


def test_a_part_goes_on_writing_with_its_handle_after_a_flush(tmp_path: Path) -> None:
    lake = _begin(tmp_path)
    shared = lake.open_session(id="shared")
    with shared.join() as part:
        store = part.icechunk(PATH).store
        for chunk in range(3):
            set_chunk(store, chunk, chunk)
            part.flush()
    lake.get_session("shared").publish()
    assert outside_values(tmp_path) == filled(c0=0, c1=1, c2=2)


def test_parts_that_write_one_chunk_conflict(tmp_path: Path) -> None:
    lake = _begin(tmp_path)
    shared = lake.open_session(id="shared")
    first, other = shared.join(), shared.join()
    for number, part in enumerate((first, other)):
        set_chunk(part.icechunk(PATH).store, 1, number)
    first.flush()
    with pytest.raises(Conflict) as caught:
        other.flush()
    assert caught.value.kinds == {PATH: "ChunkDoubleUpdate"}


# Crashes


def _store(time: ManualClock) -> MemoryStore:
    store = MemoryStore(clock=time)
    lake = Lake.create(store, clock=time)
    with lake.session() as session:
        create_array(session.create_icechunk(PATH).store)
        session.create_delta(TABLE, SCHEMA).append(rows([0]))
    return store


def _work(lake: Lake) -> None:
    with lake.session() as session:
        set_chunk(session.icechunk(PATH).store, 1, 1)
        session.delta(TABLE).append(rows([1]))


def _work_shared(lake: Lake) -> None:
    shared = lake.open_session(id="shared")
    with shared.join(task="arrays") as part:
        set_chunk(part.icechunk(PATH).store, 1, 1)
    with shared.join(task="tables") as part:
        part.delta(TABLE).append(rows([1]))
    shared.publish()


def _published(lake: Lake) -> tuple[list[int], list[int]]:
    return ids(lake.delta(TABLE)), chunk_values(lake.icechunk(PATH).store)


def _checked_out(store: ObjectStore) -> list[int]:
    return chunk_values(Repository.open(FolderStore(store, PATH)).readonly_session("main").store)


@pytest.mark.parametrize("work", [_work, pytest.param(_work_shared, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("mode", ["before", "after"])
@pytest.mark.parametrize("sampled", [7, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_a_table_and_an_array_are_published_both_or_neither(
    sampled: int, mode: FaultMode, work: Callable[[Lake], None]
) -> None:
    old, new = ([0], filled()), ([0, 1], filled(c1=1))
    outcomes = set()
    for operation in range(1, 500, sampled):
        store, time, fired = died_at(operation, mode, work, _store)
        lake = opened(store, time)
        survived = _published(lake)
        assert survived in (old, new), f"operation {operation}"
        if not fired:
            assert outcomes == {"old", "new"}
            return
        outcomes.add("old" if survived == old else "new")
        with lake.session() as session:
            set_chunk(session.icechunk(PATH).store, 2, 2)
        assert _checked_out(store) == filled(c2=2, **({} if survived == old else {"c1": 1})), f"operation {operation}"
    raise AssertionError("a publish takes more than 500 operations")


def test_a_process_killed_before_its_publish_leaves_main_as_it_was(tmp_path: Path) -> None:
    _begin(tmp_path)
    code = f"""
        import os, signal
        from lake_core import Lake
        from tests.lake.arrays import PATH, set_chunk
        session = Lake.open({str(tmp_path)!r}).session()
        set_chunk(session.icechunk(PATH).store, 1, 1)
        session.icechunk(PATH).session.commit("provisional")
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False).returncode == -signal.SIGKILL
    assert outside_values(tmp_path) == filled()
