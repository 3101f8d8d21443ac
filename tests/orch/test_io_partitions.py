"""Partitions of every kind: each run writes exactly its own, and reads exactly those that a mapping gives it."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import time
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import RowsOutsidePredicate, TableNotFound, UnsupportedType
from lake_orch import InvalidDefinition, slice_where

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-11")
REGIONS = dg.StaticPartitionsDefinition(["eu", "us", "as"])
SIZES = dg.StaticPartitionsDefinition(["s", "m"])
TENANTS = dg.DynamicPartitionsDefinition(name="tenants")
SINGLE_RUN = dg.BackfillPolicy.single_run()


def rows(root: str, name: str) -> list[dict[str, Any]]:
    return DeltaTable.open(f"{root}/tables/{name}").to_arrow().to_pylist()


def day_of(key: str) -> date:
    return date.fromisoformat(key[:10])


def hour_of(key: str) -> datetime:
    return datetime.strptime(key, "%Y-%m-%d-%H:%M").replace(tzinfo=UTC)


KINDS: dict[str, tuple[dg.PartitionsDefinition, Any, Any, list[str]]] = {
    "hourly": (
        dg.HourlyPartitionsDefinition("2024-01-01-00:00", end_date="2024-01-02-00:00"),
        "p",
        lambda key: {"p": hour_of(key)},
        ["2024-01-01-00:00", "2024-01-01-13:00", "2024-01-01-00:00"],
    ),
    "daily": (DAYS, "p", lambda key: {"p": day_of(key)}, ["2024-01-01", "2024-01-02", "2024-01-01"]),
    "weekly": (
        dg.WeeklyPartitionsDefinition("2024-01-07", end_date="2024-02-11"),
        "p",
        lambda key: {"p": day_of(key)},
        ["2024-01-07", "2024-01-14", "2024-01-07"],
    ),
    "cron": (
        dg.TimeWindowPartitionsDefinition(
            cron_schedule="0 0 * * 1,4", start="2024-01-01", end="2024-02-01", fmt="%Y-%m-%d"
        ),
        "p",
        lambda key: {"p": day_of(key)},
        ["2024-01-01", "2024-01-04", "2024-01-01"],
    ),
    "static": (REGIONS, "p", lambda key: {"p": key}, ["eu", "us", "eu"]),
    "dynamic": (TENANTS, "p", lambda key: {"p": key}, ["it's", "b/ü", "it's"]),
    "two static": (
        dg.MultiPartitionsDefinition({"region": REGIONS, "size": SIZES}),
        {"region": "r", "size": "p"},
        lambda key: {"r": key.keys_by_dimension["region"], "p": key.keys_by_dimension["size"]},
        [dg.MultiPartitionKey({"region": r, "size": s}) for r, s in (("eu", "s"), ("eu", "m"), ("eu", "s"))],
    ),
    "time x static": (
        dg.MultiPartitionsDefinition({"day": DAYS, "region": REGIONS}),
        {"day": "d", "region": "p"},
        lambda key: {"d": day_of(key.keys_by_dimension["day"]), "p": key.keys_by_dimension["region"]},
        [
            dg.MultiPartitionKey({"day": d, "region": r})
            for d, r in (("2024-01-01", "eu"), ("2024-01-02", "eu"), ("2024-01-01", "eu"))
        ],
    ),
    "dynamic x time": (
        dg.MultiPartitionsDefinition({"tenant": TENANTS, "day": DAYS}),
        {"tenant": "p", "day": "d"},
        lambda key: {"p": key.keys_by_dimension["tenant"], "d": day_of(key.keys_by_dimension["day"])},
        [dg.MultiPartitionKey({"tenant": t, "day": "2024-01-01"}) for t in ("it's", "other", "it's")],
    ),
}


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        pytest.param(
            kind,
            mode,
            marks=[]
            if (kind, mode) in {("static", "overwrite"), ("time x static", "overwrite"), ("dynamic x time", "merge")}
            else pytest.mark.exhaustive,
        )
        for mode in ("overwrite", "merge")
        for kind in KINDS
    ],
)
def test_a_run_replaces_its_own_partition_and_reads_it_back(
    root: str, resources: dict[str, Any], kind: str, mode: str
) -> None:
    partitions_def, expression, columns, keys = KINDS[kind]
    extra = {"lake/merge": ["p", "n"]} if mode == "merge" else {}
    runs: list[Any] = []
    counter = iter(range(10))

    @dg.asset(partitions_def=partitions_def, metadata={"partition_expr": expression, **extra})
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        key = context.partition_key
        return pa.Table.from_pylist([{**columns(key), "n": 0, "run": next(counter)}])

    @dg.asset(partitions_def=partitions_def)
    def read(orders: pa.Table) -> None:
        runs.append(orders["run"].to_pylist())

    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("tenants", ["it's", "b/ü", "other"])
        for key in keys:
            assert dg.materialize([orders, read], partition_key=key, resources=resources, instance=instance).success
    assert runs == [[0], [1], [2]]
    assert sorted(row["run"] for row in rows(root, "orders")) == [1, 2]


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_rows_of_other_partitions_fail_in_every_mode(root: str, resources: dict[str, Any], mode: str) -> None:
    metadata = {"partition_expr": "day", **({"lake/merge": ["id"]} if mode == "merge" else {"lake/mode": mode})}

    @dg.asset(partitions_def=DAYS, metadata=metadata)
    def orders() -> pa.Table:
        return pa.table({"day": [date(2024, 1, 1), date(2024, 1, 2)], "id": [1, 2]})

    with pytest.raises(RowsOutsidePredicate):
        dg.materialize([orders], partition_key="2024-01-01", resources=resources)
    assert rows(root, "orders") == []


def test_a_merge_stays_in_its_partitions(root: str, resources: dict[str, Any]) -> None:
    """A key in another partition is another row.

    Rows there are not taken for rows that no source row matches.
    """
    how = {
        "keys": ["id"],
        "when_matched_update": "*",
        "when_not_matched_insert": "*",
        "when_not_matched_by_source_delete": True,
    }
    values = iter(["a", "b", "c"])

    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day", "lake/merge": how})
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        v = next(values)
        ids = [1, 2] if v == "a" else [1]
        return pa.table({"day": [day_of(context.partition_key)] * len(ids), "id": ids, "v": [v] * len(ids)})

    for key in ("2024-01-01", "2024-01-02", "2024-01-01"):
        dg.materialize([orders], partition_key=key, resources=resources)
    assert sorted((row["day"].day, row["id"], row["v"]) for row in rows(root, "orders")) == [(1, 1, "c"), (2, 1, "b")]


@pytest.mark.parametrize(
    "clauses",
    [
        {"when_matched_update": {"day": "DATE '2024-02-01'"}},
        {"when_not_matched_insert": {"id": "s.id"}},
        {"when_not_matched_by_source_update": {"t.day": "DATE '2024-02-01'"}},
    ],
)
def test_a_merge_that_could_move_rows_to_other_partitions_is_refused(
    root: str, resources: dict[str, Any], clauses: dict[str, Any]
) -> None:
    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day", "lake/merge": {"keys": ["id"], **clauses}})
    def orders() -> pa.Table:
        return pa.table({"day": [date(2024, 1, 1)], "id": [1]})

    with pytest.raises(InvalidDefinition, match="which the partitions stand for"):
        dg.materialize([orders], partition_key="2024-01-01", resources=resources)
    assert not DeltaTable.exists(f"{root}/tables/orders")


def test_an_asset_with_partitions_overwrites_the_partitions_of_the_table(root: str, resources: dict[str, Any]) -> None:
    values = iter([[1, 2], [1, 2], [2, 3]])
    metadata = {"partition_expr": "region", "lake/mode": "overwrite_partitions", "lake/partition_by": ["region", "k"]}

    @dg.asset(partitions_def=REGIONS, metadata=metadata)
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        k = next(values)
        return pa.table({"region": [context.partition_key] * 2, "k": k, "v": [k[0]] * 2})

    for key in ("eu", "us", "eu"):
        dg.materialize([orders], partition_key=key, resources=resources)
    assert sorted((row["region"], row["k"], row["v"]) for row in rows(root, "orders")) == [
        ("eu", 1, 1),
        ("eu", 2, 2),
        ("eu", 3, 2),
        ("us", 1, 1),
        ("us", 2, 1),
    ]


def test_partitions_of_the_table_that_others_share_are_not_overwritten(resources: dict[str, Any]) -> None:
    metadata = {"partition_expr": "region", "lake/mode": "overwrite_partitions", "lake/partition_by": ["k"]}

    @dg.asset(partitions_def=REGIONS, metadata=metadata)
    def orders() -> pa.Table:
        return pa.table({"region": ["eu"], "k": [1], "v": [1]})

    with pytest.raises(InvalidDefinition, match="may have rows of other partitions of the asset"):
        dg.materialize([orders], partition_key="eu", resources=resources)


def test_rows_of_a_partition_are_counted_or_not_given(resources: dict[str, Any]) -> None:
    """Two appends of two rows: the table is not partitioned by the column of the partitions."""
    metadata = {"partition_expr": "region", "lake/mode": "append", "lake/partition_by": ["k"]}

    @dg.asset(partitions_def=REGIONS, metadata=metadata)
    def orders() -> pa.Table:
        return pa.table({"region": ["eu", "eu"], "k": [1, 2], "v": [1, 2]})

    for _ in range(2):
        result = dg.materialize([orders], partition_key="eu", resources=resources)
    (event,) = result.asset_materializations_for_node("orders")
    assert event.metadata["lake/rows_written"].value == 2
    assert "dagster/partition_row_count" not in event.metadata


def test_a_single_run_over_two_dimensions(root: str, resources: dict[str, Any]) -> None:
    """Ranges of several dimensions are no range of keys for Dagster: what a run is for are its keys."""
    both = dg.MultiPartitionsDefinition({"day": DAYS, "region": REGIONS})
    counter = iter(range(10))

    @dg.asset(partitions_def=both, metadata={"partition_expr": {"day": "d", "region": "r"}}, backfill_policy=SINGLE_RUN)
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        run = next(counter)
        keys = [both.get_partition_key_from_str(key).keys_by_dimension for key in context.partition_keys]
        return pa.Table.from_pylist([{"d": day_of(key["day"]), "r": key["region"], "run": run} for key in keys])

    job = dg.Definitions(assets=[orders], resources=resources).resolve_implicit_global_asset_job_def()
    for first, last in (("2024-01-01|eu", "2024-01-03|us"), ("2024-01-02|eu", "2024-01-02|us")):
        tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
        assert job.execute_in_process(tags=tags).success
    runs = {(row["d"].day, row["r"]): row["run"] for row in rows(root, "orders")}
    assert len(runs) >= 6
    assert {key for key, run in runs.items() if run == 1} >= {(2, "eu"), (2, "us")}
    assert runs[1, "eu"] == 0
    assert runs[3, "us"] == 0


# mappings


@pytest.fixture
def daily(resources: dict[str, Any]) -> dg.AssetsDefinition:
    """Create a daily table with five days."""

    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"}, backfill_policy=SINGLE_RUN)
    def daily(context: dg.AssetExecutionContext) -> pa.Table:
        days = [day_of(key) for key in context.partition_keys]
        return pa.table({"day": days, "n": [day.day for day in days]})

    job = dg.Definitions(assets=[daily], resources=resources).resolve_implicit_global_asset_job_def()
    tags = {"dagster/asset_partition_range_start": "2024-01-01", "dagster/asset_partition_range_end": "2024-01-05"}
    assert job.execute_in_process(tags=tags).success
    return daily


def loaded(
    daily: dg.AssetsDefinition,
    resources: dict[str, Any],
    annotation: Any,
    key: str | None,
    partitions_def: Any = None,
    mapping: Any = None,
) -> Any:
    """Return what a parameter with this annotation gets in a run of this key."""
    received: list[Any] = []

    def reader(daily) -> None:
        received.append(daily)

    reader.__annotations__ = {"daily": annotation, "return": None}
    ins = {"daily": dg.AssetIn(partition_mapping=mapping)} if mapping is not None else None
    asset = dg.asset(reader, partitions_def=partitions_def, ins=ins)
    assert dg.materialize([daily, asset], selection=[asset], partition_key=key, resources=resources).success
    return received[0]


OFFSET = dg.TimeWindowPartitionMapping(start_offset=-2, end_offset=-1, allow_nonexistent_upstream_partitions=True)
WEEKS = dg.WeeklyPartitionsDefinition("2024-01-01", end_date="2024-02-01", day_offset=1)
TO_SINGLE = dg.MultiToSingleDimensionPartitionMapping("day")


@pytest.mark.parametrize(
    ("key", "partitions_def", "mapping", "expected"),
    [
        ("2024-01-03", DAYS, None, [3]),
        ("2024-01-03", DAYS, dg.IdentityPartitionMapping(), [3]),
        ("2024-01-04", DAYS, OFFSET, [2, 3]),
        ("2024-01-01", DAYS, OFFSET, []),
        ("2024-01-01", WEEKS, None, [1, 2, 3, 4, 5]),
        (None, None, None, [1, 2, 3, 4, 5]),
        (None, None, dg.AllPartitionMapping(), [1, 2, 3, 4, 5]),
        ("eu", REGIONS, dg.AllPartitionMapping(), [1, 2, 3, 4, 5]),
        ("eu", REGIONS, dg.LastPartitionMapping(), []),  # which has no rows
        ("eu", REGIONS, dg.SpecificPartitionsPartitionMapping(["2024-01-01", "2024-01-04"]), [1, 4]),
        (dg.MultiPartitionKey({"day": "2024-01-02", "region": "eu"}), {"day": DAYS, "region": REGIONS}, TO_SINGLE, [2]),
    ],
)
def test_a_mapping_says_what_is_read(
    daily: dg.AssetsDefinition,
    resources: dict[str, Any],
    key: Any,
    partitions_def: Any,
    mapping: Any,
    expected: list[int],
) -> None:
    if isinstance(partitions_def, dict):
        partitions_def = dg.MultiPartitionsDefinition(partitions_def)
    actual = loaded(daily, resources, pa.Table, key, partitions_def, mapping)
    assert sorted(actual["n"].to_pylist()) == expected


def test_a_dict_gets_one_value_for_each_partition(daily: dg.AssetsDefinition, resources: dict[str, Any]) -> None:
    frames = loaded(daily, resources, dict[str, pl.DataFrame], "2024-01-04", DAYS, OFFSET)
    assert {key: frame["n"].to_list() for key, frame in frames.items()} == {"2024-01-02": [2], "2024-01-03": [3]}
    frames = loaded(daily, resources, Mapping[str, pa.Table], "2024-01-01", DAYS, OFFSET)
    assert frames == {}


def test_one_partition_of_several_dimensions_from_another_table(root: str, resources: dict[str, Any]) -> None:
    both = dg.MultiPartitionsDefinition({"day": DAYS, "region": REGIONS})
    inputs = {}

    @dg.asset(partitions_def=both, metadata={"partition_expr": {"day": "d", "region": "r"}})
    def cells(context: dg.AssetExecutionContext) -> pa.Table:
        key = context.partition_key.keys_by_dimension
        return pa.table({"d": [day_of(key["day"])], "r": [key["region"]]})

    @dg.asset(partitions_def=DAYS, ins={"cells": dg.AssetIn(partition_mapping=TO_SINGLE)})
    def by_day(cells: pa.Table) -> None:
        inputs["regions"] = sorted(cells["r"].to_pylist())

    for day, region in (("2024-01-01", "eu"), ("2024-01-01", "us"), ("2024-01-02", "as")):
        dg.materialize([cells], partition_key=dg.MultiPartitionKey({"day": day, "region": region}), resources=resources)
    dg.materialize([cells, by_day], selection=[by_day], partition_key="2024-01-01", resources=resources)
    assert inputs == {"regions": ["eu", "us"]}


@pytest.mark.extended
def test_a_partitioned_asset_of_an_unpartitioned_one(root: str, resources: dict[str, Any]) -> None:
    @dg.asset
    def whole() -> pa.Table:
        return pa.table({"region": ["eu", "us"], "n": [1, 2]})

    @dg.asset(partitions_def=REGIONS, metadata={"partition_expr": "region"})
    def part(context: dg.AssetExecutionContext, whole: pl.LazyFrame) -> pl.LazyFrame:
        return whole.filter(pl.col("region") == context.partition_key)

    dg.materialize([whole], resources=resources)
    for key in ("eu", "us"):
        dg.materialize([whole, part], selection=[part], partition_key=key, resources=resources)
    assert sorted(row["n"] for row in rows(root, "part")) == [1, 2]


# assets that depend on themselves


def running(annotation: Any, totals: list[Any]) -> dg.AssetsDefinition:
    """Return an asset that adds each day to the total of the day before."""

    def total(context, total):
        before = 0 if total is None or not total.num_rows else total["n"][0].as_py()
        totals.append(total)
        return pa.table({"day": [day_of(context.partition_key)], "n": [before + 1]})

    total.__annotations__ = {"context": dg.AssetExecutionContext, "total": annotation, "return": pa.Table}
    mapping = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
    return dg.asset(
        total,
        partitions_def=DAYS,
        metadata={"partition_expr": "day"},
        ins={"total": dg.AssetIn(partition_mapping=mapping)},
    )


@pytest.mark.parametrize("annotation", [pa.Table, pa.Table | None])
def test_an_asset_that_depends_on_itself_begins_with_nothing(
    root: str, resources: dict[str, Any], annotation: Any
) -> None:
    totals: list[Any] = []
    asset = running(annotation, totals)
    for key in ("2024-01-01", "2024-01-02", "2024-01-03"):
        assert dg.materialize([asset], partition_key=key, resources=resources).success
    assert sorted((row["day"].day, row["n"]) for row in rows(root, "total")) == [(1, 1), (2, 2), (3, 3)]
    assert (totals[0] is None) is (annotation is not pa.Table)


def test_it_may_begin_anywhere(root: str, resources: dict[str, Any]) -> None:
    totals: list[Any] = []
    assert dg.materialize([running(pa.Table | None, totals)], partition_key="2024-01-05", resources=resources).success
    assert totals == [None]


def test_a_table_that_is_not_there_is_an_error_otherwise(resources: dict[str, Any]) -> None:
    @dg.asset
    def missing() -> pa.Table: ...

    @dg.asset
    def reader(missing: pa.Table | None) -> None: ...

    with pytest.raises(TableNotFound):
        dg.materialize([missing, reader], selection=[reader], resources=resources)


# many


@pytest.mark.extended
def test_thousands_of_partitions_are_a_short_predicate_and_take_little_time() -> None:
    hours = dg.HourlyPartitionsDefinition("2020-01-01-00:00", end_date="2024-01-01-00:00")
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("name", pa.string())])
    keys = hours.get_partition_keys()
    began = time.process_time()
    where = slice_where(hours, keys, "at", schema)
    assert time.process_time() - began < 10
    assert len(keys) > 35_000
    assert where == "`at` >= TIMESTAMP '2020-01-01 00:00:00Z' AND `at` < TIMESTAMP '2024-01-01 00:00:00Z'"


def test_thousands_of_static_partitions_are_loaded(root: str, resources: dict[str, Any]) -> None:
    names = [f"customer {number}" for number in range(3000)]
    many = dg.StaticPartitionsDefinition(names)
    inputs = {}

    @dg.asset(partitions_def=many, metadata={"partition_expr": "name"})
    def customers() -> pa.Table: ...

    @dg.asset
    def reader(customers: pa.Table) -> None:
        inputs["rows"] = customers.num_rows

    table = DeltaTable.create(f"{root}/tables/customers", pa.schema([("name", pa.string())]))
    table.append(pa.table({"name": [*names, "one that is no partition"]}))
    dg.materialize([customers, reader], selection=[reader], resources=resources)
    assert inputs == {"rows": 3000}


@pytest.mark.extended
def test_partitions_may_stand_for_a_generated_column(root: str, resources: dict[str, Any]) -> None:
    metadata = {"partition_expr": "day", "lake/generated": {"day": "CAST(at AS DATE)"}}
    hours = iter([1, 2, 3, 30])

    @dg.asset(partitions_def=DAYS, metadata=metadata)
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table(
            {"at": [datetime.fromisoformat(f"{context.partition_key}T00:00:00+00:00") + timedelta(hours=next(hours))]}
        )

    for key in ("2024-01-01", "2024-01-02", "2024-01-01"):
        assert dg.materialize([orders], partition_key=key, resources=resources).success
    assert sorted((row["day"].day, row["at"].hour) for row in rows(root, "orders")) == [(1, 3), (2, 2)]
    assert DeltaTable.open(f"{root}/tables/orders").metadata.partition_columns == ("day",)
    with pytest.raises(RowsOutsidePredicate):
        dg.materialize([orders], partition_key="2024-01-01", resources=resources)


def test_a_day_without_rows_and_one_with_missing_numbers(root: str, resources: dict[str, Any]) -> None:
    """pandas gives such frames any types, and floats instead of integers."""
    frames = {
        "2024-01-01": pd.DataFrame({"day": ["2024-01-01"] * 2, "id": [1, 2], "name": ["x", "y"]}),
        "2024-01-02": pd.DataFrame({"day": [], "id": [], "name": []}),
        "2024-01-03": pd.DataFrame({"day": ["2024-01-03"] * 2, "id": [3, None], "name": [None, None]}),
    }

    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
    def events(context: dg.AssetExecutionContext) -> Any:
        return frames[context.partition_key]

    for day in frames:
        assert dg.materialize([events], resources=resources, partition_key=day).success
    assert sorted((row["day"], row["id"]) for row in rows(root, "events") if row["id"]) == [
        ("2024-01-01", 1),
        ("2024-01-01", 2),
        ("2024-01-03", 3),
    ]
    frames["2024-01-01"] = frames["2024-01-02"]
    assert dg.materialize([events], resources=resources, partition_key="2024-01-01").success
    assert {row["day"] for row in rows(root, "events")} == {"2024-01-03"}


def test_a_first_day_without_rows_needs_declared_columns(resources: dict[str, Any]) -> None:
    @dg.asset
    def undeclared() -> Any:
        return pl.DataFrame({"day": [], "id": []})

    with pytest.raises(UnsupportedType, match=r"column .day. has only nulls, .*by the metadata lake/schema"):
        dg.materialize([undeclared], resources=resources)
