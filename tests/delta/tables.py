"""Small tables that the tests of this folder share."""

from __future__ import annotations

import base64
import datetime as dt
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyroaring

from lake_core.delta import DeltaTable
from lake_core.delta.deletion_vector import _RFC1924, _Z85

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("p", pa.string()), pa.field("v", pa.float64())])


def rows(start: int, stop: int, *, parts: int = 3) -> pa.Table:
    """Rows with the ids [start, stop), spread over the partitions `p0`, `p1`, …"""
    ids = range(start, stop)
    return pa.table({"id": list(ids), "p": [f"p{i % parts}" for i in ids], "v": [i / 2 for i in ids]}, schema=SCHEMA)


def held(table: DeltaTable, where: str | None = None) -> Counter[str]:
    """Every row as text, how often it is there."""
    return Counter(map(str, table.to_arrow(where=where).to_pylist()))


def oracle(folder: Path) -> Counter[str]:
    """The same as another implementation reads it."""
    builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(folder)))
    return Counter(map(str, pa.table(builder.execute("select * from t").read_all()).to_pylist()))


def paths(table: DeltaTable) -> set[str]:
    return set(table.files(["path"])["path"].to_pylist())


def ids(table: pa.Table) -> list[int]:
    return sorted(table["id"].to_pylist())


def instant(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def inline_vector(gone: list[int]) -> dict[str, Any]:
    """The descriptor of a deletion vector that takes these rows out and holds them itself."""
    body = struct.pack("<i", 1681511377) + pyroaring.BitMap64(gone).serialize()
    text = base64.b85encode(body + bytes(-len(body) % 4)).decode().translate(str.maketrans(_RFC1924, _Z85))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(body), "cardinality": len(gone)}
