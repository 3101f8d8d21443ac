"""The README's first pipeline, and the examples on lakes without Dagster, against a store that speaks S3's protocol."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.lake.errors import StaleEpoch
from tests.docs.blocks import blocks as page_blocks
from tests.docs.blocks import run_blocks
from tests.docs.typed import Terminal, blocks, write_files
from tests.store.s3_server import S3Server

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.date32())])
ROWS = pa.table([[1], [date(2024, 1, 2)]], schema=SCHEMA)


@pytest.fixture(scope="module")
def options(s3_endpoint: S3Server) -> dict[str, object]:
    s3_endpoint.create_bucket("bucket")
    return s3_endpoint.storage_options()


def test_the_page_of_lakes(options: dict[str, object]) -> None:
    before = Lake.create("s3://bucket/lake", storage_options=options)
    with before.session() as session:
        session.create_delta("tables/totals", SCHEMA).append(ROWS)
        session.create_delta("tables/orders", SCHEMA, partition_by=["day"])
    names = run_blocks("lake.md", {"options": options, "schema": SCHEMA, "rows": ROWS, "totals": ROWS.slice(1)})
    lake = names["lake"]
    assert set(names["result"].versions) == {"tables/orders"}
    assert lake.delta("tables/orders").to_arrow()["id"].to_pylist() == [1, 1]
    assert len(lake.delta("tables/totals").to_arrow()) == 0
    tagged = lake.at("v1")
    assert tagged.exists("reports/today.json")
    assert not tagged.exists("reports/tried.json"), "the merge was reverted"


COLUMNS = ["id", "day", "name", "amount", "country", "customer"]


def orders(first: int = 1) -> pa.Table:
    values: list[list[Any]] = [
        [first, first + 1],
        [date(2024, 1, 1)] * 2,
        ["a", "b"],
        [-1.0, 2.0],
        ["DE", "FR"],
        ["x", "y"],
    ]
    return pa.table(dict(zip(COLUMNS, values, strict=True)))


def test_the_first_pipeline_runs_as_it_stands(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    terminal = Terminal(folder)
    assert write_files("../README.md", folder) == ["pipeline.py"]
    *_, logged = [
        terminal.run(command) for command in blocks("../README.md", "console", "A first pipeline")[0].splitlines()
    ]
    assert "tables/orders@0, tables/revenue@0" in logged
    revenue = Lake.open(folder / "lake").delta("tables/revenue").to_arrow()
    assert dict(zip(*revenue.to_pydict().values(), strict=True)) == {"ann": 16.5, "bob": 4.0}


def test_the_first_screen_is_short() -> None:
    (pipeline,) = blocks("../README.md", "python")
    assert len([line for line in pipeline.splitlines() if line.strip()]) <= 15
    assert "..." not in pipeline


def test_without_dagster(
    options: dict[str, object], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader's own are the names that the page does not define."""
    monkeypatch.chdir(tmp_path)
    bucket = f"s3://bucket/{tmp_path.name}"
    with Lake.create(bucket, storage_options=options).session() as session:
        session.create_delta("tables/orders", orders().schema)
        session.create_delta("tables/totals", orders().schema)
    names: dict[str, Any] = {"schema": orders().schema, "rows": orders(), "report": b"{}"}
    names["changes"] = (
        orders(2).set_column(3, "amount", pa.array([5.0, 6.0])).append_column("gone", pa.array([True, False]))
    )
    day = orders().replace_schema_metadata().set_column(1, "day", pa.array([date(2024, 1, 2)] * 2))
    names["frame"] = spark.createDataFrame(day.to_pandas())
    for block in page_blocks("how-to/without-dagster.md"):
        if "table.delete(" in block.code:
            names["table"] = _older(tmp_path / "older")
        code = block.code.replace("/data/", f"{tmp_path}/").replace("s3://bucket/lake", bucket)
        code = code.replace(
            f'create("{bucket}", exist_ok=True)', f'create("{bucket}", exist_ok=True, storage_options={options!r})'
        )
        exec(compile(code, "without-dagster.md", "exec", dont_inherit=True), names)
    assert len(DeltaTable.open(f"{tmp_path}/orders").to_arrow()) == 4
    assert "dev" in names["lake"].list_branches()
    assert len(names["lake"].delta("tables/totals").to_arrow()) == 0


def _tasks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The functions that the page gives to another scheduler's tasks."""
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    for block in [block.code for block in page_blocks("how-to/without-dagster.md")][:2]:
        exec(compile(block, "without-dagster.md", "exec", dont_inherit=True), names)
    return names


def test_a_task_that_is_tried_again_loads_its_day_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = _tasks(tmp_path, monkeypatch)["load"]
    for day in (20240101, 20240101, 20240102):
        load(day, orders(), b"{}")
    assert len(Lake.open("lake").delta("tables/orders").to_arrow()) == 4


def test_tasks_of_another_scheduler_publish_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = _tasks(tmp_path, monkeypatch)
    lake = Lake.create("lake")
    run = "scheduled__2026-01-01T00:00:00+00:00"
    session, first = tasks["begin"]("shop", run)
    tasks["task"](session, first, "orders", 1, "try-1", orders())
    assert tasks["begin"]("shop", run) == (session, first + 1)
    with pytest.raises(StaleEpoch):
        tasks["task"](session, first, "orders", 1, "try-1", orders())
    tasks["task"](session, first + 1, "orders", 2, "try-2", orders())
    tasks["task"](session, first + 1, "totals", 1, "try-3", orders())
    tasks["task"](session, first + 1, "removed", 1, "try-4", orders())
    assert lake.list_datasets() == []
    for _ in range(2):
        tasks["publish"](session, first + 1, ["orders", "totals"])
    assert sorted(record.path for record in lake.list_datasets()) == ["tables/orders", "tables/totals"]
    assert [len(lake.delta(f"tables/{name}").to_arrow()) for name in ("orders", "totals")] == [2, 2]
    assert tasks["begin"]("shop", run) == (f"{session}.2", 1)


def _older(folder: Path) -> DeltaTable:
    """A table with a past: its commits are of January 2024."""
    properties = {"delta.enableChangeDataFeed": "true"}
    table = DeltaTable.create(folder, orders().schema, partition_by=["day"], properties=properties)
    for number in range(17):
        table.append(orders(2 * number))
    began = datetime(2024, 1, 1, tzinfo=UTC).timestamp()
    for commit in sorted((folder / "_delta_log").glob("*.json")):
        os.utime(commit, (began, began + int(commit.stem)))
    return DeltaTable.open(folder)
