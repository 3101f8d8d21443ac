"""The examples of docs/spark.md, run one after another."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lake_core import Lake

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.date32())])


@pytest.mark.extended
def test_the_examples_run(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    for number in (1, 2):
        with lake.session() as s:
            rows = pa.table([[number], [date(2024, 1, number)]], schema=SCHEMA)
            s.create_delta("tables/orders", SCHEMA, exist_ok=True).append(rows)
    lake.create_tag("v1")
    session = lake.open_session()
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 8
    names: dict[str, Any] = {"date": date}
    for number, block in enumerate(blocks):
        if number == 2:  # from here on a session is at hand
            names |= {"spark": spark, "location": str(tmp_path / "lake"), "session": session}
        exec(compile(block, f"{PAGE.name}, block {number + 1}", "exec"), names)
    assert (names["written"].chunks, names["written"].cells) == (1, 48)
    assert sorted(row.t2m for row in names["warm"].collect()) == [21.0, 22.0, 23.0, 24.0, 25.0, 26.0]
    assert [names[name].count() for name in ("orders", "before", "narrow")] == [2, 0, 2]
    assert sorted(names["events"].dtypes) == [
        ("level", "string"),
        ("request", "struct<status:int>"),
        ("ts", "timestamp"),
    ]
    assert [row.request.status for row in names["requests"].collect()] == [500]
    assert names["collected"].keys == ()
    assert names["problems"] == []
    assert names["exported"].copied > 0
    assert names["shared"].shared
    assert names["cluster"].master == "spark://host:7077"
    assert set(names["metadata"]) == {"dagster/column_lineage", "lake/column_lineage"}
    lake.get_session(session.id).publish()
    assert sorted(lake.delta("tables/orders").to_arrow()["id"].to_pylist()) == [1, 2, 7]
