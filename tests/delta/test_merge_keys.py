"""ON of every form: the rows that a hash join finds are those that the condition is true for, pair by pair."""

from __future__ import annotations

import datetime as dt
import itertools
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.operations.merge_clause import relation
from lake_core.delta.operations.merge_condition import take_apart
from lake_core.delta.operations.merge_match import matching_pairs, numbered_keys
from lake_core.expression import EvaluationFailed, InvalidExpression, evaluate, parse_predicate
from lake_core.store import MemoryStore

NAN = float("nan")
DAYS = [None, dt.date(1969, 12, 31), dt.date(2020, 2, 29)]
MOMENTS = [
    None,
    dt.datetime(2020, 2, 29, tzinfo=dt.UTC),
    dt.datetime(2020, 2, 29, 0, 0, 0, 1, tzinfo=dt.UTC),
    dt.datetime(1969, 12, 31, tzinfo=dt.UTC),
]
KINDS: dict[str, tuple[pa.DataType, list[Any], pa.DataType, list[Any]]] = {
    "int, long": (pa.int32(), [None, 0, 1, -7], pa.int64(), [None, 0, 1, 1 << 40]),
    "long, decimal": (pa.int64(), [None, 0, 7, (1 << 53) + 1], pa.decimal128(20, 2), ["0.00", "7.01", "7.00", None]),
    "long, double": (pa.int64(), [None, 0, (1 << 53) + 1], pa.float64(), [None, 0.0, -0.0, NAN, 2.0**53, 0.5]),
    "int, float": (pa.int32(), [None, 0, 16_777_217], pa.float32(), [None, -0.0, 16_777_216.0, NAN]),
    "float, double": (pa.float32(), [None, -0.0, NAN, 0.1], pa.float64(), [None, 0.0, NAN, 0.1, 0.10000000149011612]),
    "double, double": (pa.float64(), [None, -0.0, NAN, 1.5], pa.float64(), [None, 0.0, NAN, float("inf"), 1.5]),
    "decimals": (pa.decimal128(9, 2), ["1.10", "0.00", None], pa.decimal128(18, 4), ["1.1000", "1.1001", "0", None]),
    "decimal, double": (pa.decimal128(9, 2), ["1.10", "0.00", None], pa.float64(), [1.1, -0.0, NAN, None]),
    "wide decimals": (pa.decimal128(18, 0), ["1", None], pa.decimal128(38, 0), ["1", "9" * 38, None]),
    "date, timestamp": (pa.date32(), DAYS, pa.timestamp("us", "UTC"), MOMENTS),
    "timestamp, date": (pa.timestamp("us", "UTC"), MOMENTS, pa.date32(), DAYS),
    "timestamp, zoneless": (
        pa.timestamp("us", "UTC"),
        MOMENTS,
        pa.timestamp("us"),
        [None, dt.datetime(2020, 2, 29), dt.datetime(2020, 2, 29, 0, 0, 0, 1)],
    ),
    "text": (pa.string(), [None, "", "a", "A", "a "], pa.string(), [None, "", "a", "A", "é"]),
    "text, long": (pa.string(), [None, "1", " 1", "01", "2"], pa.int64(), [None, 1, 2]),
    "text that is no number, long": (pa.string(), ["1", "x", None], pa.int64(), [None, 1]),
    "text, date": (pa.string(), [None, "2020-02-29", "2020-2-29"], pa.date32(), DAYS),
    "bytes": (pa.binary(), [None, b"", b"\xff"], pa.binary(), [None, b"", b"\xff", b"a"]),
    "bool": (pa.bool_(), [None, True, False], pa.bool_(), [None, True]),
    "void": (pa.string(), [None, "a"], pa.null(), [None, None]),
}
EQUALITIES = (
    "t.k = s.k",
    "s.k = t.k",
    "s.k <=> t.k",
    "t.k IS NOT DISTINCT FROM s.k",
    "t.k = s.k OR (t.k IS NULL AND s.k IS NULL)",
    "(s.k IS NULL AND t.k IS NULL) OR s.k = t.k",
    "coalesce(t.k = s.k, t.k IS NULL AND s.k IS NULL)",
    "coalesce(t.k, s.k) IS NULL AND t.k <=> s.k",
    "NOT (t.k <> s.k)",
    "NOT (t.k IS DISTINCT FROM s.k)",
    "t.k IN (s.k)",
    "equal_null(t.k, s.k)",
    "t.k = s.k OR NOT (t.k IS NOT NULL OR isnotnull(s.k))",
    "(t.k = s.k) IS TRUE",
    "CASE WHEN t.k = s.k THEN TRUE ELSE FALSE END",
    "IF(t.k <=> s.k, t.p > 0, FALSE)",
    "coalesce(t.k, t.k) = coalesce(s.k, s.k)",
    "TRY_CAST(t.k AS STRING) = TRY_CAST(s.k AS STRING)",
    "CAST(t.k AS BIGINT) = CAST(s.k AS BIGINT)",
    "CAST(t.k AS DECIMAL(20, 2)) <=> CAST(s.k AS DECIMAL(30, 5))",
    "t.k + 1 = s.k + 1",
    "lower(t.k) = lower(s.k)",
    "concat(t.k, '') <=> s.k",
    "date_add(t.k, 1) = date_add(s.k, 1)",
    "t.k = s.k AND t.p = s.p",
    "t.p <=> s.p AND t.k <=> s.k",
    "t.k = s.k AND t.p > s.p",
    "t.p > 1 AND t.k = s.k AND s.p < 3",
    "t.k = s.k AND 1 / (t.p - 1) > 0",
    "t.p = s.p AND 10 / t.p > CAST(s.k AS INT)",
    "(t.k = s.k AND t.p = s.p) OR (t.k = s.k AND s.p IS NULL)",
    "t.p = s.p + 1 AND (t.k = s.k OR t.k IS NULL)",
    "t.k = s.k AND (t.p = s.p OR FALSE) AND NOT NOT (t.p = s.p)",
    "t.k = s.k AND NULL",
    "t.k = s.k AND 1 = 1",
)
WITHOUT = ("t.k < s.k", "t.p + s.p = 3", "t.k = s.k OR t.p = s.p", "t.p = 1 AND s.p = 1", "t.p = s.p OR t.p = 1")
"""Conditions that no equality follows from."""
NUMBERS = [None, 0, 1, 2]


