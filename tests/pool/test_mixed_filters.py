"""Predicates over fields that have several types, or that some records do not have."""

from __future__ import annotations

import math
import random
from typing import Any, Literal

import pyarrow as pa
import pytest

from lake_core.expression import EvaluationFailed, InvalidExpression
from lake_core.pool import types
from lake_core.pool.errors import InvalidValue
from lake_core.pool.filter import Filter
from lake_core.pool.lake import PoolLake
from lake_core.pool.pool import Pool
from lake_core.pool.rows import value_of
from lake_core.pool.types import UnionType
from lake_core.pool.value import Tagged, Value
from lake_core.pool.value_batch import ValueBatch
from lake_core.store import MemoryStore
from tests.pool.random_values import random_type, random_value


def pool_of(*loads: list[Any], order: Literal["asc", "desc"] = "asc") -> Pool:
    pool = PoolLake.create(MemoryStore()).create_pool("p", key="k", order=order)
    for rows in loads:
        pool.load(rows)
    return pool


def keys(pool: Pool, where: str, **bounds: Any) -> list[Any]:
    """Return the keys of the records for which a predicate is true, as records and as a table."""
    scan = pool.scan(where=where, **bounds)
    matching = [record["k"] for record in scan.records()]
    assert scan.to_table().num_rows == len(matching)
    return matching


@pytest.fixture
def logs() -> Pool:
    return pool_of(
        [
            {"k": 1, "level": "warn", "code": 404},
            {"k": 2, "level": 3, "code": "404"},
            {"k": 3, "level": "info", "code": "abc"},
            {"k": 4, "code": 404.5},
            {"k": 5, "level": None, "flag": True},
            {"k": 6, "level": True, "flag": "yes"},
        ]
    )


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("level = 'warn'", [1]),
        ("level = 3", [2]),
        ("level != 'warn'", [3]),
        ("not level = 'warn'", [3]),
        ("not (level = 'warn' or level = 3)", []),
        ("level in ('warn', 3)", [1, 2]),
        ("level not in ('warn')", [3]),
        ("level like 'w%'", [1]),
        ("level is null", [4, 5]),
        ("level is not null", [1, 2, 3, 6]),
        ("level between 'a' and 'j'", [3]),
        ("level between 1 and 5", [2]),
        ("level <=> 3", [2]),
        ("level", [6]),
        ("not flag", []),
        ("flag is true", [5]),
        ("level = true", [6]),
        ("cast(level as string) = '3'", [2]),
        ("upper(level) = 'INFO'", [3]),
        ("coalesce(level = 'warn', false)", [1]),
        ("not coalesce(level = 'warn', false)", [2, 3, 4, 5, 6]),
        ("coalesce(level, 'none') = 'none'", [4, 5]),
        ("case when level = 'warn' then true else k = 2 end", [1, 2]),
        ("code > 404", [4]),
        ("code + 1 > 405", [4]),
        ("level = 'warn' or code = 404.5", [1, 4]),
        ("LEVEL = 'warn'", [1]),
    ],
)
def test_a_comparison_of_types_that_do_not_fit_is_null(logs: Pool, where: str, expected: list[int]) -> None:
    assert keys(logs, where) == expected


def test_a_text_of_digits_is_not_a_number(logs: Pool) -> None:
    assert keys(logs, "code = 404") == [1]
    assert keys(logs, "try_cast(code as int) = 404") == [1, 2, 4]


def test_an_explicit_cast_of_such_a_text_fails(logs: Pool) -> None:
    with pytest.raises(EvaluationFailed, match="abc"):
        keys(logs, "cast(code as int) = 404")


def test_records_of_one_odd_type_do_not_keep_others_from_being_deleted(logs: Pool) -> None:
    logs.delete("level = 'warn'")
    assert [record["k"] for record in logs.scan().records()] == [2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "where",
    [
        "level =",
        "unheard_of(level) = 1",
        "unheard_of(level) = 1 or k = 1",
        "size(level) = 1",
        "k = 'x'",
        "k",
    ],
)
def test_a_predicate_that_fits_no_type_is_refused(logs: Pool, where: str) -> None:
    with pytest.raises(InvalidExpression):
        keys(logs, where)
    tip = logs.tip()
    with pytest.raises(InvalidExpression):
        logs.delete(where)
    assert logs.tip() == tip


