"""OPTIMIZE: the same rows in fewer or better sorted files, and what that is worth to readers."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import InvalidPredicate, InvalidProperty, SchemaMismatch
from lake_core.delta.log_segment import commit_key
from lake_core.delta.scan import plan_scan
from lake_core.errors import LakeError
from lake_core.expression import InvalidExpression
from lake_core.store import MemoryStore
from tests.delta.tables import SCHEMA, held, ids, inline_vector, oracle, paths, rows


def vectors(table: DeltaTable) -> int:
    column = table.snapshot.files(["path", "deletionVector"])["deletionVector"]
    return int(len(column) - column.null_count)


def actions(table: DeltaTable) -> list[dict[str, Any]]:
    return [json.loads(line) for line in table.store.get(commit_key(table.version)).splitlines()]


def test_small_files_of_a_partition_become_one(store: MemoryStore) -> None:
    table = DeltaTable.create(store, SCHEMA, partition_by=["p"])
    for number in range(4):
        table.append(rows(number * 6, number * 6 + 6))
    table.append(pa.table({"id": [99], "p": ["alone"]}))
    before, lonely = held(table), paths(table)
    result = table.optimize()
    counted = {key: value for key, value in result.metrics.items() if key.startswith("num") and "Bytes" not in key}
    assert counted == {"numRemovedFiles": 12, "numAddedFiles": 3}
    assert result.metrics["minFileSize"] <= result.metrics["maxFileSize"]
    assert held(table) == before
    assert len(paths(table) & lonely) == 1
    assert all(
        body["dataChange"] is False
        for line in actions(table)
        for kind, body in line.items()
        if kind in ("add", "remove")
    )
    entry = table.history(1)[0]
    assert (entry["operation"], entry["operationParameters"]) == ("OPTIMIZE", {"predicate": "[]", "zOrderBy": "[]"})
    assert {key: str(value) for key, value in result.metrics.items()} == entry["operationMetrics"]
    assert table.optimize().version == table.version == result.version  # there is nothing left to improve
    assert [row["num_records"] for row in table.files().to_pylist() if row["path"] not in lonely] == [8, 8, 8]


def test_bins_come_up_to_the_target_and_not_far_above(store: MemoryStore) -> None:
    generator = np.random.default_rng(0)
    table = DeltaTable.create(store, pa.schema([("id", pa.int64()), ("b", pa.binary())]))
    sizes = [1, 20, 3, 7, 50, 2, 9, 30, 4, 80]
    for number, size in enumerate(sizes):
        table.append(pa.table({"id": [number], "b": [generator.bytes(size * 1000)]}))
    before = held(table)
    large = {row["path"] for row in table.files().to_pylist() if row["size"] >= 40_000}
    result = table.optimize(target_size=40_000)
    after = table.files().to_pylist()
    assert large <= {row["path"] for row in after}
    assert len(large) == 2
    small = [row["size"] for row in after if row["path"] not in large]
    assert all(size < 50_000 for size in small)
    assert result.metrics["numAddedFiles"] < result.metrics["numRemovedFiles"]
    assert len(small) == 8 - result.metrics["numRemovedFiles"] + result.metrics["numAddedFiles"] <= 4
    assert held(table) == before
    table.set_properties({"delta.targetFileSize": "1mb"})
    assert table.optimize().metrics["numAddedFiles"] == 1
    assert table.files().num_rows == 1
    assert held(table) == before


@pytest.mark.parametrize("text", ["0", "-1", "1xb", "mb", "", "1.5mb", "1 tb", "٣", "²"])
def test_target_sizes_that_make_no_sense(store: MemoryStore, text: str) -> None:
    table = DeltaTable.create(store, SCHEMA, properties={"delta.targetFileSize": text})
    with pytest.raises(InvalidProperty, match="targetFileSize"):
        table.optimize()
    for wrong in (0, -1, True, "1mb", 1.5):
        with pytest.raises(InvalidProperty, match="target_size"):
            table.optimize(target_size=wrong)  # type: ignore[arg-type]


def test_only_chosen_partitions(store: MemoryStore) -> None:
    table = DeltaTable.create(store, SCHEMA, partition_by=["p"])
    for number in range(2):
        table.append(
            pa.concat_tables([rows(number * 3, number * 3 + 3), pa.table({"id": [90 + number], "p": [""], "v": [0.0]})])
        )
    before = paths(table)
    assert table.optimize("P = 'p1' OR p IS NULL").metrics["numRemovedFiles"] == 4
    assert len(before & paths(table)) == 4
    assert table.optimize("p > 'p1'", zorder_by=["v"]).metrics["numRemovedFiles"] == 2
    assert table.optimize("p = 'none'").version == table.version
    for where, error in (
        ("id = 1", InvalidPredicate),
        ("p = 'p0' AND v > 1", InvalidPredicate),
        ("zz = 1", InvalidExpression),
        ("", InvalidExpression),
    ):
        with pytest.raises(error):
            table.optimize(where)
    assert ids(table.to_arrow()) == [0, 1, 2, 3, 4, 5, 90, 91]


def test_z_order_lets_filters_on_any_of_its_columns_skip_files(tmp_path: Path) -> None:
    size, files = 1 << 14, 16
    generator = np.random.default_rng(7)
    data = pa.table(
        {
            "x": generator.permutation(size),
            "y": generator.permutation(size),
            "s": [f"{n:05d}" for n in generator.permutation(size)],
        }
    )
    table = DeltaTable.create(tmp_path, data.schema)
    for start in range(0, size, size // files):
        table.append(data.slice(start, size // files))

    def opened(where: str) -> int:
        assert table.to_arrow(where=where).num_rows > 0
        return len(plan_scan(table.snapshot, None, where).files)

    filters = [
        "x BETWEEN 1000 AND 1100",
        "y BETWEEN 9000 AND 9100",
        "s BETWEEN '07000' AND '07100'",
        "x < 4096 AND y < 4096",
    ]
    assert [opened(where) for where in filters] == [16, 16, 16, 16]
    target = sum(table.files()["size"].to_pylist()) // files
    result = table.optimize(zorder_by=["X", "y"], target_size=target)
    assert 14 <= result.metrics["numAddedFiles"] <= 18
    assert table.to_arrow().num_rows == size
    by_x, by_y, by_s, both = (opened(where) for where in filters)
    assert by_x <= 6
    assert by_y <= 6
    assert by_s >= 14
    assert both <= 3
    table.optimize(zorder_by=["s"], target_size=target)
    assert [opened(where) for where in filters[:3]][2] <= 2 < opened(filters[0])
    assert table.to_arrow().sort_by("x").equals(data.sort_by("x"))
    builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(tmp_path)))
    totals = pa.table(builder.execute("select count(*) n, sum(x) x, sum(y) y from t").read_all()).to_pylist()
    assert totals == [{"n": size, "x": size * (size - 1) // 2, "y": size * (size - 1) // 2}]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.bool_(), [True, False, None]),
        (pa.decimal128(12, 10), [Decimal("-3.5"), Decimal("1e-10"), None]),
        (pa.binary(), [b"a", b"\xff", None]),
        (pa.string(), ["b", "", None]),
        (pa.float64(), [float("nan"), -0.0, float("-inf"), None]),
        (pa.timestamp("us", "UTC"), [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC), None]),
        (pa.date32(), [dt.date(9999, 12, 31), dt.date(1, 1, 1)]),
        (pa.int8(), [None, None]),
    ],
)
def test_z_order_by_every_type(store: MemoryStore, kind: pa.DataType, values: list[Any]) -> None:
    nested = pa.struct([("k", kind)])
    table = DeltaTable.create(store, pa.schema([("id", pa.int64()), ("k", kind), ("s", nested)]))
    for number, value in enumerate(values):
        table.append(
            pa.table({"id": [number, number], "k": [value] * 2, "s": [{"k": value}, None]}, schema=table.schema)
        )
    before = held(table)
    for columns in (["k"], ["s.k", "id"], ["id", "k", "s.k"]):
        assert table.optimize(zorder_by=columns).metrics["numAddedFiles"] == 1
        assert held(table) == before


def test_what_cannot_be_sorted_by(store: MemoryStore) -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("l", pa.list_(pa.int64())),
            ("m", pa.map_(pa.string(), pa.int64())),
            ("s", pa.struct([("x", pa.int64())])),
        ]
    )
    table = DeltaTable.create(store, pa.schema([*schema, ("p", pa.string())]), partition_by=["p"])
    table.append(pa.table({"id": [1], "l": [[1]], "m": [[("a", 1)]], "s": [{"x": 1}]}, schema=schema))
    for name in ("l", "m", "s", "p", "zz", "s.zz", "l.element", 1):
        with pytest.raises(SchemaMismatch):
            table.optimize(zorder_by=[name])  # type: ignore[list-item]
    with pytest.raises(SchemaMismatch, match="list of columns"):
        table.optimize(zorder_by="id")
    with pytest.raises(LakeError):
        table.optimize(zorder_by=["id", "ID", ""])
    assert table.refresh().version == 1


def test_deleted_rows_are_purged(store: MemoryStore) -> None:
    """A large file is rewritten where many of its rows are deleted, and kept where few are."""
    table = DeltaTable.create(store, SCHEMA, properties={"delta.enableDeletionVectors": "true"})
    table.append(rows(0, 100))
    table.append(rows(100, 200))
    files = {row["path"]: row for row in table.snapshot.files(["path", "partitionValues", "size", "stats"]).to_pylist()}
    lines = []
    for (path, row), gone in zip(
        sorted(files.items(), key=lambda item: item[1]["stats"]), ([3], list(range(0, 100, 2))), strict=True
    ):
        lines.append({"remove": {"path": path, "deletionTimestamp": 0, "dataChange": True}})
        body = {
            **row,
            "partitionValues": {},
            "modificationTime": 0,
            "dataChange": True,
            "deletionVector": inline_vector(gone),
        }
        lines.append({"add": body})
    store.put(commit_key(3), "\n".join(map(json.dumps, lines)).encode())
    before = held(table.refresh())
    assert table.to_arrow().num_rows == 149
    result = table.optimize(target_size=1)
    assert (result.metrics["numRemovedFiles"], result.metrics["numAddedFiles"]) == (1, 1)
    assert held(table) == before
    assert sorted(table.files()["num_records"].to_pylist()) == [50, 100]
    result = table.optimize()
    assert (result.metrics["numRemovedFiles"], result.metrics["numAddedFiles"]) == (2, 1)
    assert held(table) == before
    assert table.files()["num_records"].to_pylist() == [149]
    assert vectors(table) == 0


CASES = [
    "kerneljava-basic-dv-no-checkpoint",
    "krs-table-with-dv-small",
    "golden-dv-with-columnmapping",
    "rs-table_with_deletion_logs",
]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("sort", [False, True])
def test_tables_of_others_with_deletion_vectors(cases: Path, tmp_path: Path, name: str, sort: bool) -> None:
    shutil.copytree(cases / "delta" / name, tmp_path / "t")
    table = DeltaTable.open(tmp_path / "t")
    before, version = held(table), table.version
    assert vectors(table) > 0
    first = next(child.name for child in table.schema if child.name not in table.metadata.partition_columns)
    result = table.optimize(zorder_by=[first]) if sort else table.optimize()
    assert held(table) == before
    assert result.metrics.get("numAddedFiles", 0) <= result.metrics.get("numRemovedFiles", 0)
    little = name == "rs-table_with_deletion_logs" and not sort  # 2 rows of 100 in one file
    assert vectors(table) == little
    assert sum(table.files()["num_records"].to_pylist()) == sum(before.values()) + 2 * little
    assert oracle(tmp_path / "t") == before
    assert held(DeltaTable.open(tmp_path / "t", version=version)) == before


def test_of_nothing(store: MemoryStore) -> None:
    table = DeltaTable.create(store, SCHEMA)
    assert table.optimize().version == table.optimize(zorder_by=["id"]).version == 0
    table.append(rows(0, 1))
    assert table.optimize().version == 1
    assert table.optimize(zorder_by=["id"]).version == 2


def test_appends_go_on_meanwhile(store: MemoryStore) -> None:
    table = DeltaTable.create(store, SCHEMA)
    table.append(rows(0, 1))
    table.append(rows(1, 2))
    stale = DeltaTable.open(store)
    table.append(rows(2, 3))
    assert stale.optimize().metrics["numRemovedFiles"] == 2
    assert ids(stale.to_arrow()) == [0, 1, 2]
