"""What does not fit a table fails before anything is written; the error names the asset, and each remedy works."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import datetime as dt
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lake_core.delta import DeltaTable
from lake_core.delta.errors import FolderNotEmpty, NaiveTimestamp, RowsOutsidePredicate, SchemaMismatch
from lake_orch import DeltaIOManager, InvalidDefinition, LakeResource
from tests.orch.test_table_settings import sorted_rows, table, write

ROWS = pa.table({"id": [1, 2], "v": [10, 20]})
NARROW = pa.table({"id": [3]})
DAYS = dg.DailyPartitionsDefinition("2026-06-01", end_date="2026-07-01")
NOON = dt.datetime(2026, 6, 2, 12)


def write_partitions(root: str, rows: Any, start: str, end: str | None = None, **metadata: Any) -> None:
    lake = LakeResource(root=root)

    @dg.asset(
        partitions_def=DAYS,
        metadata={"partition_expr": "day", **metadata},
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def orders() -> Any:
        return rows

    tags = {"dagster/asset_partition_range_start": start, "dagster/asset_partition_range_end": end or start}
    dg.materialize([orders], tags=tags, resources={"io_manager": DeltaIOManager(lake=lake)})


# Columns


@pytest.mark.parametrize("mode", ["overwrite", "append", "overwrite_partitions"])
def test_missing_columns_are_an_error(root: str, mode: str) -> None:
    metadata = {"lake/mode": mode, "lake/partition_by": ["id"]}
    write(root, ROWS, metadata)
    with pytest.raises(
        SchemaMismatch, match=r'lacks columns that the table has: v\. .*metadata=\{"lake/schema_mode": "fill"\}'
    ):
        write(root, NARROW, metadata)
    assert sorted_rows(root) == [(1, 10), (2, 20)]


@pytest.mark.parametrize("mode", ["fill", "merge"])
def test_missing_columns_are_null_where_that_is_asked_for(root: str, mode: str) -> None:
    write(root, ROWS, {})
    write(root, NARROW, {"lake/schema_mode": mode, "lake/mode": "append"})
    assert (3, None) in [tuple(row.values()) for row in table(root).to_arrow().to_pylist()]


def test_the_manager_says_so_for_all_assets(root: str) -> None:
    write(root, ROWS, {})
    write(root, NARROW, {}, schema_mode="fill")
    assert sorted_rows(root) == [(3, None)]
    write(root, ROWS, {"lake/merge": ["id"]}, schema_mode="fill")
    assert len(sorted_rows(root)) == 3


def test_new_columns_say_which_metadata_adds_them(root: str) -> None:
    write(root, ROWS, {})
    wider = ROWS.append_column("channel", [["a", "b"]])
    for metadata in ({}, {"lake/schema_mode": "fill"}, {"lake/merge": ["id"]}):
        with pytest.raises(
            SchemaMismatch, match=r'the table lacks: channel\. .*metadata=\{"lake/schema_mode": "merge"\}'
        ):
            write(root, wider, metadata)
    write(root, wider, {"lake/schema_mode": "merge"})
    assert table(root).schema.names == ["id", "v", "channel"]


def test_missing_fields_of_structs_are_an_error(root: str) -> None:
    write(root, pa.table({"s": [{"a": 1, "b": [{"c": 2, "d": 3}]}]}), {})
    with pytest.raises(SchemaMismatch, match=r"table has: s\.b\.element\.d\."):
        write(root, pa.table({"s": [{"a": 1, "b": [{"c": 2}]}]}), {})


def test_a_merge_by_keys_never_fills_columns(root: str) -> None:
    write(root, ROWS, {})
    with pytest.raises(InvalidDefinition, match="would set existing values to null"):
        write(root, NARROW, {"lake/merge": ["id"], "lake/schema_mode": "fill"})
    with pytest.raises(SchemaMismatch, match="lacks columns"):
        write(root, NARROW, {"lake/merge": ["id"]})


def test_a_step_s_own_writes_say_what_becomes_of_columns(root: str) -> None:
    lake = LakeResource(root=root)

    @dg.asset
    def orders(context: dg.AssetExecutionContext, lake: LakeResource) -> None:
        handle = lake.table(context)
        assert not handle.exists()
        handle.append(ROWS)
        assert handle.exists()
        handle.append(NARROW, schema_mode="fill")
        handle.append(ROWS.append_column("new", [[1, 1]]), schema_mode="merge")
        handle.append(NARROW)

    with pytest.raises(SchemaMismatch, match=r"batch 4 lacks columns that the table has: v, new\."):
        dg.materialize([orders], resources={"lake": lake})
    assert len(table(root).to_arrow()) == 5


@pytest.mark.parametrize("first", [True, False])
def test_rows_without_columns_are_refused(root: str, first: bool) -> None:
    if not first:
        write(root, ROWS, {})
    with pytest.raises(SchemaMismatch, match="the output of asset orders has no columns"):
        write(root, pd.DataFrame(), {"lake/schema_mode": "fill"})
    assert DeltaTable.exists(f"{root}/tables/orders") is not first


# Merges


CONTROLLED = pa.table({"id": [1, 2], "v": [10, 20], "op": ["i", "d"]})
CLAUSES = {
    "on": "t.id = s.id",
    "when_matched_delete": "s.op = 'd'",
    "when_matched_update": {"v": "s.v", "changed": "current_timestamp()"},
    "when_not_matched_insert": {"set": {"id": "s.id", "t.v": "s.v + 0.5"}, "condition": "s.op <> 'd'"},
}


def test_a_merge_s_first_rows_make_the_columns_that_its_clauses_set(root: str) -> None:
    write(root, CONTROLLED, {"lake/merge": CLAUSES})
    assert table(root).schema.names == ["id", "v", "changed"]
    assert table(root).schema.field("id").type == pa.int64()
    write(root, CONTROLLED, {"lake/merge": CLAUSES})
    assert [id for id, *_ in sorted_rows(root)] == [1]


def test_a_merge_that_inserts_everything_makes_every_column(root: str) -> None:
    write(root, CONTROLLED, {"lake/merge": {"keys": ["id"], "when_not_matched_insert": "*"}})
    assert table(root).schema.names == ["id", "v", "op"]


@pytest.mark.parametrize(
    ("clauses", "message"),
    [
        (
            {"when_matched_update": {"v": "s.v"}},
            "inserts nothing, and there is no table yet: declare its columns by lake/schema",
        ),
        ({"when_not_matched_insert": {"id": "s.id", "v": "NULL"}}, "has no type, and there is no table yet"),
        (
            {"when_not_matched_insert": {"id": "s.id"}, "when_matched_update": {"n": "t.n + 1"}},
            "'n' = 't.n \\+ 1' cannot be derived from .* declare its columns by lake/schema",
        ),
    ],
)
def test_a_merge_whose_columns_are_not_known_asks_for_them(root: str, clauses: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidDefinition, match=message):
        write(root, CONTROLLED, {"lake/merge": {"keys": ["id"], **clauses}})
    assert not DeltaTable.exists(f"{root}/tables/orders")


# Partitions


def test_rows_of_another_day_name_the_partition_and_what_they_hold(root: str) -> None:
    rows = pa.table({"day": [dt.date(2026, 6, 2), *(dt.date(2026, 6, 9 + n) for n in range(4))]})
    expected = (
        r"4 of 5 rows lie outside partition '2026-06-02' of asset orders: "
        r"`day` is 2026-06-09, 2026-06-10, 2026-06-11, …\. "
        r"Give rows of the run's partitions only, by `day` \(partition_expr\)\. Nothing was written"
    )
    with pytest.raises(RowsOutsidePredicate, match=expected):
        write_partitions(root, rows, "2026-06-02")


@pytest.mark.parametrize("metadata", [{}, {"lake/mode": "append"}, {"lake/merge": ["id"]}])
def test_text_days_of_another_form_say_which_form_is_meant(root: str, metadata: dict[str, Any]) -> None:
    rows = pa.table({"day": ["02.06.2026"], "id": [1]})
    expected = (
        r"`day` is '02\.06\.2026'\. "
        r".*`day` is text, whose values must be spelled as the partition keys are, such as '2026-06-02'"
    )
    with pytest.raises(RowsOutsidePredicate, match=expected):
        write_partitions(root, rows, "2026-06-02", **metadata)


def test_rows_outside_of_several_partitions_name_them(root: str) -> None:
    with pytest.raises(
        RowsOutsidePredicate,
        match=r"the run's 3 partitions of asset orders \('2026-06-02', '2026-06-03', …\): `day` is null",
    ):
        write_partitions(root, pa.table({"day": pa.array([None], pa.date32()), "id": [1]}), "2026-06-02", "2026-06-04")


def test_rows_outside_of_replace_where_name_the_metadata(root: str) -> None:
    with pytest.raises(
        RowsOutsidePredicate,
        match=r"outside lake/replace_where 'id >= 2' of asset orders: `id` is 1\. Filter the rows, or widen",
    ):
        write(root, ROWS, {"lake/replace_where": "id >= 2"})


# Timestamps without a zone


def test_naive_timestamps_name_the_metadata_that_settles_them(root: str) -> None:
    with pytest.raises(
        NaiveTimestamp,
        match=r'column \'at\' of the output of asset orders .*metadata=\{"lake/naive_timestamps": "utc"\}.*"ntz"',
    ):
        write(root, pa.table({"at": [NOON]}), {})
    assert not DeltaTable.exists(f"{root}/tables/orders")


@pytest.mark.parametrize("stream", [False, True])
def test_naive_timestamps_are_taken_as_utc(root: str, stream: bool) -> None:
    rows = pa.table({"at": [NOON], "s": [{"at": [NOON]}]})
    for _ in range(2):
        write(root, rows.to_reader() if stream else rows, {"lake/naive_timestamps": "utc"})
    aware = NOON.replace(tzinfo=dt.UTC)
    assert sorted_rows(root) == [(aware, {"at": [aware]})]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([NOON]).dictionary_encode(),
        pa.array([[NOON]], pa.list_(pa.timestamp("us"), 1)),
        pa.array([{"at": [NOON]}], pa.struct([("at", pa.list_(pa.timestamp("us"), 1))])),
    ],
    ids=["dictionary", "fixed-size list", "struct of one"],
)
def test_naive_timestamps_of_every_layout_are_taken_as_utc(root: str, column: pa.Array) -> None:
    write(root, pa.table({"at": column}), {"lake/naive_timestamps": "utc"})
    text = str(table(root).schema.field("at").type)
    assert "timestamp[us, tz=UTC]" in text


def test_naive_timestamps_are_kept_as_clock_times(root: str) -> None:
    write(root, pa.table({"id": [1]}), {"lake/naive_timestamps": "ntz"})
    assert table(root).protocol.min_writer_version < 7
    write(root, pa.table({"id": [1], "at": [NOON]}), {"lake/schema_mode": "merge"}, naive_timestamps="ntz")
    assert sorted_rows(root) == [(1, NOON)]
    write(root, pa.table({"id": [2], "at": [NOON]}), {"lake/naive_timestamps": "utc"})
    assert table(root).schema.field("at").type == pa.timestamp("us"), "what a column is stays"


def test_partitions_of_naive_timestamps(root: str) -> None:
    for _ in range(2):
        write_partitions(root, pa.table({"day": [NOON]}), "2026-06-02", **{"lake/naive_timestamps": "utc"})
    assert sorted_rows(root) == [(NOON.replace(tzinfo=dt.UTC),)]


@pytest.mark.extended
def test_naive_timestamps_of_spark_are_taken_as_utc_whatever_the_session_s_zone(root: str, spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        # A clock time that New York skipped.
        write(
            root,
            spark.sql("SELECT TIMESTAMP_NTZ '2026-03-08 02:30:00.000001' AS `a b`"),
            {"lake/naive_timestamps": "utc"},
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")
    assert sorted_rows(root) == [(dt.datetime(2026, 3, 8, 2, 30, 0, 1, tzinfo=dt.UTC),)]


def test_what_naive_timestamps_are_is_checked(root: str) -> None:
    with pytest.raises(
        InvalidDefinition, match="lake/naive_timestamps of asset orders is 'local': use one of refuse, utc, ntz"
    ):
        write(root, ROWS, {"lake/naive_timestamps": "local"})


# Folders


def test_a_folder_with_somebody_s_files_is_not_made_a_table(root: str) -> None:
    folder = Path(root) / "tables" / "orders"
    folder.mkdir(parents=True)
    (folder / "part.parquet").write_bytes(b"x")
    with pytest.raises(FolderNotEmpty, match=r"'part\.parquet'.*DeltaTable\.convert.*by the metadata lake/path"):
        write(root, ROWS, {})
    assert [path.name for path in folder.iterdir()] == ["part.parquet"]