def test_a_predicate_that_fits_no_type_in_the_range_fits_others(logs: Pool) -> None:
    assert keys(logs, "level like 'w%'", start=6) == []


def test_whole_numbers_are_compared_exactly_beside_floats() -> None:
    large = (1 << 53) + 1
    pool = pool_of([{"k": 1, "n": large}, {"k": 2, "n": large - 1}, {"k": 3, "n": 0.5}])
    assert keys(pool, f"n = {large}") == [1]


def test_keys_of_whole_numbers_and_floats_are_compared() -> None:
    pool = pool_of([{"k": number} for number in (1, 2.5, 3, -1, math.nan)])
    assert keys(pool, "k < 3") == [-1, 1, 2.5]


def test_floats_between_large_whole_keys_do_not_depend_on_the_range() -> None:
    large = 1 << 53
    pool = pool_of([{"k": 1}, {"k": float(large)}, {"k": large + 1}, {"k": large + 9}])
    for comparison in ("=", ">=", "<=", "<", ">"):
        assert keys(pool, f"k {comparison} {large + 1}") == keys(pool, f"k + 0 {comparison} {large + 1}")


def test_fields_below_records_that_are_missing_are_null() -> None:
    pool = pool_of([{"k": 1, "u": {"v": 1}}, {"k": 2, "u": {"v": "x"}}, {"k": 3}])
    assert keys(pool, "u.v is null") == [3]


def test_fields_of_several_types_are_deleted_where_they_are_missing() -> None:
    pool = pool_of([{"k": 1, "u": {"v": 1}}, {"k": 2, "u": {"v": "x"}}, {"k": 3}])
    pool.delete("u.v is null")
    assert [record["k"] for record in pool.scan().records()] == [1, 2]


def test_deeper_fields_of_several_types_are_null_where_they_are_missing() -> None:
    pool = pool_of(
        [
            {"k": 1, "u": {"w": {"v": 1}}},
            {"k": 2, "u": {"w": {"v": "x"}}},
            {"k": 3},
            {"k": 4, "u": {}},
            {"k": 5, "u": 7},
        ]
    )
    assert keys(pool, "u.w.v is null") == [3, 4, 5]
    assert keys(pool, "u.w.v = 'x'") == [2]
    assert keys(pool, "u.w is null and u is not null") == [4, 5]


def test_keys_of_several_floats_are_not_null() -> None:
    pool = pool_of([{"k": 2.5}, {"k": math.nan}, {"k": -1}])
    assert keys(pool, "k is null") == []
    assert len(keys(pool, "k is not null")) == 3


def test_unions_within_one_type_of_records_are_split() -> None:
    union = UnionType((types.INT64, types.STRING))
    record = types.record(k=types.INT64, u=types.record(v=union))
    rows: list[Any] = [{"v": Tagged(0, 5)}, {"v": Tagged(1, "x")}, {"v": None}, None, {"v": Tagged(0, 6)}]
    pool = pool_of([Value.of(record, {"k": number, "u": row}) for number, row in enumerate(rows)])
    assert keys(pool, "u.v = 6") == [4]
    assert keys(pool, "u.v = 'x'") == [1]
    assert keys(pool, "u.v is null") == [2, 3]
    assert keys(pool, "u is null") == [3]


def test_a_field_that_no_record_in_the_range_has_is_null() -> None:
    pool = pool_of([{"k": 1}, {"k": 2}, {"k": 9, "code": 7}])
    assert keys(pool, "code = 7", start=1, stop=5) == []
    assert keys(pool, "code is null", start=1, stop=5) == [1, 2]


