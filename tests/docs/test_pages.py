"""The pages of the docs: every example runs and does what its page says, and every link leads somewhere."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr

from lake_core import Lake
from lake_orch import SessionAlert
from tests.conftest import ROOT
from tests.docs.blocks import DOCS, blocks, run_blocks
from tests.docs.page_job import execute

HOW_TO = sorted(str(page.relative_to(DOCS)) for page in (DOCS / "how-to").glob("*.md") if page.name != "README.md")

NOT_RUN: dict[str, list[str]] = {}
"""The examples that must not run, by page, with the reasons that stand there."""


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Create the lake that every page starts from, in the current directory."""
    monkeypatch.chdir(tmp_path)
    return Lake.create("lake")


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        yield instance


def rows(lake: Lake, ref: str = "main") -> dict[str, int]:
    state = lake.at(ref)
    return {
        path: len(state.delta(path).to_arrow()) for path, format in _formats(lake, ref).items() if format == "delta"
    }


def _formats(lake: Lake, ref: str) -> dict[str, str]:
    return {path: dataset.format for path, dataset in sorted(lake.at(ref).datasets().items())}


def sensor_tick(sensor: Any, resources: dict[str, Any], instance: dg.DagsterInstance, cursor: str | None = None) -> Any:
    with dg.build_sensor_context(instance=instance, resources=resources, cursor=cursor) as context:
        return sensor(context)


def by_name(definitions: Any, name: str) -> Any:
    return next(definition for definition in definitions or () if definition.name == name)


def test_sessions(lake: Lake, instance: dg.DagsterInstance) -> None:
    run = execute(instance, "sessions.md", "nightly")
    assert run.is_success
    assert rows(lake) == {"tables/orders": 3, "tables/totals": 1}
    assert lake.get_session(run.tags["lake/session"]).record.state == "published"
    assert len(lake.log()) == 2
    apart = execute(instance, "sessions.md", "nightly", tags={"lake/scope": "asset"})
    assert apart.is_success
    assert len(lake.log()) == 4, "each asset by itself"


def test_a_bare_publish_that_fails_fails_its_run(lake: Lake, instance: dg.DagsterInstance) -> None:
    """As docs/sessions.md says of bare runs."""
    names = run_blocks("sessions.md")
    resource = names["LakeResource"](root="lake", scope="run")
    lake.settings.protect("main")
    assets = [names["orders"], names["totals"]]
    resources = {"io_manager": names["DeltaIOManager"](lake=resource)}
    assert not dg.materialize(assets, resources=resources, instance=instance, raise_on_error=False).success
    assert rows(lake) == {}
    assert [session.state for session in lake.list_sessions()] == ["failed"]
    lake.settings.unprotect("main")
    assert execute(instance, "how-to/recover-a-publish.md", "lake_recover").is_success
    assert rows(lake) == {"tables/orders": 3, "tables/totals": 1}


def test_publish_a_run(lake: Lake, instance: dg.DagsterInstance) -> None:
    assert execute(instance, "how-to/publish-a-run.md", "nightly").is_success
    assert rows(lake) == {"tables/lines": 2, "tables/orders": 2}
    assert len(lake.log()) == 2


def test_gate_by_checks(lake: Lake, instance: dg.DagsterInstance) -> None:
    page = "how-to/gate-by-checks.md"
    assert not execute(instance, page, "strict", raise_on_error=False).is_success
    assert rows(lake) == {}
    assert not execute(instance, page, "by_itself", raise_on_error=False).is_success
    assert rows(lake) == {}
    assert execute(instance, page, "lenient").is_success
    assert rows(lake) == {"tables/prices": 2}


def test_recover_a_publish(lake: Lake, instance: dg.DagsterInstance) -> None:
    page = "how-to/recover-a-publish.md"
    lake.settings.protect("main")
    failed = execute(instance, "how-to/publish-a-run.md", "nightly", raise_on_error=False)
    assert not failed.is_success
    assert rows(lake) == {}
    lake.settings.unprotect("main")
    assert execute(instance, page, "lake_recover").is_success
    assert rows(lake) == {"tables/lines": 2, "tables/orders": 2}


