"""What assets return lands in their tables, exactly in their partitions, and comes back as what parameters ask for."""

import logging
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from lake_core.delta import DeltaTable
from lake_core.delta.errors import RowsOutsidePredicate
from lake_core.workspace import DirectWrites
from lake_orch import (
    DeltaIOManager,
    IcechunkIOManager,
    InvalidDefinition,
    LakeResource,
    PartitionSliceError,
    PoolIOManager,
    SparkResource,
    TableNotEmpty,
    UnsupportedData,
)
from lake_orch.assets.tables.rows.arrow import ArrowRows
from lake_orch.assets.tables.writer import TableWriter

MONTHS = dg.MonthlyPartitionsDefinition("2024-01-01", end_date="2025-01-01")
SINGLE_RUN = dg.BackfillPolicy.single_run()


def table(root: str, name: str) -> DeltaTable:
    return DeltaTable.open(f"{root}/tables/{name}")


def rows(root: str, name: str) -> list[dict[str, Any]]:
    return table(root, name).to_arrow().to_pylist()


def metadata(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    event = result.get_asset_materialization_events()[-1]  # a run over a range has one for each partition
    return {name: entry.value for name, entry in event.materialization.metadata.items()}


def of_months(*months: int, value: int = 0) -> pa.Table:
    """Return two rows for each month."""
    days = [date(2024, month, 1) for month in months for _ in range(2)]
    return pa.table({"month": pa.array(days, pa.date32()), "value": pa.array([value] * len(days), pa.int64())})


def month_numbers(context: dg.AssetExecutionContext) -> list[int]:
    return [date.fromisoformat(key).month for key in context.partition_keys]


def failure(result: dg.ExecuteInProcessResult) -> str:
    """Return the whole chain of errors of the failed step, as the UI shows it."""
    (event,) = result.get_step_failure_events()
    return event.step_failure_data.error.to_string()


# types


def test_arrow_types_come_back_as_annotated(root: str, resources: dict[str, Any]) -> None:
    loaded = {}

    @dg.asset
    def numbers() -> pa.Table:
        return pa.table({"n": [1, 2, 3]})

    @dg.asset
    def streamed(numbers: pa.RecordBatchReader) -> pa.RecordBatchReader:
        loaded["reader"] = numbers
        return numbers

    @dg.asset
    def last(streamed: pa.Table, numbers: DeltaTable) -> None:
        loaded["table"], loaded["delta"] = streamed, numbers

    assert dg.materialize([numbers, streamed, last], resources=resources).success
    assert isinstance(loaded["reader"], pa.RecordBatchReader)
    assert loaded["table"].to_pydict() == {"n": [1, 2, 3]}
    assert loaded["delta"].version == table(root, "numbers").version
    assert not DeltaTable.exists(f"{root}/tables/last")


def test_a_type_that_is_no_table_is_refused(root: str, resources: dict[str, Any]) -> None:
    @dg.asset
    def wrong() -> dict[str, int]:
        return {"a": 1}

    with pytest.raises(UnsupportedData, match=r"asset wrong is a dict: return one of"):
        dg.materialize([wrong], resources=resources)
    assert not DeltaTable.exists(f"{root}/tables/wrong")


def test_an_input_without_a_type_is_refused(resources: dict[str, Any]) -> None:
    @dg.asset
    def numbers() -> pa.Table:
        return pa.table({"n": [1]})

    @dg.asset
    def reader(numbers) -> None: ...

    with pytest.raises(UnsupportedData, match="input 'numbers' has no type annotation: annotate the parameter"):
        dg.materialize([numbers, reader], resources=resources)


# partitions


def test_each_run_replaces_exactly_its_partition(root: str, resources: dict[str, Any]) -> None:
    values = iter([1, 2, 3])

    @dg.asset(partitions_def=MONTHS, metadata={"partition_expr": "month"})
    def monthly(context: dg.AssetExecutionContext) -> pa.Table:
        return of_months(*month_numbers(context), value=next(values))

    for key in ("2024-01-01", "2024-02-01", "2024-01-01"):
        assert dg.materialize([monthly], partition_key=key, resources=resources).success
    actual = sorted((row["month"].month, row["value"]) for row in rows(root, "monthly"))
    assert actual == [(1, 3), (1, 3), (2, 2), (2, 2)]
    assert table(root, "monthly").metadata.partition_columns == ("month",)


def test_a_run_over_a_range_replaces_exactly_the_range(root: str, resources: dict[str, Any]) -> None:
    values = iter([1, 2])

    @dg.asset(partitions_def=MONTHS, metadata={"partition_expr": "month"}, backfill_policy=SINGLE_RUN)
    def monthly(context: dg.AssetExecutionContext) -> pa.Table:
        return of_months(*month_numbers(context), value=next(values))

    job = dg.Definitions(assets=[monthly], resources=resources).resolve_implicit_global_asset_job_def()
    for first, last in (("2024-01-01", "2024-05-01"), ("2024-02-01", "2024-03-01")):
        tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
        result = job.execute_in_process(tags=tags)
        assert result.success
    assert sorted({(row["month"].month, row["value"]) for row in rows(root, "monthly")}) == [
        (1, 1),
        (2, 2),
        (3, 2),
        (4, 1),
        (5, 1),
    ]
    assert (metadata(result)["lake/rows_written"], metadata(result)["dagster/row_count"]) == (4, 10)
    assert "dagster/partition_row_count" not in metadata(result)


def test_several_dimensions(root: str, resources: dict[str, Any]) -> None:
    days = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")
    regions = dg.StaticPartitionsDefinition(["eu", "it's"])

    @dg.asset(
        partitions_def=dg.MultiPartitionsDefinition({"day": days, "region": regions}),
        metadata={"partition_expr": {"day": "date", "region": "where"}},
    )
    def cells(context: dg.AssetExecutionContext) -> pa.Table:
        keys = context.multi_partition_key.keys_by_dimension
        day = pa.array([date.fromisoformat(keys["day"])], pa.date32())
        return pa.table({"date": day, "where": [keys["region"]], "run": [context.run.run_id]})

    runs = [
        dg.materialize(
            [cells], partition_key=dg.MultiPartitionKey({"day": day, "region": region}), resources=resources
        ).run_id
        for day, region in (("2024-01-01", "eu"), ("2024-01-01", "it's"), ("2024-01-02", "eu"), ("2024-01-01", "it's"))
    ]
    runs_by_cell = {(row["date"].day, row["where"]): row["run"] for row in rows(root, "cells")}
    assert runs_by_cell == {(1, "eu"): runs[0], (1, "it's"): runs[3], (2, "eu"): runs[2]}


def test_rows_outside_the_partition_fail_the_step_before_anything_is_visible(
    root: str, resources: dict[str, Any]
) -> None:
    outputs = iter([of_months(1), of_months(1, 2)])

    @dg.asset(partitions_def=MONTHS, metadata={"partition_expr": "month"})
    def monthly() -> pa.Table:
        return next(outputs)

    dg.materialize([monthly], partition_key="2024-01-01", resources=resources)
    before = table(root, "monthly").version
    with pytest.raises(RowsOutsidePredicate):
        dg.materialize([monthly], partition_key="2024-01-01", resources=resources)
    assert table(root, "monthly").version == before


def test_an_empty_output_clears_its_slice(root: str, resources: dict[str, Any]) -> None:
    outputs = iter([of_months(1), of_months(2), of_months()])

    @dg.asset(partitions_def=MONTHS, metadata={"partition_expr": "month"})
    def monthly() -> pa.Table:
        return next(outputs)

    for key in ("2024-01-01", "2024-02-01", "2024-01-01"):
        result = dg.materialize([monthly], partition_key=key, resources=resources)
    assert {row["month"].month for row in rows(root, "monthly")} == {2}
    entries = metadata(result)
    assert (entries["lake/rows_written"], entries["dagster/partition_row_count"], entries["dagster/row_count"]) == (
        0,
        0,
        2,
    )


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        (None, InvalidDefinition),
        ("missing", PartitionSliceError),
        ("value", PartitionSliceError),
        ({"a": "month"}, PartitionSliceError),
    ],
)
def test_a_slice_that_cannot_be_told_writes_nothing(
    root: str, resources: dict[str, Any], expression: Any, error: type[Exception]
) -> None:
    @dg.asset(partitions_def=MONTHS, metadata={"partition_expr": expression} if expression else {})
    def monthly() -> pa.Table:
        return of_months(1)

    with pytest.raises(error):
        dg.materialize([monthly], partition_key="2024-01-01", resources=resources)
    assert not DeltaTable.exists(f"{root}/tables/monthly")


