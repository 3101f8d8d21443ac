"""Bounds of ranges of keys: any object that a load takes is taken for the same key."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lake_core.pool import Pool, PoolLake
from lake_core.pool.errors import InvalidValue
from lake_core.pool.key_range import KeyRange, key_value
from lake_core.pool.order import compare_values
from lake_core.pool.read_set import has_read, range_read
from lake_core.pool.rows import value_of
from lake_core.store import MemoryStore
from tests.examples import examples


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


class Word(enum.StrEnum):
    A = "a"
    Z = "z"


KEYS: dict[str, list[Any]] = {
    "addresses": [ip_address("8.26.197.27"), ip_address("10.0.0.2"), ip_address("216.1.1.1"), ip_address("::1")],
    "networks": [ip_network("10.0.0.0/8"), ip_network("10.0.0.0/16"), ip_network("192.168.0.0/16")],
    "int64 of NumPy": [np.int64(-5), np.int64(7), np.int64(1 << 40)],
    "small integers of NumPy": [np.int8(-5), np.uint8(7), np.uint64(1 << 63)],
    "floats of NumPy": [np.float32(-1.5), np.float64(0.1), np.float16(2)],
    "texts of NumPy": [np.str_("a"), np.str_("b"), np.str_("ü")],
    "times of NumPy": [np.datetime64("2024-01-01"), np.datetime64("2024-02"), np.datetime64("2025-01-01T01", "h")],
    "durations of NumPy": [np.timedelta64(5, "s"), np.timedelta64(1, "D"), np.timedelta64(2, "W")],
    "dates": [dt.date(1969, 1, 1), dt.date(2024, 1, 1), dt.date(2024, 1, 2)],
    "naive times": [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 1), dt.datetime(2024, 1, 2)],
    "times": [dt.datetime(2024, 1, day, tzinfo=dt.timezone(dt.timedelta(hours=5))) for day in (1, 2, 3)],
    "times of pandas": [pd.Timestamp("2024-01-01"), pd.Timestamp("2024-01-01T00:00:00.000000001Z")],
    "durations of pandas": [pd.Timedelta(1, "ns"), pd.Timedelta("1s")],
    "durations": [dt.timedelta(seconds=-1), dt.timedelta(microseconds=1), dt.timedelta(days=1)],
    "bytes": [b"", b"a", bytearray(b"b"), memoryview(b"c")],
    "enums": [Level.LOW, Level.HIGH],
    "enums of texts": [Word.A, Word.Z],
    "booleans of NumPy": [np.bool_(False), np.bool_(True)],
    "arrays": [[1], [2], [3]],
}


def pool_of(keys: list[Any], order: Literal["asc", "desc"] = "asc") -> Pool:
    pool = PoolLake.create(MemoryStore()).create_pool("events", key="id.h", order=order)
    pool.load([{"id": {"h": key}, "number": number} for number, key in enumerate(keys)])
    return pool


def numbers(pool: Pool, **bounds: Any) -> list[int]:
    return sorted(record["number"] for record in pool.scan(**bounds).records())


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("order", ["asc", "desc"])
def test_a_range_between_objects_that_were_loaded(kind: str, order: Literal["asc", "desc"]) -> None:
    keys = KEYS[kind]
    pool = pool_of(keys, order)
    for start in range(len(keys)):
        for stop in range(start, len(keys)):
            assert numbers(pool, start=keys[start], stop=keys[stop]) == [*range(start, stop)]
        assert numbers(pool, start=keys[start]) == [*range(start, len(keys))]
        assert numbers(pool, stop=keys[start]) == [*range(start)]


@pytest.mark.parametrize("kind", KEYS)
def test_a_range_between_such_objects_is_replaced(kind: str) -> None:
    keys = KEYS[kind]
    pool = pool_of(keys)
    ranges = [KeyRange.of(keys[0], keys[-1])]
    pool.replace(pool.write_objects([{"id": {"h": keys[0]}, "number": 100}], ranges), ranges)
    assert numbers(pool) == [len(keys) - 1, 100]


@pytest.mark.parametrize("kind", KEYS)
def test_what_a_range_has_read_is_recorded(kind: str) -> None:
    keys = KEYS[kind]
    pool = pool_of(keys)
    read = [range_read(KeyRange.of(keys[-1], None))]
    assert has_read(read, pool.objects(), pool.config)
    below = [range_read(KeyRange.of(None, keys[0]))]
    assert not has_read(below, pool.objects(), pool.config)


objects = st.one_of(
    st.sampled_from([key for keys in KEYS.values() for key in keys]),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(),
    st.text(),
    st.binary(),
    st.booleans(),
    st.ip_addresses(),
    st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1)),
    st.dates(dt.date(1700, 1, 1), dt.date(2200, 1, 1)),
    st.timedeltas(dt.timedelta(-10_000), dt.timedelta(10_000)),
)


@given(st.lists(objects, min_size=1, max_size=8), objects, objects)
@settings(deadline=None, max_examples=examples(200))
def test_a_scan_has_the_keys_between_its_bounds(keys: list[Any], start: Any, stop: Any) -> None:
    bounds = KeyRange.of(start, stop)
    expected = [number for number, key in enumerate(keys) if bounds.holds(key_value(key))]
    assert numbers(pool_of(keys), start=start, stop=stop) == expected


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.sampled_from(["10.0.0.1", "::"]))
@settings(deadline=None, max_examples=examples(20))
def test_keys_that_do_not_compare_with_a_bound_are_left_out(keys: list[int], bound: str) -> None:
    pool = pool_of(keys)
    assert numbers(pool, stop=ip_address(bound)) == []
    assert numbers(pool, start=ip_address(bound)) == []


@given(objects)
@settings(deadline=None, max_examples=examples(200))
def test_a_bound_is_the_value_that_a_load_stores(key: Any) -> None:
    assert compare_values(key_value(key), value_of(key)) == 0


@pytest.mark.parametrize(
    "key",
    [
        None,
        pd.NaT,
        np.datetime64("NaT"),
        np.datetime64(2**60, "s"),
        np.timedelta64(5),
        decimal.Decimal("1.5"),
        object(),
        1 << 64,
        ip_interface("10.0.0.1/8"),
        dt.datetime(9999, 1, 1),
        dt.time(1),
    ],
)
def test_what_no_load_takes_is_no_bound(key: Any) -> None:
    pool = pool_of([1, 2])
    if key is not None:
        with pytest.raises(InvalidValue):
            pool.load([{"id": {"h": key}}])
    with pytest.raises(InvalidValue):
        key_value(key)
    assert numbers(pool) == [0, 1]
