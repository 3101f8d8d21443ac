"""The maintenance that a lake gets without naming tasks deletes what nothing needs, and does no harm to a folder."""

import datetime as dt
import os
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster.components.testing.utils import create_defs_folder_sandbox

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_orch import LakeResource
from lake_orch.errors import NotALake
from lake_orch.maintenance import lake_maintenance
from tests.orch.maintenance_runs import asset_of, run

SCHEMA = pa.schema([("id", pa.int64())])
BOTH = ("garbage_collection", "session_reaper")


def _tasks(definitions: dg.Definitions) -> set[str]:
    return {asset.key.path[1] for asset in definitions.assets or () if isinstance(asset, dg.AssetsDefinition)}


@pytest.mark.parametrize("kind", [{"tables": ["t"]}, {"arrays": ["t"]}, {"pools": ["t"]}])
def test_both_tasks_of_the_lake_are_included_and_scheduled(kind: dict[str, Any]) -> None:
    definitions = lake_maintenance(schedule="0 4 * * *", checks=False, **kind)
    assert set(BOTH) <= _tasks(definitions)
    crons = {each.name: each.cron_schedule for each in definitions.schedules or ()}  # type: ignore[union-attr]
    assert [crons[f"maintenance_{task}_schedule"] for task in BOTH] == ["0 4 * * *"] * 2


def test_named_tasks_are_the_only_ones() -> None:
    assert _tasks(lake_maintenance(["t"], tasks=["vacuum"], checks=False)) == {"vacuum"}


def test_a_maintained_lake_deletes_files(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        session.create_delta("t", SCHEMA)
    session = lake.session()
    session.delta("t").append(pa.table({"id": [1]}, SCHEMA))
    session.abandon()
    (orphan,) = (tmp_path / "t").glob("*.parquet")
    old = (dt.datetime.now() - dt.timedelta(days=60)).timestamp()
    os.utime(orphan, (old, old))
    definitions = lake_maintenance(["t"], checks=False)
    with dg.DagsterInstance.ephemeral() as instance:
        (metadata,) = run(definitions, "garbage_collection", LakeResource(root=str(tmp_path)), instance).values()
    assert metadata["lake/reclaimed_files"] == 1
    assert not orphan.exists()


@pytest.mark.parametrize("task", BOTH)
def test_in_a_folder_of_plain_tables_they_do_nothing(tmp_path: Path, task: str) -> None:
    DeltaTable.create(tmp_path / "t", SCHEMA)
    resource = LakeResource(root=str(tmp_path))
    with dg.DagsterInstance.ephemeral() as instance:
        (metadata,) = run(lake_maintenance(["t"]), task, resource, instance).values()
    assert metadata["lake/due"] is False


@pytest.mark.parametrize("task", BOTH)
def test_in_a_folder_a_task_that_is_named_is_refused(tmp_path: Path, task: str) -> None:
    DeltaTable.create(tmp_path / "t", SCHEMA)
    definitions = lake_maintenance(["t"], tasks=[task], checks=False)
    with pytest.raises(NotALake):
        dg.materialize([asset_of(definitions, task)], resources={"lake": LakeResource(root=str(tmp_path))})


def test_the_component_has_them_too() -> None:
    text = 'type: lake_orch.components.MaintenanceComponent\nattributes: {tables: [t], schedule: "0 4 * * *"}\n'
    with create_defs_folder_sandbox() as sandbox:
        (sandbox.defs_folder_path / "maintenance").mkdir()
        (sandbox.defs_folder_path / "maintenance/defs.yaml").write_text(text)
        (sandbox.defs_folder_path / "lake").mkdir()
        (sandbox.defs_folder_path / "lake/defs.yaml").write_text(
            "type: lake_orch.components.LakeComponent\nattributes: {root: lake}\n"
        )
        with sandbox.build_all_defs() as definitions:
            keys = {key.to_user_string() for key in definitions.resolve_asset_graph().get_all_asset_keys()}
    assert {f"maintenance/{task}" for task in BOTH} <= keys
