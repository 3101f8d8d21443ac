"""Definitions for test_read_position: a table to which the new records of a pool are appended, and a step after it.

Files in a folder tell them to fail.
"""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from lake_orch import DeltaIOManager, FileIOManager, LakeResource, PoolIOManager, lake_executor

NEW: dict[str, Any] = {"events": dg.AssetIn(input_manager_key="pools", metadata={"lake/since": "last run"})}
APPEND = {"lake/mode": "append", "lake/schema_mode": "merge"}


def definitions(folder: str, scope: str) -> dg.Definitions:
    def fail_if_told(name: str) -> None:
        if (Path(folder) / f"fail-{name}").exists():
            raise RuntimeError("told to fail")

    @dg.asset(ins=NEW, metadata=APPEND)
    def numbers(events: pa.Table) -> pa.Table:
        fail_if_told("numbers")
        return pa.table({"n": pa.array(events["n"].to_pylist() if len(events) else [], pa.int64())})

    @dg.asset(deps=[numbers], metadata=APPEND)
    def later() -> pa.Table:
        fail_if_told("later")
        return pa.table({"n": [1]})

    @dg.asset(ins=NEW)
    def nothing(events: pa.Table) -> None:
        pass

    @dg.asset(ins=NEW, io_manager_key="local_files")
    def elsewhere(events: pa.Table) -> str:
        return ""

    @dg.multi_asset(ins=NEW, outs={"left": dg.AssetOut(), "right": dg.AssetOut()})
    def both(events: pa.Table) -> tuple[pa.Table, pa.Table]:
        return events, events

    lake = LakeResource(root=f"{folder}/lake")
    in_a_session = lake_executor.configured({"in_process": {}}, name="one_process")
    return dg.Definitions(
        assets=[dg.AssetSpec("events"), numbers, later, nothing, elsewhere, both],
        jobs=[
            dg.define_asset_job("load", [numbers, later]),
            *(dg.define_asset_job(f"only_{asset}", [asset]) for asset in ("nothing", "elsewhere")),
            dg.define_asset_job("only_both", ["left", "right"]),
        ],
        resources={
            "lake": lake,
            "io_manager": DeltaIOManager(lake=lake),
            "pools": PoolIOManager(lake=lake),
            "local_files": FileIOManager(lake=LakeResource(root=f"{folder}/another")),
        },
        executor=in_a_session if scope == "run" else dg.in_process_executor,
    )


def job(folder: str, scope: str, name: str) -> dg.JobDefinition:
    return definitions(folder, scope).resolve_job_def(name)
