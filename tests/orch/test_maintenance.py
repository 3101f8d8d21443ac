"""Maintenance as assets: what it does, what it says, and that no reader of a retained version notices."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.delta.operations.vacuum import VacuumResult
from lake_core.lake.gc.collect import Collection
from lake_core.spark import vacuum_delta
from lake_orch import InvalidDefinition, LakeResource, SparkResource, testing
from lake_orch.assets.maintenance import TaskContext
from lake_orch.assets.tables.maintenance import vacuum
from lake_orch.maintenance import HealthLimits, MaintenanceTarget, lake_maintenance, lake_table_checks, table_health
from lake_orch.maintenance.target import MaintenanceConfig, targets_of
from tests.orch.maintenance_runs import asset_of, run

PATHS = ["tables/a", "tables/sub/b"]
SCHEMA = pa.schema([("p", pa.string()), ("id", pa.int64())])


def rows(number: int) -> pa.Table:
    return pa.table({"p": ["x"], "id": [number]}, SCHEMA)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture(scope="module", params=["lake", pytest.param("plain", marks=pytest.mark.exhaustive)])
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create two tables of twelve files each, in a lake and without one."""
    root = tmp_path_factory.mktemp("maintenance") / "root"
    if request.param == "lake":
        lake = Lake.create(root)
        for path in PATHS:
            with lake.session() as session:
                session.create_delta(path, SCHEMA, partition_by=["p"])
        for number in range(12):
            with lake.session() as session:
                for path in PATHS:
                    session.delta(path).append(rows(number))
    else:
        for path in PATHS:
            table = DeltaTable.create(str(root / path), SCHEMA, partition_by=["p"])
            for number in range(12):
                table.append(rows(number))
    return root


@pytest.fixture
def resource(prepared: Path, tmp_path: Path) -> LakeResource:
    """A copy of the tables, which a test may change."""
    shutil.copytree(prepared, tmp_path / "root")
    return LakeResource(root=str(tmp_path / "root"))


def ids(resource: LakeResource, path: str, **options: Any) -> list[int]:
    return sorted(resource.read_table(path, None, **options).to_arrow()["id"].to_pylist())


def health(resource: LakeResource, path: str) -> Any:
    table = resource.find_table(path)
    assert table is not None
    return table_health(table)


def test_small_files_are_put_together_and_old_versions_stay(
    resource: LakeResource, instance: dg.DagsterInstance
) -> None:
    defs = lake_maintenance(PATHS, tasks=["compaction", "vacuum"])
    before = health(resource, PATHS[0])
    assert (before.files, before.small_files, before.small_file_ratio, before.partitions) == (12, 12, 1.0, 1)
    dry = run(defs, "compaction", resource, instance, {"dry_run": True})
    assert dry[PATHS[0]]["lake/due"]
    assert dry[PATHS[0]]["lake/num_files"] == 12
    assert health(resource, PATHS[0]).files == 12
    metadata = run(defs, "compaction", resource, instance)
    assert set(metadata) == set(PATHS)
    for path in PATHS:
        assert (
            metadata[path]["lake/num_files"],
            metadata[path]["lake/files_removed"],
            metadata[path]["lake/small_file_ratio"],
        ) == (
            1,
            12,
            0.0,
        )
        assert ids(resource, path) == list(range(12))
    again = run(defs, "compaction", resource, instance)
    assert not again[PATHS[0]]["lake/due"]
    assert again[PATHS[0]]["lake/version"] == metadata[PATHS[0]]["lake/version"]
    run(defs, "vacuum", resource, instance)
    old = (
        resource.open().at("main~1").delta(PATHS[0])
        if resource.is_lake()
        else DeltaTable.open(resource.url(PATHS[0]), version=12)
    )
    assert sorted(old.to_arrow()["id"].to_pylist()) == list(range(12)), "the files of a retained version stay"


