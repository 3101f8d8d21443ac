"""The change data feed: which rows, from which files, under which schema, and when it is refused."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import (
    ChangeDataFeedDisabled,
    CorruptCommit,
    CorruptDataFile,
    DataFileMissing,
    IncompatibleSchema,
    MalformedAction,
    PathOutsideTable,
    SchemaMismatch,
    VersionNotFound,
)
from lake_core.delta.log_segment import commit_key
from lake_core.delta.schema import StructType, schema_from_arrow, schema_to_json
from lake_core.store import MemoryStore
from tests.delta.tables import SCHEMA, inline_vector, instant, rows

START = instant("2024-01-01T00:00:00")
ENABLED = {"delta.enableChangeDataFeed": "true"}
PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors", "columnMapping", "typeWidening"],
    "writerFeatures": ["deletionVectors", "columnMapping", "typeWidening", "changeDataFeed"],
}


class Log:
    """A table whose commits are written by hand. Version n is put n seconds after START."""

    def __init__(
        self,
        schema: pa.Schema = SCHEMA,
        partition_by: list[str] | None = None,
        properties: dict[str, str] | None = None,
    ) -> None:
        self.version = 0
        self.store = MemoryStore(clock=lambda: START + dt.timedelta(seconds=self.version))
        self.base: dict[str, Any] = {
            "id": "t",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema_to_json(schema_from_arrow(schema)),
            "partitionColumns": partition_by or [],
            "configuration": ENABLED | (properties or {}),
        }
        self.put({"protocol": PROTOCOL}, {"metaData": self.base})

    def put(self, *actions: dict[str, Any]) -> int:
        self.store.put(commit_key(self.version), "\n".join(map(json.dumps, actions)).encode())
        self.version += 1
        return self.version - 1

    def metadata(
        self, schema: pa.Schema | StructType | None = None, configuration: dict[str, str] | None = None, **more: Any
    ) -> dict[str, Any]:
        changed = dict(self.base) | more
        if schema is not None:
            struct_ = schema if isinstance(schema, StructType) else schema_from_arrow(schema)
            changed["schemaString"] = schema_to_json(struct_)
        if configuration is not None:
            changed["configuration"] = configuration
        return {"metaData": changed}

    def file(self, key: str, data: pa.Table) -> int:
        sink = pa.BufferOutputStream()
        pq.write_table(data, sink)
        self.store.put(key, bytes(sink.getvalue()))
        return len(sink.getvalue())

    def add(
        self, key: str, data: pa.Table | None = None, *, gone: list[int] | None = None, **more: Any
    ) -> dict[str, Any]:
        size = self.store.head(key).size if data is None else self.file(key, data)
        body = {
            "path": key,
            "partitionValues": {},
            "size": size,
            "modificationTime": 1,
            "dataChange": True,
            **_vector(gone),
        }
        return {"add": body | more}

    def remove(self, key: str, *, gone: list[int] | None = None, **more: Any) -> dict[str, Any]:
        body = {"path": key, "dataChange": True, "extendedFileMetadata": True, "partitionValues": {}, **_vector(gone)}
        return {"remove": body | more}

    def cdc(self, key: str, data: pa.Table, **more: Any) -> dict[str, Any]:
        return {
            "cdc": {
                "path": key,
                "partitionValues": {},
                "size": self.file(more.pop("at", key), data),
                "dataChange": False,
                **more,
            }
        }

    def changes(self, *args: Any, **options: Any) -> list[tuple[Any, ...]]:
        return _feed_rows(DeltaTable.open(self.store).changes(*args, **options).read_all())


def _vector(gone: list[int] | None) -> dict[str, Any]:
    if gone is None:
        return {}
    return {"deletionVector": inline_vector(gone)}


def _feed_rows(feed: pa.Table) -> list[tuple[Any, ...]]:
    return [(row["_commit_version"], row["_change_type"], row["id"]) for row in feed.to_pylist()]


def test_adds_and_removes_tell_where_no_change_file_does() -> None:
    log = Log()
    log.put(
        log.add("a", rows(0, 2).append_column("_change_type", pa.array(["delete", None]))), log.add("b", rows(2, 3))
    )
    log.put(log.remove("a"), log.add("c", rows(9, 10)))
    log.put(
        log.remove("b", dataChange=False), log.remove("c", dataChange=False), log.add("d", rows(2, 3), dataChange=False)
    )
    log.put(log.add("e", rows(10, 11)))
    feed = DeltaTable.open(log.store).changes(0).read_all()
    assert _feed_rows(feed) == [
        (1, "insert", 0),
        (1, "insert", 1),
        (1, "insert", 2),
        (2, "delete", 0),
        (2, "delete", 1),
        (2, "insert", 9),
        (4, "insert", 10),
    ]
    assert feed.schema == pa.schema(
        [
            *SCHEMA,
            ("_change_type", pa.string()),
            ("_commit_version", pa.int64()),
            ("_commit_timestamp", pa.timestamp("us", tz="UTC")),
        ]
    )
    assert feed["_commit_timestamp"].to_pylist()[3] == START + dt.timedelta(seconds=2)
    assert log.changes(2, 3) == [(2, "delete", 0), (2, "delete", 1), (2, "insert", 9)]
    assert log.changes(3, 3) == []


def test_change_files_alone_tell_where_there_are_any() -> None:
    log = Log()
    data = rows(0, 3).append_column("_change_type", pa.array(["update_preimage", "update_postimage", "delete"]))
    log.put(log.add("a", rows(0, 9)))
    log.put(log.remove("a"), log.add("b", rows(5, 7)), log.cdc("_change_data/x%25y%20z", data, at="_change_data/x%y z"))
    assert log.changes(2) == [(2, "update_preimage", 0), (2, "update_postimage", 1), (2, "delete", 2)]


def test_deletion_vectors_tell_the_rows_that_differ() -> None:
    log = Log()
    log.put(log.add("a", rows(0, 10)), log.add("b", rows(10, 20), gone=[0, 9]))
    log.put(log.remove("a"), log.add("a", gone=[1, 2]))
    log.put(
        log.remove("a", gone=[1, 2]),
        log.add("a", gone=[2, 3, 4]),
        log.remove("b", gone=[0, 9]),
        log.add("b", gone=[0, 9]),
    )
    log.put(log.remove("a", gone=[2, 3, 4]), log.add("a", path="%61"))
    log.put(log.remove("b", gone=[0, 9]))
    assert log.changes(1, 1) == [(1, "insert", number) for number in [*range(10), *range(11, 19)]]
    assert log.changes(2, 2) == [(2, "delete", 1), (2, "delete", 2)]
    assert log.changes(3, 3) == [(3, "delete", 3), (3, "delete", 4), (3, "insert", 1)]
    assert log.changes(4, 4) == [(4, "insert", 2), (4, "insert", 3), (4, "insert", 4)]
    assert log.changes(5, 5) == [(5, "delete", number) for number in range(11, 19)]


def test_columns_and_where() -> None:
    log = Log()
    log.put(log.add("a", rows(0, 4)))
    log.put(log.remove("a"))
    table = DeltaTable.open(log.store)
    for where, expected in (
        ("id > 2", [(1, "insert", 3), (2, "delete", 3)]),
        ("_change_type = 'delete' AND id IN (0, 1)", [(2, "delete", 0), (2, "delete", 1)]),
        ("_commit_version = 1 AND v = 1.5", [(1, "insert", 3)]),
        ("_commit_timestamp > TIMESTAMP '2024-01-01 00:00:01' AND p = 'p1'", [(2, "delete", 1)]),
        ("_change_type = 'delete' OR id = 0", [(1, "insert", 0), *((2, "delete", number) for number in range(4))]),
    ):
        assert log.changes(0, where=where) == expected, where
        assert table.changes(0, columns=["v"], where=where).read_all().num_rows == len(expected)
    change_columns = ["_change_type", "_commit_version", "_commit_timestamp"]
    assert table.changes(0, columns=["V", "_change_type"]).schema.names == ["v", *change_columns]
    assert table.changes(0, columns=[]).read_all().column_names == change_columns
    with pytest.raises(SchemaMismatch, match="nope"):
        table.changes(0, columns=["nope"])


def test_files_of_other_partitions_are_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(partition_by=["p"])
    body = rows(0, 2).drop(["p"])
    recorded = body.append_column("_change_type", pa.array(["delete"] * 2))
    log.put(*(log.add(f"p={p}/{p}", body, partitionValues={"p": p}) for p in "abc"))
    log.put(*(log.cdc(f"_change_data/p={p}/{p}", recorded, partitionValues={"p": p}) for p in "abc"))
    log.put(*(log.remove(f"p={p}/{p}", partitionValues={"p": p}) for p in "abc"))
    asked: list[str] = []
    get = MemoryStore._get
    monkeypatch.setattr(MemoryStore, "_get", lambda self, key, *range_: asked.append(key) or get(self, key, *range_))
    changes = DeltaTable.open(log.store).changes(1, where="p = 'b' AND _change_type != 'x'").read_all()
    assert changes["p"].to_pylist() == ["b"] * 6
    assert [key for key in asked if "p=" in key] == ["p=b/b", "_change_data/p=b/b", "p=b/b"]


def test_removes_without_partition_values() -> None:
    """Old writers leave partition values out of removes. They are read from the version before."""
    log = Log(partition_by=["p"])
    body = rows(0, 1).drop(["p"])
    log.put(*(log.add(f"p={p}/{p}", body, partitionValues={"p": p}) for p in "ab"))
    log.put({"remove": {"path": "p=a/a", "dataChange": True}}, log.remove("p=b/b", partitionValues={"p": "b"}))
    changes = DeltaTable.open(log.store).changes(2, columns=["p"]).read_all()
    assert sorted(changes["p"].to_pylist()) == ["a", "b"]
    assert DeltaTable.open(log.store).changes(2, where="p = 'a'").read_all().num_rows == 1
    log.put({"remove": {"path": "p=x/x", "dataChange": True}})
    with pytest.raises(CorruptCommit, match="partition values"):
        log.changes(3)


def test_it_is_read_version_by_version(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    for number in range(20):
        log.put(log.add(f"f{number}", rows(number, number + 1)))
    asked: list[str] = []
    get = MemoryStore._get
    table = DeltaTable.open(log.store)
    monkeypatch.setattr(MemoryStore, "_get", lambda self, key, *range_: asked.append(key) or get(self, key, *range_))
    reader = table.changes(2)
    assert not [key for key in asked if key.startswith("f")]
    assert reader.read_next_batch()["id"].to_pylist() == [1]
    assert [key for key in asked if key.startswith("f")] == ["f1"]
    asked.clear()
    assert reader.read_all().num_rows == 18


def test_versions_and_timestamps() -> None:
    log = Log()
    for number in range(4):
        log.put(log.add(f"f{number}", rows(number, number + 1)))
    table = DeltaTable.open(log.store)

    def versions(*args: Any) -> list[int]:
        return [row[0] for row in log.changes(*args)]

    def at(seconds: float) -> dt.datetime:
        return START + dt.timedelta(seconds=seconds)

    assert versions(at(2)) == [2, 3, 4]
    assert versions(at(1.5), at(3)) == [2, 3]
    assert versions(at(-10), at(1.999)) == [1]
    assert versions("2024-01-01T00:00:03Z", at(1000)) == [3, 4]
    assert versions(1, at(2)) == [1, 2]
    assert versions(at(1.2), at(1.8)) == []
    assert versions(0, 2) == [1, 2]
    with pytest.raises(VersionNotFound, match="no commit at or after"):
        table.changes(at(4.5))
    with pytest.raises(VersionNotFound, match="no commit at or before"):
        table.changes(0, at(-1))
    for start, end in ((5, None), (0, 5), (-1, None)):
        with pytest.raises(VersionNotFound, match="does not exist"):
            table.changes(start, end)
    with pytest.raises(ValueError, match="after the end"):
        table.changes(3, 2)
    for wrong in (True, 1.0, "yesterday", dt.datetime(2024, 1, 1)):
        with pytest.raises(ValueError, match=r"version|ISO 8601|time zone"):
            table.changes(wrong)  # type: ignore[arg-type]
    assert [row[0] for row in _feed_rows(DeltaTable.open(log.store, version=2).changes(1).read_all())] == [1, 2]
    with pytest.raises(VersionNotFound, match="of this snapshot is 2"):
        DeltaTable.open(log.store, version=2).changes(1, 3)


def test_it_has_to_be_enabled_throughout() -> None:
    log = Log()
    log.put(log.add("a", rows(0, 1)))
    log.put(log.metadata(configuration={}), log.add("b", rows(1, 2)))
    log.put(log.metadata(configuration={"delta.enableChangeDataFeed": "TRUE"}))
    log.put(log.add("c", rows(2, 3)))
    for start, end, version in ((0, 2, 2), (2, 3, 2), (2, 2, 2)):
        with pytest.raises(ChangeDataFeedDisabled, match=f"the changes of version {version} were not recorded"):
            log.changes(start, end)
    reader = DeltaTable.open(log.store).changes(0)
    assert _feed_rows(pa.Table.from_batches([reader.read_next_batch()])) == [(1, "insert", 0)]
    with pytest.raises(ChangeDataFeedDisabled, match="version 2"):
        reader.read_next_batch()
    assert log.changes(0, 1) == [(1, "insert", 0)]
    assert log.changes(3) == [(4, "insert", 2)]


WIDE = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.float64()), ("new", pa.struct([("x", pa.int32())]))])


def test_added_columns_are_null_before() -> None:
    log = Log()
    log.put(log.add("a", rows(0, 1)))
    log.put(
        log.metadata(WIDE), log.add("b", rows(1, 2).append_column("new", pa.array([{"x": 5}], WIDE.field("new").type)))
    )
    feed = DeltaTable.open(log.store).changes(0).read_all()
    assert feed["new"].to_pylist() == [None, {"x": 5}]
    assert DeltaTable.open(log.store).changes(0, 1).schema.names[:3] == ["id", "p", "v"]


@pytest.mark.parametrize(
    ("earlier", "later", "fits"),
    [
        (pa.int16(), pa.int32(), True),
        (pa.int32(), pa.int16(), False),
        (pa.float32(), pa.float64(), True),
        (pa.int32(), pa.float64(), True),
        (pa.int64(), pa.float64(), False),
        (pa.decimal128(5, 2), pa.decimal128(8, 3), True),
        (pa.decimal128(5, 2), pa.decimal128(5, 3), False),
        (pa.int32(), pa.decimal128(12, 2), True),
        (pa.date32(), pa.timestamp("us", tz="UTC"), False),
        (pa.int64(), pa.string(), False),
        (pa.struct([("a", pa.int32())]), pa.struct([("b", pa.int32()), ("a", pa.int64())]), True),
        (pa.struct([("a", pa.int32()), ("b", pa.int32())]), pa.struct([("a", pa.int32())]), False),
        (pa.list_(pa.int16()), pa.list_(pa.int32()), True),
        (pa.list_(pa.int32()), pa.int32(), False),
        (pa.map_(pa.string(), pa.int16()), pa.map_(pa.string(), pa.int32()), True),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.int32(), pa.int32()), False),
    ],
)
def test_types_may_widen_and_nothing_else(earlier: pa.DataType, later: pa.DataType, fits: bool) -> None:
    before, after = (pa.schema([("id", pa.int64()), ("x", kind)]) for kind in (earlier, later))
    log = Log(before)
    log.put(log.add("a", pa.table({"id": [1], "x": pa.nulls(1, earlier)})))
    log.put(log.metadata(after))
    log.put(log.add("b", pa.table({"id": [2], "x": pa.nulls(1, later)})))
    if fits:
        assert log.changes(0) == [(1, "insert", 1), (3, "insert", 2)]
    else:
        with pytest.raises(IncompatibleSchema, match=r"version 0 do not fit the schema of version 3"):
            log.changes(0)
    assert log.changes(2) == [(3, "insert", 2)]


def test_dates_may_become_timestamps_without_a_zone() -> None:
    log = Log(pa.schema([("id", pa.int64()), ("x", pa.date32())]))
    log.put(log.add("a", pa.table({"id": [1], "x": [dt.date(2024, 1, 2)]})))
    log.put(log.metadata(None, schemaString=log.base["schemaString"].replace('"date"', '"timestamp_ntz"')))
    assert DeltaTable.open(log.store).changes(0).read_all()["x"].to_pylist() == [dt.datetime(2024, 1, 2)]


def test_columns_that_come_and_go_in_between() -> None:
    log = Log()
    log.put(log.metadata(WIDE))
    log.put(log.metadata(SCHEMA))
    with pytest.raises(IncompatibleSchema, match="version 1"):
        log.changes(0)
    log.put(log.metadata(SCHEMA, partitionColumns=["p"]))
    with pytest.raises(IncompatibleSchema, match="version 2"):
        log.changes(2)


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns(mode: str) -> None:
    """Columns are found by physical name or id. The change type has neither and is found by its name."""

    def mapped(*names: tuple[str, int]) -> str:
        fields = [
            {
                "name": name,
                "type": "long",
                "nullable": True,
                "metadata": {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"c{number}"},
            }
            for name, number in names
        ]
        return json.dumps({"type": "struct", "fields": fields})

    def data(values: list[int], **more: list[str]) -> pa.Table:
        fields = [pa.field("c1" if mode == "name" else "id", pa.int64(), metadata={"PARQUET:field_id": "1"})]
        fields += [pa.field(name, pa.string()) for name in more]
        return pa.table([values, *more.values()], schema=pa.schema(fields))

    log = Log(properties={"delta.columnMapping.mode": mode})
    log.put(log.metadata(None, schemaString=mapped(("old", 1))))
    log.put(log.add("a", data([1])))
    log.put(
        log.metadata(None, schemaString=mapped(("id", 1), ("_id", 2))), log.cdc("b", data([2], _change_type=["delete"]))
    )
    assert log.changes(1) == [(2, "insert", 1), (3, "delete", 2)]


def test_damage_is_told() -> None:
    log = Log()
    log.put(log.add("a", rows(0, 1)))
    log.put(log.cdc("b", rows(0, 1)))
    with pytest.raises(CorruptDataFile, match="version 2 has rows without _change_type"):
        log.changes(2)
    log.put(log.remove("a"), log.remove("a", gone=[0]))
    with pytest.raises(CorruptCommit, match="two actions"):
        log.changes(3)
    log.put({"cdc": {"size": 1}})
    with pytest.raises(MalformedAction, match="without path"):
        log.changes(4)
    log.put({"cdc": {"path": "../x", "partitionValues": {}, "size": 1}})
    with pytest.raises(PathOutsideTable):
        log.changes(5)
    log.store.delete(["a"])
    with pytest.raises(DataFileMissing, match="the changes of version 1"):
        log.changes(1, 1)
    reader = DeltaTable.open(log.store).changes(0, 1)
    log.store.delete([commit_key(1)])
    with pytest.raises(VersionNotFound, match="cleaned up"):
        reader.read_all()


@pytest.mark.parametrize("name", ["_change_type", "_Commit_Version"])
def test_names_that_the_feed_needs(name: str) -> None:
    log = Log(pa.schema([("id", pa.int64()), (name, pa.string())]))
    with pytest.raises(SchemaMismatch, match=name):
        log.changes(0)
