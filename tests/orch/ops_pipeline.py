"""A job of ops for test_ops_resume: one session from its first op to its last."""

# No `from __future__ import annotations` here: Dagster reads the annotations of ops as objects.

from pathlib import Path

import dagster as dg
import pyarrow as pa

from lake_orch import DeltaIOManager, LakeResource
from lake_orch.jobs.ops import open_session, publish


def job(folder: str) -> dg.JobDefinition:
    @dg.op(ins={"after": dg.In(dg.Nothing)}, out=dg.Out(metadata={"lake/path": "tables/orders"}))
    def orders() -> pa.Table:
        return pa.table({"id": [1, 2]})

    @dg.op
    def by_hand(context: dg.OpExecutionContext, lake: LakeResource, rows: pa.Table) -> None:
        with lake.session(context) as session:
            session.table("tables/by_hand").append(rows)
        if (Path(folder) / "fail").exists():
            raise RuntimeError("as it was to")

    lake = LakeResource(root=f"{folder}/lake")

    @dg.job(
        resource_defs={
            "lake": lake.get_resource_definition(),
            "io_manager": DeltaIOManager(lake=lake).get_resource_definition(),
        },
        executor_def=dg.in_process_executor,
    )
    def all_of_it() -> None:
        publish(by_hand(orders(open_session())))

    return all_of_it
