"""Runs that go on where a failed one stopped, by the buttons of the UI: published is what the last tries made."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.execution.plan.resume_retry import ReexecutionStrategy

from lake_core import Lake
from lake_core.journal import Delete, Update
from lake_core.lake.errors import StaleEpoch
from lake_orch import LakeResource, testing
from lake_orch.dagster.runs.recovery import recover, settle
from lake_orch.errors import StepsLeftOut, UpstreamUnpublished
from lake_orch.jobs import executor
from lake_orch.jobs.backfill import merge_backfills
from lake_orch.tags import EPOCH_TAG
from tests.orch.user_interface import UserInterface, user_interface

ALL = ["orders", "totals", "later"]
KEEP = timedelta(hours=1)


class Reruns:
    """A lake and a UI, and what the pipeline is told."""

    def __init__(self, folder: Path, ui: UserInterface) -> None:
        self.folder, self.ui = folder, ui
        self.lake = Lake.open(folder / "lake")

    def fail(self, *names: str) -> None:
        for name in names:
            (self.folder / f"fail-{name}").touch()

    def mend(self) -> None:
        for file in self.folder.glob("fail-*"):
            file.unlink()

    def rows(self, path: str, ref: str = "main") -> list[dict[str, Any]]:
        state = self.lake.at(ref)
        if path not in state.datasets():
            return []
        return sorted(state.delta(path).to_arrow().to_pylist(), key=repr)

    def days(self, path: str) -> list[str]:
        return [row["day"] for row in self.rows(path)]

    def log(self, run: dg.DagsterRun) -> str:
        entries = self.ui.instance.all_logs(run.run_id)
        return "\n".join(
            (entry.dagster_event.message if entry.dagster_event else None) or entry.user_message for entry in entries
        )

    def kept(self) -> list[str]:
        return [record.id for record in self.lake.list_sessions()]


Start = Callable[..., Reruns]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start a UI and a lake, with a setting of backfills."""
    with ExitStack() as stack:

        def started(backfills: str = "publish") -> Reruns:
            Lake.create(tmp_path / "lake")
            monkeypatch.setenv("RERUN_FOLDER", str(tmp_path))
            monkeypatch.setenv("RERUN_BACKFILLS", backfills)
            # Dagster loads a module of one name once.
            script = tmp_path / f"pipeline_{tmp_path.name}.py"
            shutil.copy(Path(__file__).parent / "rerun_pipeline.py", script)
            return Reruns(tmp_path, stack.enter_context(user_interface(tmp_path / "home", script)))

        yield started


def test_a_backfill_from_failure_takes_up_the_failed_session(start: Start) -> None:
    reruns = start()
    reruns.fail("totals-b")
    first = reruns.ui.backfill(ALL, ["a", "b", "c"])
    assert reruns.days("tables/orders") == ["a", "a", "c", "c"]
    reruns.mend()
    reruns.ui.backfill_again(first)
    assert reruns.rows("tables/totals") == [{"day": day, "total": 30} for day in "abc"]
    assert reruns.days("tables/orders") == ["a", "a", "b", "b", "c", "c"]
    assert reruns.days("tables/later") == ["a", "b", "c"]
    assert reruns.kept() == []


def test_the_rest_of_a_failed_run_is_asked_for_by_hand(start: Start) -> None:
    reruns = start()
    reruns.fail("totals-b")
    failed = reruns.ui.launch(ALL, "b")
    reruns.mend()
    assert reruns.ui.launch(["totals", "later"], "b").is_success
    assert reruns.rows("tables/totals") == [{"day": "b", "total": 30}]
    assert reruns.days("tables/orders") == ["b", "b"]
    assert reruns.lake.get_session(failed.tags["lake/session"]).record.is_published


def test_a_part_of_the_rest_is_refused(start: Start) -> None:
    """It would publish a failed run's orders without what belongs to them, or count over no rows."""
    reruns = start()
    reruns.fail("totals-b")
    reruns.ui.launch(ALL, "b")
    reruns.mend()
    run = reruns.ui.launch(["totals"], "b")
    assert run.status is dg.DagsterRunStatus.FAILURE
    assert UpstreamUnpublished.__name__ in reruns.ui.errors(run)
    assert reruns.rows("tables/totals") == []