def test_a_run_for_no_partition_leaves_the_table_alone(root: str, resources: dict[str, Any]) -> None:
    @dg.asset(partitions_def=MONTHS, metadata={"partition_expr": "month"})
    def monthly() -> pa.Table:
        return of_months(1)

    dg.materialize([monthly], partition_key="2024-01-01", resources=resources)
    before = table(root, "monthly").version
    with pytest.raises(PartitionSliceError, match="launch it with a partition"):
        dg.materialize([monthly], resources=resources)
    assert table(root, "monthly").version == before


def test_inputs_are_exactly_the_mapped_partitions(resources: dict[str, Any]) -> None:
    months: dict[str, set[int]] = {}

    @dg.asset(partitions_def=MONTHS, metadata={"partition_expr": "month"})
    def monthly(context: dg.AssetExecutionContext) -> pa.Table:
        return of_months(*month_numbers(context))

    before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1, allow_nonexistent_upstream_partitions=True)

    @dg.asset(partitions_def=MONTHS)
    def same(monthly: pa.Table) -> None:
        months["same"] = {day.month for day in monthly["month"].to_pylist()}

    @dg.asset(partitions_def=MONTHS, ins={"monthly": dg.AssetIn(partition_mapping=before)})
    def previous(monthly: pa.Table) -> None:
        months["previous"] = {day.month for day in monthly["month"].to_pylist()}

    @dg.asset
    def yearly(monthly: pa.Table) -> None:
        months["all"] = {day.month for day in monthly["month"].to_pylist()}

    assets = [monthly, same, previous, yearly]
    for key in ("2024-01-01", "2024-02-01", "2024-03-01"):
        dg.materialize(assets, selection=[monthly], partition_key=key, resources=resources)
    dg.materialize(assets, selection=[same, previous], partition_key="2024-02-01", resources=resources)
    dg.materialize(assets, selection=[yearly], resources=resources)
    assert months == {"same": {2}, "previous": {1}, "all": {1, 2, 3}}
    dg.materialize(assets, selection=[previous], partition_key="2024-01-01", resources=resources)
    assert months["previous"] == set()


