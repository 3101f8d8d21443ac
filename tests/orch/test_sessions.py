"""A run as one session: published whole at its end or not at all, resumed from failure, fenced, gated."""

from __future__ import annotations

import dagster as dg
import pytest
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill

from lake_orch.jobs.backfill import merge_backfills
from lake_orch.tags import EPOCH_TAG
from tests.orch.session_bench import ALL, Bench, of


def check_published(bench: Bench, round_number: int = 0) -> None:
    for step in ("orders", "lines", "totals"):
        assert bench.rows(step) == of(step, round_number)
        assert bench.plain(step) == 3
    assert bench.rows("stock") == of("stock", round_number, times=2)


def test_a_run_is_published_whole_at_its_end(bench: Bench) -> None:
    run = bench.run()
    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert bench.state(run) == "published"
    assert run.tags[EPOCH_TAG] == "1"
    check_published(bench)
    head, *_, first = bench.lake.log()
    assert head.parents == (first.id,), "one commit holds all of the run"
    counts = bench.lake.delta("tables/totals").to_arrow()["seen"].to_pylist()
    assert counts == [3, 3, 3], "a step sees what the steps before it staged"
    for step in ALL:
        event = bench.instance.get_latest_materialization_event(dg.AssetKey(step))
        assert event is not None
        assert event.asset_materialization is not None
        metadata = event.asset_materialization.metadata
        assert metadata["lake/session"].value == bench.session(run)
        (record,) = bench.instance.fetch_observations(dg.AssetKey(step), limit=5).records
        observed = record.event_log_entry.asset_observation
        assert observed is not None
        observation = {name: value.value for name, value in observed.metadata.items()}
        assert observation["lake/state"] == "published"
        assert observation["lake/commit"] == head.id
        assert observation["lake/branch"] == "main"
        assert observation["lake/version"] == bench.lake.delta(f"tables/{step}").version


@pytest.mark.parametrize(
    "step", [*(pytest.param(step, marks=pytest.mark.exhaustive) for step in ("lines", "stock")), "totals"]
)
def test_a_failed_run_leaves_main_and_is_resumed(bench: Bench, step: str) -> None:
    bench.wish(**{step: "fail"})
    failed = bench.run()
    assert failed.status is dg.DagsterRunStatus.FAILURE
    assert bench.state(failed) == "failed"
    assert [bench.rows(table) for table in ALL] == [[], [], [], []]
    assert bench.rows("orders", bench.session(failed)) == of("orders"), "what was staged can be read"
    bench.wish()
    resumed = bench.resume(failed)
    assert resumed.status is dg.DagsterRunStatus.SUCCESS
    assert (bench.session(resumed), resumed.tags[EPOCH_TAG]) == (bench.session(failed), "2")
    check_published(bench)


@pytest.mark.extended
def test_a_run_of_all_steps_starts_over(bench: Bench) -> None:
    first = bench.run()
    bench.wish(round=1)
    again = bench.run(reexecution_options=dg.ReexecutionOptions(first.run_id))
    assert again.status is dg.DagsterRunStatus.SUCCESS
    assert bench.session(again) != bench.session(first)
    assert bench.rows("orders") == sorted(of("orders") + of("orders", 1))


def test_a_run_that_was_killed_after_it_was_published_is_not_repeated(bench: Bench) -> None:
    killed = bench.run()
    bench.instance.report_run_failed(killed, "the worker is gone before it said that it has succeeded")
    for parent in (killed, bench.run(reexecution_options=dg.ReexecutionOptions(killed.run_id))):
        again = bench.run(reexecution_options=dg.ReexecutionOptions(parent.run_id))
        assert "which has failed, but session" in bench.error(again)
        assert bench.rows("orders") == of("orders")
    assert bench.run().is_success
    assert bench.rows("orders") == of("orders", times=2), "a new run appends"


