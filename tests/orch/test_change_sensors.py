"""Sensors over what others publish: tables' versions, and branches."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_orch import InvalidDefinition, LakeResource, change_sensors
from lake_orch.change_sensors import BranchChange, TableChange, branch_sensor, external_table, table_change_sensor
from tests.lake.lakes import TOY_FORMATS, forget_formats

ROWS = pa.table({"id": [1, 2]})
ORDERS = external_table("orders", "shared/orders")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


class Watch:
    """A sensor with its cursor."""

    def __init__(self, sensor: dg.SensorDefinition, lake: LakeResource, instance: dg.DagsterInstance) -> None:
        self.sensor, self.lake, self.instance = sensor, lake, instance
        self.cursor: str | None = None

    def tick(self) -> dg.SensorResult:
        with dg.build_sensor_context(
            instance=self.instance, cursor=self.cursor, resources={"lake": self.lake}
        ) as context:
            result: dg.SensorResult = self.sensor(context)  # type: ignore[assignment]
        self.cursor = result.cursor
        return result

    def metadata(self) -> list[dict[str, Any]]:
        return [{name: value.value for name, value in event.metadata.items()} for event in self.tick().asset_events]


def test_new_versions_of_plain_tables(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    watch = Watch(table_change_sensor([ORDERS]), LakeResource(root=str(tmp_path)), instance)
    assert watch.metadata() == []
    table = DeltaTable.create(str(tmp_path / "shared" / "orders"), ROWS.schema)
    table.append(ROWS)
    (first,) = watch.metadata()
    assert first["lake/version"] == 1
    assert watch.metadata() == []
    table.append(ROWS)
    table.delete("id = 1")
    (change,) = watch.metadata()
    assert change["lake/version"] == 3
    assert change["lake/changes"] == 2
    assert change["lake/operations"] == "WRITE, DELETE"
    assert change["lake/numOutputRows"] == 2
    assert change["lake/numDeletedRows"] == 2
    assert watch.metadata() == []
    watch.cursor = None
    assert [entry["lake/version"] for entry in watch.metadata()] == [3], "after a reset the present state is told"


def test_new_commits_of_a_lake(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        session.create_delta("shared/orders", ROWS.schema).append(ROWS)
        session.create_delta("tables/other", ROWS.schema)
    asked: list[TableChange] = []

    def request(change: TableChange) -> dg.RunRequest:
        asked.append(change)
        return dg.RunRequest(run_key=change.commit)

    watch = Watch(
        table_change_sensor([ORDERS, "tables/other"], request=request), LakeResource(root=str(tmp_path)), instance
    )
    assert {entry["lake/path"] for entry in watch.metadata()} == {"shared/orders", "tables/other"}
    asked.clear()
    assert watch.metadata() == []
    with lake.session() as session:
        session.delta("shared/orders").append(ROWS)
    with lake.session() as session:
        session.delta("shared/orders").append(ROWS)
    lake.create_branch("dev")
    result = watch.tick()
    (change,) = asked
    assert (change.path, change.version, change.commits, change.asset_key) == (
        "shared/orders",
        2,
        2,
        dg.AssetKey("orders"),
    )
    assert change.commit == lake.list_branches()["main"]
    assert change.operations == ["WRITE", "WRITE"]
    assert change.metrics["numOutputRows"] == 4
    assert [request.run_key for request in result.run_requests or ()] == [change.commit]
    with lake.session("dev") as session:
        session.delta("shared/orders").append(ROWS)
    assert watch.metadata() == [], "another branch is none of its business"


def test_a_change_before_many_commits_to_other_tables(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_sensors, "_MOST_CHANGES", 3)
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        session.create_delta("shared/orders", ROWS.schema)
    watch = Watch(table_change_sensor([ORDERS], target="*"), LakeResource(root=str(tmp_path)), instance)
    watch.tick()
    with lake.session() as session:
        session.delta("shared/orders").append(ROWS)
    for number in range(5):
        with lake.session() as session:
            session.put("files/other", b"%d" % number)
    assert [entry["lake/version"] for entry in watch.metadata()] == [1]
    assert watch.metadata() == []


def test_a_branch_that_does_not_go_on_is_told_as_it_is(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        session.create_delta("shared/orders", ROWS.schema)
    lake.create_branch("dev")
    with lake.session("dev") as session:
        session.delta("shared/orders").append(ROWS)
    watch = Watch(table_change_sensor([ORDERS], target="*"), LakeResource(root=str(tmp_path)), instance)
    assert [entry["lake/version"] for entry in watch.metadata()] == [0]
    watch.lake = LakeResource(root=str(tmp_path), branch="dev")
    assert [entry["lake/version"] for entry in watch.metadata()] == [1]
    watch.lake = LakeResource(root=str(tmp_path))
    assert [entry["lake/version"] for entry in watch.metadata()] == [0]


def test_a_table_that_was_created_again_has_changed(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    watch = Watch(table_change_sensor([ORDERS], target="*"), LakeResource(root=str(tmp_path)), instance)
    seen = []
    for rows in (ROWS, ROWS.slice(1)):
        DeltaTable.create(tmp_path / "shared" / "orders", ROWS.schema).append(rows)
        result = watch.tick()
        ((request,), (event,)) = result.run_requests or (), result.asset_events
        seen.append((request.run_key, event.tags["dagster/data_version"]))
        shutil.rmtree(tmp_path / "shared")
    assert seen[0][0] != seen[1][0], "Dagster starts no run for a key that was used before"
    assert seen[0][1] != seen[1][1]


def test_changes_of_any_dataset_of_a_lake(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(TOY_FORMATS))
    forget_formats()
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        session.create("notes/today", "note", "first")
        session.create("tables/names", "register")
    notes = external_table("today", "notes/today", kinds={"note"})
    watch = Watch(table_change_sensor([notes, "tables/names"]), LakeResource(root=str(tmp_path)), instance)
    assert [entry.get("lake/version") for entry in watch.metadata()] == [None, 0]
    with lake.session() as session:
        session.open("notes/today").write("second")
    (event,) = watch.tick().asset_events
    assert event.metadata["lake/operations"].value == "WRITE"
    assert event.tags == {"dagster/data_version": lake.list_branches()["main"]}
    with lake.session() as session:
        session.drop("notes/today")
    (event,) = watch.tick().asset_events
    assert event.tags == {"dagster/data_version": "dropped"}


def test_a_drop_and_a_new_table_of_a_lake(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        session.create_delta("shared/orders", ROWS.schema).append(ROWS)
    watch = Watch(table_change_sensor([ORDERS], target="*"), LakeResource(root=str(tmp_path)), instance)
    watch.tick()
    with lake.session() as session:
        session.drop("shared/orders")
    result = watch.tick()
    (event,) = result.asset_events
    assert event.metadata["lake/dropped"].value is True
    assert event.tags["dagster/data_version"] == "dropped"
    assert [request.run_key for request in result.run_requests] == [f"shared/orders@{lake.log()[0].id}"]
    assert watch.metadata() == []
    with lake.session() as session:
        session.create_delta("shared/orders", ROWS.schema)
    assert "lake/dropped" not in watch.metadata()[0]


def test_a_drop_of_a_plain_table(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    folder = tmp_path / "shared" / "orders"
    DeltaTable.create(str(folder), ROWS.schema)
    watch = Watch(table_change_sensor([ORDERS]), LakeResource(root=str(tmp_path)), instance)
    watch.tick()
    shutil.rmtree(folder)
    (change,) = watch.metadata()
    assert change["lake/dropped"] is True
    assert watch.metadata() == []


def test_a_table_that_never_was_is_not_dropped(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    Lake.create(tmp_path)
    watch = Watch(table_change_sensor([ORDERS]), LakeResource(root=str(tmp_path)), instance)
    assert watch.metadata() == []
    with Lake.open(tmp_path).session() as session:
        session.put("x", b"x")
    assert watch.metadata() == []


def test_branches_that_come_move_and_go(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    lake = Lake.create(tmp_path)
    changes: list[tuple[str, str]] = []

    def request(change: BranchChange) -> dg.RunRequest | None:
        changes.append((change.branch, change.kind))
        return None

    watch = Watch(branch_sensor(request=request, prefix="pr-"), LakeResource(root=str(tmp_path)), instance)
    watch.tick()
    assert changes == []
    for name in ("pr-1", "pr-2", "elsewhere"):
        lake.create_branch(name)
    watch.tick()
    assert changes == [("pr-1", "created"), ("pr-2", "created")]
    with lake.session("pr-1") as session:
        session.put("a", b"1")
    with lake.session("main") as session:
        session.put("b", b"1")
    lake.delete_branch("pr-2")
    changes.clear()
    watch.tick()
    assert changes == [("pr-1", "moved"), ("pr-2", "deleted")]


def test_a_run_on_each_branch(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    lake = Lake.create(tmp_path)

    @dg.asset
    def checked() -> None: ...

    watch = Watch(branch_sensor(target=[checked]), LakeResource(root=str(tmp_path)), instance)
    lake.create_branch("pr-1")
    (request,) = watch.tick().run_requests or ()
    assert request.tags["lake/branch"] == "pr-1"
    lake.delete_branch("pr-1")
    assert not watch.tick().run_requests


def test_sensors_that_would_do_nothing() -> None:
    with pytest.raises(InvalidDefinition, match="no table"):
        table_change_sensor([])
    with pytest.raises(InvalidDefinition, match="nothing by itself"):
        branch_sensor()


def test_a_branch_that_is_created_again_has_a_run_of_its_own(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    lake = Lake.create(tmp_path)
    watch = Watch(branch_sensor(target="*"), LakeResource(root=str(tmp_path)), instance)
    keys = []
    for _ in range(2):
        lake.create_branch("dev")
        keys += [request.run_key for request in watch.tick().run_requests or ()]
        lake.delete_branch("dev")
        watch.tick()
    assert len(set(keys)) == 2