def column(values: list[Any], kind: pa.DataType) -> pa.Array:
    return (
        pa.array([Decimal(each) if isinstance(each, str) else each for each in values], kind)
        if (pa.types.is_decimal(kind))
        else pa.array(values, kind)
    )


def sides(kind: str) -> tuple[pa.Table, pa.Table]:
    tables = []
    for data_type, values in (KINDS[kind][:2], KINDS[kind][2:]):
        pairs = list(itertools.product(values, NUMBERS))
        keys, numbers = zip(*pairs, strict=True)
        tables.append(
            pa.table({"n": range(len(pairs)), "k": column(list(keys), data_type), "p": pa.array(numbers, pa.int32())})
        )
    return tables[0], tables[1]


def bound(on: str, target: pa.Table, source: pa.Table) -> Any:
    scope = pa.schema([("t", pa.struct(list(target.schema))), ("s", pa.struct(list(source.schema)))])
    return parse_predicate(on, scope, relations=True)


def fits(on: str, kind: str) -> bool:
    try:
        return bound(on, *sides(kind)) is not None
    except InvalidExpression:
        return False


def pairs_of(on: Any, target: pa.Table, source: pa.Table) -> set[tuple[int, int]] | None:
    """Return the pairs for which the condition is true, or None if it fails for one."""
    pairs = list(itertools.product(range(len(target)), range(len(source))))
    left, right = (pa.array(side) for side in zip(*pairs, strict=True))
    scope = pa.table({"t": relation(target.take(left)), "s": relation(source.take(right))})
    try:
        return {pair for pair, holds in zip(pairs, evaluate(on, scope).to_pylist(), strict=True) if holds}
    except EvaluationFailed:
        return None


