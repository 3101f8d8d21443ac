"""How the Parquet files of a table are written, by its properties."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake_core.delta import DeltaTable, WriterProperties
from lake_core.delta.errors import InvalidProperty
from lake_core.delta.file_name import is_own_name
from lake_core.delta.parquet_options import CODEC, DICTIONARY, GROUP_ROWS, LEVEL, ParquetOptions

ROWS = pa.table({"id": range(1000), "name": [f"name {number % 7}" for number in range(1000)]})


def written(tmp_path: Path, **properties: str) -> tuple[Path, pq.FileMetaData]:
    table = DeltaTable.create(tmp_path / "t", ROWS.schema, properties=properties)
    table.append(ROWS)
    file = next((tmp_path / "t").glob("*.parquet"))
    return file, pq.read_metadata(file)


@pytest.mark.parametrize(
    ("value", "codec", "ending"),
    [
        ("zstd", "ZSTD", ".c000.zstd.parquet"),
        ("SNAPPY", "SNAPPY", ".c000.snappy.parquet"),
        ("gzip", "GZIP", ".c000.gz.parquet"),
        ("lz4_raw", "LZ4", ".c000.lz4raw.parquet"),
        ("brotli", "BROTLI", ".c000.br.parquet"),
        ("uncompressed", "UNCOMPRESSED", ".c000.parquet"),
    ],
)
def test_the_codec(tmp_path: Path, value: str, codec: str, ending: str) -> None:
    file, metadata = written(tmp_path, **{CODEC: value})
    assert metadata.row_group(0).column(0).compression == codec
    assert file.name.endswith(ending.replace(".c000", "-c000"))
    assert is_own_name(file.name)
    assert deltalake.DeltaTable(str(tmp_path / "t")).to_pyarrow_table().num_rows == 1000
    assert DeltaTable(tmp_path / "t").to_arrow().sort_by("id").equals(ROWS)


def test_the_level(tmp_path: Path) -> None:
    sizes = [
        written(tmp_path / level, **{LEVEL: level, DICTIONARY: "false"})[0].stat().st_size for level in ("1", "19")
    ]
    assert sizes[1] < sizes[0]


def test_the_rows_of_a_group(tmp_path: Path) -> None:
    _, metadata = written(tmp_path, **{GROUP_ROWS: "300"})
    assert [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] == [300, 300, 300, 100]


@pytest.mark.parametrize(("value", "expected"), [("true", [True, True]), ("false", [False, False])])
def test_dictionaries(tmp_path: Path, value: str, expected: list[bool]) -> None:
    _, metadata = written(tmp_path, **{DICTIONARY: value})
    assert [metadata.row_group(0).column(number).has_dictionary_page for number in (0, 1)] == expected


def test_a_change_of_the_properties_is_for_later_files(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path / "t", ROWS.schema)
    table.append(ROWS)
    table.set_properties({CODEC: "snappy"})
    table.append(ROWS)
    codecs = {pq.read_metadata(file).row_group(0).column(0).compression for file in (tmp_path / "t").glob("*.parquet")}
    assert codecs == {"ZSTD", "SNAPPY"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (CODEC, "lzo"),
        (LEVEL, "23"),
        (LEVEL, "fast"),
        (DICTIONARY, "maybe"),
        (GROUP_ROWS, "0"),
        (GROUP_ROWS, "1e6"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(InvalidProperty, match=name):
        DeltaTable.create(tmp_path / "t", ROWS.schema, properties={name: value})


def test_a_level_of_a_codec_without_levels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidProperty, match="snappy has no levels"):
        DeltaTable.create(tmp_path / "t", ROWS.schema, properties={CODEC: "snappy", LEVEL: "3"})


def test_what_another_writer_set_is_tolerated() -> None:
    properties = {CODEC: "lzo", LEVEL: "19", DICTIONARY: "maybe", GROUP_ROWS: "17"}
    assert ParquetOptions.tolerant(properties) == ParquetOptions("zstd", 19, None, 17)
    assert list(ParquetOptions.invalid(properties)) == [CODEC, DICTIONARY]


def test_one_operation_writes_otherwise(tmp_path: Path) -> None:
    properties = {CODEC: "snappy", DICTIONARY: "true"}
    table = DeltaTable.create(tmp_path / "t", ROWS.schema, properties=properties)
    table.append(
        ROWS, writer_properties=WriterProperties(compression="ZSTD", compression_level=9, max_row_group_size=300)
    )
    table.append(ROWS)
    files = {path.name.split(".")[-2]: pq.read_metadata(path) for path in (tmp_path / "t").glob("*.parquet")}
    assert {name: file.num_row_groups for name, file in files.items()} == {"zstd": 4, "snappy": 1}
    assert files["zstd"].row_group(0).column(0).has_dictionary_page
    table.overwrite(ROWS, writer_properties=WriterProperties(dictionary_enabled=False))
    assert not pq.read_metadata(_only(table, tmp_path)).row_group(0).column(1).has_dictionary_page
    table.append(ROWS)
    table.optimize(writer_properties=WriterProperties(compression="gzip"))
    assert pq.read_metadata(_only(table, tmp_path)).row_group(0).column(0).compression == "GZIP"
    assert table.properties == properties


def _only(table: DeltaTable, tmp_path: Path) -> Path:
    (path,) = table.files(["path"])["path"].to_pylist()
    return tmp_path / "t" / path


def test_options_of_an_operation_that_make_no_sense_write_nothing(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path / "t", ROWS.schema)
    for wrong in (WriterProperties(compression="lzo"), WriterProperties(compression="snappy", compression_level=3)):
        with pytest.raises(InvalidProperty):
            table.append(ROWS, writer_properties=wrong)
    assert not list((tmp_path / "t").glob("*.parquet"))
