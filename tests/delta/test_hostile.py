"""Logs that no sane writer leaves: each is read right or refused with an error of ours, none crashes the process."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.column_mapping import renamed_field
from lake_core.delta.errors import (
    CorruptCheckpoint,
    CorruptCommit,
    DeltaError,
    MalformedAction,
    MalformedMetadata,
    MalformedProtocol,
)
from lake_core.delta.log_segment import checkpoint_key, commit_key
from lake_core.delta.struct_statistics import stats_json
from lake_core.store import MemoryStore
from tests.delta.tables import SCHEMA, ids, rows

NO_ROWS = rows(0, 0)


def _field(name: str, kind: Any = "long", metadata: Any = None) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata or {}}


def _schema(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "struct", "fields": [*fields, _field("p", "string")]})


def _store(
    *, metadata: dict[str, Any] | None = None, protocol: dict[str, Any] | None = None, tail: bytes = b""
) -> MemoryStore:
    """Write a commit that creates a table, with these fields of its actions replaced, and then the commit `tail`."""
    store = MemoryStore()
    DeltaTable.create(store, SCHEMA, partition_by=["p"])
    lines = [json.loads(line) for line in store.get(commit_key(0)).splitlines()]
    for line in lines:
        if "metaData" in line:
            line["metaData"] |= metadata or {}
        if "protocol" in line:
            line["protocol"] |= protocol or {}
    store.put(commit_key(0), "\n".join(map(json.dumps, lines)).encode())
    if tail:
        store.put(commit_key(1), tail)
    return store


def _use(store: MemoryStore) -> None:
    """Run everything that reads a log, including a write, which reads it first."""
    table = DeltaTable.open(store)
    table.files()
    table.to_arrow()
    table.to_arrow(where="id = 1 AND p = 'a'")
    table.history()
    table.txn_version("a")
    table.checkpoint()
    table.append(NO_ROWS.select([child for child in NO_ROWS.column_names if child in table.schema.names]), txn=("b", 1))
    DeltaTable.open(store).to_arrow()


@pytest.mark.parametrize(
    "metadata",
    [
        {"partitionColumns": ["id", ["p"]]},
        {"partitionColumns": [{}]},
        {"partitionColumns": 5},
        {"partitionColumns": "p"},
        {"partitionColumns": ["p", "p"]},
        {"configuration": "a"},
        {"configuration": 5},
        {"configuration": {"a": {"b": 1}}},
        {"format": "parquet"},
        {"format": 5},
        {"format": {"provider": 5}},
        {"format": {"options": 5}},
        {"name": 5},
        {"description": [1]},
        {"createdTime": "x"},
        {"createdTime": 2**70},
        {"schemaString": _schema(_field("x", "decimal(0,0)"))},
        {"schemaString": _schema(_field("x", "decimal(50,3)"))},
        {"schemaString": _schema(_field("x", "decimal(5,9)"))},
        {"schemaString": _schema(_field("x", "decimal(99999999999999999999,2)"))},
        {"schemaString": _schema(_field("x", metadata=5))},
        {"schemaString": _schema(_field("x", metadata=[1]))},
        {"schemaString": _schema(_field("x", metadata="a"))},
        {"schemaString": _schema(_field("\ud800"))},
        {"schemaString": '{"type":' + "9" * 5000 + "}"},
        {"partitionColumns": ["x"], "schemaString": _schema(_field("x", {"type": "array", "elementType": "long"}))},
        {"partitionColumns": ["x"], "schemaString": _schema(_field("x", "void"))},
    ],
)
def test_metadata_is_refused_when_the_table_is_opened(metadata: dict[str, Any]) -> None:
    with pytest.raises(MalformedMetadata):
        DeltaTable.open(_store(metadata=metadata))


def test_properties_that_are_numbers_or_booleans_are_taken_as_their_text() -> None:
    properties = {
        "delta.checkpointInterval": 7,
        "delta.appendOnly": False,
        "delta.dataSkippingNumIndexedCols": 5,
        "x": 0.5,
        "none": None,
    }
    store = _store(metadata={"configuration": properties})
    _use(store)
    expected = {
        "delta.checkpointInterval": "7",
        "delta.appendOnly": "false",
        "delta.dataSkippingNumIndexedCols": "5",
        "x": "0.5",
    }
    assert DeltaTable.open(store).properties == expected


@pytest.mark.parametrize(
    "protocol",
    [
        {"minReaderVersion": True},
        {"minReaderVersion": -1},
        {"minReaderVersion": 1.5},
        {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [["a"]], "writerFeatures": [["a"]]},
        {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": 5, "writerFeatures": []},
        {"minWriterVersion": 7, "writerFeatures": "abc"},
    ],
)
def test_protocols_are_refused_when_the_table_is_opened(protocol: dict[str, Any]) -> None:
    with pytest.raises(MalformedProtocol):
        DeltaTable.open(_store(protocol=protocol))


@pytest.mark.parametrize(
    ("tail", "error"),
    [
        (b"5", CorruptCommit),
        (b'"x"', CorruptCommit),
        (b"[]", CorruptCommit),
        (b'{"lake-orch:version":7}', CorruptCommit),
        (b'{"add":{"path":"\xff","partitionValues":{"p":"a"},"size":1}}', CorruptCommit),
        (b'{"unknown":"\xff"}', CorruptCommit),
        (b'{"txn":{"appId":"a"}}', MalformedAction),
        (b'{"txn":{"appId":"a","version":null}}', MalformedAction),
        (b'{"domainMetadata":{"domain":"a","configuration":5}}', MalformedAction),
    ],
)
def test_lines_are_refused_when_the_table_is_opened(tail: bytes, error: type[DeltaError]) -> None:
    with pytest.raises(error, match=r"1|domain"):
        DeltaTable.open(_store(tail=tail))


@pytest.mark.parametrize("tags", [5, [1], {"a": 5}, {"a": {"b": 1}}, {}])
def test_tags_never_fail_a_checkpoint(tags: Any) -> None:
    add = {
        "path": "f",
        "partitionValues": {"p": "a"},
        "size": 1,
        "modificationTime": 1,
        "dataChange": True,
        "tags": tags,
    }
    store = _store(tail=json.dumps({"add": add}).encode())
    DeltaTable.open(store).checkpoint()
    store.delete([commit_key(0)])
    kept = DeltaTable.open(store).snapshot.files(["path", "tags"]).to_pylist()
    as_text = [("a", json.dumps(tags["a"]))] if isinstance(tags, dict) and tags else None
    assert kept == [{"path": "f", "tags": as_text}]


@pytest.mark.parametrize("metrics", [[1], "x", 5])
def test_operation_metrics_may_be_anything(metrics: Any) -> None:
    lines = [{"commitInfo": {"operationMetrics": metrics, "version": None}}, {"txn": {"appId": "b", "version": 1}}]
    table = DeltaTable.open(_store(tail="\n".join(map(json.dumps, lines)).encode()))
    assert table.append(NO_ROWS, txn=("b", 1)).skipped
    assert [commit["version"] for commit in table.history()] == [1, 0]


def test_column_ids_of_others() -> None:
    child = pa.field("x", pa.int64(), metadata={b"PARQUET:field_id": b"x"})
    assert renamed_field(child, {1: "y"}).name == "\x00x"
    ids_ = [{"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": name} for name in ("x", "y")]
    metadata = {"configuration": {"delta.columnMapping.mode": "id"}, "partitionColumns": []}
    for wrong in (ids_, [ids_[0], ids_[1] | {"delta.columnMapping.id": "2"}]):
        text = json.dumps(
            {
                "type": "struct",
                "fields": [_field(name, metadata=metadata) for name, metadata in zip("ab", wrong, strict=True)],
            }
        )
        store = _store(
            metadata=metadata | {"schemaString": text}, protocol={"minReaderVersion": 2, "minWriterVersion": 5}
        )
        with pytest.raises(MalformedMetadata, match="'b'"):
            DeltaTable.open(store).to_arrow()


def _in_a_process(code: str) -> str:
    """Return what a program prints. Arrow's JSON reader crashes on some texts and would end the test process."""
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
    )
    assert process.returncode == 0, (process.returncode, process.stderr)
    return process.stdout.strip()


