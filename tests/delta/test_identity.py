"""Identity columns: each new row gets a number that no other ever had, in the direction of the step."""

from __future__ import annotations

import itertools
import json
import pickle
import threading
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake_core.delta import DeltaTable
from lake_core.delta.data_file import AddFile
from lake_core.delta.errors import (
    ConcurrentModification,
    ConstraintViolation,
    MalformedMetadata,
    MetadataChanged,
    SchemaMismatch,
    UnsupportedWriterFeature,
)
from lake_core.delta.identity import MOST_TASKS, identity_columns
from lake_core.delta.log_segment import commit_key
from lake_core.store import MemoryStore, ObjectStore


def identity(start: int = 1, step: int = 1, *, explicit: bool = False) -> dict[str, str]:
    return {
        "delta.identity.start": str(start),
        "delta.identity.step": str(step),
        "delta.identity.allowExplicitInsert": str(explicit).lower(),
    }


def create(store: ObjectStore | None = None, **properties: Any) -> DeltaTable:
    schema = pa.schema([pa.field("n", pa.int64(), metadata=identity(**properties)), ("v", pa.string())])
    return DeltaTable.create(MemoryStore() if store is None else store, schema)


def values(*texts: str) -> pa.Table:
    return pa.table({"v": list(texts)})


def held(table: DeltaTable) -> dict[str, int]:
    rows = table.to_arrow().to_pylist()
    assert len({row["n"] for row in rows}) == len(rows)
    return {row["v"]: row["n"] for row in rows}


def commit_info(table: DeltaTable) -> dict[str, Any]:
    (info,) = [
        json.loads(line)["commitInfo"]
        for line in bytes(table.store.get(commit_key(table.version))).splitlines()
        if b'"commitInfo"' in line
    ]
    return dict(info)


@pytest.mark.parametrize(
    ("start", "step", "expected"), [(1, 1, [1, 2, 3, 4]), (10, -3, [10, 7, 4, 1]), (-5, 5, [-5, 0, 5, 10])]
)
def test_rows_get_numbers(start: int, step: int, expected: list[int]) -> None:
    table = create(start=start, step=step)
    table.append(values("a", "b"))
    table.append(values("c", "d"))
    assert list(held(DeltaTable.open(table.store)).values()) == expected
    (column,) = identity_columns(table.snapshot.metadata)
    assert column.mark == expected[-1]
    assert commit_info(table)["tags"] == {"delta.identity.schemaUpdate": "true"}
    assert commit_info(table)["isBlindAppend"] is True
    assert table.protocol.min_writer_version == 6


@pytest.mark.parametrize("start", [-3, 1, 4])
@pytest.mark.parametrize("step", [1, 3, -2])
def test_the_next_number_is_after_those_of_rows_once_that_is_asked_for(start: int, step: int) -> None:
    grid = [start + step * place for place in range(40)]
    for own, count in itertools.product(range(-9, 10, 2), (0, 2)):
        table = create(start=start, step=step, explicit=True)
        if count:
            table.append(values(*"xy"))
        table.append(pa.table({"n": [own], "v": ["own"]}))
        table.sync_identity("N")
        table.append(values("next"))
        ahead = [number for number in grid[count:] if (number - own) * step > 0]
        assert held_at(table, "next") == (ahead[0] if ahead else grid[count])


def held_at(table: DeltaTable, text: str) -> int:
    return int(table.to_arrow(where=f"v = '{text}'")["n"][0].as_py())


def test_nothing_is_synced_where_nothing_must() -> None:
    table = create(explicit=True)
    version = table.version
    table.sync_identity("n")
    table.append(values("a"))
    table.sync_identity("n")
    assert table.version == version + 1
    with pytest.raises(SchemaMismatch, match="not an identity column"):
        table.sync_identity("v")


@pytest.mark.parametrize("start", [1, 2])
def test_no_number_is_left_after_the_last_one_of_all(start: int) -> None:
    table = create(start=start, step=2, explicit=True)
    table.append(pa.table({"n": [2**63 - 1], "v": ["last"]}))
    table.sync_identity("n")
    with pytest.raises(ConstraintViolation, match="no number left"):
        table.append(values("next"))