def test_a_blocking_check_holds_the_run_back_until_it_is_mended(bench: Bench) -> None:
    bench.wish(lines_seen="fail")
    failed = bench.run()
    assert failed.status is dg.DagsterRunStatus.FAILURE
    assert bench.state(failed) == "failed"
    assert bench.rows("orders") == []
    bench.wish()
    resumed = bench.resume(failed)
    assert resumed.status is dg.DagsterRunStatus.SUCCESS
    check_published(bench)


@pytest.mark.extended
def test_other_checks_gate_where_the_policy_says_so(bench: Bench) -> None:
    bench.wish(totals_fine="fail")
    strict = bench.run("strict")
    assert strict.status is dg.DagsterRunStatus.FAILURE
    assert bench.state(strict) == "failed"
    assert "totals:totals_fine" in bench.error(strict)
    assert "re-execute" in bench.error(strict)
    assert bench.rows("orders") == []
    lenient = bench.run()
    assert lenient.status is dg.DagsterRunStatus.SUCCESS
    check_published(bench)


def test_steps_that_a_killed_run_has_published_are_not_repeated(bench: Bench) -> None:
    killed = bench.run()
    bench.instance.report_run_failed(killed, "the worker is gone before it said that it has succeeded")
    some = dg.ReexecutionOptions(killed.run_id, step_selection=["orders"])
    assert "which has failed, but session" in bench.error(bench.run(reexecution_options=some))
    other = bench.run(reexecution_options=dg.ReexecutionOptions(killed.run_id), tags={"lake/scope": "asset"})
    assert "which has failed, but session" in bench.error(other)
    assert bench.rows("orders") == of("orders")


def test_a_gathered_backfill_waits_for_what_a_run_has_not_published(bench: Bench) -> None:
    record = PartitionBackfill(
        backfill_id="abcdefgh",
        status=BulkActionStatus.COMPLETED_FAILED,
        from_failure=False,
        tags={},
        backfill_timestamp=0.0,
    )
    bench.instance.add_backfill(record)
    tags = {"dagster/backfill": "abcdefgh", "lake/backfills": "gather"}
    assert bench.run(tags=tags).is_success
    bench.lake.settings.protect("backfill-abcdefgh-into-main")
    bench.wish(round=1)
    refused = bench.run(tags=tags)
    assert not refused.is_success, "all of its steps have succeeded"
    bench.lake.settings.unprotect("backfill-abcdefgh-into-main")
    (outcome,) = merge_backfills(bench.instance, bench.lake)
    assert outcome.outcome == "failed"
    bench.lake.get_session(bench.session(refused)).publish()
    (outcome,) = merge_backfills(bench.instance, bench.lake)
    assert outcome.outcome == "merged"
    assert bench.rows("orders") == sorted(of("orders") + of("orders", 1))


@pytest.mark.parametrize(
    ("tags", "error"),
    [
        ({"lake/scope": "asset", "lake/gate": "error"}, "set the tag lake/scope to 'run'"),
        ({"lake/backfills": "gathr"}, "use 'gather' or 'publish'"),
    ],
)
def test_a_tag_without_effect_is_refused(bench: Bench, tags: dict[str, str], error: str) -> None:
    failed = bench.run(tags=tags)
    assert failed.status is dg.DagsterRunStatus.FAILURE
    assert error in bench.error(failed)
    assert [bench.rows(table) for table in ALL] == [[], [], [], []]


def test_a_run_can_be_asked_to_publish_asset_by_asset(bench: Bench) -> None:
    bench.wish(totals="fail")
    failed = bench.run(tags={"lake/scope": "asset"})
    assert failed.status is dg.DagsterRunStatus.FAILURE
    assert "lake/session" not in failed.tags
    assert [bench.rows(step) for step in ("orders", "lines", "totals")] == [of("orders"), of("lines"), []]
    bench.wish()
    resumed = bench.run(
        tags={"lake/scope": "asset"},
        reexecution_options=dg.ReexecutionOptions.from_failure(failed.run_id, bench.instance),
    )
    assert resumed.status is dg.DagsterRunStatus.SUCCESS
    check_published(bench)
