"""Defects that were found by trying to lose a row, to double one, and to reach a dead end."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._check import CheckError
from pydantic import ValidationError

from lake_core import Lake
from lake_orch import DeltaIOManager, LakeResource, lake_eager
from lake_orch.dagster.runs.recovery import recover
from lake_orch.errors import NothingToRecover, SessionLost
from lake_orch.jobs.backfill import _merge_one
from lake_orch.pipes import LakePipesSubprocessClient
from lake_orch.tags import EPOCH_TAG
from lake_orch.testing import materialize
from tests.orch.session_bench import ALL, Bench, of
from tests.orch.test_landing_zone import Zone
from tests.orch.test_recovery import KEEP, failed_publish
from tests.orch.test_sessions import check_published

ROW = pa.table({"id": [1]})


@pytest.mark.extended
def test_a_run_after_one_that_never_reached_the_lake_goes_on_in_the_session(bench: Bench) -> None:
    """The run in between has no session of its own, but it left out steps whose work is in that of the first."""
    bench.wish(totals="fail")
    first = bench.run()
    bench.wish()
    (bench.folder / "lake").rename(bench.folder / "away")
    try:
        second = bench.resume(first)
    finally:
        (bench.folder / "away").rename(bench.folder / "lake")
    assert second.status is dg.DagsterRunStatus.FAILURE
    third = bench.resume(second)
    assert third.is_success
    assert bench.session(third) == bench.session(first)
    check_published(bench)


@pytest.mark.extended
def test_a_run_after_one_that_lost_its_session_fails_too(bench: Bench) -> None:
    """It would find tables, but those of the day before."""
    assert bench.run().is_success
    bench.wish(totals="fail", round=1)
    first = bench.run()
    bench.lake.get_session(bench.session(first)).abandon()
    bench.wish(round=1)
    second = bench.resume(first)
    third = bench.resume(second)
    assert (second.status, third.status) == (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.FAILURE)
    assert SessionLost.__name__ in bench.error(third)
    check_published(bench)


def test_a_failed_run_that_is_re_executed_twice_is_there_once(bench: Bench) -> None:
    """Somebody clicks twice, and the second run waits in a queue until the first has published."""
    bench.wish(totals="fail")
    first = bench.run()
    bench.wish()
    second = bench.resume(first)
    assert second.is_success
    third = bench.resume(first)
    assert third.status is dg.DagsterRunStatus.FAILURE
    assert "duplicate" in bench.error(third)
    check_published(bench)
    # Steps of the run that published can be executed again on purpose.
    fourth = bench.run(reexecution_options=dg.ReexecutionOptions(second.run_id, step_selection=["totals"]))
    assert fourth.is_success
    assert bench.rows("totals") == of("totals", times=2)


@pytest.mark.extended
def test_the_run_that_took_a_session_over_last_counts(bench: Bench) -> None:
    """Of two re-executions, the one that was made first may wait longer."""
    bench.wish(totals_fine="fail")
    first = bench.run("strict")
    again = dg.ReexecutionOptions(first.run_id, step_selection=["totals*"])
    bench.wish()
    bench.lake.settings.protect("main")
    green = bench.run("strict", reexecution_options=again)
    bench.wish(totals_fine="fail")
    red = bench.run("strict", reexecution_options=again)
    bench.lake.settings.unprotect("main")
    # As if the failed one had been faster.
    bench.instance.add_run_tags(green.run_id, {EPOCH_TAG: "3"})
    bench.instance.add_run_tags(red.run_id, {EPOCH_TAG: "2"})
    recover(bench.instance, bench.lake, bench.session(first), gate="blocking", keep_failed_for=KEEP)
    assert bench.state(first) == "published"
    check_published(bench)


@pytest.mark.extended
def test_a_run_that_did_the_work_again_is_found_among_many(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    run = failed_publish(bench)
    bench.lake.settings.unprotect("main")
    assert bench.run(reexecution_options=dg.ReexecutionOptions(run.run_id)).is_success
    for _ in range(3):
        bench.instance.create_run_for_job(bench.job().get_definition())
    monkeypatch.setattr("lake_orch.dagster.runs.recovery._PAGE", 2)
    with pytest.raises(NothingToRecover, match="duplicate"):
        recover(bench.instance, bench.lake, bench.session(run), gate="blocking", keep_failed_for=KEEP)


def test_a_run_that_was_deleted_is_not_published(bench: Bench) -> None:
    bench.wish(stock="wait")

    def delete() -> None:
        while not (bench.folder / "stock.waiting").exists():
            time.sleep(0.05)
        bench.instance.delete_run(bench.instance.get_runs()[0].run_id)
        bench.wish()

    thread = threading.Thread(target=delete)
    thread.start()
    with suppress(CheckError):  # Dagster's own error, which misses the run too
        bench.run()
    thread.join()
    assert [bench.rows(table) for table in ALL] == [[], [], [], []]
    assert [record.state for record in bench.lake.list_sessions()] == ["failed"]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def test_a_batch_whose_first_run_was_deleted_is_asked_for_again(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """Under a key of its own: Dagster starts no run under one that it knows."""
    zone = Zone(tmp_path, instance)
    zone.drop("a.parquet", 1)
    zone.fail = True
    keys = []
    for _ in range(2):
        (request,) = zone.requests()
        keys.append(request.run_key)
        zone.run(dg.RunRequest(tags={**request.tags, "dagster/run_key": str(request.run_key)}))  # as the daemon does
    first = next(run for run in instance.get_runs() if run.tags["dagster/run_key"] == keys[0])
    instance.delete_run(first.run_id)
    (request,) = zone.requests()
    assert request.run_key != keys[1]


def test_a_file_is_told_to_be_rewritten_though_its_batch_was_run_again(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    zone = Zone(tmp_path, instance)
    zone.drop("a.parquet", 1)
    (request,) = zone.requests()
    assert zone.run(request)
    assert not zone.requests()
    zone.drop("a.parquet", 7, 8, 9)
    assert zone.run(request)
    assert not zone.requests()
    assert zone.ids() == [1]
    assert [metadata["lake/rewritten_files"] for metadata in zone.observations()] == [1]


def test_a_table_by_hand_may_be_called_as_an_output_is(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    lake = LakeResource(root=str(tmp_path / "lake"))
    Lake.create(lake.root)

    @dg.multi_asset(outs={"orders": dg.AssetOut()})
    def orders_and_a_table_by_hand(context: dg.AssetExecutionContext, lake: LakeResource) -> pa.Table:
        lake.table(context, "orders").append(pa.table({"id": [1]}))
        return pa.table({"id": [2]})

    assert materialize(
        [orders_and_a_table_by_hand],
        resources={"lake": lake, "io_manager": DeltaIOManager(lake=lake)},
        instance=instance,
    ).success
    rows_by_table = {
        path: lake.open().delta(path).to_arrow()["id"].to_pylist() for path in lake.open().at("main").datasets()
    }
    assert rows_by_table == {"orders": [1], "tables/orders": [2]}


def test_a_password_has_no_place_in_the_root() -> None:
    with pytest.raises(ValidationError, match="storage_options") as caught:
        LakeResource(root="s3://key:hunter2@bucket/lake")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ValidationError, match="gate='error'") as caught:
        LakeResource(root="s3://bucket/lake", storage_options={"secret": "hunter2"}, gate="error")
    assert "hunter2" not in str(caught.value)
    assert LakeResource(root="abfs://container@account.dfs.core.windows.net/lake").root


Materialize = Callable[..., Any]
both = pytest.mark.parametrize(
    "run", [materialize, pytest.param(dg.materialize, marks=pytest.mark.exhaustive)], ids=["run", "asset"]
)


@both
def test_a_step_that_tries_a_session_again_by_itself(
    tmp_path: Path, instance: dg.DagsterInstance, run: Materialize
) -> None:
    """The session that failed counts for nothing: a retry of the step, which needs but one, makes the same one."""
    lake, tries = LakeResource(root=str(tmp_path / "lake")), []
    Lake.create(lake.root)

    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=1))
    def orders(context: dg.AssetExecutionContext, lake: LakeResource) -> None:
        tries.append(context.retry_number)
        if len(tries) == 1:
            with pytest.raises(TimeoutError), lake.session(context) as session:
                raise TimeoutError
        with lake.session(context) as session:
            session.table("tables/orders").append(pa.table({"id": [1]}))
        if len(tries) == 1:
            raise RuntimeError("as it was to")

    assert run([orders], resources={"lake": lake}, instance=instance).success
    assert tries == [0, 1]
    assert lake.open().delta("tables/orders").to_arrow()["id"].to_pylist() == [1]


WRITER = """
from dagster_pipes import open_dagster_pipes
from lake_pipes import open_workspace
import pyarrow as pa

