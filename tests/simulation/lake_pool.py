"""A pool of a lake in a history: records that are counted up or deleted, and records that are added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lake_core.lake.state.state_store import StateStore
from lake_core.lake.state.writable_state import WritableState
from lake_core.pool.key_range import KeyRange
from tests.simulation.lake_actions import FIRST_ROWS, POOL, Change


def create_pool(session: WritableState) -> None:
    """Create the pool with its first records."""
    session.create_pool(POOL, key="id").load(_records(range(FIRST_ROWS)))


def change_pool(session: WritableState, change: Change, rows: Sequence[int], marker: tuple[str, int]) -> None:
    """Do to the pool what a change of a work says. `rows`: the ids that it adds."""
    pool = session.pool(POOL)
    match change.kind:
        case "add":
            pool.load(_records(rows), txn=marker)
        case "count":
            first, stop = change.number, change.number + 1
            values = [record["v"] for record in pool.scan(start=first, stop=stop).records()]
            keys = [KeyRange.of(first, stop)]
            pool.replace(pool.write_objects(_records([first], values[0] + 1), keys), keys, txn=marker)
        case "delete":
            pool.delete(f"id = {change.number}")


def pool_contents(state: StateStore) -> Counter[tuple[int, int]]:
    """Return the records of the pool and how often each occurs."""
    return Counter((record["id"], record["v"]) for record in state.pool(POOL).scan().records())


def _records(ids: Sequence[int], v: int = 0) -> list[dict[str, object]]:
    return [{"id": id, "v": v} for id in ids]
