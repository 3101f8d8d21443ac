"""Files of any writer in a landing zone: their rows are those that the writer meant."""

from __future__ import annotations

import datetime as dt
import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

from lake_orch.assets.landing.batch import LandedBatch
from lake_orch.assets.landing.zone import FoundFile, LandingZone, file_of
from lake_orch.errors import UnsupportedData


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


SCHEMA = pa.schema([("id", pa.int64()), ("r", pa.struct([("Name", pa.string())]))])
FIRST = {"id": [1], "r": [{"Name": "a"}]}


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"id": [2], "r": [{"Name": "b"}], "z": [5]}, "it has z too"),
        ({"id": [2], "r": [{"Name": "b", "z": 5}]}, "it has r.z too"),
        ({"id": [2.5], "r": [{"Name": "b"}]}, "'id' of 2.parquet has a value that is not bigint"),
        ({"id": ["2"], "r": [{"Name": "b"}]}, "id is string instead of bigint"),
    ],
)
def test_what_the_schema_does_not_have_is_refused(tmp_path: Path, second: dict[str, Any], message: str) -> None:
    pq.write_table(pa.table(FIRST), tmp_path / "1.parquet")
    pq.write_table(pa.table(second), tmp_path / "2.parquet")
    with pytest.raises(UnsupportedData, match=message):
        batch_of(tmp_path).to_arrow(schema=SCHEMA)


def test_a_file_lacks_columns_of_the_schema_or_spells_them_in_another_case(tmp_path: Path) -> None:
    pq.write_table(pa.table(FIRST), tmp_path / "1.parquet")
    pq.write_table(pa.table({"R": [{"name": "b"}], "ID": pa.array([2.0])}), tmp_path / "2.parquet")
    pq.write_table(pa.table({"id": pa.array([3], pa.int8())}), tmp_path / "3.parquet")
    assert batch_of(tmp_path).to_arrow(schema=SCHEMA).sort_by("id").to_pylist() == [
        {"id": 1, "r": {"Name": "a"}},
        {"id": 2, "r": {"Name": "b"}},
        {"id": 3, "r": None},
    ]


@pytest.mark.parametrize(("zone", "declared"), [(None, "UTC"), ("UTC", None)])
@pytest.mark.parametrize("extension", ["parquet", "csv", "json"])
def test_no_zone_is_assumed(tmp_path: Path, extension: str, zone: str | None, declared: str | None) -> None:
    text = "2020-01-01T00:00:00" + ("Z" if zone else "")
    (tmp_path / "1.csv").write_text(f"t\n{text}\n")
    (tmp_path / "1.json").write_text(f'{{"t": "{text}"}}\n')
    pq.write_table(pa.table({"t": pa.array([0], pa.timestamp("us", zone))}), tmp_path / "1.parquet")
    for other in tmp_path.iterdir():
        if other.suffix != f".{extension}":
            other.unlink()
    with pytest.raises(UnsupportedData, match=r"zone|timestamp_ntz"):
        batch_of(tmp_path).to_arrow(schema=pa.schema([("t", pa.timestamp("us", declared))]))


@pytest.mark.parametrize("header", ["id,z", "ID", "id,id"])
def test_columns_of_a_csv_that_the_schema_does_not_have_are_refused(tmp_path: Path, header: str) -> None:
    (tmp_path / "1.csv").write_text(f"{header}\n1,2\n")
    with pytest.raises(UnsupportedData):
        batch_of(tmp_path).to_arrow(schema=pa.schema([("id", pa.int64())]))


LINES = 100_000
"""More than Arrow reads at once."""


@pytest.mark.parametrize("name", ["1.json", "1.ndjson.gz"])
def test_columns_that_only_the_last_line_has_are_kept(tmp_path: Path, name: str) -> None:
    text = '{"id": 1}\n' * LINES + '{"id": 2.5, "late": {"a": "x"}}\n'
    pack = gzip.compress if name.endswith(".gz") else bytes
    (tmp_path / name).write_bytes(pack(text.encode()))
    found = batch_of(tmp_path).to_arrow()
    assert (found.num_rows, found.to_pylist()[-1]) == (LINES + 1, {"id": 2.5, "late": {"a": "x"}})


