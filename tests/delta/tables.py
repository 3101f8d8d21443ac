"""Small tables that the tests of this folder share."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("p", pa.string()), pa.field("v", pa.float64())])


def rows(start: int, stop: int, *, parts: int = 3) -> pa.Table:
    """Rows with the ids [start, stop), spread over the partitions `p0`, `p1`, …"""
    ids = range(start, stop)
    return pa.table({"id": list(ids), "p": [f"p{i % parts}" for i in ids], "v": [i / 2 for i in ids]}, schema=SCHEMA)


def ids(table: pa.Table) -> list[int]:
    return sorted(table["id"].to_pylist())


def instant(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)
