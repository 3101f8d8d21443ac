"""Clustered tables: OPTIMIZE sorts them by their own columns along the Hilbert curve, and only what is new."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta import clustering as clustering_module
from lake_core.delta.clustering import clustering_columns
from lake_core.delta.curve import Curve
from lake_core.delta.errors import ConcurrentModification, ConcurrentTransaction, InvalidProperty, SchemaMismatch
from lake_core.delta.log_segment import commit_key
from lake_core.delta.scan import plan_scan
from lake_core.lake import Lake
from lake_core.lake.errors import Conflict
from lake_core.store import MemoryStore
from tests.delta.tables import held, paths

POINTS = pa.schema([("x", pa.int64()), ("y", pa.int64()), ("text", pa.string())])


def points(start: int, stop: int) -> pa.Table:
    numbers = np.random.default_rng(start).permutation(np.arange(start, stop))
    return pa.table({"x": numbers % 64, "y": numbers // 64, "text": [str(n) for n in numbers]}, schema=POINTS)


def cubes(table: DeltaTable) -> dict[str, str | None]:
    """The cube of each file."""
    files = table.snapshot.files(["path", "clusteringProvider", "tags"]).to_pylist()
    assert all((row["clusteringProvider"] == "liquid") == bool(row["tags"]) for row in files)
    return {row["path"]: dict(row["tags"] or ()).get("ZCUBE_ID") for row in files}


def added(table: DeltaTable) -> list[dict[str, Any]]:
    lines = (json.loads(line) for line in table.store.get(commit_key(table.version)).splitlines())
    return [line["add"] for line in lines if "add" in line]


@pytest.mark.parametrize(("columns", "bits"), [(1, 6), (2, 4), (3, 3), (4, 2)])
def test_neighbours_on_the_curve_differ_by_one_step_in_one_column(columns: int, bits: int) -> None:
    side = 1 << bits
    grid = np.array(list(itertools.product(range(side), repeat=columns)), dtype=np.uint64)
    width = (1 << min(16, 64 // columns)) - 1
    # Ranks are scaled to the full width: with its highest as the bound, numbers stay as they are.
    position = Curve((("a",),) * columns, is_hilbert=True).number(list(grid.T), [width] * columns)
    ordered = grid[np.argsort(position)].astype(np.int64)
    assert len(np.unique(position)) == len(grid)
    assert (np.abs(np.diff(ordered, axis=0)).sum(axis=1) == 1).all()


def test_rows_are_sorted_so_that_filters_on_each_column_skip_files(store: MemoryStore) -> None:
    table = DeltaTable.create(store, POINTS, cluster_by=["x", "y"])
    for start in range(0, 4096, 512):
        table.append(points(start, start + 512))
    before = held(table)
    table.optimize(target_size=2000)
    assert held(table) == before
    total = len(paths(table))
    assert total >= 8
    for column in ("x", "y"):
        assert len(plan_scan(table.snapshot, None, f"{column} = 5").files) <= total // 2
    assert {"delta.clustering"} == {domain.domain for domain in table.snapshot.domains}
    parameters = table.history(1)[0]["operationParameters"]
    assert parameters == {"predicate": "[]", "zOrderBy": "[]", "clusterBy": '["x","y"]', "isFull": "false"}


def test_a_second_run_sorts_only_when_something_is_new(store: MemoryStore) -> None:
    table = DeltaTable.create(store, POINTS, cluster_by=["x"])
    table.append(points(0, 64))
    first = table.optimize()
    assert table.optimize().version == first.version
    table.append(points(64, 128))
    assert table.optimize().version == first.version + 2
    assert len(set(cubes(table).values())) == 1


def test_a_cube_of_its_full_size_is_left_as_it_is(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    table = DeltaTable.create(store, POINTS, cluster_by=["x"])
    table.append(points(0, 256))
    table.optimize()
    sorted_files = paths(table)
    monkeypatch.setattr(clustering_module, "CUBE_BYTES", 1)
    table.append(points(256, 300))
    table.optimize()
    assert sorted_files < paths(table)
    table.optimize(full=True)
    assert not sorted_files & paths(table)
    assert len(set(cubes(table).values())) == 1


def test_other_columns_leave_sorted_files_until_all_are_sorted(store: MemoryStore) -> None:
    table = DeltaTable.create(store, POINTS, cluster_by=["x"])
    table.append(points(0, 64))
    table.optimize()
    by_x = paths(table)
    table.cluster_by(["y", "text"])
    table.append(points(64, 128))
    table.optimize()
    assert by_x < paths(table)
    table.optimize(full=True)
    assert {dict(add["tags"])["ZCUBE_ZORDER_BY"] for add in added(table)} == {'["y","text"]'}
    before = table.version
    assert table.cluster_by(["y", "text"]).version == before
    table.cluster_by([])
    assert clustering_columns(table.snapshot.domains) == []
    assert table.detail().clustering_columns == ()
    with pytest.raises(SchemaMismatch, match="call cluster_by first"):
        table.optimize(full=True)


def test_names_with_dots_and_fields_of_structs_are_columns_to_cluster_by(store: MemoryStore) -> None:
    kind = pa.struct([("z", pa.int32()), ("o.o", pa.string())])
    schema = pa.schema([("a.b", pa.int64()), ("n", kind)])
    table = DeltaTable.create(
        store, schema, cluster_by=["`a.b`", "n.z", "n.`o.o`"], properties={"delta.columnMapping.mode": "name"}
    )
    values = [{"a.b": n % 3, "n": None if n % 5 == 0 else {"z": n, "o.o": str(n)}} for n in range(20)]
    table.append(pa.Table.from_pylist(values, schema=schema))
    before = held(table)
    table.optimize()
    assert held(table) == before
    assert dict(added(table)[0]["tags"])["ZCUBE_ZORDER_BY"] == '["`a.b`","n.z","n.`o.o`"]'
    table.rename_column("`a.b`", "c")
    assert table.detail().clustering_columns == ("c", "n.z", "n.o.o")


def test_tags_stay_when_rows_are_deleted_by_vectors_and_in_checkpoints(store: MemoryStore) -> None:
    table = DeltaTable.create(store, POINTS, cluster_by=["x"], properties={"delta.enableDeletionVectors": "true"})
    table.append(points(0, 64))
    table.optimize()
    before = cubes(table)
    table.delete("x = 3")
    assert cubes(table) == before
    table.checkpoint()
    assert cubes(DeltaTable.open(store)) == before
    table.optimize(purge=True)
    assert set(cubes(table).values()) == set(before.values())
    assert not paths(table) & set(before)


def test_a_file_with_many_deleted_rows_is_sorted_anew(store: MemoryStore) -> None:
    table = DeltaTable.create(store, POINTS, cluster_by=["x"], properties={"delta.enableDeletionVectors": "true"})
    table.append(points(0, 64))
    table.optimize()
    table.delete("x < 30")
    table.optimize()
    assert table.snapshot.files(["deletionVector"])["deletionVector"].null_count == 1


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["nothing"], "no column 'nothing'"),
        (["n"], "whose values have no order"),
        (["a", "b", "c", "d", "e"], "at most four"),
        (["a", "A"], "each once"),
        ("a", r"\['a'\]"),
    ],
)
def test_what_a_table_cannot_be_clustered_by(store: MemoryStore, names: Any, message: str) -> None:
    schema = pa.schema([*((name, pa.int32()) for name in "abcde"), ("n", pa.list_(pa.int32()))])
    with pytest.raises(SchemaMismatch, match=message):
        DeltaTable.create(store, schema, cluster_by=names)
    assert not DeltaTable.exists(store)


def test_clustering_and_partitions_exclude_each_other(store: MemoryStore) -> None:
    with pytest.raises(SchemaMismatch, match="either partitions or"):
        DeltaTable.create(store, POINTS, cluster_by=["x"], partition_by=["y"])
    table = DeltaTable.create(store, POINTS, partition_by=["y"])
    with pytest.raises(SchemaMismatch, match="either partitions or"):
        table.cluster_by(["x"])


def test_a_column_without_statistics_is_refused(store: MemoryStore) -> None:
    properties = {"delta.dataSkippingStatsColumns": "y"}
    with pytest.raises(InvalidProperty, match="would get no statistics"):
        DeltaTable.create(store, POINTS, cluster_by=["x"], properties=properties)


def test_zorder_of_a_clustered_table_is_refused(store: MemoryStore) -> None:
    table = DeltaTable.create(store, POINTS, cluster_by=["x"])
    with pytest.raises(SchemaMismatch, match="leave out zorder_by"):
        table.optimize(zorder_by=["y"])


def test_an_existing_table_is_opened_only_with_the_same_clustering(store: MemoryStore) -> None:
    DeltaTable.create(store, POINTS, cluster_by=["x"])
    assert DeltaTable.create(store, POINTS, cluster_by=["x"], exist_ok=True).version == 0
    with pytest.raises(SchemaMismatch, match=r"clustered by \['x'\], not by \[\]"):
        DeltaTable.create(store, POINTS, exist_ok=True)


def test_sorted_files_keep_their_cube_when_they_are_published_and_merged(tmp_path: Path) -> None:
    lake = Lake.create(str(tmp_path / "lake"))
    with lake.session("main") as session:
        session.create_delta("points", POINTS, cluster_by=["x", "y"]).append(points(0, 256))
    lake.create_branch("dev")
    with lake.session("dev") as session:
        session.delta("points").optimize()
    with lake.session("main") as session:
        session.delta("points").append(points(256, 300))
    lake.merge("dev")
    merged = lake.delta("points")
    assert len([cube for cube in cubes(merged).values() if cube]) == 1
    assert len(cubes(merged)) == 2
    with lake.session("main") as session:
        session.delta("points").optimize()
    assert None not in cubes(lake.delta("points")).values()
    assert sorted(lake.delta("points").to_arrow()["text"].to_pylist(), key=int) == [str(n) for n in range(300)]


def test_what_passes_and_what_conflicts_with_clustering(store: MemoryStore) -> None:
    table = DeltaTable.create(store, POINTS, cluster_by=["x"])
    table.append(points(0, 64))
    append, optimize, delete, alter, alter_too = (DeltaTable.open(store) for _ in range(5))
    alter.cluster_by(["y"])
    append.append(points(64, 70))
    optimize.optimize()
    with pytest.raises(ConcurrentTransaction):
        alter_too.cluster_by(["text"])
    with pytest.raises(ConcurrentModification):
        delete.delete("x = 1")
    final = DeltaTable.open(store)
    assert final.to_arrow().num_rows == 70
    assert final.detail().clustering_columns == ("y",)


def test_branches_change_the_clustering_and_the_rows(tmp_path: Path) -> None:
    lake = Lake.create(str(tmp_path / "lake"))
    with lake.session("main") as session:
        session.create_delta("points", POINTS, cluster_by=["x"]).append(points(0, 64))
    lake.create_branch("dev")
    lake.create_branch("other")
    with lake.session("dev") as session:
        session.delta("points").cluster_by(["y", "x"])
    with lake.session("main") as session:
        session.delta("points").append(points(64, 128))
    lake.merge("dev")
    assert lake.delta("points").detail().clustering_columns == ("y", "x")
    assert lake.delta("points").to_arrow().num_rows == 128
    with lake.session("other") as session:
        session.delta("points").cluster_by(["text"])
    with pytest.raises(Conflict):
        lake.merge("other")
    assert lake.delta("points").detail().clustering_columns == ("y", "x")
