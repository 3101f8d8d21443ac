"""Two projects with an asset of one key, whose code differs. A file tells the first that its asset is mended."""

import os
from pathlib import Path

import dagster as dg
import pyarrow as pa

from lake_orch import DeltaIOManager, LakeResource, lake_executor

FOLDER = Path(os.environ.get("OTHER_CODE_FOLDER", "."))
LAKE = LakeResource(root=str(FOLDER / "lake"))
RESOURCES = {"io_manager": DeltaIOManager(lake=LAKE), "lake": LAKE}


@dg.asset
def raw() -> pa.Table:
    return pa.table({"id": [1]})


@dg.asset(deps=[raw])
def orders() -> pa.Table:
    if not (FOLDER / "mended").exists():
        raise ValueError
    return pa.table({"id": [2]})


@dg.asset(name="orders", metadata={"lake/path": "tables/other"})
def orders_of_others() -> pa.Table:
    return pa.table({"id": [3]})


FIRST = dg.Definitions(
    [raw, orders],
    jobs=[dg.define_asset_job("whole"), dg.define_asset_job("rest", selection=["orders"])],
    resources=RESOURCES,
    executor=lake_executor,
)
OTHER = dg.Definitions(
    [orders_of_others], jobs=[dg.define_asset_job("other")], resources=RESOURCES, executor=lake_executor
)


def whole() -> dg.JobDefinition:
    """Return the job of both assets of the first project."""
    return FIRST.resolve_job_def("whole")


def rest() -> dg.JobDefinition:
    """Return the job of the asset that fails alone."""
    return FIRST.resolve_job_def("rest")


def other() -> dg.JobDefinition:
    """Return the job of the other project."""
    return OTHER.resolve_job_def("other")