def test_statistics_of_null_do_not_crash() -> None:
    out = _in_a_process("""
        import json
        from lake_core.delta import DeltaTable
        from lake_core.delta.log_segment import commit_key
        from lake_core.store import MemoryStore
        from tests.delta.tables import SCHEMA, ids, rows
        store = MemoryStore()
        DeltaTable.create(store, SCHEMA).append(rows(0, 2))
        good = store.get(commit_key(1))
        for stats in ("null", "", " ", "5", "[]", "null {}"):
            lines = [json.loads(line) for line in good.splitlines()]
            for line in lines:
                if "add" in line:
                    line["add"]["stats"] = stats
            store.put(commit_key(1), "\\n".join(map(json.dumps, lines)).encode())
            table = DeltaTable.open(store)
            print(table.files()["num_records"].to_pylist(), ids(table.to_arrow(where="id = 1")))
    """)
    assert out.splitlines() == ["[None] [1]"] * 6


def test_commits_of_null_do_not_crash() -> None:
    """A later block of a long commit may also hold nothing but null."""
    out = _in_a_process("""
        from lake_core.delta import DeltaTable
        from lake_core.delta.errors import CorruptCommit
        from lake_core.delta.log_segment import commit_key
        from lake_core.store import MemoryStore
        from tests.delta.tables import SCHEMA
        for tail in (
            b"null", b"null\\n" * 4_000_000, b"{}\\r" + b"null\\r" * 4_000_000,
            b"\\n \\tnull", b"null {}\\n" * 2_000_000,
        ):
            store = MemoryStore()
            DeltaTable.create(store, SCHEMA)
            store.put(commit_key(1), tail)
            try:
                DeltaTable.open(store)
            except CorruptCommit as error:
                print("00000000000000000001.json" in str(error))
    """)
    assert out.splitlines() == ["True"] * 5