def test_the_code_of_a_step_does_not_read_what_is_only_staged(start: Start) -> None:
    reruns = start()
    assert reruns.ui.launch(["orders"], "a").is_success
    reruns.fail("totals-b")
    reruns.ui.launch(ALL, "b")
    run = reruns.ui.launch(["by_hand"], "b")
    assert UpstreamUnpublished.__name__ in reruns.ui.errors(run)
    assert reruns.ui.launch(["by_hand"], "a").is_success


def test_another_day_is_not_the_rest(start: Start) -> None:
    reruns = start()
    reruns.fail("totals-b")
    failed = reruns.ui.launch(ALL, "b")
    reruns.mend()
    assert reruns.ui.launch(ALL, "a").is_success
    assert reruns.kept() == [failed.tags["lake/session"]]


def test_what_was_made_anew_is_not_taken_up(start: Start) -> None:
    """The failed run's orders are older than those that are published now."""
    reruns = start()
    reruns.fail("totals-b")
    failed = reruns.ui.launch(ALL, "b")
    reruns.mend()
    assert reruns.ui.launch(["orders"], "b").is_success
    run = reruns.ui.launch(["totals", "later"], "b")
    assert run.is_success
    assert run.tags["lake/session"] != failed.tags["lake/session"]
    assert reruns.days("tables/orders") == ["b", "b"]


def test_a_session_in_which_nothing_succeeded_is_not_taken_up(start: Start) -> None:
    """It would read what there was when it was opened, and nothing is saved by it."""
    reruns = start()
    reruns.fail("orders-b")
    failed = reruns.ui.launch(ALL, "b")
    reruns.mend()
    run = reruns.ui.launch(ALL, "b")
    assert run.is_success
    assert run.tags["lake/session"] != failed.tags["lake/session"]


def test_a_session_that_is_older_than_what_the_run_reads_is_not_taken_up(start: Start) -> None:
    reruns = start()
    assert reruns.ui.launch(["orders"], "b").is_success
    reruns.fail("later-b")
    failed = reruns.ui.launch(["totals", "later", "by_hand"], "b")
    assert reruns.ui.launch(["orders"], "b").is_success
    reruns.mend()
    run = reruns.ui.launch(["later"], "b")
    assert not run.is_success or run.tags["lake/session"] == failed.tags["lake/session"]
    assert reruns.ui.launch(["totals", "later"], "b").is_success
    assert reruns.rows("tables/totals") == [{"day": "b", "total": 30}]


@pytest.mark.parametrize("gathers", [True, False])
def test_rows_on_another_branch_are_not_read_as_none(start: Start, gathers: bool) -> None:
    reruns = start("gather" if gathers else "publish")
    if gathers:
        reruns.fail("orders-a")
        reruns.ui.backfill(["orders"], ["a", "b"])
    else:
        reruns.lake.create_branch("dev")
        assert reruns.ui.launch(["orders"], "b", lake__branch="dev").is_success
    run = reruns.ui.launch(["totals"], "b")
    assert "Merge it into main" in reruns.ui.errors(run)
    (branch,) = set(reruns.lake.list_branches()) - {"main"}
    reruns.lake.merge(branch)
    assert reruns.ui.launch(["totals"], "b").is_success
    assert reruns.rows("tables/totals") == [{"day": "b", "total": 30}]


def test_what_a_shell_has_published_is_read_although_nobody_observed_it(start: Start) -> None:
    reruns = start()
    reruns.fail("totals-b")
    failed = reruns.ui.launch(ALL, "b")
    session = failed.tags["lake/session"]
    reruns.lake.get_session(session).publish()
    reruns.mend()
    journal = reruns.lake.repository.journal
    journal.append(lambda _: [Delete(f"session/{session}")])  # as a collection does, some weeks later
    assert reruns.ui.launch(["totals"], "b").is_success
    assert reruns.rows("tables/totals") == [{"day": "b", "total": 30}]


