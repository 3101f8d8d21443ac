"""A lake that is opened to read: nothing is written to it."""

from __future__ import annotations

from pathlib import Path

from lake_core.pool import PoolLake


def test_reading_writes_nothing(tmp_path: Path) -> None:
    writer = PoolLake.create(tmp_path).create_pool("events", key="k", order="asc")
    for number in range(12):
        writer.load([{"k": number}])
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    pool = PoolLake.open(tmp_path, read_only=True).pool("events")
    assert (len(list(pool.scan().records())), len(list(pool.log())), len(pool.objects())) == (12, 12, 12)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
