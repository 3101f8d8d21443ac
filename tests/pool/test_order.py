"""The order of values in pools."""

from __future__ import annotations

import random
from itertools import combinations, pairwise

import pytest

from lake_core.pool import types
from lake_core.pool.order import compare_in_pool, compare_values
from lake_core.pool.value import Value
from lake_core.pool.zng.reader import read_values
from lake_core.pool.zson.formatter import format_value
from lake_core.pool.zson.reader import parse_value
from tests.pool.cases import stored_branches
from tests.pool.scalar_objects import sort_values

ASCENDING = [
    *(
        "NaN",
        "-Inf",
        "-1.5",
        "-1",
        "0",
        "0.5",
        "1(uint8)",
        "1.5",
        "1us",
        "2024-01-01T00:00:00Z",
        "18446744073709551615",
        "+Inf",
    ),
    *(
        "false",
        "true",
        "0x",
        "0x00",
        "0x01",
        '""',
        '"a"',
        '"ab"',
        '"b"',
        "9.0.0.0",
        "10.0.0.0",
        "::",
        "10.0.0.0/8",
        "<int64>",
        "<string>",
    ),
    *(
        "{}",
        "{a:1}",
        "{a:2}",
        "{b:1}",
        "{a:1,b:1}",
        "[]([int64])",
        "[1]",
        "[1,2]",
        "[1,null]",
        "[2]",
        '["a"]',
        "|[1]|",
        '|{"a":1}|',
    ),
    *("1((int64,string))", "%a(enum(a,b))", "%b(enum(a,b))", "error(1)", 'error("a")', "null"),
]


def test_values_have_one_order() -> None:
    for one, other in combinations(map(parse_value, ASCENDING), 2):
        assert (compare_values(one, other), compare_values(other, one)) == (-1, 1), (one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("1", "1."), ("1", "1(uint8)"), ("80", "80(port=uint16)"), ("null", "null(string)"), ("-0.", "0"), ("1ns", "1")],
)
def test_values_of_several_types_are_equal(one: str, other: str) -> None:
    assert compare_values(parse_value(one), parse_value(other)) == 0


def test_every_pool_is_sorted_as_zed_sorts_it() -> None:
    # The order of mixed keys in lakes of version 1.6 is not total.
    branches = [branch for branch in stored_branches() if not branch.name.startswith("mixed-keys-v1.6")]
    assert len(branches) > 40
    for branch in branches:
        values = [value for data in branch.objects for value in read_values(data)]
        assert [
            format_value(value) for value in sort_values(values, branch.keys, descending=branch.descending)
        ] == branch.zson, branch.name


@pytest.mark.parametrize("descending", [False, True])
def test_sorting_agrees_with_comparing(descending: bool) -> None:
    rng = random.Random(1)
    lines = [
        f"{{k:{key},n:{rng.randrange(5)}}}"
        for key in ("1", "2", "1.5", '"a"', "null", "null(string)", "[1]")
        for _ in range(5)
    ]
    lines += ["{n:1}", "1", 'error("missing")', '{k:error("missing")}']
    rng.shuffle(lines)
    values = sort_values(map(parse_value, lines), [["k"], ["n"]], descending=descending)
    for one, other in pairwise(values):
        assert compare_in_pool(one, other, [["k"], ["n"]], descending=descending) <= 0


def test_equal_keys_are_sorted_by_the_bytes_of_the_whole_value() -> None:
    lines = ["{k:1,a:2}", "{k:1,a:1}", "{k:1(uint8),a:1}"]
    assert [format_value(value) for value in sort_values(map(parse_value, lines), [["k"]])] == [
        "{k:1(uint8),a:1}",
        "{k:1,a:1}",
        "{k:1,a:2}",
    ]
    assert sort_values([Value(types.INT64, None), Value.of(types.INT64, 1)], [[]])[0].decode() == 1
