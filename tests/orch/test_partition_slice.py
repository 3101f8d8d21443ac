"""The predicate of a slice holds for the rows of its partitions and for no others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from itertools import combinations
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import dagster as dg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake_core.expression import parse_predicate, to_arrow
from lake_orch import PartitionSliceError, slice_where

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema(
    [
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("text", pa.string()),
        ("number", pa.int32()),
        ("price", pa.decimal128(10, 2)),
    ]
)
NEW_YORK = ZoneInfo("America/New_York")


def selected(where: str, column: str, values: list[Any]) -> list[Any]:
    """Return the values of a column for which the predicate holds."""
    table = pa.table({column: pa.array(values, SCHEMA.field(column).type)})
    return table.filter(to_arrow(parse_predicate(where, table.schema)))[column].to_pylist()


DAILY = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-12-31")
WINDOWS: list[dg.TimeWindowPartitionsDefinition] = [
    DAILY,
    dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-12-31", timezone="America/New_York"),
    dg.WeeklyPartitionsDefinition("2024-01-01", end_date="2024-12-31", timezone="America/New_York"),
    dg.MonthlyPartitionsDefinition("2024-01-01", end_date="2025-01-01", timezone="Asia/Kolkata"),
    dg.TimeWindowPartitionsDefinition(
        cron_schedule="0 0 * * 1-5", start="2024-01-01", end="2024-12-31", fmt="%Y-%m-%d"
    ),
]

HOURLY = dg.HourlyPartitionsDefinition("2024-03-08-00:00", end_date="2024-03-14-00:00", timezone="America/New_York")


def exhaustive_but(*defaults: int) -> list[Any]:
    """Return all time windows. By default only those of these numbers have their turn."""
    return [
        pytest.param(windows, marks=[] if number in defaults else pytest.mark.exhaustive)
        for number, windows in enumerate([*WINDOWS, HOURLY])
    ]


@pytest.mark.parametrize("partitions_def", exhaustive_but(0, 2, 4)[: len(WINDOWS)])
@given(data=st.data())
def test_time_windows_on_dates(partitions_def: dg.TimeWindowPartitionsDefinition, data: st.DataObject) -> None:
    keys = data.draw(st.sets(st.sampled_from(partitions_def.get_partition_keys()), min_size=1, max_size=40))
    windows = [partitions_def.time_window_for_partition_key(key) for key in keys]
    days = [date(2023, 12, 20) + timedelta(n) for n in range(390)]
    expected = [day for day in days if any(window.start.date() <= day < window.end.date() for window in windows)]
    assert selected(slice_where(partitions_def, keys, "day", SCHEMA), "day", days) == expected


@pytest.mark.parametrize("partitions_def", exhaustive_but(1, 3, 5))
@given(data=st.data())
def test_time_windows_on_timestamps(partitions_def: dg.TimeWindowPartitionsDefinition, data: st.DataObject) -> None:
    keys = data.draw(st.sets(st.sampled_from(partitions_def.get_partition_keys()[:300]), min_size=1, max_size=20))
    windows = [partitions_def.time_window_for_partition_key(key) for key in keys]
    edges = [moment for window in windows for moment in (window.start, window.end)]
    moments = sorted({edge.astimezone(UTC) + timedelta(microseconds=n) for edge in edges for n in (-1, 0, 1)})
    expected = [moment for moment in moments if any(window.start <= moment < window.end for window in windows)]
    assert selected(slice_where(partitions_def, keys, "at", SCHEMA), "at", moments) == expected


def test_a_day_of_twenty_three_hours() -> None:
    daily = WINDOWS[1]
    start = datetime(2024, 3, 10, tzinfo=NEW_YORK)
    assert (
        slice_where(daily, ["2024-03-10"], "at", SCHEMA)
        == "`at` >= TIMESTAMP '2024-03-10 05:00:00Z' AND `at` < TIMESTAMP '2024-03-11 04:00:00Z'"
    )
    assert slice_where(daily, ["2024-03-10"], "local", SCHEMA).startswith(
        f"`local` >= TIMESTAMP_NTZ '{start:%Y-%m-%d} 00:00:00'"
    )


SET_BACK = dg.HourlyPartitionsDefinition("2024-11-03-00:00", end_date="2024-11-03-04:00", timezone="America/New_York")
OFFSETS = [
    dg.DailyPartitionsDefinition(
        "2024-11-01", end_date="2024-11-06", hour_offset=hour, minute_offset=minute, timezone=zone
    )
    for hour, minute in ((0, 0), (0, 30), (1, 0), (1, 30), (2, 0), (2, 30))
    for zone in ("America/New_York", "America/Havana", "Australia/Lord_Howe", "Asia/Beirut")
]


def keys_of(definition: dg.TimeWindowPartitionsDefinition) -> list[tuple[str, ...]]:
    """Return one, two and three keys of a definition, in all combinations."""
    keys = definition.get_partition_keys()
    return [some for count in (1, 2, 3) for some in combinations(keys, count)]


@pytest.mark.parametrize("definition", [SET_BACK, *OFFSETS], ids=str)
@pytest.mark.parametrize("column", ["at", "local", "day"])
def test_where_clocks_are_set_back_a_slice_is_exact_or_refused(
    definition: dg.TimeWindowPartitionsDefinition, column: str
) -> None:
    zone = ZoneInfo(definition.timezone)
    first = definition.time_window_for_partition_key(definition.get_first_partition_key()).start.astimezone(UTC)
    moments = [first + timedelta(minutes=15 * number) for number in range(-8, 4 * 24 * 6)]
    clocks = [moment.astimezone(zone).replace(tzinfo=None) for moment in moments]
    values: list[Any] = {"at": moments, "local": clocks, "day": [clock.date() for clock in clocks]}[column]
    rows = pa.table({column: pa.array(values, SCHEMA.field(column).type), "number": range(len(moments))})
    exact = 0
    for keys in keys_of(definition):
        windows = [definition.time_window_for_partition_key(key) for key in keys]
        bounds = [(window.start.astimezone(UTC), window.end.astimezone(UTC)) for window in windows]
        expected = [n for n, moment in enumerate(moments) if any(start <= moment < end for start, end in bounds)]
        try:
            where = slice_where(definition, keys, column, SCHEMA)
        except PartitionSliceError:
            assert column != "at"
            continue
        kept = rows.filter(to_arrow(parse_predicate(where, rows.schema)))
        assert kept["number"].to_pylist() == expected, keys
        exact += 1
    assert exact or column == "day"


def test_contiguous_windows_are_merged() -> None:
    keys = DAILY.get_partition_keys()
    assert slice_where(DAILY, keys, "day", SCHEMA) == "`day` >= DATE '2024-01-01' AND `day` < DATE '2024-12-31'"
    assert (
        slice_where(DAILY, reversed(keys[:2]), "day", SCHEMA)
        == "`day` >= DATE '2024-01-01' AND `day` < DATE '2024-01-03'"
    )


def test_many_windows_with_gaps_stay_within_what_parsers_take() -> None:
    keys = DAILY.get_partition_keys()[::2]
    assert len(
        selected(slice_where(DAILY, keys, "day", SCHEMA), "day", [date(2024, 1, 1) + timedelta(n) for n in range(365)])
    ) == len(keys)


@given(st.sets(st.sampled_from(DAILY.get_partition_keys()), min_size=1, max_size=10))
def test_time_windows_on_text_are_their_keys(keys: set[str]) -> None:
    everything = DAILY.get_partition_keys()
    assert set(selected(slice_where(DAILY, keys, "text", SCHEMA), "text", everything)) == keys


ODD_TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8) | st.sampled_from(
    [
        "'",
        "''",
        "\\",
        "\\'",
        "a'b",
        "a\\",
        '"',
        "`",
        "%",
        "_",
        "\\%",
        "--",
        "/*",
        ";",
        "x' OR 'a'='a",
        "ä",
        "NULL",
        "$x",
        "{{ x }}",
    ]
)


@given(st.lists(ODD_TEXT, min_size=1, max_size=6, unique=True), st.data())
def test_static_keys_whatever_they_hold(everything: list[str], data: st.DataObject) -> None:
    keys = data.draw(st.sets(st.sampled_from(everything), min_size=1))
    where = slice_where(dg.StaticPartitionsDefinition(everything), keys, "text", SCHEMA)
    assert set(selected(where, "text", everything)) == keys


@given(ODD_TEXT)
def test_column_names_whatever_they_hold(name: str) -> None:
    schema = pa.schema([(name, pa.string())])
    where = slice_where(dg.StaticPartitionsDefinition(["a", "b"]), ["a"], name, schema)
    table = pa.table([pa.array(["a", "b"])], schema=schema)
    assert table.filter(to_arrow(parse_predicate(where, schema))).num_rows == 1


@given(
    st.sets(
        st.tuples(st.sampled_from(DAILY.get_partition_keys()[:6]), st.sampled_from(["eu", "us", "a'b"])), min_size=1
    )
)
def test_several_dimensions_select_exactly_their_tuples(chosen: set[tuple[str, str]]) -> None:
    regions = ["eu", "us", "a'b"]
    partitions_def = dg.MultiPartitionsDefinition({"when": DAILY, "region": dg.StaticPartitionsDefinition(regions)})
    keys = [dg.MultiPartitionKey({"when": day, "region": region}) for day, region in chosen]
    where = slice_where(partitions_def, keys, {"when": "day", "region": "text"}, SCHEMA)
    rows = [(date(2023, 12, 31) + timedelta(n), region) for n in range(9) for region in regions]
    table = pa.table({"day": pa.array([day for day, _ in rows], pa.date32()), "text": [region for _, region in rows]})
    chosen_rows = table.filter(to_arrow(parse_predicate(where, table.schema))).to_pylist()
    assert {(row["day"].isoformat(), row["text"]) for row in chosen_rows} == chosen


def test_a_full_grid_is_one_tuple() -> None:
    partitions_def = dg.MultiPartitionsDefinition(
        {"when": DAILY, "region": dg.StaticPartitionsDefinition(["eu", "us"])}
    )
    where = slice_where(partitions_def, partitions_def.get_partition_keys(), {"when": "day", "region": "text"}, SCHEMA)
    # Dagster orders dimensions by name.
    assert where == "(`text` IN ('eu', 'us')) AND (`day` >= DATE '2024-01-01' AND `day` < DATE '2024-12-31')"


def test_keys_as_numbers_and_dates() -> None:
    assert (
        slice_where(dg.StaticPartitionsDefinition(["1", "-2"]), ["1", "-2"], "number", SCHEMA) == "`number` IN (-2, 1)"
    )
    assert (
        slice_where(dg.StaticPartitionsDefinition(["2024-02-29"]), ["2024-02-29"], "day", SCHEMA)
        == "`day` = DATE '2024-02-29'"
    )


def test_no_partitions_select_nothing() -> None:
    assert selected(slice_where(DAILY, [], "day", SCHEMA), "day", [date(2024, 1, 1)]) == []


STATIC = dg.StaticPartitionsDefinition(["a", "01", "2024-02-30"])
MULTI = dg.MultiPartitionsDefinition({"when": DAILY, "region": STATIC})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: slice_where(STATIC, ["a"], "missing", SCHEMA), "names the column 'missing'"),
        (lambda: slice_where(STATIC, ["a"], "number", SCHEMA), "not a value of column 'number'"),
        (lambda: slice_where(STATIC, ["01"], "number", SCHEMA), "not a value of column 'number'"),
        (lambda: slice_where(STATIC, ["2024-02-30"], "day", SCHEMA), "not a value of column 'day'"),
        (lambda: slice_where(STATIC, ["a"], "at", SCHEMA), "not a value of column 'at'"),
        (lambda: slice_where(STATIC, ["a"], "price", SCHEMA), "type decimal"),
        (lambda: slice_where(STATIC, ["a"], {"region": "text"}, SCHEMA), "one dimension"),
        (lambda: slice_where(MULTI, ["2024-01-01|a"], "text", SCHEMA), "dict with the column of each"),
        (lambda: slice_where(MULTI, ["2024-01-01|a"], {"when": "day"}, SCHEMA), "dict with the column of each"),
        (lambda: slice_where(MULTI, ["2024-01-01|a"], {"when": "text", "region": "text"}, SCHEMA), "different column"),
        (
            lambda: slice_where(dg.HourlyPartitionsDefinition("2024-01-01-00:00"), ["2024-01-01-05:00"], "day", SCHEMA),
            "begins or ends at",
        ),
        (
            lambda: slice_where(
                dg.DailyPartitionsDefinition("2024-01-01", hour_offset=3), ["2024-01-02"], "day", SCHEMA
            ),
            "begins or ends at",
        ),
    ],
)
def test_what_has_no_exact_predicate_is_refused(make: Callable[[], str], message: str) -> None:
    with pytest.raises(PartitionSliceError, match=message):
        make()


@pytest.mark.extended
def test_spark_reads_the_same(spark: SparkSession) -> None:
    """Quotes, backslashes and windows mean to Spark what they mean to us."""
    from lake_core.spark.write import arrow_schema

    odd = [
        "'",
        "''",
        "\\",
        "\\'",
        "a'b",
        "a\\",
        '"',
        "`",
        "%",
        "\\%",
        "\\n",
        "x' OR 'a'='a",
        "ä€𝄞",
        "a\\\\b",
        " a ",
        "日本",
    ]
    frame = spark.createDataFrame(
        [(text, datetime(2024, 3, 10, 4, 59, 59)) for text in odd], "`o'd``d\\` string, local timestamp_ntz"
    )
    static = dg.StaticPartitionsDefinition(odd)
    for text in odd:
        where = slice_where(static, [text], "o'd`d\\", arrow_schema(frame))
        assert [row[0] for row in frame.where(where).collect()] == [text]
    moments = [
        datetime(2024, 3, 10, 4, 59, 59),
        datetime(2024, 3, 10, 5),
        datetime(2024, 3, 11, 3, 59, 59),
        datetime(2024, 3, 11, 4),
    ]
    table = pa.table({"at": pa.array([moment.replace(tzinfo=UTC) for moment in moments], pa.timestamp("us", tz="UTC"))})
    frame = spark.createDataFrame(table)
    where = slice_where(WINDOWS[1], ["2024-03-10"], "at", arrow_schema(frame))
    assert (
        frame.where(where).count()
        == frame.where(slice_where(WINDOWS[1], ["2024-03-10"], "AT", table.schema)).count()
        == 2
    )
    assert frame.where(slice_where(WINDOWS[1], [], "at", arrow_schema(frame))).count() == 0
