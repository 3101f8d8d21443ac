"""Files of rows: all that they hold is loaded, and lines of JSON are the same in batches and one by one."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from lake_core.pool.errors import InvalidJson, InvalidValue, InvalidZng
from lake_core.pool.lake import PoolLake
from lake_core.pool.ndjson import read_ndjson
from lake_core.pool.ndjson_batches import read_ndjson_batches
from lake_core.pool.pool import Pool
from lake_core.pool.zng.writer import encode_values
from lake_core.store import MemoryStore
from tests.pool.random_values import seeds

LEAVES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 7, 1 << 62, (1 << 63) - 1, -(1 << 63), 1 << 63, 1 << 70, 0.0, -0.0, 1.5, 1e300),
    *("", "a", "é☃😀", "2024-01-01T00:00:00Z", '\n\t"\\', "\u2028"),
)


def random_json(rng: random.Random, depth: int = 3) -> Any:
    """Return something that JSON can tell."""
    kind = rng.randrange(10) if depth else 9
    if kind < 2:
        return {name: random_json(rng, depth - 1) for name in rng.sample(("a", "b", "c", "x y", ""), rng.randint(0, 4))}
    if kind == 2:
        return [random_json(rng, depth - 1) for _ in range(rng.randint(0, 3))]
    if kind == 3:
        element = rng.choice(LEAVES)
        return [rng.choice((element, None)) for _ in range(rng.randint(0, 3))]
    if kind == 4:
        return [{"p": number, "q": "x"} for number in range(rng.randint(0, 3))]
    return rng.choice(LEAVES)


def random_lines(rng: random.Random) -> list[str]:
    """Return lines, many of them of one shape."""
    records = [
        {name: random_json(rng) for name in rng.sample(("k", "l", "m", "n"), rng.randint(0, 4))} for _ in range(6)
    ]
    lines = []
    for _ in range(60):
        record = dict(rng.choice(records))
        for name, value in record.items():
            if type(value) in (int, float, str) and rng.random() < 0.7:
                record[name] = rng.choice([each for each in LEAVES if type(each) is type(value)])
        lines.append(
            json.dumps(rng.choice((record, record, record, record, random_json(rng))), ensure_ascii=rng.random() < 0.5)
        )
    lines += ["", "  ", ' {"k": 1} ', '{"k": 1, "k": 2}', '{"k":1e3}', '{"k":-0}', '{"k": "\\ud83d\\ude00"}']
    rng.shuffle(lines)
    return [line + rng.choice(("\n", "\r\n", "")) for line in lines]


@pytest.mark.parametrize("seed", seeds(20, 300))
def test_lines_that_are_read_in_batches_are_what_they_are_one_by_one(seed: int) -> None:
    lines = random_lines(random.Random(seed))
    assert [value for batch in read_ndjson_batches(lines) for value in batch.values()] == list(read_ndjson(lines))


@pytest.mark.parametrize(
    "line",
    [
        '{"k": 1',
        "{} {}",
        '{"k": NaN}',
        '{"k": 1e999}',
        '{"k": [1e999]}',
        "Infinity",
        "nothing",
        '{"k": ' + "[" * 100_000,
        "\ufeff{}",
        '{"k": 01}',
    ],
)
def test_a_line_that_is_refused_is_named_as_it_is_one_by_one(line: str) -> None:
    lines = ['{"k": 1}'] * 9000 + ["", line, "worse"]
    messages = []
    for read in (read_ndjson, read_ndjson_batches):
        with pytest.raises(InvalidJson, match="line 9002") as refused:
            list(read(lines))
        messages.append(str(refused.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("depth", [150, 300, 400, 500, 600, 900, 5000])
@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]")], ids=["objects", "arrays"])
def test_a_line_that_is_nested_too_deeply_is_named(depth: int, opening: str, closing: str) -> None:
    line = f'{{"k":{opening * depth}1{closing * depth}}}'
    with pytest.raises(InvalidJson, match=r"line 2: .* nested .* deep.*; store the .* as text instead"):
        list(read_ndjson_batches(["{}", line, line]))


def test_lone_surrogates_are_refused_or_read_as_one_by_one() -> None:
    outcomes: list[Any] = []
    readers: list[Callable[[], Any]] = [
        lambda: list(read_ndjson(['{"k": "\\ud800"}'])),
        lambda: [value for batch in read_ndjson_batches(['{"k": "\\ud800"}']) for value in batch.values()],
    ]
    for read in readers:
        try:
            outcomes.append(read())
        except Exception as error:
            outcomes.append((type(error), str(error).replace("line 1: ", "")))
    assert outcomes[0] == outcomes[1]


@pytest.fixture
def pool() -> Pool:
    return PoolLake.create(MemoryStore()).create_pool("p", key="k", order="asc")


RECORDS = [{"k": 2, "v": "b"}, {"k": 1, "v": "a"}, {"k": 3}]
LINES = "".join(json.dumps(record) + "\n" for record in RECORDS)


def loaded(pool: Pool) -> list[Any]:
    """Return the records of a pool."""
    return list(pool.scan().records())


def test_files_are_loaded_by_their_endings(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text(LINES)
    (tmp_path / "b.ZNG").write_bytes(encode_values(read_ndjson(LINES.splitlines())))
    parquet.write_table(pa.table({"k": [2, 1, 3], "v": ["b", "a", None]}), tmp_path / "c.parquet")
    (tmp_path / "d.zson").write_text('{k:2,v:"b"}\n{k:1,v:"a"}\n{k:3}\n')
    endings = (("a.ndjson", {"k": 3}), ("b.ZNG", {"k": 3}), ("c.parquet", {"k": 3, "v": None}), ("d.zson", {"k": 3}))
    for name, last in endings:
        pool = PoolLake.create(MemoryStore()).create_pool("p", key="k", order="asc")
        pool.load(tmp_path / name)
        assert loaded(pool) == [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}, last]
        pool.load(str(tmp_path / name))
        assert len(loaded(pool)) == 6


@pytest.mark.parametrize(
    "stream",
    [io.StringIO(LINES), io.BytesIO(LINES.encode()), io.BytesIO(encode_values(read_ndjson(LINES.splitlines())))],
    ids=["text", "bytes", "ZNG"],
)
def test_open_files_are_loaded_by_what_they_hold(pool: Pool, stream: Any) -> None:
    pool.load(stream)
    assert loaded(pool) == [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}, {"k": 3}]


def test_the_mark_of_utf_8_before_lines_of_json_is_passed_over(pool: Pool, tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text(LINES, encoding="utf-8-sig")
    pool.load(io.BytesIO(LINES.encode("utf-8-sig")))
    pool.load(tmp_path / "a.ndjson")
    assert loaded(pool) == [{"k": 1, "v": "a"}] * 2 + [{"k": 2, "v": "b"}] * 2 + [{"k": 3}] * 2


def test_the_mark_of_utf_8_before_zson_is_passed_over(pool: Pool, tmp_path: Path) -> None:
    (tmp_path / "a.zson").write_text("{k:1}", encoding="utf-8-sig")
    pool.load(tmp_path / "a.zson")
    assert loaded(pool) == [{"k": 1}]


@pytest.mark.parametrize("text", [json.dumps([{"k": 1}]), ' {"k": 1}', '\n{"k": 1}'])
def test_text_that_is_not_lines_of_json_says_how_to_write_it(pool: Pool, text: str) -> None:
    with pytest.raises(InvalidZng, match="one object a line"):
        pool.load(io.BytesIO(text.encode()))
    assert list(pool.log()) == []


def test_files_that_cannot_be_read_make_no_commit(pool: Pool, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k\n1\n")
    (tmp_path / "b.parquet").write_text("no parquet")
    (tmp_path / "c.zng").write_bytes(b"\x7f no ZNG")
    (tmp_path / "d.ndjson").write_bytes(b'{"k": "\xff"}\n')
    for name, error in (
        *(("a.csv", InvalidValue), ("b.parquet", InvalidValue), ("c.zng", InvalidZng)),
        *(("d.ndjson", InvalidJson), ("absent.ndjson", InvalidValue)),
    ):
        with pytest.raises(error):
            pool.load(tmp_path / name)
    assert list(pool.log()) == []
