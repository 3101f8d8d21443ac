"""Arrays as assets: the reference reader and a parameter load what was returned, whole or by regions."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import base64
import struct
from pathlib import Path
from typing import Any

import dagster as dg
import icechunk
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr

from lake_core import Lake
from lake_core.icechunk import Repository, Session
from lake_orch import IcechunkIOManager, InvalidDefinition, LakeResource, OutsideRegion, RegionMismatch
from lake_orch.assets.arrays.image import picture
from lake_orch.assets.arrays.partitioning import with_partitions
from lake_orch.assets.arrays.region import region_of_partitions
from lake_orch.assets.arrays.settings import ArraySettings
from lake_orch.dagster.partitions import partitions_of
from lake_orch.errors import PartitionSliceError, TableNotEmpty, TableOwned, UnsupportedData

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-11")
REGIONS = dg.StaticPartitionsDefinition(["eu", "africa", "us"])
BOTH = dg.MultiPartitionsDefinition({"day": DAYS, "region": REGIONS})
SINGLE_RUN = dg.BackfillPolicy.single_run()


@pytest.fixture
def resources(root: str) -> dict[str, Any]:
    lake = LakeResource(root=root)
    return {"lake": lake, "io_manager": IcechunkIOManager(lake=lake)}


def stored(root: str, name: str = "weather") -> xr.Dataset:
    """Return what the reference reader finds."""
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(f"{root}/tables/{name}"))
    return xr.open_zarr(repository.readonly_session("main").store, consolidated=False, chunks=None).load()


def hours(day: str, count: int = 24, offset: float = 0) -> xr.Dataset:
    """Return hourly values from the start of a day on. Each value encodes its time."""
    time = pd.date_range(day, periods=count, freq="h")
    values = (
        (time.to_numpy().astype("datetime64[h]").astype(int) % 1000)[:, None, None]
        + np.arange(12.0).reshape(3, 4) / 100
        + offset
    )
    return xr.Dataset(
        {"t2m": (("time", "lat", "lon"), values.astype(np.float32), {"units": "K"})},
        coords={"time": time, "lat": [50.0, 51.0, 52.0], "lon": [5.0, 6.0, 7.0, 8.0]},
        attrs={"source": "test"},
    )


def weather(**metadata: Any) -> dg.AssetsDefinition:
    """Return an asset of hourly values in daily partitions."""

    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "time", **metadata}, kinds={"icechunk", "xarray"})
    def weather(context: dg.AssetExecutionContext) -> xr.Dataset:
        return hours(context.partition_key)

    return weather


def metadata_of(result: dg.ExecuteInProcessResult, node: str) -> dict[str, Any]:
    return {name: value.value for name, value in result.asset_materializations_for_node(node)[0].metadata.items()}


# Whole


def values_of(kind: str) -> Any:
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    if kind == "dask":
        return pytest.importorskip("dask.array").from_array(data, chunks=(2, 2))
    if kind == "zarr array":
        return zarr.create_array({}, data=data, chunks=(2, 2))
    if kind == "zarr group":
        group = zarr.create_group({}, attributes={"title": "group"})
        group.create_group("inner").create_array("deep", data=data, chunks=(2, 2))
        return group
    array = xr.DataArray(data, dims=("y", "x"), coords={"x": list("abcd")}, name="v")
    return {"numpy": data, "data array": array, "dataset": array.to_dataset()}[kind]


@pytest.mark.parametrize("kind", ["numpy", "dask", "zarr array", "data array", "dataset"])
def test_each_type_that_is_returned_is_what_the_reference_reader_finds(
    root: str, resources: dict[str, Any], kind: str
) -> None:
    @dg.asset
    def weather() -> Any:
        return values_of(kind)

    assert dg.materialize([weather], resources=resources).success
    (variable,) = stored(root).data_vars.values()
    np.testing.assert_array_equal(variable.values, np.asarray(values_of("numpy")))


def test_a_group_is_stored_with_all_that_is_below_it(root: str, resources: dict[str, Any]) -> None:
    @dg.asset
    def weather() -> zarr.Group:
        return values_of("zarr group")

    assert dg.materialize([weather], resources=resources).success
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(f"{root}/tables/weather"))
    group = zarr.open_group(repository.readonly_session("main").store, mode="r")
    assert dict(group.attrs) == {"title": "group"}
    np.testing.assert_array_equal(group["inner/deep"][...], values_of("numpy"))
    assert group["inner/deep"].chunks == (2, 2)


@pytest.mark.parametrize("kind", [xr.Dataset, xr.DataArray, zarr.Group, zarr.Array, np.ndarray, Session])
def test_a_parameter_is_loaded_by_its_annotation(resources: dict[str, Any], kind: type) -> None:
    loaded: list[Any] = []

    @dg.asset
    def weather() -> xr.Dataset:
        return hours("2024-01-01")

    def read(weather: Any) -> None:
        loaded.append(weather)

    read.__annotations__["weather"] = kind
    assert dg.materialize([weather, dg.asset(read)], resources=resources).success
    assert isinstance(loaded[0], kind)


def test_loading_is_lazy(resources: dict[str, Any]) -> None:
    in_memory: list[bool] = []

    @dg.asset
    def weather() -> xr.Dataset:
        return hours("2024-01-01")

    @dg.asset
    def read(weather: xr.Dataset) -> None:
        in_memory.append(weather["t2m"].variable._in_memory)

    assert dg.materialize([weather, read], resources=resources).success
    assert in_memory == [False]


def test_an_input_chooses_variables_and_a_selection(resources: dict[str, Any]) -> None:
    loaded: list[xr.Dataset] = []
    source = hours("2024-01-01").assign(extra=("lat", [1, 2, 3]))

    @dg.asset
    def weather() -> xr.Dataset:
        return source

    metadata = {
        "columns": ["t2m"],
        "lake/sel": {"time": {"start": "2024-01-01T06", "stop": "2024-01-01T08"}, "lat": 51.0},
    }

    @dg.asset(ins={"weather": dg.AssetIn(metadata=metadata)})
    def read(weather: xr.Dataset) -> None:
        loaded.append(weather.load())

    assert dg.materialize([weather, read], resources=resources).success
    assert loaded[0].equals(source[["t2m"]].sel(time=slice("2024-01-01T06", "2024-01-01T08"), lat=51.0))


def test_a_setting_that_has_no_effect_on_an_input_of_arrays_is_refused(resources: dict[str, Any]) -> None:
    @dg.asset
    def weather() -> xr.Dataset:
        return hours("2024-01-01")

    @dg.asset(ins={"weather": dg.AssetIn(metadata={"lake/where": "lat > 50"})})
    def read(weather: xr.Dataset) -> None: ...

    with pytest.raises(InvalidDefinition, match="no effect: the settings of this input are columns, lake/sel"):
        dg.materialize([weather, read], resources=resources)


def test_an_encoding_decides_how_arrays_are_stored(root: str, resources: dict[str, Any]) -> None:
    packed = {
        "dtype": "int16",
        "scale_factor": 0.01,
        "add_offset": 500.0,
        "_FillValue": -32768,
        "chunks": [12, 1, 4],
        "shards": [24, 3, 4],
    }

    @dg.asset(metadata={"lake/encoding": {"t2m": packed}})
    def weather() -> xr.Dataset:
        return hours("2024-01-01")

    assert dg.materialize([weather], resources=resources).success
    array = zarr.open_group(Repository.open(f"{root}/tables/weather").readonly_session("main").store, mode="r")["t2m"]
    assert (str(array.dtype), array.chunks, array.shards, array.fill_value) == ("int16", (12, 1, 4), (24, 3, 4), -32768)


def test_a_whole_write_replaces_what_was_there(root: str, resources: dict[str, Any]) -> None:
    days = iter(["2024-01-01", "2024-01-05"])

    @dg.asset
    def weather() -> xr.Dataset:
        return hours(next(days))

    for _ in range(2):
        assert dg.materialize([weather], resources=resources).success
    assert stored(root).identical(hours("2024-01-05"))


def test_appends_add_along_their_dimension(root: str, resources: dict[str, Any]) -> None:
    days = iter(["2024-01-01", "2024-01-02"])

    @dg.asset(metadata={"lake/append_dim": "time"})
    def weather() -> xr.Dataset:
        return hours(next(days))

    for _ in range(2):
        assert dg.materialize([weather], resources=resources).success
    assert stored(root).equals(hours("2024-01-01", 48))


@pytest.mark.parametrize(("mode", "error"), [("error", TableNotEmpty), ("ignore", None)])
def test_the_first_arrays_alone_are_written_where_the_mode_says_so(
    root: str, resources: dict[str, Any], mode: str, error: type[Exception] | None
) -> None:
    days = iter(["2024-01-01", "2024-01-05"])

    @dg.asset(metadata={"lake/mode": mode})
    def weather() -> xr.Dataset:
        return hours(next(days))

    dg.materialize([weather], resources=resources)
    if error is None:
        dg.materialize([weather], resources=resources)
    else:
        with pytest.raises(error):
            dg.materialize([weather], resources=resources)
    assert stored(root).equals(hours("2024-01-01"))


# Regions


@pytest.mark.extended
@pytest.mark.parametrize(
    ("order", "chunk"),
    [
        ([3, 1, 2, 1], 7),
        *(
            pytest.param(order, chunk, marks=pytest.mark.exhaustive)
            for order in ([1, 2, 3], [3, 2, 1], [1, 3, 2], [2, 2, 3, 1, 2])
            for chunk in (7, 24, 100)
        ),
    ],
    ids=str,
)
def test_days_in_any_order_become_what_the_source_is(
    root: str, resources: dict[str, Any], order: list[int], chunk: int
) -> None:
    asset = weather(**{"lake/encoding": {"t2m": {"chunks": [chunk, 3, 4]}}})
    for day in order:
        assert dg.materialize([asset], partition_key=f"2024-01-0{day}", resources=resources).success
    assert stored(root).equals(hours("2024-01-01", 72))


def test_declared_coordinates_give_each_day_its_place(root: str, resources: dict[str, Any]) -> None:
    asset = weather(**{"lake/coordinates": {"time": pd.date_range("2024-01-01", periods=72, freq="h")}})
    assert dg.materialize([asset], partition_key="2024-01-02", resources=resources).success
    expected = hours("2024-01-02").reindex(time=pd.date_range("2024-01-01", periods=72, freq="h"))
    assert stored(root).equals(expected)


@pytest.mark.extended
@pytest.mark.parametrize("partition", ["2024-03", "2024-02"])
def test_a_frequency_gives_each_month_its_place_and_chunks_of_its_own(
    root: str, resources: dict[str, Any], partition: str
) -> None:
    months = dg.MonthlyPartitionsDefinition("2024-01-01", end_date="2024-04-01")

    @dg.asset(partitions_def=months, metadata={"partition_expr": "time", "lake/coordinates": {"time": "6h"}})
    def weather(context: dg.AssetExecutionContext) -> xr.Dataset:
        window = context.partition_time_window
        time = pd.date_range(window.start, window.end, freq="6h", inclusive="left").tz_localize(None)
        return xr.Dataset({"t2m": (("time", "station"), np.ones((len(time), 2)))}, {"time": time})

    assert dg.materialize([weather], partition_key=f"{partition}-01", resources=resources).success
    arrays = stored(root)
    assert arrays.time.equals(
        xr.DataArray(pd.date_range("2024-01-01", "2024-03-31T18", freq="6h"), dims="time", name="time")
    )
    assert arrays.t2m.notnull().all("station").sum() == arrays.time.dt.strftime("%Y-%m").isin([partition]).sum()
    assert arrays.t2m.encoding["chunks"] == (4, 2), "a day is what months of 29, 30 and 31 days have in common"


@pytest.mark.parametrize(
    ("start", "end", "coordinates", "first", "length"),
    [
        ("2024-01-01T06:00", "2024-01-04T00:00", "h", "2024-01-02", 48),
        ("2024-01-01T00:00", "2024-01-03T12:00", "h", "2024-01-01", 48),
        (
            "2024-01-01T00:00",
            "2024-01-04T00:00",
            pd.date_range("2023-12-31T18", "2024-01-03T23", freq="6h"),
            "2023-12-31T18",
            13,
        ),
        (
            "2024-01-01T00:00",
            "2024-01-04T00:00",
            pd.date_range("2024-01-01", periods=72, freq="h")[::-1],
            "2024-01-03T23",
            72,
        ),
    ],
    ids=["starts within a day", "ends within a day", "coordinates before the partitions", "falling coordinates"],
)
def test_no_chunk_has_coordinates_of_two_days(start: str, end: str, coordinates: Any, first: str, length: int) -> None:
    days = dg.DailyPartitionsDefinition(start, end_date=end, fmt="%Y-%m-%dT%H:%M")
    settings = ArraySettings("tables/weather", partition_expr="time", coordinates={"time": coordinates})
    with_coordinates = with_partitions(settings, partitions_of(days), "the asset weather")
    times = pd.DatetimeIndex(with_coordinates.coordinates["time"])
    assert (times[0], len(times)) == (pd.Timestamp(first), length)
    starts = np.arange(0, length, with_coordinates.partition_chunks["time"])
    assert all(len({*times[at : at + with_coordinates.partition_chunks["time"]].date}) == 1 for at in starts.tolist())


def test_a_run_of_several_days_writes_them_all(root: str, resources: dict[str, Any]) -> None:
    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "time"}, backfill_policy=SINGLE_RUN)
    def weather(context: dg.AssetExecutionContext) -> xr.Dataset:
        return hours("2024-01-02", 48)

    tags = {"dagster/asset_partition_range_start": "2024-01-02", "dagster/asset_partition_range_end": "2024-01-03"}
    assert dg.materialize([weather], tags=tags, resources=resources).success
    assert stored(root).equals(hours("2024-01-02", 48))


@pytest.mark.extended
def test_a_day_with_other_hours_takes_the_place_of_the_earlier_one(root: str, resources: dict[str, Any]) -> None:
    """It gets shorter, and longer again: what lies behind it moves."""
    counts = iter([24, 24, 24, 10, 20])

    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "time"})
    def weather(context: dg.AssetExecutionContext) -> xr.Dataset:
        return hours(context.partition_key, next(counts))

    for day, count in ((1, None), (2, None), (3, None), (2, 10), (2, 20)):
        assert dg.materialize([weather], partition_key=f"2024-01-0{day}", resources=resources).success
        if count is not None:
            parts = [hours("2024-01-01"), hours("2024-01-02", count), hours("2024-01-03")]
            assert stored(root).equals(xr.concat(parts, "time", data_vars="minimal"))


def test_hours_of_another_day_fail_before_anything_is_visible(root: str, resources: dict[str, Any]) -> None:
    days = iter(["2024-01-01", "2024-01-02"])

    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "time"})
    def weather(context: dg.AssetExecutionContext) -> xr.Dataset:
        return hours(next(days), 30 if context.partition_key == "2024-01-02" else 24)

    dg.materialize([weather], partition_key="2024-01-01", resources=resources)
    with pytest.raises(OutsideRegion, match=r"2024-01-03T00:00.* and 5 more.*partition '2024-01-02'"):
        dg.materialize([weather], partition_key="2024-01-02", resources=resources)
    assert stored(root).equals(hours("2024-01-01"))


def test_what_is_the_same_for_all_partitions_must_stay_so(resources: dict[str, Any]) -> None:
    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "time"})
    def weather(context: dg.AssetExecutionContext) -> xr.Dataset:
        data = hours(context.partition_key)
        return data if context.partition_key == "2024-01-01" else data.assign_coords(lat=[0.0, 1.0, 2.0])

    dg.materialize([weather], partition_key="2024-01-01", resources=resources)
    with pytest.raises(RegionMismatch, match=r"'lat'.*differs from the stored array"):
        dg.materialize([weather], partition_key="2024-01-02", resources=resources)


@pytest.mark.extended
def test_keys_are_coordinates_whatever_their_length(root: str, resources: dict[str, Any]) -> None:
    """The second is longer than the first. Data without the dimension get it."""

    @dg.asset(partitions_def=REGIONS, metadata={"partition_expr": "region"})
    def weather(context: dg.AssetExecutionContext) -> xr.DataArray:
        return xr.DataArray(np.full(3, len(context.partition_key)), dims="x")

    for key in ("eu", "africa", "us", "eu"):
        assert dg.materialize([weather], partition_key=key, resources=resources).success
    assert stored(root)["region"].values.tolist() == ["eu", "africa", "us"]
    assert stored(root)["weather"].values.tolist() == [[2] * 3, [6] * 3, [2] * 3]


@pytest.mark.extended
def test_two_dimensions_of_partitions_are_a_slab(root: str, resources: dict[str, Any]) -> None:
    @dg.asset(partitions_def=BOTH, metadata={"partition_expr": {"day": "time", "region": "area"}})
    def weather(context: dg.AssetExecutionContext) -> xr.Dataset:
        keys = context.partition_key.keys_by_dimension
        return hours(keys["day"], offset=len(keys["region"])).expand_dims(area=[keys["region"]], axis=1)

    for day, region in ((2, "eu"), (1, "us"), (1, "eu"), (2, "africa"), (2, "us"), (1, "africa")):
        key = dg.MultiPartitionKey({"day": f"2024-01-0{day}", "region": region})
        assert dg.materialize([weather], partition_key=key, resources=resources).success
        if (day, region) == (1, "eu"):
            part = stored(root).sel(time="2024-01-02", area="us")
            assert bool(part["t2m"].isnull().all())
    parts = [
        hours("2024-01-01", 48, offset=len(region)).expand_dims(area=[region], axis=1)
        for region in ("eu", "us", "africa")
    ]
    assert stored(root).equals(xr.concat(parts, "area", data_vars="minimal"))


def test_coordinates_that_other_partitions_share_do_not_change(resources: dict[str, Any]) -> None:
    @dg.asset(partitions_def=BOTH, metadata={"partition_expr": {"day": "time", "region": "area"}})
    def weather(context: dg.AssetExecutionContext) -> xr.Dataset:
        keys = context.partition_key.keys_by_dimension
        return hours(keys["day"], 24 if keys["region"] == "eu" else 12).expand_dims(area=[keys["region"]], axis=1)

    dg.materialize(
        [weather], partition_key=dg.MultiPartitionKey({"day": "2024-01-01", "region": "eu"}), resources=resources
    )
    with pytest.raises(RegionMismatch, match="which other partitions share"):
        dg.materialize(
            [weather], partition_key=dg.MultiPartitionKey({"day": "2024-01-01", "region": "us"}), resources=resources
        )


def test_a_parameter_loads_the_region_of_its_partition(resources: dict[str, Any]) -> None:
    loaded: list[xr.Dataset] = []

    @dg.asset(partitions_def=DAYS)
    def read(weather: xr.Dataset) -> None:
        loaded.append(weather.load())

    for day in ("2024-01-01", "2024-01-02"):
        assert dg.materialize([weather(), read], partition_key=day, resources=resources).success
    assert loaded[1].equals(hours("2024-01-02"))


def test_a_parameter_loads_one_value_for_each_partition(resources: dict[str, Any]) -> None:
    loaded: list[dict[str, xr.DataArray]] = []
    keys = dg.StaticPartitionsDefinition(["eu", "us"])

    @dg.asset(partitions_def=keys, metadata={"partition_expr": "region"})
    def weather(context: dg.AssetExecutionContext) -> xr.DataArray:
        return xr.DataArray(np.full(3, len(context.partition_key)), dims="x")

    @dg.asset
    def read(weather: dict[str, xr.DataArray]) -> None:
        loaded.append(weather)

    for key in ("eu", "us"):
        assert dg.materialize([weather], partition_key=key, resources=resources).success
    assert dg.materialize([weather, read], selection=[read], resources=resources).success
    assert {key: value["region"].values.tolist() for key, value in loaded[0].items()} == {"eu": ["eu"], "us": ["us"]}


SET_BACK = dg.HourlyPartitionsDefinition("2024-10-27-00:00", end_date="2024-10-27-06:00", timezone="Europe/Berlin")


@pytest.mark.parametrize("key", ["2024-10-27-02:00", "2024-10-27-02:00+0100"])
def test_an_hour_that_the_clock_shows_twice_is_no_region(key: str) -> None:
    with pytest.raises(PartitionSliceError, match="clocks are set back"):
        region_of_partitions(partitions_of(SET_BACK), [key], "time", "asset a")


def test_a_night_in_which_clocks_are_set_back_is_a_region() -> None:
    region = region_of_partitions(partitions_of(SET_BACK), list(SET_BACK.get_partition_keys()), "time", "asset a")
    assert str(region.extents[0]) == "2024-10-27T00:00:00.000000 <= time < 2024-10-27T06:00:00.000000"


@pytest.mark.parametrize(
    ("metadata", "error", "message"),
    [
        ({}, InvalidDefinition, "partition_expr"),
        ({"partition_expr": "level"}, InvalidDefinition, "lacks the dimension 'level'"),
        ({"partition_expr": "lat"}, PartitionSliceError, "float64"),
        ({"partition_expr": "time", "lake/mode": "merge"}, InvalidDefinition, "use one of overwrite"),
        ({"partition_expr": "time", "lake/encoding": {"x": {}}}, InvalidDefinition, "names 'x'"),
        (
            {"partition_expr": "time", "lake/mode": "append", "lake/append_dim": "time"},
            InvalidDefinition,
            "does not go with partitions",
        ),
        (
            {"partition_expr": "time", "lake/mode": "ignore", "lake/coordinates": {"time": "1h"}},
            InvalidDefinition,
            "cannot tell which partitions are there",
        ),
        ({"partition_expr": "time", "lake/encodings": {}}, InvalidDefinition, "use 'lake/encoding'"),
        (
            {"partition_expr": "time", "lake/encoding": {"t2m": {"chunk": [1]}}},
            InvalidDefinition,
            "the encoding 'chunk': use chunks",
        ),
        (
            {"partition_expr": "time", "lake/encoding": {"t2m": {"chunks": "auto"}}},
            InvalidDefinition,
            "use a list of whole numbers",
        ),
        ({"partition_expr": "time", "lake/preview_image": "t"}, InvalidDefinition, "names 't'; the variables are t2m"),
        (
            {"partition_expr": "time", "lake/coordinates": {"lat": [1]}},
            InvalidDefinition,
            "names 'lat', but its partitions stand for time",
        ),
        (
            {"partition_expr": "time", "lake/coordinates": {"time": "hours"}},
            InvalidDefinition,
            "the frequency 'hours': use one of pandas",
        ),
        (
            {"partition_expr": "time", "lake/coordinates": {"time": "0h"}},
            InvalidDefinition,
            "the frequency '0h': use one of pandas",
        ),
        (
            {"partition_expr": "time", "lake/coordinates": {"time": "-1h"}},
            InvalidDefinition,
            "the frequency '-1h', which has no time",
        ),
    ],
)
def test_metadata_that_cannot_be_followed_fails_before_anything_is_written(
    root: str, resources: dict[str, Any], metadata: dict[str, Any], error: type[Exception], message: str
) -> None:
    @dg.asset(partitions_def=DAYS, metadata=metadata)
    def weather(context: dg.AssetExecutionContext) -> xr.Dataset:
        return hours(context.partition_key)

    with pytest.raises(error, match=message):
        dg.materialize([weather], partition_key="2024-01-01", resources=resources)
    url = f"{root}/tables/weather"
    assert not Repository.exists(url) or len(list(Repository.open(url).ancestry(branch="main"))) == 1


def test_what_holds_no_arrays_is_refused(resources: dict[str, Any]) -> None:
    @dg.asset
    def weather() -> Any:
        return pd.DataFrame({"x": [1]})

    with pytest.raises(UnsupportedData, match=r"pandas.*DataFrame: return one of xarray\.Dataset"):
        dg.materialize([weather], resources=resources)


def test_arrays_of_another_asset_are_not_replaced(resources: dict[str, Any]) -> None:
    @dg.asset(metadata={"lake/path": "tables/shared"})
    def one() -> np.ndarray:
        return np.zeros(3)

    @dg.asset(metadata={"lake/path": "tables/shared"})
    def two() -> np.ndarray:
        return np.ones(3)

    dg.materialize([one], resources=resources)
    with pytest.raises(TableOwned, match="made by asset one"):
        dg.materialize([two], resources=resources)


# Arrays that partitions share


def of_regions(shares: dict[str, float], mode: str = "overwrite") -> dg.AssetsDefinition:
    """Return an asset with a share of each region that a run writes: days of regions, with one value each."""

    @dg.asset(
        partitions_def=BOTH,
        backfill_policy=SINGLE_RUN,
        metadata={"partition_expr": {"day": "time", "region": "area"}, "lake/mode": mode},
    )
    def weather(context: dg.AssetExecutionContext) -> xr.Dataset:
        keys = [key.keys_by_dimension for key in context.partition_keys if isinstance(key, dg.MultiPartitionKey)]
        days, areas = (sorted({key[name] for key in keys}) for name in ("day", "region"))
        return xr.Dataset(
            {
                "t2m": (("time", "area"), np.ones((len(days), len(areas)))),
                "share": ("area", [shares[area] for area in areas]),
            },
            {"time": np.array(days, "M8[ns]"), "area": areas},
        )

    return weather


def materialize_range(asset: dg.AssetsDefinition, first: str, last: str, resources: dict[str, Any]) -> None:
    tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    with dg.DagsterInstance.ephemeral() as instance:
        dg.materialize([asset], tags=tags, resources=resources, instance=instance)


def test_a_run_of_several_partitions_leaves_what_others_share(root: str, resources: dict[str, Any]) -> None:
    dg.materialize([of_regions({"eu": 1.0})], partition_key="2024-01-01|eu", resources=resources)
    with pytest.raises(RegionMismatch, match=r"'share'.* which other partitions share"):
        materialize_range(
            of_regions({"eu": 9.0, "africa": 3.0, "us": 2.0}), "2024-01-02|eu", "2024-01-02|us", resources
        )
    assert stored(root)["share"].values.tolist() == [1.0]


def test_a_run_of_neighbouring_days_adds_those_that_another_region_lacks(root: str, resources: dict[str, Any]) -> None:
    shares = {"eu": 1.0, "us": 2.0}
    dg.materialize([of_regions(shares)], partition_key="2024-01-02|eu", resources=resources)
    materialize_range(of_regions(shares), "2024-01-01|us", "2024-01-03|us", resources)
    assert stored(root)["t2m"].sel(area="us").values.tolist() == [1.0, 1.0, 1.0]
    assert stored(root)["t2m"].sel(area="eu").fillna(-1).values.tolist() == [-1.0, 1.0, -1.0]


def test_a_mode_that_asks_what_is_there_is_refused_where_nothing_says_so(resources: dict[str, Any]) -> None:
    with pytest.raises(InvalidDefinition, match="cannot tell which partitions are there"):
        dg.materialize([of_regions({"eu": 1.0}, "ignore")], partition_key="2024-01-01|eu", resources=resources)


# What the UI shows


def test_a_write_says_what_it_wrote(root: str, resources: dict[str, Any]) -> None:
    shown = metadata_of(dg.materialize([weather()], partition_key="2024-01-01", resources=resources), "weather")
    schema = shown.pop("dagster/column_schema")
    assert (schema.columns[0].name, schema.columns[0].type) == ("t2m", "float32[time, lat, lon]")
    assert schema.columns[0].constraints.other == ["chunks 24×3×4", "units K"]
    expected = {
        "lake/dims": "time: 24, lat: 3, lon: 4",
        "lake/shape": "(24, 3, 4)",
        "lake/chunks": "(24, 3, 4)",
        "lake/dtype": "float32",
        "lake/region": "time: 24",
        "lake/chunks_written": 4,
        "lake/uncompressed_bytes": 24 * 12 * 4 + 24 * 8 + 7 * 8,
        "lake/operation": "overwrite",
        "lake/snapshot": Repository.open(f"{root}/tables/weather").lookup_branch("main"),
        "dagster/table_name": "weather",
        "lake/path": "tables/weather",
    }
    assert {name: shown[name] for name in expected} == expected


def test_the_page_shows_a_picture_unless_that_is_not_wanted(resources: dict[str, Any]) -> None:
    shown = metadata_of(dg.materialize([weather()], partition_key="2024-01-01", resources=resources), "weather")
    assert shown["lake/preview"].startswith("![t2m](data:image/png;base64,iVBOR")
    assert "t2m at time 2024-01-01T23:00" in shown["lake/preview"]
    chosen = weather(**{"lake/preview_image": "t2m"})
    shown = metadata_of(dg.materialize([chosen], partition_key="2024-01-03", resources=resources), "weather")
    assert "t2m at time 2024-01-03T23:00" in shown["lake/preview"]
    plain = weather(**{"lake/preview_image": False})
    assert "lake/preview" not in metadata_of(
        dg.materialize([plain], partition_key="2024-01-02", resources=resources), "weather"
    )


@pytest.mark.parametrize(
    ("shape", "size"), [((3, 744), (248, 96)), ((744, 3), (96, 248)), ((100, 100), (100, 100)), ((1, 1), (96, 96))]
)
def test_a_picture_of_few_rows_is_no_line(shape: tuple[int, int], size: tuple[int, int]) -> None:
    drawn = picture(xr.Dataset({"t2m": (("y", "x"), np.zeros(shape))}))
    assert drawn is not None
    png = base64.b64decode(drawn[0].partition("base64,")[2].rstrip(")"))
    assert struct.unpack(">II", png[16:24]) == size


def test_a_retry_after_the_commit_writes_nothing(
    root: str, resources: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends between the commit and the report of it; the step is tried again."""
    reports = iter([RuntimeError("the process ends"), None])
    add = dg.OutputContext.add_output_metadata

    def failing(self: dg.OutputContext, metadata: Any) -> None:
        error = next(reports)
        if error is not None:
            raise error
        add(self, metadata)

    monkeypatch.setattr(dg.OutputContext, "add_output_metadata", failing)

    @dg.asset(metadata={"lake/append_dim": "time"}, retry_policy=dg.RetryPolicy(max_retries=1))
    def weather() -> xr.Dataset:
        return hours("2024-01-01")

    shown = metadata_of(dg.materialize([weather], resources=resources), "weather")
    assert shown["lake/skipped"] is True
    assert stored(root).equals(hours("2024-01-01"))