def test_values_are_loaded_outside_of_runs(resources: dict[str, Any]) -> None:
    @dg.asset(partitions_def=MONTHS, metadata={"partition_expr": "month"})
    def monthly(context: dg.AssetExecutionContext) -> pa.Table:
        return of_months(*month_numbers(context))

    for key in ("2024-01-01", "2024-02-01"):
        dg.materialize([monthly], partition_key=key, resources=resources)
    definitions = dg.Definitions(assets=[monthly], resources=resources)
    loaded = definitions.load_asset_value("monthly", python_type=pa.Table, partition_key="2024-02-01")
    assert set(loaded["month"].to_pylist()) == {date(2024, 2, 1)}


# modes, paths, columns


def test_append_adds_with_every_run(root: str, resources: dict[str, Any]) -> None:
    @dg.asset(metadata={"lake/mode": "append"})
    def log() -> pa.Table:
        return pa.table({"n": [1]})

    for _ in range(3):
        dg.materialize([log], resources=resources)
    assert len(rows(root, "log")) == 3


def test_error_writes_only_the_first_rows(root: str, resources: dict[str, Any]) -> None:
    @dg.asset(metadata={"lake/mode": "error"})
    def once() -> pa.Table:
        return pa.table({"n": [1]})

    dg.materialize([once], resources=resources)
    with pytest.raises(TableNotEmpty):
        dg.materialize([once], resources=resources)
    assert len(rows(root, "once")) == 1


def test_error_asks_for_the_slice_only_and_looks_at_the_marker_first(root: str, resources: dict[str, Any]) -> None:
    @dg.asset(partitions_def=MONTHS, metadata={"partition_expr": "month", "lake/mode": "error"})
    def monthly(context: dg.AssetExecutionContext) -> pa.Table:
        return of_months(*month_numbers(context))

    for key in ("2024-01-01", "2024-02-01"):
        dg.materialize([monthly], partition_key=key, resources=resources)
    with pytest.raises(TableNotEmpty, match="where `month` >= DATE '2024-02-01'"):
        dg.materialize([monthly], partition_key="2024-02-01", resources=resources)

    writer = TableWriter(DirectWrites(root, None, "app"), "tables/direct")
    first, again = (writer.write(ArrowRows(pa.table({"n": [1]})), mode="error", txn=("app", 1)) for _ in range(2))
    assert (first.skipped, again.skipped, again.rows, again.version) == (False, True, 1, first.version)