def test_the_log_says_what_a_task_has_done(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    table = DeltaTable.create(str(tmp_path / "tables/a"), SCHEMA)
    for number in range(2):
        table.append(rows(number))
    resource = LakeResource(root=str(tmp_path))
    defs = lake_maintenance(["tables/a"], tasks=["compaction"])
    lines = []
    for config in ({"dry_run": True}, None, None):
        run(defs, "compaction", resource, instance, config)
        newest = instance.get_run_records(limit=1)[0].dagster_run.run_id
        messages = [entry.user_message for entry in instance.all_logs(newest)]
        lines += [message for message in messages if message.startswith("compaction of tables/a")]
    dry, compacted, again = lines
    assert dry.startswith("compaction of tables/a: dry run, nothing is changed (lake/num_files 2, ")
    assert compacted.startswith("compaction of tables/a: lake/num_files 1, ")
    assert again.startswith("compaction of tables/a: not due, nothing is changed (lake/num_files 1, ")


def test_what_is_past_its_retention_is_reclaimed(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    path = "tables/a"
    table = DeltaTable.create(
        str(tmp_path / path), SCHEMA, properties={"delta.deletedFileRetentionDuration": "interval 0 seconds"}
    )
    for number in range(3):
        table.append(rows(number))
    table.optimize()
    resource = LakeResource(root=str(tmp_path))
    defs = lake_maintenance([path], tasks=["vacuum"])
    assert defs.assets is not None
    assert asset_of(defs, "vacuum").partitions_def is None, "one table needs no partitions"
    (dry,) = run(defs, "vacuum", resource, instance, {"dry_run": True}).values()
    assert dry["lake/reclaimed_files"] == 3
    assert dry["lake/reclaimed_bytes"] > 0
    assert len(list((tmp_path / path).glob("*.parquet"))) == 4
    (tmp_path / path / "mine.parquet").write_bytes(b"x")
    os.utime(tmp_path / path / "mine.parquet", (0, 0))
    (metadata,) = run(defs, "vacuum", resource, instance).values()
    assert metadata["lake/unknown_files"] == 1
    (tmp_path / path / "mine.parquet").unlink()
    assert len(list((tmp_path / path).glob("*.parquet"))) == 1
    assert ids(resource, path) == [0, 1, 2]


@pytest.mark.parametrize("above", [2, 5])
def test_spark_vacuums_tables_of_many_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, above: int
) -> None:
    table = DeltaTable.create(
        str(tmp_path / "tables/a"), SCHEMA, properties={"delta.deletedFileRetentionDuration": "interval 0 seconds"}
    )
    for number in range(3):
        table.append(rows(number))
    table.optimize()
    in_spark: list[str] = []

    def vacuum_in_spark(spark: SparkSession, table: DeltaTable, *args: Any, **options: Any) -> VacuumResult:
        in_spark.append(table.store.url())
        return vacuum_delta(spark, table, *args, **options)

    monkeypatch.setattr("lake_core.spark.vacuum_delta", vacuum_in_spark)
    (target,) = targets_of(["tables/a"], [], [], spark_above_files=above)
    lake = LakeResource(root=str(tmp_path))
    metadata = vacuum(TaskContext(lake, target, MaintenanceConfig(), "main", SparkResource()))
    assert metadata["lake/reclaimed_files"] == 3
    assert len(in_spark) == (above == 2), "one file, and three that were removed"


@pytest.mark.extended
def test_zorder_checkpoint_log_and_markers(resource: LakeResource, instance: dg.DagsterInstance) -> None:
    defs = lake_maintenance(
        PATHS,
        tasks=["zorder", "checkpoint", "log_cleanup", "txn_expiry"],
        zorder_by=("id",),
        txn_retention="30 days",
        max_uncheckpointed_commits=3,
    )
    zordered = run(defs, "zorder", resource, instance)
    assert zordered[PATHS[0]]["lake/num_files"] == 1
    assert ids(resource, PATHS[0]) == list(range(12))
    checkpointed = run(defs, "checkpoint", resource, instance)
    assert checkpointed[PATHS[0]]["lake/due"]
    assert checkpointed[PATHS[0]]["lake/uncheckpointed_commits"] == 0
    assert not run(defs, "checkpoint", resource, instance)[PATHS[0]]["lake/due"]
    assert run(defs, "log_cleanup", resource, instance)[PATHS[0]]["lake/log_files_deleted"] == 0, (
        "nothing is past the retention"
    )
    run(defs, "txn_expiry", resource, instance)
    table = resource.find_table(PATHS[0])
    assert table is not None
    assert table.properties["delta.setTransactionRetentionDuration"] == "interval 30 days"
    version = table.version
    run(defs, "txn_expiry", resource, instance)
    assert resource.find_table(PATHS[0]).version == version, "what is set already is left alone"  # type: ignore[union-attr]


def test_a_lake_is_collected_and_its_sessions_are_seen_to(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    Lake.create(tmp_path).open_session()
    resource = LakeResource(root=str(tmp_path))
    defs = lake_maintenance(["tables/a"], tasks=["garbage_collection", "session_reaper"], checks=False)
    (metadata,) = run(defs, "garbage_collection", resource, instance, {"dry_run": True}).values()
    assert metadata["lake/reclaimed_files"] == 0
    assert metadata["lake/dry_run"] is True
    (reaped,) = run(defs, "session_reaper", resource, instance).values()
    assert reaped["lake/running"] == 0
    assert reaped["lake/failed"] == 0, "a session of no run is none of its business"


@pytest.mark.parametrize("above", [1, 1000])
def test_spark_collects_lakes_of_many_commits(
    spark: SparkSession, tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, above: int
) -> None:
    Lake.create(tmp_path)
    in_spark: list[str] = []

    def collect_in_spark(spark: SparkSession, lake: Lake, *, dry_run: bool) -> Collection:
        in_spark.append(lake.url)
        return lake.maintenance.gc(dry_run=dry_run)

    monkeypatch.setattr("lake_core.spark.lakes.collect_lake", collect_in_spark)
    defs = lake_maintenance(
        ["tables/a"], tasks=["garbage_collection"], checks=False, spark=True, spark_above_commits=above
    )
    resources = {"lake": LakeResource(root=str(tmp_path)), "spark": SparkResource()}
    assert dg.materialize([asset_of(defs, "garbage_collection")], resources=resources, instance=instance).success
    assert len(in_spark) == (above == 1)


def failing(defs: dg.Definitions, resource: LakeResource, instance: dg.DagsterInstance) -> dict[str, str | None]:
    """Return the failed health checks of the first table, which are warnings."""
    result = dg.materialize([asset_of(defs, "health")], resources={"lake": resource}, instance=instance)
    evaluations = [
        evaluation for evaluation in result.get_asset_check_evaluations() if evaluation.asset_key.path[-1] == "a"
    ]
    assert {evaluation.severity for evaluation in evaluations} == {dg.AssetCheckSeverity.WARN}
    return {evaluation.check_name: evaluation.description for evaluation in evaluations if not evaluation.passed}


@pytest.mark.parametrize("prepared", ["lake", "plain"], indirect=True)
def test_checks_say_what_needs_doing(resource: LakeResource, instance: dg.DagsterInstance) -> None:
    defs = lake_maintenance(PATHS, tasks=["compaction"], checks=HealthLimits(small_files=5, uncheckpointed_commits=5))
    assert failing(defs, resource, instance)["small_files"] == "1 (limit 0.5): run compaction"
    run(defs, "compaction", resource, instance)
    assert "small_files" not in failing(defs, resource, instance)


@pytest.mark.extended
def test_all_tables_are_measured_in_one_step(resource: LakeResource, instance: dg.DagsterInstance) -> None:
    health = asset_of(lake_maintenance(PATHS), "health")
    result = dg.materialize([health], resources={"lake": resource}, instance=instance)
    assert [event.step_key for event in result.all_events if event.is_step_success] == ["maintenance_health"]
    assert len(result.get_asset_check_evaluations()) == 10


def test_a_check_can_be_run_by_itself(resource: LakeResource, instance: dg.DagsterInstance) -> None:
    health = asset_of(lake_maintenance(PATHS), "health")
    selection = dg.AssetSelection.checks(dg.AssetCheckKey(dg.AssetKey(["maintenance", "health", "a"]), "log_length"))
    result = dg.materialize([health], resources={"lake": resource}, instance=instance, selection=selection)
    assert [evaluation.check_name for evaluation in result.get_asset_check_evaluations()] == ["log_length"]


def test_a_table_that_is_not_there_yet_is_left_out(resource: LakeResource, instance: dg.DagsterInstance) -> None:
    health = asset_of(lake_maintenance([*PATHS, "tables/missing"]), "health")
    result = dg.materialize([health], resources={"lake": resource}, instance=instance)
    assert len(result.get_asset_check_evaluations()) == 10


def test_a_run_of_the_tables_runs_no_health_check(tmp_path: Path) -> None:
    @dg.asset
    def a() -> None: ...

    pipeline = dg.Definitions(
        [a], jobs=[dg.define_asset_job("daily", [a])], resources={"lake": LakeResource(root=str(tmp_path))}
    )
    maintained = dg.Definitions.merge(lake_maintenance([a], schedule="0 3 * * *"), pipeline)
    result = maintained.resolve_job_def("daily").execute_in_process()
    assert [event.step_key for event in result.all_events if event.is_step_success] == ["a"]


def test_the_checks_of_a_table_can_run_with_the_table(resource: LakeResource, instance: dg.DagsterInstance) -> None:
    checks = lake_table_checks(targets_of(PATHS[:1]))
    job = dg.define_asset_job("checks", dg.AssetSelection.checks(*checks))
    defs = dg.Definitions([dg.AssetSpec("a")], asset_checks=checks, jobs=[job], resources={"lake": resource})
    result = defs.resolve_job_def("checks").execute_in_process(instance=instance)
    assert len(result.get_asset_check_evaluations()) == 5


def test_a_health_check_describes_itself() -> None:
    specs = {spec.name: spec.description for spec in asset_of(lake_maintenance(["tables/a"]), "health").check_specs}
    assert specs["small_files"] == (
        "The share of data files below 33.6 MB that could be merged. "
        "Warns above 50% of at least 10 files; run compaction."
    )
    assert len(set(specs.values())) == 5


def test_a_table_shows_its_maintenance(resource: LakeResource, instance: dg.DagsterInstance) -> None:
    defs = lake_maintenance(PATHS, tasks=["compaction"])
    run(defs, "compaction", resource, instance, {"dry_run": True})
    run(defs, "compaction", resource, instance)
    run(defs, "compaction", resource, instance)  # there is nothing left to do
    (record,) = instance.fetch_observations(dg.AssetKey("a"), limit=5).records
    assert record.event_log_entry.asset_observation is not None
    metadata = record.event_log_entry.asset_observation.metadata
    assert metadata["lake/maintenance"].value == "compaction"
    assert metadata["lake/maintained_by"].value == dg.AssetKey(["maintenance", "compaction"])
    assert (metadata["lake/files_removed"].value, metadata["lake/num_files"].value) == (12, 1)


def test_writers_go_first(tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody deletes from the files that are being put together: they are planned anew."""
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        table = session.create_delta("tables/a", SCHEMA)
        for number in range(4):
            table.append(rows(number))
    from lake_orch.assets.tables import maintenance as tasks

    optimize, interrupted = tasks._optimize, []

    def disturbed(*args: Any) -> Any:
        result = optimize(*args)
        if not interrupted:
            interrupted.append(True)
            with Lake.open(tmp_path).session() as other:
                other.delta("tables/a").delete("id = 2")
        return result

    monkeypatch.setattr(tasks, "_optimize", disturbed)
    resource = LakeResource(root=str(tmp_path))
    (metadata,) = run(lake_maintenance(["tables/a"], tasks=["compaction"]), "compaction", resource, instance).values()
    assert interrupted
    assert metadata["lake/num_files"] == 1
    assert ids(resource, "tables/a") == [0, 1, 3]


def test_schedules_and_automation() -> None:
    defs = lake_maintenance(PATHS, tasks={"compaction": "0 * * * *", "checkpoint": None}, schedule="0 3 * * *")
    crons = {
        schedule.name: schedule.cron_schedule
        for schedule in defs.schedules or ()
        if isinstance(schedule, dg.ScheduleDefinition)
    }
    assert crons == {
        "maintenance_compaction_schedule": "0 * * * *",
        "maintenance_checkpoint_schedule": "0 3 * * *",
        "maintenance_health_schedule": "0 3 * * *",
    }
    with_lake = dg.Definitions.merge(defs, dg.Definitions(resources={"lake": LakeResource(root="/lake")}))
    dg.Definitions.validate_loadable(with_lake)
    at = datetime(2026, 1, 1, 3, tzinfo=UTC)
    (schedule,) = (
        candidate
        for candidate in defs.schedules or ()
        if isinstance(candidate, dg.ScheduleDefinition) and "checkpoint" in candidate.name
    )
    requests = (
        schedule.evaluate_tick(
            dg.build_schedule_context(repository_def=with_lake.get_repository_def(), scheduled_execution_time=at)
        ).run_requests
        or ()
    )
    assert [request.partition_key for request in requests] == PATHS, "a run a table"
    automated = lake_maintenance(PATHS, schedule="0 3 * * *", automation=True)
    assert not automated.schedules
    condition = asset_of(automated, "vacuum").automation_conditions_by_key[dg.AssetKey(["maintenance", "vacuum"])]
    assert "0 3 * * *" in str(condition)


@pytest.mark.parametrize(
    ("tables", "options", "message"),
    [
        ([], {}, "needs tables"),
        (["tables/a", "tables/a/"], {}, "twice"),
        (["tables/a"], {"tasks": ["sweep"]}, "no maintenance task is called sweep"),
        (["tables/a"], {"tasks": ["zorder"]}, "needs columns"),
        (["../a"], {}, "relative"),
    ],
)
def test_what_makes_no_sense_is_refused(tables: list[str], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidDefinition, match=message):
        lake_maintenance(tables, **options)


def test_tables_by_asset() -> None:
    @dg.asset(metadata={"lake/path": "shared/orders"})
    def orders() -> None: ...

    defs = lake_maintenance(
        [orders, dg.AssetKey(["raw", "x"]), MaintenanceTarget("t", dg.AssetKey("own"), zorder_by=("id",))],
        tasks=["vacuum"],
    )
    partitions = asset_of(defs, "vacuum").partitions_def
    assert partitions is not None
    assert partitions.get_partition_keys() == ["shared/orders", "tables/raw/x", "t"]


def test_a_run_on_a_branch_maintains_the_branch(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        table = session.create_delta("tables/a", SCHEMA)
        for number in range(4):
            table.append(rows(number))
    lake.create_branch("dev")
    asset = asset_of(lake_maintenance(["tables/a"], tasks=["compaction", "checkpoint"]), "compaction")
    resource = LakeResource(root=str(tmp_path))
    assert dg.materialize([asset], resources={"lake": resource}, instance=instance, tags={"lake/branch": "dev"}).success
    assert [len(lake.delta("tables/a", ref=ref).files()) for ref in ("main", "dev")] == [4, 1]


def test_what_a_run_has_staged_it_does_not_rearrange(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """Main would move beside the session, which could not be published then."""
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        table = session.create_delta("tables/a", SCHEMA)
        for number in range(4):
            table.append(rows(number))
        session.create_delta("tables/other", SCHEMA).append(rows(1))

    @dg.asset
    def a(context: dg.AssetExecutionContext, lake: LakeResource) -> None:
        with lake.session(context) as session:
            session.table("tables/a").append(rows(9))

    asset = asset_of(lake_maintenance([a, "tables/other"], tasks=["compaction"]), "compaction")
    resources = {"lake": LakeResource(root=str(tmp_path))}

    def run(path: str) -> bool:
        tags = {"dagster/partition": path}
        return testing.materialize(
            [a, asset], resources=resources, instance=instance, tags=tags, raise_on_error=False
        ).success

    assert not run("tables/a")
    assert sorted(lake.delta("tables/a").to_arrow()["id"].to_pylist()) == [0, 1, 2, 3]
    assert run("tables/other")
    assert 9 in lake.delta("tables/a").to_arrow()["id"].to_pylist()
