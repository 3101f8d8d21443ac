"""Pools of thousands of record types: scans take time in proportion to the records and the fields of the table."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from itertools import product
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lake_core.pool import Pool, PoolLake
from lake_core.pool.export import to_columns
from lake_core.pool.fused_type import fused_types
from lake_core.pool.types import Field, NamedType, RecordType, Type, UnionType, map_components, unique_types
from lake_core.pool.zson.type_text import format_type
from lake_core.store import MemoryStore
from tests.examples import examples, some_of
from tests.pool.random_values import random_type

KINDS: dict[str, Callable[[int], dict[str, Any]]] = {
    "fields": lambda number: {"k": number, f"g{number}": 1},
    "nested fields": lambda number: {"k": number, "n": {f"g{number}": {"x": number}}},
    "fields of elements": lambda number: {"k": number, "a": [{f"g{number}": 1}] * (number % 3)},
    "conflicts": lambda number: {
        "k": number,
        f"g{number}": 1,
        "c": [1, "x", {f"h{number}": 1}, None, [number], [f"{number}"]][number % 6],
    },
}


def pool_of(rows: list[dict[str, Any]], loads: int = 1) -> Pool:
    pool = PoolLake.create(MemoryStore()).create_pool("events", key="k", order="asc")
    size = -(-len(rows) // loads)
    for first in range(0, len(rows), size):
        pool.load(rows[first : first + size])
    return pool


def without_nulls(value: Any) -> Any:
    """Leave out the fields that are null, which a fused record has for those that it lacks."""
    if isinstance(value, dict):
        return {name: plain for name, each in value.items() if (plain := without_nulls(each)) not in (None, {})}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def in_order(type: Type) -> Type:
    """Return a type with the fields of records, whose order is that of the types that were fused, by their names."""
    match type:
        case NamedType(name, inner):
            return NamedType(name, in_order(inner))
        case RecordType(fields):
            named = {each.name: in_order(each.type) for each in fields}
            return RecordType(tuple(Field(name, named[name]) for name in sorted(named)))
        case UnionType(members):
            return UnionType(unique_types(map(in_order, members)))
    return map_components(type, in_order)


@given(st.integers(0, 2**32), st.integers(0, 6), st.sampled_from(["union", "json"]), st.booleans())
@settings(deadline=None, max_examples=examples(600))
def test_the_order_of_types_does_not_count(
    seed: int, count: int, conflicts: Literal["union", "json"], round_integers: bool
) -> None:
    rng = random.Random(seed)
    # With which member of a union a type is fused depends on the order.
    several = [type for type in (random_type(rng) for _ in range(count)) if "(" not in format_type(type)]
    shuffled = rng.sample(several, len(several))
    fused = [fused_types(types, conflicts, round_integers=round_integers) for types in (several, shuffled)]
    assert in_order(fused[0]) == in_order(fused[1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loads", [1, 100])
@pytest.mark.sampled(3)
def test_a_table_of_many_types_has_the_values_of_the_records(kind: str, loads: int) -> None:
    rows = [KINDS[kind](number) for number in range(300)]
    pool = pool_of(rows, loads)
    records = [without_nulls(each) for each in pool.scan().records()]
    assert records == [without_nulls(each) for each in rows]
    table = pool.scan().to_table()
    assert [without_nulls(each) for each in table.to_pylist()] == records
    reader = pool.scan(where="k >= 10", stop=290).to_reader()
    assert [without_nulls(each) for each in reader.read_all().to_pylist()] == records[10:290]
    assert to_columns(pool.scan()).read_all().num_rows == 300


def test_few_rows_of_many_objects_become_few_batches() -> None:
    pool = pool_of([KINDS["fields"](number) for number in range(200)], loads=200)
    assert len(pool.objects()) == 200
    assert len(pool.scan().to_table().to_batches()) == 1


def test_large_rows_are_not_gathered() -> None:
    pool = pool_of([{"k": number, "text": "x" * (3 << 20)} for number in range(4)], loads=4)
    assert [batch.num_rows for batch in pool.scan().to_reader()] == [2, 2]


def seconds(function: Callable[[], pa.Table]) -> float:
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        function()
        best = min(best, time.process_time() - start)
    return best


READS: dict[str, Callable[[Pool], Any]] = {
    "table": lambda pool: pool.scan().to_table(),
    "columns": lambda pool: to_columns(pool.scan()).read_all(),
    "where": lambda pool: pool.scan(where="k > 10").to_table(),
    "records": lambda pool: list(pool.scan(where="k > 10").records()),
}
USUAL = list(zip(KINDS, READS, strict=True))


@pytest.mark.parametrize(("kind", "name"), some_of(product(KINDS, READS), USUAL.__contains__))
def test_four_times_as_many_types_take_about_four_times_as_long(kind: str, name: str) -> None:
    read = READS[name]
    few, many = (pool_of([KINDS[kind](number) for number in range(count)]) for count in (200, 800))
    read(few)
    assert seconds(lambda: read(many)) < 10 * seconds(lambda: read(few)), "a square would be sixteen times"