@pytest.mark.parametrize("manager", [DeltaIOManager, PoolIOManager, IcechunkIOManager])
def test_ignore_is_refused_for_a_run_of_several_partitions(root: str, manager: Any) -> None:
    """All of them would count as made, though only one of them is there."""

    @dg.asset(
        partitions_def=MONTHS,
        backfill_policy=dg.BackfillPolicy.single_run(),
        metadata={"partition_expr": "month", "lake/mode": "ignore"},
    )
    def monthly(context: dg.AssetExecutionContext) -> pa.Table:
        return of_months(*month_numbers(context))

    tags = {
        "dagster/asset_partition_range_start": "2024-01-01",
        "dagster/asset_partition_range_end": "2024-02-01",
    }
    with dg.DagsterInstance.ephemeral() as instance, pytest.raises(InvalidDefinition, match="all 2 partitions"):
        dg.materialize(
            [monthly],
            tags=tags,
            instance=instance,
            resources={"io_manager": manager(lake=LakeResource(root=root))},
        )


def test_an_unknown_mode_is_refused(resources: dict[str, Any]) -> None:
    @dg.asset(metadata={"lake/mode": "upsert"})
    def wrong() -> pa.Table:
        return pa.table({"n": [1]})

    with pytest.raises(InvalidDefinition, match="use one of overwrite, append, merge, replace_where"):
        dg.materialize([wrong], resources=resources)


def test_path_partitioning_and_columns_by_metadata(root: str, resources: dict[str, Any]) -> None:
    loaded = {}

    @dg.asset(key=["raw", "orders"], metadata={"lake/path": "shared/orders", "lake/partition_by": ["day"]})
    def orders() -> pa.Table:
        return pa.table({"day": pa.array([date(2024, 1, 1)], pa.date32()), "id": [1], "note": ["x"]})

    @dg.asset(ins={"orders": dg.AssetIn(["raw", "orders"], metadata={"columns": ["id"]})})
    def reader(orders: pa.Table) -> None:
        loaded["columns"] = orders.column_names

    result = dg.materialize([orders], resources=resources)
    assert metadata(result)["dagster/table_name"] == "shared.orders"
    # As a table that another code location owns.
    dg.materialize(
        [reader, dg.AssetSpec(["raw", "orders"], metadata={"lake/path": "shared/orders"})], resources=resources
    )
    assert loaded == {"columns": ["id"]}
    assert DeltaTable.open(f"{root}/shared/orders").metadata.partition_columns == ("day",)


@pytest.mark.parametrize("path", ["../other", "a//b", "", "s3://bucket/x", "a/./b", 7])
def test_a_path_outside_the_root_is_refused(resources: dict[str, Any], path: Any) -> None:
    @dg.asset(metadata={"lake/path": path})
    def wrong() -> pa.Table:
        return pa.table({"n": [1]})

    with pytest.raises(InvalidDefinition, match="relative to the lake's root"):
        dg.materialize([wrong], resources=resources)


def test_outputs_of_ops_need_a_path(root: str, resources: dict[str, Any]) -> None:
    @dg.op(out={"named": dg.Out(pa.Table, metadata={"lake/path": "results/numbers"}), "unnamed": dg.Out(pa.Table)})
    def produce():
        yield dg.Output(pa.table({"n": [1]}), "named")
        yield dg.Output(pa.table({"n": [1]}), "unnamed")

    @dg.job(resource_defs=resources)
    def job():
        produce()

    with pytest.raises(InvalidDefinition, match="give it the metadata 'lake/path'"):
        job.execute_in_process()
    assert DeltaTable.open(f"{root}/results/numbers").to_arrow().num_rows == 1


# metadata, secrets


