"""A process that goes on publishing one table gets neither slower nor larger."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.lake.state.changes import Changes
from lake_core.store import MemoryStore
from tests.lake.lakes import SCHEMA, ids, rows


def test_the_commits_to_replay_are_those_since_the_last_checkpoint() -> None:
    lake = Lake.create(MemoryStore())
    with lake.session() as session:
        session.create_delta("t", SCHEMA)
    replayed = []
    for number in range(70):
        with lake.session() as session:
            table = session.delta("t")
            replayed.append(table.snapshot.replayed)
            table.append(rows([number]))
    assert max(replayed) <= 30
    assert ids(lake.delta("t").to_arrow()) == list(range(70))


def changes_in_memory() -> int:
    gc.collect()
    return sum(type(each) is Changes for each in gc.get_objects())


def test_what_sessions_wrote_is_not_kept_by_the_snapshots_of_their_tables() -> None:
    lake = Lake.create(MemoryStore())
    with lake.session() as session:
        session.create_delta("t", SCHEMA)
    del session
    before = changes_in_memory()
    for number in range(5):
        session = lake.session()
        session.delta("t").append(rows([number]))
        if number % 2:
            session.publish()
        del session
    assert changes_in_memory() == before


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda table: pickle.loads(pickle.dumps(table))])
def test_a_handle_on_a_table_goes_to_another_process(
    tmp_path: Path, copied: Callable[[DeltaTable], DeltaTable]
) -> None:
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        session.create_delta("t", SCHEMA).append(rows([1]))
    private = lake.session()
    private.delta("t").append(rows([2]))  # whose snapshot is kept in this process
    assert copied(lake.delta("t")).to_arrow()["id"].to_pylist() == [1]
