"""`variant_get` and `try_variant_get`: parts of variants in predicates and assignments."""

from __future__ import annotations

import datetime as dt
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake_core.delta import DeltaTable, variant
from lake_core.expression import EvaluationFailed, InvalidExpression, evaluate, parse_expression
from lake_core.expression.variants import parse_path
from lake_core.store import MemoryStore

SCHEMA = pa.schema([("id", pa.int64()), pa.field("v", variant.VARIANT)])


def part(values: list[Any], text: str) -> list[Any]:
    """The values of an expression over variants of Python values."""
    rows = pa.table({"id": range(len(values)), "v": variant.from_python(values)}, schema=SCHEMA)
    return evaluate(parse_expression(text, SCHEMA), rows).to_pylist()


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (7, "int", 7),
        (7, "string", "7"),
        (2**40, "bigint", 2**40),
        (2**70, "string", str(2**70)),
        ("12", "int", 12),
        (Decimal("1.50"), "decimal(5,1)", Decimal("1.5")),
        (Decimal("1.50"), "double", 1.5),
        (True, "boolean", True),
        (True, "string", "true"),
        ("2024-02-29", "date", dt.date(2024, 2, 29)),
        (dt.date(2024, 2, 29), "string", "2024-02-29"),
        (dt.datetime(2024, 2, 29, 1, tzinfo=dt.UTC), "timestamp", dt.datetime(2024, 2, 29, 1, tzinfo=dt.UTC)),
        ({"b": [1, None]}, "string", '{"b":[1,null]}'),
        ([1], "string", "[1]"),
        (None, "int", None),
    ],
)
def test_a_part_is_cast_to_the_type(value: Any, kind: str, expected: Any) -> None:
    assert part([{"a": value}], f"variant_get(v, '$.a', '{kind}')") == [expected]


@pytest.mark.parametrize(
    ("value", "kind"), [("x", "int"), (300, "tinyint"), ({}, "int"), ([1], "date"), (True, "date")]
)
def test_what_cannot_be_cast_fails_or_is_null(value: Any, kind: str) -> None:
    with pytest.raises(EvaluationFailed):
        part([{"a": value}], f"variant_get(v, '$.a', '{kind}')")
    assert part([{"a": value}], f"try_variant_get(v, '$.a', '{kind}')") == [None]


def test_what_spark_would_find_is_never_null() -> None:
    """The text of a floating-point number is not made here: null would be another answer than Spark's."""
    with pytest.raises(EvaluationFailed, match="cast them to double"):
        part([{"a": 2.5}], "try_variant_get(v, '$.a', 'string')")


LEAF = st.integers(-5, 5) | st.text("ab. ", max_size=3)
VALUE = st.recursive(
    LEAF,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b c", "0"]), inner, max_size=3),
    max_leaves=8,
)


@given(VALUE, st.lists(st.sampled_from(["a", "b c", "0", 0, 1, 2]), max_size=3))
def test_any_path_leads_where_python_leads(value: Any, steps: list[str | int]) -> None:
    expected = value
    for step in steps:
        fits = isinstance(expected, list) if isinstance(step, int) else isinstance(expected, dict)
        try:
            expected = expected[step] if fits else None
        except (KeyError, IndexError):
            expected = None
    path = "$" + "".join(f"[{step}]" if isinstance(step, int) else f"['{step}']" for step in steps)
    text = variant.to_json(variant.from_python([expected])).to_pylist()[0]
    if isinstance(expected, str):
        text = expected
    escaped = path.replace("'", '"')
    assert part([value], f"variant_get(v, '{escaped}', 'string')") == [text]


@pytest.mark.parametrize("path", ["", "a", "$.", "$[", "$[-1]", "$.a.", "$['a]", "$ .a", "$[1"])
def test_what_is_no_path(path: str) -> None:
    with pytest.raises(InvalidExpression, match="not a path"):
        parse_path(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("variant_get(v, '$.a')", "a path and a type"),
        ("variant_get(v, concat('$', '.a'), 'int')", "a path and a type"),
        ("variant_get(id, '$.a', 'int')", "takes a VARIANT"),
        ("variant_get(v, '$.a', 'array<int>')", "not a type"),
        ("variant_get(v, '$.a', 'int) --')", "not a type"),
        ("variant_get(v, 'a', 'int')", "not a path"),
    ],
)
def test_calls_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidExpression, match=message):
        parse_expression(text, SCHEMA)


@pytest.mark.parametrize(("value", "metadata"), [(None, None), (b"\x00", None), (None, b"\x01\x00\x00"), (b"", b"")])
def test_a_variant_that_lacks_a_part_of_its_own_fails(value: bytes | None, metadata: bytes | None) -> None:
    rows = pa.table({"id": [1], "v": [{"value": value, "metadata": metadata}]})
    with pytest.raises(EvaluationFailed, match="variant"):
        evaluate(parse_expression("variant_get(v, '$.a', 'int')", SCHEMA), rows)


def test_rows_are_found_changed_and_deleted_by_parts() -> None:
    table = DeltaTable.create(MemoryStore(), SCHEMA)
    values = [{"a": {"n": n}} if n % 3 else None for n in range(9)]
    table.append(pa.table({"id": range(9), "v": variant.from_python(values)}, schema=SCHEMA))
    table.append(pa.table({"id": [9], "v": variant.from_json(["null"])}, schema=SCHEMA))
    assert table.to_arrow(where="variant_get(v, '$.a.n', 'int') > 6")["id"].to_pylist() == [7, 8]
    table.update({"id": "variant_get(v, '$.a.n', 'bigint') + 100"}, "variant_get(v, '$.a.n', 'int') = 4")
    table.delete("variant_get(v, '$.a.n', 'int') < 3 OR id = 9")
    assert sorted(table.to_arrow()["id"].to_pylist()) == [0, 3, 5, 6, 7, 8, 104]
    assert table.to_arrow(where="variant_get(v, '$.a', 'string') IS NULL")["id"].to_pylist() == [0, 3, 6]


def test_parts_of_shredded_variants_are_found(cases: Path, tmp_path: Path) -> None:
    table = DeltaTable.open(shutil.copytree(cases / "delta-wild" / "variant-shredded-mixed", tmp_path / "t"))
    name = next(child.name for child in table.schema if variant.is_variant(child.type))
    whole = table.to_arrow()
    keys = {key for value in variant.to_python(whole[name]) if isinstance(value, dict) for key in value}
    assert keys
    for key in keys:
        texts = [value.get(key) if isinstance(value, dict) else None for value in variant.to_python(whole[name])]
        where = f"variant_get({name}, '$[\"{key}\"]', 'string') IS NOT NULL"
        assert table.to_arrow(where=where).num_rows == sum(text is not None for text in texts)
