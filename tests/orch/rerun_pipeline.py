"""Definitions for test_reruns: assets by day, and jobs of dynamic steps. Files in a folder tell them to fail."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from lake_orch import DeltaIOManager, LakeResource, lake_executor

FOLDER = Path(os.environ["RERUN_FOLDER"])
lake = LakeResource(
    root=str(FOLDER / "lake"), backfills="gather" if os.environ["RERUN_BACKFILLS"] == "gather" else "publish"
)
BY_DAY: Any = {"partitions_def": dg.StaticPartitionsDefinition(["a", "b", "c"]), "metadata": {"partition_expr": "day"}}


def is_to_fail(name: str) -> bool:
    """Return whether a step is to fail, because a file says so."""
    return (FOLDER / f"fail-{name}").exists()


def fail_if_told(name: str) -> None:
    if is_to_fail(name):
        raise RuntimeError("told to fail")


@dg.asset(**BY_DAY)
def orders(context: dg.AssetExecutionContext) -> pa.Table:
    fail_if_told(f"orders-{context.partition_key}")
    return pa.table({"day": [context.partition_key] * 2, "amount": [10, 20]})


@dg.asset(**BY_DAY)
def totals(context: dg.AssetExecutionContext, orders: pa.Table) -> pa.Table:
    fail_if_told(f"totals-{context.partition_key}")
    return pa.table({"day": [context.partition_key], "total": [sum(orders["amount"].to_pylist())]})


@dg.asset(**BY_DAY)
def later(context: dg.AssetExecutionContext, totals: pa.Table) -> pa.Table:
    fail_if_told(f"later-{context.partition_key}")
    return pa.table({"day": [context.partition_key], "totals": [len(totals)]})


@dg.asset(**BY_DAY, deps=[orders])
def by_hand(context: dg.AssetExecutionContext, lake: LakeResource) -> None:
    """Reads its dependency in its own code."""
    rows = lake.read_table("tables/orders", (context.instance, context.run)).to_arrow()
    lake.table(context, "by/hand").append(rows)


@dg.multi_asset(
    specs=[dg.AssetSpec(key, skippable=True) for key in ("left", "right")],
    can_subset=True,
)
def written_by_hand(context: dg.AssetExecutionContext, lake: LakeResource) -> Iterator[Any]:
    """Two assets whose rows the code of the step writes."""
    for key in sorted(context.selected_asset_keys):
        name = key.to_user_string()
        fail_if_told(name)
        lake.table(context, f"tables/{name}").append(pa.table({"n": [1]}))
        yield dg.MaterializeResult(asset_key=key)


@dg.multi_asset(
    outs={name: dg.AssetOut(is_required=False, dagster_type=pa.Table) for name in ("early", "late")},
    can_subset=True,
    retry_policy=dg.RetryPolicy(max_retries=1),
)
def retried(context: dg.AssetExecutionContext) -> Iterator[Any]:
    """Two assets, of which the first try yields one, and the second try the other."""
    if context.retry_number == 0 and "early" in context.op_execution_context.selected_output_names:
        yield dg.Output(pa.table({"n": [1]}), "early")
        raise RuntimeError("the first try always fails")
    fail_if_told("late")
    yield dg.Output(pa.table({"n": [2]}), "late")


@dg.asset
def after_early(early: pa.Table) -> pa.Table:
    return early


@dg.asset
def marked(context: dg.AssetExecutionContext) -> pa.Table:
    """Its run is marked as ended while it works, as run monitoring or a person does."""
    if is_to_fail("canceled"):
        context.instance.report_run_canceled(context.run)
    if is_to_fail("failed"):
        context.instance.report_run_failed(context.run, "the worker does not answer")
    return pa.table({"n": [1]})


@dg.op(out=dg.DynamicOut(pa.Table, metadata={"lake/path": "work/parts"}))  # type: ignore[arg-type]
def spread() -> Iterator[dg.DynamicOutput[pa.Table]]:
    told = is_to_fail("spread")
    for number in range(4 if told or not (FOLDER / "fewer").exists() else 2):
        yield dg.DynamicOutput(pa.table({"n": [number]}), mapping_key=f"k{number}")
    if told:
        raise RuntimeError("told to fail")


@dg.op(out=dg.Out(metadata={"lake/path": "done/parts"}))
def work(part: pa.Table) -> pa.Table:
    if part["n"][0].as_py() == 1 and is_to_fail("work"):
        raise KeyboardInterrupt("the worker is stopped")
    return part


@dg.op(out=dg.Out(metadata={"lake/path": "done/total"}))
def total(parts: list[pa.Table]) -> pa.Table:
    return pa.table({"parts": [len(parts)]})


@dg.job
def mapped() -> None:
    total(spread().map(work).collect())


@dg.job
def gathered() -> None:
    total(spread().collect())


defs = dg.Definitions(
    assets=[orders, totals, later, by_hand, written_by_hand, retried, after_early, marked],
    jobs=[mapped, gathered],
    resources={"io_manager": DeltaIOManager(lake=lake), "lake": lake},
    executor=lake_executor.configured({"in_process": {}}, name="one_process"),
)
