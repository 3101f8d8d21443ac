"""Arrays as rows of Spark, and rows as chunks of arrays."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xarray as xr
import zarr
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from lake_core import Lake
from lake_core.icechunk import (
    ConflictDetector,
    RebaseFailedError,
    Repository,
    RepositoryConfig,
    Session,
    VirtualChunkContainer,
    local_filesystem_store,
)
from lake_core.icechunk.errors import NodeNotFound, ReadOnlySession
from lake_core.icechunk.identifier import encode_id
from lake_core.spark import (
    ArrayChanged,
    ArraySpec,
    DuplicateCells,
    InvalidArraySpec,
    InvalidColumns,
    InvalidCoordinates,
    InvalidValues,
    SparkJobFailed,
    UnknownCoordinates,
    UnreachableStore,
    UnsupportedArray,
    read_array,
    write_array,
)
from lake_core.store import LocalStore, MemoryStore
from tests.spark.settings import settings

TIMES = pd.date_range("2024-01-01", periods=6, freq="h")
STATIONS = [11, 7, 3, 5]
DIMENSIONS = ("time", "station")
NATIVE = RepositoryConfig(inline_chunk_threshold_bytes=0)


def weather() -> xr.Dataset:
    values = np.arange(24, dtype=np.float64).reshape(6, 4) / 4
    dataset = xr.Dataset({"t2m": (DIMENSIONS, values)}, {"time": TIMES, "station": STATIONS})
    dataset.t2m.encoding = {"chunks": (2, 2)}
    return dataset


def created(location: Any, dataset: xr.Dataset, group: str | None = None, **options: Any) -> Repository:
    repository = Repository.create(location, **{"config": NATIVE, **options})
    session = repository.writable_session("main")
    dataset.to_zarr(session.store, group=group, consolidated=False)
    session.commit("arrays")
    return repository


def opened(session: Session, group: str | None = None) -> xr.Dataset:
    dataset: xr.Dataset = xr.open_zarr(session.store, group=group, consolidated=False, chunks=None)
    return dataset


def cells(df: DataFrame, like: xr.Dataset) -> xr.Dataset:
    """Return rows as a dataset, in the order of another one's coordinates."""
    dataset: xr.Dataset = df.toPandas().set_index([*DIMENSIONS]).to_xarray()
    return dataset.sel({name: like[name].values for name in DIMENSIONS})


def rows(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in df.toArrow().to_pylist())


def frame(
    spark: SparkSession, cells: list[tuple[int, int]], values: list[Any], name: str = "t2m", kind: Any = None
) -> DataFrame:
    """Return rows for cells, given by their indexes."""
    times = pa.array(TIMES[[time for time, _ in cells]]).cast(pa.timestamp("us", tz="UTC"))
    stations = [STATIONS[station] for _, station in cells]
    return spark.createDataFrame(pa.table({"time": times, "station": stations, name: pa.array(values, kind)}))


def chunk_objects(repository: Repository) -> set[str]:
    return {meta.key for meta in repository.storage.list("chunks/")}


def encoded() -> xr.Dataset:
    """Return arrays with packed and missing values, and with many types and codecs."""
    dataset = weather()
    values = dataset.t2m.values
    holes = np.where(values % 1 == 0.25, np.nan, values)
    dataset["packed"] = (
        DIMENSIONS,
        holes,
        {},
        {"dtype": "int16", "scale_factor": 0.01, "add_offset": 2.5, "_FillValue": -9999},
    )
    dataset["holes"] = (DIMENSIONS, holes.astype("f4"), {}, {"_FillValue": np.float32(-1), "compressors": None})
    dataset["whole"] = (DIMENSIONS, (values * 4).astype("u4"), {}, {"serializer": zarr.codecs.BytesCodec(endian="big")})
    dataset["truth"] = (DIMENSIONS, values > 3, {}, {"compressors": [zarr.codecs.GzipCodec()]})
    dataset["turned"] = (
        DIMENSIONS,
        values,
        {},
        {"filters": [zarr.codecs.TransposeCodec(order=(1, 0))], "chunks": (4, 1)},
    )
    return dataset


# Reading


