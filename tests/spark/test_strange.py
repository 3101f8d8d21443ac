"""Strange but legal tables and sessions: Spark reads what Arrow reads, or says why not."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lake_core.delta import DeltaTable
from lake_core.delta.errors import InvalidTransaction, UnsupportedType
from lake_core.expression import InvalidExpression
from lake_core.spark import SparkJobFailed, merge_delta, read_delta, write_delta
from tests.delta.tables import SCHEMA, rows
from tests.spark.settings import settings

CASES = Path(__file__).parents[3] / "shared" / "cases" / "delta"


def _rows(table: pa.Table) -> list[str]:
    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(child) for key, child in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(child) for child in value]
        if isinstance(value, dt.datetime) and value.tzinfo:
            return value.astimezone(dt.UTC).replace(tzinfo=None).isoformat()
        return bytes(value) if isinstance(value, (bytes, bytearray)) else value

    return sorted(repr(plain(row)) for row in table.to_pylist())


@pytest.mark.extended
@pytest.mark.parametrize(
    "name",
    [
        "golden-table-with-columnmapping-mode-name",
        "kerneljava-data-reader-primitives-column-mapping-name",
        "kerneljava-data-reader-partition-values-column-mapping-name",
        "golden-data-skipping-basic-stats-all-types-columnmapping-id",
        "golden-data-reader-timestamp_ntz-id-mode",
        "golden-data-reader-timestamp_ntz",
        "golden-data-reader-escaped-chars",
        "golden-data-reader-array-complex-objects",
        "golden-data-reader-map",
        "golden-kernel-timestamp-INT96",
        "krs-basic_partitioned",
        "rs-delta-2.2.0-partitioned-types",
        "krs-v2-checkpoints-parquet-with-sidecars",
        "krs-table-with-dv-small",
        "golden-dv-with-columnmapping",
        "rs-table_with_deletion_logs",
    ],
)
def test_tables_of_other_writers(cases: Path, spark: SparkSession, name: str) -> None:
    table = DeltaTable.open(str(CASES / name))
    with settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        assert _rows(read_delta(spark, table).toArrow()) == _rows(table.to_arrow())


@pytest.mark.extended
@pytest.mark.parametrize("parts", [pytest.param(2, marks=pytest.mark.exhaustive), 40])
def test_partition_values_that_calendars_and_zones_bend(spark: SparkSession, tmp_path: Path, parts: int) -> None:
    first = dt.datetime(1, 1, 3, tzinfo=dt.UTC)
    schema = pa.schema(
        [("id", pa.int64()), ("t", pa.timestamp("us", tz="UTC")), ("d", pa.date32()), ("s", pa.string())]
    )
    instants = [first, dt.datetime(1500, 1, 1, 1, 2, 3, 4, tzinfo=dt.UTC), None]
    data = [
        {"id": i, "t": instants[i % 3], "d": (instants[i % 3] or first).date(), "s": f"\u3000\u00a0{i % parts}"}
        for i in range(80)
    ]
    table = DeltaTable.create(tmp_path, schema, partition_by=["t", "d", "s"])
    table.append(pa.Table.from_pylist(data, schema=schema))
    with settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        assert _rows(read_delta(spark, table).toArrow()) == _rows(table.to_arrow())
        assert read_delta(spark, table, where="t = TIMESTAMP '1500-01-01 01:02:03.000004'").count() == 27
        assert read_delta(spark, table, where="d < DATE '0001-01-04'").count() == 53


def test_a_lost_file_is_an_error_whatever_the_session_says(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path, SCHEMA)
    table.append(rows(0, 1))
    table.append(rows(1, 2))
    frame = read_delta(spark, table)
    path = tmp_path / table.files()["path"][0].as_py()
    with settings(spark, {"spark.sql.files.ignoreMissingFiles": "true", "spark.sql.files.ignoreCorruptFiles": "true"}):
        body = path.read_bytes()
        path.write_bytes(b"PAR1" + bytes(len(body) - 8) + b"PAR1")
        with pytest.raises(Exception, match=r"FAILED_READ_FILE|footer|parquet"):
            read_delta(spark, table).collect()
        path.unlink()
        with pytest.raises(Exception, match=r"FILE_NOT_EXIST|does not exist|No such file"):
            frame.collect()


def test_a_session_that_minds_case(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path, pa.schema([("Id", pa.int64())]))
    table.append(pa.table({"Id": [1]}))
    log = tmp_path / "_delta_log" / f"{0:020d}.json"
    log.write_text(log.read_text().replace('\\"Id\\"', '\\"ID\\"'))
    with settings(spark, {"spark.sql.caseSensitive": "true"}):
        assert [row.ID for row in read_delta(spark, str(tmp_path)).collect()] == [1]


@pytest.mark.extended
def test_columns_with_names_of_spark_and_ours(spark: SparkSession, tmp_path: Path) -> None:
    names = ["_metadata", "__file", "__hit", "__p0", "a.b", "sp ace", "select", "`tick`", "p"]
    data = pa.table({name: list(range(40)) for name in names})
    write_delta(spark.createDataFrame(data), str(tmp_path), partition_by=["p"])
    assert _rows(read_delta(spark, str(tmp_path)).toArrow()) == _rows(data)
    assert read_delta(spark, str(tmp_path), where="`_metadata` = 5 AND `a.b` = 5 AND p = 5").count() == 1


@pytest.mark.extended
def test_structs_without_a_value(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        "select id, if(id = 0, named_struct('z', 1), null) st, array(named_struct('a', id), null) l from range(3)"
    )
    write_delta(frame, str(tmp_path))
    expected = sorted(repr(row.asDict(recursive=True)) for row in frame.collect())
    assert sorted(map(repr, DeltaTable.open(tmp_path).to_arrow().to_pylist())) == expected
    assert sorted(repr(row.asDict(recursive=True)) for row in read_delta(spark, str(tmp_path)).collect()) == expected


def test_no_columns_at_all(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path, SCHEMA, partition_by=["p"])
    table.append(rows(0, 9))
    assert read_delta(spark, table, columns=[]).count() == 9
    assert read_delta(spark, table, columns=[], where="id > 3").count() == 5


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"mode": "overwrite", "where": "nonsense = 1"}, InvalidExpression),
        ({"txn": ("", 1)}, InvalidTransaction),
        ({"txn": ("a", -1)}, InvalidTransaction),
    ],
)
def test_bad_input_makes_no_table(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        write_delta(spark.range(3).toDF("id"), str(tmp_path / "t"), **options)
    assert not (tmp_path / "t").exists()


def test_the_cause_of_a_failed_job_is_told(spark: SparkSession, tmp_path: Path) -> None:
    def fail(batches: Any) -> Any:
        raise RuntimeError("the cause of it all")
        yield from batches

    frame = spark.range(3).toDF("id")
    with pytest.raises(SparkJobFailed, match="the cause of it all"):
        write_delta(frame.mapInArrow(fail, frame.schema), str(tmp_path / "t"))


def test_what_has_only_nulls_gets_the_type_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    struct = pa.struct([("x", pa.float64()), ("names", pa.list_(pa.string()))])
    schema = pa.schema(
        [("id", pa.int64()), ("tags", pa.list_(pa.string())), ("s", struct), ("m", pa.map_(pa.string(), pa.int32()))]
    )
    table = DeltaTable.create(str(tmp_path), schema)
    frame = spark.sql("SELECT 1L id, array() tags, named_struct('x', NULL, 'names', array(NULL)) s, map('k', NULL) m")
    write_delta(frame, table)
    expected = {"id": 1, "tags": [], "s": {"x": None, "names": [None]}, "m": [("k", None)]}
    assert table.to_arrow().to_pylist() == [expected]
    merge_delta(frame, table, "t.id = s.id").when_matched_update({"tags": "s.tags", "m": "s.m"}).execute()
    assert table.to_arrow().to_pylist() == [expected]
    write_delta(frame.selectExpr("*", "NULL note"), table, schema_mode="merge")
    assert table.to_arrow().to_pylist() == [expected] * 2
    assert table.metadata.arrow_schema.names == schema.names
    with pytest.raises(UnsupportedType, match=r"'m' .*void"):
        write_delta(spark.sql("SELECT 1L id, map() m"), table)
    with pytest.raises(UnsupportedType, match=r"'m' .*void"):
        merge_delta(spark.sql("SELECT 1L id, map() m"), table, "t.id = s.id").when_matched_delete().execute()


@pytest.mark.parametrize(
    ("column", "named"),
    [
        ("named_struct('a', 1, 'b', array()) n", r"n\.b\.element"),
        ("from_json('{}', 'struct<>') n", "n"),
        ("array(from_json('{}', 'struct<>')) n", r"n\.element"),
    ],
)
def test_columns_that_files_cannot_hold_are_refused(
    spark: SparkSession, tmp_path: Path, column: str, named: str
) -> None:
    frame = spark.sql(f"SELECT 1L id, {column}")
    with pytest.raises(UnsupportedType, match=f"'{named}'"):
        write_delta(frame, str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
    table = DeltaTable.create(str(tmp_path / "old"), pa.schema([("id", pa.int64())]))
    with pytest.raises(UnsupportedType, match=f"'{named}'"):
        write_delta(frame, table, schema_mode="merge")
    with pytest.raises(UnsupportedType, match=f"'{named}'"):
        write_delta(frame, table, mode="overwrite", schema_mode="overwrite")
