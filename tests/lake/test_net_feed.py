"""The change feed of a branch whose older files are gone: it leads from the rows before a merge to those after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.delta.errors import DataFileMissing
from lake_core.lake.errors import Collected
from lake_core.store import MemoryStore
from lake_core.testing.manual_clock import ManualClock
from tests.lake.lakes import SCHEMA, rows

FEED = {"delta.enableChangeDataFeed": "true"}
LAYOUTS = [
    pytest.param({}, FEED, id="whole files"),
    pytest.param({"partition_by": ["p"]}, FEED, id="partitions"),
    pytest.param({}, FEED | {"delta.enableDeletionVectors": "true"}, id="deletion vectors"),
]
STEPS: dict[str, list[Callable[[DeltaTable], object]]] = {
    "append and update": [lambda t: t.append(rows([10, 11])), lambda t: t.update({"v": "1"}, "id = 10")],
    "update twice": [lambda t: t.update({"v": "1"}, "id < 3"), lambda t: t.update({"v": "2"}, "id < 2")],
    "update once": [lambda t: t.update({"v": "1"}, "id < 3")],
    "delete what was appended": [lambda t: t.append(rows([10, 11])), lambda t: t.delete("id = 10")],
    "overwrite": [lambda t: t.append(rows([10])), lambda t: t.overwrite(rows([1, 20]))],
    "change and back": [lambda t: t.update({"v": "1"}, "id = 1"), lambda t: t.update({"v": "0"}, "id = 1")],
    "doubled rows": [lambda t: t.append(rows([1, 1, 1])), lambda t: t.delete("id = 2")],
}


def values(data: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(str(value) for value in row.values()) for row in data.to_pylist())


def feed(table: DeltaTable) -> tuple[Counter[tuple[Any, ...]], Counter[tuple[Any, ...]]]:
    """Return the rows that the newest version added and removed."""
    added: Counter[tuple[Any, ...]] = Counter()
    removed: Counter[tuple[Any, ...]] = Counter()
    for row in table.changes(table.version).read_all().to_pylist():
        kind = row["_change_type"]
        side = added if kind in ("insert", "update_postimage") else removed
        side[tuple(str(value) for name, value in row.items() if not name.startswith("_"))] += 1
    return added, removed


def vacuumed(lake: Lake, time: ManualClock) -> None:
    """Vacuum and collect daily, as maintenance does."""
    for _ in range(20):
        time.pass_days(1)
        with lake.session(message="vacuum") as s:
            s.delta("t").vacuum(dry_run=False)
        lake.maintenance.gc()


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize(("options", "properties"), LAYOUTS)
def test_a_branch_whose_steps_are_gone_merges_with_a_feed_of_its_net_change(
    empty: Lake, time: ManualClock, options: Mapping[str, Any], properties: Mapping[str, str], steps: str
) -> None:
    lake = empty
    with lake.session() as s:
        s.create_delta("t", SCHEMA, properties=properties, **options).append(rows(range(6)))
    lake.create_branch("dev")
    for step in STEPS[steps]:
        with lake.session("dev") as s:
            step(s.delta("t"))
    before = values(lake.delta("t").to_arrow())
    vacuumed(lake, time)
    lake.merge("dev")
    after = values(lake.delta("t").to_arrow())
    assert after == values(lake.delta("t", ref="dev").to_arrow())
    added, removed = feed(lake.delta("t"))
    assert before + added == after + removed
    assert lake.maintenance.verify() == []


def test_copied_rows_are_no_changes(empty: Lake, time: ManualClock) -> None:
    lake = empty
    with lake.session() as s:
        s.create_delta("t", SCHEMA, properties=FEED).append(rows(range(6)))
    lake.create_branch("dev")
    for step in STEPS["append and update"]:
        with lake.session("dev") as s:
            step(s.delta("t"))
    with lake.session("dev") as s:
        s.delta("t").update({"v": "7"}, "id = 3")
    vacuumed(lake, time)
    lake.merge("dev")
    added, removed = feed(lake.delta("t"))
    assert added == Counter({("10", "p0", "1"): 1, ("11", "p1", "0"): 1, ("3", "p1", "7"): 1})
    assert removed == Counter({("3", "p1", "0"): 1})


def test_rows_with_nested_values_and_doubled_rows_cancel_one_by_one(empty: Lake, time: ManualClock) -> None:
    lake = empty
    schema = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string())), ("x", pa.float64())])

    def batch(ids: list[int]) -> pa.Table:
        tags = [["a", None] if id % 2 else None for id in ids]
        return pa.table({"id": ids, "tags": tags, "x": [float("nan") if id == 3 else 0.5 for id in ids]}, schema=schema)

    with lake.session() as s:
        s.create_delta("t", schema, properties=FEED).append(batch([1, 1, 1, 2, 3]))
    lake.create_branch("dev")
    with lake.session("dev") as s:
        s.delta("t").append(batch([1, 4]))
    with lake.session("dev") as s:
        s.delta("t").overwrite(batch([1, 1, 3, 4, 4]))
    before = values(lake.delta("t").to_arrow())
    vacuumed(lake, time)
    lake.merge("dev")
    added, removed = feed(lake.delta("t"))
    assert before + added == values(lake.delta("t").to_arrow()) + removed
    assert [key[0] for key in added.elements()] == ["4", "4"]
    assert sorted(key[0] for key in removed.elements()) == ["1", "2"]


def test_a_revert_of_a_table_with_a_feed_says_what_is_gone(empty: Lake, time: ManualClock) -> None:
    lake = empty
    with lake.session() as s:
        s.create_delta("t", SCHEMA, properties=FEED).append(rows(range(6)))
    with lake.session() as s:
        s.delta("t").overwrite(rows([7]))
    overwritten = lake.log()[0].id
    vacuumed(lake, time)
    with pytest.raises(Collected) as refused:
        lake.revert(overwritten)
    assert not isinstance(refused.value, DataFileMissing)
    assert lake.maintenance.verify() == []


def add_column(table: DeltaTable) -> None:
    table.add_columns(pa.schema([("c", pa.int64())]))


def drop_and_add(table: DeltaTable) -> None:
    table.drop_columns(["w"])
    table.add_columns(pa.schema([("q", pa.int64())]))


COLUMNS: dict[str, tuple[Callable[[DeltaTable], object], dict[str, Any]]] = {
    "add": (add_column, {"id": 7, "w": 70, "c": None}),
    "reorder": (lambda t: t.reorder_columns(["w", "id"]), {"w": 70, "id": 7}),
    "rename": (lambda t: t.rename_column("w", "z"), {"id": 7, "z": 70}),
    "drop and add": (drop_and_add, {"id": 7, "q": None}),
    "widen by rows": (
        lambda t: t.append(pa.table({"id": [9], "w": [90], "c": [1]}), schema_mode="merge"),
        {"id": 7, "w": 70, "c": None},
    ),
}


MAPPED = {"delta.columnMapping.mode": "name"}


@pytest.mark.parametrize(
    ("change", "mapping"),
    [("add", {}), ("reorder", {}), ("widen by rows", {}), *((change, MAPPED) for change in COLUMNS)],
)
def test_the_feed_of_a_session_has_its_rows_under_the_columns_that_it_leaves(
    change: str, mapping: Mapping[str, str]
) -> None:
    schema, (operation, expected) = pa.schema([("id", pa.int64()), ("w", pa.int64())]), COLUMNS[change]
    lake = Lake.create(MemoryStore())
    with lake.session() as session:
        table = session.create_delta("t", schema, properties=FEED | dict(mapping))
        table.append(pa.table({"id": [0], "w": [5]}))
    with lake.session() as session:
        table = session.delta("t")
        table.append(pa.table({"id": [7], "w": [70]}))
        operation(table)
    table = lake.delta("t")
    changes = table.changes(table.version).read_all().drop_columns(["_commit_version", "_commit_timestamp"])
    assert changes.to_pylist()[0] == expected | {"_change_type": "insert"}