def test_a_field_that_no_record_of_the_pool_has_is_unknown() -> None:
    pool = pool_of([{"k": 1}, {"k": 2}, {"k": 9, "code": 7}])
    with pytest.raises(InvalidExpression, match="there is no column 'cod'; the columns are k, code"):
        keys(pool, "cod = 7", start=1, stop=5)


def test_a_deletion_takes_fields_for_null_that_only_other_objects_have() -> None:
    pool = pool_of([{"k": 1}, {"k": 2}], [{"k": 9, "code": 7}])
    pool.delete("k < 2 and code is null")
    assert [record["k"] for record in pool.scan().records()] == [2, 9]


def test_a_name_means_the_same_field_in_every_range() -> None:
    pool = pool_of([{"k": 1, "name": "a"}, {"k": 9, "NAME": "a"}])
    assert keys(pool, "NAME = 'a'", start=1, stop=5) == []
    assert keys(pool, "Name = 'a'") == [1]
    assert keys(pool, "Name = 'a'", start=5) == []


def test_a_column_that_no_record_in_the_range_has_is_null() -> None:
    pool = pool_of([{"k": 1}, {"k": 9, "code": 7}])
    scan = pool.scan(start=1, stop=5, columns=["code", "k"])
    assert scan.to_table().to_pydict() == {"code": [None], "k": [1]}
    assert pa.table(pool.scan(where="code is null", columns=["code", "k"])).to_pydict() == {"code": [None], "k": [1]}
    assert scan.to_zson() == "{k:1}\n"


def test_a_column_that_no_record_of_the_pool_has_is_unknown() -> None:
    pool = pool_of([{"k": 1}, {"k": 9, "code": 7}])
    with pytest.raises(InvalidValue, match="its columns are k, code"):
        pool.scan(start=1, stop=5, columns=["cod", "k"]).to_table()


_VALUES = [0, 1, 2, 300, -1, 1.0, 1.5, -0.5, "a", "b", "1", "", True, False, None]


def compared(operator: str, value: Any, literal: Any) -> bool | None:
    """Return what a comparison with a literal is: numbers and numbers, or texts and texts, or null."""
    kinds = [bool if isinstance(each, bool) else str if isinstance(each, str) else float for each in (value, literal)]
    if value is None or kinds[0] != kinds[1]:
        return None
    return bool({"=": value == literal, "!=": value != literal, "<": value < literal, ">=": value >= literal}[operator])


def modelled(predicate: Any, record: Any) -> bool | None:
    """Return what a predicate is for a record, in SQL's logic."""
    match predicate:
        case ("not", inner):
            answer = modelled(inner, record)
            return None if answer is None else not answer
        case ("and" | "or" as word, one, other):
            answers = {modelled(one, record), modelled(other, record)}
            decisive = word == "or"
            return decisive if decisive in answers else None if None in answers else not decisive
        case ("null", name):
            return record.get(name) is None
        case ("in", name, literals):
            answers = {compared("=", record.get(name), literal) for literal in literals}
            return True if True in answers else None if None in answers else False
        case (operator, name, literal):
            return compared(operator, record.get(name), literal)
    raise AssertionError(predicate)


def text_of(predicate: Any) -> str:
    match predicate:
        case ("not", inner):
            return f"NOT ({text_of(inner)})"
        case ("and" | "or" as word, one, other):
            return f"({text_of(one)} {word} {text_of(other)})"
        case ("null", name):
            return f"{name} IS NULL"
        case ("in", name, literals):
            return f"{name} IN ({', '.join(map(repr, literals))})"
        case (operator, name, literal):
            return f"{name} {operator} {literal!r}"
    raise AssertionError(predicate)


def random_predicate(rng: random.Random, depth: int = 2) -> Any:
    if depth and rng.random() < 0.6:
        word = rng.choice(("not", "and", "or"))
        inner = [random_predicate(rng, depth - 1) for _ in range(1 if word == "not" else 2)]
        return (word, *inner)
    name = rng.choice(("k", "a", "b"))
    if rng.random() < 0.2:
        return ("null", name)
    literals = [0, 1, 2] if name == "k" else [0, 1, 2, 1.5, "a", "b"]
    if rng.random() < 0.2:
        return ("in", name, rng.sample(literals, 2))
    return (rng.choice(("=", "!=", "<", ">=")), name, rng.choice(literals))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.sampled(5)
