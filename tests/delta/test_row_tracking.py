"""Row tracking: a row keeps its id wherever it moves, and says which version changed it last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lake_core.delta import DeltaTable
from lake_core.delta.errors import ConcurrentModification, InvalidProperty, MalformedAction, SchemaMismatch
from lake_core.delta.log_segment import commit_key
from lake_core.delta.row_tracking import ROW_COMMIT_VERSION, ROW_ID, high_water_mark
from lake_core.store import MemoryStore, ObjectStore
from tests.delta.tables import SCHEMA, rows
from tests.examples import examples

TRACKED = {"delta.enableRowTracking": "true"}
VECTORS = TRACKED | {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}


def create(store: ObjectStore | Path | None = None, properties: dict[str, str] = TRACKED, **more: Any) -> DeltaTable:
    return DeltaTable.create(MemoryStore() if store is None else store, SCHEMA, properties=properties, **more)


def tracked(table: DeltaTable) -> dict[int, tuple[int, int]]:
    """The id and the version of each row, by its key. No id is there twice, or above the highest one given."""
    found = table.to_arrow(columns=["id", ROW_ID, ROW_COMMIT_VERSION]).to_pylist()
    ids = [row[ROW_ID] for row in found]
    assert len(set(ids)) == len(ids)
    assert max(ids, default=-1) <= high_water_mark(table.snapshot.domains)
    return {row["id"]: (row[ROW_ID], row[ROW_COMMIT_VERSION]) for row in found}


def ids_of(table: DeltaTable) -> dict[int, int]:
    return {key: id for key, (id, _) in tracked(table).items()}


def actions(table: DeltaTable, kind: str, version: int | None = None) -> list[dict[str, Any]]:
    data = bytes(table.store.get(commit_key(table.version if version is None else version)))
    lines = [json.loads(line) for line in data.splitlines() if line]
    return [line[kind] for line in lines if kind in line]


# --- A model: which rows an operation changes, and that all others stay who they are ---

KEY = st.integers(0, 30)
STEP = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4)),
    st.tuples(st.just("delete"), KEY),
    st.tuples(st.just("update"), KEY),
    st.tuples(st.just("merge"), KEY),
    st.tuples(st.just("overwrite"), KEY),
    st.tuples(st.sampled_from(["optimize", "zorder", "checkpoint", "reopen", "add column"]), st.just(0)),
)


@settings(max_examples=examples(60), deadline=None)
@given(st.booleans(), st.booleans(), st.lists(STEP, min_size=1, max_size=8))
def test_rows_keep_their_ids_in_any_life(vectors: bool, partitioned: bool, steps: list[tuple[str, int]]) -> None:
    table = create(properties=VECTORS if vectors else TRACKED, partition_by=["p"] if partitioned else [])
    table.append(rows(0, 10))
    table.append(rows(10, 20))
    expected, next_key, added = tracked(table), 100, 0
    for step, number in steps:
        before = table.version
        changed: set[int] = set()
        gone: set[int] = set()
        new: set[int] = set()
        match step:
            case "append":
                new = set(range(next_key, next_key + number))
                table.append(rows(next_key, next_key + number))
            case "delete":
                gone = {key for key in expected if key % 7 == number % 7}
                table.delete(f"id % 7 = {number % 7}")
            case "update":
                changed = {key for key in expected if key >= number and key < number + 5}
                table.update({"v": "v + 1", "p": "'px'"}, f"id >= {number} AND id < {number + 5}")
            case "merge":
                source = pa.table({"id": [number, next_key], "p": ["m", "m"], "v": [0.0, 0.0]}, schema=SCHEMA)
                changed, new = {number} & expected.keys(), {next_key} | ({number} - expected.keys())
                gone = {key for key in expected if key == 13 and number != 13}
                merge = table.merge(source, "t.id = s.id").with_schema_evolution().when_matched_update("*")
                merge = merge.when_not_matched_insert("*")
                merge.when_not_matched_by_source_delete("t.id = 13").execute()
            case "overwrite":
                gone = {key for key in expected if key in (number, number + 1)}
                new = {number}
                table.overwrite(rows(number, number + 1), where=f"id IN ({number}, {number + 1})")
            case "optimize":
                table.optimize()
            case "zorder":
                table.optimize(zorder_by=["v"])
            case "checkpoint":
                table.checkpoint()
            case "reopen":
                table = DeltaTable.open(table.store)
            case "add column":
                added += 1
                table.add_columns(pa.schema([pa.field(f"c{added}", pa.int32())]))
        next_key += 10
        found = tracked(table)
        stay = expected.keys() - changed - gone - new
        assert {key: found[key] for key in stay} == {key: expected[key] for key in stay}, step
        assert {key: found[key][0] for key in changed} == {key: expected[key][0] for key in changed}, step
        assert {found[key][1] for key in changed | new} <= {before + 1}, step
        assert not {found[key][0] for key in new} & {id for id, _ in expected.values()}, step
        assert found.keys() == stay | changed | new
        expected = found


# --- What the log and the files say ---


def test_a_commit_takes_a_range_of_ids() -> None:
    table = create()
    table.append(rows(0, 3))
    table.append(rows(3, 5))
    (add,) = actions(table, "add")
    assert (add["baseRowId"], add["defaultRowCommitVersion"]) == (3, 2)
    (domain,) = actions(table, "domainMetadata")
    assert json.loads(domain["configuration"]) == {"rowIdHighWaterMark": 4, "domainName": "delta.rowTracking"}
    assert actions(table, "commitInfo")[0]["tags"] == {"delta.rowTracking.preserved": "true"}


def test_a_copied_row_has_its_id_and_version_and_a_changed_one_its_id_alone(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.append(rows(0, 2))
    table.update({"v": "9"}, "id = 1")
    (add,) = actions(table, "add")
    file = pq.read_table(tmp_path / add["path"])
    assert file.column_names[:3] == ["id", "p", "v"]
    assert [name[:8] for name in file.column_names[3:]] == ["_row-id-", "_row-com"]
    assert sorted(zip(*(file.columns[number].to_pylist() for number in (0, 3, 4)), strict=True), key=str) == [
        (0, 0, 1),
        (1, 1, None),
    ]


def test_a_remove_names_the_ids_of_its_file() -> None:
    table = create()
    table.append(rows(0, 3))
    table.append(rows(3, 6))
    table.delete("id = 4")
    (remove,) = actions(table, "remove")
    assert (remove["baseRowId"], remove["defaultRowCommitVersion"]) == (3, 2)


def test_a_vector_changes_no_ids() -> None:
    table = create(properties=VECTORS)
    table.append(rows(0, 3))
    table.delete("id = 1")
    (add,) = actions(table, "add")
    assert (add["baseRowId"], add["defaultRowCommitVersion"]) == (0, 1)
    assert not actions(table, "domainMetadata")
    assert ids_of(table) == {0: 0, 2: 2}


def test_a_restore_brings_back_ids_and_gives_none_twice() -> None:
    table = create()
    table.append(rows(0, 3))
    before = tracked(table)
    table.update({"v": "1"}, "id = 1")
    table.append(rows(3, 6))
    table.restore(1)
    assert tracked(table) == before
    table.append(rows(6, 7))
    assert ids_of(table)[6] >= 9


def test_readers_ask_for_ids_by_name() -> None:
    table = create()
    table.append(rows(0, 3))
    assert table.schema.names == ["id", "p", "v"]
    assert table.to_arrow().column_names == ["id", "p", "v"]
    assert table.to_arrow(columns=[ROW_ID], where="id > 0").to_pydict() == {ROW_ID: [1, 2]}
    streamed = table.to_batches(columns=["v", ROW_COMMIT_VERSION], where="p = 'p1'").read_all()
    assert streamed.to_pydict() == {"v": [0.5], ROW_COMMIT_VERSION: [1]}


def test_ids_of_a_table_without_them_are_refused() -> None:
    table = create(properties={})
    table.append(rows(0, 3))
    with pytest.raises(SchemaMismatch, match="enableRowTracking"):
        table.to_arrow(columns=[ROW_ID])


# --- Enabled later, suspended ---


@pytest.mark.parametrize("properties", [{}, {"delta.enableDeletionVectors": "true"}], ids=["plain", "vectors"])
def test_rows_that_were_there_get_ids_when_they_are_enabled(properties: dict[str, str]) -> None:
    table = create(properties=properties)
    table.append(rows(0, 3))
    table.append(rows(3, 6))
    table.delete("id = 1")
    table.set_properties(TRACKED)
    before = tracked(table)
    assert before.keys() == {0, 2, 3, 4, 5}
    assert {version for _, version in before.values()} == {table.version}
    table.update({"v": "1"}, "id = 4")
    assert ids_of(table) == {key: id for key, (id, _) in before.items()}


def test_suspended_tracking_gives_no_ids() -> None:
    table = create()
    table.append(rows(0, 3))
    table.set_properties({"delta.enableRowTracking": "false", "delta.rowTrackingSuspended": "true"})
    table.append(rows(3, 4))
    (add,) = actions(table, "add")
    assert "baseRowId" not in add
    with pytest.raises(InvalidProperty, match="rowTrackingSuspended"):
        table.set_properties({"delta.enableRowTracking": "true"})
    table.set_properties({"delta.enableRowTracking": "true", "delta.rowTrackingSuspended": "false"})
    assert len(tracked(table)) == 4


def test_a_file_whose_rows_nobody_counted_cannot_get_ids() -> None:
    store = MemoryStore()
    table = create(store, {})
    table.append(rows(0, 3))
    lines = [json.loads(line) for line in bytes(store.get(commit_key(1))).splitlines()]
    for line in lines:
        line.get("add", {}).pop("stats", None)
    store.put(commit_key(1), "\n".join(map(json.dumps, lines)).encode())
    with pytest.raises(MalformedAction, match="number of rows"):
        DeltaTable.open(store).set_properties(TRACKED)


def test_what_the_table_sets_itself_cannot_be_set() -> None:
    with pytest.raises(InvalidProperty, match="set by the table itself"):
        create().set_properties({"delta.rowTracking.materializedRowIdColumnName": "id"})


# --- At the same time ---


@pytest.mark.parametrize("properties", [TRACKED, VECTORS], ids=["plain", "vectors"])
def test_writers_at_the_same_time_take_ids_of_their_own(properties: dict[str, str]) -> None:
    table = create(properties=properties)
    table.append(rows(0, 10))
    late, later = DeltaTable.open(table.store), DeltaTable.open(table.store)
    table.append(rows(10, 15))
    late.append(rows(15, 20))
    before = ids_of(late)
    assert len(before) == 20
    try:
        later.update({"v": "-1"}, "id = 3")
    except ConcurrentModification:
        later.refresh().update({"v": "-1"}, "id = 3")
    assert ids_of(later) == before
    assert tracked(later)[3][1] == later.version


def test_ids_of_late_commits_follow_those_of_the_first() -> None:
    table = create()
    late = DeltaTable.open(table.store)
    table.append(rows(0, 3))
    late.append(rows(3, 6))
    assert tracked(late) == {0: (0, 1), 1: (1, 1), 2: (2, 1), 3: (3, 2), 4: (4, 2), 5: (5, 2)}