def test_metadata_of_a_write(root: str, resources: dict[str, Any]) -> None:
    schema = pa.schema(
        [pa.field("n", pa.int64(), metadata={"comment": "a number"}), ("at", pa.timestamp("us", tz="UTC"))]
    )

    @dg.asset
    def whole() -> pa.Table:
        return pa.table({"n": [1, 2], "at": [None, None]}, schema=schema)

    entries = metadata(dg.materialize([whole], resources=resources))
    columns = entries.pop("dagster/column_schema").columns
    assert [(column.name, column.type, column.description) for column in columns] == [
        ("n", "bigint", "a number"),
        ("at", "timestamp", None),
    ]
    numbers = [entries.pop(name) for name in ("lake/bytes_written", "dagster/size_bytes")]
    assert [type(number) for number in numbers] == [int] * 2
    assert numbers[0] == numbers[1] > 0
    assert entries.pop("lake/preview").startswith("| n | at |\n| --- | --- |")
    assert entries == {
        "dagster/row_count": 2,
        "dagster/table_name": "whole",
        "dagster/uri": f"{root}/tables/whole",
        "lake/version": table(root, "whole").version,
        "lake/operation": "overwrite",
        "lake/rows_written": 2,
        "lake/files_added": 1,
        "lake/files_removed": 0,
        "lake/num_files": 1,
        "lake/path": "tables/whole",
        "lake/state": "published",
    }


def test_secrets_appear_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LAKE_SECRET", "hunter2-and-more")
    lake = LakeResource(root=str(tmp_path / "lake"), storage_options={"token": dg.EnvVar("LAKE_SECRET")})
    resources = {"lake": lake, "io_manager": DeltaIOManager(lake=lake)}
    shown = []

    @dg.asset
    def good(context: dg.AssetExecutionContext, lake: LakeResource) -> pa.Table:
        assert lake.options()["token"] == "hunter2-and-more"
        shown.extend([repr(lake), str(lake), repr(lake.table(context, "tables/x"))])
        return pa.table({"n": [1]})

    @dg.asset(deps=[good])
    def bad(context: dg.AssetExecutionContext, lake: LakeResource) -> None:
        handle = lake.table(context)
        shown.append(repr(handle))
        handle.append(pa.table({"n": [1]}))
        handle.append(pa.table({"n": ["text"]}))

    with dg.DagsterInstance.ephemeral() as instance, caplog.at_level(logging.DEBUG):
        result = dg.materialize([good, bad], resources=resources, instance=instance, raise_on_error=False)
        assert not result.success
        shown.append(failure(result))
        shown.extend(str(entry) for entry in instance.all_logs(result.run_id))
    assert "hunter2" not in "".join(shown) + caplog.text


# hands-on writers


def test_a_retried_step_skips_its_committed_batches(root: str, resources: dict[str, Any]) -> None:
    results = []

    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=1))
    def by_hand(context: dg.AssetExecutionContext, lake: LakeResource) -> dg.MaterializeResult:
        log = lake.table(context)
        for n in range(3):
            results.append(log.append(pa.table({"n": [n]})))
            if n == 1 and context.retry_number == 0:
                raise RuntimeError("half-way")
        assert lake.table(context) is log
        assert log.to_arrow().num_rows == 3
        return dg.MaterializeResult(metadata=log.metadata())

    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([by_hand], resources=resources, instance=instance)
        messages = [entry.user_message for entry in instance.all_logs(result.run_id)]
    assert sorted(row["n"] for row in rows(root, "by_hand")) == [0, 1, 2]
    assert [written.skipped for written in results] == [False, False, True, True, False]
    assert sum("an earlier attempt committed" in message and "nothing written" in message for message in messages) == 2
    entries = metadata(result)
    assert (entries["dagster/row_count"], entries["lake/files_added"]) == (3, 3)
    assert "lake/skipped" not in entries


def test_each_run_and_partition_of_a_hands_on_writer_counts_anew(root: str, resources: dict[str, Any]) -> None:
    @dg.asset(partitions_def=MONTHS)
    def by_hand(context: dg.AssetExecutionContext, lake: LakeResource) -> None:
        lake.table(context, "tables/shared").append(of_months(*month_numbers(context)))
        lake.table(context, "tables/other").append(of_months(*month_numbers(context)))

    for key in ("2024-01-01", "2024-02-01", "2024-01-01"):
        dg.materialize([by_hand], partition_key=key, resources=resources)
    assert len(rows(root, "shared")) == len(rows(root, "other")) == 6


def test_two_resources_on_one_root_count_together(root: str, resources: dict[str, Any]) -> None:
    """Else the second would be taken for a retry of the first, and its rows dropped."""

    @dg.asset
    def by_hand(context: dg.AssetExecutionContext, lake: LakeResource, other: LakeResource) -> None:
        for resource in (lake, other):
            resource.table(context, "tables/shared").append(pa.table({"n": [1]}))

    assert dg.materialize([by_hand], resources={**resources, "other": LakeResource(root=f"file://{root}/")}).success
    assert len(rows(root, "shared")) == 2