def test_a_publish_that_is_a_step_is_re_executed_by_itself(lake: Lake, instance: dg.DagsterInstance) -> None:
    page, options = "how-to/recover-a-publish.md", dict[str, Any](raise_on_error=False)
    lake.settings.protect("main")
    failed = execute(instance, page, "nightly", **options)
    assert not failed.is_success
    assert not lake.at().exists("report.txt")
    lake.settings.unprotect("main")
    from_failure = dg.ReexecutionOptions.from_failure(failed.run_id, instance)
    assert execute(instance, page, "nightly", **options, reexecution_options=from_failure).is_success
    assert bytes(lake.at().get("report.txt")) == b"fine"
    assert len(lake.log()) == 2
    (stats,) = instance.get_run_step_stats(instance.get_runs(limit=1)[0].run_id)
    assert stats.step_key == "published"


def test_alerts(lake: Lake, instance: dg.DagsterInstance) -> None:
    names = run_blocks("how-to/alerts.md")
    dg.Definitions.validate_loadable(names["defs"])
    names["alert"](SessionAlert("stale", "run-1", "1", "its time is up"))
    assert names["alert_lines"] == ["stale: its time is up (run 1)"]
    lake.settings.protect("main")
    failed = execute(instance, "how-to/publish-a-run.md", "nightly", raise_on_error=False)
    with _failure(instance, failed, names["defs"]) as context:
        by_name(names["defs"].sensors, "lake_sessions_on_failure")(context)
    assert len(names["alert_lines"]) == 2
    assert names["alert_lines"][1].startswith("publish_failed: ")
    job = names["defs"].resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(instance=instance).success
    assert names["alert_lines"][2] == names["alert_lines"][1]


def _failure(instance: dg.DagsterInstance, run: dg.DagsterRun, defs: dg.Definitions) -> Any:
    event = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)[-1].dagster_event
    assert event is not None
    return dg.build_run_status_sensor_context("x", event, instance, run, resources=dict(defs.resources or {}))


def test_land_any_shape(lake: Lake, instance: dg.DagsterInstance) -> None:
    page = "how-to/land-any-shape.md"
    landing = Path("landing/events")
    landing.mkdir(parents=True)
    defs = run_blocks(page)["defs"]
    sensor, resources = by_name(defs.sensors, "events_landing_zone"), dict(defs.resources)
    events, table = (found for found in defs.assets)

    def land(name: str, text: str) -> None:
        (landing / name).write_text(text)
        (request,) = sensor_tick(sensor, {"lake": resources["lake"]}, instance).run_requests
        for assets, tags in (([events], dict(request.tags)), ([events, table], {})):
            assert dg.materialize(
                assets, selection=[assets[-1]], resources=resources, instance=instance, tags=tags
            ).success

    land("a.ndjson", '{"ts": "2025-01-02T00:00:00Z", "level": "info"}\n{"ts": "2025-01-01T00:00:00Z"}\n')
    assert rows(lake) == {"tables/table_of_events": 2}
    land("b.ndjson", '{"ts": "2025-01-01T12:00:00Z", "request": {"status": 200}}\n')
    read = lake.delta("tables/table_of_events").to_arrow().sort_by("ts").to_pylist()
    assert [(row["level"], row["request"]) for row in read] == [(None, None), (None, {"status": 200}), ("info", None)]
    assert [record["ts"] for record in lake.pool("tables/events").scan().records()] == sorted(
        (row["ts"].timestamp() * 10**9 for row in read), reverse=True
    )
    assert isinstance(sensor_tick(sensor, {"lake": resources["lake"]}, instance), dg.SkipReason)


def test_land_files(lake: Lake, instance: dg.DagsterInstance) -> None:
    page = "how-to/land-files.md"
    Path("landing/events").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), "landing/events/a.parquet")
    defs = run_blocks(page)["defs"]
    (sensor,) = defs.sensors

    def requests() -> list[dg.RunRequest]:
        result = sensor_tick(sensor, dict(defs.resources), instance)
        return list(result.run_requests or ()) if isinstance(result, dg.SensorResult) else []

    (request,) = requests()
    assert execute(instance, page, tags=dict(request.tags)).is_success
    assert requests() == []
    assert rows(lake) == {"tables/events": 2}
    assert execute(instance, page, tags=dict(request.tags)).is_success
    assert rows(lake) == {"tables/events": 2}
    assert any(Path("lake/_landing/events").iterdir())


