"""Pools as columns: what Parquet files and Delta tables hold of them, and what comes back."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lake_core.delta import DeltaTable
from lake_core.pool import Pool, PoolLake
from lake_core.pool.errors import InvalidValue
from lake_core.pool.export import to_columns, to_delta_columns
from lake_core.pool.zson.reader import parse_values
from lake_core.store import MemoryStore

RECORDS = """
{k:1,t:2026-01-01T00:00:00.000001Z,d:2s,ip:1.2.3.4,net:10.0.0.0/8,b:0x01ff,u:3(uint64),f:1.5(float16),n:null,set:|["a"]|,map:|{"a":1(uint8)}|,type:<int64>,
 err:error("x"),r:{d:2s,u:1(uint8)},named:80(port=uint16)}
{k:2}
"""
MIXED = """
{k:1,v:7,u:1((int64,string)),list:[1,"x"],empty:{}}
{k:2,v:"a",u:"a"((int64,string)),list:[],empty:null({})}
"""


def pool_of(rows: object) -> Pool:
    pool = PoolLake.create(MemoryStore()).create_pool("raw", key="k", order="asc")
    pool.load(rows)
    return pool


def texts(pool: Pool) -> str:
    return pool.scan().to_zson()


@pytest.fixture
def pool() -> Pool:
    return pool_of(list(parse_values(RECORDS)))


def fused(pool: Pool) -> Pool:
    """Return a pool of the same records with all fields, as a table has them."""
    return pool_of(pool.scan().to_table())


def test_parquet_brings_every_type_back(pool: Pool, tmp_path: Path) -> None:
    pq.write_table(to_columns(pool.scan()).read_all(), tmp_path / "rows.parquet")
    assert texts(pool_of(pq.read_table(tmp_path / "rows.parquet"))) == texts(fused(pool))


def test_a_delta_table_brings_every_type_back(pool: Pool, tmp_path: Path) -> None:
    rows = to_delta_columns(pool.scan())
    table = DeltaTable.create(tmp_path, rows.schema)
    table.append(rows)
    assert texts(pool_of(table.to_arrow())) == texts(fused(pool))


def test_a_filter_and_columns_hold_for_what_is_exported() -> None:
    pool = pool_of([{"k": 1, "a": 1, "b": 2}, {"k": 2, "b": "x"}, {"k": 3, "a": 5, "b": 3}])
    assert to_columns(pool.scan(where="k < 3", columns=["b", "k"])).read_all().to_pylist() == [
        {"b": "2", "k": 1},
        {"b": '"x"', "k": 2},
    ]


def test_what_has_several_types_becomes_json_text() -> None:
    rows = to_columns(pool_of(list(parse_values(MIXED))).scan()).read_all().drop_columns(["k"])
    assert rows.to_pylist() == [
        {"v": "7", "u": "1", "list": ["1", '"x"'], "empty": "{}"},
        {"v": '"a"', "u": '"a"', "list": [], "empty": None},
    ]


def test_values_that_are_no_records_are_one_column() -> None:
    rows = to_columns(pool_of(list(parse_values('1 "a" {k:1}'))).scan()).read_all()
    assert sorted(rows["this"].to_pylist()) == ['"a"', "1", '{"k":1}']


def test_times_that_a_delta_table_cannot_hold_are_refused() -> None:
    pool = pool_of(list(parse_values("{k:1,t:2026-01-01T00:00:00.000000001Z}")))
    with pytest.raises(InvalidValue, match="export to Parquet"):
        to_delta_columns(pool.scan()).read_all()
