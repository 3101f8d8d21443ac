"""A run as one session: published whole at its end or not at all, resumed from failure, fenced, gated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable

ALL = ["lines", "orders", "stock", "totals"]


class Bench:
    """An instance, a lake, and what the pipeline is to do."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance) -> None:
        self.folder, self.instance = folder, instance
        self.lake = Lake.create(folder / "lake")

    def wish(self, **wishes: Any) -> None:
        (self.folder / "wish.json").write_text(json.dumps(wishes))

    def job(self, name: str = "all", in_process: bool = True) -> Any:
        kwargs = {"folder": str(self.folder), "name": name, "in_process": in_process}
        return dg.build_reconstructable_job("tests.orch.session_pipeline", "job", reconstructable_kwargs=kwargs)

    def run(self, name: str = "all", *, tags: dict[str, str] | None = None, in_process: bool = True, **options: Any) -> dg.DagsterRun:
        with dg.execute_job(self.job(name, in_process), instance=self.instance, tags=tags, **options) as result:
            return self.run_of(result.run_id)

    def resume(self, run: dg.DagsterRun, name: str = "all") -> dg.DagsterRun:
        return self.run(name, reexecution_options=dg.ReexecutionOptions.from_failure(run.run_id, self.instance))

    def run_of(self, id: str) -> dg.DagsterRun:
        run = self.instance.get_run_by_id(id)
        assert run is not None
        return run

    def rows(self, table: str, ref: str = "main") -> list[str]:
        """The rows of a table, as an id and where it is from."""
        state = self.lake.at(ref)
        if f"tables/{table}" not in state.datasets():
            return []
        found = state.delta(f"tables/{table}").to_arrow()
        return sorted(f"{of}-{id}" for of, id in zip(found["of"].to_pylist(), found["id"].to_pylist(), strict=True))

    def plain(self, table: str) -> int:
        """How many rows any Delta reader finds in place."""
        url = f"{self.folder}/lake/tables/{table}"
        return len(DeltaTable.open(url).to_arrow()) if DeltaTable.exists(url) else 0

    def session(self, run: dg.DagsterRun) -> str:
        return run.tags["lake/session"]

    def state(self, run: dg.DagsterRun) -> str:
        return self.lake.session_record(self.session(run)).state

    def error(self, run: dg.DagsterRun) -> str:
        entries = self.instance.all_logs(run.run_id)
        return "\n".join(str(entry.dagster_event.event_specific_data) for entry in entries if entry.dagster_event)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    with dg.DagsterInstance.from_config(str(tmp_path / "home")) as instance:
        yield Bench(tmp_path, instance)


def of(step: str, round: int = 0, times: int = 1) -> list[str]:
    return sorted([f"{step}{round}-{id}" for id in range(3)] * times)


def check_published(bench: Bench, round: int = 0) -> None:
    for step in ("orders", "lines", "totals"):
        assert bench.rows(step) == of(step, round)
        assert bench.plain(step) == 3
    assert bench.rows("stock") == of("stock", round, times=2)


def test_a_run_is_published_whole_at_its_end(bench: Bench) -> None:
    run = bench.run()
    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert bench.state(run) == "published" and run.tags["lake/epoch"] == "1"
    check_published(bench)
    head, *_, first = bench.lake.log()
    assert head.parents == (first.id,), "one commit holds all of the run"
    seen = bench.lake.delta("tables/totals").to_arrow()["seen"].to_pylist()
    assert seen == [3, 3, 3], "a step sees what the steps before it staged"
    for step in ALL:
        event = bench.instance.get_latest_materialization_event(dg.AssetKey(step))
        assert event is not None and event.asset_materialization is not None
        metadata = event.asset_materialization.metadata
        assert (metadata["lake/state"].value, metadata["lake/session"].value) == ("staged", bench.session(run))
        (record,) = bench.instance.fetch_observations(dg.AssetKey(step), limit=5).records
        observed = record.event_log_entry.asset_observation
        assert observed is not None
        told = {name: value.value for name, value in observed.metadata.items()}
        assert told["lake/state"] == "published" and told["lake/commit"] == head.id and told["lake/branch"] == "main"
        assert told["lake/version"] == bench.lake.delta(f"tables/{step}").version


@pytest.mark.parametrize("step", ["lines", "totals", "stock"])
def test_a_failed_run_leaves_main_and_is_resumed(bench: Bench, step: str) -> None:
    bench.wish(**{step: "fail"})
    failed = bench.run()
    assert failed.status is dg.DagsterRunStatus.FAILURE and bench.state(failed) == "failed"
    assert [bench.rows(table) for table in ALL] == [[], [], [], []]
    assert bench.rows("orders", bench.session(failed)) == of("orders"), "what was staged can be read"
    bench.wish()
    resumed = bench.resume(failed)
    assert resumed.status is dg.DagsterRunStatus.SUCCESS
    assert (bench.session(resumed), resumed.tags["lake/epoch"]) == (bench.session(failed), "2")
    check_published(bench)


def test_a_run_of_all_steps_starts_over(bench: Bench) -> None:
    first = bench.run()
    bench.wish(round=1)
    again = bench.run(reexecution_options=dg.ReexecutionOptions(first.run_id))
    assert again.status is dg.DagsterRunStatus.SUCCESS and bench.session(again) != bench.session(first)
    assert bench.rows("orders") == sorted(of("orders") + of("orders", 1))


def test_a_blocking_check_holds_the_run_back_until_it_is_mended(bench: Bench) -> None:
    bench.wish(lines_seen="fail")
    failed = bench.run()
    assert failed.status is dg.DagsterRunStatus.FAILURE and bench.state(failed) == "failed"
    assert bench.rows("orders") == []
    bench.wish()
    resumed = bench.resume(failed)
    assert resumed.status is dg.DagsterRunStatus.SUCCESS
    check_published(bench)


def test_other_checks_gate_where_the_policy_says_so(bench: Bench) -> None:
    bench.wish(totals_fine="fail")
    strict = bench.run("strict")
    assert strict.status is dg.DagsterRunStatus.FAILURE and bench.state(strict) == "failed"
    assert "totals:totals_fine" in bench.error(strict) and "re-execute" in bench.error(strict)
    assert bench.rows("orders") == []
    lenient = bench.run()
    assert lenient.status is dg.DagsterRunStatus.SUCCESS
    check_published(bench)


def test_a_run_can_be_asked_to_publish_asset_by_asset(bench: Bench) -> None:
    bench.wish(totals="fail")
    failed = bench.run(tags={"lake/scope": "asset"})
    assert failed.status is dg.DagsterRunStatus.FAILURE and "lake/session" not in failed.tags
    assert [bench.rows(step) for step in ("orders", "lines", "totals")] == [of("orders"), of("lines"), []]
    bench.wish()
    resumed = bench.run(tags={"lake/scope": "asset"}, reexecution_options=dg.ReexecutionOptions.from_failure(failed.run_id, bench.instance))
    assert resumed.status is dg.DagsterRunStatus.SUCCESS
    check_published(bench)