def test_cells_are_read_as_xarray_reads_them(spark: SparkSession, tmp_path: Path) -> None:
    repository = created(tmp_path / "r", encoded(), group="g")
    names = ["t2m", "packed", "whole", "truth", "turned"]
    df = read_array(spark, repository, variables=[f"g/{name}" for name in names])
    types = ["timestamp", "bigint", "double", "double", "bigint", "boolean", "double"]
    assert df.dtypes == [*zip([*DIMENSIONS, *names], types, strict=True)]
    expected = opened(repository.readonly_session("main"), "g")
    xr.testing.assert_equal(cells(df, expected), expected[names])


def test_repositories_of_version_2_are_read_and_written(spark: SparkSession, tmp_path: Path) -> None:
    repository = created(tmp_path / "r", weather(), spec_version=2)
    df = read_array(spark, repository, variables=["t2m"])
    session = repository.writable_session("main")
    write_array(df.selectExpr("time", "station", "t2m + 1 AS t2m"), session, "t2m")
    session.commit("by Spark")
    after = opened(Repository.open(tmp_path / "r").readonly_session("main"))
    assert np.array_equal(after.t2m.values, weather().t2m.values + 1)


def test_no_other_chunk_is_read_than_those_of_the_coordinates(spark: SparkSession, tmp_path: Path) -> None:
    repository = created(tmp_path / "r", weather())
    session = repository.readonly_session("main")
    node = session.array("/t2m")
    references = session.references(node)
    kept = [references.find(index).chunk_id for index in ((1, 1), (2, 1))]  # type: ignore[union-attr]
    for number in range(len(references)):
        chunk = references[number]
        if chunk.chunk_id not in kept:  # type: ignore[union-attr]
            repository.storage.delete([f"chunks/{encode_id(chunk.chunk_id)}"])  # type: ignore[union-attr]
    where = "time >= '2024-01-01 03:00:00' AND station = 3"
    assert [
        row.t2m for row in read_array(spark, repository, variables=["t2m"], where=where).orderBy("time").collect()
    ] == [3.5, 4.5, 5.5]
    with_values = (
        "(time = '2024-01-01 05:00:00' AND station = 5 "
        "OR year(time) = 2024 AND station = 3 AND hour(time) IN (2, 3)) AND t2m > 2.5"
    )
    assert [
        row.t2m for row in read_array(spark, repository, variables=["t2m"], where=with_values).orderBy("t2m").collect()
    ] == [3.5, 5.75]
    assert read_array(spark, repository, variables=["t2m"], where="station = 4").count() == 0
    with pytest.raises(Exception, match="is damaged: the repository refers to it"):
        read_array(spark, repository, variables=["t2m"]).collect()


@pytest.mark.extended
def test_inline_virtual_and_missing_chunks_are_read(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "values.bin").write_bytes(b"head" + np.array([7.5, 8.5], "<f8").tobytes())
    prefix = f"file://{tmp_path}/"
    config = RepositoryConfig(inline_chunk_threshold_bytes=512)
    config.set_virtual_chunk_container(VirtualChunkContainer(prefix, local_filesystem_store(str(tmp_path))))
    repository = Repository.create(tmp_path / "r", config=config, authorize_virtual_chunk_access={prefix: None})
    session = repository.writable_session("main")
    array = zarr.create_array(
        session.store,
        name="a",
        shape=(7,),
        chunks=(2,),
        dtype="f8",
        fill_value=-1,
        dimension_names=["x"],
        compressors=None,
    )
    array[0:2] = [1.5, 2.5]
    session.store.set_virtual_ref("a/c/2", f"{prefix}values.bin", offset=4, length=16)
    df = read_array(spark, session, variables=["a"])
    session.discard_changes()
    assert rows(df) == [(0, 1.5), (1, 2.5), (2, -1), (3, -1), (4, 7.5), (5, 8.5), (6, -1)]