with open_dagster_pipes() as pipes:
    for id in 1, 2:
        with open_workspace(pipes) as work:
            work.append("tables/orders", pa.table({"id": [id]}))
    pipes.report_asset_materialization(metadata=work.metadata())
"""


@pytest.mark.extended
@both
def test_a_process_outside_may_open_several_workspaces(
    tmp_path: Path, instance: dg.DagsterInstance, run: Materialize
) -> None:
    lake = LakeResource(root=str(tmp_path / "lake"))
    Lake.create(lake.root)
    (tmp_path / "writer.py").write_text(WRITER)

    @dg.asset
    def orders(context: dg.AssetExecutionContext, outside: LakePipesSubprocessClient) -> dg.MaterializeResult[Any]:
        return outside.run(
            context=context, command=[sys.executable, str(tmp_path / "writer.py")]
        ).get_materialize_result()

    outside = LakePipesSubprocessClient(lake=lake, env={"PYTHONPATH": str(Path(__file__).parents[2])})
    assert run([orders], resources={"lake": lake, "outside": outside}, instance=instance).success
    assert sorted(lake.open().delta("tables/orders").to_arrow()["id"].to_pylist()) == [1, 2]


def test_what_was_written_by_hand_starts_nothing_before_it_is_published(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """Also where its step says nothing of it."""
    lake, fails = LakeResource(root=str(tmp_path / "lake")), [True]
    Lake.create(lake.root)

    @dg.asset
    def upstream(context: dg.AssetExecutionContext, lake: LakeResource) -> None:
        with lake.session(context) as session:
            session.table("tables/upstream").append(pa.table({"id": [1]}))

    @dg.asset
    def other() -> None:
        if fails:
            raise RuntimeError("as it was to")

    @dg.asset(deps=[upstream], automation_condition=lake_eager())
    def downstream() -> None: ...

    defs = dg.Definitions(assets=[upstream, other, downstream], resources={"lake": lake})
    asked, cursor = [], None
    for step in "nothing", "a failed run", "a published run", "nothing":
        if step != "nothing":
            materialize([upstream, other], resources={"lake": lake}, instance=instance, raise_on_error=False)
        result = dg.evaluate_automation_conditions(defs, instance, cursor=cursor)
        asked.append(result.total_requested)
        cursor = result.cursor
        if step == "a failed run":
            fails.clear()
    assert asked == [0, 0, 1, 0]


def test_a_backfill_takes_along_what_came_as_it_was_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of it is re-executed, and publishes between the merge and the end of the branch."""
    lake = Lake.create(tmp_path / "lake")
    lake.create_branch("backfill-b")

    def publish(id: int) -> None:
        with lake.session("backfill-b") as session:
            session.create_delta("tables/orders", ROW.schema, exist_ok=True).append(pa.table({"id": [id]}))

    merge = lake.merge

    def late(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        result = merge(*args, **options)
        publish(2)
        return result

    publish(1)
    monkeypatch.setattr(lake, "merge", late)
    outcomes = [_merge_one(lake, "b", "backfill-b", "main").outcome for _ in range(2)]
    assert outcomes == ["running", "merged"]
    assert list(lake.list_branches()) == ["main"]
    assert sorted(lake.delta("tables/orders").to_arrow()["id"].to_pylist()) == [1, 2]


def test_a_file_without_rows_takes_the_place_of_one_that_cannot_be_read(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """The way out of a batch that can never land."""
    zone = Zone(tmp_path, instance)
    zone.drop("a.parquet", 1)
    (zone.landing / "b.parquet").write_bytes(b"")
    (request,) = zone.requests()
    assert not zone.run(request)
    zone.drop("b.parquet")
    zone.drop("c.parquet", 3)
    assert zone.run(request)
    assert zone.drain() == 1
    assert zone.ids() == [1, 3]


def test_batches_land_in_order_on_any_branch(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """The second batch first would let the first be taken for one that is there."""
    zone = Zone(tmp_path, instance)
    zone.lake.open().create_branch("dev")
    asked = []
    for name, id in ("a.parquet", 1), ("b.parquet", 2):
        zone.drop(name, id)
        asked += zone.requests()
        assert zone.run(asked[-1])
    first, second = (dg.RunRequest(tags={**request.tags, "lake/branch": "dev"}) for request in asked)
    assert [zone.run(request) for request in (second, first, second)] == [False, True, True]
    assert sorted(zone.lake.open().delta("tables/events", ref="dev").to_arrow()["id"].to_pylist()) == [1, 2]
