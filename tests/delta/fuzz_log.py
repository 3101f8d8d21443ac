"""Damages the log of a small table at random; test_hostile runs it in a process of its own, which may crash.

`python -m tests.delta.fuzz_log SEED SECONDS`: prints how many tries were read right and how many were refused, or a
traceback.
"""

from __future__ import annotations

import json
import random
import sys
import time
import traceback
import warnings
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lake_core.delta import DeltaTable
from lake_core.delta.log_segment import checkpoint_key, commit_key
from lake_core.errors import LakeError
from lake_core.store import MemoryStore
from tests.delta.tables import SCHEMA, rows

VERSIONS = 6
CHECKPOINT = 4

JUNK: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    2**63,
    10**400,
    float("nan"),
    "",
    "x",
    "null",
    "{",
    '{"numRecords":',
    "²",
    "\ud800",
    "%FF",
    "../x",
    ".a",
    [],
    [1],
    [["p"]],
    {},
    {"p": None},
    {"p": 5},
    {"a": {"b": [1]}},
]
LINES = [
    b"null",
    b"5",
    b'"x"',
    b"[]",
    b"{}",
    b"",
    b"\xff",
    b"\xef\xbb\xbf{}",
    b'{"add":{"path":"\xff"}}',
    b"null {}",
    b'{"txn":{}}',
]
KINDS = [
    pa.string(),
    pa.int64(),
    pa.float64(),
    pa.bool_(),
    pa.binary(),
    pa.list_(pa.int64()),
    pa.struct([("a", pa.int64())]),
    pa.null(),
]


def table() -> MemoryStore:
    store = MemoryStore()
    delta_table = DeltaTable.create(store, SCHEMA, partition_by=["p"])
    for number in range(VERSIONS):
        delta_table.append(rows(number, number + 1), txn=("app", number))
    DeltaTable.open(store, version=CHECKPOINT).checkpoint()
    return store


def damage_value(random_: random.Random, value: Any) -> Any:
    """Return a JSON value with one of its parts, at some depth, replaced, dropped or doubled."""
    if isinstance(value, dict) and value and random_.random() < 0.85:
        key = random_.choice(list(value))
        if random_.random() < 0.15:
            return {name: part for name, part in value.items() if name != key}
        return value | {key: damage_value(random_, value[key])}
    if isinstance(value, list) and value and random_.random() < 0.85:
        at = random_.randrange(len(value))
        return [*value[:at], damage_value(random_, value[at]), *value[at:][random_.randrange(2) :]]
    if isinstance(value, str) and value[:1] == "{" and random_.random() < 0.85:  # a schema or statistics
        return json.dumps(damage_value(random_, json.loads(value)))
    return random_.choice(JUNK)


def damage_commit(random_: random.Random, data: bytes) -> bytes:
    lines = data.splitlines()
    at = random_.randrange(len(lines))
    match random_.randrange(8):
        case 0:
            lines.insert(at, random_.choice(LINES))
        case 1:
            lines[at] = random_.choice(LINES)
        case 2:
            broken = bytearray(lines[at])
            broken[random_.randrange(len(broken))] = random_.randrange(256)
            lines[at] = bytes(broken)
        case 3:
            lines[at] = lines[at][: random_.randrange(len(lines[at]))]
        case _:
            lines[at] = json.dumps(damage_value(random_, json.loads(lines[at]))).encode()
    return random_.choice([b"\n", b"\r\n", b"\n\n"]).join(lines)


def damage_columns(random_: random.Random, data: bytes) -> bytes:
    """Return the checkpoint with a column of another type, without a column, or with values missing."""
    whole = pq.ParquetFile(pa.BufferReader(data)).read()
    at = random_.randrange(whole.num_columns)
    struct = whole.column(at).combine_chunks()
    fields, arrays = list(struct.type), struct.flatten()
    inner = random_.randrange(len(fields))
    kind = random_.choice(KINDS)
    match random_.randrange(5):
        case 0:
            return _parquet(whole.set_column(at, whole.field(at).name, _filled(kind, len(whole))))
        case 1:
            arrays[inner] = _filled(kind, len(whole))
        case 2:
            arrays[inner] = pa.nulls(len(whole), fields[inner].type)
        case 3:
            del fields[inner], arrays[inner]
        case _:
            return _parquet(whole.append_column("sidecar", _filled(pa.struct([("path", kind)]), len(whole))))
    damaged = pa.StructArray.from_arrays(arrays, names=[child.name for child in fields], mask=struct.is_null())
    return _parquet(whole.set_column(at, whole.field(at).name, damaged))