def test_structs_of_json_files_have_the_fields_of_all(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text('{"r": {"a": 1}}\n')
    (tmp_path / "2.json").write_text('{"r": {"b": "x"}}\n')
    (tmp_path / "3.json").write_text("")
    assert batch_of(tmp_path).to_arrow().to_pylist() == [{"r": {"a": 1, "b": None}}, {"r": {"a": None, "b": "x"}}]


@pytest.mark.parametrize("line", ['{"id": 1, "z": 2}', '{"ID": 1}', '{"id": 1, "r": {"Name": "a", "name": "b"}}'])
def test_names_of_json_that_the_schema_does_not_have_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "1.json").write_text(f"{line}\n")
    with pytest.raises(UnsupportedData, match=r"1\.json does not have the columns that the schema"):
        batch_of(tmp_path).to_arrow(schema=SCHEMA)


@pytest.mark.parametrize("name", ["1.csv", "1.json"])
def test_a_file_that_cannot_be_parsed_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('id,b\n1\n{"id": 1}\n')
    with pytest.raises(UnsupportedData, match=r"batch 1 of landing zone 'landing' cannot be read"):
        batch_of(tmp_path).to_arrow()


LARGE = 2**53 + 1


@pytest.mark.parametrize(
    ("name", "text", "column"),
    [
        ("1.csv", f"a,b\n1,1.5\n2,{LARGE}\n", "b"),
        ("1.csv", f"a,b\n1,{2**64 - 1}\n", "b"),
        ("1.json", f'{{"a": {{"b": [1.5, {LARGE}]}}}}\n', "a.b.element"),
        ("1.json", f'{{"a": {2**64 - 1}}}\n\n{{"a": 1}}\n', "a"),
        ("1.json", f'{{"a": -{10**400}}}\n', "a"),
    ],
)
def test_a_whole_number_is_not_rounded(tmp_path: Path, name: str, text: str, column: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UnsupportedData, match=f"column '{column}' has .* would be rounded"):
        batch_of(tmp_path).to_arrow()


@pytest.mark.parametrize(("kind", "number"), [(pa.float64(), LARGE), (pa.float32(), 2**24 + 1)])
@pytest.mark.parametrize(("name", "text"), [("1.csv", "a\n{}\n"), ("1.json", '{{"a": {}}}\n')])
def test_a_whole_number_is_not_rounded_to_the_schema(
    tmp_path: Path, name: str, text: str, kind: pa.DataType, number: int
) -> None:
    (tmp_path / name).write_text(text.format(number))
    with pytest.raises(UnsupportedData, match=f"column 'a' has {number}, which would be rounded"):
        batch_of(tmp_path).to_arrow(schema=pa.schema([("a", kind)]))
    (tmp_path / name).write_text(text.format(number - 1))
    rows = batch_of(tmp_path).to_arrow(schema=pa.schema([("a", kind)]))
    assert rows["a"].to_pylist() == [number - 1]


@pytest.mark.parametrize("name", ["1.json.gz", "1.csv.gz", "1.json.bz2", "1.json.zst"])
@pytest.mark.parametrize(
    "data", [gzip.compress(b'{"id": 1}\n' * 1000, mtime=0)[:-20], b"id\n1\n"], ids=["cut", "not compressed"]
)
def test_a_file_that_cannot_be_decompressed_is_told(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UnsupportedData, match=r"batch 1 of landing zone 'landing' cannot be read: .*Correct the file"):
        batch_of(tmp_path).to_arrow()


@pytest.mark.parametrize(
    ("name", "text"),
    [("1.csv", f"a,b\n{LARGE},1e300\n1,{2**60}\n"), ("1.json", f'{{"a": {LARGE}, "b": 1e300}}\n{{"b": {2**60}}}')],
)
def test_other_large_numbers_are_read(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    found = batch_of(tmp_path).to_arrow()
    assert (found["a"][0].as_py(), found["b"].to_pylist()) == (LARGE, [1e300, 2.0**60])
