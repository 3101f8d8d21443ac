"""The main paths over S3: a run that is published, one that is resumed, files that land, maintenance."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

from collections.abc import Iterator
from typing import Any

import dagster as dg
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_orch import DeltaIOManager, LakeResource, testing
from lake_orch.landing_zone import LandingZone, landing_zone_definitions
from lake_orch.maintenance import lake_maintenance


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def lake(s3_url: str, s3_options: dict[str, Any]) -> Lake:
    return Lake.create(s3_url, storage_options=s3_options)


@pytest.fixture
def resource(lake: Lake, s3_url: str, s3_options: dict[str, Any]) -> LakeResource:
    return LakeResource(root=s3_url, storage_options=s3_options)


def rows(resource: LakeResource, table: str) -> int:
    """Return the rows as a plain Delta reader finds them."""
    url = resource.url(f"tables/{table}")
    options = resource.options()
    return (
        len(DeltaTable.open(url, storage_options=options).to_arrow())
        if DeltaTable.exists(url, storage_options=options)
        else 0
    )


def test_a_run_is_published_whole_or_resumed(resource: LakeResource, lake: Lake, instance: dg.DagsterInstance) -> None:
    broken = [True]

    @dg.asset(metadata={"lake/mode": "append"})
    def first() -> pa.Table:
        return pa.table({"id": [1, 2]})

    @dg.asset(metadata={"lake/mode": "append"})
    def second(context: dg.AssetExecutionContext, first: pa.Table, lake: LakeResource) -> pa.Table:
        if broken:
            raise RuntimeError("as it was to")
        return first

    resources = {"io_manager": DeltaIOManager(lake=resource), "lake": resource}
    failed = testing.materialize([first, second], resources=resources, instance=instance, raise_on_error=False)
    (session,) = lake.list_sessions()
    assert not failed.success
    assert session.state == "failed"
    assert rows(resource, "first") == 0
    broken.clear()
    assert testing.materialize(
        [first, second], resources=resources, instance=instance, resume=session.id, selection=[second]
    ).success
    assert (rows(resource, "first"), rows(resource, "second")) == (2, 2)
    assert len(lake.log()) == 2


@pytest.mark.exhaustive
def test_files_land_and_are_put_together(
    resource: LakeResource, instance: dg.DagsterInstance, s3_url: str, s3_options: dict[str, Any]
) -> None:
    zone = LandingZone("events", f"{s3_url}-landing", pattern="*.parquet", storage_options=s3_options, max_files=1)
    filesystem, root = fsspec.core.url_to_fs(zone.url, **s3_options)
    for number in range(3):
        with filesystem.open(f"{root}/{number}.parquet", "wb") as file:
            pq.write_table(pa.table({"id": [number]}), file)
    defs = landing_zone_definitions(zone)
    (asset,), (sensor,) = defs.assets or (), defs.sensors or ()
    cursor, runs = None, 0
    while True:
        with dg.build_sensor_context(instance=instance, cursor=cursor, resources={"lake": resource}) as context:
            tick = sensor(context)  # type: ignore[operator]
            cursor = context.cursor
        if not isinstance(tick, dg.SensorResult) or not tick.run_requests:
            break
        for request in tick.run_requests:
            assert dg.materialize(
                [asset], resources={"lake": resource}, instance=instance, tags=dict(request.tags)
            ).success  # type: ignore[list-item]
            runs += 1
    assert runs == 3
    assert rows(resource, "events") == 3
    maintained = lake_maintenance(
        ["tables/events"], tasks=["compaction", "checkpoint"], max_uncheckpointed_commits=1, checks=False
    )
    result = dg.materialize(list(maintained.assets or ()), resources={"lake": resource}, instance=instance)  # type: ignore[arg-type]
    assert result.success
    assert rows(resource, "events") == 3
    table = resource.find_table("tables/events")
    assert table is not None
    assert len(table.files()) == 1
