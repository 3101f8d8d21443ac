"""A process that goes on publishing one table does not get slower."""

from __future__ import annotations

from lake_core import Lake
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
