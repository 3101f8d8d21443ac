"""Definitions for test_lineage: assets that write down the lineage of their step, and fail where a file says so."""

import json
import os
from pathlib import Path

import dagster as dg

from lake_orch.dagster.runs.lineage import step_lineage


def folder() -> Path:
    return Path(os.environ["LINEAGE_TEST_FOLDER"])


def note(context: dg.AssetExecutionContext | dg.OpExecutionContext) -> None:
    step_key = context.get_step_execution_context().step.key
    lineage = step_lineage(context.instance, context.run, step_key)
    with (folder() / "lineage.jsonl").open("a") as file:
        file.write(json.dumps([context.run.run_id, step_key, lineage]) + "\n")
    if (folder() / f"fail {step_key}").exists():
        raise RuntimeError("told to fail")


@dg.asset
def first(context: dg.AssetExecutionContext) -> None:
    note(context)


@dg.asset(deps=[first], check_specs=[dg.AssetCheckSpec("check", asset="second")])
def second(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    note(context)
    return dg.MaterializeResult(check_results=[dg.AssetCheckResult(passed=True)])


@dg.asset(deps=[second])
def third(context: dg.AssetExecutionContext) -> None:
    note(context)


@dg.op(out=dg.DynamicOut(int))
def spread():
    yield from (dg.DynamicOutput(number, mapping_key=f"k{number}") for number in range(3))


@dg.op
def mapped(context: dg.OpExecutionContext, number: int) -> int:
    note(context)
    return number


@dg.job(executor_def=dg.in_process_executor)
def mapped_job():
    spread().map(mapped)


defs = dg.Definitions(
    assets=[first, second, third],
    jobs=[dg.define_asset_job("chain"), mapped_job],
    executor=dg.in_process_executor,
)


def chain_job() -> dg.JobDefinition:
    return defs.resolve_job_def("chain")
