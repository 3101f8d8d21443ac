"""Checkpoints that Spark's executors write: the same as in one process, though workers are killed in the middle."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.delta.errors import CorruptCommit
from lake_core.delta.log_segment import checkpoint_key, commit_key, list_log
from lake_core.spark import checkpoint_delta, executor, read_delta, runner
from tests.delta.tables import ids, inline_vector
from tests.spark.hostile import DeadlyStore, without_the_package

SCHEMA = pa.schema(
    [
        ("p", pa.date32()),
        ("q", pa.string()),
        ("id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("n", pa.decimal128(20, 4)),
        ("st", pa.struct([("s", pa.string()), ("b", pa.binary())])),
    ]
)
PROPERTIES = {
    "delta.checkpointInterval": "1000",
    "delta.checkpoint.writeStatsAsStruct": "true",
    "delta.enableDeletionVectors": "true",
}


@pytest.fixture(params=["with the package", "without the package"])
def package(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run with executors that have the package, and with executors that lack it."""
    if request.param == "without the package":
        monkeypatch.setattr(runner, "batch_function", without_the_package(executor.batch_function))
    return str(request.param)


def rows(start: int, stop: int) -> pa.Table:
    numbers = list(range(start, stop))
    columns = {
        "p": pa.array([number % 3 for number in numbers], pa.int32()).cast(pa.date32()),
        "q": ["a b", "", "ü/%"][start // 10 % 3 : start // 10 % 3 + 1] * len(numbers),
        "id": numbers,
        "at": pa.array([number * 10**6 for number in numbers], pa.timestamp("us", "UTC")),
        "n": pa.array([Decimal(number) for number in numbers], pa.decimal128(20, 4)),
        "st": [{"s": "x" * 50, "b": bytes([number % 256])} for number in numbers],
    }
    return pa.table(columns, schema=SCHEMA)


def create(folder: Path) -> DeltaTable:
    """Return a table of many files with tombstones, transactions, tags, deletion vectors and an old checkpoint."""
    table = DeltaTable.create(folder, SCHEMA, partition_by=["p", "q"], properties=PROPERTIES)
    for number in range(6):
        table.append(rows(number * 10, number * 10 + 10), txn=("app", number))
    table.checkpoint()
    table.delete("id < 13")
    table.append(rows(100, 110), txn=("app", 6))
    files = table.snapshot.files(["path", "size", "partitionValues", "modificationTime", "stats"])
    file = next(row for row in files.to_pylist() if '"numRecords":3' in row["stats"])
    values = dict(file["partitionValues"])
    add = {**file, "partitionValues": values, "dataChange": True, "tags": {"k": "v"}}
    actions: list[dict[str, Any]] = [
        {"remove": {"path": file["path"], "deletionTimestamp": 2**50, "dataChange": True}},
        {"add": add | {"deletionVector": inline_vector([0])}},
    ]
    body = "".join(json.dumps(action) + "\n" for action in actions)
    (folder / commit_key(table.version + 1)).write_text(body)
    return DeltaTable.open(folder)


def bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: bare(item) for key, item in value.items() if item is not None}
    return value


def actions(folder: Path, keys: Iterable[str]) -> Counter[str]:
    lines = (line for key in keys for line in pq.read_table(folder / key).to_pylist())
    return Counter(json.dumps(bare(line), sort_keys=True, default=str) for line in lines)


def test_killed_workers_leave_the_checkpoint_that_one_process_writes(
    spark: SparkSession, tmp_path: Path, package: str
) -> None:
    folder, flag = tmp_path / "table", tmp_path / "killed"
    expected = ids(create(folder).to_arrow())
    shutil.copytree(folder, tmp_path / "here")
    here = DeltaTable.open(tmp_path / "here")
    here.checkpoint()
    checkpoint_delta(spark, DeltaTable.open(DeadlyStore(folder, flag, after=1)), part_rows=8)
    assert Path(f"{flag}-get").exists()
    assert Path(f"{flag}-put").exists()
    newest = list_log(DeltaTable.open(folder).store).checkpoints[-1]
    assert newest.version == here.version
    assert len(newest.keys) >= 4
    assert actions(folder, newest.keys) == actions(tmp_path / "here", [checkpoint_key(here.version)])
    for path in (folder / "_delta_log").glob("*.json"):
        path.unlink()
    assert ids(DeltaTable.open(folder).to_arrow()) == expected
    assert ids(read_delta(spark, str(folder)).toArrow()) == expected
    assert deltalake.DeltaTable(folder).version() == here.version
    counted = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(folder))
    assert sorted(pa.table(counted.execute("select id from t").read_all())["id"].to_pylist()) == expected


def test_a_job_that_fails_leaves_the_table_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path)
    before = list_log(table.store).checkpoints
    damaged = tmp_path / commit_key(table.version)
    body = damaged.read_bytes()
    damaged.write_bytes(body[:-20])
    with pytest.raises(CorruptCommit):
        checkpoint_delta(spark, table, part_rows=8)
    assert list_log(table.store).checkpoints == before
    damaged.write_bytes(body)
    checkpoint_delta(spark, str(tmp_path), part_rows=8)
    assert list_log(table.store).checkpoints[-1].version == table.version


def test_tables_of_a_lake(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    with lake.session() as s:
        s.create_delta("t", SCHEMA, partition_by=["p"])
    lake.create_branch("dev")
    for branch in ("main", "dev"):
        for number in range(6):
            with lake.session(branch) as s:
                s.delta("t").append(rows(number * 10, number * 10 + (10 if branch == "main" else 5)))
        checkpoint_delta(spark, lake.delta("t", ref=branch), part_rows=5)
    assert len(list(tmp_path.glob("t/_delta_log/*.checkpoint.*"))) == 4
    assert len(list(tmp_path.glob("_lake/derived/*/*/_delta_log/*.checkpoint.*"))) == 4
    fresh = Lake.open(tmp_path)
    assert [len(fresh.delta("t", ref=ref).to_arrow()) for ref in ("main", "dev")] == [60, 30]
    assert deltalake.DeltaTable(tmp_path / "t").version() == 6