def test_assets_that_a_step_writes_by_hand_stay_where_dagster_asks_for_the_others(start: Start) -> None:
    reruns = start()
    reruns.fail("right")
    failed = reruns.ui.launch(["left", "right"])
    reruns.mend()
    assert reruns.ui.again(failed, "FROM_ASSET_FAILURE").is_success
    assert [reruns.rows(f"tables/{name}") for name in ("left", "right")] == [[{"n": 1}]] * 2


def test_an_output_of_an_earlier_try_stays_if_a_step_has_used_it(start: Start) -> None:
    reruns = start()
    assert reruns.ui.launch(["early", "late", "after_early"]).is_success
    assert reruns.rows("tables/early") == reruns.rows("tables/after_early") == [{"n": 1}]


def test_an_output_of_an_earlier_try_is_left_out_if_nobody_has_used_it(start: Start) -> None:
    reruns = start()
    run = reruns.ui.launch(["early", "late"])
    assert run.is_success
    assert sorted(reruns.lake.at("main").datasets()) == ["tables/late"]
    assert "Left out of session" in reruns.log(run)


def test_an_output_of_an_earlier_try_stays_if_dagster_asks_for_the_others(start: Start) -> None:
    reruns = start()
    reruns.fail("late")
    failed = reruns.ui.launch(["early", "late"])
    reruns.mend()
    assert reruns.ui.again(failed, "FROM_ASSET_FAILURE").is_success
    assert sorted(reruns.lake.at("main").datasets()) == ["tables/early", "tables/late"]


def test_rows_of_an_abandoned_session_are_not_read_as_none(start: Start) -> None:
    reruns = start()
    reruns.fail("totals-b")
    failed = reruns.ui.launch(ALL, "b")
    reruns.lake.get_session(failed.tags["lake/session"]).abandon()
    reruns.mend()
    run = reruns.ui.launch(["totals", "later"], "b")
    assert run.status is dg.DagsterRunStatus.FAILURE
    assert "Materialize the asset again" in reruns.ui.errors(run)


def test_after_an_abandoned_session_older_rows_are_read_with_a_warning(start: Start) -> None:
    reruns = start()
    assert reruns.ui.launch(["orders"], "b").is_success
    reruns.fail("totals-b")
    failed = reruns.ui.launch(ALL, "b")
    reruns.mend()
    assert not reruns.ui.launch(["totals"], "b").is_success, "as long as the session is kept, somebody has to decide"
    reruns.lake.get_session(failed.tags["lake/session"]).abandon()
    run = reruns.ui.launch(["totals"], "b")
    assert run.is_success
    assert "older rows are read" in reruns.log(run)


def test_a_failed_session_of_another_branch_is_in_nobodys_way(start: Start) -> None:
    reruns = start()
    reruns.lake.create_branch("dev")
    assert reruns.ui.launch(["orders"], "b").is_success
    reruns.fail("totals-b")
    reruns.ui.launch(ALL, "b", lake__branch="dev")
    reruns.mend()
    assert reruns.ui.launch(["totals"], "b").is_success
    assert reruns.rows("tables/totals") == [{"day": "b", "total": 30}]


def test_a_branch_that_was_made_anew_lacks_what_the_earlier_one_had(start: Start) -> None:
    reruns = start()
    assert reruns.ui.launch(["orders"], "b").is_success
    reruns.lake.create_branch("pr")
    assert reruns.ui.launch(["orders"], "b", lake__branch="pr").is_success
    reruns.lake.delete_branch("pr")
    reruns.lake.create_branch("pr")
    run = reruns.ui.launch(["totals"], "b", lake__branch="pr")
    assert run.is_success
    assert "were on an earlier branch pr, which was deleted: older rows are read" in reruns.log(run)


def test_rows_of_a_deleted_branch_are_not_read_as_none_on_a_new_one(start: Start) -> None:
    reruns = start()
    reruns.lake.create_branch("pr")
    assert reruns.ui.launch(["orders"], "b", lake__branch="pr").is_success
    reruns.lake.delete_branch("pr")
    reruns.lake.create_branch("pr")
    run = reruns.ui.launch(["totals"], "b", lake__branch="pr")
    assert run.status is dg.DagsterRunStatus.FAILURE
    assert UpstreamUnpublished.__name__ in reruns.ui.errors(run)


