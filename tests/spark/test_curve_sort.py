"""Z-order of large partitions in Spark's executors: every row once, in files that filters skip as well as otherwise."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lake_core.delta import DeltaTable
from lake_core.delta.log_segment import commit_key
from lake_core.delta.scan import plan_scan
from lake_core.spark import curve_sort, executor, optimize_delta, runner
from tests.delta.tables import inline_vector
from tests.spark.hostile import DeadlyStore, without_the_package

SCHEMA = pa.schema(
    [
        ("p", pa.string()),
        ("id", pa.int64()),
        ("x", pa.float64()),
        ("at", pa.timestamp("us")),
        ("n", pa.decimal128(38, 10)),
        ("b", pa.binary()),
        ("st", pa.struct([("s", pa.string()), ("a", pa.list_(pa.date32()))])),
        ("m", pa.map_(pa.string(), pa.timestamp("us", "UTC"))),
    ]
)
PROPERTIES = {
    "delta.columnMapping.mode": "name",
    "delta.enableDeletionVectors": "true",
    "delta.feature.timestampNtz": "supported",
}
CURVE = ["x", "st.s"]


def rows(partition: str, start: int, count: int) -> pa.Table:
    random = np.random.default_rng(start)
    ids = range(start, start + count)
    spring = dt.datetime(2024, 3, 10, 2, 30)  # an hour that daylight saving skips
    columns = [
        [partition] * count,
        list(ids),
        [None if i % 17 == 0 else float("nan") if i % 19 == 0 else float(random.integers(1000)) for i in ids],
        [spring + dt.timedelta(seconds=i) for i in ids],
        [Decimal(i) / 8 for i in ids],
        [bytes([i % 256, 0]) for i in ids],
        [None if i % 23 == 0 else {"s": f"k{random.integers(300):03}", "a": [dt.date(1500, 1, 1), None]} for i in ids],
        [[("k", dt.datetime(2024, 1, 1, tzinfo=dt.UTC))] if i % 2 else [] for i in ids],
    ]
    arrays = [pa.array(column, child.type, from_pandas=False) for column, child in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def counted(table: DeltaTable) -> Counter[str]:
    return Counter(map(str, table.to_arrow().to_pylist()))


def files_read(table: DeltaTable) -> int:
    """Return how many files some filters on columns of the curve read."""
    wheres = [f"p = 'large' AND x = {number}" for number in range(0, 1000, 100)]
    wheres += [f"p = 'large' AND st.s = 'k{number:03}'" for number in range(0, 300, 30)]
    return sum(len(plan_scan(table.snapshot, None, where).files) for where in wheres)


def delete_by_vectors(folder: Path, table: DeltaTable) -> None:
    """Delete every seventh row of each file, as other writers do it."""
    lines: list[dict[str, Any]] = []
    for row in table.snapshot.files(["path", "partitionValues", "size", "stats"]).to_pylist():
        vector = inline_vector(list(range(3, json.loads(row["stats"])["numRecords"], 7)))
        values = {"partitionValues": dict(row["partitionValues"]), "modificationTime": 0, "dataChange": True}
        lines.append({"remove": {"path": row["path"], "deletionTimestamp": 0, "dataChange": True}})
        lines.append({"add": {**row, **values, "deletionVector": vector}})
    (folder / commit_key(table.version + 1)).write_text("\n".join(map(json.dumps, lines)))


def test_a_large_partition_is_sorted_by_many_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (runner, curve_sort):
        monkeypatch.setattr(module, "batch_function", without_the_package(executor.batch_function))
    monkeypatch.setattr(curve_sort, "_HELD_BYTES", 30_000)  # less than the rows of a file
    monkeypatch.setattr(curve_sort, "_PASSED_BYTES", 10_000)
    folder, flag = tmp_path / "there", tmp_path / "killed"
    table = DeltaTable.create(folder, SCHEMA, partition_by=["p"], properties=PROPERTIES)
    for number in range(4):
        table.append(rows("large", number * 400, 400))
    table.append(rows("small", 9000, 10))
    delete_by_vectors(folder, table)
    table = DeltaTable.open(folder)
    assert table.snapshot.has_deletion_vectors()
    shutil.copytree(folder, tmp_path / "here")
    before = counted(table)
    size = sum(table.files(["size"])["size"].to_pylist())
    local = DeltaTable.open(tmp_path / "here")
    expected = local.optimize(target_size=size // 16, zorder_by=CURVE)
    distributed = DeltaTable.open(DeadlyStore(folder, flag, after=1))
    result = optimize_delta(spark, distributed, target_size=size // 16, zorder_by=CURVE)
    assert Path(f"{flag}-get").exists()
    assert Path(f"{flag}-put").exists()
    assert counted(DeltaTable.open(folder)) == before
    for name in ("numAddedFiles", "numRemovedFiles"):
        assert result.metrics[name] == expected.metrics[name] > 4
    counts = [count for count in distributed.files()["num_records"].to_pylist() if count > 10]
    assert max(counts) < 2 * sum(counts) / len(counts), "files are about equally large"
    assert files_read(distributed) <= files_read(local) * 1.2
