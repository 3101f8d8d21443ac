"""Rows that are marked in deletion vectors: what they leave is what rewriting the files leaves, for every reader."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lake_core.delta import DeltaTable
from lake_core.delta.deletion_vector import deleted_rows, vector_file_problem
from lake_core.delta.deletion_vector_writer import wide, write_vectors
from lake_core.delta.errors import InvalidProperty
from lake_core.delta.log_segment import commit_key
from lake_core.delta.operations.merge_file import _among_all
from lake_core.delta.version_checksum import checksum_key
from lake_core.store import LocalStore, MemoryStore, ObjectStore
from lake_core.testing import ManualClock
from tests.delta.tables import SCHEMA, held, ids, oracle, paths, rows
from tests.examples import examples

VECTORS = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}
MANY = 4000
"""So many rows that a vector of every other one is too long for the log."""


def create(store: ObjectStore | Path, properties: dict[str, str] = VECTORS, **more: Any) -> DeltaTable:
    return DeltaTable.create(store, SCHEMA, properties=properties, **more)


def vectors(table: DeltaTable) -> list[dict[str, Any] | None]:
    return list(table.snapshot.files(["path", "deletionVector"])["deletionVector"].to_pylist())


def changes(table: DeltaTable, version: int) -> Counter[str]:
    """What one version changed: the kind of change and the row, as text."""
    read = table.changes(version, version).read_all().select(["_change_type", "id", "p", "v"])
    return Counter(map(str, read.to_pylist()))


def _log_files(version: int) -> set[str]:
    return {commit_key(version), checksum_key(version)}


# --- The same as without vectors, by a model of random lives ---

VALUE = st.integers(0, 30)
CONDITION = st.one_of(
    VALUE.map(lambda n: f"id = {n}"),
    st.tuples(VALUE, VALUE).map(lambda pair: f"id >= {min(pair)} AND id < {max(pair)}"),
    st.integers(2, 5).map(lambda n: f"id % {n} = 1"),
    st.tuples(st.integers(0, 2), VALUE).map(lambda pair: f"p = 'p{pair[0]}' AND v > {pair[1] / 2}"),
    st.just("p = 'p1'"),
    st.just("v IS NULL OR id > 28"),
)
STEP = st.one_of(
    st.tuples(st.just("append"), st.tuples(VALUE, VALUE)),
    st.tuples(st.just("delete"), CONDITION),
    st.tuples(st.just("update"), CONDITION),
    st.tuples(st.just("merge"), st.lists(VALUE, min_size=1, max_size=5, unique=True)),
    st.tuples(st.just("replace"), st.lists(VALUE, min_size=1, max_size=5, unique=True)),
    st.tuples(st.just("sync"), st.lists(VALUE, min_size=1, max_size=5, unique=True)),
    st.tuples(st.just("overwrite"), VALUE),
    st.tuples(st.just("optimize"), st.just(None)),
    st.tuples(st.just("checkpoint"), st.just(None)),
    st.tuples(st.just("restore"), st.integers(0, 20)),
)


def take(table: DeltaTable, step: str, argument: Any) -> None:
    match step:
        case "append":
            table.append(rows(min(argument), max(argument)))
        case "delete":
            table.delete(argument)
        case "update":
            table.update({"v": "v + 100", "p": "'p2'"}, argument)
        case "merge":
            source = pa.table({"id": argument, "p": ["p0"] * len(argument), "v": [-1.0] * len(argument)}, schema=SCHEMA)
            merge = table.merge(source, "t.id = s.id").when_matched_delete("t.v > 104")
            merge.when_matched_update("*", "t.id % 2 = 0").when_not_matched_insert("*").execute()
        case "replace":
            source = pa.table({"id": argument, "w": [7.0] * len(argument)})
            merge = table.merge(source, "t.id = s.id").when_matched_update({"id": "s.id", "v": "s.w"}, "t.id % 3 = 0")
            merge.when_matched_update({"id": "s.id", "p": "'p1'", "v": "t.v + s.w"}).execute()
        case "sync":
            source = pa.table({"id": argument})
            merge = table.merge(source, "t.id = s.id").when_not_matched_by_source_delete("t.v < 3")
            merge.when_not_matched_by_source_update({"v": "0"}, "t.p = 'p2'").execute()
        case "overwrite":
            table.overwrite(rows(argument, argument + 2), where=f"id >= {argument} AND id < {argument + 2}")
        case "optimize":
            table.optimize()
        case "checkpoint":
            table.checkpoint()
        case "restore":
            table.restore(min(argument, table.version))


def net(feed: Counter[str]) -> Counter[str]:
    """Changes without the rows that they take out and put back, which a rewrite of files does."""
    total: Counter[str] = Counter()
    for text, count in feed.items():
        row = eval(text, {"nan": float("nan")})
        kind = row.pop("_change_type")
        total[str(row)] += count if kind in ("insert", "update_postimage") else -count
    return Counter({row: count for row, count in total.items() if count})


@settings(max_examples=examples(40), deadline=None)
@given(st.booleans(), st.lists(STEP, min_size=1, max_size=8))
def test_any_life_leaves_what_it_leaves_without_vectors(partitioned: bool, steps: list[tuple[str, Any]]) -> None:
    by = ["p"] if partitioned else []
    marked = create(MemoryStore(), partition_by=by)
    written = create(MemoryStore(), {"delta.enableChangeDataFeed": "true"}, partition_by=by)
    # Without a change feed, a merge reads fewer columns.
    unlogged = create(MemoryStore(), {"delta.enableDeletionVectors": "true"}, partition_by=by)
    for table in (marked, written, unlogged):
        table.append(rows(0, 12))
        table.append(rows(12, 30))
    for step, argument in steps:
        versions = marked.version, written.version
        for table in (marked, written, unlogged):
            take(table, step, argument)
        assert held(marked) == held(written), (step, argument)
        assert held(unlogged) == held(written), (step, argument)
        assert held(marked, "id > 7 AND v < 105") == held(written, "id > 7 AND v < 105")
        grew = [table.version - before for table, before in zip((marked, written), versions, strict=True)]
        if grew == [1, 1] and step != "restore":
            assert net(changes(marked, marked.version)) == net(changes(written, written.version)), (step, argument)
    assert held(DeltaTable.open(marked.store)) == held(written)


@pytest.mark.parametrize("partitioned", [False, True])
def test_another_reader_finds_the_same_rows(tmp_path: Path, partitioned: bool) -> None:
    table = create(tmp_path, partition_by=["p"] if partitioned else [])
    for start in range(0, 2 * MANY, MANY):
        table.append(rows(start, start + MANY))
    for step, argument in (
        ("delete", "id % 2 = 1"),
        ("delete", "id IN (4, 6, 8)"),
        ("update", "id % 10 = 2"),
        ("merge", [10, 12, 14, 30_000]),
        ("sync", [5000, 5002]),
        ("checkpoint", None),
        ("delete", "id = 500"),
    ):
        take(table, step, argument)
        assert oracle(tmp_path) == held(table), step


# --- What stands in the log ---


def test_no_file_is_written_to_delete_a_few_rows() -> None:
    store = MemoryStore()
    table = create(store)
    table.append(rows(0, 100))
    before = {meta.key for meta in store.list()}
    result = table.delete("id IN (3, 50)")
    assert {meta.key for meta in store.list()} - before == _log_files(table.version)
    assert vectors(table)[0] is not None
    assert result.metrics["numDeletionVectorsAdded"] == 1
    assert result.metrics["numDeletedRows"] == 2
    assert result.metrics["numRemovedFiles"] == 0


def test_one_file_holds_the_long_vectors_of_a_commit() -> None:
    store = MemoryStore()
    table = create(store)
    for start in range(0, 3 * MANY, MANY):
        table.append(rows(start, start + MANY))
    before = {meta.key for meta in store.list()}
    table.delete("id % 2 = 1")
    (key,) = {meta.key for meta in store.list()} - before - _log_files(table.version)
    assert vector_file_problem(bytes(store.get(key))) is None
    assert len({vector["pathOrInlineDv"] for vector in vectors(table) if vector}) == 1
    assert sorted(vector["offset"] for vector in vectors(table) if vector)[0] == 1
    assert ids(table.to_arrow()) == list(range(0, 3 * MANY, 2))


def test_vectors_are_merged_with_those_before() -> None:
    table = create(MemoryStore())
    table.append(rows(0, 10))
    table.delete("id = 3")
    table.delete("id = 7")
    (vector,) = vectors(table)
    assert vector is not None
    assert deleted_rows(table.store, vector).tolist() == [3, 7]


def test_a_file_without_rows_left_is_removed() -> None:
    table = create(MemoryStore())
    table.append(rows(0, 5))
    table.append(rows(5, 10))
    table.delete("id < 3")
    result = table.delete("id < 5")
    assert len(paths(table)) == 1
    assert result.metrics["numRemovedFiles"] == 1
    assert ids(table.to_arrow()) == [5, 6, 7, 8, 9]


def test_only_new_versions_of_rows_are_written_by_an_update() -> None:
    table = create(MemoryStore())
    table.append(rows(0, 1000))
    table.update({"v": "0"}, "id = 5")
    assert sorted(json.loads(text)["numRecords"] for text in table.files(["stats"])["stats"].to_pylist()) == [1, 1000]


def test_the_bounds_of_a_file_with_a_vector_are_said_to_be_wide() -> None:
    table = create(MemoryStore())
    table.append(rows(0, 10))
    before = json.loads(table.files(["stats"])["stats"][0].as_py())
    table.delete("id = 9")
    assert json.loads(table.files(["stats"])["stats"][0].as_py()) == before | {"tightBounds": False}


@pytest.mark.parametrize(
    ("stats", "total", "expected"),
    [
        (None, 3, '{"numRecords":3,"tightBounds":false}'),
        ("{}", 3, '{"numRecords":3,"tightBounds":false}'),
        ('{"numRecords":4}', 3, '{"numRecords":3,"tightBounds":false}'),
        ("no JSON", 3, '{"numRecords":3,"tightBounds":false}'),
        (
            '{"numRecords":3,"maxValues":{"a":1.10000000000000000001}}',
            3,
            '{"numRecords":3,"maxValues":{"a":1.10000000000000000001},"tightBounds":false}',
        ),
        ('{"numRecords":3,"tightBounds":true}', 3, '{"numRecords":3,"tightBounds":false}'),
        ('{"tightBounds": true,"numRecords":3}', 3, '{"tightBounds": false,"numRecords":3}'),
        ('{"numRecords":3,"tightBounds":false}', 3, '{"numRecords":3,"tightBounds":false}'),
        (
            '{"tightBounds":true,"numRecords":3,"nullCount":{"tightBounds":1},"x":true}',
            3,
            '{"numRecords":3,"tightBounds":false}',
        ),
    ],
)
def test_statistics_of_a_file_that_gets_a_vector(stats: str | None, total: int, expected: str) -> None:
    assert json.loads(wide(stats, total)) == json.loads(expected)
    assert wide(stats, total).replace(" ", "") == expected.replace(" ", "")


def test_a_file_of_others_without_statistics_gets_its_number_of_rows() -> None:
    store = MemoryStore()
    table = create(store, VECTORS | {"delta.dataSkippingNumIndexedCols": "0"})
    table.append(rows(0, 10))
    key = f"_delta_log/{table.version:020}.json"
    lines = [json.loads(line) for line in bytes(store.get(key)).splitlines()]
    for line in lines:
        line.get("add", {}).pop("stats", None)
    store.put(key, "\n".join(map(json.dumps, lines)).encode())
    table = DeltaTable.open(store)
    table.delete("id = 4")
    assert json.loads(table.files(["stats"])["stats"][0].as_py()) == {"numRecords": 10, "tightBounds": False}


# --- Change data ---


def test_a_delete_needs_no_change_files() -> None:
    store = MemoryStore()
    table = create(store)
    table.append(rows(0, 10))
    table.delete("id = 3")
    table.delete("id > 7")
    assert not [meta.key for meta in store.list() if meta.key.startswith("_change_data/")]
    assert changes(table, 3) == {
        "{'_change_type': 'delete', 'id': 8, 'p': 'p2', 'v': 4.0}": 1,
        "{'_change_type': 'delete', 'id': 9, 'p': 'p0', 'v': 4.5}": 1,
    }


def test_an_update_says_what_rows_were_and_are() -> None:
    table = create(MemoryStore())
    table.append(rows(0, 10))
    table.update({"v": "-1"}, "id = 3")
    assert changes(table, 2) == {
        "{'_change_type': 'update_preimage', 'id': 3, 'p': 'p0', 'v': 1.5}": 1,
        "{'_change_type': 'update_postimage', 'id': 3, 'p': 'p0', 'v': -1.0}": 1,
    }


# --- When ---


def test_the_property_decides_unless_the_caller_does() -> None:
    table = create(MemoryStore())
    table.append(rows(0, 10))
    table.delete("id = 1", deletion_vectors=False)
    assert vectors(table) == [None]
    table.set_properties({"delta.enableDeletionVectors": "false"})
    table.delete("id = 2")
    assert vectors(table) == [None]
    table.delete("id = 3", deletion_vectors=True)
    assert vectors(table) != [None]
    table.update({"v": "0"}, "id = 4", deletion_vectors=True)
    assert len(paths(table)) == 2
    source = pa.table({"id": [5], "p": ["x"], "v": [0.0]}, schema=SCHEMA)
    table.merge(source, "t.id = s.id").when_matched_update("*").with_deletion_vectors().execute()
    assert len(paths(table)) == 3
    assert ids(table.to_arrow()) == [0, 4, 5, 6, 7, 8, 9]


def test_vectors_that_the_table_does_not_allow_are_refused_before_anything_is_written() -> None:
    store = MemoryStore()
    table = create(store, {})
    table.append(rows(0, 10))
    before = [meta.key for meta in store.list()]
    with pytest.raises(InvalidProperty, match="enableDeletionVectors"):
        table.delete("id = 1", deletion_vectors=True)
    with pytest.raises(InvalidProperty, match="enableDeletionVectors"):
        table.update({"v": "1"}, "id = 1", deletion_vectors=True)
    assert [meta.key for meta in store.list()] == before


# --- Maintenance ---


def test_optimize_leaves_no_deleted_row_behind() -> None:
    table = create(MemoryStore())
    table.append(rows(0, 100))
    table.delete("id % 3 = 0")
    table.optimize()
    assert vectors(table) == [None]
    assert ids(table.to_arrow()) == [id for id in range(100) if id % 3]


def test_a_purge_rewrites_the_files_with_deleted_rows_alone() -> None:
    table = create(MemoryStore())
    for start in range(0, 3000, 1000):
        table.append(rows(start, start + 1000))
    table.delete("id = 1500")
    before = paths(table)
    result = table.optimize(purge=True)
    assert (result.metrics["numRemovedFiles"], result.metrics["numAddedFiles"]) == (1, 1)
    assert len(before & paths(table)) == 2
    assert vectors(table) == [None, None, None]
    assert ids(table.to_arrow()) == [id for id in range(3000) if id != 1500]
    assert table.optimize(purge=True).version == table.version


def test_vacuum_keeps_the_vectors_that_count_and_deletes_the_others(tmp_path: Path) -> None:
    clock = ManualClock()
    table = create(tmp_path, clock=clock)
    table.append(rows(0, MANY))
    table.delete("id % 2 = 1")
    table.delete("id % 4 = 2")
    clock.pass_days(8)
    write_vectors(table.store, [np.arange(0, MANY, 2)], 1_700_000_000_000)
    assert len(list(tmp_path.glob("*.bin"))) == 3
    for file in tmp_path.iterdir():
        os.utime(file, (0, 0))
    table.vacuum(retention="0 hours", allow_unsafe=True)
    (kept,) = tmp_path.glob("*.bin")
    assert kept.name.startswith("deletion_vector_")
    assert ids(DeltaTable.open(tmp_path).to_arrow()) == list(range(0, MANY, 4))


def test_a_restore_brings_back_marked_rows() -> None:
    table = create(MemoryStore())
    table.append(rows(0, 10))
    table.delete("id = 3")
    table.delete("id = 5")
    table.restore(2)
    assert ids(table.to_arrow()) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    table.restore(1)
    assert ids(table.to_arrow()) == list(range(10))


# --- Numbers of rows ---


@given(st.sets(st.integers(0, 40)), st.integers(41, 60))
def test_rows_are_numbered_in_the_file(gone: set[int], total: int) -> None:
    left = [number for number in range(total) if number not in gone]
    found = _among_all(np.arange(len(left)), np.array(sorted(gone), np.int64))
    assert found.tolist() == left


@given(st.lists(st.sets(st.integers(0, 1 << 33), max_size=400), max_size=4))
def test_vectors_are_read_as_they_were_written(marked: list[set[int]]) -> None:
    store = MemoryStore()
    written = [np.array(sorted(rows), np.int64) for rows in marked]
    described = write_vectors(store, written, 0)
    read = [[] if descriptor is None else deleted_rows(store, descriptor).tolist() for descriptor in described]
    assert read == [rows.tolist() for rows in written]


def test_files_of_several_row_groups(tmp_path: Path) -> None:
    table = create(tmp_path, VECTORS | {"lake.parquet.rowGroupRows": "100"})
    table.append(rows(0, 1000))
    (file,) = tmp_path.glob("*.parquet")
    assert pq.ParquetFile(file).num_row_groups == 10
    table.delete("id IN (0, 99, 100, 555, 999)")
    table.update({"v": "-1"}, "id IN (1, 101, 998)")
    source = pa.table({"id": [2, 102, 997]})
    table.merge(source, "t.id = s.id").when_matched_update({"v": "-2"}).execute()
    left = {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}
    assert left == {
        id: -1 if id in (1, 101, 998) else -2 if id in (2, 102, 997) else id / 2
        for id in range(1000)
        if id not in (0, 99, 100, 555, 999)
    }
    assert isinstance(table.store, LocalStore)
