"""Changes of one pool that meet: they end as if one had been made after the other, or conflict. None is lost."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lake_core.lake import Lake
from lake_core.lake.errors import Conflict
from lake_core.pool import Pool
from lake_core.pool.key_range import KeyRange
from lake_core.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

PATH = "raw"
OBJECTS = [(0, 1, 2), (3, 4, 5), (6, 7, 8)]
"""The keys of the data objects that the pool has at first."""


@dataclass(frozen=True)
class Operation:
    """A change of a pool.

    Attributes:
        run: Makes the change.
        after: Returns the keys of the records after the change, given those before it.
    """

    run: Callable[[Pool], object]
    after: Callable[[list[int]], list[int]]


def _replace(pool: Pool, *keys: int) -> None:
    ranges = [KeyRange.of(3, 6)]
    pool.replace(pool.write_objects([{"k": key} for key in keys], ranges), ranges)


def _load(key: int) -> Operation:
    return Operation(lambda pool: pool.load([{"k": key}]), lambda keys: [*keys, key])


def _delete(where: str, *deleted: int) -> Operation:
    return Operation(lambda pool: pool.delete(where), lambda keys: [key for key in keys if key not in deleted])


OPERATIONS = {
    "load": _load(100),
    "load in between": _load(4000),
    "delete an object": _delete("k >= 3 and k < 6", 3, 4, 5),
    "delete two objects": _delete("k < 6", *range(6)),
    "delete a record": _delete("k = 4", 4),
    "delete nothing": _delete("k = 999"),
    "delete all": Operation(lambda pool: pool.delete("true"), lambda _: []),
    "replace by nothing": Operation(_replace, lambda keys: [key for key in keys if not 3 <= key < 6]),
    "replace": Operation(lambda pool: _replace(pool, 5), lambda keys: [*(key for key in keys if not 3 <= key < 6), 5]),
    "compact": Operation(lambda pool: pool.compact(), lambda keys: keys),
}
PAIRS = list(itertools.product(OPERATIONS, OPERATIONS))


@pytest.fixture
def lake() -> Lake:
    """A lake with a pool of three data objects, and a table."""
    lake = Lake.create(MemoryStore())
    with lake.session() as session:
        session.create_pool(PATH, key="k", order="asc")
        session.create_delta("table", pa.schema([("id", pa.int64())]))
    for keys in OBJECTS:
        with lake.session() as session:
            session.pool(PATH).load([{"k": key} for key in keys])
    return lake


def keys_of(lake: Lake, ref: str = "main") -> list[int]:
    return sorted(record["k"] for record in lake.pool(PATH, ref=ref).scan().records())


def serial(first: str, second: str) -> list[list[int]]:
    """Return the keys after two operations in either order."""
    keys = [key for each in OBJECTS for key in each]
    one, other = OPERATIONS[first].after, OPERATIONS[second].after
    return [sorted(other(one(keys))), sorted(one(other(keys)))]


@pytest.mark.parametrize(("first", "second"), PAIRS)
@pytest.mark.sampled(8)
def test_two_sessions_end_as_a_serial_history_or_conflict(lake: Lake, first: str, second: str) -> None:
    one, other = lake.session(), lake.session()
    OPERATIONS[first].run(one.pool(PATH))
    OPERATIONS[second].run(other.pool(PATH))
    one.publish()
    before = keys_of(lake)
    try:
        other.publish()
    except Conflict:
        assert keys_of(lake) == before
    else:
        assert keys_of(lake) in serial(first, second)


@pytest.mark.parametrize(("first", "second"), PAIRS)
@pytest.mark.sampled(8)
def test_two_branches_end_as_a_serial_history_or_conflict(lake: Lake, first: str, second: str) -> None:
    lake.create_branch("dev")
    for branch, name in (("main", first), ("dev", second)):
        with lake.session(branch) as session:
            OPERATIONS[name].run(session.pool(PATH))
    before = keys_of(lake)
    try:
        if second != "delete nothing":  # Nothing to merge is an error.
            lake.merge("dev")
    except Conflict:
        assert keys_of(lake) == before
    else:
        assert keys_of(lake) in serial(first, second)


@pytest.mark.parametrize("name", ["delete an object", "delete two objects", "delete all", "replace by nothing"])
def test_a_compaction_gives_way_to_a_deletion_of_what_it_rewrote(lake: Lake, name: str) -> None:
    one, other = lake.session(), lake.session()
    OPERATIONS[name].run(one.pool(PATH))
    other.pool(PATH).compact()
    compaction = other.publish().commit
    assert one.publish().undone == (compaction,)
    assert keys_of(lake) == OPERATIONS[name].after([key for each in OBJECTS for key in each])


@pytest.mark.parametrize("name", ["delete an object", "delete two objects", "delete all"])
def test_a_deletion_that_another_session_made_too_is_no_conflict(lake: Lake, name: str) -> None:
    one, other = lake.session(), lake.session()
    for session in (one, other):
        OPERATIONS[name].run(session.pool(PATH))
    one.publish()
    other.publish()
    assert keys_of(lake) in serial(name, name)


def test_a_deletion_is_not_picked_onto_a_branch_that_compacted(lake: Lake) -> None:
    lake.create_branch("other")
    with lake.session("other") as session:
        session.pool(PATH).compact()
    with lake.session() as session:
        session.pool(PATH).delete("k < 3")
    with pytest.raises(Conflict):
        lake.cherry_pick("main", onto="other")


def test_a_deletion_is_not_picked_onto_a_branch_that_has_the_records_from_before_a_compaction(lake: Lake) -> None:
    lake.create_branch("other")
    with lake.session() as session:
        session.pool(PATH).compact()
    with lake.session() as session:
        session.pool(PATH).delete("true")
    with pytest.raises(Conflict):
        lake.cherry_pick("main", onto="other")


@pytest.mark.parametrize("since", ["compact", "delete a record"])
def test_a_load_that_was_rewritten_since_is_not_half_reverted(lake: Lake, since: str) -> None:
    with lake.session() as session:
        session.pool(PATH).load([{"k": key} for key in (4, 50, 51)])
        session.delta("table").append(pa.table({"id": [1]}))
    commit = next(iter(lake.log())).id
    with lake.session() as session:
        OPERATIONS[since].run(session.pool(PATH))
    with pytest.raises(Conflict):
        lake.revert(commit)
    assert lake.delta("table").to_arrow()["id"].to_pylist() == [1]


@pytest.mark.parametrize("how", ["revert", "merge"])
@pytest.mark.parametrize(("second", "is_read"), [("k >= 40 and k < 60", True), ("k > 70", False)])
def test_what_a_deletion_did_not_see_does_not_come_back_after_it(
    lake: Lake, how: str, second: str, is_read: bool
) -> None:
    """A deletion has read all records that match it. Those that an earlier one had deleted are not among them."""
    for keys in ((50, 60), (55,), (80,)):
        with lake.session() as session:
            session.pool(PATH).load([{"k": key} for key in keys])
    with lake.session() as session:
        session.pool(PATH).delete("k = 50")
    first = next(iter(lake.log())).id
    lake.create_branch("dev")
    with lake.session("dev") as session:
        session.pool(PATH).delete(second)
    if how == "revert":
        bring = partial(lake.revert, first, branch="dev")
    else:
        lake.revert(first)
        bring = partial(lake.merge, "dev")
    if is_read:
        with pytest.raises(Conflict):
            bring()
    else:
        bring()
        keys = [record["k"] for record in lake.pool(PATH, ref="dev" if how == "revert" else "main").scan().records()]
        assert 50 in keys


def test_a_load_whose_records_were_deleted_since_is_reverted_after_the_deletion(lake: Lake) -> None:
    # A revert that changed nothing would still count: its own revert, on another branch, would bring the records back.
    with lake.session() as session:
        session.pool(PATH).load([{"k": key} for key in (50, 51)])
        session.delta("table").append(pa.table({"id": [1]}))
    load = next(iter(lake.log())).id
    with lake.session() as session:
        session.pool(PATH).delete("k >= 50")
    with pytest.raises(Conflict, match="no longer on main"):
        lake.revert(load)
    lake.revert("main")
    lake.revert(load)
    assert lake.delta("table").to_arrow()["id"].to_pylist() == []
