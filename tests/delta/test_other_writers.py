"""Data files as other writers make them: old calendars, nanoseconds, int96, other spellings of names."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake_core.delta import DeltaTable
from lake_core.delta.errors import ConvertFailed
from lake_core.hybrid_calendar import HybridCalendar, UnknownTimeZone, gregorian_days, gregorian_micros
from lake_core.pandas_frames import to_frame

EPOCH = dt.date(1970, 1, 1).toordinal()
_LEGACY = {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""}
NAMES = [dt.date(1, 1, 1), dt.date(1001, 1, 1), dt.date(1582, 10, 4), dt.date(1582, 10, 15), dt.date(2024, 2, 29)]


def julian_day(date: dt.date) -> int:
    """Return the number of a day that has this name in the hybrid calendar."""
    if date >= dt.date(1582, 10, 15):
        return date.toordinal() - EPOCH
    # A year of the Julian calendar has 365 days, and each fourth one more. Its 0001-01-01 is two days earlier.
    before = (date.year - 1) * 365 + (date.year - 1) // 4
    lengths = [31, 28 + (date.year % 4 == 0), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    return before + sum(lengths[: date.month - 1]) + date.day - 1 - EPOCH - 1


def write(path: Path, rows: pa.Table, keys: dict[str, str], **options: Any) -> None:
    with pq.ParquetWriter(path, rows.schema, store_schema=False, **options) as file:
        file.write_table(rows)
        file.add_key_value_metadata(keys)


def dates(names: list[dt.date]) -> pa.Array:
    return pa.array([julian_day(name) for name in names], pa.int32()).cast(pa.date32())


@given(st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31)))
def test_a_day_keeps_its_name(date: dt.date) -> None:
    expected = date.toordinal() - EPOCH
    assert gregorian_days(np.array([julian_day(date)]))[0] == expected


def test_a_day_that_only_the_julian_calendar_has_becomes_the_next() -> None:
    first_of_march = np.array([julian_day(dt.date(1000, 3, 1))])
    march = dt.date(1000, 3, 1).toordinal() - EPOCH
    assert [gregorian_days(first_of_march - 1)[0], gregorian_days(first_of_march)[0]] == [march, march]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, None),
        ({"org.apache.spark.version": "4.0.0"}, None),
        ({"org.apache.spark.version": "2.4.8"}, (True, True)),
        ({"org.apache.spark.version": "3.0.1"}, (False, True)),
        ({"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""}, (True, False)),
        ({"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyINT96": ""}, (False, True)),
        ({"org.apache.spark.legacyDateTime": ""}, None),
    ],
)
def test_the_footer_tells_the_calendar(keys: dict[str, str], expected: tuple[bool, bool] | None) -> None:
    calendar = HybridCalendar.of({name.encode(): value.encode() for name, value in keys.items()})
    assert (None if calendar is None else (calendar.dates, calendar.int96)) == expected


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Asia/Shanghai", "Europe/Berlin", "+05:30"])
def test_times_since_1900_are_the_same_in_both(zone: str) -> None:
    micros = np.array([-2_208_988_800_000_000, 0, 253_402_300_799_999_999])
    assert gregorian_micros(micros, zone).tolist() == micros.tolist()


def test_a_time_before_1883_in_los_angeles_moves_to_its_mean_time() -> None:
    # 8 hours after its name there by the hybrid calendar, and 7:52:58 by Java's newer classes.
    named = int(dt.datetime(1800, 1, 1, 12, tzinfo=dt.UTC).timestamp())
    moved = gregorian_micros(np.array([(named + 8 * 3600) * 10**6]), "America/Los_Angeles")
    assert moved.tolist() == [(named + 7 * 3600 + 52 * 60 + 58) * 10**6]


def test_a_zone_that_is_not_known_is_an_error() -> None:
    with pytest.raises(UnknownTimeZone, match="Mars/Olympus"):
        gregorian_micros(np.array([-(10**17)]), "Mars/Olympus")


def nested(names: list[dt.date]) -> pa.Table:
    days = dates(names)
    return pa.table(
        {
            "id": list(range(len(names))),
            "plain": days,
            "record": pa.StructArray.from_arrays([days], ["day"]),
            "days": pa.ListArray.from_arrays(pa.array(range(len(names) + 1), pa.int32()), days),
            "map": pa.MapArray.from_arrays(pa.array(range(len(names) + 1), pa.int32()), days, days),
        }
    )


def test_old_dates_are_read_by_name_at_any_level(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", nested(NAMES), _LEGACY)
    rows = DeltaTable.convert(tmp_path).to_arrow().to_pylist()
    assert [row["plain"] for row in rows] == NAMES
    assert [row["record"]["day"] for row in rows] == NAMES
    assert [row["days"] for row in rows] == [[name] for name in NAMES]
    assert [row["map"] for row in rows] == [[(name, name)] for name in NAMES]


def test_a_predicate_finds_old_dates_by_name(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", nested(NAMES), _LEGACY)
    table = DeltaTable.convert(tmp_path)
    assert table.to_arrow(["id"], "plain = DATE '1001-01-01'")["id"].to_pylist() == [1]
    assert [batch["id"].to_pylist() for batch in table.to_batches(["id"], "plain < DATE '1582-10-15'")] == [[0, 1, 2]]


@pytest.mark.parametrize("act", ["optimize", "update", "delete", "merge"])
def test_a_rewrite_keeps_the_names_of_old_dates(tmp_path: Path, act: str) -> None:
    for number in range(2):
        write(tmp_path / f"{number}.parquet", nested(NAMES), _LEGACY)
    table = DeltaTable.convert(tmp_path)
    if act == "optimize":
        table.optimize()
    elif act == "update":
        table.update({"id": "id + 10"})
    elif act == "delete":
        table.delete("id > 10")
    else:
        source = pa.table({"id": [0]})
        table.merge(source, "t.id = s.id").when_matched_update({"id": "t.id"}).execute()
    assert set(DeltaTable(str(tmp_path)).to_arrow()["plain"].to_pylist()) == set(NAMES)


@pytest.mark.parametrize("nanoseconds", [1_700_000_000_000_000_123, -1, -1_001, 999, 1 - 2**63, 2**63 - 1])
def test_nanoseconds_are_read_as_their_microsecond(tmp_path: Path, nanoseconds: int) -> None:
    value = pa.array([nanoseconds], pa.int64())
    moments = value.cast(pa.timestamp("ns", "UTC"))
    rows = pa.table({"t": moments, "l": pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), moments)})
    instant = pa.timestamp("us", "UTC")
    table = DeltaTable.create(tmp_path, pa.schema([("t", instant), ("l", pa.list_(instant))]))
    table.append(pa.table({"t": pa.array([0], instant), "l": pa.array([[0]], pa.list_(instant))}))
    # The file of the table is replaced by one with nanoseconds, as another writer may have made it.
    (path,) = table.files()["path"].to_pylist()
    pq.write_table(rows, tmp_path / path)
    log = tmp_path / "_delta_log" / f"{1:020}.json"
    size = str(table.files()["size"][0])
    log.write_text(log.read_text().replace(f'"size":{size}', f'"size":{(tmp_path / path).stat().st_size}'))
    found = DeltaTable(str(tmp_path)).to_arrow()
    assert found["t"].cast(pa.int64()).to_pylist() == [nanoseconds // 1000]
    assert found["l"].combine_chunks().values.cast(pa.int64()).to_pylist() == [nanoseconds // 1000]


@pytest.mark.parametrize("nested_in", ["plain", "record", "list"])
def test_a_folder_with_nanoseconds_is_not_converted(tmp_path: Path, nested_in: str) -> None:
    moments = pa.array([1], pa.timestamp("ns", "UTC"))
    column = {
        "plain": moments,
        "record": pa.StructArray.from_arrays([moments], ["t"]),
        "list": pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), moments),
    }[nested_in]
    pq.write_table(pa.table({"t": column}), tmp_path / "a.parquet")
    with pytest.raises(ConvertFailed, match=r"'t' of a\.parquet has nanoseconds.*Spark cannot read"):
        DeltaTable.convert(tmp_path)
    assert not (tmp_path / "_delta_log").exists()


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64"])
def test_integers_with_nulls_stay_integers_in_pandas(tmp_path: Path, kind: str) -> None:
    largest = int(np.iinfo(kind).max)
    table = DeltaTable.create(tmp_path, pa.schema([("i", kind), ("whole", kind)]))
    table.append(pa.table({"i": pa.array([largest, None], kind), "whole": pa.array([1, 2], kind)}))
    frame = table.to_pandas()
    assert frame["i"].tolist()[0] == largest
    assert (str(frame["i"].dtype), str(frame["whole"].dtype)) == (kind.capitalize(), kind)


def test_nested_integers_with_nulls_stay_integers_in_pandas(tmp_path: Path) -> None:
    large = 2**53 + 1
    rows = pa.table(
        {
            "record": pa.array([{"i": large}, {"i": None}], pa.struct([("i", pa.int64())])),
            "list": pa.array([[large, None], None], pa.list_(pa.int64())),
            "map": pa.array([[("k", large), ("z", None)], None], pa.map_(pa.string(), pa.int64())),
        }
    )
    table = DeltaTable.create(tmp_path, rows.schema)
    table.append(rows)
    frame = table.to_pandas()
    assert frame["record"][0] == {"i": large}
    assert list(frame["list"][0]) == [large, None]
    assert frame["map"][0] == [("k", large), ("z", None)]
    assert pd.isna(frame["list"][1])


@pytest.mark.parametrize(
    "index", [pd.RangeIndex(10, 40, 10), pd.Index([5, 6, 7]), pd.Index(["x", "y", "z"], name="named")], ids=str
)
def test_rows_that_came_from_pandas_keep_every_column(index: Any) -> None:
    large = 2**53 + 1
    rows = pa.Table.from_pandas(pd.DataFrame({"i": pd.array([large, None, 3], "Int64"), "s": ["a", "b", "c"]}, index))
    frame = to_frame(rows)
    assert list(frame.columns) == rows.column_names
    assert frame["i"].tolist() == [large, pd.NA, 3]
    assert frame["s"].tolist() == ["a", "b", "c"]
    assert frame.index.equals(pd.RangeIndex(3))
