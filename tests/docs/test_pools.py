"""The page of pools: its examples run one after another, and do what it says."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lake_core import Lake
from lake_core.pool import PoolLake
from tests.docs.blocks import run_blocks


def test_the_examples_do_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Lake.create("lake")
    PoolLake.create("lake/events/old").create_pool("old", key="ts").load([{"ts": 1}])
    names = run_blocks("pools.md")
    lake = names["lake"]
    assert [[record["ts"] for record in names[name]] for name in ("now", "before")] == [[1, 2, 3], [1, 3]]
    assert names["text"] == '{ts:2,level:"info",user:{id:5}}\n{ts:3,level:"warn",code:7}\n'
    assert names["table"].column_names == ["ts", "level", "user", "code"]
    assert len(names["shapes"]) == 2
    assert names["warnings"].to_pylist() == [{"ts": 3, "code": 7}]
    assert "main has added or removed records" in names["reason"]
    assert (names["changed"].rows_added, list(names["changed"].sample_added)) == (1, [{"ts": 9, "level": "debug"}])
    assert {path: record.format for path, record in lake.at().datasets().items()} == {
        "events/old": "pool",
        "events/raw": "pool",
        "tables/events": "delta",
    }
    assert len(pq.read_table("events.parquet")) == len(lake.delta("tables/events").to_arrow()) == 3
    assert PoolLake.open("lake/events/raw").pool("raw").scan().to_zson() == lake.pool("events/raw").scan().to_zson()
    assert names["merged"] == [2, 1]
