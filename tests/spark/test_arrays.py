"""Arrays as rows of Spark, and rows as chunks of arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from pyspark.sql import DataFrame, SparkSession

from lake_core.icechunk import Repository, RepositoryConfig
from lake_core.spark import read_array, write_array

TIMES = pd.date_range("2024-01-01", periods=6, freq="h")
STATIONS = [11, 7, 3, 5]


def weather(**encoding: Any) -> xr.Dataset:
    values = np.arange(24, dtype=np.float64).reshape(6, 4) / 4
    dataset = xr.Dataset({"t2m": (("time", "station"), values)}, {"time": TIMES, "station": STATIONS})
    dataset.t2m.encoding = {"chunks": (2, 2), "compressors": None, **encoding}
    return dataset


def created(location: Path, dataset: xr.Dataset, group: str | None = None) -> Repository:
    repository = Repository.create(location, config=RepositoryConfig(inline_chunk_threshold_bytes=0))
    session = repository.writable_session("main")
    dataset.to_zarr(session.store, group=group, consolidated=False)
    session.commit("arrays")
    return repository


def rows(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in df.toArrow().to_pylist())


def as_rows(dataset: xr.Dataset) -> list[tuple[Any, ...]]:
    """Return what xarray makes of the cells."""
    frame = dataset.to_dataframe().reset_index()[["time", "station", "t2m"]]
    frame["time"] = frame["time"].dt.tz_localize("UTC")
    return sorted(frame.itertuples(index=False, name=None))


@pytest.mark.parametrize("encoding", [{"compressors": None}, {"compressors": "auto"}])
def test_cells_are_read_as_xarray_reads_them(spark: SparkSession, tmp_path: Path, encoding: dict[str, Any]) -> None:
    repository = created(tmp_path / "r", weather(**encoding))
    assert rows(read_array(spark, repository, variables=["t2m"])) == as_rows(weather())


def test_rows_land_in_their_cells(spark: SparkSession, tmp_path: Path) -> None:
    repository = created(tmp_path / "r", weather())
    session = repository.writable_session("main")
    df = spark.createDataFrame(pd.DataFrame({"time": TIMES[[0, 5, 0]], "station": [11, 3, 7], "v": [100.0, 101.0, 102.0]}))
    result = write_array(df, session, "t2m", dims=["time", "station"], value="v")
    assert (result.chunks, result.cells) == (2, 3)
    session.commit("spark")
    expected = weather()
    expected.t2m[0, 0], expected.t2m[5, 2], expected.t2m[0, 1] = 100, 101, 102
    opened = xr.open_zarr(repository.readonly_session("main").store, consolidated=False)
    xr.testing.assert_equal(opened, expected)