def test_random_predicates_are_those_of_a_model_in_every_range(seed: int) -> None:
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = [
        {
            "k": rng.choice((number % 9, number % 9 + 0.5)),
            "number": number,
            **{name: rng.choice(_VALUES) for name in ("a", "b") if rng.random() < 0.8},
        }
        for number in range(120)
    ]
    # Each literal fits one of the types of each field, so no predicate is refused.
    rows.extend({"k": 4, "number": 200 + number, "a": each, "b": each} for number, each in enumerate((1, 1.5, "a")))
    pool = pool_of(rows[:50], rows[50:], order=rng.choice(("asc", "desc")))
    for _ in range(60):
        predicate = random_predicate(rng)
        start, stop = rng.choice(((0, 99), (2, 5), (7, 99)))
        expected = {row["number"] for row in rows if modelled(predicate, row) is True and start <= row["k"] < stop}
        scan = pool.scan(where=text_of(predicate), start=start, stop=stop)
        numbers = {record["number"] for record in scan.records()}
        assert numbers == expected, text_of(predicate)


@pytest.mark.parametrize("seed", range(3))
def test_a_deletion_takes_the_records_of_a_scan(seed: int) -> None:
    rng = random.Random(seed)
    rows = [{"k": number % 7, "number": number, "a": rng.choice(_VALUES)} for number in range(40)]
    pool = pool_of(
        rows[:15], [*rows[15:], {"k": 8, "b": 1}, {"k": 8, "b": 1.5}, {"k": 8, "b": "a"}, {"k": 8, "a": 1.5}]
    )
    for _ in range(5):
        where = text_of(random_predicate(rng))
        if not pool.objects():
            break
        before = sum(1 for _ in pool.scan().values())
        try:
            removed = sum(1 for _ in pool.scan(where=where).values())
        except InvalidExpression:
            continue
        pool.delete(where)
        assert sum(1 for _ in pool.scan().values()) == before - removed, where


_TESTS_OF_FIELDS = [
    "a is null",
    "a.x is null",
    "a.x = 1 or b = 'a'",
    "not (a.x = b)",
    "a <=> b",
    "coalesce(a, b) is null",
    "cast(a as string) = b",
    "b in ('a', 1, true)",
    "b between 0 and 9",
    "b not like '%a%'",
    "a.x + b > 0",
    "size(b) > 0",
    "length(a.x) is null",
    "if(b > 1, a.x is null, a is null)",
]


@pytest.mark.parametrize("seed", range(6))
def test_what_a_predicate_is_for_a_record_depends_on_no_other(seed: int) -> None:
    rng = random.Random(seed)
    values = []
    for _ in range(12):
        fields = {name: random_type(rng, 2) for name in ("a", "b") if rng.random() < 0.9}
        if rng.random() < 0.5:
            fields["a"] = types.record(x=random_type(rng, 1))
        type = types.record(k=types.INT64, **fields)
        values += [random_value(rng, type) for _ in range(4)]
    values += [Value(types.NULL, None), Value(types.record(k=types.INT64), None)]
    # These have the fields, in types that fit each test.
    for fits in (
        {"a": {"x": 1}, "b": 1},
        {"a": {"x": "a"}, "b": "a"},
        {"a": {"x": "a"}, "b": [1]},
        {"a": "a", "b": "a"},
    ):
        values.append(value_of({"k": 1, **fits}))
    rng.shuffle(values)
    kinds = list(dict.fromkeys(value.type for value in values))
    for where in _TESTS_OF_FIELDS:
        row_filter = Filter(where, kinds, lambda: kinds)
        together = row_filter.mask(ValueBatch.of_values(values)).tolist()
        alone = [bool(row_filter.mask(ValueBatch.of_values([value]))[0]) for value in values]
        assert together == alone, where
