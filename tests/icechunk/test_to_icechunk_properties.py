"""Whatever is written with `to_icechunk` is refused, or is read back equal by xarray through either library.

The comparison here is a model of its own, in Python's numbers: it uses nothing of the gate.
"""

from __future__ import annotations

import math
import tempfile
import warnings
from fractions import Fraction
from typing import Any

import cftime
import dask
import icechunk
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lake_core.icechunk import Repository
from lake_core.icechunk.errors import MismatchedVariable, UnstorableValues
from lake_core.icechunk.xarray import to_icechunk
from lake_core.store import open_store
from tests.examples import examples

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]
EDGES = [0, 1, -1, 44, 127, 128, 255, 256, 300, 32767, 70000, 2**31, 2**53 + 1, 2**63 - 1, 2**63 + 5, 2**64 - 1]
REALS = [0.0, -0.0, 0.1, 1.5, 400.0, -273.15, 1e6, 65504.0, 1e300, 2.0**53, math.nan, math.inf, -math.inf, -9999.0]
MOMENTS = [
    "2024-01-01",
    "2024-01-01T12:00",
    "2024-01-02T00:30",
    "2024-01-01T00:00:00.000001",
    "2024-01-01T00:00:00.000000001",
    "1700-06-01",
    "1582-10-01",
    "2262-04-11",
    "2300-01-01",
    "9999-12-31T23:59:59.999999",
    "NaT",
]
SPANS = [0, 1, 5, 1000, 3_600_000_000_000, 86_400_000_000_000, "NaT"]
TEXTS = ["", "a", "né", "x" * 40, "None", "nan", None, "a\x00b"]
CALENDARS = ["noleap", "360_day", "standard", "proleptic_gregorian", "julian"]


def values_of(draw: Any, kind: str, length: int) -> Any:
    some = st.lists  # each kind has its edges
    if kind in INTEGERS:
        limits = np.iinfo(kind)
        edges = [edge for edge in EDGES if limits.min <= edge <= limits.max]
        return np.array(draw(some(st.sampled_from(edges), min_size=length, max_size=length)), kind)
    if kind in FLOATS:
        with np.errstate(over="ignore"):
            return np.array(draw(some(st.sampled_from(REALS), min_size=length, max_size=length)), kind)
    if kind.startswith("datetime64"):
        unit = kind[11:-1]
        chosen = draw(some(st.sampled_from(MOMENTS), min_size=length, max_size=length))
        if unit == "ns":
            chosen = [moment for moment in chosen if moment[:4] not in ("1582", "2300", "9999")] or ["2024-01-01"]
            chosen = (chosen * length)[:length]
        return np.array(chosen, kind)
    if kind.startswith("timedelta64"):
        return np.array(draw(some(st.sampled_from(SPANS), min_size=length, max_size=length)), kind)
    if kind == "bool":
        return np.array(draw(some(st.booleans(), min_size=length, max_size=length)))
    if kind == "bytes":
        return np.array(draw(some(st.sampled_from([b"", b"a", b"abc"]), min_size=length, max_size=length)), "S")
    if kind == "complex64":
        return np.array(
            draw(some(st.sampled_from([1 + 2j, 0j, complex(math.nan, 1)]), min_size=length, max_size=length)), kind
        )
    if kind == "text":
        chosen = draw(some(st.sampled_from(TEXTS), min_size=length, max_size=length))
        return np.array(chosen, object)
    if kind == "mixed":
        return np.array(
            draw(some(st.sampled_from(["a", 1, 2.0, None, True, b"x"]), min_size=length, max_size=length)), object
        )
    calendar = draw(st.sampled_from(CALENDARS))
    days = draw(some(st.integers(1, 28), min_size=length, max_size=length))
    years = draw(some(st.sampled_from([1, 1500, 1900, 2000, 2400]), min_size=length, max_size=length))
    return np.array(
        [cftime.datetime(year, 2, day, 6, 30, calendar=calendar) for year, day in zip(years, days, strict=True)], object
    )


KINDS = [
    *INTEGERS,
    *FLOATS,
    *(f"datetime64[{unit}]" for unit in ("s", "ms", "us", "ns")),
    *(f"timedelta64[{unit}]" for unit in ("s", "us", "ns")),
    *("bool", "bytes", "complex64", "text", "mixed", "cftime"),
]


