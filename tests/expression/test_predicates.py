"""Spark SQL predicates: parsed, refused, and the same in Arrow as SQL says."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from lake_core.expression import InvalidExpression, columns, negated, parse_predicate, to_arrow

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int8()),
        ("f", pa.float64()),
        ("n", pa.decimal128(10, 2)),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("flag", pa.bool_()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("st", pa.struct([("x", pa.int64()), ("In ner", pa.struct([("y", pa.string())]))])),
        ("we`ird.name", pa.string()),
        ("arr", pa.list_(pa.int64())),
    ]
)
NAN = float("nan")
ROWS = pa.Table.from_pylist(
    [
        {
            "id": 1,
            "small": 1,
            "f": 1.5,
            "n": Decimal("1.50"),
            "s": "one",
            "b": b"\x01",
            "flag": True,
            "d": dt.date(2020, 1, 1),
            "t": dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
            "st": {"x": 1, "In ner": {"y": "a"}},
            "we`ird.name": 'it\'s \\ "q"',
        },
        {"id": 2, "small": -1, "f": NAN, "n": Decimal("-2.00"), "s": "50%_a", "flag": False, "st": {"x": None}, "d": dt.date(2021, 6, 1)},
        {"id": 3},
    ],
    schema=SCHEMA,
)


PREDICATES: list[tuple[str, list[int]]] = [
    ("id = 1", [1]),
    ("ID == 1", [1]),
    ("1 < id", [2, 3]),
    ("id <> 2", [1, 3]),
    ("small != 1", [2]),
    ("small < 200", [1, 2]),
    ("id = 1.0 OR id = 2.5", [1]),
    ("id > -1e3", [1, 2, 3]),
    ("id = 99999999999999999999", []),
    ("f > 2", [2]),
    ("f = 1.5 AND n = 1.5", [1]),
    ("n < 0", [2]),
    ("n IN (1.5, -2)", [1, 2]),
    ("n IN (1.5, NULL)", [1]),
    ("id NOT IN (1, NULL)", []),
    ("small NOT IN (1)", [2]),
    ("s LIKE 'o%'", [1]),
    ("s NOT LIKE 'o%'", [2]),
    (r"s LIKE '50\\%\\_%'", [2]),
    ("s LIKE '5____'", [2]),
    ("s IS NULL", [3]),
    ("s IS NOT NULL", [1, 2]),
    ("NOT (s IS NULL)", [1, 2]),
    ("s <=> NULL", [3]),
    ("NOT (s <=> 'one')", [2, 3]),
    ("flag", [1]),
    ("NOT flag", [2]),
    ("flag IS TRUE", [1]),
    ("flag IS NOT TRUE", [2, 3]),
    ("flag = false", [2]),
    ("d = '2020-01-01'", [1]),
    ("d >= DATE '2020-01-02'", [2]),
    ("d BETWEEN DATE '2020-01-01' AND CAST('2020-12-31' AS DATE)", [1]),
    ("t = TIMESTAMP '2020-01-01 00:00:00'", [1]),
    ("t = TIMESTAMP '2020-01-01 01:00:00+01:00'", [1]),
    ("t = '2019-12-31T23:00:00-01:00'", [1]),
    ("t >= DATE '2020-01-01'", [1]),
    ("st.x = 1", [1]),
    ("st.`in ner`.y = 'a'", [1]),
    ("st.x IS NULL", [2, 3]),
    ("`we``ird.name` = 'it\\'s \\\\ \"q\"'", [1]),
    ("b = X'01'", [1]),
    ("id = small", [1]),
    ("id > small", [2]),
    ("f <=> f", [1, 2, 3]),
    ("f = f", [1, 2]),
    ("TRUE", [1, 2, 3]),
    ("FALSE", []),
    ("NULL", []),
    ("NOT NULL", []),
    ("(((id = 1)))", [1]),
    ("id = 1 OR (id = 2 AND NOT id = 3)", [1, 2]),
    ("NOT (id = 1 OR s = '50%_a')", []),
    ("NOT (id = 1 AND s = 'one')", [2, 3]),
    ("id = 1 -- a comment", [1]),
    ("s != '${spark.app.name}'", [1, 2]),
]
"""Predicates over ROWS, and the ids for which each is true. Spark must agree: see tests/spark/test_predicates.py."""


@pytest.mark.parametrize(("where", "found"), PREDICATES)
def test_rows_for_which_it_is_true(where: str, found: list[int]) -> None:
    predicate = parse_predicate(where, SCHEMA)
    assert ROWS.filter(to_arrow(predicate))["id"].to_pylist() == found
    # NOT leaves out exactly the rows for which it is false or null.
    null = [i for i in (1, 2, 3) if i not in found and i not in ROWS.filter(to_arrow(negated(predicate)))["id"].to_pylist()]
    assert sorted(found + null + ROWS.filter(to_arrow(negated(predicate)))["id"].to_pylist()) == [1, 2, 3]


@pytest.mark.parametrize(
    "where",
    [
        "",
        "   ",
        "id =",
        "id = 1; DROP TABLE x",
        "nope = 1",
        "id.x = 1",
        "st.nope = 1",
        "st = 1",
        "arr = 1",
        "arr[0] = 1",
        "s = 1",
        "id = 'one'",
        "id = NULL + 1",
        "d = 'yesterday'",
        "d = 5",
        "t = '2020-13-01'",
        "flag = 'maybe'",
        "id",
        "1 = 1",
        "id + 1 = 2",
        "upper(s) = 'ONE'",
        "reflect('java.lang.System', 'exit', 1)",
        "java_method('a', 'b') = 'x'",
        "id = (SELECT max(id) FROM t)",
        "id IN (SELECT id FROM t)",
        "EXISTS (SELECT 1)",
        "id BETWEEN SYMMETRIC 2 AND 1",
        "s LIKE ANY ('one', 'two')",
        "s LIKE 'one' ESCAPE '/'",
        "s RLIKE 'o.*'",
        "s ILIKE 'ONE'",
        "s LIKE s",
        "CASE WHEN id = 1 THEN TRUE END",
        "CAST(id AS STRING) = '1'",
        "id = s",
        "input_file_name() = 'x'",
        "id = 1 AND",
        "read_files('/etc/passwd') IS NOT NULL",
        "(" * 5000 + "id = 1" + ")" * 5000,
        "x" * (2 << 20),
    ],
)
def test_what_cannot_be_evaluated_is_refused(where: str) -> None:
    with pytest.raises(InvalidExpression):
        parse_predicate(where, SCHEMA)


def test_long_lists_and_chains() -> None:
    listed = parse_predicate(f"id IN ({', '.join(map(str, range(20_000)))})", SCHEMA)
    assert ROWS.filter(to_arrow(listed)).num_rows == 3
    chained = parse_predicate(" OR ".join(f"id = {number}" for number in range(500)), SCHEMA)
    assert ROWS.filter(to_arrow(chained)).num_rows == 3


def test_parts() -> None:
    predicate = parse_predicate("id = 1 AND (s = 'a' AND st.x > 2) AND (f = 1 OR id = 2)", SCHEMA)
    assert [column.path for column in columns(predicate)] == [("id",), ("s",), ("st", "x"), ("f",), ("id",)]