def test_a_row_that_comes_while_numbers_are_synced_is_not_overlooked() -> None:
    table = create(explicit=True)
    table.append(pa.table({"n": [7], "v": ["own"]}))
    other = DeltaTable.open(table.store)
    table.append(pa.table({"n": [90], "v": ["later"]}))
    with pytest.raises(ConcurrentModification):
        other.sync_identity("n")
    other.refresh().sync_identity("n")
    other.append(values("next"))
    assert held(other)["next"] == 91


def test_numbers_of_rows_themselves_are_taken_only_where_the_column_allows_it() -> None:
    always, default = create(), create(explicit=True)
    with pytest.raises(ConstraintViolation, match="GENERATED ALWAYS"):
        always.append(pa.table({"n": [7], "v": ["a"]}))
    default.append(pa.table({"n": [50], "v": ["a"]}))
    default.append(values("b"))
    assert held(default) == {"a": 50, "b": 1}


def test_rows_keep_their_numbers_wherever_they_move() -> None:
    table = create()
    table.append(values("a", "b", "c"))
    table.update({"v": "'B'"}, "v = 'b'")
    table.delete("v = 'c'")
    source = pa.table({"k": [1, 9], "w": ["A", "new"]})
    merge = table.merge(source, "t.n = s.k").when_matched_update({"v": "s.w"})
    merge.when_not_matched_insert({"v": "s.w"}).execute()
    table.optimize()
    assert held(table) == {"A": 1, "B": 2, "new": 4}


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.update({"n": "5"}),
        lambda t: t.merge(values("a"), "t.v = s.v").when_matched_update({"n": "7"}).execute(),
        lambda t: t.merge(pa.table({"n": [5], "v": ["a"]}), "t.v = s.v").when_matched_update("*").execute(),
        lambda t: t.merge(values("a"), "t.v = s.v").when_not_matched_by_source_update({"n": "7"}).execute(),
    ],
)
def test_numbers_are_not_changed(change: Any) -> None:
    table = create(explicit=True)
    table.append(values("a"))
    with pytest.raises(SchemaMismatch, match="identity column"):
        change(table)
    assert held(table) == {"a": 1}


def test_a_merge_gives_numbers_to_what_it_inserts() -> None:
    table = create()
    table.append(values("a"))
    table.merge(values("a", "b", "c"), "t.v = s.v").when_not_matched_insert("*").execute()
    assert sorted(held(table).values()) == [1, 2, 3]
    with pytest.raises(ConstraintViolation, match="GENERATED ALWAYS"):
        table.merge(pa.table({"n": [9], "v": ["z"]}), "t.v = s.v").when_not_matched_insert("*").execute()


def test_of_two_writers_at_once_one_writes_again() -> None:
    table = create()
    late = DeltaTable.open(table.store)
    table.append(values("a"))
    with pytest.raises(MetadataChanged):
        late.append(values("b"))
    late.refresh().append(values("b"))
    assert held(late) == {"a": 1, "b": 2}


def test_operations_that_give_no_numbers_pass() -> None:
    table = create()
    table.append(values("a", "b"))
    late = DeltaTable.open(table.store)
    table.append(values("c"))
    late.delete("n = 1")
    assert held(late) == {"b": 2, "c": 3}


def test_many_writers() -> None:
    table = create()

    def run(number: int) -> None:
        handle = DeltaTable.open(table.store)
        for count in range(10):
            while True:
                try:
                    handle.append(values(f"{number}-{count}"))
                    break
                except MetadataChanged:
                    handle.refresh()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(held(table.refresh()).values()) == list(range(1, 41))


def test_a_number_is_not_given_again_after_a_restore_or_an_overwrite() -> None:
    table = create()
    table.append(values("a"))
    table.append(values("b"))
    table.restore(1)
    table.append(values("c"))
    assert held(table) == {"a": 1, "c": 3}
    table.overwrite(values("d"))
    assert held(table) == {"d": 4}


def test_a_copied_schema_begins_anew() -> None:
    table = create()
    table.append(values("a", "b"))
    copy = DeltaTable.create(MemoryStore(), table.schema)
    copy.append(values("c"))
    assert held(copy) == {"c": 1}


