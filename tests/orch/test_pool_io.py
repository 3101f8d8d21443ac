"""Pools as assets: what is returned is what a scan finds, whole or by ranges of keys, and what a parameter loads."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from lake_core import Lake
from lake_core.pool import Pool, PoolLake, Scan
from lake_core.pool.errors import NoSuchPool, NoSuchShape
from lake_orch import (
    DeltaIOManager,
    InvalidDefinition,
    LakeResource,
    OutsideRegion,
    PartitionSliceError,
    PoolIOManager,
    SparkResource,
    TableNotEmpty,
    TableOwned,
    UnsupportedData,
)

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-11")
SINGLE_RUN = dg.BackfillPolicy.single_run()


@pytest.fixture
def resources(root: str) -> dict[str, Any]:
    lake = LakeResource(root=root)
    return {
        "lake": lake,
        "io_manager": PoolIOManager(lake=lake),
        "tables": DeltaIOManager(lake=lake, schema_mode="merge"),
    }


@pytest.fixture(params=[pytest.param("plain", marks=pytest.mark.exhaustive), "lake"])
def pool_root(request: pytest.FixtureRequest, root: str) -> str:
    if request.param == "lake":
        Lake.create(root)
    return root


def stored(root: str, name: str = "events") -> list[str]:
    """Return what plain readers find."""
    return PoolLake.open(f"{root}/tables/{name}").pool(name).scan().to_zson().splitlines()


def events(records: Any, **options: Any) -> dg.AssetsDefinition:
    """An asset of records; what is callable is called in the step, with its partition or None."""
    metadata = {"lake/key": "k", "lake/order": "asc", **options.pop("metadata", {})}

    @dg.asset(name="events", metadata=metadata, **options)
    def asset(context: dg.AssetExecutionContext) -> Any:
        return records(context.partition_key if context.has_partition_key else None) if callable(records) else records

    return asset


def metadata_of(result: dg.ExecuteInProcessResult, node: str = "events") -> dict[str, Any]:
    return {name: value.value for name, value in result.asset_materializations_for_node(node)[0].metadata.items()}


def at(day: int, hour: int = 0) -> datetime:
    return datetime(2024, 1, day, hour, tzinfo=UTC)


# Whole


@pytest.mark.parametrize(
    "records",
    [
        [{"k": 1, "v": "a"}, {"k": 2}],
        pa.table({"k": [1, 2]}),
        pd.DataFrame({"k": [1, 2]}),
        pl.DataFrame({"k": [1, 2]}),
        '{"k": 1, "v": "a"}\n\n{"k": 2}\n',
        lambda _: iter([{"k": 2}, {"k": 1}]),
    ],
)
def test_records_of_any_kind_are_stored(root: str, resources: dict[str, Any], records: Any) -> None:
    dg.materialize([events(records)], resources=resources)
    assert [line.replace(',v:"a"', "") for line in stored(root)] == ["{k:1}", "{k:2}"]


def test_a_generator_is_stored_where_output_wraps_it(root: str, resources: dict[str, Any]) -> None:
    @dg.asset(name="events", metadata={"lake/key": "k"})
    def generated() -> dg.Output[Any]:
        return dg.Output({"k": number} for number in range(3))

    dg.materialize([generated], resources=resources)
    assert stored(root) == ["{k:2}", "{k:1}", "{k:0}"]


def test_lines_of_json_end_only_at_newlines(root: str, resources: dict[str, Any]) -> None:
    dg.materialize([events('{"k":"a\u2028b"}\r\n{"k":"c"}\r\n')], resources=resources)
    assert "".join(stored(root)).count("{k:") == 2


@pytest.mark.parametrize("pool_root", ["plain", "lake"], indirect=True)
def test_modes_write_as_they_say(pool_root: str, resources: dict[str, Any]) -> None:
    def run(records: Any, mode: str) -> dict[str, Any]:
        return metadata_of(dg.materialize([events(records, metadata={"lake/mode": mode})], resources=resources))

    run([{"k": 1}], "error")
    run([{"k": 2}], "append")
    assert stored(pool_root) == ["{k:1}", "{k:2}"]
    with pytest.raises(TableNotEmpty, match="use mode 'overwrite' or 'append'"):
        run([{"k": 3}], "error")
    assert run([{"k": 3}], "ignore")["lake/records_written"] == 0
    run([{"k": 3, "v": "x"}, {"k": 4}], "overwrite")
    assert stored(pool_root) == ['{k:3,v:"x"}', "{k:4}"]
    run([], "overwrite")
    assert stored(pool_root) == []


def test_the_page_tells_records_shapes_and_keys(pool_root: str, resources: dict[str, Any]) -> None:
    shown = metadata_of(
        dg.materialize([events([{"k": 1, "v": "a"}, {"k": 3, "v": 2}, {"k": 2, "v": "b"}])], resources=resources)
    )
    assert {
        name: shown[name] for name in ("dagster/row_count", "lake/records_written", "lake/num_files", "lake/num_shapes")
    } == {
        **{"dagster/row_count": 3, "lake/records_written": 3},
        **{"lake/num_files": 1, "lake/num_shapes": 2},
    }
    assert shown["lake/key_range"] == "1 to 3"
    assert "| 2 | `` {k:int64,v:string} `` |" in shown["lake/shapes"]
    assert [(column.name, column.type) for column in shown["dagster/column_schema"].columns] == [
        ("k", "int64"),
        ("v", "json=string"),
    ]
    assert shown["lake/preview"].startswith("| k | v |")
    assert shown["lake/pool_commit"] == PoolLake.open(f"{pool_root}/tables/events").pool("events").tip()


def test_a_retry_after_the_commit_writes_nothing_and_says_so(pool_root: str, resources: dict[str, Any]) -> None:
    failing = iter([True, False])

    class FailsOnce(PoolIOManager):
        def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
            super().handle_output(context, obj)
            if next(failing):
                raise dg.RetryRequested(max_retries=1)

    resources["io_manager"] = FailsOnce(lake=resources["lake"])
    counts = iter(range(10))
    asset = events(
        lambda _: [{"k": next(counts)}], metadata={"lake/mode": "append"}, retry_policy=dg.RetryPolicy(max_retries=1)
    )
    shown = metadata_of(dg.materialize([asset], resources=resources))
    assert (shown["lake/skipped"], stored(pool_root)) == (True, ["{k:0}"])
    assert shown["lake/pool_commit"] == PoolLake.open(f"{pool_root}/tables/events").pool("events").tip()


def test_another_asset_does_not_replace_the_records_by_a_slip(pool_root: str, resources: dict[str, Any]) -> None:
    dg.materialize([events([{"k": 1}])], resources=resources)

    def other(**metadata: Any) -> None:
        @dg.asset(metadata={"lake/path": "tables/events", **metadata})
        def other() -> Any:
            return [{"k": 2}]

        dg.materialize([other], resources=resources)

    with pytest.raises(TableOwned, match="was made by asset events, and asset other would replace"):
        other()
    other(**{"lake/mode": "append"})
    other(**{"lake/owner": "take"})
    assert stored(pool_root) == ["{k:2}"]


# Partitions


def daily(records: Any, **options: Any) -> dg.AssetsDefinition:
    metadata = {"lake/key": "ts", "partition_expr": "ts", **options.pop("metadata", {})}
    return events(records, partitions_def=DAYS, metadata=metadata, **options)


def test_exactly_the_range_of_the_run_is_replaced(pool_root: str, resources: dict[str, Any]) -> None:
    version = 1

    def records(day: str) -> list[dict[str, Any]]:
        start = datetime.fromisoformat(day).replace(tzinfo=UTC)
        return [{"ts": start, "v": version}, {"ts": start.replace(hour=23), "v": version}]

    for day in ("2024-01-01", "2024-01-02", "2024-01-03"):
        dg.materialize([daily(records)], resources=resources, partition_key=day)
    version = 2
    dg.materialize([daily(records)], resources=resources, partition_key="2024-01-02")
    assert [line[-2] for line in stored(pool_root)] == ["1", "1", "2", "2", "1", "1"]
    dg.materialize(
        [daily([], backfill_policy=SINGLE_RUN)],
        resources=resources,
        tags={
            "dagster/asset_partition_range_start": "2024-01-01",
            "dagster/asset_partition_range_end": "2024-01-02",
        },
    )
    assert [line[-2] for line in stored(pool_root)] == ["1", "1"]

    read: dict[str, Any] = {}

    @dg.asset(partitions_def=DAYS)
    def same(events: pa.Table) -> None:
        read["same"] = events["v"].to_pylist()

    @dg.asset
    def each(events: dict[str, pa.Table]) -> None:
        read["each"] = {day: table.num_rows for day, table in events.items() if table.num_rows}

    dg.materialize([daily(records), same], selection=[same], resources=resources, partition_key="2024-01-03")
    dg.materialize([daily(records), each], selection=[each], resources=resources)
    assert read == {"same": [1, 1], "each": {"2024-01-03": 2}}


def test_records_outside_of_the_run_fail_it_before_anything_is_visible(
    pool_root: str, resources: dict[str, Any]
) -> None:
    dg.materialize([daily([{"ts": at(1)}])], resources=resources, partition_key="2024-01-01")
    for records, message in (
        ([{"ts": at(2)}, {"ts": at(3)}], "the key 2024-01-03T00:00:00Z at 'ts'"),
        ([{"ts": at(2)}, {"v": 1}], "a record with no key at 'ts'"),
        ([{"ts": "2024-01-02"}], 'the key "2024-01-02".*datetimes with a zone'),
    ):
        with pytest.raises(OutsideRegion, match=message):
            dg.materialize([daily(records)], resources=resources, partition_key="2024-01-02")
    assert len(stored(pool_root)) == 1


def test_static_partitions_are_keys(root: str, resources: dict[str, Any]) -> None:
    def asset(records: list[dict[str, Any]]) -> dg.AssetsDefinition:
        partitions = dg.StaticPartitionsDefinition(["a", "7"])
        return events(records, partitions_def=partitions, metadata={"partition_expr": "k"})

    dg.materialize([asset([{"k": "a"}])], resources=resources, partition_key="a")
    dg.materialize([asset([{"k": 7}, {"k": 7.0}, {"k": "7"}])], resources=resources, partition_key="7")
    with pytest.raises(OutsideRegion):
        dg.materialize([asset([{"k": "ab"}])], resources=resources, partition_key="a")
    with pytest.raises(OutsideRegion):
        dg.materialize([asset([{"k": 7.5}])], resources=resources, partition_key="7")
    assert stored(root) == ["{k:7}", "{k:7.}", '{k:"7"}', '{k:"a"}']


# Loading


def test_a_parameter_loads_the_records_as_its_annotation_says(root: str, resources: dict[str, Any]) -> None:
    records = [{"k": 1, "v": 2, "in": {"a": [1]}}, {"k": 2, "v": 0.5}, {"k": 3, "v": None, "in": "text"}]
    read: dict[str, Any] = {}

    def reader(kind: Any) -> dg.AssetsDefinition:
        @dg.asset(name=f"as_{kind.__module__.split('.')[0]}_{kind.__name__}")
        def loaded(context: dg.AssetExecutionContext, events: kind) -> None:
            consume = {
                pa.Table: pa.Table.to_pylist,
                pl.DataFrame: pl.DataFrame.to_dicts,
                Iterator: list,
                Scan: Scan.to_zson,
            }
            consume |= {pa.RecordBatchReader: lambda stream: stream.read_all().to_pylist()}
            read[context.asset_key.path[0]] = consume.get(kind, lambda value: value)(events)

        return loaded

    kinds = (pa.Table, pa.RecordBatchReader, pd.DataFrame, pl.DataFrame, Iterator, Scan, Pool)
    dg.materialize([events(records), *map(reader, kinds)], resources=resources)
    fused = [{"k": 1, "v": 2.0, "in": '{"a":[1]}'}, {"k": 2, "v": 0.5, "in": None}, {"k": 3, "v": None, "in": '"text"'}]
    assert read["as_pyarrow_Table"] == read["as_pyarrow_RecordBatchReader"] == read["as_polars_DataFrame"] == fused
    assert read["as_pandas_DataFrame"].shape == (3, 3)
    assert read["as_collections_Iterator"] == records
    assert (len(read["as_lake_core_Scan"].splitlines()), read["as_lake_core_Pool"].config.name) == (3, "events")


@pytest.mark.extended
def test_metadata_of_an_input_narrows_down_what_is_loaded(root: str, resources: dict[str, Any]) -> None:
    asset = events([{"k": 1, "v": 1}, {"k": 2, "v": 2}, {"k": 3, "w": 3}, {"k": 4, "v": 4}])
    dg.materialize([asset], resources=resources)
    commit = PoolLake.open(f"{root}/tables/events").pool("events").tip()
    dg.materialize([events([])], resources=resources)

    def load(**metadata: Any) -> Any:
        read: list[Any] = []

        @dg.asset(ins={"events": dg.AssetIn(metadata={"lake/pool_commit": commit, **metadata})})
        def reader(events: pa.Table) -> None:
            read.extend(events.to_pylist())

        dg.materialize([asset, reader], selection=[reader], resources=resources)
        return read

    assert load(**{"lake/start": 2, "lake/stop": 4}) == [{"k": 2, "v": 2, "w": None}, {"k": 3, "v": None, "w": 3}]
    assert load(**{"lake/shape": "{k:int64,w:int64}"}) == [{"k": 3, "w": 3}]
    assert load(columns=["w"])[2] == {"w": 3}
    with pytest.raises(NoSuchShape, match="choose one of these"):
        load(**{"lake/shape": "conn"})
    with pytest.raises(InvalidDefinition, match="asks for the column 'x'; the columns are k, v, w"):
        load(columns=["x"])
    with pytest.raises(InvalidDefinition, match="'lake/shpe', which has no effect: use 'lake/shape'"):
        load(**{"lake/shpe": "x"})
    with pytest.raises(InvalidDefinition, match="'lake/where', which has no effect: the settings of this input"):
        load(**{"lake/where": "k = 1"})


@pytest.mark.extended
def test_what_spark_returns_and_asks_for_goes_through_its_executors(
    spark: SparkSession, pool_root: str, resources: dict[str, Any]
) -> None:
    spark_resource = SparkResource(master="local[2]")
    resources["io_manager"] = PoolIOManager(lake=resources["lake"], spark=spark_resource)
    read: list[Any] = []

    @dg.asset(name="events", partitions_def=DAYS, metadata={"partition_expr": "ts"})
    def written(context: dg.AssetExecutionContext) -> DataFrame:
        return spark.sql(f"SELECT timestamp'{context.partition_key} 05:00:00Z' AS ts, explode(sequence(1, 3)) AS v")

    @dg.asset(partitions_def=DAYS)
    def reader(events: DataFrame) -> None:
        read.extend(row.v for row in events.orderBy("v").collect())

    for _ in range(2):
        dg.materialize([written], resources=resources, partition_key="2024-01-02")
    dg.materialize([written, reader], selection=[reader], resources=resources, partition_key="2024-01-02")
    assert read == [1, 2, 3]


# What a first user meets


def test_errors_name_the_asset_and_what_to_do(root: str, resources: dict[str, Any]) -> None:
    multi = dg.MultiPartitionsDefinition({"day": DAYS, "region": dg.StaticPartitionsDefinition(["eu"])})
    for asset, partition, error, message in (
        (events({"k": 1}), None, UnsupportedData, "asset events is one dict: return a list"),
        (events(5), None, UnsupportedData, "asset events is a int: return an iterable of dicts"),
        (events(b"{}"), None, UnsupportedData, "asset events is a bytes: return"),
        (events([{"k": 1}, 7]), None, UnsupportedData, "record 2 of the output of asset events is a int"),
        (
            events([{"k": object()}]),
            None,
            UnsupportedData,
            "asset events cannot be stored in a pool: an object of the type object cannot be stored as a value",
        ),
        (events("{broken"), None, UnsupportedData, "asset events cannot be stored in a pool: line 1"),
        (events('{"k":1}\n[{"k":2}]'), None, UnsupportedData, "line 2: .* is an array; write one object on each line"),
        (events([], metadata={"lake/mode": "merge"}), None, InvalidDefinition, "use one of overwrite, append"),
        (events([], metadata={"lake/order": "up"}), None, InvalidDefinition, "use one of asc, desc"),
        (events([], metadata={"lake/threshold": 0}), None, InvalidDefinition, "use a whole number from 1"),
        (
            events([], partitions_def=DAYS),
            "2024-01-02",
            InvalidDefinition,
            "is partitioned, but its metadata has no 'partition_expr'",
        ),
        (
            events([], partitions_def=DAYS, metadata={"partition_expr": "ts"}),
            "2024-01-02",
            InvalidDefinition,
            "lake/key is 'k'",
        ),
        (
            events([], partitions_def=multi, metadata={"partition_expr": "k"}),
            "2024-01-02|eu",
            PartitionSliceError,
            "one key",
        ),
    ):
        with pytest.raises(error, match=message):
            dg.materialize([asset], resources=resources, partition_key=partition)
    assert dg.materialize([events(None)], resources=resources).success, "None is a warning"

    def load(annotation: Any) -> None:
        @dg.asset
        def reader(events: annotation) -> None: ...

        dg.materialize([events([{"k": 1}]), reader], resources=resources)

    for annotation, message in (
        (int, "annotate the parameter as one of pyarrow.Table"),
        (DataFrame, "give the PoolIOManager a SparkResource"),
    ):
        with pytest.raises((UnsupportedData, InvalidDefinition), match=message):
            load(annotation)

    @dg.asset
    def early(absent: pa.Table) -> None: ...

    with pytest.raises(NoSuchPool, match=r"there is no pool dataset at .*materialize it first"):
        dg.materialize([dg.AssetSpec("absent"), early], resources=resources)
