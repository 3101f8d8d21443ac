"""`zq` of Zed 1.18 and this implementation on the same values, in both directions.

Needs the command: `make interop` builds it.
"""

from __future__ import annotations

import os
import random
import subprocess
from functools import cmp_to_key
from pathlib import Path

import pytest

from lake_core.pool import types
from lake_core.pool.ndjson import format_json
from lake_core.pool.order import compare_values
from lake_core.pool.types import MapType, RecordType, Type, UnionType
from lake_core.pool.value import Value
from lake_core.pool.zng.frame import read_frames
from lake_core.pool.zng.reader import read_values
from lake_core.pool.zng.writer import ZngWriter, encode_values
from lake_core.pool.zson.formatter import format_value
from lake_core.pool.zson.reader import parse_values
from lake_core.pool.zson.type_text import format_type
from tests.pool.random_values import (
    is_finite,
    is_told_by_text,
    random_record_type,
    random_type,
    random_value,
)
from tests.pool.tables import read_tables, write_table

ZQ = os.environ.get("ZQ", "")

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not ZQ, reason="ZQ names no command `zq` of Zed 1.18: run `make interop`"),
]


def zq(folder: Path, data: bytes, *options: str, query: str = "*") -> bytes:
    """Return what `zq` makes of ZNG, or of ZSON."""
    path = folder / "input"
    path.write_bytes(data)
    return subprocess.run([ZQ, *options, query, str(path)], capture_output=True, check=True, timeout=60).stdout


def random_values(seed: int) -> list[Value]:
    """Return values of several types, without symbols and names that `zed` prints without the quotes that they need."""
    rng = random.Random(seed)
    kinds = [*(random_record_type(rng) for _ in range(3)), random_type(rng)]
    kinds = [type for type in kinds if not any(name in format_type(type) for name in ('"r s"', '"a b"'))] or [
        types.INT64
    ]
    return [random_value(rng, rng.choice(kinds)) for _ in range(40)]


def lines(output: bytes) -> list[str]:
    """Return the lines of an output."""
    return output.decode().split("\n")[:-1]


@pytest.mark.parametrize("seed", range(40))
def test_zq_prints_what_is_written_here_as_it_is_printed_here(tmp_path: Path, seed: int) -> None:
    values = random_values(seed)
    assert lines(zq(tmp_path, encode_values(values), "-z", "-i", "zng")) == [format_value(value) for value in values]


@pytest.mark.parametrize("seed", range(20))
def test_zq_writes_the_frames_that_are_written_here(tmp_path: Path, seed: int) -> None:
    data = encode_values(random_values(seed))
    assert list(read_frames(zq(tmp_path, data, "-f", "zng", "-i", "zng"))) == list(read_frames(data))


@pytest.mark.parametrize("seed", range(20))
def test_zq_reads_tables_that_went_through_arrow(tmp_path: Path, seed: int) -> None:
    tables = read_tables(encode_values(random_values(seed)))
    path = tmp_path / "tables"
    with path.open("wb") as file, ZngWriter(file) as writer:
        for table in tables.values():
            write_table(writer, table)
    expected = [format_value(value) for value in read_values(path.read_bytes())]
    assert lines(zq(tmp_path, path.read_bytes(), "-z", "-i", "zng")) == expected


@pytest.mark.parametrize("seed", range(20))
def test_zson_is_read_as_zq_reads_it(tmp_path: Path, seed: int) -> None:
    # It does not read addresses of one kind, some unions, and names in decorators behind the values that define them.
    texts = [format_value(value) for value in random_values(seed) if is_told_by_text(value.type)]
    texts = [text for text in texts if "::ffff:" not in text and "=" not in text]
    text = "\n".join(texts)
    assert list(parse_values(text)) == list(read_values(zq(tmp_path, text.encode(), "-f", "zng", "-i", "zson")))


@pytest.mark.parametrize("seed", range(20))
def test_zq_prints_the_json_that_is_printed_here(tmp_path: Path, seed: int) -> None:
    # It never ends on a null union, and repeats keys of maps that have one text.
    values = [value for value in random_values(seed) if is_finite(value) and not has_union_or_map(value.type)]
    assert lines(zq(tmp_path, encode_values(values), "-j", "-i", "zng")) == [format_json(value) for value in values]


def has_union_or_map(type: Type) -> bool:
    """Tell whether a type has a union or a map in it."""
    if isinstance(type, UnionType | MapType):
        return True
    if isinstance(type, RecordType):
        return any(has_union_or_map(each.type) for each in type.fields)
    inner = getattr(type, "inner", None) or getattr(type, "element", None)
    return inner is not None and has_union_or_map(inner)


@pytest.mark.parametrize("seed", range(20))
def test_zq_sorts_as_it_is_sorted_here(tmp_path: Path, seed: int) -> None:
    values = random_values(seed)
    ordered = sorted(values, key=cmp_to_key(compare_values))
    printed = lines(zq(tmp_path, encode_values(values), "-z", "-i", "zng", query="sort this"))
    assert printed == [format_value(value) for value in ordered]
