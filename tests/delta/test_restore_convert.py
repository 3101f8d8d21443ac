"""RESTORE to versions and times, with markers; CONVERT of folders of Parquet files."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import (
    AppendOnlyTable,
    ConcurrentModification,
    ConvertFailed,
    CorruptDataFile,
    DataFileMissing,
    SchemaMismatch,
    TableAlreadyExists,
    UnsupportedType,
    VersionNotFound,
)
from lake_core.delta.scan import plan_scan
from lake_core.errors import LakeError
from lake_core.lake import Lake
from lake_core.store import MemoryStore
from tests.delta.tables import SCHEMA, held, ids, instant, oracle, rows


class Clock:
    """A clock that moves by hand."""

    def __init__(self) -> None:
        self.now = instant("2024-01-01T00:00:00")

    def __call__(self) -> dt.datetime:
        return self.now


def test_to_every_version_and_back(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path, SCHEMA, partition_by=["p"])
    table.append(rows(0, 6))
    table.delete("id = 1")
    table.optimize()
    table.overwrite(rows(50, 52))
    table.append(rows(60, 61))
    last = table.version
    for version in (1, 3, 0, 4, 2, last):
        result = table.restore(version)
        earlier = DeltaTable.open(tmp_path, version=version)
        assert held(table) == held(earlier) == oracle(tmp_path)
        assert set(table.files()["path"].to_pylist()) == set(earlier.files()["path"].to_pylist())
        metrics = result.metrics
        assert metrics["numOfFilesAfterRestore"] == earlier.files().num_rows
        assert metrics["tableSizeAfterRestore"] == sum(earlier.files()["size"].to_pylist())
        assert (
            metrics["numRestoredFiles"] - metrics["numRemovedFiles"]
            == earlier.files().num_rows - DeltaTable.open(tmp_path, version=result.version - 1).files().num_rows
        )
        entry = table.history(1)[0]
        assert (entry["operation"], entry["operationParameters"]) == ("RESTORE", {"version": str(version)})
    assert table.restore(last).version == table.version == last + 6  # nothing differs
    table.checkpoint()
    assert held(DeltaTable.open(tmp_path)) == held(DeltaTable.open(tmp_path, version=last))


@pytest.mark.parametrize("restored", [1, 2])
def test_a_handle_of_the_past_restores_nothing_until_it_is_refreshed(restored: int) -> None:
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA)
    for number in range(4):
        table.append(rows(number, number + 1))
    earlier = DeltaTable.open(store, version=2)
    with pytest.raises(ConcurrentModification, match="refresh the table and run the operation again"):
        earlier.restore(restored)
    earlier.refresh()
    earlier.restore(restored)
    assert held(DeltaTable.open(store)) == held(DeltaTable.open(store, version=restored))


def test_a_table_that_is_as_it_was_needs_no_restore() -> None:
    table = DeltaTable.create(MemoryStore(), SCHEMA)
    table.append(rows(0, 1))
    assert table.restore(1).version == 1


def test_to_a_time() -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    table = DeltaTable.create(store, SCHEMA, clock=clock)
    for number in range(3):
        clock.now += dt.timedelta(hours=1)
        table.append(rows(number, number + 1))
    table.restore(timestamp=instant("2024-01-01T02:30:00"))
    assert ids(table.to_arrow()) == [0, 1]
    table.restore(timestamp="2024-01-01T01:00:00Z")
    assert ids(table.to_arrow()) == [0]
    with pytest.raises(LakeError):
        table.restore(timestamp=instant("2023-01-01T00:00:00"))
    with pytest.raises(ValueError):
        table.restore()
    with pytest.raises(ValueError):
        table.restore(1, "2024-01-01T01:00:00Z")
    with pytest.raises(VersionNotFound):
        table.restore(99)
    assert table.refresh().version == 5


def test_markers_go_back_so_that_what_they_marked_can_run_again() -> None:
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA)
    table.append(rows(0, 1), txn=("load", 1))
    table.append(rows(1, 2), txn=("load", 2))
    table.append(rows(2, 3), txn=("other", 0))
    table.restore(1, txn=("job", 9))
    assert [table.txn_version(name) for name in ("load", "other", "job")] == [1, None, 9]
    assert table.append(rows(0, 1), txn=("load", 1)).skipped
    assert not table.append(rows(1, 2), txn=("load", 2)).skipped
    assert not table.append(rows(2, 3), txn=("other", 0)).skipped
    table.restore(4)
    table.checkpoint()
    again = DeltaTable.open(store)
    assert [again.txn_version(name) for name in ("load", "other", "job")] == [1, None, 9]
    assert ids(again.to_arrow()) == [0]
    again.restore(0)
    assert [again.txn_version(name) for name in ("load", "other", "job")] == [None, None, None]
    assert again.recorded(("load", 0)) is None


def test_markers_that_went_back_are_no_trouble_to_others(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path, SCHEMA)
    table.append(rows(0, 1), txn=("load", 1))
    table.restore(0)
    table.checkpoint()
    other = deltalake.DeltaTable(str(tmp_path))
    assert other.transaction_version("load") in (None, -1)
    properties = deltalake.CommitProperties(app_transactions=[deltalake.Transaction("load", 1)])
    deltalake.write_deltalake(other, rows(0, 1), mode="append", commit_properties=properties)
    assert table.refresh().txn_version("load") == 1


def test_definitions_go_back_protocols_do_not() -> None:
    table = DeltaTable.create(MemoryStore(), SCHEMA, properties={"own": "1"})
    table.append(rows(0, 3))
    table.add_constraint("c", "id < 10")
    table.set_properties({"own": "2", "delta.enableChangeDataFeed": "true"})
    table.add_columns(pa.schema([("n", pa.int64())]))
    table.restore(1)
    assert (table.properties, table.constraints, table.schema.names) == ({"own": "1"}, {}, ["id", "p", "v"])
    assert table.protocol.min_writer_version == 4
    table.append(rows(20, 21))
    table.restore(4)
    assert table.constraints == {"c": "id < 10"}
    assert table.properties["own"] == "2"


def test_clustering_goes_back() -> None:
    table = DeltaTable.create(MemoryStore(), SCHEMA, cluster_by=["id"])
    table.append(rows(0, 3))
    clustered = table.version
    table.append(pa.table({"id": [3], "n": [1]}), schema_mode="merge")
    table.cluster_by(["n"])
    table.restore(clustered)
    assert table.detail().clustering_columns == ("id",)
    table.drop_feature("clustering")
    dropped = table.version
    table.restore(clustered)
    assert table.detail().clustering_columns == ("id",)
    table.restore(dropped)
    assert table.detail().clustering_columns == ()


def test_a_table_that_a_lake_has_released_stays_released(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    for number in (0, 1):
        with lake.session() as session:
            table = session.delta("t") if number else session.create_delta("t", SCHEMA)
            table.append(rows(number, number + 1))
    lake.maintenance.release("t")
    released = DeltaTable.open(tmp_path / "t")
    released.set_properties({"own": "1"})
    released.restore(0)
    released.append(rows(5, 6))
    assert sorted(released.to_arrow()["id"].to_pylist()) == [0, 5]


def test_what_cannot_be_restored() -> None:
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA)
    table.append(rows(0, 3))
    path = table.files()["path"][0].as_py()
    table.overwrite(rows(3, 4))
    stale = DeltaTable.open(store)
    table.append(rows(4, 5))
    with pytest.raises(ConcurrentModification):
        stale.restore(1)
    store.delete([path])
    with pytest.raises(DataFileMissing, match="1 of its data files"):
        table.restore(1)
    table.restore(2)
    table.set_properties({"delta.appendOnly": "true"})
    with pytest.raises(AppendOnlyTable):
        table.restore(0)


def _folder(root: Path, files: dict[str, pa.Table]) -> Path:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(data, path)
    return root


DATA = pa.table({"id": pa.array([1, 2], pa.int32()), "s": ["a", None]})


def test_convert_a_folder_with_partitions(tmp_path: Path) -> None:
    null = "__HIVE_DEFAULT_PARTITION__"
    _folder(
        tmp_path,
        {
            "day=2024-01-01/n=1/k=a%2Fb%20c/x.parquet": DATA,
            "day=1969-12-31/n=-7/k=é/y.PARQUET": DATA.slice(1),
            f"day={null}/n={null}/k=/z.parq": DATA.set_column(0, "id", pa.array([9, 10], pa.int64())),
            "_hidden/x.parquet": DATA,
            ".tmp/y.parquet": DATA,
            "day=2024-01-01/n=1/k=a/_part.parquet": DATA,
        },
    )
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(SchemaMismatch, match="do not fit"):
        DeltaTable.convert(tmp_path)  # int32 first, int64 later
    (tmp_path / f"day={null}/n={null}/k=/z.parq").unlink()
    pq.write_table(
        DATA.select(["s"]).append_column("extra", pa.array([1.5, 2.5])), tmp_path / f"day={null}/n={null}/k=/z.parq"
    )
    table = DeltaTable.convert(tmp_path)
    assert table.version == 0
    assert table.metadata.partition_columns == ("day", "n", "k")
    assert {child.name: child.type for child in table.schema} == {
        "id": pa.int32(),
        "s": pa.string(),
        "extra": pa.float64(),
        "day": pa.date32(),
        "n": pa.int64(),
        "k": pa.string(),
    }
    records = [
        (str(row["day"]), row["n"], row["k"], row["id"], row["s"], row["extra"]) for row in table.to_arrow().to_pylist()
    ]
    assert Counter(map(str, records)) == Counter(
        map(
            str,
            [
                ("2024-01-01", 1, "a/b c", 1, "a", None),
                ("2024-01-01", 1, "a/b c", 2, None, None),
                ("1969-12-31", -7, "é", 2, None, None),
                ("None", None, None, None, "a", 1.5),
                ("None", None, None, None, None, 2.5),
            ],
        )
    )
    assert oracle(tmp_path) == held(table)
    assert table.files()["num_records"].to_pylist()
    assert len(plan_scan(table.snapshot, None, "id = 1").files) <= 2
    entry = table.history(1)[0]
    assert entry["operation"] == "CONVERT"
    assert entry["operationMetrics"]["numConvertedFiles"] == "3"
    table.append(pa.table({"id": pa.array([5], pa.int32()), "k": ["a/b c"]}))
    table.delete("k = 'a/b c'")
    table.optimize()
    assert table.to_arrow().num_rows == 3
    assert oracle(tmp_path) == held(table)
    with pytest.raises(TableAlreadyExists):
        DeltaTable.convert(tmp_path)


def test_convert_with_given_partitions(tmp_path: Path) -> None:
    for number, text in enumerate(("0001", "2")):
        _folder(tmp_path / "a", {f"k={text}/d=2024-01-0{number + 1}/x.parquet": DATA})
    table = DeltaTable.convert(tmp_path / "a")
    assert table.schema.field("k").type == pa.string()  # 0001 as a number would be another value
    partition_schema = pa.schema([("k", pa.int16()), ("d", pa.timestamp("us", "UTC"))])
    _folder(tmp_path / "b", {f"k={text}/d=2024-01-01 00:00:00/x.parquet": DATA for text in ("0001", "2")})
    table = DeltaTable.convert(tmp_path / "b", partition_by=partition_schema)
    assert table.to_arrow(where="k = 1 AND d = TIMESTAMP '2024-01-01 00:00:00Z'").num_rows == 2
    assert oracle(tmp_path / "b") == held(table)
    _folder(tmp_path / "c", {"k=x/a.parquet": DATA})
    with pytest.raises(LakeError):
        DeltaTable.convert(tmp_path / "c", partition_by=pa.schema([("k", pa.int16())]))
    with pytest.raises(SchemaMismatch, match="list of columns"):
        DeltaTable.convert(tmp_path / "c", partition_by="k")
    table = DeltaTable.convert(tmp_path / "c", partition_by=["k"])
    assert table.to_arrow()["k"].to_pylist() == ["x", "x"]


@pytest.mark.parametrize(
    ("files", "error", "text"),
    [
        ({}, ConvertFailed, "no Parquet files"),
        ({"a.parquet": DATA, "k=1/b.parquet": DATA}, ConvertFailed, "partitioned alike"),
        ({"k=1/b.parquet": DATA, "j=1/b.parquet": DATA}, ConvertFailed, "partitioned alike"),
        ({"k=1/k=2/b.parquet": DATA}, ConvertFailed, "twice"),
        ({"ID=1/b.parquet": DATA}, ConvertFailed, "'id' is both in the files"),
        ({"a.parquet": DATA, "b.parquet": DATA.set_column(0, "id", pa.array(["x", "y"]))}, SchemaMismatch, "b.parquet"),
        ({"a.parquet": pa.table({"t": pa.array([1], pa.time64("us"))})}, UnsupportedType, "time64"),
        ({"a.parquet": pa.table({"t": pa.array([1], pa.timestamp("us"))})}, UnsupportedType, "time zone"),
        ({"a.parquet": pa.table({"a": [1], "A": [1]})}, SchemaMismatch, "same name"),
    ],
)
def test_what_cannot_be_converted_stays_a_folder(
    tmp_path: Path, files: dict[str, pa.Table], error: type[Exception], text: str
) -> None:
    _folder(tmp_path, files)
    with pytest.raises(error, match=text):
        DeltaTable.convert(tmp_path)
    assert not (tmp_path / "_delta_log").exists()


def test_convert_names_the_file_that_is_none(tmp_path: Path) -> None:
    _folder(tmp_path, {"a.parquet": DATA})
    for body in (b"", b"PAR1" * 10):
        (tmp_path / "b.parquet").write_bytes(body)
        with pytest.raises(CorruptDataFile, match=r"b\.parquet"):
            DeltaTable.convert(tmp_path)


def test_convert_takes_what_spark_once_wrote(tmp_path: Path) -> None:
    """Files with int96 timestamps, nested columns and no rows are converted."""
    at = dt.datetime(1969, 12, 31, 23, 59, 59, 123456, tzinfo=dt.UTC)
    data = pa.table(
        {
            "at": pa.array([at], pa.timestamp("us", "UTC")),
            "l": [[{"x": 1}, None]],
            "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        }
    )
    pq.write_table(data, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(data.slice(0, 0), tmp_path / "b.parquet", use_deprecated_int96_timestamps=True)
    table = DeltaTable.convert(tmp_path)
    assert table.to_arrow().to_pylist() == data.to_pylist()
    assert sorted(table.files()["num_records"].to_pylist()) == [0, 1]
    table.update({"l": "l"})
    assert table.to_arrow().to_pylist() == data.to_pylist()


def test_convert_names_that_are_encoded(tmp_path: Path) -> None:
    names: list[Any] = ["a b%20c.parquet", "k=1%2B1/50%.parquet", "ü/ö.parquet"]
    for number, name in enumerate(names):
        root = _folder(tmp_path / str(number), {name: DATA})
        table = DeltaTable.convert(root)
        assert table.to_arrow().num_rows == 2
        assert oracle(root) == held(table)
        table.vacuum()
        table.delete("id = 1")
        assert table.to_arrow()["id"].to_pylist() == [2]


MAX_ID = "delta.columnMapping.maxColumnId"


def _id(table: DeltaTable, column: str) -> int:
    return int(table.metadata.schema.field(column).metadata["delta.columnMapping.id"])


@pytest.mark.parametrize("mode", ["name", "id"])
def test_a_column_id_is_never_given_twice(mode: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("a", pa.string())])
    table = DeltaTable.create(MemoryStore(), schema, properties={"delta.columnMapping.mode": mode})
    table.append(pa.table({"id": [1], "a": ["x"]}))
    table.add_columns(pa.schema([("b", pa.int32())]))
    table.append(pa.table({"id": [2], "a": ["y"], "b": pa.array([7], pa.int32())}))
    table.restore(1)
    assert table.properties[MAX_ID] == "3"
    assert table.restore(1).version == table.version == 4
    table.add_columns(pa.schema([("c", pa.int32())]))
    assert _id(table, "c") == 4
    table.overwrite(pa.table({"id": [3], "d": [1.5]}), schema_mode="overwrite")
    assert (_id(table, "id"), _id(table, "d"), table.properties[MAX_ID]) == (1, 5, "5")
    table.restore(3)
    assert (_id(table, "b"), table.properties[MAX_ID]) == (3, "5")
    assert table.to_arrow().to_pylist()[-1].keys() == {"id", "a", "b"}


def test_ids_go_on_after_a_restore_to_a_version_without_column_mapping() -> None:
    table = DeltaTable.create(MemoryStore(), pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    table.set_properties({"delta.columnMapping.mode": "name"})
    table.add_columns(pa.schema([("a", pa.int64())]))
    table.restore(1)
    assert "delta.columnMapping.mode" not in table.properties
    table.set_properties({"delta.columnMapping.mode": "name"})
    assert (_id(table, "id"), table.properties[MAX_ID]) == (3, "3")
    assert table.to_arrow().to_pylist() == [{"id": 1}]