def test_the_last_numbers() -> None:
    table = create(start=2**63 - 2)
    table.append(values("a", "b"))
    with pytest.raises(ConstraintViolation, match="no number left"):
        table.append(values("c"))
    assert held(table) == {"a": 2**63 - 2, "b": 2**63 - 1}


@given(st.lists(st.integers(0, 3), max_size=5), st.integers(-5, 5).filter(bool), st.integers(-50, 50))
def test_any_batches(counts: list[int], step: int, start: int) -> None:
    table = create(start=start, step=step)
    batches = [
        pa.record_batch({"v": [f"{number}-{row}" for row in range(count)]}) for number, count in enumerate(counts)
    ]
    schema = pa.schema([("v", pa.string())])
    table.append(pa.RecordBatchReader.from_batches(schema, [batch.cast(schema) for batch in batches]))
    assert sorted(held(table).values()) == sorted(start + step * number for number in range(sum(counts)))


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (pa.string(), {}),
        (pa.int64(), {"delta.identity.step": "0"}),
        (pa.int64(), {"delta.identity.step": "1.5"}),
        (pa.int64(), {"delta.identity.allowExplicitInsert": "7"}),
    ],
)
def test_a_column_that_cannot_count_is_refused(kind: pa.DataType, changes: dict[str, str]) -> None:
    schema = pa.schema([pa.field("n", kind, metadata=identity() | changes), ("v", pa.string())])
    with pytest.raises(MalformedMetadata, match="identity column"):
        DeltaTable.create(MemoryStore(), schema)


@given(
    step=st.sampled_from([1, 3, -2]),
    jobs=st.lists(st.lists(st.lists(st.integers(0, 2500), max_size=3), min_size=1, max_size=4), min_size=1, max_size=3),
    has_statistics=st.booleans(),
)
def test_tasks_of_jobs_give_no_number_twice(step: int, jobs: list[list[list[int]]], has_statistics: bool) -> None:
    """A job is a list of tasks, and a task a list of files, as the numbers of their rows."""
    table = create(start=5, step=step)
    given_numbers: list[int] = []
    for job in jobs:
        writer = table.plan_append(pa.schema([("v", pa.string())])).writer
        adds = []
        for task, files in enumerate(job):
            own = pickle.loads(pickle.dumps(writer.identity)).of_task(task)
            for count in files:
                rows = pa.table({"n": pa.nulls(count, pa.int64()), "v": pa.nulls(count, pa.string())})
                numbers = own.filled(rows, ["v"])["n"].to_pylist()
                given_numbers += numbers
                bounds = {"minValues": {"n": min(numbers)}, "maxValues": {"n": max(numbers)}} if numbers else {}
                adds.append(AddFile("x", {}, 1, 1, json.dumps(bounds if has_statistics else {}), count))
        writer.claim(adds, ["v"])
        operation = table.plan_append(pa.schema([("v", pa.string())])).operation([], [])
        table.commit(operation.defining(writer.final_metadata), None)
    assert len(set(given_numbers)) == len(given_numbers)
    table.append(values("last"))
    last = held(table)["last"]
    assert all((last - number) * step > 0 for number in given_numbers)


def test_a_task_of_no_known_number_gives_none() -> None:
    writer = create().plan_append(pa.schema([("v", pa.string())])).writer
    rows = pa.table({"n": pa.nulls(1, pa.int64()), "v": ["a"]})
    with pytest.raises(UnsupportedWriterFeature, match="give one twice"):
        pickle.loads(pickle.dumps(writer.identity)).filled(rows, ["v"])


def test_more_tasks_than_there_are_blocks_give_none() -> None:
    writer = create().plan_append(pa.schema([("v", pa.string())])).writer
    rows = pa.table({"n": pa.nulls(1, pa.int64()), "v": ["a"]})
    with pytest.raises(UnsupportedWriterFeature):
        writer.identity.of_task(MOST_TASKS).filled(rows, ["v"])


def test_numbers_of_tasks_end_where_a_long_does() -> None:
    writer = create(start=2**63 - 10_000_000).plan_append(pa.schema([("v", pa.string())])).writer
    rows = pa.table({"n": pa.nulls(2000, pa.int64()), "v": pa.nulls(2000, pa.string())})
    with pytest.raises(ConstraintViolation, match="no number left"):
        writer.identity.of_task(0).filled(rows, ["v"])