def test_after_a_failed_batch_the_step_must_fail(root: str, resources: dict[str, Any]) -> None:
    @dg.asset
    def by_hand(context: dg.AssetExecutionContext, lake: LakeResource) -> None:
        log = lake.table(context)
        log.append(pa.table({"n": [1]}))
        try:
            log.append(pa.table({"n": ["text"]}))
        except Exception:
            log.append(pa.table({"n": [2]}))

    result = dg.materialize([by_hand], resources=resources, raise_on_error=False)
    assert "BatchFailed" in failure(result)
    assert len(rows(root, "by_hand")) == 1


# Spark


@pytest.fixture
def spark_resources(root: str, spark: SparkSession) -> Iterator[dict[str, Any]]:
    lake, resource = LakeResource(root=root), SparkResource()
    return {"lake": lake, "spark": resource, "io_manager": DeltaIOManager(lake=lake, spark=resource)}


def test_spark_frames_come_and_go(root: str, spark_resources: dict[str, Any]) -> None:
    loaded = {}

    @dg.asset(partitions_def=MONTHS, metadata={"partition_expr": "month"})
    def monthly(context: dg.AssetExecutionContext, spark: SparkResource) -> DataFrame:
        return spark.session.createDataFrame(of_months(*month_numbers(context)))

    @dg.asset(ins={"monthly": dg.AssetIn(metadata={"columns": ["month"]})})
    def yearly(monthly: DataFrame) -> DataFrame:
        loaded["columns"] = monthly.columns
        return monthly.groupBy("month").count()

    @dg.asset
    def mixed(yearly: pa.Table, monthly: DataFrame) -> None:
        loaded["rows"] = (yearly.num_rows, monthly.count())

    assets = [monthly, yearly, mixed]
    for key in ("2024-01-01", "2024-02-01", "2024-01-01"):
        result = dg.materialize(assets, selection=[monthly], partition_key=key, resources=spark_resources)
        assert metadata(result)["lake/rows_written"] == 2
    dg.materialize(assets, selection=[yearly, mixed], resources=spark_resources)
    assert loaded == {"columns": ["month"], "rows": (2, 4)}
    assert table(root, "monthly").metadata.partition_columns == ("month",)


@pytest.mark.extended
def test_spark_rows_outside_the_partition_fail_the_step(root: str, spark_resources: dict[str, Any]) -> None:
    outputs = iter([of_months(1), of_months(1, 2)])

    @dg.asset(partitions_def=MONTHS, metadata={"partition_expr": "month"})
    def monthly(spark: SparkResource) -> DataFrame:
        return spark.session.createDataFrame(next(outputs))

    dg.materialize([monthly], partition_key="2024-01-01", resources=spark_resources)
    before = table(root, "monthly").version
    with pytest.raises(RowsOutsidePredicate):
        dg.materialize([monthly], partition_key="2024-01-01", resources=spark_resources)
    assert table(root, "monthly").version == before


@pytest.mark.extended
@pytest.mark.parametrize(("mode", "expected"), [("append", 2), ("overwrite", 1), ("error", None)])
def test_spark_modes(root: str, spark_resources: dict[str, Any], mode: str, expected: int | None) -> None:
    @dg.asset(metadata={"lake/mode": mode})
    def numbers(spark: SparkResource) -> DataFrame:
        return spark.session.sql("SELECT 1 AS n")

    dg.materialize([numbers], resources=spark_resources)
    if expected is None:
        with pytest.raises(TableNotEmpty):
            dg.materialize([numbers], resources=spark_resources)
    else:
        dg.materialize([numbers], resources=spark_resources)
        assert len(rows(root, "numbers")) == expected


@pytest.mark.extended
def test_spark_in_the_hands_of_an_asset(root: str, spark_resources: dict[str, Any]) -> None:
    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=1))
    def by_hand(context: dg.AssetExecutionContext, lake: LakeResource, spark: SparkResource) -> None:
        log = lake.table(context)
        log.append(spark.session.range(3))
        if context.retry_number == 0:
            raise RuntimeError("half-way")
        log.append(pa.table({"id": [7]}))
        assert log.read(spark).count() == 4

    assert dg.materialize([by_hand], resources=spark_resources).success
    assert len(rows(root, "by_hand")) == 4