def found(on: Any, target: pa.Table, source: pa.Table) -> set[tuple[int, int]]:
    condition, keys = numbered_keys(source, take_apart(on, "t", "s"), target=False)
    pairs: list[tuple[int, int]] = []
    for left, right in matching_pairs(condition, target, source, keys, ("t", "s")):
        pairs += zip(left.tolist(), right.tolist(), strict=True)
    assert len(set(pairs)) == len(pairs)
    return set(pairs)


@pytest.mark.parametrize(("kind", "on"), [(kind, on) for kind in KINDS for on in EQUALITIES if fits(on, kind)])
def test_a_hash_join_finds_the_pairs_that_the_condition_is_true_for(kind: str, on: str) -> None:
    target, source = sides(kind)
    predicate = bound(on, target, source)
    assert take_apart(predicate, "t", "s").keys or kind == "void"
    expected = pairs_of(predicate, target, source)
    if expected is None:
        with_failures(predicate, target, source)
    else:
        assert found(predicate, target, source) == expected


def with_failures(on: Any, target: pa.Table, source: pa.Table) -> None:
    """Check a condition that fails for some pairs: it fails, or it does not ask them since their keys differ."""
    try:
        pairs = found(on, target, source)
    except EvaluationFailed:
        return
    for left, right in itertools.product(range(len(target)), range(len(source))):
        alone = pairs_of(on, target.slice(left, 1), source.slice(right, 1))
        assert alone is None or bool(alone) == ((left, right) in pairs)


@pytest.mark.parametrize("on", WITHOUT)
def test_pairs_are_tried_where_no_equality_follows(on: str) -> None:
    target, source = sides("int, long")
    predicate = bound(on, target, source)
    assert not take_apart(predicate, "t", "s").keys
    assert found(predicate, target, source) == pairs_of(predicate, target, source)


@pytest.mark.parametrize(
    ("on", "count"),
    [
        ("t.p = 1 AND CAST(t.k AS BIGINT) = s.k", 1),
        ("CAST(t.k AS BIGINT) = s.k AND t.p = 1", 1),
        ("t.p = s.p AND CAST(t.k AS BIGINT) = s.k", 1),
        ("CASE WHEN t.p = 1 THEN CAST(t.k AS BIGINT) END = s.k", 1),
    ],
)
def test_a_key_fails_only_where_a_pair_needs_its_value(on: str, count: int) -> None:
    target = pa.table({"k": ["1", "x", "y"], "p": [1, 2, None]})
    source = pa.table({"k": [1, 1], "p": [1, 3]})
    expected = {(0, 0), (0, 1)} if "s.p" not in on else {(0, 0)}
    assert found(bound(on, target, source), target, source) == expected
    needed = pa.table({"k": ["x"], "p": [1]})
    with pytest.raises(EvaluationFailed, match="'x'"):
        found(bound(on, needed, source), needed, source)


FILES = ("t.k = s.k", "t.k <=> s.k", "t.k = s.k AND t.p = s.p", "coalesce(t.k, t.k) = s.k", "s.p = 1 AND s.k = t.k")


@pytest.mark.parametrize(("kind", "on"), [(kind, on) for kind in KINDS for on in FILES if fits(on, kind)])
def test_no_file_with_a_match_is_left_out(kind: str, on: str) -> None:
    target, source = sides(kind)
    expected = pairs_of(bound(on, target, source), target, source)
    table = DeltaTable.create(MemoryStore(), target.schema)
    for start in range(0, len(target), 4):
        table.append(target.slice(start, 4))
    merge = table.merge(source, on).when_matched_delete().when_not_matched_insert({"n": "s.n + 100"})
    if expected is None:
        with pytest.raises(EvaluationFailed):
            merge.execute()
        return
    merge.execute()
    left = set(range(len(target))) - {pair[0] for pair in expected}
    new = set(range(len(source))) - {pair[1] for pair in expected}
    assert Counter(table.to_arrow()["n"].to_pylist()) == Counter([*left, *(number + 100 for number in new)])