# Workers that are taken for dead, and go on


def stall(reruns: Reruns, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[dg.DagsterRun], object]) -> None:
    """Let the next publish wait, while its run is marked failed, and something else is done."""
    publish = executor.publish_session

    def wait(instance: dg.DagsterInstance, *args: Any, **options: Any) -> Any:
        monkeypatch.setattr(executor, "publish_session", publish)
        (run,) = instance.get_runs(limit=1)
        instance.report_run_failed(run, "the worker does not answer")
        with ThreadPoolExecutor() as pool:  # a thread has an event loop of its own
            pool.submit(meanwhile, run).result()
        return publish(instance, *args, **options)

    monkeypatch.setattr(executor, "publish_session", wait)


@pytest.mark.parametrize("by", ["all steps", "a new run"])
def test_a_worker_that_goes_on_does_not_publish_what_was_done_again(
    start: Start, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    reruns = start()
    repeats: list[dg.DagsterRun] = []

    def do_again(run: dg.DagsterRun) -> None:
        repeats.append(reruns.ui.again(run, "ALL_STEPS") if by == "all steps" else reruns.ui.launch(["left"]))

    stall(reruns, monkeypatch, do_again)
    stalled = reruns.ui.launch(["left"])
    assert repeats[0].is_success
    assert stalled.status is dg.DagsterRunStatus.FAILURE
    assert StaleEpoch.__name__ in reruns.ui.errors(stalled)
    assert reruns.rows("tables/left") == [{"n": 1}]


def test_a_worker_that_goes_on_does_not_publish_what_its_page_calls_unpublished(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    reruns = start()
    stall(reruns, monkeypatch, lambda run: settle(reruns.ui.instance, reruns.lake, keep_failed_for=KEEP))
    stalled = reruns.ui.launch(["left"])
    assert "Nothing of this run is published" in reruns.log(stalled)
    assert reruns.rows("tables/left") == []
    (session,) = reruns.kept()
    recover(reruns.ui.instance, reruns.lake, session, gate="none", keep_failed_for=KEEP)
    assert reruns.rows("tables/left") == [{"n": 1}]


@pytest.mark.parametrize("by", ["a run without a session", "testing"])
def test_a_worker_that_goes_on_does_not_publish_beside_other_kinds_of_runs(
    start: Start, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    reruns = start()
    lake = LakeResource(root=reruns.lake.url)

    @dg.asset
    def left(lake: LakeResource) -> None:
        with lake.open().session() as session:
            session.delta("tables/left").append(pa.table({"n": [1]}))

    def do_again(run: dg.DagsterRun) -> None:
        if by == "testing":
            assert testing.materialize([left], resources={"lake": lake}, instance=reruns.ui.instance).success
        else:
            assert reruns.ui.launch(["left"], lake__scope="asset").is_success

    assert reruns.ui.launch(["left"]).is_success
    stall(reruns, monkeypatch, do_again)
    reruns.ui.launch(["left"])
    assert len(reruns.rows("tables/left")) == 1 + 1


def queued(reruns: Reruns, run: dg.DagsterRun) -> dg.DagsterRun:
    """Make the re-execution of all steps of a run, which waits."""
    request = reruns.ui._context.create_request_context()
    location = request.get_code_location("here")
    job = next(iter(location.get_repositories().values())).get_full_job(run.job_name)
    selector = job.get_subset_selector(asset_selection=run.asset_selection, asset_check_selection=None)
    re_execution: dg.DagsterRun = reruns.ui.instance.create_reexecuted_run(
        request_context=request,
        parent_run=run,
        code_location=location,
        remote_job=location.get_job(selector),
        strategy=ReexecutionStrategy.ALL_STEPS,
        use_parent_run_tags=True,
    )
    return re_execution


def test_a_run_that_was_made_before_its_parent_became_a_success_after_all_is_refused(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    reruns = start()
    again: list[dg.DagsterRun] = []
    stall(reruns, monkeypatch, lambda run: again.append(queued(reruns, reruns.ui._run(run.run_id))))
    assert reruns.ui.launch(["left"]).is_success
    context = reruns.ui._context.create_request_context()
    reruns.ui.instance.submit_run(again[0].run_id, context)
    assert reruns.ui._run(again[0].run_id).status is dg.DagsterRunStatus.FAILURE
    assert reruns.rows("tables/left") == [{"n": 1}]


def test_the_rest_is_asked_for_after_the_time_of_the_failed_session(start: Start) -> None:
    """Nobody has looked at the session since its time was up."""
    reruns = start()
    assert reruns.ui.launch(["orders"], "b").is_success
    reruns.fail("totals-b")
    failed = reruns.ui.launch(ALL, "b")
    reruns.mend()
    session = failed.tags["lake/session"]
    settled = replace(reruns.lake.get_session(session).record, expires=datetime(2020, 1, 1, tzinfo=UTC))
    reruns.lake.repository.journal.append(lambda state: [Update(settled.key, settled.to_json())])
    run = reruns.ui.launch(["totals", "later"], "b")
    assert run.is_success
    assert "older rows are read" in reruns.log(run)


def test_a_session_whose_resuming_run_died_before_it_said_so_is_settled(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    reruns = start()
    reruns.fail("totals-b")
    failed = reruns.ui.launch(ALL, "b")
    monkeypatch.setattr(dg.DagsterInstance, "add_run_tags", lambda self, run, tags: 1 / 0)
    assert not reruns.ui.again(failed).is_success
    (outcome,) = settle(reruns.ui.instance, reruns.lake, keep_failed_for=KEEP)
    assert outcome.outcome == "failed"


def test_a_worker_that_is_to_be_resumed_leaves_the_session_open(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    reruns = start()
    monkeypatch.setattr(dg.DagsterInstance, "run_will_resume", lambda self, run: True)

    def interrupt(*args: object, **options: object) -> None:
        raise dg.DagsterExecutionInterruptedError

    monkeypatch.setattr(executor, "publish_session", interrupt)
    run = reruns.ui.launch(["left"])
    assert reruns.lake.get_session(run.tags["lake/session"]).record.state == "open"
    assert "Nothing of this run is published" not in reruns.log(run)


def test_a_run_that_was_canceled_is_told_although_run_monitoring_resumes_workers(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    reruns = start()
    monkeypatch.setattr(dg.DagsterInstance, "run_will_resume", lambda self, run: True)
    reruns.fail("canceled")
    run = reruns.ui.launch(["marked"])
    assert reruns.lake.get_session(run.tags["lake/session"]).record.state == "failed"
    assert "Nothing of this run is published" in reruns.log(run)


@pytest.mark.parametrize("scope", ["run", "asset"])
def test_a_session_that_no_run_owns_is_in_nobodys_way(start: Start, scope: str) -> None:
    reruns = start()
    reruns.lake.open_session(id="by-hand")
    assert reruns.ui.launch(["left"], lake__scope=scope).is_success


def test_a_run_that_only_reads_takes_nothing_over(start: Start) -> None:
    """Credentials for reading suffice for it."""
    reruns = start()
    run = reruns.ui.launch(["left"], lake__scope="asset")
    reruns.fail("totals-b")
    failed = reruns.ui.launch(ALL, "b")
    session = failed.tags["lake/session"]
    reruns.lake.open_session(id=session, owner=failed.run_id)  # as if its process had died before it could report that
    epoch = reruns.lake.get_session(session).epoch
    reruns.ui.instance.add_run_tags(failed.run_id, {EPOCH_TAG: str(epoch)})
    lake = LakeResource(root=reruns.lake.url)
    lake.place_of(reruns.ui.instance, run)
    assert reruns.lake.get_session(session).epoch == epoch
    lake.begin_writes(reruns.ui.instance, run)
    assert reruns.lake.get_session(session).epoch == epoch + 1


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED])
def test_a_run_that_was_marked_while_its_worker_went_on_is_no_success(
    start: Start, status: dg.DagsterRunStatus
) -> None:
    reruns = start()
    reruns.fail("failed" if status is dg.DagsterRunStatus.FAILURE else "canceled")
    run = reruns.ui.launch(["marked"])
    assert run.status is status
    assert reruns.rows("tables/marked") == []
    assert "run the job lake_recover with the session" in reruns.log(run)
    recover(reruns.ui.instance, reruns.lake, run.tags["lake/session"], gate="blocking", keep_failed_for=KEEP)
    assert reruns.rows("tables/marked") == [{"n": 1}]


@pytest.mark.parametrize(
    "failing", [["orders-b"], ["totals-b"], ["totals-a", "totals-b", "totals-c"]], ids=["orders", "totals", "all"]
)
def test_a_gathered_backfill_from_failure_goes_on_on_the_first_branch(start: Start, failing: list[str]) -> None:
    reruns = start("gather")
    reruns.fail(*failing)
    first = reruns.ui.backfill(ALL, ["a", "b", "c"])
    (outcome,) = merge_backfills(reruns.ui.instance, reruns.lake)
    assert outcome.outcome == "failed"
    reruns.mend()
    reruns.ui.backfill_again(first)
    (outcome,) = merge_backfills(reruns.ui.instance, reruns.lake)
    assert outcome.outcome == "merged"
    assert reruns.rows("tables/totals") == [{"day": day, "total": 30} for day in "abc"]
    assert list(reruns.lake.list_branches()) == ["main"]


def test_a_gathered_backfill_fails_twice_before_it_succeeds(start: Start) -> None:
    reruns = start("gather")
    reruns.fail("totals-b", "later-c")
    first = reruns.ui.backfill(ALL, ["a", "b", "c"])
    (reruns.folder / "fail-totals-b").unlink()
    second = reruns.ui.backfill_again(first)
    (outcome,) = merge_backfills(reruns.ui.instance, reruns.lake)
    assert outcome.outcome == "failed"
    reruns.mend()
    reruns.ui.backfill_again(second)
    (outcome,) = merge_backfills(reruns.ui.instance, reruns.lake)
    assert outcome.outcome == "merged"
    assert [reruns.days(f"tables/{name}") for name in ("totals", "later")] == [["a", "b", "c"]] * 2


def test_a_gathered_backfill_that_starts_over_has_a_branch_of_its_own(start: Start) -> None:
    reruns = start("gather")
    reruns.fail("totals-b")
    first = reruns.ui.backfill(ALL, ["a", "b", "c"])
    reruns.mend()
    second = reruns.ui.backfill_again(first, "ALL_STEPS")
    assert {f"backfill-{first}-into-main", f"backfill-{second}-into-main"} < set(reruns.lake.list_branches())
    outcomes = {outcome.backfill: outcome.outcome for outcome in merge_backfills(reruns.ui.instance, reruns.lake)}
    assert outcomes == {first: "failed", second: "merged"}
    assert reruns.days("tables/orders") == ["a", "a", "b", "b", "c", "c"]


@pytest.mark.parametrize("scope", ["run", "asset"])
def test_mapped_steps_that_dagster_leaves_out_hold_the_run_back(start: Start, scope: str) -> None:
    reruns = start()
    reruns.fail("work")
    stopped = reruns.ui.launch(job="mapped", lake__scope=scope)
    assert not stopped.is_success
    reruns.mend()
    again = reruns.ui.again(stopped)
    assert again.status is dg.DagsterRunStatus.FAILURE
    assert StepsLeftOut.__name__ in reruns.ui.errors(again)
    assert reruns.rows("done/total") == []
    assert reruns.ui.again(again, "ALL_STEPS").is_success
    assert reruns.rows("done/total") == [{"parts": 4}]


def test_what_a_retry_does_not_yield_is_not_published(start: Start) -> None:
    reruns = start()
    reruns.fail("spread")
    failed = reruns.ui.launch(job="gathered")
    (reruns.folder / "fewer").touch()
    reruns.mend()
    again = reruns.ui.again(failed)
    assert again.is_success
    assert sorted(reruns.lake.at("main").datasets()) == ["done/total", "work/parts/k0", "work/parts/k1"]
    assert reruns.rows("done/total") == [{"parts": 2}]
    assert "Left out of session" in reruns.log(again)
