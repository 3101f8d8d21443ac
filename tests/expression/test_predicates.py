"""Spark SQL predicates: parsed, refused, and the same in Arrow as SQL says."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from lake_core.expression import InvalidExpression, columns, matching, negated, parse_predicate, to_arrow

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
        ("int", pa.int32()),
        ("f4", pa.float32()),
        ("zero", pa.float64()),
        ("one", pa.float64()),
        ("h", pa.float64()),
        ("n38", pa.decimal128(38, 18)),
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
            "int": 1,
            "f4": 0.1,
            "zero": -0.0,
            "one": 1.0,
            "h": 1.5,
            "n38": Decimal("1.5"),
        },
        {
            "id": 2,
            "small": -1,
            "f": NAN,
            "n": Decimal("-2.00"),
            "s": "50%_a",
            "flag": False,
            "st": {"x": None},
            "d": dt.date(2021, 6, 1),
            "int": -1,
            "f4": NAN,
            "zero": NAN,
            "one": NAN,
            "n38": Decimal("-2"),
        },
        {"id": 3, "one": 1.0, "h": NAN},
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
    ("arr IN (NULL)", []),
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
    # NaN against null is null.
    ("f <= h", [1]),
    ("f >= h", [1]),
    ("h >= f", [1]),
    ("f < h", []),
    ("NOT (f >= h)", []),
    ("f <=> h", [1]),
    ("one < h", [1, 3]),
    ("zero = f", [2]),
    ("f4 < one", [1]),
    # The two zeros are one value, in a file that holds only one of them too.
    ("zero = 0", [1]),
    ("NOT (zero = 0)", [2]),
    ("zero = -0.0D", [1]),
    ("zero <=> 0.0", [1]),
    ("NOT (zero <=> 0.0)", [2, 3]),
    ("zero IN (0.0)", [1]),
    ("zero IN (5, -0.0)", [1]),
    ("zero IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0)", [1]),
    ("zero NOT IN (0.0)", [2]),
    ("zero NOT IN (5, 0.0)", [2]),
    ("zero NOT IN (5)", [1, 2]),
    ("zero != 0", [2]),
    ("zero < 0", []),
    ("zero <= 0.0", [1]),
    ("zero >= 0.0", [1, 2]),
    ("zero > 0", [2]),
    ("zero BETWEEN 0 AND 0", [1]),
    # NaN in a file whose other values are all the same.
    ("one <=> 1", [1, 3]),
    ("NOT (one <=> 1.0)", [2]),
    ("one != 1", [2]),
    ("one NOT IN (1.0)", [2]),
    # Literals that no value of the column's type is equal to.
    ("int < 99999999999999999999", [1, 2]),
    ("NOT (int > 99999999999999999999)", [1, 2]),
    ("int > 99999999999999999999", []),
    ("NOT (int < 99999999999999999999)", []),
    ("int >= -3000000000", [1, 2]),
    ("int != 3000000000", [1, 2]),
    ("int <=> 3e9", []),
    ("NOT (int <=> 3000000000)", [1, 2, 3]),
    ("int IN (1, 3000000000)", [1]),
    ("int NOT IN (1, 3000000000)", [2]),
    ("int IN (3000000000)", []),
    ("int NOT IN (3000000000)", [1, 2]),
    ("int < 1.5", [1, 2]),
    ("int >= 0.5", [1]),
    ("int <= -0.5", [2]),
    ("NOT (int < -0.5)", [1]),
    ("int = 0.5", []),
    ("int != 0.5", [1, 2]),
    ("int IN (0.5, -1)", [2]),
    ("int BETWEEN -0.5 AND 1.5", [1]),
    ("small >= -128 AND id >= -9223372036854775808 AND int >= -2147483648", [1, 2]),
    ("n < 1e30", [1, 2]),
    ("n < 1e40", [1, 2]),
    ("NOT (n > 1e40)", [1, 2]),
    ("n > 1e-20", [1]),
    ("n = 1.501", []),
    ("n != 1.501", [1, 2]),
    ("n <= 1.501", [1, 2]),
    ("n > 1.499", [1]),
    ("n >= 1.501", []),
    ("n IN (1.5, 1.501, 1e40)", [1]),
    ("n38 < 1e30", [1, 2]),
    ("n38 < 1e40", [1, 2]),
    ("n38 <=> 1e40", []),
    ("n38 > 1e-30", [1]),
    ("n38 >= -99999999999999999999.999999999999999999", [1, 2]),
    ("n38 = n", [1, 2]),
    # Literals of a type that is told.
    ("f4 = 0.1", []),
    ("f4 > 0.1", [1, 2]),
    ("f4 = 0.1F", [1]),
    ("f4 <=> 0.1F", [1]),
    ("f4 <= 0.1F", [1]),
    ("f4 = CAST('0.1' AS FLOAT)", [1]),
    ("f4 IN (CAST(0.1 AS FLOAT))", [1]),
    ("f4 IN (0.1)", []),
    ("f4 NOT IN (0.1)", [1, 2]),
    ("f4 < 1e300", [1]),
    ("f4 > 1e300", [2]),
    ("n = 1.5D AND n = 1.50BD", [1]),
    ("n = CAST(1.495 AS DECIMAL(10, 2))", [1]),
    ("n = CAST('-1.995' AS DECIMAL(10, 2))", [2]),
    ("n = CAST(-2.4 AS DECIMAL)", [2]),
    ("id > -9223372036854775808L AND id = 1", [1]),
    ("id = CAST('1' AS INT) AND id = 1L AND id = ' 1 '", [1]),
    ("d = '2020-1-1'", [1]),
    ("t = '2020-01-01'", [1]),
    ("t = '2020-01-01 09:00 +09:00'", [1]),
    ("t < TIMESTAMP '2020-01-01 00:00:00.000001'", [1]),
    # What is no comparison of a column with a literal.
    ("id = NULL + 1", []),
    ("id > -9223372036854775808L AND id = 1", [1]),
    ("id = CAST(1.9 AS INT)", [1]),
    ("1 = 1", [1, 2, 3]),
    ("id + 1 = 2", [1]),
    ("upper(s) = 'ONE'", [1]),
    ("s LIKE '5/%%' ESCAPE '/'", []),
    ("s LIKE '50/%%' ESCAPE '/'", [2]),
    ("CASE WHEN id = 1 THEN TRUE END", [1]),
    ("CAST(id AS STRING) = '1'", [1]),
    ("try_cast(s AS INT) IS NULL", [1, 2, 3]),
    ("f = 'NaN'", [2]),
    ("f = CAST('NaN' AS DOUBLE)", [2]),
    ("n < 'Infinity'", [1, 2]),
    ("id > 1 AND NOT (id % 2 = 0 OR year(d) = 2020)", []),
    ("id > 1 AND NOT (id % 2 = 0 AND year(d) = 2021)", [3]),
    ("int = id OR n + 1 = -1", [1, 2]),
    ("year(d) = 2021 AND d = '2021-06-01'", [2]),
    ("int = 1 AND 1 / (int + 1) > 0", [1]),
]
"""Predicates over ROWS, and the ids for which each is true. Spark must agree: see tests/spark/test_predicates.py."""


@pytest.mark.parametrize(("where", "found"), PREDICATES)
def test_rows_for_which_it_is_true(where: str, found: list[int]) -> None:
    predicate = parse_predicate(where, SCHEMA)
    assert matching(ROWS, predicate)["id"].to_pylist() == found
    # NOT leaves out exactly the rows for which it is false or null.
    null = [i for i in (1, 2, 3) if i not in found and i not in matching(ROWS, negated(predicate))["id"].to_pylist()]
    assert sorted(found + null + matching(ROWS, negated(predicate))["id"].to_pylist()) == [1, 2, 3]


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
        "id = 'one'",
        "d = 'yesterday'",
        "d = 5",
        "t = '2020-13-01'",
        "flag = 'maybe'",
        "id",
        "reflect('java.lang.System', 'exit', 1)",
        "java_method('a', 'b') = 'x'",
        "id = (SELECT max(id) FROM t)",
        "id IN (SELECT id FROM t)",
        "EXISTS (SELECT 1)",
        "id BETWEEN SYMMETRIC 2 AND 1",
        "s LIKE ANY ('one', 'two')",
        "s RLIKE 'o\\\\b'",
        "s ILIKE 'ONE'",
        "s LIKE s",
        "input_file_name() = 'x'",
        "id = 1 AND",
        "read_files('/etc/passwd') IS NOT NULL",
        "(" * 5000 + "id = 1" + ")" * 5000,
        "NOT " * 5000 + "flag",
        "id = " + "- " * 5000 + "1",
        "id = 1" + " = 1" * 5000,
        "id < 1e999999999",
        "n < 1e99999999999999999999BD",
        "id < 1e99999999999999999999",
        "id = CAST(1e99999999 AS INT)",
        "f < 1e-999999999",
        "n = " + "1" * 1000,
        "f < 1e309",
        "f = 1e39F",
        "id = CAST(300 AS TINYINT)",
        "id = 300Y",
        "id = CAST('1.0' AS INT)",
        "id = '1.5'",
        "id = '1_0'",
        "id = '１'",
        "f = '1_0'",
        "id = 0x1",
        "b = 0x01",
        "n = CAST(123 AS DECIMAL(2, 0))",
        "n = CAST(1 AS DECIMAL(39, 0))",
        "d = '20200101'",
        "d = '2020-W01-3'",
        "d = '2020-02-30'",
        "d = '２020-01-01'",
        "t = '2020-W01-3'",
        "t = '20200101T000000Z'",
        "t = '2020-01-01T24:00:00'",
        "t = '2020-01-01 00:00:00+18:01'",
        "t > '0001-01-01 00:00:00+01:00'",
        "t = TIMESTAMP_NTZ '2020-01-01 00:00:00Z'",
        "x" * (2 << 20),
    ],
)
def test_what_cannot_be_evaluated_is_refused(where: str) -> None:
    with pytest.raises(InvalidExpression):
        parse_predicate(where, SCHEMA)


LISTS = {
    "small": lambda i: f"{i}",
    "int": lambda i: f"{i}",
    "id": lambda i: f"{i}",
    "f4": lambda i: f"{i}.5",
    "f": lambda i: f"{i}.5",
    "n": lambda i: f"{i}.50",
    "n38": lambda i: f"{i}.5",
    "s": lambda i: f"'{i}'",
    "b": lambda i: f"X'{i:06x}'",
    "d": lambda i: f"'{dt.date(2020, 1, 1) + dt.timedelta(i)}'",
    "t": lambda i: f"'{dt.datetime(2020, 1, 1) + dt.timedelta(hours=i)}'",
}


@pytest.mark.parametrize("column", LISTS)
@pytest.mark.sampled(3)
def test_long_lists(column: str) -> None:
    row = ROWS.slice(0, 1)
    predicate = parse_predicate(f"{column} IN ({', '.join(map(LISTS[column], range(5_000)))})", SCHEMA)
    matches = column not in ("f4", "s", "b")
    assert row.filter(to_arrow(predicate)).num_rows == matches
    assert row.filter(to_arrow(negated(predicate))).num_rows == (not matches)


@pytest.mark.parametrize(
    ("where", "found"),
    [
        (" OR ".join(f"int = {number}" for number in range(3000)), [1]),
        (" OR ".join(f"int = {number} AND id = 1" for number in range(3000)), [1]),
        (" AND ".join(f"small != {number}" for number in range(2, 3000)), [1, 2]),
        (" AND ".join(f"id < {number}" for number in range(3, 3000)), [1, 2]),
    ],
)
def test_long_chains_overflow_no_stack(where: str, found: list[int]) -> None:
    assert ROWS.filter(to_arrow(parse_predicate(where, SCHEMA)))["id"].to_pylist() == found


def test_too_many_terms() -> None:
    with pytest.raises(InvalidExpression, match="too many terms"):
        parse_predicate(f"id IN ({', '.join(map(str, range(100_001)))})", SCHEMA)


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("id === 1", "an operand is missing at '=', line 1, column 6"),
        ("(id = 1", "Expecting \\) at '1', line 1, column 7"),
        ("id s 1", "Invalid expression / Unexpected token at '1', line 1, column 6"),
    ],
)
def test_what_does_not_parse_says_what_and_where(where: str, reason: str) -> None:
    with pytest.raises(InvalidExpression, match=f"does not parse as Spark SQL: {reason}"):
        parse_predicate(where, SCHEMA)


def test_equalities_become_a_list() -> None:
    joined = parse_predicate("id = 1 OR s = 'a' OR id IN (2, 3) OR id = 1", SCHEMA)
    assert joined == parse_predicate("id IN (1, 2, 3) OR s = 'a'", SCHEMA)


def test_decimals_that_no_type_holds_together() -> None:
    schema = pa.schema([("a", pa.decimal128(38, 18)), ("b", pa.decimal128(38, 0))])
    with pytest.raises(InvalidExpression, match="do not fit into a common decimal type"):
        parse_predicate("a < b", schema)


def test_parts() -> None:
    predicate = parse_predicate("id = 1 AND (s = 'a' AND st.x > 2) AND (f = 1 OR id = 2)", SCHEMA)
    assert [column.path for column in columns(predicate)] == [("id",), ("s",), ("st", "x"), ("f",), ("id",)]
