"""What a table does for its user: create, append, overwrite, travel, refuse."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.conform import EmptyPartitionValueWarning
from lake_core.delta.errors import (
    ConcurrentAppend,
    ConcurrentDeleteRead,
    ConcurrentTransaction,
    ConstraintViolation,
    DuplicateKeys,
    InvalidProperty,
    InvalidTransaction,
    MetadataChanged,
    RowsOutsidePredicate,
    SchemaMismatch,
    TableAlreadyExists,
    TableNotFound,
    UnsupportedType,
    UnsupportedWriterFeature,
    VersionNotFound,
)
from lake_core.delta.log_segment import commit_key
from lake_core.delta.operation import Operation
from lake_core.errors import LakeError
from lake_core.expression import InvalidExpression
from lake_core.store import MemoryStore
from tests.delta.tables import SCHEMA, ids, instant, rows


@pytest.fixture
def table(store: MemoryStore) -> DeltaTable:
    return DeltaTable.create(store, SCHEMA, partition_by=["p"])


def test_create_writes_protocol_1_2_with_commit_info_first(store: MemoryStore, table: DeltaTable) -> None:
    lines = [json.loads(line) for line in store.get("_delta_log/00000000000000000000.json").splitlines()]
    assert [next(iter(line)) for line in lines] == ["commitInfo", "protocol", "metaData"]
    assert lines[1] == {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    assert lines[2]["metaData"]["partitionColumns"] == ["p"]
    assert lines[0]["commitInfo"]["txnId"]
    assert (table.version, table.schema, table.metadata.partition_columns) == (0, SCHEMA, ("p",))
    assert table.is_blank


def test_a_table_without_partitions_may_be_asked_for_by_none() -> None:
    table = DeltaTable.create(MemoryStore(), SCHEMA, partition_by=None)
    assert table.snapshot.metadata.partition_columns == ()


def test_create_again(store: MemoryStore, table: DeltaTable) -> None:
    with pytest.raises(TableAlreadyExists):
        DeltaTable.create(store, SCHEMA, partition_by=["p"])
    again = DeltaTable.create(store, SCHEMA, partition_by=["p"], exist_ok=True)
    assert again.metadata.id == table.metadata.id
    with pytest.raises(SchemaMismatch, match="partitioned by"):
        DeltaTable.create(store, SCHEMA, exist_ok=True)
    with pytest.raises(SchemaMismatch, match="another schema"):
        DeltaTable.create(store, SCHEMA.remove(2), partition_by=["p"], exist_ok=True)


def test_absent_tables(store: MemoryStore) -> None:
    assert not DeltaTable.exists(store)
    with pytest.raises(TableNotFound):
        DeltaTable.open(store)


def test_a_table_is_opened_by_its_constructor(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path, SCHEMA).append(rows(0, 3))
    assert DeltaTable(str(tmp_path)).version == 1
    assert DeltaTable(tmp_path, version=0).version == 0
    assert ids(DeltaTable(tmp_path).to_arrow()) == [0, 1, 2]
    with pytest.raises(TableNotFound, match=r"DeltaTable\.create"):
        DeltaTable(tmp_path / "nowhere")


def test_rows_are_read_into_pandas_and_polars(table: DeltaTable) -> None:
    table.append(rows(0, 3))
    assert table.to_pandas(["id"], "id > 0")["id"].tolist() == [1, 2]
    assert table.to_polars(["id"], "id > 0")["id"].to_list() == [1, 2]


def test_a_table_is_opened_without_pandas(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path, SCHEMA).append(rows(0, 3))
    code = (
        f"import sys; from lake_core.delta import DeltaTable; assert DeltaTable.open({str(tmp_path)!r}).version == 1; "
        "sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_missing_library_is_named(table: DeltaTable, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(LakeError, match=f"needs {library}, which is not installed: install it, or use to_arrow"):
        getattr(table, f"to_{library}")()


def test_tables_and_rows_have_columns(store: MemoryStore, table: DeltaTable) -> None:
    with pytest.raises(SchemaMismatch, match="a table needs at least one"):
        DeltaTable.create(MemoryStore(), pa.schema([]))
    for write in (table.append, table.overwrite):
        with pytest.raises(SchemaMismatch, match="the data has no columns"):
            write(pa.table({}))
    assert table.refresh().version == 0


def test_append_read_and_travel(store: MemoryStore, table: DeltaTable) -> None:
    first = table.append(rows(0, 10))
    assert (first.version, first.skipped, first.rows, first.files) == (1, False, 10, 3)
    table.append(rows(10, 15))
    assert ids(table.to_arrow()) == list(range(15))
    assert table.to_arrow().schema == SCHEMA
    assert ids(DeltaTable.open(store, version=1).to_arrow()) == list(range(10))
    with pytest.raises(VersionNotFound, match="the latest is 2"):
        DeltaTable.open(store, version=3)
    assert table.to_arrow(columns=["v", "p"], where="id = 4").to_pylist() == [{"v": 2.0, "p": "p1"}]
    assert [entry["version"] for entry in table.history()] == [2, 1, 0]
    assert table.history(1)[0]["isBlindAppend"] is True


def test_files_tell_what_the_log_holds(table: DeltaTable) -> None:
    result = table.append(rows(0, 9))
    files = table.files()
    assert files.column_names == ["path", "size", "modification_time", "partition_values", "num_records", "stats"]
    assert files["num_records"].to_pylist() == [3, 3, 3]
    assert sum(files["size"].to_pylist()) == result.bytes
    assert sorted(dict(values)["p"] for values in files["partition_values"].to_pylist()) == ["p0", "p1", "p2"]
    assert all(
        table.store.head(path).size == size
        for path, size in zip(*files.select(["path", "size"]).to_pydict().values(), strict=True)
    )
    assert table.files(["num_records", "path"]).column_names == ["num_records", "path"]
    with pytest.raises(SchemaMismatch, match="no column 'rows'"):
        table.files(["rows"])


def test_overwrite_of_the_whole_table(table: DeltaTable) -> None:
    table.append(rows(0, 10))
    table.overwrite(rows(50, 52))
    assert ids(table.to_arrow()) == [50, 51]
    table.overwrite(SCHEMA.empty_table())
    assert table.to_arrow().num_rows == 0


def test_overwrite_of_a_partition_touches_only_it(table: DeltaTable) -> None:
    table.append(rows(0, 9))
    table.overwrite(rows(100, 101, parts=1), where="p = 'p0'")
    assert ids(table.to_arrow()) == [1, 2, 4, 5, 7, 8, 100]
    table.overwrite(SCHEMA.empty_table(), where="p IN ('p1')")
    assert ids(table.to_arrow()) == [2, 5, 8, 100]


def test_overwrite_refuses_rows_outside_its_predicate(store: MemoryStore, table: DeltaTable) -> None:
    table.append(rows(0, 9))
    with pytest.raises(RowsOutsidePredicate, match="2 of 3 rows"):
        table.overwrite(rows(0, 3), where="p = 'p0'")
    nulls = pa.table({"id": [1], "p": [None], "v": [None]}, schema=SCHEMA)
    with pytest.raises(RowsOutsidePredicate):
        table.overwrite(nulls, where="p = 'p0'")
    with pytest.raises(RowsOutsidePredicate, match="2 of 3 rows"):
        table.overwrite(rows(0, 3), where="id = 1")
    with pytest.raises(InvalidExpression):
        table.overwrite(rows(0, 3), where="p = p0")
    with pytest.raises(InvalidExpression):
        table.overwrite(rows(0, 3), where="")
    assert table.refresh().version == 1
    assert ids(DeltaTable.open(store).to_arrow()) == list(range(9))


def test_empty_partition_strings_are_null(table: DeltaTable) -> None:
    with pytest.warns(EmptyPartitionValueWarning, match="column 'p' has empty texts"):
        table.append(pa.table({"id": [1, 2], "p": ["", None], "v": [1.0, 2.0]}, schema=SCHEMA))
    assert table.to_arrow()["p"].to_pylist() == [None, None]
    assert ids(table.to_arrow(where="p IS NULL")) == [1, 2]
    table.overwrite(pa.table({"id": [3], "p": [""], "v": [1.0]}, schema=SCHEMA), where="p IS NULL")
    assert ids(table.to_arrow()) == [3]


def test_a_marker_makes_a_write_happen_once(store: MemoryStore, table: DeltaTable) -> None:
    first = table.append(rows(0, 5), txn=("load", 7))
    again = DeltaTable.open(store).append(rows(0, 5), txn=("load", 7))
    assert again == replace(first, skipped=True)
    assert (again.version, again.rows) == (1, 5)
    older = table.append(rows(5, 9), txn=("load", 6))
    assert (older.skipped, older.rows) == (True, None)
    assert not table.append(rows(5, 7), txn=("load", 8)).skipped
    assert not table.append(rows(7, 8), txn=("other", 7)).skipped
    assert ids(table.to_arrow()) == list(range(8))
    assert (table.txn_version("load"), table.txn_version("other"), table.txn_version("nobody")) == (8, 7, None)
    assert DeltaTable.open(store, version=1).txn_version("load") == 7


def test_a_marker_is_seen_by_a_stale_handle(store: MemoryStore, table: DeltaTable) -> None:
    stale = DeltaTable.open(store)
    table.append(rows(0, 5), txn=("load", 1))
    result = stale.overwrite(rows(0, 5), txn=("load", 1))
    assert (result.skipped, result.version, stale.version) == (True, 1, 1)


@pytest.mark.parametrize(
    "txn", [("", 1), ("a", -1), ("a", True), ("a", 1.5), ("a",), "ab3", (1, 1), ("a", 2**63), ("\ud800", 1)]
)
def test_bad_markers_are_refused(table: DeltaTable, txn: object) -> None:
    with pytest.raises(InvalidTransaction):
        table.append(rows(0, 1), txn=txn)  # type: ignore[arg-type]
    assert table.refresh().version == 0


def test_appends_follow_one_another_and_overwrites_do_not(store: MemoryStore, table: DeltaTable) -> None:
    stale, whole, part, elsewhere = (DeltaTable.open(store) for _ in range(4))
    table.append(rows(0, 1, parts=1))  # into p0
    assert stale.append(rows(1, 2)).version == 2
    with pytest.raises(ConcurrentAppend) as caught:
        whole.overwrite(rows(5, 6))
    assert caught.value.version == 1
    with pytest.raises(ConcurrentAppend):
        part.overwrite(rows(6, 7, parts=1), where="p = 'p0'")
    elsewhere.overwrite(pa.table({"id": [9], "p": ["p9"], "v": [0.0]}, schema=SCHEMA), where="p = 'p9'")
    assert ids(table.refresh().to_arrow()) == [0, 1, 9]


def test_two_overwrites_of_one_partition_conflict(store: MemoryStore, table: DeltaTable) -> None:
    table.append(rows(0, 3))
    stale, cleared = DeltaTable.open(store), DeltaTable.open(store)
    cleared.overwrite(SCHEMA.empty_table(), where="p = 'p0'")
    with pytest.raises(ConcurrentDeleteRead):
        stale.overwrite(rows(3, 4, parts=1), where="p = 'p0'")
    assert ids(table.refresh().to_arrow()) == [1, 2]


def test_two_writers_of_one_application_do_not_both_win(store: MemoryStore, table: DeltaTable) -> None:
    stale = DeltaTable.open(store)
    base = stale.snapshot
    table.append(rows(0, 1), txn=("app", 1))
    from lake_core.delta.action import SetTransaction
    from lake_core.delta.transaction import commit

    with pytest.raises(ConcurrentTransaction):
        commit(Operation("WRITE", base=base, transaction=SetTransaction("app", 2, 0)), 0)
    settled = commit(Operation("WRITE", base=base, transaction=SetTransaction("app", 1, 0)), 0)
    assert settled.already_recorded
    assert settled.version == 1


def test_a_metadata_change_stops_whoever_planned_before_it(store: MemoryStore, table: DeltaTable) -> None:
    from lake_core.delta.transaction import commit

    stale = DeltaTable.open(store)
    commit(Operation("SET TBLPROPERTIES", base=table.snapshot, metadata=table.metadata), 0)
    with pytest.raises(MetadataChanged):
        stale.append(rows(0, 1))
    assert stale.refresh().append(rows(0, 1)).version == 2


def test_bad_rows_are_refused_before_anything_is_written(store: MemoryStore) -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int32()), pa.field("s", pa.string())]
    )
    table = DeltaTable.create(store, schema)
    before = [meta.key for meta in store.list()]
    bad = [
        (pa.table({"id": [1], "zz": [1]}), SchemaMismatch, "zz"),
        (pa.table({"n": pa.array([1], pa.int32())}), SchemaMismatch, "'id'"),
        (pa.table({"id": [1], "n": pa.array([1], pa.int64())}), SchemaMismatch, "'n'"),
        (pa.table({"id": [1], "s": [1]}), SchemaMismatch, "'s'"),
        (pa.table({"id": [1], "ID": [1]}), SchemaMismatch, "same name"),
        (pa.table({"id": [1], "s": [dt.datetime(2020, 1, 1)]}), UnsupportedType, "time zone"),
        (pa.table({"id": pa.array([None, 1], pa.int64())}), ConstraintViolation, "NOT NULL"),
        ([{"id": 1}], SchemaMismatch, "list"),
    ]
    for data, error, text in bad:
        with pytest.raises(error, match=text):
            table.append(data)  # type: ignore[arg-type]
    assert [meta.key for meta in store.list()] == before


def test_case_and_order_of_columns_do_not_matter_and_missing_ones_are_null(store: MemoryStore) -> None:
    table = DeltaTable.create(store, SCHEMA)
    table.append(pa.table({"V": [1.5], "Id": pa.array([1], pa.int16())}))
    assert table.to_arrow().to_pylist() == [{"id": 1, "p": None, "v": 1.5}]


def test_types_in_and_out(store: MemoryStore) -> None:
    nested = pa.struct([pa.field("x", pa.int64()), pa.field("tags", pa.list_(pa.string()))])
    schema = pa.schema(
        [
            ("u8", pa.uint8()),
            ("u64", pa.uint64()),
            ("half", pa.float16()),
            ("text", pa.large_string()),
            ("view", pa.string_view()),
            ("kind", pa.dictionary(pa.int8(), pa.string())),
            ("fixed", pa.binary(2)),
            ("price", pa.decimal128(12, 3)),
            ("day", pa.date32()),
            ("at", pa.timestamp("ns", tz="America/New_York")),
            ("list", pa.large_list(pa.int8())),
            ("map", pa.map_(pa.string(), nested)),
            ("flag", pa.bool_()),
        ]
    )
    at = dt.datetime(2020, 5, 1, 12, 30, 1, 999999, tzinfo=dt.UTC)
    row = {
        "u8": 255,
        "u64": 2**64 - 1,
        "half": 0.5,
        "text": "é",
        "view": "v",
        "kind": "k",
        "fixed": b"ab",
        "price": Decimal("1.250"),
        "day": dt.date(1, 1, 1),
        "at": at,
        "list": [1, None],
        "map": [("k", {"x": 1, "tags": ["t"]}), ("n", None)],
        "flag": True,
    }
    data = pa.table(
        {name: pa.array([row[name], None], kind) for name, kind in zip(schema.names, schema.types, strict=True)},
        schema=schema,
    )
    table = DeltaTable.create(store, schema)
    table.append(data)
    table.append(data.slice(1, 1))
    read = table.to_arrow()
    assert read.schema.field("at").type == pa.timestamp("us", tz="UTC")
    assert read.schema.field("u64").type == pa.decimal128(20, 0)
    got = read.to_pylist()
    assert got[0] == {**row, "u64": Decimal(2**64 - 1)}
    assert got[1] == dict.fromkeys(schema.names) == got[2]


def test_nanoseconds_pass_only_when_exact(store: MemoryStore) -> None:
    table = DeltaTable.create(store, pa.schema([("at", pa.timestamp("us", tz="UTC"))]))
    with pytest.raises(SchemaMismatch, match="'at'"):
        table.append(pa.table({"at": pa.array([1], pa.timestamp("ns", tz="UTC"))}))
    table.append(pa.table({"at": pa.array([1000], pa.timestamp("ns", tz="UTC"))}))
    assert table.to_arrow()["at"][0].value == 1


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int32(), [1, -5, None]),
        (pa.float64(), [0.1, -0.0, float("inf"), None]),
        (pa.decimal128(10, 2), [Decimal("-1.50"), Decimal("0.00"), None]),
        (pa.bool_(), [True, False, None]),
        (pa.date32(), [dt.date(1969, 12, 31), dt.date(9999, 1, 1), None]),
        (pa.timestamp("us", tz="UTC"), [instant("2020-01-01T00:00:00.123456"), instant("1850-06-01T01:02:03"), None]),
        (pa.string(), ["a/b", "x=y", "50%", "a b", "é😀", "'", '"', "\\", "a:b", "..", "#?&+", "\x7f", None]),
        (pa.binary(), ["\x00é".encode(), b"a", None]),
    ],
)
def test_partition_values_of_every_type(store: MemoryStore, kind: pa.DataType, values: list[object]) -> None:
    schema = pa.schema([("id", pa.int64()), ("p", kind)])
    table = DeltaTable.create(store, schema, partition_by=["p"])
    table.append(pa.table({"id": list(range(len(values))), "p": pa.array(values, kind)}, schema=schema))
    reopened = DeltaTable.open(store)
    assert sorted(zip(*reopened.to_arrow().to_pydict().values(), strict=True)) == list(enumerate(values))
    reopened.checkpoint()
    assert sorted(zip(*DeltaTable.open(store).to_arrow().to_pydict().values(), strict=True)) == list(enumerate(values))


@pytest.mark.parametrize(
    ("properties", "feature"),
    [
        ({"delta.feature.icebergWriterCompatV1": "supported"}, "icebergWriterCompatV1"),
        ({"delta.feature.collations": "supported"}, "collations"),
    ],
)
def test_features_that_are_not_written_are_refused_by_name(
    store: MemoryStore, properties: dict[str, str], feature: str
) -> None:
    with pytest.raises(UnsupportedWriterFeature) as caught:
        DeltaTable.create(store, SCHEMA, properties=properties)
    assert caught.value.feature == feature
    assert not DeltaTable.exists(store)


@pytest.mark.parametrize(
    "properties",
    [
        {"delta.checkpointInterval": "0"},
        {"delta.checkpointInterval": "ten"},
        {"delta.deletedFileRetentionDuration": "a while"},
        {"delta.deletedFileRetentionDuration": "interval 1 month"},
        {"delta.dataSkippingNumIndexedCols": "-2"},
        {"x": 1},
    ],
)
def test_bad_properties_are_refused(store: MemoryStore, properties: dict[str, str]) -> None:
    with pytest.raises(InvalidProperty):
        DeltaTable.create(store, SCHEMA, properties=properties)


def test_unknown_properties_are_kept(store: MemoryStore) -> None:
    table = DeltaTable.create(store, SCHEMA, properties={"owner": "me", "delta.checkpointInterval": "3"})
    for number in range(4):
        table.append(rows(number, number + 1))
    assert table.properties == DeltaTable.open(store).properties == {"owner": "me", "delta.checkpointInterval": "3"}
    assert store.exists("_delta_log/00000000000000000003.checkpoint.parquet")
    assert json.loads(store.get("_delta_log/_last_checkpoint"))["version"] == 3


@pytest.mark.parametrize(
    ("schema", "partition_by", "error"),
    [
        (SCHEMA, ["nope"], SchemaMismatch),
        (SCHEMA, ["p", "p"], SchemaMismatch),
        (SCHEMA, ["id", "p", "v"], SchemaMismatch),
        (SCHEMA, "p", SchemaMismatch),
        (pa.schema([("a", pa.int8()), ("A", pa.int8())]), [], SchemaMismatch),
        (pa.schema([("a", pa.int8()), ("", pa.int8())]), [], SchemaMismatch),
        (pa.schema([("a", pa.list_(pa.int8())), ("b", pa.int8())]), ["a"], SchemaMismatch),
        (pa.schema([("a", pa.null())]), [], UnsupportedType),
        (pa.schema([("a", pa.duration("s"))]), [], UnsupportedType),
        (pa.schema([("a", pa.timestamp("us"))]), [], UnsupportedType),
        (pa.schema([("a", pa.decimal256(50, 2))]), [], UnsupportedType),
    ],
)
def test_schemas_without_a_place_in_delta_are_refused(
    store: MemoryStore, schema: pa.Schema, partition_by: list[str], error: type
) -> None:
    with pytest.raises(error):
        DeltaTable.create(store, schema, partition_by=partition_by)
    assert not list(store.list())


def test_streams_are_written_without_being_held(store: MemoryStore) -> None:
    table = DeltaTable.create(store, SCHEMA)
    batches = (batch for start in range(0, 100, 10) for batch in rows(start, start + 10).to_batches())
    result = table.append(pa.RecordBatchReader.from_batches(SCHEMA, batches))
    assert (result.rows, result.files) == (100, 1)
    assert ids(table.to_arrow()) == list(range(100))


def test_column_comments_survive(store: MemoryStore) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), metadata={"comment": "the key"}), pa.field("p", pa.string())])
    DeltaTable.create(store, schema)
    reopened = DeltaTable.open(store)
    assert reopened.metadata.schema.field("id").metadata == {"comment": "the key"}
    other = DeltaTable.create(MemoryStore(), reopened.schema)
    assert other.metadata.schema == reopened.metadata.schema


def test_the_clock_is_the_callers(store: MemoryStore) -> None:
    table = DeltaTable.create(store, SCHEMA, clock=lambda: dt.datetime(2001, 2, 3, tzinfo=dt.UTC))
    table.append(rows(0, 1), txn=("a", 1))
    moment = int(dt.datetime(2001, 2, 3, tzinfo=dt.UTC).timestamp() * 1000)
    timestamps = [
        json.loads(store.get(commit_key(version)).splitlines()[0])["commitInfo"]["timestamp"] for version in (0, 1)
    ]
    assert timestamps == [moment, moment]
    assert table.files()["modification_time"].to_pylist() == [moment]
    assert DeltaTable.open(store).snapshot.transactions()["lastUpdated"].to_pylist() == [moment]
    with pytest.raises(ValueError, match="time zone"):
        DeltaTable.open(store, clock=lambda: dt.datetime(2001, 2, 3)).append(rows(0, 1))


def test_a_table_on_local_files(tmp_path: Path) -> None:
    folder = tmp_path / "a table ü"
    table = DeltaTable.create(folder, SCHEMA, partition_by=["p"])
    table.append(rows(0, 3))
    assert DeltaTable.exists(str(folder))
    assert ids(DeltaTable.open(str(folder)).to_arrow()) == [0, 1, 2]
    assert all((folder / path).is_file() for path in table.files()["path"].to_pylist())


def test_partition_values_that_make_poor_folder_names(tmp_path: Path) -> None:
    import deltalake

    values = ["e\u0301", "\u00e9", "\u0085", "\u2028", "x" * 300, "y" * 300 + "é", "\u3000 \u00a0"]
    schema = pa.schema([("id", pa.int64()), ("p\u0301", pa.string())])
    table = DeltaTable.create(tmp_path, schema, partition_by=["p\u0301"])
    table.append(pa.table({"id": list(range(len(values))), "p\u0301": values}, schema=schema))
    assert sorted(zip(*DeltaTable.open(tmp_path).to_arrow().to_pydict().values(), strict=True)) == list(
        enumerate(values)
    )
    result = (
        deltalake.QueryBuilder()
        .register("t", deltalake.DeltaTable(str(tmp_path)))
        .execute("select * from t")
        .read_all()
    )
    assert sorted(zip(*pa.table(result).to_pydict().values(), strict=True)) == list(enumerate(values))


@pytest.mark.parametrize("value", ["\u0085", "\u009f", "\u2028", "\u2029", "e\u0301"])
def test_folders_that_spark_names_with_the_characters_of_a_value(tmp_path: Path, value: str) -> None:
    table = DeltaTable.create(tmp_path, SCHEMA, partition_by=["p"])
    table.append(rows(0, 1))
    (path,) = table.files(["path"])["path"].to_pylist()
    (tmp_path / f"p={value}").mkdir()
    (tmp_path / path).rename(tmp_path / f"p={value}" / "a.parquet")
    log = tmp_path / "_delta_log" / f"{1:020}.json"
    text = log.read_text().replace(path, quote(f"p={value}/a.parquet")).replace('"p":"p0"', f'"p":{json.dumps(value)}')
    log.write_text(text)
    table = DeltaTable.open(tmp_path)
    table.update({"v": "v + 1"})
    assert table.to_arrow()["p"].to_pylist() == [value]
    assert table.to_arrow()["v"].to_pylist() == [1.0]


FAR = pa.array([4_000_000, 0], pa.int32()).cast(pa.date32())
"""A day of the year 12921, which Python does not have, and one of 1970."""


@pytest.mark.parametrize(
    ("break_a_rule", "error"),
    [
        (lambda table, source: table.update({"k": "20"}), ConstraintViolation),
        (lambda table, source: table.overwrite(source, where="x < DATE'2020-01-01'"), RowsOutsidePredicate),
        (
            lambda table, source: (
                table.merge(pa.concat_tables([source, source]), "t.k = s.k")
                .with_unique_keys(["x"])
                .when_not_matched_insert("*")
                .execute()
            ),
            DuplicateKeys,
        ),
    ],
    ids=["constraint", "where", "keys"],
)
def test_errors_show_days_that_python_does_not_have(break_a_rule: Any, error: type[LakeError]) -> None:
    source = pa.table({"k": pa.array([1, 1], pa.int32()), "x": FAR})
    table = DeltaTable.create(MemoryStore(), source.schema)
    table.append(source)
    table.add_constraint("small", "k < 10")
    with pytest.raises(error, match="12921-08-18"):
        break_a_rule(table, source)


def test_selections_without_columns_still_count(table: DeltaTable) -> None:
    table.append(rows(0, 9))
    assert table.to_arrow(columns=[]).num_rows == 9
    assert table.to_arrow(columns=[], where="id > 3").num_rows == 5
    assert table.to_arrow(columns=["p"], where="p = 'p1'").to_pylist() == [{"p": "p1"}] * 3


@pytest.mark.parametrize("columns", ["id", ["id", "ID"], ["id", "id"], [1], ["nope"]])
def test_bad_selections_are_refused(table: DeltaTable, columns: object) -> None:
    with pytest.raises(SchemaMismatch):
        table.to_arrow(columns=columns)  # type: ignore[arg-type]


def test_overwrites_by_constants(store: MemoryStore) -> None:
    for partition_by in ([], ["p"]):
        table = DeltaTable.create(MemoryStore(), SCHEMA, partition_by=partition_by)
        table.append(rows(0, 3))
        table.overwrite(SCHEMA.empty_table(), where="false")
        assert ids(table.to_arrow()) == [0, 1, 2]
        table.overwrite(rows(7, 9), where="true")
        assert ids(table.to_arrow()) == [7, 8]


def test_text_that_is_none_is_refused(store: MemoryStore) -> None:
    table = DeltaTable.create(store, pa.schema([("s", pa.string()), ("n", pa.list_(pa.struct([("t", pa.string())])))]))
    bad = pa.array([b"\xff"], pa.binary()).view(pa.string())
    nested = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pa.StructArray.from_arrays([bad], ["t"]))
    for data in (pa.table({"s": bad}), pa.table({"n": nested})):
        with pytest.raises(SchemaMismatch, match="UTF-8"):
            table.append(data)
    assert table.refresh().version == 0


def test_null_structs_with_children_that_are_not_null(store: MemoryStore) -> None:
    strict = pa.struct(
        [
            pa.field("a", pa.int64(), nullable=False),
            pa.field("deep", pa.struct([pa.field("b", pa.string(), nullable=False)])),
        ]
    )
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("st", strict),
            ("list", pa.list_(strict)),
            ("map", pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))),
        ]
    )
    data = [
        {"id": 1, "st": None, "list": [None, {"a": 1, "deep": None}], "map": [("k", 1)]},
        {"id": 2, "st": {"a": 2, "deep": {"b": "x"}}, "list": None, "map": None},
    ]
    table = DeltaTable.create(store, schema, partition_by=["id"])
    table.append(pa.Table.from_pylist(data, schema=schema))
    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"]) == data
    loose = pa.map_(pa.string(), pa.int64())
    with pytest.raises(ConstraintViolation, match=r"map\.value"):
        table.append(pa.table({"id": [3], "map": pa.array([[("k", None)]], loose)}))


def test_columns_of_nulls_fit_everywhere(store: MemoryStore) -> None:
    table = DeltaTable.create(store, SCHEMA, partition_by=["p"])
    table.append(pa.table({"id": [1], "p": pa.nulls(1), "v": pa.nulls(1)}))
    assert table.to_arrow().to_pylist() == [{"id": 1, "p": None, "v": None}]


def test_slices_and_views(store: MemoryStore) -> None:
    table = DeltaTable.create(store, pa.schema([("l", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.int64()))]))
    lists = pa.array([None, [1], None, [2, 3]], pa.list_(pa.int32()))
    maps = pa.array([None, [("a", 1)], None, [("b", 2)]], pa.map_(pa.string(), pa.int32()))
    for start in range(4):
        table.overwrite(pa.table({"l": lists.slice(start), "m": maps.slice(start)}))
        assert table.to_arrow()["l"].to_pylist() == lists.to_pylist()[start:]
        assert table.to_arrow()["m"].to_pylist() == maps.to_pylist()[start:]
        for kind in (pa.list_view(pa.int32()), pa.large_list(pa.int8()), pa.large_list_view(pa.int32())):
            table.overwrite(pa.table({"l": pa.array(lists.to_pylist(), kind).slice(start)}))
            assert table.to_arrow()["l"].to_pylist() == lists.to_pylist()[start:]
        fixed = pa.array([[1, 2], None, [3, None], [4, 5]], pa.list_(pa.int16(), 2)).slice(start)
        table.overwrite(pa.table({"l": fixed}))
        assert table.to_arrow()["l"].to_pylist() == fixed.to_pylist()


@pytest.mark.parametrize("version", [True, 1.0, "1"])
def test_versions_are_whole_numbers(store: MemoryStore, table: DeltaTable, version: object) -> None:
    with pytest.raises(ValueError):
        DeltaTable.open(store, version=version)  # type: ignore[arg-type]