@pytest.mark.parametrize("name", [".a", "a.b", ".", "..", "[0]", "$.x", "a b", "`"])
def test_names_that_look_like_paths(name: str) -> None:
    for partition_by in ([name], []):
        store = MemoryStore()
        nested = pa.struct([(name, pa.int64())])
        schema = pa.schema([(name, pa.string()), ("s", nested), ("x", pa.int64())])
        data = pa.table({name: ["v", "w"], "s": [{name: 1}, {name: 2}], "x": [1, 2]}, schema=schema)
        DeltaTable.create(store, schema, partition_by=partition_by).append(data)
        for _ in range(2):
            table = DeltaTable.open(store)
            assert table.to_arrow().sort_by("x").to_pylist() == data.to_pylist()
            assert table.files(["partition_values"])["partition_values"].to_pylist()[0] in (
                [(name, "v")],
                [(name, "w")],
                [],
            )
            assert len(table.to_arrow(where="s IS NOT NULL AND x > 1")) == 1
            table.checkpoint()


def test_statistics_of_a_column_that_looks_like_a_path() -> None:
    store = MemoryStore()
    schema = pa.schema([pa.field(".a", pa.int64()), pa.field("s", pa.struct([(".b", pa.int64())]))])
    table = DeltaTable.create(store, schema)
    table.append(pa.table({".a": [1], "s": [{".b": 1}]}, schema=schema))
    for where in ("`.a` = 2", "s.`.b` = 2"):
        assert len(DeltaTable.open(store).to_arrow(where=where)) == 0


@pytest.fixture
def checkpointed() -> MemoryStore:
    """Create versions 0 to 4 with a checkpoint at 3."""
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA, partition_by=["p"])
    for number in range(4):
        table.append(rows(number, number + 1), txn=("app", number))
    DeltaTable.open(store, version=3).checkpoint()
    return store


Change = Callable[[pa.Table], pa.Table]


def _within(action: str, name: str, value: Callable[[int], pa.Array] | None) -> Change:
    """Return a change that replaces a field of an action by other values, or drops it."""

    def change(table: pa.Table) -> pa.Table:
        struct = table[action].combine_chunks()
        columns = dict(zip([child.name for child in struct.type], struct.flatten(), strict=True))
        if value is None:
            del columns[name]
        else:
            columns["stats" if name == "stats_parsed" else name] = value(len(table))
        if name == "stats_parsed":
            columns[name] = columns.pop("stats")
        replacement = pa.StructArray.from_arrays(list(columns.values()), names=list(columns), mask=struct.is_null())
        return table.set_column(table.schema.get_field_index(action), action, replacement)

    return change


def _sidecar(path: Any) -> Change:
    kind = pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64())])
    return lambda table: table.append_column(
        "sidecar", pa.array([{"path": path, "sizeInBytes": 1}] + [None] * (len(table) - 1), kind)
    )


def _column(action: str, value: Any) -> Change:
    return lambda table: table.set_column(table.schema.get_field_index(action), action, pa.array([value] * len(table)))