@pytest.mark.extended
def test_codecs_that_only_zarr_has_work_where_executors_have_it(spark: SparkSession, tmp_path: Path) -> None:
    dataset = weather()
    dataset["name"] = (
        DIMENSIONS,
        np.array([f"é{number}" for number in range(24)], object).reshape(6, 4),
        {},
        {"chunks": (2, 2)},
    )
    dataset["blocks"] = dataset.t2m.astype("f4")
    dataset.blocks.encoding = {"shards": (4, 2), "chunks": (2, 1), "compressors": [zarr.codecs.BloscCodec()]}
    repository = created(tmp_path / "r", dataset)
    session = repository.writable_session("main")
    assert write_array(frame(spark, [(4, 1)], [90.0], "blocks"), session, "blocks").chunks == 1
    assert write_array(frame(spark, [(4, 1)], ["new"], "name"), session, "name").chunks == 1
    session.commit("spark")
    dataset.blocks[4, 1], dataset.name[4, 1] = 90, "new"
    xr.testing.assert_equal(opened(repository.readonly_session("main")), dataset)
    df = read_array(spark, repository, variables=["name", "blocks"], where="time > '2024-01-01 00:00:00'")
    expected = zip(dataset.name.values[1:].flat, dataset.blocks.values[1:].flat, strict=True)
    assert rows(df.select("name", "blocks")) == sorted(expected)


def test_arrays_that_have_no_rows_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    dataset = weather().assign(height=("station", [1.0, 2, 3, 4]), flag=(DIMENSIONS, np.zeros((6, 4), complex)))
    dataset = dataset.assign(
        seen=(DIMENSIONS, np.full((6, 4), TIMES[0])), nanos=("nano", [1.0, 2]), nano=pd.to_datetime([1, 2])
    )
    repository = created(tmp_path / "r", dataset)
    for names, error, message in (
        (["flag"], UnsupportedArray, "its values are complex128"),
        (["seen"], UnsupportedArray, "its values are datetime64"),
        (["t2m", "height"], UnsupportedArray, "Read them separately"),
        (["time"], UnsupportedArray, "two columns the same name"),
        (["nanos"], InvalidCoordinates, "whole microseconds"),
    ):
        with pytest.raises(error, match=message):
            read_array(spark, repository, variables=names)
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="single", shape=(), dtype="f8")
    zarr.create_array(session.store, name="bare/a", shape=(2,), dtype="f8")
    for name, message in (("single", "has no dimensions"), ("bare/a", "dimension_names")):
        with pytest.raises(UnsupportedArray, match=message):
            read_array(spark, session, variables=[name])
    with pytest.raises(NodeNotFound):
        read_array(spark, session, variables=["absent"])
    with pytest.raises(UnreachableStore, match="files or in a bucket"):
        read_array(spark, created(MemoryStore(), weather()), variables=["t2m"])


# Creating


def test_whole_numbers_that_spark_cannot_hold_are_refused_by_the_name_of_their_array(
    spark: SparkSession, tmp_path: Path
) -> None:
    counts = xr.Dataset({"n": ("time", np.array([1, 2**64 - 1], "u8"))}, {"time": TIMES[:2]})
    df = read_array(spark, created(tmp_path / "counts", counts), variables=["n"])
    with pytest.raises(PythonException, match="UnsupportedArray: Spark cannot use the array /n: a value has no exact"):
        df.collect()


def test_an_array_is_created_with_the_coordinates_of_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "r", config=NATIVE)
    session = repository.writable_session("main")
    hourly = ArraySpec(encoding={"chunks": (2, 2)}, attributes={"units": "K"})
    df = frame(spark, [(0, 0), (5, 2), (2, 0), (2, 3)], [100.0, 101.0, None, 7.0])
    result = write_array(df, session, "g/t2m", dims=DIMENSIONS, create=hourly)
    assert (result.chunks, result.cells) == (3, 4)
    session.commit("spark")
    values = np.full((3, 3), np.nan)
    values[0, 2], values[2, 0], values[1, 1] = 100, 101, 7
    expected = xr.Dataset({"t2m": (DIMENSIONS, values)}, {"time": TIMES[[0, 2, 5]], "station": [3, 5, 11]})
    read = opened(repository.readonly_session("main"), "g")
    xr.testing.assert_equal(read, expected)
    assert (read.t2m.attrs, read.t2m.encoding["chunks"]) == ({"units": "K"}, (2, 2))


