"""Commits of runs are named by their assets and partitions, where Dagster made the job itself."""

from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

from lake_core import Lake
from lake_orch import DeltaIOManager, LakeResource
from lake_orch.dagster.runs.title import named_job, title_of

_KEYS = frozenset({dg.AssetKey("revenue"), dg.AssetKey(["raw", "orders"])})


def _run_of(job: str, assets: frozenset[dg.AssetKey] | None, **tags: str) -> dg.DagsterRun:
    return dg.DagsterRun(
        job_name=job, asset_selection=assets, tags={f"dagster/{name}": each for name, each in tags.items()}
    )


@pytest.mark.parametrize(
    ("run", "title"),
    [
        (_run_of("__ASSET_JOB", _KEYS, partition="2025-01-02"), "raw/orders, revenue 2025-01-02"),
        (_run_of("__anonymous_asset_job_x", _KEYS), "raw/orders, revenue"),
        (_run_of("daily", _KEYS, partition="2025-01-02"), "daily 2025-01-02"),
        (_run_of("daily", None), "daily"),
        (
            _run_of("__ASSET_JOB", _KEYS, asset_partition_range_start="a", asset_partition_range_end="c"),
            "raw/orders, revenue a to c",
        ),
    ],
)
def test_the_title_of_a_run(run: dg.DagsterRun, title: str) -> None:
    assert title_of(run) == title


def test_a_run_without_anything_has_its_id() -> None:
    run = _run_of("__ASSET_JOB", None)
    assert title_of(run) == f"run {run.run_id[:8]}"
    assert named_job(run) == ""


@pytest.mark.parametrize("scope", ["run", "asset"])
def test_the_message_in_the_log_of_the_lake(tmp_path: Path, scope: str) -> None:
    lake = Lake.create(tmp_path)

    @dg.asset
    def orders() -> pa.Table:
        return pa.table({"v": [1]})

    resource = LakeResource(root=str(tmp_path), scope=scope)  # type: ignore[arg-type]
    definitions = dg.Definitions([orders], resources={"io_manager": DeltaIOManager(lake=resource), "lake": resource})
    job = definitions.resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(asset_selection=[orders.key]).success
    message = lake.log()[0].message
    assert "orders" in message
    assert "__" not in message
