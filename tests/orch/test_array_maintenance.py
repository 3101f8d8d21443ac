"""Maintenance of arrays: snapshots that expire, garbage, manifests; of repositories by themselves and in a lake."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import icechunk
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xarray as xr

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.icechunk import Repository
from lake_orch import InvalidDefinition, LakeResource
from lake_orch.maintenance import (
    TASKS,
    HealthLimits,
    MaintenanceTarget,
    array_health,
    lake_maintenance,
    lake_table_checks,
)
from lake_orch.maintenance.target import targets_of
from tests.orch.maintenance_runs import asset_of, run

PATH = "tables/weather"
DAYS = ("2024-01-01", "2024-01-02", "2024-01-03")


@dg.asset
def weather() -> None: ...


def day_of_arrays(day: str) -> xr.Dataset:
    time = pd.date_range(day, periods=24, freq="h")
    return xr.Dataset({"t2m": (("time", "station"), np.full((24, 100), float(time[0].day)))}, {"time": time})


def write_days(root: Path, lake: Lake | None = None) -> LakeResource:
    """Write three days of arrays, each in a commit and a manifest of its own."""
    for number, day in enumerate(DAYS):
        options: dict[str, Any] = {"append_dim": "time"} if number else {}
        if lake is None:
            session = Repository.open_or_create(root / PATH).writable_session("main")
            day_of_arrays(day).to_zarr(session.store, consolidated=False, **options)
            session.commit(day)
        else:
            with lake.session() as shared:
                arrays = shared.icechunk(PATH) if number else shared.create_icechunk(PATH)
                day_of_arrays(day).to_zarr(arrays.store, consolidated=False, **options)
    return LakeResource(root=str(root))


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def alone(tmp_path: Path) -> LakeResource:
    return write_days(tmp_path / "root")


@pytest.fixture(params=["lake", pytest.param("alone", marks=pytest.mark.exhaustive)])
def resource(request: pytest.FixtureRequest, tmp_path: Path) -> LakeResource:
    return write_days(tmp_path / "root", Lake.create(tmp_path / "root") if request.param == "lake" else None)


def repository(resource: LakeResource) -> Repository:
    return resource.read_repository(PATH, None)


def values(resource: LakeResource) -> list[float]:
    """Return the value of each day, as icechunk reads them in the folder."""
    reader = icechunk.Repository.open(icechunk.local_filesystem_storage(resource.url(PATH)))
    arrays = xr.open_zarr(reader.readonly_session("main").store, consolidated=False, chunks=None)
    return [float(arrays.t2m.isel(time=24 * number).mean()) for number in range(arrays.sizes["time"] // 24)]


def make_old(resource: LakeResource) -> None:
    """Let all objects be as old as time itself."""
    for file in Path(resource.url(PATH)).rglob("*"):
        os.utime(file, (0, 0))


def run_task(
    resource: LakeResource,
    instance: dg.DagsterInstance,
    task: str,
    config: dict[str, Any] | None = None,
    **settings: Any,
) -> Any:
    """Run a task on the arrays. Returns what it says."""
    (metadata,) = run(
        lake_maintenance(arrays=[weather], tasks=[task], **settings), task, resource, instance, config
    ).values()
    return metadata


# Manifests


def test_small_manifests_are_put_together(resource: LakeResource, instance: dg.DagsterInstance) -> None:
    assert repository(resource).mergeable_manifests("main") > 0
    metadata = run_task(resource, instance, "manifest_rewrite", max_mergeable_manifests=1)
    assert (metadata["lake/due"], metadata["lake/mergeable_manifests"]) == (True, 0)
    assert metadata["lake/manifests"] < metadata["lake/manifests_before"]
    assert (values(resource), repository(resource).mergeable_manifests("main")) == ([1.0, 2.0, 3.0], 0)


@pytest.mark.parametrize(("config", "limit"), [({"dry_run": True}, 1), (None, 10)], ids=["dry run", "not due"])
def test_manifests_stay_where_nothing_is_to_be_done(
    alone: LakeResource, instance: dg.DagsterInstance, config: dict[str, Any] | None, limit: int
) -> None:
    before = repository(alone).lookup_branch("main")
    assert run_task(alone, instance, "manifest_rewrite", config, max_mergeable_manifests=limit)["lake/due"] == (
        limit == 1
    )
    assert repository(alone).lookup_branch("main") == before


def test_manifests_of_a_branch_are_rewritten_there(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    lake = Lake.create(tmp_path / "root")
    resource = write_days(tmp_path / "root", lake)
    lake.create_branch("dev")
    asset = asset_of(
        lake_maintenance(arrays=[weather], tasks=["manifest_rewrite"], max_mergeable_manifests=1), "manifest_rewrite"
    )
    dg.materialize([asset], resources={"lake": resource}, instance=instance, tags={"lake/branch": "dev"})
    mergeable = [lake.icechunk(PATH, ref=ref).mergeable_manifests("main") for ref in ("main", "dev")]
    assert mergeable[0] > 0
    assert mergeable[1] == 0


# Snapshots and garbage


def test_snapshots_expire_and_their_objects_are_collected(alone: LakeResource, instance: dg.DagsterInstance) -> None:
    assert run_task(alone, instance, "snapshot_expiry", retention="0 seconds")["lake/expired_snapshots"] == 2
    assert len(list(repository(alone).ancestry(branch="main"))) == 2
    assert run_task(alone, instance, "garbage_collection")["lake/reclaimed_files"] == 0, (
        "they may be those of a session that is open"
    )
    make_old(alone)
    assert run_task(alone, instance, "garbage_collection")["lake/reclaimed_snapshots"] == 2
    assert (array_health(repository(alone)).snapshots, values(alone)) == (2, [1.0, 2.0, 3.0])


def test_snapshots_within_the_retention_stay(alone: LakeResource, instance: dg.DagsterInstance) -> None:
    metadata = run_task(alone, instance, "snapshot_expiry")
    assert (metadata["lake/expired_snapshots"], metadata["lake/due"], array_health(repository(alone)).snapshots) == (
        0,
        False,
        4,
    )


def test_a_dry_run_tells_what_would_go(alone: LakeResource, instance: dg.DagsterInstance) -> None:
    dry = {"dry_run": True}
    assert run_task(alone, instance, "snapshot_expiry", dry, retention="0 seconds")["lake/expired_snapshots"] == 2
    assert len(list(repository(alone).ancestry(branch="main"))) == 4
    repository(alone).expire_snapshots(
        repository(alone).lookup_snapshot(repository(alone).lookup_branch("main")).written_at
    )
    make_old(alone)
    assert run_task(alone, instance, "garbage_collection", dry)["lake/reclaimed_snapshots"] == 2
    assert array_health(repository(alone)).snapshots == 4


def test_a_lake_keeps_the_history_and_ends_the_retention(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    lake = Lake.create(tmp_path / "root")
    resource = write_days(tmp_path / "root", lake)
    run_task(resource, instance, "snapshot_expiry", retention="0 seconds")
    assert lake.log(limit=1)[0].message == f"Expire snapshots of {PATH}"
    assert run_task(resource, instance, "garbage_collection")["lake/forgotten_commits"] == 0
    assert len(list(repository(resource).ancestry(branch="main"))) == 4
    assert values(resource) == [1.0, 2.0, 3.0]


def test_arrays_that_are_not_there_yet_are_left_out(alone: LakeResource, instance: dg.DagsterInstance) -> None:
    defs = lake_maintenance(arrays=["tables/missing", weather], tasks=["garbage_collection"])
    (metadata,) = run(defs, "garbage_collection", alone, instance).values()
    assert metadata["lake/reclaimed_files"] == 0


# Definitions


def test_arrays_show_their_maintenance(alone: LakeResource, instance: dg.DagsterInstance) -> None:
    run_task(alone, instance, "manifest_rewrite", max_mergeable_manifests=1)
    run_task(alone, instance, "manifest_rewrite", max_mergeable_manifests=1)  # there is nothing left to do
    (record,) = instance.fetch_observations(weather.key, limit=5).records
    assert record.event_log_entry.asset_observation is not None
    assert record.event_log_entry.asset_observation.metadata["lake/maintenance"].value == "manifest_rewrite"


def test_one_call_maintains_tables_and_arrays(alone: LakeResource, instance: dg.DagsterInstance) -> None:
    DeltaTable.create(alone.url("tables/orders"), pa.schema([("id", pa.int64())]))
    defs = lake_maintenance(["tables/orders"], arrays=[weather], schedule="0 3 * * *")
    assert {schedule.name for schedule in defs.schedules or ()} == {
        f"maintenance_{task}_schedule"
        for task in (
            "compaction",
            "checkpoint",
            "vacuum",
            "manifest_rewrite",
            "session_reaper",
            "snapshot_expiry",
            "garbage_collection",
            "health",
        )
    }
    health = dg.materialize([asset_of(defs, "health")], resources={"lake": alone}, instance=instance)
    checks = {
        (check.asset_key.path[-1], check.check_name) for check in health.get_asset_check_evaluations() if check.passed
    }
    assert checks >= {("orders", "small_files"), ("weather", "mergeable_manifests"), ("weather", "snapshots")}
    assert asset_of(defs, "manifest_rewrite").partitions_def is None, "arrays at one path need no partitions"


def test_checks_say_what_arrays_need(alone: LakeResource, instance: dg.DagsterInstance) -> None:
    defs = lake_maintenance(arrays=[weather], checks=HealthLimits(mergeable_manifests=1, snapshots=3))
    result = dg.materialize([asset_of(defs, "health")], resources={"lake": alone}, instance=instance)
    descriptions = {
        check.check_name: check.description for check in result.get_asset_check_evaluations() if not check.passed
    }
    assert descriptions == {
        "mergeable_manifests": "2 (limit 1): run manifest_rewrite",
        "snapshots": "4 (limit 3): run snapshot_expiry, then garbage_collection",
    }


def test_the_checks_of_arrays_can_run_with_the_arrays(resource: LakeResource, instance: dg.DagsterInstance) -> None:
    checks = lake_table_checks(targets_of((), [weather]))
    job = dg.define_asset_job("checks", dg.AssetSelection.checks(*checks))
    defs = dg.Definitions([dg.AssetSpec("weather")], asset_checks=checks, jobs=[job], resources={"lake": resource})
    result = defs.resolve_job_def("checks").execute_in_process(instance=instance)
    assert {check.check_name for check in result.get_asset_check_evaluations() if check.passed} == {
        "mergeable_manifests",
        "snapshots",
    }


@pytest.mark.parametrize(
    ("tables", "arrays", "options", "message"),
    [
        ([], ["a"], {"tasks": ["compaction"]}, "the task compaction is for tables, and no tables are named"),
        (
            ["a"],
            [],
            {"tasks": ["manifest_rewrite"]},
            "the task manifest_rewrite is for arrays, and no arrays are named",
        ),
        (["a"], ["a"], {}, "twice"),
        ([], ["a"], {"retention": "14 moons"}, "14 moons.*use an interval"),
        ([], ["a"], {"retention": 14}, "retention is 14: use an interval"),
        ([], ["a"], {"retention": ""}, "use an interval"),
        ([], ["a"], {"max_mergeable_manifests": 0}, "max_mergeable_manifests is 0: use a whole number of 1 or more"),
    ],
)
def test_what_makes_no_sense_is_refused(
    tables: list[str], arrays: list[str], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidDefinition, match=message):
        lake_maintenance(tables, arrays=arrays, **options)


def test_a_target_says_itself_that_it_is_of_arrays() -> None:
    target = MaintenanceTarget("arrays/radar", dg.AssetKey("radar"), format="icechunk")
    assert asset_of(lake_maintenance([target]), "manifest_rewrite").specs_by_key


def test_a_table_is_not_maintained_as_arrays(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        session.create_delta(PATH, pa.schema([("id", pa.int64())]))
    with pytest.raises(Exception, match="no icechunk dataset"):
        run_task(LakeResource(root=str(tmp_path)), instance, "manifest_rewrite")


def test_every_task_has_a_description() -> None:
    defs = lake_maintenance(["a"], arrays=["b"], pools=["c"], tasks=TASKS, zorder_by=("id",))
    assets = [asset for asset in defs.assets or () if isinstance(asset, dg.AssetsDefinition)]
    assert all(spec.description for asset in assets for spec in asset.specs)