DAMAGES: dict[str, Change] = {
    "size is text": _within("add", "size", lambda n: pa.array(["zz"] * n)),
    "partitionValues is a struct": _within("add", "partitionValues", lambda n: pa.array([{"p": "a"}] * n)),
    "partitionValues is text": _within("add", "partitionValues", lambda n: pa.array(["a"] * n)),
    "no column path": _within("add", "path", None),
    "an add without path": _within("add", "path", lambda n: pa.nulls(n, pa.string())),
    "deletionVector is text": _within("add", "deletionVector", lambda n: pa.array(["x"] * n)),
    "version is text": _within("txn", "version", lambda n: pa.array(["x"] * n)),
    "no column version": _within("txn", "version", None),
    "no column appId": _within("txn", "appId", None),
    "a txn without appId": _within("txn", "appId", lambda n: pa.nulls(n, pa.string())),
    "add is text": _column("add", "x"),
    "txn is a number": _column("txn", 1),
    "metaData is a number": _column("metaData", 1),
    "a sidecar without path": _sidecar(None),
    "a sidecar outside": _sidecar("../../x.parquet"),
    "a sidecar outside, under its folder": _sidecar("_delta_log/_sidecars/../../x.parquet"),
    "a sidecar elsewhere": _sidecar("s3://other/x.parquet"),
    "a sidecar that is no name": _sidecar("a%00b"),
    "a sidecar that is its folder": _sidecar("_delta_log/_sidecars/"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_checkpoints_of_other_columns(checkpointed: MemoryStore, damage: str) -> None:
    table = pq.ParquetFile(pa.BufferReader(checkpointed.get(checkpoint_key(3)))).read()
    sink = pa.BufferOutputStream()
    pq.write_table(DAMAGES[damage](table), sink)
    checkpointed.put(checkpoint_key(3), bytes(sink.getvalue()))

    def use() -> tuple[list[int], int | None]:
        table = DeltaTable.open(checkpointed)
        table.snapshot.tombstones()
        return ids(table.to_arrow()), table.txn_version("none") or table.txn_version("app")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert use() == (list(range(4)), 3)  # the commits are still there
        checkpointed.delete([commit_key(number) for number in range(4)])
        with pytest.raises(CorruptCheckpoint):
            use()


@pytest.mark.parametrize(
    "line",
    [b"[]", b"5", b"null", b'{"a":' * 100_000, b'{"add":5}', b'{"txn":{"appId":5}}', b'{"add":{"path":"\\ud800"}}'],
)
def test_checkpoints_in_json_that_are_none(checkpointed: MemoryStore, line: bytes) -> None:
    checkpointed.put("_delta_log/00000000000000000004.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json", line)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert ids(DeltaTable.open(checkpointed).to_arrow()) == list(range(4))
        checkpointed.delete([*(commit_key(number) for number in range(5)), checkpoint_key(3)])
        with pytest.raises(CorruptCheckpoint):
            DeltaTable.open(checkpointed)


def test_statistics_in_columns_that_json_cannot_hold() -> None:
    far = pa.array([2**62], pa.timestamp("us", tz="UTC"))
    early = pa.array([-62_135_596_800_000_000], pa.timestamp("us", tz="UTC"))
    bounds = pa.StructArray.from_arrays([pa.array([b"\xff"]), pa.array([float("nan")]), early], names=["b", "f", "t"])
    parsed = pa.StructArray.from_arrays([pa.array([1]), bounds], names=["numRecords", "minValues"])
    assert json.loads(stats_json(parsed)[0].as_py()) == {
        "numRecords": 1,
        "minValues": {"t": "0001-01-01T00:00:00.000Z"},
    }
    assert stats_json(pa.StructArray.from_arrays([far], names=["t"])).to_pylist() == ["{}"]
    assert stats_json(pa.array(["x"])).to_pylist() == [None]


def _fuzz(seed: int, seconds: float) -> None:
    command = [sys.executable, "-m", "tests.delta.fuzz_log", str(seed), str(seconds)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False)
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
    assert {name.partition(":")[0] for name in json.loads(process.stdout)} == {"commit", "columns", "pages", "bytes"}


def test_damaged_logs_are_read_right_or_refused() -> None:
    _fuzz(0, 4)


@pytest.mark.stress
@pytest.mark.parametrize("seed", range(1, 5))
def test_damaged_logs_are_read_right_or_refused_at_length(seed: int) -> None:
    _fuzz(seed, 60)