@st.composite
def encodings(draw: Any, kind: str) -> dict[str, Any]:
    encoding: dict[str, Any] = {}
    if kind in (*INTEGERS, *FLOATS):
        if draw(st.booleans()):
            encoding["dtype"] = draw(st.sampled_from([*INTEGERS, *FLOATS]))
        if draw(st.booleans()):
            encoding["scale_factor"] = draw(st.sampled_from([0.01, 0.1, 2.0]))
        if draw(st.booleans()):
            encoding["add_offset"] = draw(st.sampled_from([-10.0, 273.15]))
        if draw(st.booleans()):
            encoding["_FillValue"] = draw(st.sampled_from([-99, 0, 127, -9999.0]))
    elif kind.startswith("datetime64") or kind == "cftime":
        if draw(st.booleans()):
            encoding["units"] = draw(
                st.sampled_from(["days since 2024-01-01", "hours since 1900-01-01", "microseconds since 1970-01-01"])
            )
        if draw(st.booleans()):
            encoding["dtype"] = draw(st.sampled_from(["int64", "int32", "float64"]))
    elif kind.startswith("timedelta64") and draw(st.booleans()):
        encoding["units"] = draw(st.sampled_from(["days", "hours", "microseconds"]))
    elif kind == "text" and draw(st.booleans()):
        encoding["_FillValue"] = draw(st.sampled_from(["", "missing"]))
    if draw(st.booleans()):
        chunk = draw(st.integers(1, 4))
        encoding["chunks"] = (chunk,)
        if draw(st.booleans()):
            encoding["shards"] = (chunk * draw(st.integers(1, 3)),)
    return encoding


@st.composite
def scenarios(draw: Any) -> list[tuple[Any, int | None, dict[str, Any]]]:
    """Return the batches of one variable: values, the length of dask chunks, and the encoding of the first."""
    kind = draw(st.sampled_from(KINDS))
    encoding = draw(encodings(kind))
    batches = []
    for number in range(draw(st.integers(1, 3))):
        # A later batch can be of another type.
        chosen = kind if number == 0 or draw(st.integers(0, 3)) else draw(st.sampled_from(KINDS))
        values = values_of(draw, chosen, draw(st.integers(1, 7)))
        chunk = draw(st.one_of(st.none(), st.integers(1, 5))) if values.dtype != object else None
        batches.append((values, chunk, encoding if number == 0 else {}))
    return batches


def dataset_of(values: Any, chunk: int | None) -> xr.Dataset:
    data = xr.Dataset({"v": ("x", values)})
    return data if chunk is None else data.chunk({"x": chunk})


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(scenarios())
def test_values_are_refused_or_come_back(batches: list[tuple[Any, int | None, dict[str, Any]]]) -> None:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), dask.config.set(scheduler="threads"):
        warnings.simplefilter("ignore")
        repository = Repository.create(open_store(folder))
        accepted: list[Any] = []
        encoding: dict[str, Any] = {}
        for number, (values, chunk, of_first) in enumerate(batches):
            session = repository.writable_session("main")
            options: dict[str, Any] = {"encoding": {"v": of_first}} if number == 0 else {}
            try:
                to_icechunk(dataset_of(values, chunk), session, append_dim="x", **options)
            except (UnstorableValues, MismatchedVariable, ValueError, TypeError):
                # What follows an error is as if it had not been tried.
                if not accepted:
                    return
            else:
                if not accepted:
                    stored = zarr.open_group(session.store, mode="r")["v"].dtype
                    encoding = {**of_first, "dtype": stored, "is_rounded": "dtype" in of_first}
                session.commit(f"batch {number}")
                accepted.extend(values.tolist() if values.dtype.kind not in "mM" else list(values))
        for name, store in (
            ("ours", repository.readonly_session("main").store),
            (
                "icechunk",
                icechunk.Repository.open(icechunk.local_filesystem_storage(folder)).readonly_session("main").store,
            ),
        ):
            found = xr.open_zarr(store, consolidated=False, chunks=None)["v"].values
            assert len(found) == len(accepted), name
            for value, back in zip(accepted, found, strict=True):
                assert is_same(value, back, encoding), (name, value, back, encoding)


