"""Scans with predicates and with some of the columns."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from lake_core.expression import InvalidExpression, matching, parse_predicate
from lake_core.pool import types
from lake_core.pool.data_object import seek_index_key
from lake_core.pool.errors import InvalidValue
from lake_core.pool.filter import implied_range
from lake_core.pool.key_range import KeyRange
from lake_core.pool.lake import PoolLake
from lake_core.pool.pool import Pool
from lake_core.pool.types import Type
from lake_core.pool.value import Value
from lake_core.pool.zson.type_text import format_type
from lake_core.store import MemoryStore
from lake_core.store.object_store import ObjectBytes


class CountingStore(MemoryStore):
    """A store that counts the bytes of data objects that are read."""

    read = 0

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        data = super()._get(key, start, end)
        self.read += len(data) if "/data/" in key else 0
        return data


def events(order: str = "asc", store: MemoryStore | None = None) -> Pool:
    """Return a pool of two loads with records of two types."""
    pool = PoolLake.create(store or MemoryStore()).create_pool("events", key="k", order=order, seek_stride=100)
    rng = random.Random(1)
    pool.load(
        [{"k": rng.randrange(50), "level": rng.choice(("info", "debug")), "n": {"x": number}} for number in range(40)]
    )
    pool.load([{"k": rng.randrange(50), "took": number / 4, "level": None} for number in range(40)])
    return pool


PREDICATES = [
    "k = 7",
    "k >= 10 and k < 20",
    "k > 10 and level = 'debug'",
    "k between 5 and 8 or level = 'info'",
    "took > 3",
    "level is null",
    "n.x >= 30",
    "k + 1 = 8",
    "upper(level) = 'INFO' and k <= 20",
    "30 > k",
    "true",
    "false",
    "k > 1000",
]


@pytest.mark.parametrize("where", PREDICATES)
@pytest.mark.parametrize("order", ["asc", "desc"])
def test_a_predicate_keeps_the_rows_that_it_keeps_of_the_table(where: str, order: str) -> None:
    pool = events(order)
    table = pool.scan().to_table()
    expected = matching(table, parse_predicate(where, table.schema)).select(["k", "level"]).to_pylist()
    scan = pool.scan(where=where, columns=["k", "level"])
    assert scan.to_table().to_pylist() == expected
    assert pa.table(pool.scan(where=where)).num_rows == len(expected)
    assert [{"k": record["k"], "level": record.get("level")} for record in pool.scan(where=where).records()] == expected
    assert sum(shape.count for shape in scan.shapes()) == len(expected)


def test_columns_come_in_the_order_in_which_they_are_named() -> None:
    pool = events()
    table = pool.scan().to_table()
    for columns in (["took", "k"], ["n"], ["level", "took", "k"]):
        scan = pool.scan(columns=columns)
        assert scan.to_table() == table.select(columns)
        assert scan.schema.names == columns
    assert next(pool.scan(columns=["k"]).records()).keys() == {"k"}


def test_fields_of_records_come_in_the_order_in_which_they_are_named() -> None:
    pool = PoolLake.create(MemoryStore()).create_pool("p", key="k", order="asc")
    pool.load([{"k": 1, "a": "x", "b": 2}, {"k": 2, "b": 3}])
    scan = pool.scan(columns=["b", "a", "k"])
    assert scan.to_zson() == '{b:2,a:"x",k:1}\n{b:3,k:2}\n'
    assert list(next(scan.records())) == ["b", "a", "k"]
    assert [format_type(shape.type) for shape in scan.shapes()] == ["{b:int64,a:string,k:int64}", "{b:int64,k:int64}"]


def test_columns_and_predicates_over_unknown_fields_are_refused() -> None:
    pool = events()
    with pytest.raises(InvalidValue, match="does not have the columns"):
        pool.scan(columns=["k", "other"]).to_table()
    with pytest.raises(InvalidValue):
        pool.scan(columns="k")
    with pytest.raises(InvalidValue):
        pool.scan(columns=[])
    with pytest.raises(InvalidExpression, match="other"):
        pool.scan(where="other = 1").to_table()
    with pytest.raises(InvalidExpression):
        pool.scan(where="k = = 1")


def test_values_that_are_no_records_have_no_columns() -> None:
    pool = PoolLake.create(MemoryStore()).create_pool("p", key="k", order="asc")
    pool.load([{"k": 1}, 7])
    with pytest.raises(InvalidValue, match="columns"):
        pool.scan(columns=["k"]).to_table()
    with pytest.raises(InvalidValue, match="columns"):
        pool.scan(where="k = 1 or k is null").to_table()
    assert pool.scan(where="k = 1").to_table().num_rows == 1


def test_an_empty_pool_has_no_rows_whatever_is_asked() -> None:
    pool = PoolLake.create(MemoryStore()).create_pool("p", key="k", order="asc")
    assert pool.scan(where="k = 1", columns=["k"]).to_table().num_rows == 0
    assert list(pool.scan(where="k = 1").records()) == []


def test_records_that_are_null_are_rows_of_nulls_among_columns() -> None:
    pool = PoolLake.create(MemoryStore()).create_pool("p", key="k", order="asc")
    type = types.record(k=types.INT64, v=types.STRING)
    pool.load([Value.of(type, {"k": 1, "v": "a"}), Value(type, None), Value(types.NULL, None)])
    assert pool.scan(columns=["v"]).to_table()["v"].to_pylist() == ["a", None, None]
    assert pool.scan(columns=["v"], where="k is null").to_table()["v"].to_pylist() == [None, None]


def test_unsigned_columns_and_enums_are_compared() -> None:
    pool = PoolLake.create(MemoryStore()).create_pool("p", key="k", order="asc")
    type = types.record(k=types.UINT64, e=types.EnumType(("up", "down")), s=types.UINT8)
    pool.load([Value.of(type, {"k": key, "e": each, "s": 200}) for key, each in ((1, "up"), ((1 << 64) - 1, "down"))])
    assert [record["k"] for record in pool.scan(where="e = 'down' and s + 100 = 300").records()] == [(1 << 64) - 1]
    assert [record["k"] for record in pool.scan(where="k > 9223372036854775807").records()] == [(1 << 64) - 1]


def test_a_predicate_over_the_key_reads_a_part_of_the_bytes() -> None:
    store = CountingStore()
    pool = PoolLake.create(store).create_pool("p", key="ts", order="desc", seek_stride=800)
    times = pa.array(range(100_000), pa.int64()).cast(pa.timestamp("ms", "UTC"))
    pool.load(pa.table({"ts": times, "text": [random.Random(number).randbytes(20).hex() for number in range(100_000)]}))
    (data_object,) = pool.objects()
    assert data_object.size > 2 << 20
    store.read = 0
    found = pool.scan(
        where="ts >= timestamp '1970-01-01 00:00:10' and ts < timestamp '1970-01-01 00:00:10.100'", columns=["ts"]
    )
    assert found.to_table()["ts"].to_pylist() == [
        datetime.fromtimestamp(10 + ms / 1000, UTC) for ms in reversed(range(100))
    ]
    read = store.read
    index = len(store.get(seek_index_key(pool.config.id, data_object.id)))
    # The types are read before the values.
    assert read - 2 * index < 0.02 * data_object.size


@pytest.mark.parametrize(
    ("where", "types_", "start", "stop"),
    [
        ("k >= 1 and k < 5", [types.INT64], 1, 5),
        ("k > 1 and k <= 5 and other = 1", [types.INT64], 1, 6),
        ("k = 'a'", [types.STRING], "a", "a\0"),
        ("k between 2 and 3", [types.INT8, types.INT64], 2, 4),
        ("k >= 1 or k < 5", [types.INT64], None, None),
        ("not k < 5", [types.INT64], 5, None),
        ("k > 5", [types.FLOAT64], None, None),
        ("k < 5", [types.FLOAT64], None, 5.0),
        ("k > 5", [types.INT64, types.STRING], None, None),
        ("k > 1 and k > 3 and k < 9 and k < 7", [types.INT64], 3, 7),
        ("k >= 3", [], None, None),
        ("K >= 3 and k < 9", [types.INT64], None, 9),
    ],
)
def test_predicates_imply_ranges_of_keys(where: str, types_: list[Type], start: object, stop: object) -> None:
    implied, expected = implied_range(where, ["k"], types_), KeyRange.of(start, stop)
    assert (implied.start, implied.stop) == (expected.start, expected.stop)


@pytest.mark.parametrize("seed", range(5))
def test_what_a_range_leaves_out_does_not_match(seed: int) -> None:
    rng = random.Random(seed)
    pool = PoolLake.create(MemoryStore()).create_pool("p", key="k", order=rng.choice(("asc", "desc")))
    numbers = [float("nan"), -0.0, 0.0, float("inf"), float("-inf"), None, *(float(number) for number in range(-5, 5))]
    pool.load(pa.table({"k": pa.array(rng.choices(numbers, k=60), pa.float64())}))
    table = pool.scan().to_table()
    for where in (
        "k > 2",
        "k >= 2",
        "k < 2",
        "k <= 2",
        "k = 2",
        "k != 2",
        "k = 0",
        "k <=> null",
        "k = 'NaN'",
        "k > 1.5",
        "k in (1, 2)",
    ):
        expected = matching(table, parse_predicate(where, table.schema))
        assert str(pool.scan(where=where).to_table().to_pylist()) == str(expected.to_pylist()), where


@pytest.fixture
def spellings() -> Pool:
    """Return a pool with a field that differs from the key only by case."""
    pool = PoolLake.create(MemoryStore()).create_pool("p", key="ts", order="asc")
    pool.load([{"ts": 1, "TS": 11}, {"ts": 2, "TS": 1}, {"ts": 11}])
    return pool


def test_a_field_that_differs_from_the_key_by_case_is_not_the_key(spellings: Pool) -> None:
    assert [record["ts"] for record in spellings.scan(where="TS = 11").records()] == [1]


def test_an_exact_name_is_that_of_the_key(spellings: Pool) -> None:
    assert [record["ts"] for record in spellings.scan(where="ts = 11").records()] == [11]