def damage_pages(random_: random.Random, data: bytes) -> bytes:
    """Damage bytes outside the footer, which no checksum guards."""
    footer = int.from_bytes(data[-8:-4], "little") + 8
    return damage_bytes(random_, data[:-footer]) + data[-footer:]


def damage_bytes(random_: random.Random, data: bytes) -> bytes:
    broken = bytearray(data)
    for _ in range(random_.choice([1, 1, 3, 30])):
        broken[random_.randrange(len(broken))] = random_.randrange(256)
    return bytes(broken[: random_.randrange(len(broken))]) if random_.random() < 0.1 else bytes(broken)


def _filled(kind: pa.DataType, count: int) -> pa.Array:
    return pa.array([_value(kind)] * count, kind)


def _value(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return {child.name: _value(child.type) for child in kind}
    samples = {"string": "x", "int64": 7, "double": 0.5, "bool": True, "binary": b"\xff", "null": None}
    return [1] if pa.types.is_list(kind) else samples[str(kind)]


def _parquet(data: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(data, sink)
    return bytes(sink.getvalue())


def look(store: MemoryStore, expected: list[dict[str, Any]], *, exact: bool) -> str:
    """Read the table in every way.

    Returns what came of it; anything but right rows or a LakeError is an assertion or comes through.
    """
    try:
        opened = DeltaTable.open(store)
        opened.files()
        opened.txn_version("app")
        opened.history()
        opened.to_arrow(where="id = 1 AND p = 'p1' AND v > 0")
        got = opened.to_arrow().to_pylist()
    except LakeError as error:
        return type(error).__name__
    if exact:
        assert sorted(got, key=lambda row: row["id"]) == expected, "other rows"
    else:
        # A changed commit may remove files or name another partition, but the rows inside files stay the same.
        values = {row["id"]: row["v"] for row in expected}
        assert all(row.get("id") is None or values[row["id"]] == row.get("v", values[row["id"]]) for row in got), (
            "other rows"
        )
    return "right"


def run(seed: int, seconds: float) -> Counter[str]:
    random_ = random.Random(seed)
    whole = table()
    commits = {number: bytes(whole.get(commit_key(number))) for number in range(VERSIONS + 1)}
    checkpoint = bytes(whole.get(checkpoint_key(CHECKPOINT)))
    expected = rows(0, VERSIONS).to_pylist()
    counts: Counter[str] = Counter()
    end = time.monotonic() + seconds
    warnings.simplefilter("ignore")
    tries = 0
    while time.monotonic() < end:
        tries += 1
        number = random_.randrange(VERSIONS + 1)
        how = random_.choice(["commit", "columns", "pages", "bytes"])
        key = commit_key(number) if how == "commit" else checkpoint_key(CHECKPOINT)
        good = commits[number] if how == "commit" else checkpoint
        bad = {"commit": damage_commit, "columns": damage_columns, "pages": damage_pages, "bytes": damage_bytes}[how](
            random_, good
        )
        whole.put(key, bad)
        # A damaged checkpoint cannot be replaced without the commits before it.
        alone = random_.random() < 0.5
        if alone and how != "commit":
            whole.delete([commit_key(number) for number in range(CHECKPOINT)])
        elif how == "commit" and random_.random() < 0.7:
            whole.delete([checkpoint_key(CHECKPOINT)])
        try:
            outcome = look(whole, expected, exact=how == "pages")
            assert outcome == "right" or how != "pages" or alone, f"{outcome}, although the commits tell all"
            counts[f"{how}: {outcome}"] += 1
        except Exception:
            print(f"try {tries} of seed {seed}: {how} {bad[:4000]!r}")
            raise
        for version, data in commits.items():
            whole.put(commit_key(version), data)
        whole.put(checkpoint_key(CHECKPOINT), checkpoint)
    return counts


if __name__ == "__main__":
    import faulthandler

    faulthandler.enable()
    try:
        print(json.dumps(run(int(sys.argv[1]), float(sys.argv[2]))))
    except Exception:
        traceback.print_exc(file=sys.stdout)
        sys.exit(1)
