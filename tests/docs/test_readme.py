"""The examples of the README and of docs/lake.md, against a store that speaks S3's protocol."""

from __future__ import annotations

import os
import re
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_orch import LakeResource
from tests.conftest import ROOT
from tests.docs.blocks import run_blocks
from tests.store.s3_server import S3Server

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.date32())])
ROWS = pa.table([[1], [date(2024, 1, 2)]], schema=SCHEMA)


@pytest.fixture(scope="module")
def options() -> Any:
    with S3Server() as server:
        server.create_bucket("bucket")
        yield server.storage_options()


def test_the_page_of_lakes(options: dict[str, object]) -> None:
    before = Lake.create("s3://bucket/lake", storage_options=options)
    with before.session() as session:
        session.create_delta("tables/totals", SCHEMA).append(ROWS)
        session.create_delta("tables/orders", SCHEMA, partition_by=["day"])
    names = run_blocks("lake.md", {"options": options, "schema": SCHEMA, "rows": ROWS, "totals": ROWS.slice(1)})
    lake = names["lake"]
    assert set(names["result"].versions) == {"tables/orders"} and lake.delta("tables/orders").to_arrow()["id"].to_pylist() == [1, 1]
    assert len(lake.delta("tables/totals").to_arrow()) == 0
    tagged = lake.at("v1")
    assert tagged.exists("reports/today.json") and not tagged.exists("reports/tried.json"), "the merge was reverted"


README = (ROOT / "README.md").read_text()
COLUMNS = ["id", "day", "name", "amount", "country", "customer"]


def orders(first: int = 1) -> pa.Table:
    values: list[list[Any]] = [[first, first + 1], [date(2024, 1, 1)] * 2, ["a", "b"], [-1.0, 2.0], ["DE", "FR"], ["x", "y"]]
    return pa.table(dict(zip(COLUMNS, values, strict=True)))


def test_the_readme(options: dict[str, object], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dots stand for what is the reader's own, and so do the names that it does not define."""
    monkeypatch.setenv("KEY", str(options["key"]))
    monkeypatch.setenv("SECRET", str(options["secret"]))
    bucket = f"s3://bucket/{tmp_path.name}"
    names: dict[str, Any] = {"schema": orders().schema, "rows": orders(), "report": b"{}", "pages": lambda: [orders(), orders(3)]}
    names["changes"] = orders(2).set_column(3, "amount", pa.array([5.0, 6.0])).append_column("gone", pa.array([True, False]))
    found = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert len(found) == 6
    for number, block in enumerate(found):
        if number == 1:
            names["own"] = {"lake": names["lake"], "spark": names["spark"], "io_manager": names["DeltaIOManager"](lake=names["lake"])}
        if number == 3:
            day = orders().replace_schema_metadata().set_column(1, "day", pa.array([date(2024, 1, 2)] * 2))
            names["frame"] = spark.createDataFrame(day.to_pandas())
        if number == 4:
            names["table"] = _older(tmp_path / "older")
        if number == 5:
            with Lake.create(bucket, storage_options=options).session() as session:
                session.create_delta("tables/orders", orders().schema)
                session.create_delta("tables/totals", orders().schema)
        code = block.replace("/data/", f"{tmp_path}/").replace("s3://bucket/lake", bucket).replace("resources={...}", "resources=own")
        code = code.replace(f'create("{bucket}", exist_ok=True)', f'create("{bucket}", exist_ok=True, storage_options={options!r})')
        exec(compile(code, f"README.md, block {number + 1}", "exec", dont_inherit=True), names)
        if number == 1:
            dg.Definitions.validate_loadable(names["defs"])
        if number == 2:
            plain = LakeResource(root=str(tmp_path / "plain"))
            assert dg.materialize([names["events"]], resources={"lake": plain}).success
            assert len(DeltaTable.open(f"{tmp_path}/plain/tables/events").to_arrow()) == 4
    assert len(DeltaTable.open(f"{tmp_path}/orders").to_arrow()) == 4
    assert "dev" in names["lake"].branches() and len(names["lake"].delta("tables/totals").to_arrow()) == 0


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
