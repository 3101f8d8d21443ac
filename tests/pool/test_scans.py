"""Scans the pools of the lakes that `zed` wrote: their order, time travel, key ranges, Arrow streams and damage."""

from __future__ import annotations

import hashlib
import re
import threading
from typing import Any

import pyarrow as pa
import pytest

from lake_core.pool.errors import DamagedLake
from lake_core.pool.lake import PoolLake
from lake_core.pool.pool import Pool
from lake_core.store import MemoryStore, ObjectBytes
from tests.pool.cases import damaged_lakes, expected_branches, lake_path

_RANGE = re.compile(r"k >= (\d+) and k < (\d+)|k >= (\d+) and k <= (\d+)|k < (\d+)|k >= (\d+)")


_TIED_NULLS = ("not-records-v1.18", "K")
"""A pool with nulls of two types: they have the same bytes, so that nothing says which one comes first."""
_OTHER_RANGES = ("missing-null-keys-v1.6", "mixed-keys-v1.18", "mixed-keys-v1.6")
"""Lakes whose filters are no ranges of whole numbers: to `zed` nulls of type int64 are below every number."""


def pool_of(name: str, pool: dict[str, Any]) -> Pool:
    return PoolLake.open(lake_path(name)).pool(pool["name"])


def digest(zson: str) -> str:
    return hashlib.sha256(zson.encode()).hexdigest()


def test_values_come_in_the_order_of_zed() -> None:
    for name, pool, branch in expected_branches():
        if "zson_sha256" in (branch.get("records") or {}) and (name, pool["name"]) != _TIED_NULLS:
            zson = pool_of(name, pool).scan(branch["name"]).to_zson()
            assert digest(zson) == branch["records"]["zson_sha256"], f"{name} {pool['name']} {branch['name']}"


def test_earlier_commits_hold_what_they_held() -> None:
    for name, pool, branch in expected_branches():
        for earlier in branch.get("at", ()):
            if "zson_sha256" in earlier and (name, pool["name"]) != _TIED_NULLS:
                zson = pool_of(name, pool).scan(commit=earlier["commit"]).to_zson()
                assert digest(zson) == earlier["zson_sha256"], f"{name} {pool['name']} {earlier['commit']}"


def test_nulls_that_are_tied_are_all_there() -> None:
    for name, pool, branch in expected_branches():
        if (name, pool["name"]) == _TIED_NULLS:
            lines = pool_of(name, pool).scan(branch["name"]).to_zson().splitlines()
            assert sorted(lines) == sorted(branch["records"]["zson"])


def bounds(where: str) -> dict[str, int] | None:
    matched = _RANGE.fullmatch(where)
    if matched is None:
        return None
    start, stop, first, last, below, above = (None if each is None else int(each) for each in matched.groups())
    stop = stop if stop is not None else last + 1 if last is not None else below
    start = start if start is not None else first if first is not None else above
    return {name: number for name, number in (("start", start), ("stop", stop)) if number is not None}


def test_key_ranges_hold_what_zed_finds() -> None:
    ranges = 0
    for name, pool, branch in expected_branches():
        for filtered in branch.get("where", ()):
            key_range = bounds(filtered["where"])
            if key_range is not None and name not in _OTHER_RANGES:
                ranges += 1
                zson = pool_of(name, pool).scan(branch["name"], **key_range).to_zson()
                assert digest(zson) == filtered["zson_sha256"], f"{name} {filtered['where']}"
    assert ranges


def test_an_arrow_stream_has_the_rows_of_the_pool() -> None:
    for name, pool, branch in expected_branches():
        if name in ("frames-v1.18", "github-v1.6", "compact-v1.18", "babble-v1.6"):
            scan = pool_of(name, pool).scan(branch["name"])
            assert pa.table(scan).num_rows == branch["records"]["count"], name
            assert sum(shape.count for shape in scan.shapes()) == branch["records"]["count"], name


def test_a_column_of_an_arrow_stream_is_that_of_the_records() -> None:
    scan = PoolLake.open(lake_path("frames-v1.18")).pool("desc").scan()
    assert scan.to_table()["k"].to_pylist() == [record["k"] for record in scan.records()]


def test_every_pool_of_the_cases_fuses_into_one_schema() -> None:
    for name, pool, branch in expected_branches():
        if name.startswith(("all-types", "mixed-keys", "not-records", "missing-null")):
            scan = pool_of(name, pool).scan(branch["name"])
            assert scan.to_table().num_rows == sum(1 for _ in scan.values()), f"{name} {pool['name']}"


def test_damaged_objects_are_named() -> None:
    for name, expected in damaged_lakes():
        if name in ("bad-missing-object-v1.18", "bad-truncated-object-v1.18"):
            scan = PoolLake.open(lake_path(name)).pool("P").scan()
            with pytest.raises(DamagedLake, match="data/"):
                scan.to_zson()
            with pytest.raises(DamagedLake, match="data/"):
                scan.to_table()
            assert "scan" in expected["fails"]


def test_a_missing_seek_index_costs_time_alone() -> None:
    for name, expected in damaged_lakes():
        if name == "bad-missing-seek-v1.18":
            count = sum(1 for _ in PoolLake.open(lake_path(name)).pool("P").scan(start=0, stop=1 << 40).values())
            assert count == expected["undamaged"]["pools"][0]["branches"][0]["records"]["count"]


@pytest.mark.parametrize("rows", [[], [{"k": 5, "v": "a"}], [None]], ids=["no values", "other values", "null alone"])
def test_columns_that_are_asked_for_are_there_where_no_values_are_in_range(rows: list[Any]) -> None:
    pool = PoolLake.create(MemoryStore()).create_pool("p", key="k", order="asc")
    pool.load(rows)
    scan = pool.scan(start=7 if rows != [None] else None, columns=["v", "k"])
    assert scan.to_table().to_pydict() == {"v": [None] * (rows == [None]), "k": [None] * (rows == [None])}


class SlowStore(MemoryStore):
    """A store that gives no answer before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.is_asked = threading.Event()

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        self.is_asked.set()
        self.may_answer.wait(10)
        return super()._get(key, start, end)


def test_a_scan_does_not_wait_for_the_store_of_another() -> None:
    store = SlowStore()
    scans = []
    for each in (store, MemoryStore()):
        pool = PoolLake.create(each).create_pool("p", key="k", order="asc")
        pool.load([{"k": 1}])
        scans.append(pool.scan())
    slow, fast = scans
    store.may_answer.clear()
    store.is_asked.clear()
    reader = threading.Thread(target=lambda: slow.type)
    reader.start()
    assert store.is_asked.wait(10)
    types = []
    other = threading.Thread(target=lambda: types.append(fast.type))
    other.start()
    other.join(5)
    store.may_answer.set()
    reader.join()
    assert len(types) == 1
