"""Values of array assets come back as they were returned, or the step fails with nothing committed."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cftime
import dagster as dg
import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr

from lake_core.icechunk import Repository
from lake_orch import IcechunkIOManager, LakeResource
from lake_orch.assets.arrays.settings import ENCODINGS
from lake_orch.errors import RegionMismatch, UnsupportedData

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-03-01")


class Weather:
    """An asset whose data the test sets."""

    def __init__(self, root: str, metadata: dict[str, Any], *, partitioned: bool) -> None:
        self.root = root
        self.data: Any = None
        self.instance = dg.DagsterInstance.ephemeral()

        @dg.asset(metadata=metadata, partitions_def=DAYS if partitioned else None)
        def weather() -> Any:
            return self.data

        self.asset = weather

    def put(self, data: Any, day: str | None = None) -> None:
        self.data = data
        lake = LakeResource(root=self.root)
        resources = {"lake": lake, "io_manager": IcechunkIOManager(lake=lake)}
        dg.materialize([self.asset], partition_key=day, resources=resources, instance=self.instance)

    @property
    def repository(self) -> Repository:
        return Repository.open(f"{self.root}/tables/weather")

    def commits(self) -> int:
        return len(list(self.repository.ancestry(branch="main"))) - 1

    def stored(self) -> xr.Dataset:
        return xr.open_zarr(self.repository.readonly_session("main").store, consolidated=False, chunks=None).load()

    def warnings(self) -> list[str]:
        return [
            record.event_log_entry.user_message
            for run in self.instance.get_runs()
            for record in self.instance.get_records_for_run(run.run_id).records
            if record.event_log_entry.level == 30
        ]


@pytest.fixture
def partitioned(root: str) -> Callable[..., Weather]:
    return lambda **metadata: Weather(root, {"partition_expr": "time", **metadata}, partitioned=True)


@pytest.fixture
def whole(root: str) -> Callable[..., Weather]:
    return lambda **metadata: Weather(root, metadata, partitioned=False)


def day(date: str, values: Any, **attributes: Any) -> xr.Dataset:
    time = pd.date_range(date, periods=len(values), freq="h")
    return xr.Dataset({"v": ("time", values, attributes)}, {"time": time})


FIRST_AND_LATER = {
    "an integer beyond its type": (np.array([1], "int16"), np.array([70000], "int32")),
    "a negative number without a sign": (np.array([1], "uint8"), np.array([-1], "int64")),
    "a float that overflows": (np.array([1], "float32"), np.array([1e300])),
    "a float that is rounded": (np.array([1], "float32"), np.array([0.1])),
    "a missing text": (np.array(["a"]), np.array([None], object)),
    "a number among texts": (np.array(["a"]), np.array(["a", 1], object)[1:]),
    "a longer text of bytes": (np.array([b"ab"]), np.array([b"abc"])),
    "a finer span": (np.array([3600], "m8[s]"), np.array([1], "m8[ns]")),
}


@pytest.mark.parametrize("kind", FIRST_AND_LATER)
def test_a_value_that_the_stored_array_cannot_hold_is_refused(partitioned: Callable[..., Weather], kind: str) -> None:
    first, later = FIRST_AND_LATER[kind]
    weather = partitioned()
    weather.put(day("2024-01-01", first), "2024-01-01")
    before = weather.stored()
    with pytest.raises((UnsupportedData, RegionMismatch), match="'v'"):
        weather.put(day("2024-01-02", later), "2024-01-02")
    assert weather.commits() == 1
    assert weather.stored().identical(before)


@pytest.mark.parametrize("step", ["30min", "90s", "1us", "1ns"])
def test_times_between_the_units_of_the_encoding_are_refused(partitioned: Callable[..., Weather], step: str) -> None:
    weather = partitioned(**{"lake/encoding": {"time": {"units": "hours since 2024-01-01", "dtype": "int64"}}})
    weather.put(day("2024-01-01", [1.0]), "2024-01-01")
    shifted = day("2024-01-02", [1.0])
    shifted["time"] = shifted["time"] + pd.Timedelta(step)
    with pytest.raises(UnsupportedData, match="finer units"):
        weather.put(shifted, "2024-01-02")
    assert weather.commits() == 1


@pytest.mark.parametrize("dtype", ["m8[s]", "m8[ms]", "m8[us]", "m8[ns]"])
def test_spans_of_the_first_partition_come_back(partitioned: Callable[..., Weather], dtype: str) -> None:
    spans = np.array([3600, 1, "NaT"], "m8[s]").astype(dtype)
    weather = partitioned()
    weather.put(day("2024-01-01", spans), "2024-01-01")
    np.testing.assert_array_equal(weather.stored()["v"].values, spans)


def test_nanoseconds_of_the_first_partition_come_back(partitioned: Callable[..., Weather]) -> None:
    data = day("2024-01-01", [1.0]).assign_coords(time=[np.datetime64("2024-01-01T00:00:00.000000001")])
    weather = partitioned()
    weather.put(data, "2024-01-01")
    assert weather.stored()["time"].values.tolist() == data["time"].values.tolist()


def test_a_time_that_xarray_cannot_read_is_refused_before_the_commit(whole: Callable[..., Weather]) -> None:
    weather = whole()
    data = xr.Dataset({"v": ("time", [1.0])}, {"time": np.array(["9999-12-31T23:59:59.999999"], "M8[us]")})
    with pytest.raises(UnsupportedData, match="'time'"):
        weather.put(data)


def test_a_packed_value_that_does_not_fit_is_refused(whole: Callable[..., Weather]) -> None:
    weather = whole(**{"lake/encoding": {"v": {"dtype": "int16", "scale_factor": 0.01, "_FillValue": -32768}}})
    with pytest.raises(UnsupportedData, match=r"400\.0.*-255\.36"):
        weather.put(xr.Dataset({"v": ("x", [1.0, 400.0])}))


def test_a_packed_value_comes_back_within_half_a_step(partitioned: Callable[..., Weather]) -> None:
    weather = partitioned(**{"lake/encoding": {"v": {"dtype": "int16", "scale_factor": 0.01, "_FillValue": -32768}}})
    values = np.array([1.004, -3.14159, np.nan])
    weather.put(day("2024-01-01", values), "2024-01-01")
    np.testing.assert_allclose(weather.stored()["v"].values, values, atol=0.005, equal_nan=True)


def test_a_missing_value_in_integers_without_a_marker_is_refused(whole: Callable[..., Weather]) -> None:
    with pytest.raises(UnsupportedData, match="nan"):
        whole(**{"lake/encoding": {"v": {"dtype": "int16"}}}).put(xr.Dataset({"v": ("x", [1.0, np.nan])}))


def test_a_value_equal_to_the_marker_of_missing_ones_is_refused(whole: Callable[..., Weather]) -> None:
    with pytest.raises(UnsupportedData, match="-99"):
        whole(**{"lake/encoding": {"v": {"_FillValue": -99.0}}}).put(xr.Dataset({"v": ("x", [1.0, -99.0])}))


def test_floats_are_rounded_to_a_type_that_the_encoding_names(whole: Callable[..., Weather]) -> None:
    weather = whole(**{"lake/encoding": {"v": {"dtype": "float32"}}})
    weather.put(xr.Dataset({"v": ("x", [0.1])}))
    assert weather.stored()["v"].values.tolist() == [float(np.float32(0.1))]


def test_mixed_objects_are_refused(whole: Callable[..., Weather]) -> None:
    with pytest.raises(UnsupportedData, match="mixed"):
        whole().put(xr.Dataset({"v": ("x", np.array(["a", 1, None, 2.0], object))}))


INEXACT = {
    "a zero at the end of bytes": np.array([b"ab", b"c\0"], object),
    "integers with and without a sign": np.array([2**63 + 1, 1], object),
    "integers of more than 64 bits": np.array([2**70, 1], object),
}


@pytest.mark.parametrize("kind", INEXACT)
def test_objects_that_no_type_of_numpy_holds_are_refused(whole: Callable[..., Weather], kind: str) -> None:
    with pytest.raises(UnsupportedData, match="'v' has Python objects"):
        whole().put(xr.Dataset({"v": ("x", INEXACT[kind])}))


def test_large_integers_of_python_come_back(whole: Callable[..., Weather]) -> None:
    weather = whole()
    weather.put(xr.Dataset({"v": ("x", np.array([2**63 + 1, 2**64 - 1], object))}))
    assert weather.stored()["v"].values.tolist() == [2**63 + 1, 2**64 - 1]


def test_a_type_of_pandas_is_refused_by_name(whole: Callable[..., Weather]) -> None:
    frame = pd.DataFrame({"v": pd.Categorical(["a", "b"])})
    with pytest.raises(UnsupportedData, match="'v' is of type category"):
        whole().put(xr.Dataset.from_dataframe(frame))


@pytest.mark.parametrize("attributes", [{"scale_factor": 2.0}, {"missing_value": "NA"}, {"units": "seconds"}])
def test_texts_that_their_attributes_make_unreadable_are_refused(
    whole: Callable[..., Weather], attributes: dict[str, Any]
) -> None:
    with pytest.raises(UnsupportedData, match=f"'v' has .*{next(iter(attributes))}"):
        whole().put(xr.Dataset({"v": ("x", np.array(["a", "NA"], object), attributes)}))


@pytest.mark.parametrize(("value", "dtype"), [(1 + 2j, "float64"), (2**24 + 1, "float32")])
def test_only_floats_are_rounded_to_a_type_that_the_encoding_names(
    whole: Callable[..., Weather], value: complex, dtype: str
) -> None:
    with pytest.raises(UnsupportedData, match="'v' has the value"):
        whole(**{"lake/encoding": {"v": {"dtype": dtype}}}).put(xr.Dataset({"v": ("x", np.array([value]))}))


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_times_of_coarser_units_than_those_of_the_array_come_back(
    partitioned: Callable[..., Weather], unit: str
) -> None:
    weather = partitioned()
    data = day("2024-01-01", np.array(["2020-01-01", "NaT"], f"M8[{unit}]"))
    weather.put(data.assign_coords(time=data["time"].astype(f"M8[{unit}]")), "2024-01-01")
    assert weather.stored().equals(data.assign(v=data["v"].astype("M8[ns]")))


def test_numbers_with_the_unit_of_a_time_are_written_to_partitions(partitioned: Callable[..., Weather]) -> None:
    weather = partitioned()
    weather.put(day("2024-01-01", [1e-10, 1e300], units="seconds"), "2024-01-01")
    weather.put(day("2024-01-02", [0.5], units="seconds"), "2024-01-02")
    store = weather.repository.readonly_session("main").store
    stored = xr.open_zarr(store, consolidated=False, chunks=None, decode_timedelta=False)
    assert stored["v"].values.tolist() == [1e-10, 1e300, 0.5]


def test_a_coordinate_that_was_rounded_is_equal_to_itself_in_another_partition(root: str) -> None:
    stations = dg.MultiPartitionsDefinition({"day": DAYS, "station": dg.StaticPartitionsDefinition(["1", "2"])})
    metadata = {
        "partition_expr": {"day": "time", "station": "station"},
        "lake/encoding": {"latitude": {"dtype": "float32"}},
    }
    days = ["2024-01-01", "2024-01-02"]

    @dg.asset(partitions_def=stations, metadata=metadata)
    def weather(context: dg.AssetExecutionContext) -> xr.Dataset:
        keys = context.partition_key.keys_by_dimension  # type: ignore[attr-defined]
        data = day(keys["day"], [1.0]).expand_dims(station=[int(keys["station"])])
        return data.assign(latitude=("station", [0.1]))

    lake = LakeResource(root=root)
    for key in days:
        dg.materialize(
            [weather],
            partition_key=dg.MultiPartitionKey({"day": key, "station": "1"}),
            resources={"lake": lake, "io_manager": IcechunkIOManager(lake=lake)},
        )
    store = Repository.open(f"{root}/tables/weather").readonly_session("main").store
    assert xr.open_zarr(store, consolidated=False)["time"].size == len(days)


def test_a_dimension_that_an_array_has_twice_is_refused_where_arrays_are_written_in_part(
    whole: Callable[..., Weather],
) -> None:
    twice = xr.Dataset({"v": (("x", "y"), np.eye(2))})
    twice["v"] = xr.Variable(("x", "x"), np.eye(2))
    weather = whole(**{"lake/mode": "append", "lake/append_dim": "x"})
    with pytest.raises(UnsupportedData, match=r"'v' has the dimensions x, x.*rename one"):
        weather.put(twice)


@pytest.mark.parametrize(("chunk", "unit"), [(1, 7), (3, 10), (10, 4), (25, 20)])
def test_no_task_of_dask_loses_the_cells_of_another(whole: Callable[..., Weather], chunk: int, unit: int) -> None:
    values = np.arange(10_000.0).reshape(100, 100)
    weather = whole(**{"lake/encoding": {"v": {"chunks": [unit, unit], "shards": [unit * 3, unit * 3]}}})
    with dask.config.set(scheduler="threads", num_workers=8):
        weather.put(xr.Dataset({"v": (("y", "x"), values)}).chunk({"y": chunk, "x": chunk}))
    np.testing.assert_array_equal(weather.stored()["v"].values, values)


def test_an_append_by_dask_is_aligned_to_the_stored_shards(whole: Callable[..., Weather]) -> None:
    weather = whole(**{"lake/append_dim": "x", "lake/encoding": {"v": {"chunks": [5], "shards": [20]}}})
    with dask.config.set(scheduler="threads", num_workers=8):
        for start in (0, 33, 66):
            weather.put(xr.Dataset({"v": ("x", np.arange(start, start + 33.0))}).chunk({"x": 3}))
    np.testing.assert_array_equal(weather.stored()["v"].values, np.arange(99.0))


def test_arrays_of_a_group_keep_their_metadata(whole: Callable[..., Weather]) -> None:
    source = zarr.open_group(zarr.storage.MemoryStore(), mode="w", attributes={"title": "x"})
    array = source.create_array(
        "deep/t",
        shape=(3,),
        chunks=(2,),
        dtype="i8",
        fill_value=7,
        dimension_names=["t"],
        attributes={"units": "days since 2024-01-01", "calendar": "noleap"},
        compressors=zarr.codecs.GzipCodec(level=3),
    )
    array[:2] = [1, 2]
    weather = whole()
    weather.put(source)
    copied = zarr.open_group(weather.repository.readonly_session("main").store, mode="r")["deep/t"]
    assert copied.metadata.to_dict() == array.metadata.to_dict()
    assert copied[...].tolist() == [1, 2, 7]


def test_arrays_of_a_group_of_v2_keep_attributes_fill_values_and_dimensions(whole: Callable[..., Weather]) -> None:
    source = zarr.open_group(zarr.storage.MemoryStore(), mode="w", zarr_format=2)
    attributes = {"units": "K", "_ARRAY_DIMENSIONS": ["t"]}
    source.create_array("t", shape=(3,), chunks=(2,), dtype="i8", fill_value=-5, attributes=attributes)[:2] = [1, 2]
    weather = whole()
    weather.put(source)
    copied = zarr.open_group(weather.repository.readonly_session("main").store, mode="r")["t"]
    assert dict(copied.attrs) == {"units": "K", "_FillValue": -5}
    assert (copied.fill_value, copied.metadata.dimension_names, copied[...].tolist()) == (-5, ("t",), [1, 2, -5])


@pytest.mark.parametrize("attribute", ["units", "standard_name"])
def test_numbers_of_another_meaning_are_refused(partitioned: Callable[..., Weather], attribute: str) -> None:
    weather = partitioned()
    weather.put(day("2024-01-01", [280.0], **{attribute: "K"}), "2024-01-01")
    with pytest.raises(RegionMismatch, match=f"{attribute} 'degC', but the stored array has 'K'"):
        weather.put(day("2024-01-02", [6.85], **{attribute: "degC"}), "2024-01-02")
    assert weather.commits() == 1


def test_other_attributes_that_differ_are_left_out_with_a_warning(partitioned: Callable[..., Weather]) -> None:
    weather = partitioned()
    weather.put(day("2024-01-01", [1.0], long_name="a"), "2024-01-01")
    weather.put(day("2024-01-02", [2.0], long_name="b"), "2024-01-02")
    assert weather.stored()["v"].attrs == {"long_name": "a"}
    assert any("v.long_name" in warning for warning in weather.warnings())


def test_dimensions_in_another_order_are_transposed(partitioned: Callable[..., Weather]) -> None:
    weather = partitioned()
    first, later = (
        xr.Dataset({"v": (("time", "x"), [[number, number + 1.0]])}, {"time": [np.datetime64(date, "ns")]})
        for number, date in enumerate(["2024-01-01", "2024-01-02"])
    )
    weather.put(first, "2024-01-01")
    weather.put(later.transpose("x", "time"), "2024-01-02")
    assert weather.stored()["v"].values.tolist() == [[0.0, 1.0], [1.0, 2.0]]


def test_cells_that_no_partition_wrote_are_not_times(partitioned: Callable[..., Weather]) -> None:
    weather = partitioned(**{"lake/coordinates": {"time": "h"}})
    seen = np.arange("2024-01-02T00", "2024-01-03T00", dtype="M8[h]").astype("M8[ns]")
    weather.put(xr.Dataset({"v": ("time", seen)}, {"time": seen}), "2024-01-02")
    assert np.isnat(weather.stored()["v"].sel(time="2024-01-01").values).all()


@pytest.mark.parametrize("value", [b"x", dt.datetime(2024, 1, 1), np.datetime64("2024-01-01"), {1, 2}, object()])
@pytest.mark.parametrize("of_variable", [True, False])
def test_attributes_that_json_cannot_hold_are_refused_by_name(
    whole: Callable[..., Weather], value: Any, of_variable: bool
) -> None:
    data = xr.Dataset({"v": ("x", [1.0])})
    (data["v"] if of_variable else data).attrs["odd"] = value
    weather = whole()
    with pytest.raises(UnsupportedData, match=f"'odd' of {'.v.' if of_variable else 'the dataset'}"):
        weather.put(data)
    assert not list(Path(weather.root).glob("tables/*"))


def test_attributes_of_numpy_come_back(whole: Callable[..., Weather]) -> None:
    weather = whole()
    weather.put(xr.Dataset({"v": ("x", [1.0], {"range": np.array([1, 2]), "scale": np.float32(0.5), "n": np.nan})}))
    stored = weather.stored()["v"].attrs
    assert (list(stored["range"]), stored["scale"], np.isnan(stored["n"])) == ([1, 2], 0.5, True)


def test_records_of_another_byte_order_come_back(whole: Callable[..., Weather]) -> None:
    records = np.array([(1, 2.5), (3, 4.5)], [("a", ">i4"), ("b", ">f8")])
    weather = whole()
    weather.put(xr.Dataset({"v": ("x", records)}))
    assert weather.stored()["v"].values.tolist() == [(1, 2.5), (3, 4.5)]


def test_each_name_of_an_encoding_is_known_to_both_sides() -> None:
    from lake_core.icechunk.xarray import new_arrays

    assert set(ENCODINGS) == {*new_arrays._OF_ZARR, *new_arrays._OF_CF}


_NUMBERS = np.arange(3.0)
_THREE = ("x", _NUMBERS)

WITHOUT_AN_ARRAY = {
    "the name of an object of Zarr": xr.Dataset({"zarr.json": _THREE}),
    "a path": xr.Dataset({"a/b": _THREE}),
    "the folder above": xr.Dataset({"..": _THREE}),
    "a number as a name": xr.Dataset({3: _THREE}),
    "a number as a dimension": xr.Dataset({"v": ((0,), _NUMBERS)}),
    "a coordinate with a blank in its name": xr.Dataset({"v": _THREE}, {"my lat": _THREE}),
    "a float of 128 bits": xr.Dataset({"v": ("x", _NUMBERS.astype(np.longdouble))}),
    "a complex number of 256 bits": xr.Dataset({"v": ("x", _NUMBERS.astype(np.clongdouble))}),
    "an index of several levels": xr.Dataset({"v": (("a", "b"), np.ones((2, 2)))}, {"a": [1, 2], "b": [1, 2]}).stack(
        z=("a", "b")
    ),
    "numbers that an attribute makes booleans": xr.Dataset({"v": ("x", np.array([1, 2], "int8"), {"dtype": "bool"})}),
}


@pytest.mark.parametrize("kind", WITHOUT_AN_ARRAY)
def test_what_no_array_holds_is_refused(whole: Callable[..., Weather], kind: str) -> None:
    weather = whole()
    with pytest.raises(UnsupportedData):
        weather.put(WITHOUT_AN_ARRAY[kind])
    assert not (Path(weather.root) / "tables").exists()


def test_chunks_of_unknown_lengths_are_refused(whole: Callable[..., Weather]) -> None:
    numbers = da.arange(10, chunks=3)
    with pytest.raises(UnsupportedData, match="compute_chunk_sizes"):
        whole().put(numbers[numbers > 4])


def test_numbers_that_an_attribute_makes_booleans_are_refused_when_dask_computes_them(
    whole: Callable[..., Weather],
) -> None:
    cells = da.from_array(np.array([0, 1, 1, 5], "int8"), chunks=2)
    weather = whole()
    with pytest.raises(UnsupportedData, match="has the value 5"):
        weather.put(xr.Dataset({"v": ("x", cells, {"dtype": "bool"})}))
    assert weather.commits() == 0


def test_a_coordinate_of_a_dimension_may_have_a_blank_in_its_name(whole: Callable[..., Weather]) -> None:
    weather = whole()
    data = xr.Dataset({"v": ("my x", _NUMBERS)}, {"my x": ("my x", _NUMBERS)})
    weather.put(data)
    assert weather.stored().identical(data)


@pytest.mark.parametrize("cells", [np.array(["a", "b"], object), np.array([b"a", b"b"]), np.array([1j, 2])])
def test_a_marker_of_missing_values_that_xarray_cannot_read_is_refused(
    whole: Callable[..., Weather], cells: Any
) -> None:
    weather = whole(**{"lake/encoding": {"v": {"_FillValue": cells[0]}}})
    with pytest.raises(UnsupportedData, match="_FillValue"):
        weather.put(xr.Dataset({"v": ("x", cells)}))


def test_a_marker_of_texts_that_another_store_had_is_left_out(whole: Callable[..., Weather]) -> None:
    weather = whole()
    texts = xr.Variable("x", np.array(["a", "b"], object), {}, {"_FillValue": ""})
    weather.put(xr.Dataset({"v": texts}))
    assert weather.stored().v.values.tolist() == ["a", "b"]


def dates(start: str, calendar: str = "360_day", periods: int = 2) -> xr.Dataset:
    time = xr.date_range(start, periods=periods, freq="6h", calendar=calendar, use_cftime=True)
    return xr.Dataset({"v": ("time", np.arange(float(periods)))}, {"time": time})


@pytest.mark.parametrize("calendar", ["360_day", "noleap", "julian"])
def test_dates_of_other_calendars_are_appended(whole: Callable[..., Weather], calendar: str) -> None:
    weather = whole(**{"lake/mode": "append", "lake/append_dim": "time"})
    parts = [dates("2000-02-28", calendar), dates("2000-03-01T01:30:00", calendar), dates("0850-01-01", calendar)]
    for part in parts:
        weather.put(part)
    assert weather.stored().identical(xr.concat(parts, "time"))


def test_appended_dates_of_another_calendar_than_the_stored_ones_are_refused(whole: Callable[..., Weather]) -> None:
    weather = whole(**{"lake/mode": "append", "lake/append_dim": "time"})
    weather.put(dates("2000-01-01", "noleap"))
    with pytest.raises(UnsupportedData, match="noleap"):
        weather.put(dates("2000-02-30", "360_day"))


def test_dates_of_other_calendars_in_partitions_come_back(root: str) -> None:
    weather = Weather(root, {"partition_expr": "time"}, partitioned=True)
    moments = [cftime.Datetime360Day(2000, 2, 30, hour) for hour in (1, 2)]
    first, later = (
        day(date, [1.0]).assign(run=("time", np.array([moment], object)))
        for date, moment in zip(("2024-01-01", "2024-01-02"), moments, strict=True)
    )
    weather.put(first, "2024-01-01")
    weather.put(later, "2024-01-02")
    assert weather.stored().run.values.tolist() == moments


def test_dates_of_other_calendars_are_refused_where_cells_stay_without_a_value(root: str) -> None:
    weather = Weather(root, {"partition_expr": "time", "lake/coordinates": {"time": "h"}}, partitioned=True)
    data = day("2024-01-01", np.ones(24)).assign(run=("time", np.full(24, cftime.Datetime360Day(2000, 2, 30))))
    with pytest.raises(UnsupportedData, match="'run' has dates of cftime"):
        weather.put(data, "2024-01-01")
