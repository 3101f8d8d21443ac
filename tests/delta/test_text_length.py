"""CHAR(n) and VARCHAR(n) of Spark's tables, which every writer keeps. tests/spark/test_text_lengths.py asks Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import ConstraintViolation, MalformedMetadata
from lake_core.delta.schema import ARROW_METADATA_KEY
from lake_core.delta.text_length import TYPE_STRING
from lake_core.store import MemoryStore


def sized(name: str, kind: pa.DataType, text: Any, **metadata: Any) -> pa.Field:
    return pa.field(name, kind, metadata={ARROW_METADATA_KEY: json.dumps({TYPE_STRING: text, **metadata}).encode()})


STRUCT = pa.struct([("a:<", pa.string()), ("n", pa.decimal128(5, 2))])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        sized("v", pa.string(), "varchar(3)"),
        sized("c", pa.string(), "CHAR(2)"),
        sized(
            "s",
            pa.struct([("a:<", pa.string()), ("n", pa.decimal128(5, 2))]),
            "struct<`a:<`:varchar(1),n:decimal(5,2)>",
        ),
        sized("m", pa.map_(pa.string(), pa.list_(pa.string())), "map<string,array<char(2)>>"),
    ]
)
WRITES: dict[str, Callable[[DeltaTable, pa.Table], object]] = {
    "append": lambda table, rows: table.append(rows),
    "overwrite": lambda table, rows: table.overwrite(rows),
    "merge, insert": lambda table, rows: table.merge(rows, "FALSE").when_not_matched_insert("*").execute(),
    "merge, update": lambda table, rows: table.merge(rows, "t.id < s.id").when_matched_update("*").execute(),
}


def row(**values: Any) -> pa.Table:
    return pa.Table.from_pylist([dict.fromkeys(SCHEMA.names) | {"id": 1} | values], schema=SCHEMA)


@pytest.mark.parametrize("write", WRITES)
def test_texts_are_trimmed_and_padded(write: str) -> None:
    table = DeltaTable.create(MemoryStore(), SCHEMA)
    table.append(row(id=0))
    WRITES[write](
        table, row(v="abc  ", c="x", s={"a:<": "y   ", "n": None}, m=[("key", ["z", None, "zz "]), ("k", None)])
    )
    assert table.to_arrow(where="id = 1").to_pylist() == [
        {"id": 1, "v": "abc", "c": "x ", "s": {"a:<": "y", "n": None}, "m": [("key", ["z ", None, "zz"]), ("k", None)]}
    ]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"v": "abcd"}, "column 'v' is varchar\\(3\\), but 1 of its values are longer, such as 'abcd' with 4"),
        ({"c": "x\t\t"}, "column 'c' is char\\(2\\)"),
        ({"s": {"a:<": "yy", "n": None}}, "column 's.a:<' is varchar\\(1\\)"),
        ({"m": [("key", ["z", "zzz"])]}, "column 'm.value.element' is char\\(2\\)"),
    ],
)
def test_longer_texts_are_refused(write: str, values: dict[str, Any], message: str) -> None:
    table = DeltaTable.create(MemoryStore(), SCHEMA)
    table.append(row(id=0))
    with pytest.raises(ConstraintViolation, match=message):
        WRITES[write](table, row(**values))
    assert table.refresh().version == 1


def test_an_update_and_a_generated_column() -> None:
    rule = {"delta.generationExpression": "concat(v, '')"}
    table = DeltaTable.create(MemoryStore(), pa.schema([SCHEMA.field("v"), sized("g", pa.string(), "char(4)", **rule)]))
    table.append(pa.table({"v": ["a"]}))
    table.append(pa.table({"v": ["b"], "g": ["b"]}))
    table.update({"v": "'abc     '"}, "v = 'a'")
    assert table.to_arrow().sort_by("v").to_pylist() == [{"v": "abc", "g": "abc "}, {"v": "b", "g": "b   "}]
    with pytest.raises(ConstraintViolation, match="'v' is varchar"):
        table.update({"v": "'abcd'"})


def test_lengths_survive_changes_of_the_table() -> None:
    table = DeltaTable.create(MemoryStore(), SCHEMA)
    table.add_columns(pa.schema([("s", pa.struct([("later", pa.string())]))]))
    table.append(pa.table({"id": [1], "s": [{"a:<": "y", "later": "any length"}], "new": ["x"]}), schema_mode="merge")
    with pytest.raises(ConstraintViolation, match=r"'s\.a:<' is varchar"):
        table.append(pa.table({"s": [{"a:<": "yy"}]}))
    table.set_comments({"v": "a comment"})
    table.optimize()
    with pytest.raises(ConstraintViolation, match="'v' is varchar"):
        table.append(pa.table({"v": ["abcd"]}))


@pytest.mark.parametrize(
    "text",
    ["", 7, "varchar(3", "struct<a>", "array<char(2)", "map<string>", "varchar(3))", "varchar(3),", "varchar(x)"],
)
def test_a_type_that_is_none_is_told(text: Any) -> None:
    with pytest.raises(MalformedMetadata, match=f"{TYPE_STRING} of column 'v'"):
        DeltaTable.create(MemoryStore(), pa.schema([sized("v", pa.string(), text)]))