def test_react_to_changes(lake: Lake, instance: dg.DagsterInstance) -> None:
    defs = run_blocks("how-to/react-to-changes.md")["defs"]
    dg.Definitions.validate_loadable(defs)
    changes, branches = by_name(defs.sensors, "table_changes"), by_name(defs.sensors, "lake_branches")
    before = sensor_tick(changes, dict(defs.resources), instance)
    with lake.session() as session:
        session.create_delta("shared/orders", pa.schema([("id", pa.int64())])).append(pa.table({"id": [1]}))
    result = sensor_tick(changes, dict(defs.resources), instance, before.cursor)
    assert [request.run_key for request in result.run_requests] == [lake.list_branches()["main"]]
    assert [event.asset_key for event in result.asset_events] == [dg.AssetKey("orders")]
    lake.create_branch("pr-7")
    lake.create_branch("other")
    assert [r.tags["lake/branch"] for r in sensor_tick(branches, dict(defs.resources), instance).run_requests] == [
        "pr-7"
    ]


def test_automation(lake: Lake, instance: dg.DagsterInstance) -> None:
    page = "how-to/automation.md"
    defs = run_blocks(page)["defs"]
    dg.Definitions.validate_loadable(defs)

    def tick(cursor: Any = None) -> Any:
        return dg.evaluate_automation_conditions(defs, instance, cursor=cursor)

    revenue, first = dg.AssetKey("revenue"), tick()
    lake.settings.protect("main")
    failed = execute(instance, page, asset_selection=[dg.AssetKey("orders")], raise_on_error=False)
    assert not failed.is_success
    assert instance.get_latest_materialization_event(dg.AssetKey("orders")) is not None
    second = tick(first.cursor)
    assert second.get_num_requested(revenue) == 0, "staged is not published"
    lake.settings.unprotect("main")
    execute(instance, "how-to/recover-a-publish.md", "lake_recover")
    assert tick(second.cursor).get_num_requested(revenue) == 1


def test_freshness(lake: Lake, instance: dg.DagsterInstance) -> None:
    page = "how-to/freshness.md"

    def last() -> list[bool]:
        keys = [dg.AssetCheckKey(dg.AssetKey("orders"), name) for name in ("published", "published_freshness")]
        records = [instance.get_latest_asset_check_evaluation_record(key) for key in keys]
        return [record is not None and record.status.value == "SUCCEEDED" for record in records]

    lake.settings.protect("main")
    assert not execute(instance, page, asset_selection=[dg.AssetKey("orders")], raise_on_error=False).is_success
    assert execute(instance, page, "checks").is_success
    assert last() == [False, False]
    lake.settings.unprotect("main")
    execute(instance, "how-to/recover-a-publish.md", "lake_recover")
    assert last() == [True, True]


def test_maintain_tables(lake: Lake) -> None:
    defs = run_blocks("how-to/maintain-tables.md")["defs"]
    dg.Definitions.validate_loadable(defs)
    crons = {schedule.name: schedule.cron_schedule for schedule in defs.schedules}
    assert crons["maintenance_compaction_schedule"] == "0 * * * *"
    assert crons["maintenance_vacuum_schedule"] == "0 3 * * *"
    assert len(crons) == 10
    assert len(defs.assets) == 10


def test_rename_or_delete_an_asset(lake: Lake, instance: dg.DagsterInstance) -> None:
    @dg.asset(metadata={"lake/path": "tables/orders"})
    def orders() -> pa.Table:
        return pa.table({"id": [1]})

    from lake_orch import DeltaIOManager, LakeResource

    resources = {"io_manager": DeltaIOManager(lake=LakeResource(root="lake"))}
    assert dg.materialize([orders], resources=resources, instance=instance).success
    with lake.session() as session:
        session.create_delta("tables/old_orders", pa.schema([("id", pa.int64())]))
    run_blocks("how-to/rename-or-delete-an-asset.md")["drop_old_orders"]()
    assert rows(lake) == {"tables/orders": 1}
    assert execute(instance, "how-to/rename-or-delete-an-asset.md").is_success, "the renamed asset takes the table over"
    assert rows(lake) == {"tables/orders": 3}


