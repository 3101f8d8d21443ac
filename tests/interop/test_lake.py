"""delta-spark on the checked-out main: it reads what the lake published.

It refuses to write a fenced table, and the lake adopts its writes to others.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lake_core import Lake
from tests.interop.test_delta_spark import DeltaSpark, DeltaSparkError, delta_spark, pytestmark  # noqa: F401
from tests.lake.lakes import SCHEMA, create_tables, ids, rows


def _ids(delta_spark: DeltaSpark, url: str) -> list[int]:  # noqa: F811
    return sorted(int(row["id"]) for row in delta_spark.sql(f"SELECT id FROM delta.`{url}`"))


def test_main_as_checked_out(delta_spark: DeltaSpark, tmp_path: Path) -> None:  # noqa: F811
    root = str(tmp_path / "lake")
    lake = Lake.create(root)
    create_tables(lake, "t/orders", partition_by=["p"])
    for id in range(20, 32):
        with lake.session() as s:
            s.delta("t/orders").append(rows([id]))
            s.delta("t/orders").delete(f"id = {id - 20}")
    lake.create_branch("dev")
    with lake.session("dev") as s:
        s.delta("t/orders").append(rows([99]))
    lake.merge("dev")
    lake.revert("main", parent=1)
    url = f"{root}/t/orders"
    assert _ids(delta_spark, url) == ids(lake.delta("t/orders")) == list(range(20, 32))
    for write in (
        f"INSERT INTO delta.`{url}` VALUES (1, 'p1', 0)",
        f"DELETE FROM delta.`{url}`",
        f"OPTIMIZE delta.`{url}`",
    ):
        with pytest.raises(DeltaSparkError, match="lakeManaged"):
            delta_spark.sql(write)
    assert _ids(delta_spark, url) == list(range(20, 32))


def test_what_delta_spark_writes_is_adopted(delta_spark: DeltaSpark, tmp_path: Path) -> None:  # noqa: F811
    root = str(tmp_path / "lake")
    lake = Lake.create(root)
    url = f"{root}/t/events"
    delta_spark.sql(f"CREATE TABLE delta.`{url}` (id BIGINT, p STRING, v BIGINT) USING delta")
    delta_spark.sql(f"INSERT INTO delta.`{url}` VALUES (1, 'p1', 0)")
    with lake.session() as s:
        s.import_delta("t/events")
    for id in range(2, 6):
        delta_spark.sql(f"INSERT INTO delta.`{url}` VALUES ({id}, 'p1', 0)")
        with lake.session() as s:
            s.delta("t/events").append(rows([100 + id]))
    expected = [1, 2, 3, 4, 5, 102, 103, 104, 105]
    assert _ids(delta_spark, url) == ids(lake.delta("t/events")) == expected
    assert lake.maintenance.verify() == []
    assert lake.delta("t/events").schema.names == SCHEMA.names
