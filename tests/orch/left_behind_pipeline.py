"""Definitions for test_left_behind: a table that a step appends to, one that it writes in parts, an outside process."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from lake_orch import DeltaIOManager, LakeResource
from lake_orch.pipes import LakePipesSubprocessClient
from tests.orch.meanwhile import LakeOfOthers

IN_STEP: list[Callable[[], object]] = []
"""What happens the next times that the code of an asset runs, each once."""


def in_step() -> None:
    if IN_STEP:
        IN_STEP.pop()()


def job(folder: str, names: str) -> dg.JobDefinition:
    """Return the job of some assets."""
    lake = LakeOfOthers(root=f"{folder}/lake")
    io_manager = DeltaIOManager(lake=lake)

    def rows(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"run": [context.run_id]})

    @dg.asset(metadata={"lake/mode": "append"})
    def table(context: dg.AssetExecutionContext) -> pa.Table:
        in_step()
        return rows(context)

    files = dg.fs_io_manager.configured({"base_dir": folder})

    @dg.op(out=dg.DynamicOut(io_manager_key="files"))
    def one() -> Iterator[dg.DynamicOutput[str]]:
        yield dg.DynamicOutput("x", "x")

    @dg.op(out=dg.Out(metadata={"lake/mode": "append", "lake/path": "tables/mapped"}))
    def map_rows(context: dg.OpExecutionContext, item: str) -> pa.Table:
        in_step()
        return pa.table({"run": [context.run_id]})

    @dg.job(executor_def=dg.in_process_executor, resource_defs={"io_manager": io_manager, "files": files})
    def mapped() -> None:
        one().map(map_rows)

    if names == "mapped":
        return mapped

    @dg.asset(deps=[table])
    def parts(context: dg.AssetExecutionContext, lake: LakeResource) -> None:
        lake.table(context).append(rows(context))
        in_step()
        lake.table(context).append(rows(context))

    @dg.asset
    def outside(context: dg.AssetExecutionContext, external: LakePipesSubprocessClient) -> dg.MaterializeResult[Any]:
        command = [sys.executable, str(Path(__file__).with_name("external_writer.py")), f"{folder}/wishes.json"]
        return external.run(context=context, command=command).get_materialize_result()

    client = LakePipesSubprocessClient(lake=lake, env={"PYTHONPATH": str(Path(__file__).parents[2])})
    return dg.Definitions(
        [table, parts, outside],
        jobs=[
            dg.define_asset_job("job", dg.AssetSelection.assets(*names.split()), executor_def=dg.in_process_executor)
        ],
        resources={"io_manager": io_manager, "lake": lake, "external": client},
    ).resolve_job_def("job")