def test_backfill(lake: Lake, instance: dg.DagsterInstance) -> None:
    from lake_orch.jobs.backfill import merge_backfills

    page = "how-to/backfill.md"
    days = ["2024-01-01", "2024-01-03"]
    range_tags = {"dagster/asset_partition_range_start": days[0], "dagster/asset_partition_range_end": days[1]}
    assert execute(instance, page, asset_selection=[dg.AssetKey("at_once")], tags=range_tags).is_success
    assert rows(lake) == {"tables/at_once": 3}
    assert len(lake.log()) == 2, "one run, one commit"
    for day in days:
        tags = {"dagster/partition": day, "dagster/backfill": "b1"}
        assert execute(instance, page, asset_selection=[dg.AssetKey("daily")], tags=tags).is_success
    assert rows(lake) == {"tables/at_once": 3}
    assert rows(lake, "backfill-b1-into-main") == {"tables/at_once": 3, "tables/daily": 2}
    (backfill,) = merge_backfills(instance, lake)
    assert backfill.outcome == "unknown", "no daemon launched it here: tests/orch/test_daemon.py has one that does"


def test_branch_deployments(lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    page = "how-to/branch-deployments.md"
    monkeypatch.setenv("LAKE_BRANCH", "pr-7")
    assert execute(instance, page, "all").is_success
    assert rows(lake) == {}
    assert rows(lake, "pr-7") == {"tables/orders": 1}
    monkeypatch.setenv("LAKE_BRANCH", "main")
    names = run_blocks(page)
    config = {"ops": {"merge_branch": {"config": {"source": "pr-7"}}}}
    assert names["defs"].resolve_job_def("merge").execute_in_process(config, instance).success
    assert rows(lake) == {"tables/orders": 1}
    assert execute(instance, page, "all", tags={"lake/branch": "pr-7"}).is_success
    assert rows(lake) == {"tables/orders": 1}
    assert rows(lake, "pr-7") == {"tables/orders": 2}


def test_keep_history(lake: Lake, instance: dg.DagsterInstance) -> None:
    def history(customers: str) -> list[tuple[int, str, bool]]:
        Path("customers.csv").write_text(f"id,name,city\n{customers}")
        assert execute(instance, "how-to/keep-history.md", "daily").is_success
        records = lake.delta("tables/customer_history").to_arrow().to_pylist()
        return sorted((row["id"], row["city"], row["valid_to"] is None) for row in records)

    assert history("1,ann,Ulm\n2,bob,Bonn\n") == [(1, "Ulm", True), (2, "Bonn", True)]
    assert history("1,ann,Ulm\n2,bob,Kiel\n") == [(1, "Ulm", True), (2, "Bonn", False), (2, "Kiel", True)]
    third = [(1, "Ulm", False), (2, "Bonn", False), (2, "Kiel", True), (3, "Jena", True)]
    assert history("2,bob,Kiel\n3,eve,Jena\n") == third
    assert history("2,bob,Kiel\n3,eve,Jena\n") == third
    assert lake.delta("tables/customer_history").schema.names == ["id", "name", "city", "valid_from", "valid_to"]


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")
def test_virtual_cubes(lake: Lake, instance: dg.DagsterInstance) -> None:
    page = "how-to/virtual-cubes.md"
    archive = Path("archive")
    archive.mkdir()

    def file(day: int) -> Path:
        times = [np.datetime64("2026-01-01", "ns") + day * np.timedelta64(1, "D")]
        values = np.full((1, 2, 3), day, "f4")
        coordinates = {"time": times, "lat": [0.0, 1.0], "lon": [0.0, 1.0, 2.0]}
        dataset = xr.Dataset({"sst": (("time", "lat", "lon"), values)}, coordinates)
        dataset.to_netcdf(archive / f"{day}.nc", engine="h5netcdf", encoding={"sst": {"zlib": True}})
        return archive / f"{day}.nc"

    def refresh() -> tuple[bool, int]:
        run = execute(instance, page, "refresh")
        records = instance.fetch_materializations(dg.AssetKey("sea_surface"), limit=1).records
        added = records[0].asset_materialization.metadata["new files"].value  # type: ignore[union-attr]
        checks = instance.event_log_storage.get_asset_check_execution_history(
            dg.AssetCheckKey(dg.AssetKey("sea_surface"), "files_are_as_they_were"), limit=1
        )
        assert run.is_success
        return checks[0].event.asset_check_evaluation.passed, added  # type: ignore[union-attr, return-value]

    first = file(0)
    assert refresh() == (True, 1)
    file(1)
    file(2)
    assert refresh() == (True, 2)
    assert refresh() == (True, 0)
    assert run_blocks(page)["temperatures"]("2026-01-02").values.tolist() == [[1.0] * 3] * 2
    later = first.stat().st_mtime + 60
    os.utime(first, (later, later))
    assert refresh() == (False, 0)


def test_several_tables(lake: Lake, instance: dg.DagsterInstance) -> None:
    assert execute(instance, "how-to/several-tables.md", "all").is_success
    assert rows(lake) == {"tables/orders": 2, "tables/rejected": 1}
    assert len(lake.log()) == 2
    assert bytes(lake.at().get("reports/load.json")) == b'{"rejected": 1}'


def test_op_jobs(lake: Lake, instance: dg.DagsterInstance) -> None:
    assert execute(instance, "how-to/op-jobs.md", "by_ops").is_success
    assert rows(lake) == {"tables/counts": 1, "tables/made": 2}
    assert len(lake.log()) == 2


def test_test_pipelines(lake: Lake) -> None:
    run_blocks("how-to/test-pipelines.md")
    assert rows(lake) == {"tables/orders": 2}


def test_read_from_outside(lake: Lake) -> None:
    for number in range(2):
        with lake.session() as session:
            table = session.create_delta("tables/orders", pa.schema([("id", pa.int64())]), exist_ok=True)
            table.append(pa.table({"id": [number]}))
            session.put("reports/today.json", b"%d" % number)
    lake.create_tag("v1", at="main~1")
    names = run_blocks("how-to/read-from-outside.md")
    assert len(names["orders"]) == len(names["checked_out"]) == 2
    assert bytes(names["report"]) == b"1"
    assert len(names["before"].delta("tables/orders").to_arrow()) == 1
    spec = dg.AssetSpec("orders").with_io_manager_key("io_manager")
    assert dg.materialize([names["since_v1"], spec], resources={"io_manager": names["elsewhere"]}).success
    assert rows(lake)["tables/since_v1"] == 1


def test_catalogs(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    with lake.session() as session:
        session.create_delta("tables/orders", pa.schema([("id", pa.int64())]))
    names = run_blocks("how-to/catalogs.md")
    dg.Definitions.validate_loadable(names["defs"])
    from tests.catalog.memory_catalog import MemoryCatalog

    names["catalog"] = MemoryCatalog()
    names["sync"]()
    assert capsys.readouterr().out == "create orders\n"


def test_every_page_has_a_test() -> None:
    folders = (Path(__file__).parent, ROOT / "tests" / "airflow")
    code = "\n".join(test.read_text() for folder in folders for test in folder.glob("test_*.py"))
    tested = set(re.findall(r"\"(how-to/[a-z-]+\.md)\"", code))
    assert HOW_TO
    assert set(HOW_TO) <= tested
    index = (DOCS / "how-to" / "README.md").read_text()
    assert all(f"({Path(page).name})" in index for page in HOW_TO)


def test_examples_that_do_not_run_say_why() -> None:
    reasons: dict[str, list[str]] = {}
    for page in sorted(DOCS.rglob("*.md")):
        name = str(page.relative_to(DOCS))
        for block in blocks(name):
            if block.reason is not None:
                reasons.setdefault(name, []).append(block.reason)
    assert reasons == NOT_RUN


def test_the_examples_of_every_page_are_run() -> None:
    folders = [ROOT / "tests" / name for name in ("docs", "spark", "airflow")]
    code = "\n".join(test.read_text() for folder in folders for test in folder.glob("test_*.py"))
    pages = [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")]
    with_examples = ["../README.md", *(page for page in pages if any(blocks(page)))]
    assert len(with_examples) >= 20
    assert [page for page in with_examples if f'"{page}"' not in code] == []


def test_links_lead_somewhere() -> None:
    broken = []
    for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]:
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = target.partition("#")
            if "://" in target:
                continue
            linked = (page.parent / path).resolve() if path else page
            if not linked.exists() or (anchor and anchor not in _anchors(linked)):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
