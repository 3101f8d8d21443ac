"""Files of any writer in a landing zone: their rows are those that the writer meant."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

from lake_orch.errors import UnsupportedData
from lake_orch.landing_zone.batch import LandedBatch
from lake_orch.landing_zone.zone import FoundFile, LandingZone, file_of


def batch_of(folder: Path) -> LandedBatch:
    filesystem = LocalFileSystem()
    files: list[FoundFile] = [
        file_of(path.name, filesystem.info(str(path))) for path in sorted(folder.iterdir()) if path.is_file()
    ]
    return LandedBatch(LandingZone("landing", str(folder)), 1, files, filesystem, str(folder))


def test_columns_that_only_a_later_file_has_are_kept(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [2], "b": ["x"]}), tmp_path / "2.parquet")
    assert batch_of(tmp_path).to_arrow().to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


def test_columns_that_only_a_later_csv_has_are_kept(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a\n1\n")
    (tmp_path / "2.csv").write_text("a,b\n2,x\n")
    assert batch_of(tmp_path).to_arrow().to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


def test_names_that_differ_in_case_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"Id": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"id": [2]}), tmp_path / "2.parquet")
    with pytest.raises(UnsupportedData, match="spell the column 'Id' in several ways"):
        batch_of(tmp_path).to_arrow()


def test_types_that_differ_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": ["x"]}), tmp_path / "2.parquet")
    with pytest.raises(UnsupportedData, match="do not fit together"):
        batch_of(tmp_path).to_arrow()


def test_files_of_spark_beside_others(tmp_path: Path) -> None:
    instant = pa.timestamp("us", "UTC")
    moments = [dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 1, 1, tzinfo=dt.UTC)]
    day = dt.date(1001, 1, 1)
    pq.write_table(
        pa.table({"t": pa.array(moments, instant), "d": [day, day]}),
        tmp_path / "1.parquet",
        use_deprecated_int96_timestamps=True,
        store_schema=False,
    )
    # 1001-01-01 of the Julian calendar is the day 1001-01-07.
    rows = pa.table({"t": pa.array(moments, instant), "d": [dt.date(1001, 1, 7)] * 2})
    with pq.ParquetWriter(tmp_path / "2.parquet", rows.schema, store_schema=False) as file:
        file.write_table(rows)
        file.add_key_value_metadata({"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""})
    found = batch_of(tmp_path).to_arrow()
    assert found["d"].to_pylist() == [day] * 4
    # A time of before 1900 moves with the calendar, too: the year 1 is two days later in the Julian one.
    assert found["t"].cast(pa.int64()).to_pylist()[:2] == pa.array(moments, instant).cast(pa.int64()).to_pylist()
