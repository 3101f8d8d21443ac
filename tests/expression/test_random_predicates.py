"""Random predicates: Arrow finds the rows that SQL's three-valued logic, written down in plain Python, says."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lake_core.expression import negated, parse_predicate, to_arrow
from tests.examples import examples

NAN = float("nan")
TENTH = pa.scalar(0.1, pa.float32()).as_py()

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int8(), [0, 1, -1, 127, -128]),
    "l": (pa.int64(), [0, 1, -1, 2**63 - 1, -(2**63)]),
    "f": (pa.float32(), [0.0, -0.0, NAN, TENTH, 1.5, float("inf"), float("-inf")]),
    "g": (pa.float64(), [0.0, -0.0, NAN, 0.1, 1.5, float("inf"), float("-inf")]),
    "h": (pa.float64(), [0.0, -0.0, NAN, TENTH, -1.0]),
    "n": (pa.decimal128(5, 2), [Decimal("0.00"), Decimal("0.10"), Decimal("-999.99"), Decimal("999.99")]),
    "m": (
        pa.decimal128(38, 18),
        [Decimal("0.1"), Decimal("1e-18"), Decimal("99999999999999999999.999999999999999999")],
    ),
    "s": (pa.string(), ["", "a", "a%b", "a_b", "a\\b", "a\nb"]),
    "x": (pa.bool_(), [True, False]),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in VALUES.items()])

NUMBERS: dict[str, Decimal] = {
    **{
        text: Decimal(text)
        for text in ("0", "-0.0", "1", "-1", "1.5", "0.1", "-0.5", "127", "128", "-129", "1e30", "-1e30", "1e-30")
    },
    **{text: Decimal(text) for text in ("9223372036854775808", "999.99", "999.995", "-1000", "1e300", "1e40", "1e-18")},
    "0.1D": Decimal("0.1"),
    "0.1F": Decimal(repr(TENTH)),
    "-0.0D": Decimal(0),
    "CAST(0.005 AS DECIMAL(3, 2))": Decimal("0.01"),
}
TEXTS = {"''": "", "'a'": "a", "'a%b'": "a%b", "'b'": "b"}
PATTERNS = {
    "'%'": ".*",
    "'a%'": "a.*",
    "'%b'": ".*b",
    "'a_b'": "a.b",
    r"'a\\_b'": "a_b",
    r"'a\\%%'": "a%.*",
    r"'a\\\\b'": r"a\\b",
    "''": "",
}
FAMILIES = ["il", "fgh", "nm", "s", "x"]

Row: TypeAlias = dict[str, Any]
Evaluate: TypeAlias = Callable[[Row], "bool | None"]
Case: TypeAlias = tuple[str, Evaluate]


def _ordered(value: Any) -> Any:
    """NaN is equal to itself and above every other number."""
    return (value != value, 0.0 if value != value else value) if isinstance(value, float) else value


def _compare(operator: str, a: Any, b: Any) -> bool | None:
    if operator == "<=>":
        return (a is None and b is None) if a is None or b is None else _ordered(a) == _ordered(b)
    if a is None or b is None:
        return None
    a, b = _ordered(a), _ordered(b)
    return {"=": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator]


def _or(answers: list[bool | None]) -> bool | None:
    return True if True in answers else None if None in answers else False


def _not(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


OPERATORS = st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "<=>"])


def _literals(name: str) -> st.SearchStrategy[tuple[str, Any]]:
    if name == "x":
        literals: list[tuple[str, Any]] = [("TRUE", True), ("FALSE", False)]
    elif name == "s":
        literals = list(TEXTS.items())
    else:
        literals = [(text, float(number) if name in "fgh" else number) for text, number in NUMBERS.items()]
    return st.sampled_from([*literals, ("NULL", None)])


@st.composite
def leaves(draw: st.DrawFn) -> Case:
    name = draw(st.sampled_from(sorted(VALUES)))
    kind = draw(st.sampled_from(["literal", "column", "in", "null", "like"]))
    if kind == "literal":
        operator, (text, value) = draw(OPERATORS), draw(_literals(name))
        return f"{name} {operator} {text}", lambda row: _compare(operator, row[name], value)
    if kind == "column":
        family = next(family for family in FAMILIES if name in family)
        operator, other = draw(OPERATORS), draw(st.sampled_from(family))
        return f"{name} {operator} {other}", lambda row: _compare(operator, row[name], row[other])
    if kind == "in":
        items = draw(st.lists(_literals(name), min_size=1, max_size=4))
        listed = f"{name} IN ({', '.join(text for text, _ in items)})"
        return listed, lambda row: _or([_compare("=", row[name], value) for _, value in items])
    if kind == "like":
        text, regex = draw(st.sampled_from(sorted(PATTERNS.items())))
        return (
            f"s LIKE {text}",
            lambda row: None if row["s"] is None else re.fullmatch(regex, row["s"], re.DOTALL) is not None,
        )
    return f"{name} IS NULL", lambda row: row[name] is None


def _grown(inner: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    several = st.lists(inner, min_size=2, max_size=4)
    return st.one_of(
        inner.map(lambda case: (f"NOT ({case[0]})", lambda row: _not(case[1](row)))),
        several.map(
            lambda cases: (
                " OR ".join(f"({text})" for text, _ in cases),
                lambda row: _or([case(row) for _, case in cases]),
            )
        ),
        several.map(
            lambda cases: (
                " AND ".join(f"({text})" for text, _ in cases),
                lambda row: _not(_or([_not(case(row)) for _, case in cases])),
            )
        ),
    )


ROWS = st.fixed_dictionaries(
    {name: st.one_of(st.none(), st.sampled_from(values)) for name, (_, values) in VALUES.items()}
)


@settings(max_examples=examples(150))
@given(st.recursive(leaves(), _grown, max_leaves=8), st.lists(ROWS, min_size=1, max_size=12))
def test_arrow_agrees_with_plain_python(case: Case, rows: list[Row]) -> None:
    text, evaluate = case
    table = pa.Table.from_pylist(rows, SCHEMA).append_column("row", pa.array(range(len(rows))))
    predicate = parse_predicate(text, SCHEMA)
    answers = [evaluate(row) for row in rows]
    assert table.filter(to_arrow(predicate))["row"].to_pylist() == [
        i for i, answer in enumerate(answers) if answer is True
    ]
    assert table.filter(to_arrow(negated(predicate)))["row"].to_pylist() == [
        i for i, answer in enumerate(answers) if answer is False
    ]
