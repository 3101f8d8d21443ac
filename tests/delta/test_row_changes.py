"""Rows that differ between two versions: applied to the rows before, they give the rows after."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lake_core.delta import DeltaTable
from lake_core.delta.inspection import DeltaInspection
from lake_core.delta.row_changes import row_changes
from lake_core.inspection import RowRequest, TooMuchToShow
from lake_core.store import MemoryStore
from tests.examples import examples

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("tags", pa.list_(pa.string()))])
_OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["append", "delete", "update", "overwrite", "optimize"]),
        st.integers(0, 5),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=6,
)


def rows(ids: range, v: int) -> pa.Table:
    return pa.table({"id": list(ids), "v": [v] * len(ids), "tags": [["a"] * (i % 2) for i in ids]}, schema=SCHEMA)


def apply(table: DeltaTable, operation: str, first: int, v: int) -> None:
    match operation:
        case "append":
            table.append(rows(range(first, first + 3), v))
        case "delete":
            table.delete(f"id >= {first} AND id < {first + 2}")
        case "update":
            table.update({"v": str(v)}, f"id = {first}")
        case "overwrite":
            table.overwrite(rows(range(first), v))
        case "optimize":
            table.optimize()


def bag(table: pa.Table) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in table.to_pylist())


@pytest.mark.parametrize("vectors", ["true", "false"])
@given(operations=_OPERATIONS, data=st.data())
@settings(max_examples=examples(40), deadline=None)
def test_the_changes_lead_from_one_version_to_another(vectors: str, operations: Any, data: st.DataObject) -> None:
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA, properties={"delta.enableDeletionVectors": vectors})
    for operation, first, v in operations:
        apply(table, operation, first, v)
    versions = st.integers(0, table.version)
    before, after = (DeltaTable.open(store, version=data.draw(versions)) for _ in range(2))
    for key in ((), ("id",), ("id", "v")):
        changes = row_changes(before.snapshot, after.snapshot, key, 10_000)
        old, new = bag(before.to_arrow()), bag(after.to_arrow())
        gone, come = bag(changes.removed) + bag(changes.before), bag(changes.added) + bag(changes.after)
        assert not gone - old
        assert old - gone + come == new
        assert not gone & come, "a row that both have is no change"
        assert changes.before.select(list(key)).to_pylist() == changes.after.select(list(key)).to_pylist()
        if key and changes.is_unique:
            left, right = (
                Counter(map(repr, side.select(list(key)).to_pylist())) for side in (changes.removed, changes.added)
            )
            assert not left & right, "rows of one key are a pair"


def test_files_that_both_have_are_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA, properties={"delta.enableDeletionVectors": "true"})
    for first in range(0, 50, 10):
        table.append(rows(range(first, first + 10), 0))
    before = table.snapshot
    table.update({"v": "1"}, "id = 25")
    opened: list[str] = []
    get = MemoryStore._get

    def counted(self: MemoryStore, key: str, start: int | None, end: int | None) -> Any:
        opened.append(key)
        return get(self, key, start, end)

    monkeypatch.setattr(MemoryStore, "_get", counted)
    changes = row_changes(before, table.snapshot, ["id"], 100)
    assert changes.after.to_pylist() == [{"id": 25, "v": 1, "tags": ["a"]}]
    assert len({key for key in opened if key.endswith(".parquet")}) == 2


def test_more_rows_than_the_limit_are_refused_before_files_are_opened() -> None:
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA)
    table.append(rows(range(100), 0))
    with pytest.raises(TooMuchToShow, match="100 rows"):
        row_changes(None, table.snapshot, (), 99)
    assert len(row_changes(None, table.snapshot, (), 100).added) == 100


@given(sizes=st.lists(st.integers(1, 9), max_size=5), count=st.integers(1, 7), offset=st.integers(0, 30))
@settings(max_examples=examples(40), deadline=None)
def test_pages_are_slices_of_the_table(sizes: list[int], count: int, offset: int) -> None:
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA)
    for number, size in enumerate(sizes):
        table.append(rows(range(number * 10, number * 10 + size), number))
    table.delete("id % 10 = 1")
    inspection = DeltaInspection(store, table.snapshot)
    whole = [row for batch in inspection.batches() for row in batch.to_pylist()]
    page = inspection.rows(RowRequest(count, offset))
    assert page.rows == whole[offset : offset + count]
    assert page.has_more == (len(whole) > offset + count)
    assert page.total == len(whole)
    ordered = inspection.rows(RowRequest(count, offset, order_by="id", descending=True))
    assert [row["id"] for row in ordered.rows] == sorted((row["id"] for row in whole), reverse=True)[offset:][:count]
    chosen = inspection.rows(RowRequest(100, where="v = 1", columns=["id"]))
    assert chosen.rows == [{"id": row["id"]} for row in whole if row["v"] == 1]