@pytest.mark.extended
def test_arrays_of_one_group_share_coordinates(spark: SparkSession, tmp_path: Path) -> None:
    session = Repository.create(tmp_path / "r").writable_session("main")
    hours = ArraySpec({"time": TIMES, "station": STATIONS})
    write_array(frame(spark, [(0, 0)], [1.5]), session, "t2m", dims=DIMENSIONS, create=hours)
    packed = ArraySpec({"station": STATIONS}, {"dtype": "int16", "scale_factor": 0.5, "_FillValue": -1})
    write_array(frame(spark, [(1, 3)], [2.5], "wind"), session, "wind", dims=["station", "time"], create=packed)
    texts = ArraySpec(encoding={"fill_value": ""})
    write_array(frame(spark, [(5, 1)], ["é"], "note"), session, "note", dims=["time", "station"], create=texts)
    expected = weather().assign(t2m=weather().t2m * np.nan)
    expected["wind"], expected["note"] = expected.t2m.copy().transpose(), xr.full_like(expected.t2m, "", object)
    expected.t2m[0, 0], expected.wind[3, 1], expected.note[5, 1] = 1.5, 2.5, "é"
    xr.testing.assert_equal(opened(session), expected)


def test_a_write_that_creates_is_repeated_without_harm(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    hours = ArraySpec({"time": TIMES, "station": STATIONS}, {"chunks": (2, 2)})
    df = frame(spark, [(0, 0), (3, 3)], [1.0, 2.0])
    for create in (hours, ArraySpec()):
        with lake.session() as session:
            repository = session.create_icechunk("arrays/weather", exist_ok=True)
            write_array(df, repository, "t2m", dims=DIMENSIONS, create=create)
    expected = weather().assign(t2m=weather().t2m * np.nan)
    expected.t2m[0, 0], expected.t2m[3, 3] = 1, 2
    xr.testing.assert_equal(opened(lake.icechunk("arrays/weather").session), expected)
    assert lake.maintenance.verify() == []


@pytest.mark.extended
def test_a_creation_that_fails_leaves_the_session_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    session = Repository.create(tmp_path / "r").writable_session("main")
    df = frame(spark, [(0, 0), (0, 0)], [1.0, 2.0])
    zero = df.selectExpr("time", "station", "1 / (t2m - 1) AS t2m")
    text = df.selectExpr("time", "station", "'a' AS t2m")
    money = df.selectExpr("time", "station", "CAST(t2m AS decimal(4, 2)) AS t2m")
    grid = {"time": TIMES, "station": STATIONS}
    for rows, dims, spec, error, message in (
        (df, DIMENSIONS, ArraySpec(grid), DuplicateCells, "several rows belong to one cell of /t2m"),
        (zero, DIMENSIONS, ArraySpec(grid), SparkJobFailed, "by zero"),
        (df, DIMENSIONS, ArraySpec(grid | {"time": TIMES[1:]}), UnknownCoordinates, "2 rows .* that /t2m lacks"),
        (df, DIMENSIONS, ArraySpec(grid | {"time": TIMES[[0, 0]]}), InvalidCoordinates, "occurs twice along 'time'"),
        (df, DIMENSIONS, ArraySpec(grid | {"station": ["a"]}), InvalidColumns, "'station' is of the type int64"),
        (df, DIMENSIONS, ArraySpec(grid | {"station": 5}), InvalidArraySpec, "a list of coordinates"),
        (df, DIMENSIONS, ArraySpec(grid | {"level": [5]}), InvalidArraySpec, "dimensions of /t2m are time, station"),
        (df, DIMENSIONS, ArraySpec(grid, {"chunks": (2,)}), InvalidArraySpec, "have 1 dimension, and the array 2"),
        (df, DIMENSIONS, ArraySpec(grid, {"chunk": (2, 2)}), InvalidArraySpec, "unexpected encoding"),
        (df, DIMENSIONS, ArraySpec(grid, {"dtype": "int16"}), InvalidArraySpec, "pass a _FillValue"),
        (text, DIMENSIONS, ArraySpec(grid), InvalidArraySpec, "pass a _FillValue"),
        (money, DIMENSIONS, ArraySpec(grid), InvalidColumns, r"'t2m' has the type decimal128\(4, 2\)"),
        (df.where("false"), DIMENSIONS, ArraySpec(), InvalidArraySpec, "no coordinates along 'time'"),
        (df, None, ArraySpec(grid), InvalidArraySpec, "name the dimensions"),
        (df, ["time", "time"], ArraySpec(grid), InvalidArraySpec, "do not repeat one"),
        (df, DIMENSIONS, None, NodeNotFound, "no array /t2m"),
    ):
        with pytest.raises(error, match=message):
            write_array(rows, session, "t2m", dims=dims, create=spec)
        assert not session.has_uncommitted_changes, message


def test_a_group_keeps_what_it_has_from_before_a_creation(spark: SparkSession, tmp_path: Path) -> None:
    dataset = weather().drop_vars("station").assign(wind=("level", [1.0, 2.0]))
    session = created(tmp_path / "r", dataset).writable_session("main")
    counted = frame(spark, [(0, 0)], [1.0], "gust").selectExpr("time", "2 AS station", "gust")
    for path, spec, error, message in (
        ("gust", ArraySpec({"time": TIMES[::-1]}), InvalidCoordinates, "other coordinates along 'time'"),
        ("gust", ArraySpec({"station": STATIONS}), InvalidCoordinates, "other coordinates along 'station'"),
        ("t2m/gust", ArraySpec({"time": TIMES, "station": STATIONS}), InvalidArraySpec, "inside the array /t2m"),
        ("t2m", ArraySpec({"time": TIMES[::-1]}), InvalidCoordinates, "other coordinates along 'time'"),
    ):
        with pytest.raises(error, match=message):
            write_array(counted, session, path, dims=DIMENSIONS, value="gust", create=spec)
    with pytest.raises(InvalidArraySpec, match="/wind exists, but does not hold coordinates"):
        write_array(counted.selectExpr("2 AS wind", "gust"), session, "gust", dims=["wind"], create=ArraySpec())
    assert not session.has_uncommitted_changes
    write_array(counted, session, "gust", dims=DIMENSIONS, create=ArraySpec())
    dataset["gust"] = dataset.t2m * np.nan
    dataset.gust[0, 2] = 1
    xr.testing.assert_equal(opened(session), dataset)


# Writing


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_rows_land_in_their_cells_and_the_others_stay(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    repository = created(tmp_path / "r", weather())
    with settings(spark, {"spark.sql.session.timeZone": zone}):
        session = repository.writable_session("main")
        df = frame(spark, [(0, 0), (5, 2), (0, 1)], [100.0, 101.0, None], "v")
        result = write_array(df, session, "t2m", dims=["time", "station"], value="v")
        naive = frame(spark, [(4, 2)], [8]).selectExpr("timestamp_ntz'2024-01-01 04:00:00' AS time", "station", "t2m")
        write_array(naive, session, "/t2m")
        read = rows(read_array(spark, session, variables=["t2m"], where="time = '2024-01-01 05:00:00' AND station = 3"))
    assert (result.chunks, result.cells, result.bytes > 0) == (2, 3, True)
    assert read == [(datetime(2024, 1, 1, 5, tzinfo=UTC), 3, 101.0)]
    session.commit("spark")
    expected = weather()
    expected.t2m[0, 0], expected.t2m[5, 2], expected.t2m[0, 1], expected.t2m[4, 2] = 100, 101, np.nan, 8
    xr.testing.assert_equal(opened(repository.readonly_session("main")), expected)


def test_values_are_stored_as_xarray_stores_them(spark: SparkSession, tmp_path: Path) -> None:
    blank = encoded()
    for variable in blank.data_vars.values():
        variable.values[...] = 0
    source, target = created(tmp_path / "source", encoded()), created(tmp_path / "target", blank)
    target_session = target.writable_session("main")
    for name in ("packed", "holes", "whole", "truth", "turned"):
        write_array(read_array(spark, source, variables=[name]), target_session, name)
    target_session.commit("copied")
    first, other = (
        xr.open_zarr(repository.readonly_session("main").store, consolidated=False, decode_cf=False)
        .drop_vars("t2m")
        .load()
        for repository in (source, target)
    )
    xr.testing.assert_equal(first, other)


def test_rows_that_fit_no_cell_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    dataset = encoded().assign(twice=("copy", [1.0, 2]), copy=[5, 5])
    session = created(tmp_path / "r", dataset).writable_session("main")
    good = frame(spark, [(0, 0), (5, 3)], [1.0, 2.0])
    for df, path, options, error, message in (
        (
            good.union(good.selectExpr("time", "station + 1", "t2m")),
            "t2m",
            {},
            UnknownCoordinates,
            r"2 rows.*station (12|6)\)",
        ),
        (good.selectExpr("CAST(NULL AS timestamp) time", "station", "t2m"), "t2m", {}, UnknownCoordinates, "time None"),
        (good.union(good), "t2m", {}, DuplicateCells, r"cell at \((0, 0|5, 3)\)"),
        (frame(spark, [(0, 0)], [None], kind=pa.int64()), "whole", {"value": "t2m"}, InvalidValues, "_FillValue"),
        (
            frame(spark, [(0, 0)], [-1]),
            "whole",
            {"value": "t2m"},
            InvalidValues,
            "does not fit /whole, whose cells are uint32",
        ),
        (
            frame(spark, [(0, 0)], [1e9]),
            "packed",
            {"value": "t2m"},
            InvalidValues,
            "does not fit /packed, whose cells are int16",
        ),
        (good, "t2m", {"value": "v"}, InvalidColumns, "no column 'v'; its columns are time, station, t2m"),
        (good, "t2m", {"dims": ["time"]}, InvalidColumns, "dimensions of /t2m are time, station"),
        (good, "whole", {"value": "t2m"}, InvalidColumns, "the values of /whole are int64"),
        (
            good.selectExpr("station", "CAST(time AS string) time", "t2m"),
            "t2m",
            {},
            InvalidColumns,
            "'time' is of the type string",
        ),
        (good.selectExpr("5 AS copy", "t2m"), "twice", {"value": "t2m"}, InvalidCoordinates, "5 occurs twice"),
    ):
        with pytest.raises(error, match=message):
            write_array(df, session, path, **options)  # type: ignore[arg-type]
    assert not session.has_uncommitted_changes


def test_arrays_without_cells_have_no_rows_and_take_none(spark: SparkSession, tmp_path: Path) -> None:
    session = created(tmp_path / "r", weather().isel(time=slice(0, 0))).writable_session("main")
    assert read_array(spark, session, variables=["t2m"], where="t2m > 0").count() == 0
    assert write_array(frame(spark, [(0, 0)], [1.0]).where("false"), session, "t2m").chunks == 0
    with pytest.raises(UnknownCoordinates, match="1 row with coordinates"):
        write_array(frame(spark, [(0, 0)], [1.0]), session, "t2m")


def test_sessions_that_only_read_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    repository = created(tmp_path / "r", weather())
    for session in (repository.readonly_session("main"), repository):
        with pytest.raises(ReadOnlySession, match="writable_session"):
            write_array(frame(spark, [(0, 0)], [1.0]), session, "t2m")  # type: ignore[arg-type]


def resize(array: Any) -> None:
    array.resize((2, 4))


def write_beside(array: Any) -> None:
    array[0, 1] = 5.0


@pytest.mark.parametrize(
    ("change", "message"), [(resize, "was resized"), (write_beside, "chunks of /t2m were changed")]
)
def test_what_the_session_has_changed_meanwhile_is_not_overwritten(
    spark: SparkSession, tmp_path: Path, change: Callable[[Any], None], message: str
) -> None:
    session = created(tmp_path / "r", weather()).writable_session("main")

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        while not os.path.exists(tmp_path / "changed"):
            time.sleep(0.01)
        yield from batches

    df = frame(spark, [(0, 0)], [1.0])
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(write_array, df.mapInArrow(wait, df.schema), session, "t2m")
        while not spark.sparkContext.statusTracker().getActiveJobsIds():
            assert not written.done(), written.result()
        change(zarr.open_array(session.store, path="t2m"))
        (tmp_path / "changed").touch()
        with pytest.raises(ArrayChanged, match=message):
            written.result()


@pytest.mark.extended
def test_two_writers_of_one_chunk_contradict_one_another(spark: SparkSession, tmp_path: Path) -> None:
    repository = created(tmp_path / "r", weather())
    first, other, apart = (repository.writable_session("main") for _ in range(3))
    for session, cell in ((first, (0, 0)), (other, (1, 1)), (apart, (2, 0))):
        write_array(frame(spark, [cell], [1.0]), session, "t2m")
    first.commit("one")
    with pytest.raises(RebaseFailedError):
        other.commit("other", rebase_with=ConflictDetector())
    apart.commit("apart", rebase_with=ConflictDetector())
    assert opened(repository.readonly_session("main")).t2m.values[[0, 2], 0].tolist() == [1.0, 1.0]


def test_a_session_of_a_lake_publishes_arrays_with_the_rest(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    with lake.session() as session:
        weather().to_zarr(session.create_icechunk("arrays/weather").store, consolidated=False)
    with lake.session() as session:
        repository = session.icechunk("arrays/weather")
        write_array(frame(spark, [(3, 3)], [50.0]), repository, "t2m")
        doubled = read_array(spark, repository, variables=["t2m"], where="station = 5").selectExpr(
            "time", "station", "t2m * 2 AS t2m"
        )
        write_array(doubled, repository, "t2m")
        assert opened(lake.icechunk("arrays/weather").session).equals(weather()), "nothing shows before the publish"
    assert opened(lake.icechunk("arrays/weather").session).t2m.values[:, 3].tolist() == [
        1.5,
        3.5,
        5.5,
        100.0,
        9.5,
        11.5,
    ]
    assert lake.maintenance.verify() == []
    with pytest.raises(ReadOnlySession):
        write_array(frame(spark, [(3, 3)], [50.0]), lake.icechunk("arrays/weather"), "t2m")


class DiesAfterChunks(LocalStore):
    """A store whose first chunk is the last thing that its process does."""

    flag = ""

    def _put(self, key: str, data: Any, if_absent: bool, if_match: str | None, unique: bool) -> Any:
        meta = super()._put(key, data, if_absent, if_match, unique)
        if self.flag and key.startswith("chunks/") and not os.path.exists(self.flag):
            open(self.flag, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return meta


def test_a_worker_killed_after_chunks_leaves_only_chunks_that_nothing_refers_to(
    spark: SparkSession, tmp_path: Path
) -> None:
    from pyspark import cloudpickle

    import tests.spark.test_arrays as here

    store = DiesAfterChunks(str(tmp_path / "r"))
    repository = created(store, weather())
    before = chunk_objects(repository)
    store.flag = str(tmp_path / "killed")
    session = repository.writable_session("main")
    cloudpickle.register_pickle_by_value(here)
    try:
        result = write_array(frame(spark, [(0, 0), (2, 0), (5, 3)], [1.0, 2.0, 3.0]), session, "t2m")
    finally:
        cloudpickle.unregister_pickle_by_value(here)
    assert os.path.exists(store.flag)
    assert result.chunks == 3
    assert len(chunk_objects(repository) - before) > 3
    session.commit("spark")
    values = opened(repository.readonly_session("main")).t2m.values
    assert (values[0, 0], values[2, 0], values[5, 3]) == (1.0, 2.0, 3.0)


def test_a_job_that_fails_leaves_the_session_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    session = created(tmp_path / "r", weather()).writable_session("main")
    with pytest.raises(SparkJobFailed, match="by zero"):
        write_array(frame(spark, [(0, 0)], [1.0]).selectExpr("time", "station", "1 / (t2m - 1) AS t2m"), session, "t2m")
    assert not session.has_uncommitted_changes


def test_arrays_on_s3(spark: SparkSession, s3_url: str, s3_options: dict[str, Any]) -> None:
    repository = created(s3_url, weather(), storage_options=s3_options)
    session = repository.writable_session("main")
    rows = read_array(spark, repository, variables=["t2m"])
    scattered = rows.repartition(3, "station").selectExpr("time", "station", "t2m + 1 AS t2m")
    assert write_array(scattered, session, "t2m").chunks == 6
    session.commit("spark")
    xr.testing.assert_equal(opened(repository.readonly_session("main")), weather().assign(t2m=weather().t2m + 1))
    assert str(s3_options["secret"]) not in rows._jdf.queryExecution().toString()  # type: ignore[attr-defined]