# In a lake


@pytest.mark.parametrize("scope", ["asset", "run"])
def test_days_are_published_to_a_lake(tmp_path: Path, scope: str) -> None:
    Lake.create(tmp_path / "lake")
    lake = LakeResource(root=str(tmp_path / "lake"), scope=scope)
    resources = {"lake": lake, "io_manager": IcechunkIOManager(lake=lake)}
    for day in ("2024-01-02", "2024-01-01"):
        assert dg.materialize([weather()], partition_key=day, resources=resources).success
    assert stored(str(tmp_path / "lake")).equals(hours("2024-01-01", 48))


def test_new_repositories_follow_the_version_that_the_io_manager_names(root: str) -> None:
    @dg.asset
    def weather() -> xr.Dataset:
        return hours("2024-01-01")

    @dg.asset
    def warmer(weather: xr.Dataset) -> xr.Dataset:
        return weather + 1

    lake = LakeResource(root=root)
    for version in (2, 1):  # an existing repository keeps its version
        manager = IcechunkIOManager(lake=lake, spec_version=version)
        assert dg.materialize([weather, warmer], resources={"lake": lake, "io_manager": manager}).success
        repository = Repository.open(f"{root}/tables/warmer")
        assert repository.spec_version == 2
        loaded = xr.open_zarr(repository.readonly_session("main").store, consolidated=False, chunks=None)
        assert np.allclose(loaded.t2m.values, hours("2024-01-01").t2m.values + 1)
