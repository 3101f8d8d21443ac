"""Values that are sorted, written and merged in batches have the bytes of those that are handled value by value."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lake_core.pool import batch_list, sorted_batch, types
from lake_core.pool.batch_list import BatchList, large_batches
from lake_core.pool.config import PoolConfig
from lake_core.pool.data_object import data_key, seek_index_key
from lake_core.pool.key_column import KeyColumn
from lake_core.pool.key_range import KeyRange
from lake_core.pool.ksuid import new_ksuid
from lake_core.pool.lake import PoolLake
from lake_core.pool.merge import Source, merge
from lake_core.pool.object_writer import write_objects
from lake_core.pool.order import compare_values, pool_key
from lake_core.pool.pool import Pool
from lake_core.pool.sorted_batch import SortedBatch, keys_of, sort_batch
from lake_core.pool.types import ErrorType, Field, NamedType, RecordType, Type, UnionType, record
from lake_core.pool.value import Tagged, Value
from lake_core.pool.value_batch import ValueBatch, batches_of_arrow
from lake_core.pool.zng.writer import encode_values
from lake_core.store import MemoryStore
from tests.pool.random_values import random_object, random_type, random_value, seeds
from tests.pool.scalar_objects import encode_object, merge_values, sort_values
from tests.pool.tables import read_tables

_UNION = UnionType((types.INT64, types.STRING))
KEYS: dict[str, tuple[list[Type], Callable[[random.Random], Any]]] = {
    "integers": ([types.INT64], lambda rng: rng.choice((-5, 0, 1, 2, 2, 2, 1 << 62))),
    "integers of several types": (
        [types.INT8, types.UINT16, types.TIME, types.DURATION],
        lambda rng: rng.randrange(100),
    ),
    "large integers": ([types.UINT64], lambda rng: rng.randrange(1 << 64)),
    "floats": (
        [types.FLOAT64, types.FLOAT32],
        lambda rng: rng.choice((0.0, -0.0, 1.5, -1.5, float("nan"), float("inf"), float("-inf"))),
    ),
    "integers and floats": ([types.FLOAT64, types.INT64], lambda rng: rng.randrange(5)),
    "strings": ([types.STRING], lambda rng: rng.choice(("", "a", "b", "ab", "é", "z" * 200))),
    "bytes": ([types.BYTES], lambda rng: rng.choice((b"", b"\0", b"\xff", b"a"))),
    "bool": ([types.BOOL], lambda rng: rng.random() < 0.5),
    "strings and integers": ([types.STRING, types.INT64], lambda rng: rng.randrange(5)),
    "named integers": ([NamedType("port", types.UINT16), types.INT64], lambda rng: rng.randrange(5)),
    "errors": ([ErrorType(types.STRING), types.STRING], lambda rng: rng.choice(("missing", "other"))),
    "unions": ([_UNION], lambda rng: Tagged(0, rng.randrange(5))),
    "arrays": ([types.ArrayType(types.INT64)], lambda rng: [rng.randrange(3) for _ in range(rng.randrange(3))]),
    "null": ([types.NULL], lambda rng: None),
}


def values_with_keys(rng: random.Random, kind: str, count: int) -> list[Value]:
    """Return records with keys of a kind, at the path k, among others without a key."""
    key_types, make = KEYS[kind]
    shapes = [
        RecordType(
            (Field("a", random_type(rng, 2)), Field("k", rng.choice(key_types)), Field("z", random_type(rng, 1)))
        )
        for _ in range(3)
    ]
    values = []
    for _ in range(count):
        shape = rng.choice(shapes)
        key_type = shape.fields[1].type
        key = make(rng) if rng.random() < 0.8 else None
        if key is not None and types.under(key_type) == types.STRING and not isinstance(key, str):
            key = str(key)
        whole = {"a": random_object(rng, shape.fields[0].type), "k": key, "z": random_object(rng, shape.fields[2].type)}
        values.append(Value.of(shape, whole))
        if rng.random() < 0.1:
            values.append(rng.choice((values[-1], Value(shape, None), random_value(rng, random_type(rng, 1)))))
    return values


def new_pool(rng: random.Random, key: str = "k", threshold: int = 1 << 20) -> tuple[MemoryStore, Pool]:
    """Return a pool of small segments."""
    store = MemoryStore()
    order = rng.choice(("asc", "desc"))
    return store, PoolLake.create(store).create_pool(
        "p", key=key, order=order, seek_stride=rng.choice((1, 20, 1 << 16)), threshold=threshold
    )


def parts(values: list[Value], threshold: int) -> list[list[Value]]:
    """Return values in lists that end with the value with which the bodies take so many bytes."""
    lists: list[list[Value]] = [[]]
    size = 0
    for value in values:
        if size >= threshold:
            lists.append([])
            size = 0
        lists[-1].append(value)
        size += len(value.body or b"")
    return lists


def assert_has_objects(store: MemoryStore, pool: Pool, expected: list[list[Value]]) -> None:
    """Assert that the data objects of a pool have the bytes of lists of values that are encoded value by value."""
    objects = {bytes(store.get(data_key(pool.config.id, each.id))): each for each in pool.objects()}
    encoded = dict(encode_object(part, pool.config) for part in expected)
    assert sorted(objects) == sorted(encoded)
    for data, segments in encoded.items():
        each = objects[data]
        index = bytes(store.get(seek_index_key(pool.config.id, each.id)))
        assert index == encode_values([segment.to_value() for segment in segments])
        keys = sort_values([key for segment in segments for key in (segment.min, segment.max)], [[]])
        assert not compare_values(each.min, keys[0])
        assert not compare_values(each.max, keys[-1])
        assert each.count == sum(segment.count for segment in segments)


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("seed", seeds(2, 20))
def test_loads_have_the_bytes_of_values_that_are_sorted_one_by_one(kind: str, seed: int) -> None:
    rng = random.Random(f"{kind} {seed}")
    store, pool = new_pool(rng)
    values = values_with_keys(rng, kind, 120)
    pool.load(values)
    assert_has_objects(store, pool, [sort_values(values, pool.config.keys, descending=pool.config.descending)])


@pytest.mark.parametrize("seed", seeds(3, 20))
def test_objects_of_a_load_end_at_the_threshold(seed: int) -> None:
    rng = random.Random(seed)
    store, pool = new_pool(rng, threshold=2000)
    values = values_with_keys(rng, "integers", 200)
    pool.load(values)
    assert len(pool.objects()) > 1
    sort = [sort_values(part, pool.config.keys, descending=pool.config.descending) for part in parts(values, 2000)]
    assert_has_objects(store, pool, sort)


def test_tables_have_the_bytes_of_their_records() -> None:
    rng = random.Random(7)
    store, pool = new_pool(rng, key="n.k")
    type = record(a=types.STRING, n=record(x=types.INT64, k=types.TIME), b=types.FLOAT64)
    values = [
        Value.of(type, {"a": "x" * rng.randrange(300), "n": {"x": 1, "k": rng.randrange(50)}, "b": rng.random()})
        for _ in range(300)
    ]
    pool.load(read_tables(encode_values(values))[type])
    assert_has_objects(store, pool, [sort_values(values, pool.config.keys, descending=pool.config.descending)])


@pytest.mark.parametrize("kind", KEYS)
def test_positions_in_a_sorted_batch_are_those_of_its_values(kind: str) -> None:
    rng = random.Random(kind)
    _, pool = new_pool(rng)
    config: PoolConfig = pool.config
    values = sort_values(values_with_keys(rng, kind, 60), config.keys, descending=config.descending)
    batch = SortedBatch.of(config, ValueBatch.of_values(values))
    for _ in range(20):
        bound = rng.choice([*values, *values_with_keys(rng, kind, 1)])
        keys = keys_of(ValueBatch.of_values([bound]), config)
        together = sort_values([*values, bound], config.keys, descending=config.descending)
        assert together[batch.count_before(bound, keys, equal=False)].body == bound.body
        before = batch.count_before(bound, keys, equal=False)
        assert batch.count_before(bound, keys, equal=True) - before == sum(
            value.body == bound.body and not compare_values(pool_key(value, ["k"]), pool_key(bound, ["k"]))
            for value in values
        )


@pytest.mark.parametrize("kind", KEYS)
def test_repeated_keys_are_those_that_compare_as_equal(kind: str) -> None:
    rng = random.Random(kind)
    _, pool = new_pool(rng)
    batch = ValueBatch.of_values(values_with_keys(rng, kind, 60))
    whole = list(sort_batch(batch, keys_of(batch, pool.config), pool.config))
    assert len(whole) == 1
    keys = [whole[0].key(row) for row in range(len(whole[0]))]
    assert whole[0].repeats().tolist() == [False, *(not compare_values(*pair) for pair in pairwise(keys))]


@pytest.mark.parametrize("kind", KEYS)
def test_several_batches_are_sorted_as_one(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(kind)
    # Some batches are copied together, and values with equal keys are compared in many groups.
    monkeypatch.setattr(batch_list, "_LARGE_BYTES", rng.choice((1, 3000)))
    monkeypatch.setattr(sorted_batch, "_TIED_BYTES", 2000)
    for _ in range(5):
        _, pool = new_pool(rng)
        values = values_with_keys(rng, kind, 150)
        sizes = [rng.randrange(40) for _ in range(8)]
        bounds = [min(sum(sizes[:number]), len(values)) for number in range(9)]
        bounds[-1] = len(values)
        batches = [ValueBatch.of_values(values[start:stop]) for start, stop in pairwise(bounds)]
        keys = KeyColumn.concat([keys_of(batch, pool.config) for batch in batches])
        together = sort_batch(BatchList.of(list(large_batches(batches))), keys, pool.config)
        expected = sort_values(values, pool.config.keys, descending=pool.config.descending)
        assert [value for batch in together for value in batch.batch.values()] == expected


def test_a_batch_knows_the_sizes_of_its_bodies() -> None:
    values = [
        Value(types.BYTES, None if size < 0 else bytes(size))
        for size in (-1, 0, 1, 126, 127, 128, 16_381, 16_382, 16_383, 2_200_000)
    ]
    batch = ValueBatch.of_values(values)
    assert batch.body_sizes().tolist() == [len(value.body or b"") for value in values]
    assert list(batch.values()) == values


def test_keys_of_other_types_are_not_compared_as_columns() -> None:
    one, other = (ValueBatch.of_values([Value.of(type, 1)]) for type in (types.INT64, types.FLOAT64))
    columns = [KeyColumn.of(batch, ()) for batch in (one, other)]
    assert KeyColumn.concat(columns) is None
    assert KeyColumn.concat([columns[0], columns[0]]) is not None
    assert KeyColumn.of(ValueBatch.of_values([Value.of(types.IP, None)]), ()) is not None


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("seed", seeds(2, 20))
def test_batches_are_merged_as_their_values_are(kind: str, seed: int) -> None:
    rng = random.Random(f"{kind} {seed}")
    _, pool = new_pool(rng)
    config = pool.config
    lists = []
    for _ in range(rng.randint(1, 5)):
        values = values_with_keys(rng, rng.choice((kind, kind, "null")), rng.randint(1, 60))
        values = sort_values(values, config.keys, descending=config.descending)
        # Ranges of keys overlap in part.
        lists.append(
            values[: rng.randint(1, len(values))] if rng.random() < 0.5 else values[rng.randrange(len(values)) :]
        )
    sources = [source_of_values(config, values, rng.randint(1, 20)) for values in lists]
    merged = [value for batch in merge(sources, config) for value in batch.batch.values()]
    assert merged == list(merge_values(lists, config))


def source_of_values(config: PoolConfig, values: list[Value], size: int) -> Source:
    """Return values as a source that is read in batches of a size."""
    batches = [
        SortedBatch.of(config, ValueBatch.of_values(values[start : start + size]))
        for start in range(0, len(values), size)
    ]
    return Source(pool_key(values[0], config.keys[0]), lambda: iter(batches))


def test_sources_that_are_not_sorted_are_merged_as_they_stand() -> None:
    rng = random.Random(3)
    _, pool = new_pool(rng)
    sort = sort_values(values_with_keys(rng, "integers", 60), pool.config.keys, descending=pool.config.descending)
    other = [*sort[:30], *rng.sample(sort[30:], 30)]
    merged = merge([source_of_values(pool.config, values, 7) for values in (sort, other)], pool.config)
    assert [value for batch in merged for value in batch.batch.values()] == list(
        merge_values([sort, other], pool.config)
    )


def test_sources_are_read_when_they_are_reached() -> None:
    config = PoolLake.create(MemoryStore()).create_pool("p", key="k", order="asc").config
    opened = []

    def source(number: int) -> Source:
        values = [Value.of(record(k=types.INT64), {"k": 10 * number + each}) for each in range(15)]

        def read() -> Iterator[SortedBatch]:
            opened.append(number)
            return (SortedBatch.of(config, ValueBatch.of_values([value])) for value in values)

        return Source(Value.of(types.INT64, 10 * number), read)

    merged = merge([source(number) for number in range(20)], config)
    seen = []
    for batch in merged:
        seen.append((batch.key(len(batch) - 1).decode(), len(opened)))
    assert all(count <= key // 10 + 1 for key, count in seen)
    assert len(opened) == 20


@pytest.mark.parametrize(
    "kind", ["integers", "floats", "strings", "bool", "strings and integers", "integers and floats", "null"]
)
def test_ranges_hold_in_batches_what_they_hold_value_by_value(kind: str) -> None:
    rng = random.Random(kind)
    for _ in range(6):
        _, pool = new_pool(rng)
        values = values_with_keys(rng, kind, 40)
        pool.load(values)
        bounds = [None, 1, 2.5, "a", "b", True, -1.0, 0]
        key_range = KeyRange.of(rng.choice(bounds), rng.choice(bounds))
        expected = [
            value for value in pool.scan().values() if not key_range.is_bounded or key_range.contains(value, ["k"])
        ]
        found = pool.scan(start=key_range.start, stop=key_range.stop)
        assert list(found.values()) == expected
        assert found.to_table().num_rows == len(expected)


def test_a_merge_holds_a_few_batches_of_each_source() -> None:
    store = MemoryStore()
    config = PoolLake.create(store).create_pool("p", key="k", order="asc").config
    size, sources, batches = 50_000, 10, 20
    before, held = pa.total_allocated_bytes(), 0

    def source(number: int) -> Source:
        def read() -> Iterator[SortedBatch]:
            nonlocal held
            for index in range(batches):
                keys = np.arange(index * 100, index * 100 + 100) * sources + number
                rows = pa.table({"k": keys, "v": [str(key) * (size // 100 // len(str(key))) for key in keys]})
                (batch,) = batches_of_arrow(rows.combine_chunks().to_batches()[0])
                del rows
                held = max(held, pa.total_allocated_bytes() - before)
                yield SortedBatch.of(config, batch)

        return Source(Value.of(types.INT64, number), read)

    ids = iter(new_ksuid(datetime.now(UTC)) for _ in range(10))
    (written,) = write_objects(
        store, config, merge([source(number) for number in range(sources)], config), lambda: next(ids)
    )
    assert written.count == sources * batches * 100
    assert held < 4 * sources * size