def is_same(value: Any, back: Any, encoding: dict[str, Any]) -> bool:
    """Compare a value with one that was read back, in exact numbers."""
    if is_missing(value) or is_missing(back):
        return is_missing(value) and is_missing(back)
    if isinstance(value, np.datetime64):
        return isinstance(back, np.datetime64) and exact_time(value) == exact_time(back)
    if isinstance(value, np.timedelta64):
        return isinstance(back, np.timedelta64) and exact_time(value) == exact_time(back)
    if isinstance(value, cftime.datetime):
        if isinstance(back, np.datetime64):
            return value.isoformat() == pd.Timestamp(back).isoformat()
        return isinstance(back, cftime.datetime) and back.calendar == value.calendar and back == value
    if isinstance(value, complex) or isinstance(back, np.complexfloating):
        return complex(back) == value
    if isinstance(value, str | bytes) or isinstance(back, str | bytes):
        return type(value) is type(back.item() if isinstance(back, np.generic) else back) and value == back
    number = float(back) if isinstance(back, np.floating) else int(back)
    if math.isinf(value) or math.isinf(number):
        return value == number
    difference = abs(Fraction(value) - Fraction(number))
    cells = encoding["dtype"]
    scale, offset = encoding.get("scale_factor"), encoding.get("add_offset")
    if scale is None and offset is None:
        rounding = spacing(cells, value) / 2 if encoding["is_rounded"] and cells.kind == "f" else 0
        return difference <= rounding
    # Arithmetic of floats adds the last digits of what is read back.
    noise = 4 * spacing(np.dtype("float32"), max(abs(number), abs(offset or 0)))
    step = Fraction(scale or 1)
    if cells.kind == "f":
        step *= spacing(cells, (value - (offset or 0)) / (scale or 1))
    return difference <= step / 2 + noise


def spacing(dtype: np.dtype[Any], number: float) -> Fraction:
    """Return the distance of floats next to a number, which is 0 for integers."""
    if dtype.kind != "f":
        return Fraction(0)
    if abs(number) > np.finfo(dtype).max:
        dtype = np.dtype("float64")
    nearest = np.abs(dtype.type(number))
    # There is no float after the largest one.
    gap = np.spacing(nearest) if nearest < np.finfo(dtype).max else np.spacing(np.nextafter(nearest, dtype.type(0)))
    return Fraction(float(gap))


def is_missing(value: Any) -> bool:
    return value is None or (not isinstance(value, str | bytes) and value != value)


def exact_time(value: Any) -> Fraction:
    unit, _ = np.datetime_data(value.dtype)
    steps = {
        "D": 86400,
        "h": 3600,
        "m": 60,
        "s": 1,
        "ms": Fraction(1, 1000),
        "us": Fraction(1, 10**6),
        "ns": Fraction(1, 10**9),
    }
    return Fraction(int(value.astype(np.int64))) * steps[unit]


@pytest.mark.parametrize("units", ["days since 2024-01-01", "hours since 2024-01-01"])
def test_a_later_time_that_the_units_cannot_hold_is_refused(units: str) -> None:
    session = Repository.create(open_store(tempfile.mkdtemp())).writable_session("main")
    first = xr.Dataset(coords={"time": np.array(["2024-01-01"], "M8[ns]")})
    to_icechunk(first, session, append_dim="time", encoding={"time": {"units": units, "dtype": "int64"}})
    with pytest.raises(UnstorableValues, match="finer units"):
        to_icechunk(xr.Dataset(coords={"time": np.array(["2024-01-02T00:30"], "M8[ns]")}), session, append_dim="time")


@pytest.mark.parametrize("kind", ["m8[ms]", "m8[us]", "m8[ns]"])
def test_fractions_of_seconds_are_stored_as_xarray_stores_them(kind: str) -> None:
    """Xarray decodes such cells in place, and so changes those that are stored unless they are its own."""
    session = Repository.create(open_store(tempfile.mkdtemp())).writable_session("main")
    spans = np.array([500, 1500, 2250], "m8[ms]").astype(kind)
    encoding = {"lead": {"units": "seconds", "dtype": "float64"}}
    to_icechunk(xr.Dataset({"lead": ("x", spans)}), session, encoding=encoding)
    assert zarr.open_group(session.store, mode="r")["lead"][:].tolist() == [0.5, 1.5, 2.25]
    cells = np.array([0.5, 1.5, 2.25])
    undecoded = xr.Dataset({"other": ("x", cells, {"units": "seconds", "dtype": "timedelta64[ns]"})})
    with pytest.raises(UnstorableValues):
        to_icechunk(undecoded, session, mode="a")
    assert cells.tolist() == [0.5, 1.5, 2.25], "what the caller holds stays"


def test_negative_zeros_come_back() -> None:
    session = Repository.create(open_store(tempfile.mkdtemp())).writable_session("main")
    values = np.array([complex(-0.0, -0.0), complex(0.0, -0.0)])
    to_icechunk(xr.Dataset({"waves": ("x", values), "tides": ("x", values.real)}), session)
    stored = zarr.open_group(session.store, mode="r")
    assert stored["waves"][:].tobytes() == values.tobytes()
    assert stored["tides"][:].tobytes() == values.real.tobytes()


def test_years_after_9999_are_stored_or_refused() -> None:
    session = Repository.create(open_store(tempfile.mkdtemp())).writable_session("main")
    with pytest.raises(UnstorableValues):
        to_icechunk(xr.Dataset({"t": ("x", np.array(["12000-01-01"], "M8[s]"))}), session)
