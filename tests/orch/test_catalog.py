"""The asset and the sensor that register main's tables with a catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from lake_core import Lake
from lake_core.catalog.errors import CatalogUnavailable
from lake_orch import DeltaIOManager, LakeResource, lake_executor
from lake_orch.catalog import lake_catalog
from lake_orch.errors import NotALake
from tests.catalog.memory_catalog import MemoryCatalog

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake.create(tmp_path / "lake")
    with lake.session() as s:
        s.create_delta("tables/orders", SCHEMA)
    return lake


def run(
    definitions: dg.Definitions, lake: Lake, instance: dg.DagsterInstance, **options: Any
) -> dg.ExecuteInProcessResult:
    (asset,) = definitions.assets or ()
    return dg.materialize(
        [asset],  # type: ignore[list-item]
        resources={"lake": LakeResource(root=lake.url.removeprefix("file://"), **options)},
        instance=instance,
        raise_on_error=False,
    )


def metadata(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    (event,) = result.get_asset_materialization_events()
    return {name: value.value for name, value in event.materialization.metadata.items()}


def test_the_asset_registers_the_tables_and_says_what_it_did(lake: Lake, instance: dg.DagsterInstance) -> None:
    catalog = MemoryCatalog()
    said = metadata(run(lake_catalog(catalog, "db"), lake, instance))
    assert list(catalog.schemas["db"]) == ["orders"]
    assert (said["lake/created"], said["lake/commit"]) == (1, lake.list_branches()["main"])


def test_a_refused_table_fails_the_asset_and_the_others_are_registered(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    catalog = MemoryCatalog()
    catalog.add_foreign("db", "orders")
    with lake.session() as s:
        s.create_delta("tables/items", SCHEMA)
    result = run(lake_catalog(catalog, "db"), lake, instance)
    assert not result.success
    assert "no lake registered it" in str(result.all_events[-1]) + str(
        [event.event_specific_data for event in result.all_events if event.is_step_failure]
    )
    assert catalog.schemas["db"]["items"].origin is not None


def test_a_catalog_that_is_down_is_tried_again(lake: Lake, instance: dg.DagsterInstance) -> None:
    catalog, tries = MemoryCatalog(), iter(range(2))

    def fail(request: str) -> None:
        if next(tries, None) is not None:
            raise CatalogUnavailable("down")

    catalog.before = fail
    definitions = lake_catalog(catalog, "db", retry_policy=dg.RetryPolicy(max_retries=3))
    result = run(definitions, lake, instance)
    assert result.success
    assert len([event for event in result.all_events if event.is_step_up_for_retry]) == 2


def test_a_catalog_that_refuses_is_not_tried_again(lake: Lake, instance: dg.DagsterInstance) -> None:
    result = run(lake_catalog("hive", "db", options={"uri": "http://no.metastore"}), lake, instance)
    assert not result.success
    assert not [event for event in result.all_events if event.is_step_up_for_retry]


def test_a_run_on_another_branch_registers_nothing(lake: Lake, instance: dg.DagsterInstance) -> None:
    catalog = MemoryCatalog()
    lake.create_branch("pr-1")
    result = run(lake_catalog(catalog, "db"), lake, instance, branch="pr-1")
    assert metadata(result)["lake/due"] is False
    assert catalog.schemas == {}


def test_all_branches_are_registered_on_request(lake: Lake, instance: dg.DagsterInstance) -> None:
    catalog = MemoryCatalog()
    lake.create_branch("dev")
    said = metadata(run(lake_catalog(catalog, "db", all_branches=True), lake, instance))
    assert {schema: list(tables) for schema, tables in catalog.schemas.items()} == {
        "db": ["orders"],
        "db_dev": ["orders"],
    }
    assert (said["lake/created"], said["lake/branch"]) == (2, "main")


def test_a_folder_of_plain_tables_is_refused(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    (asset,) = lake_catalog(MemoryCatalog(), "db", retry_policy=None).assets or ()
    with pytest.raises(NotALake, match="lake init"):
        dg.materialize(
            [asset],  # type: ignore[list-item]
            resources={"lake": LakeResource(root=str(tmp_path))},
            instance=instance,
        )


def tick(definitions: dg.Definitions, lake: LakeResource, instance: dg.DagsterInstance, cursor: str | None) -> Any:
    (sensor,) = definitions.sensors or ()
    with dg.build_sensor_context(instance=instance, cursor=cursor, resources={"lake": lake}) as context:
        return sensor(context)  # type: ignore[operator]


def test_the_sensor_requests_one_sync_for_each_head_of_main(
    lake: Lake, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    definitions, resource = lake_catalog(MemoryCatalog(), "db"), LakeResource(root=str(tmp_path / "lake"))
    first = tick(definitions, resource, instance, None)
    assert [request.run_key for request in first.run_requests] == [lake.list_branches()["main"]]
    assert not tick(definitions, resource, instance, first.cursor).run_requests
    lake.create_branch("dev")
    with lake.session("dev") as s:
        s.create_delta("tables/more", SCHEMA)
    assert not tick(definitions, resource, instance, first.cursor).run_requests
    with lake.session() as s:
        s.create_delta("tables/items", SCHEMA)
    second = tick(definitions, resource, instance, first.cursor)
    assert [request.run_key for request in second.run_requests] == [lake.list_branches()["main"]]


def test_the_sensor_of_all_branches_requests_a_sync_for_each_head_of_any(
    lake: Lake, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    definitions = lake_catalog(MemoryCatalog(), "db", all_branches=True)
    resource = LakeResource(root=str(tmp_path / "lake"))
    first = tick(definitions, resource, instance, None)
    assert not tick(definitions, resource, instance, first.cursor).run_requests
    lake.create_branch("dev")
    second = tick(definitions, resource, instance, first.cursor)
    with lake.session("dev") as s:
        s.create_delta("tables/more", SCHEMA)
    third = tick(definitions, resource, instance, second.cursor)
    lake.delete_branch("dev")
    last = tick(definitions, resource, instance, third.cursor)
    assert last.cursor == first.cursor
    keys = [request.run_key for each in (first, second, third, last) for request in each.run_requests]
    assert len(set(keys)) == 4


def test_the_sensor_of_a_branch_deployment_requests_nothing(
    lake: Lake, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    resource = LakeResource(root=str(tmp_path / "lake"), branch="pr-1")
    assert not tick(lake_catalog(MemoryCatalog(), "db"), resource, instance, None).run_requests


def test_definitions_load_with_a_schedule_and_two_catalogs(lake: Lake, tmp_path: Path) -> None:
    definitions = dg.Definitions.merge(
        lake_catalog("glue", "db", options={"region": "eu-west-1"}, schedule="0 * * * *"),
        lake_catalog("hive", "db", options={"uri": "thrift://metastore:9083"}),
        dg.Definitions(resources={"lake": LakeResource(root=str(tmp_path / "lake"))}),
    )
    dg.Definitions.validate_loadable(definitions)
    assert {sensor.name for sensor in definitions.sensors or ()} == {
        "catalog__glue__db_sensor",
        "catalog__hive__db_sensor",
    }


def test_the_runs_of_the_sensor_open_no_session(lake: Lake, instance: dg.DagsterInstance, tmp_path: Path) -> None:
    resource = LakeResource(root=str(tmp_path / "lake"), scope="run")
    definitions = dg.Definitions.merge(
        lake_catalog(MemoryCatalog(), "db"), dg.Definitions(resources={"lake": resource}, executor=lake_executor)
    )
    head = lake.list_branches()["main"]
    assert definitions.resolve_job_def("catalog__memory__db_job").execute_in_process(instance=instance).success
    assert lake.list_sessions(include_ended=True) == []
    assert lake.list_branches()["main"] == head, "a sync that published would be followed by another one"


def test_a_failing_catalog_does_not_fail_the_publish_of_its_run(lake: Lake, instance: dg.DagsterInstance) -> None:
    """Even where somebody puts the sync into the same run as the assets that write."""
    catalog = MemoryCatalog()

    def fail(request: str) -> None:
        raise CatalogUnavailable("down")

    catalog.before = fail
    resource = LakeResource(root=lake.url.removeprefix("file://"))

    @dg.asset
    def numbers() -> pa.Table:
        return pa.table({"id": [1, 2]})

    (sync,) = lake_catalog(catalog, "db", retry_policy=None).assets or ()
    result = dg.materialize(
        [numbers, sync],  # type: ignore[list-item]
        resources={"lake": resource, "io_manager": DeltaIOManager(lake=resource)},
        instance=instance,
        raise_on_error=False,
    )
    assert not result.success
    assert lake.delta("tables/numbers").to_arrow().num_rows == 2
