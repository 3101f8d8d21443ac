"""Maintenance of pools: compaction when it is due, and checks that say so."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import os
from typing import Any

import dagster as dg
import pytest

from lake_core import Lake
from lake_orch import InvalidDefinition, LakeResource, PoolIOManager
from lake_orch.maintenance import HealthLimits, lake_maintenance


@pytest.fixture(params=[pytest.param("plain", marks=pytest.mark.exhaustive), "lake"])
def resources(request: pytest.FixtureRequest, root: str) -> dict[str, Any]:
    if request.param == "lake":
        Lake.create(root)
    lake = LakeResource(root=root)
    return {"lake": lake, "io_manager": PoolIOManager(lake=lake, mode="append")}


@dg.asset(metadata={"lake/key": "k"})
def events() -> Any:
    return [{"k": 1}, {"k": 2}]


def run(resources: dict[str, Any], **options: Any) -> dg.ExecuteInProcessResult:
    assets = list(lake_maintenance(pools=[events], checks=HealthLimits(mergeable_objects=2), **options).assets or ())
    return dg.materialize(assets, resources=resources)


def metadata_of(result: dg.ExecuteInProcessResult, key: str) -> dict[str, Any]:
    (event,) = [
        event for event in result.get_asset_materialization_events() if event.asset_key == dg.AssetKey(key.split("/"))
    ]
    return {name: value.value for name, value in event.materialization.metadata.items()}


@pytest.mark.extended
def test_objects_are_put_together_when_there_are_many_and_a_check_says_so(resources: dict[str, Any]) -> None:
    for _ in range(3):
        dg.materialize([events], resources=resources)
    few = run(resources)
    (check,) = few.get_asset_check_evaluations()
    assert (check.passed, check.description) == (False, "3 (limit 2): run pool_compaction")
    assert metadata_of(few, "maintenance/pool_compaction")["lake/due"] is False
    assert metadata_of(few, "maintenance/health/events")["lake/mergeable_objects"] == 3
    many = run(resources, max_mergeable_objects=3)
    done = metadata_of(many, "maintenance/pool_compaction")
    assert (done["lake/files_before"], done["lake/num_files"], done["lake/mergeable_objects"]) == (3, 1, 0)
    pool = resources["lake"].read_pool("tables/events", None)
    assert [record["k"] for record in pool.scan().records()] == [2, 2, 2, 1, 1, 1]


@dg.asset(metadata={"lake/key": "k", "lake/threshold": 20_000})
def logs() -> Any:
    text = "the same words in each of the records " * 3
    return [{"k": number, "s": text + os.urandom(12).hex()} for number in range(400)]


@pytest.mark.parametrize("resources", ["plain", "lake"], indirect=True)
def test_after_a_compaction_the_next_run_has_nothing_to_do(resources: dict[str, Any]) -> None:
    for _ in range(6):
        dg.materialize([logs], resources=resources)
    reports = []
    for _ in range(2):
        assets = list(lake_maintenance(pools=[logs], tasks=["pool_compaction"], max_mergeable_objects=2).assets or ())
        reports.append(metadata_of(dg.materialize(assets, resources=resources), "maintenance/pool_compaction"))
    first, second = reports
    assert (first["lake/due"], first["lake/mergeable_objects"]) == (True, 0)
    assert (second["lake/due"], second["lake/mergeable_objects"]) == (False, 0)
    assert second["lake/num_files"] == first["lake/num_files"] > 1


@pytest.mark.parametrize("resources", ["plain", "lake"], indirect=True)
def test_what_no_branch_needs_goes_past_the_retention(resources: dict[str, Any]) -> None:
    for _ in range(2):
        dg.materialize([events], resources=resources)
    run(resources, max_mergeable_objects=2)
    kept = metadata_of(run(resources, tasks=["pool_vacuum"]), "maintenance/pool_vacuum")
    gone = metadata_of(run(resources, tasks=["pool_vacuum"], retention="0 seconds"), "maintenance/pool_vacuum")
    if not resources["lake"].is_lake():
        assert (kept["lake/reclaimed_files"], gone["lake/reclaimed_files"]) == (0, 4), (
            "two objects with their seek indexes"
        )
    assert len(list(resources["lake"].read_pool("tables/events", None).scan().records())) == 4


def test_what_cannot_be_followed_is_refused() -> None:
    with pytest.raises(InvalidDefinition, match="pool_compaction is for pools, and no pools are named"):
        lake_maintenance(["tables/orders"], tasks=["pool_compaction"])
    with pytest.raises(InvalidDefinition, match="use a whole number of 2 or more"):
        lake_maintenance(pools=["tables/events"], max_mergeable_objects=1)
