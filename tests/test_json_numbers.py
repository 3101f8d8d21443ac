"""Whole numbers of the log, however a JSON library writes them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake_core.delta import DeltaTable
from lake_core.delta.errors import CorruptCommit, MalformedMetadata, MalformedProtocol
from lake_core.delta.log_segment import commit_key, read_last_checkpoint
from lake_core.delta.version_checksum import read_checksum
from lake_core.json_numbers import loads, with_whole_numbers
from lake_core.store import MemoryStore

FILES = ["path", "partitionValues", "size", "modificationTime", "dataChange", "stats"]
_NUMBER = re.compile(r'("(?:[^"\\]|\\.)*")|(?<![\w.])-?\d+(?![\w.])')
SPELLINGS: dict[str, Callable[[int], str]] = {
    "a fraction": lambda number: f"{number}.0",
    "an exponent": lambda number: f"{number}e0",
    "digits and an exponent": lambda number: (
        f"{str(number)[0]}.{str(number)[1:] or 0}E{len(str(number)) - 1}" if number >= 0 else f"{number}.00"
    ),
    "a negative exponent": lambda number: f"{number}00e-2" if number else "0e-2",
}


def respelled(text: bytes, spell: Callable[[int], str]) -> bytes:
    """Write every whole number of JSON lines in another way. Numbers in texts stay."""
    return _NUMBER.sub(lambda match: match[1] or spell(int(match[0])), text.decode()).encode()


def table_of_every_action(store: MemoryStore) -> DeltaTable:
    properties = {
        "delta.enableChangeDataFeed": "true",
        "delta.enableInCommitTimestamps": "true",
        "delta.columnMapping.mode": "id",
        "delta.checkpointInterval": "100",
    }
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("p", pa.string())])
    table = DeltaTable.create(store, schema, properties=properties, partition_by=["p"])
    rows = pa.table({"id": [1, 2, 3], "x": [1.0, 2.5, None], "p": ["1.0", "2e3", None]})
    table.append(rows, txn=("an app 1.0", 4_611_686_018_427_387_905))
    table.update({"x": "x + 1"}, "id = 1")
    table.delete("id = 2")
    return table


def state(table: DeltaTable) -> list[Any]:
    return [
        table.version,
        table.metadata,
        table.snapshot.protocol,
        table.snapshot.files(FILES).sort_by("path").to_pylist(),
        table.snapshot.tombstones().sort_by("path").to_pylist(),
        table.snapshot.transactions().to_pylist(),
        table.to_arrow().sort_by("id").to_pylist(),
        sorted(map(str, table.changes(1).read_all().to_pylist())),
        [entry["timestamp"] for entry in table.history()],
    ]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_number_of_a_log(spelling: str) -> None:
    store = MemoryStore()
    expected = state(table_of_every_action(store))
    for version in range(4):
        store.put(commit_key(version), respelled(store.get(commit_key(version)), SPELLINGS[spelling]))
    table = DeltaTable.open(store)
    assert state(table) == expected
    assert table.append(pa.table({"id": [9]}), txn=("an app 1.0", 4_611_686_018_427_387_905)).skipped
    assert not table.append(pa.table({"id": [9]}), txn=("an app 1.0", 4_611_686_018_427_387_906)).skipped
    table.add_columns(pa.schema([("later", pa.int64())]))
    assert table.metadata.schema.field("later").metadata["delta.columnMapping.id"] == 4


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_checkpoints_hints_and_checksums(spelling: str) -> None:
    store = MemoryStore()
    table = table_of_every_action(store)
    spell = SPELLINGS[spelling]
    folder = "_delta_log/"
    store.put(f"{folder}_last_checkpoint", respelled(b'{"version":3,"size":7}', spell))
    assert read_last_checkpoint(store) == 3
    protocol, metadata = table.snapshot.protocol.to_json(), table.metadata.to_json()
    checksum = {"numFiles": 2, "tableSizeBytes": 4_611_686_018_427_387_905, "protocol": protocol, "metadata": metadata}
    store.put(f"{folder}{3:020}.crc", respelled(json.dumps(checksum).encode(), spell))
    read = read_checksum(store, 3)
    assert read is not None
    assert (read.num_files, read.size_bytes) == (2, 4_611_686_018_427_387_905)
    assert (read.protocol, read.metadata) == (table.snapshot.protocol, table.metadata)
    before = state(table)[:7]
    actions = [{"checkpointMetadata": {"version": 3}}]
    for version in range(4):
        actions += [json.loads(line) for line in store.get(commit_key(version)).splitlines()]
    kept = [action for action in actions if action.keys() & {"checkpointMetadata", "protocol", "metaData", "txn"}]
    files = [
        {"add": {**row, "partitionValues": dict(row["partitionValues"])}}
        for row in table.snapshot.files(FILES).to_pylist()
    ]
    text = "\n".join(map(json.dumps, kept + files)).encode()
    store.put(f"{folder}{3:020}.checkpoint.0f0f0f0f-0000-4000-8000-000000000000.json", respelled(text, spell))
    store.delete([commit_key(version) for version in range(3)])
    reopened = state_of_files(DeltaTable.open(store))
    assert reopened == [before[0], before[1], before[2], before[5], before[6]]


def state_of_files(table: DeltaTable) -> list[Any]:
    return [
        table.version,
        table.metadata,
        table.snapshot.protocol,
        table.snapshot.transactions().to_pylist(),
        table.to_arrow().sort_by("id").to_pylist(),
    ]


@pytest.mark.parametrize("number", ["710.5", "7e-1", "1e400", "1e999999999", "9223372036854775808.0", "1.0e19"])
@pytest.mark.parametrize("field", ["size", "modificationTime"])
def test_numbers_that_are_not_whole_or_too_large_are_refused(field: str, number: str) -> None:
    store = MemoryStore()
    table_of_every_action(store)
    key = commit_key(1)
    store.put(key, re.sub(rf'"{field}":\d+'.encode(), f'"{field}":{number}'.encode(), store.get(key)))
    begin = time.perf_counter()
    with pytest.raises(CorruptCommit, match=r"00001\.json is not a commit"):
        DeltaTable.open(store).to_arrow()
    assert time.perf_counter() - begin < 2


@pytest.mark.parametrize(
    ("field", "error"), [("minReaderVersion", MalformedProtocol), ("createdTime", MalformedMetadata)]
)
def test_numbers_of_single_actions_that_are_not_whole_are_refused(field: str, error: type[Exception]) -> None:
    store = MemoryStore()
    table_of_every_action(store)
    key = commit_key(0)
    store.put(key, re.sub(rf'"{field}":\d+'.encode(), f'"{field}":1.5'.encode(), store.get(key)))
    with pytest.raises(error):
        DeltaTable.open(store)


JSON = st.recursive(
    st.none() | st.booleans() | st.text() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(value=JSON.filter(lambda value: "Infinity" not in json.dumps(value)))
def test_rewritten_json_means_the_same(value: Any) -> None:
    text = json.dumps(value)
    exact = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    assert json.loads(with_whole_numbers(text.encode()), parse_float=Decimal, parse_int=Decimal) == exact
    assert json.loads(json.dumps(loads(text)), parse_float=Decimal, parse_int=Decimal) == exact
    assert with_whole_numbers(with_whole_numbers(text.encode())) == with_whole_numbers(text.encode())
