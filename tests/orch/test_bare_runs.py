"""Runs that no executor of ours brackets: `materialize`, `execute_in_process`, jobs made of ops."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pydantic import ValidationError

from lake_core import Lake
from lake_core.errors import LakeError
from lake_core.lake.errors import RefNotFound
from lake_orch import DeltaIOManager, GateFailed, LakeResource, NotALake, testing
from lake_orch.dagster.runs.publishing import check_still_runs
from lake_orch.jobs.ops import abandon, merge_branch, open_session, publish

ROWS = pa.table({"id": [1, 2]})


class Fails:
    wanted = True


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.create(tmp_path / "lake")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def resources(lake: Lake, **options: Any) -> dict[str, Any]:
    resource = LakeResource(root=lake.url, **options)
    return {"io_manager": DeltaIOManager(lake=resource), "lake": resource}


def assets(fail: bool = False, check: bool = True) -> list[Any]:
    @dg.asset(metadata={"lake/mode": "append"})
    def first() -> pa.Table:
        return ROWS

    @dg.asset(metadata={"lake/mode": "append"})
    def second(first: pa.Table) -> pa.Table:
        assert len(first)
        if fail:
            raise RuntimeError("as it was to")
        return ROWS

    @dg.asset_check(asset=second)
    def fine(second: pa.Table) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=check)

    return [first, second, fine]


def tables(lake: Lake, ref: str = "main") -> dict[str, int]:
    state = lake.at(ref)
    return {path: len(state.delta(path).to_arrow()) for path in sorted(state.datasets())}


BOTH = {"tables/first": 2, "tables/second": 2}


def test_a_session_is_not_resumed_without_the_instance_of_its_runs(lake: Lake) -> None:
    session = lake.open_session(id="failed")
    with pytest.raises(ValueError, match="pass the instance"):
        testing.materialize(assets(), resources=resources(lake), resume=session.id)


def test_materialize_publishes_a_run_whole(lake: Lake, instance: dg.DagsterInstance) -> None:
    result = testing.materialize(assets(), resources=resources(lake), instance=instance)
    assert result.success
    assert tables(lake) == BOTH
    assert len(lake.log()) == 2
    failed = testing.materialize(assets(fail=True), resources=resources(lake), instance=instance, raise_on_error=False)
    assert not failed.success
    assert tables(lake) == BOTH
    (session,) = lake.list_sessions()
    assert session.state == "failed"
    assert tables(lake, session.id)["tables/first"] == 4
    resumed = testing.materialize(
        assets(), resources=resources(lake), instance=instance, resume=session.id, selection=["second"]
    )
    assert resumed.success
    assert tables(lake) == {"tables/first": 4, "tables/second": 4}


@pytest.mark.extended
def test_materialize_holds_the_gate(lake: Lake, instance: dg.DagsterInstance) -> None:
    with pytest.raises(GateFailed, match="second:fine") as caught:
        testing.materialize(assets(check=False), resources=resources(lake), instance=instance, gate="error")
    assert caught.value.checks == ("second:fine",)
    assert tables(lake) == {}
    (run,) = instance.get_runs()
    assert run.status is dg.DagsterRunStatus.FAILURE
    assert testing.materialize(assets(check=False), resources=resources(lake), instance=instance, gate="none").success


def test_execute_in_process_publishes_a_run_whole(lake: Lake, instance: dg.DagsterInstance) -> None:
    defs = dg.Definitions(
        assets=assets()[:2], asset_checks=assets()[2:], resources=resources(lake), jobs=[dg.define_asset_job("all")]
    )
    assert testing.execute_in_process(defs.resolve_job_def("all"), instance=instance).success
    assert tables(lake) == BOTH
    assert len(lake.log()) == 2


def test_a_bare_run_is_published_at_its_teardown(lake: Lake, instance: dg.DagsterInstance) -> None:
    assert dg.materialize(assets(), resources=resources(lake, scope="run"), instance=instance).success
    assert tables(lake) == BOTH
    assert len(lake.log()) == 2
    assert lake.list_sessions() == []
    failed = dg.materialize(
        assets(fail=True), resources=resources(lake, scope="run"), instance=instance, raise_on_error=False
    )
    assert not failed.success
    assert tables(lake) == BOTH
    assert len(lake.list_sessions()) == 1


def test_a_bare_run_whose_gate_fails_stays_unpublished(lake: Lake, instance: dg.DagsterInstance) -> None:
    result = dg.materialize(
        assets(check=False),
        resources=resources(lake, scope="run", gate="error"),
        instance=instance,
        raise_on_error=False,
    )
    assert not result.success
    assert tables(lake) == {}
    assert [session.state for session in lake.list_sessions()] == ["failed"]


def test_a_bare_run_whose_publish_is_refused_fails(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.settings.protect("main")
    result = dg.materialize(assets(), resources=resources(lake, scope="run"), instance=instance, raise_on_error=False)
    run = instance.get_run_by_id(result.run_id)
    assert run is not None
    assert run.status is dg.DagsterRunStatus.FAILURE
    (failure,) = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)
    assert failure.dagster_event is not None
    assert "protected" in str(failure.dagster_event.event_specific_data)


def test_a_bare_run_that_was_canceled_while_it_worked_publishes_nothing(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    @dg.asset
    def canceled(context: dg.AssetExecutionContext) -> pa.Table:
        instance.report_run_canceled(context.run)
        return ROWS

    result = dg.materialize([canceled], resources=resources(lake, scope="run"), instance=instance, raise_on_error=False)
    run = instance.get_run_by_id(result.run_id)
    assert run is not None
    assert run.status is dg.DagsterRunStatus.CANCELED
    assert tables(lake) == {}


def test_a_run_that_is_called_a_success_before_its_teardown_still_publishes(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    """Dagster does not wait for the teardown of steps that run elsewhere."""
    run = dg.materialize(assets(), resources=resources(lake), instance=instance)
    assert run.success
    check_still_runs(instance, run.run_id)


def test_each_asset_publishes_by_itself_by_default(lake: Lake, instance: dg.DagsterInstance) -> None:
    dg.materialize(assets(fail=True), resources=resources(lake), instance=instance, raise_on_error=False)
    assert tables(lake) == {"tables/first": 2}
    (head, *_) = lake.log()
    assert head.metadata["dagster/step"] == "first"
    assert head.metadata["dagster/run"] in {run.run_id for run in instance.get_runs()}


def test_a_run_reads_one_commit(lake: Lake, instance: dg.DagsterInstance) -> None:
    """Others publish while it runs: it sees what stood when it began, and what it wrote itself."""
    dg.materialize(assets(), resources=resources(lake), instance=instance)
    lengths = []

    @dg.asset
    def slow() -> pa.Table:
        for path in ("tables/first", "tables/second"):
            with lake.session() as session:
                session.delta(path).append(ROWS)
        return ROWS

    @dg.asset(deps=[slow])
    def reads(first: pa.Table, second: pa.Table) -> None:
        lengths.append((len(first), len(second)))

    @dg.asset
    def reads_own(slow: pa.Table) -> None:
        lengths.append((len(slow),))

    everything = [*(asset.to_source_assets()[0] for asset in assets()[:2]), slow, reads, reads_own]
    assert dg.materialize(everything, resources=resources(lake), instance=instance).success
    assert sorted(lengths) == [(2,), (2, 2)]
    assert tables(lake)["tables/first"] == 4
    lengths.clear()
    assert dg.materialize(everything, resources=resources(lake), instance=instance, selection=[reads]).success
    assert lengths == [(6 - 2, 4)]


@pytest.mark.extended
def test_runs_on_a_branch(lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefNotFound, match="the branch 'pr-7' does not exist"):
        dg.materialize(assets(), resources=resources(lake, branch="pr-7"), instance=instance)
    monkeypatch.setenv("LAKE_BRANCH", "pr-7")
    on_branch = resources(lake, branch=dg.EnvVar("LAKE_BRANCH"), branch_from="main")
    assert dg.materialize(assets(), resources=on_branch, instance=instance).success
    assert tables(lake) == {}
    assert tables(lake, "pr-7") == BOTH
    assert testing.materialize(assets(), resources=on_branch, instance=instance).success
    assert tables(lake) == {}
    assert tables(lake, "pr-7") == {"tables/first": 4, "tables/second": 4}

    @dg.job(resource_defs={"lake": LakeResource(root=lake.url).get_resource_definition()})
    def merge_it() -> None:
        merge_branch()

    config = {"ops": {"merge_branch": {"config": {"source": "pr-7"}}}}
    assert merge_it.execute_in_process(run_config=config, instance=instance).success
    assert tables(lake) == {"tables/first": 4, "tables/second": 4}
    assert dg.materialize(assets(), resources=resources(lake), tags={"lake/branch": "pr-7"}, instance=instance).success
    assert tables(lake)["tables/first"] == 4
    assert tables(lake, "pr-7")["tables/first"] == 6


@pytest.mark.parametrize("ending", [publish, abandon])
def test_a_job_of_ops_is_one_session(lake: Lake, instance: dg.DagsterInstance, ending: Any) -> None:
    @dg.op(ins={"after": dg.In(dg.Nothing)}, out=dg.Out(metadata={"lake/path": "tables/orders"}))
    def orders() -> pa.Table:
        return ROWS

    @dg.op
    def by_hand(context: dg.OpExecutionContext, lake: LakeResource, rows: pa.Table) -> None:
        with lake.session(context) as session:
            session.table("tables/by_hand").append(rows)
            session.files.put("reports/orders.json", b"{}")

    @dg.job(resource_defs={name: value.get_resource_definition() for name, value in resources(lake).items()})
    def all_of_it() -> None:
        ending(by_hand(orders(open_session())))

    assert all_of_it.execute_in_process(instance=instance).success
    if ending is publish:
        assert tables(lake) == {"tables/by_hand": 2, "tables/orders": 2}
        assert lake.at().exists("reports/orders.json")
        assert len(lake.log()) == 2
    else:
        assert tables(lake) == {}
        assert not lake.at().exists("reports/orders.json")
    assert lake.list_sessions() == []


def test_several_tables_of_one_step_publish_together_and_once(lake: Lake, instance: dg.DagsterInstance) -> None:
    tries = []

    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=2))
    def pair(context: dg.AssetExecutionContext, lake: LakeResource) -> None:
        tries.append(context.retry_number)
        with lake.session(context) as session:
            session.table("tables/a").append(ROWS)
            session.create_delta("tables/b", ROWS.schema).append(ROWS)
            session.files.put("c", b"%d" % context.retry_number)
            if context.retry_number == 0:
                raise RuntimeError("between the tables")
        if context.retry_number == 1:
            raise RuntimeError("after the publish")

    assert dg.materialize([pair], resources=resources(lake), instance=instance).success
    assert tries == [0, 1, 2]
    assert tables(lake) == {"tables/a": 2, "tables/b": 2}
    assert len(lake.log()) == 2
    assert bytes(lake.at().get("c")) == b"1", "the third try found its work published"


def test_a_try_that_built_on_what_it_wrote_itself_is_replaced_as_a_whole(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=2))
    def changed(context: dg.AssetExecutionContext, lake: LakeResource) -> None:
        with lake.session(context) as session:
            session.table("tables/a").append(pa.table({"id": [context.retry_number]}))
        with lake.session(context) as session:
            session.delta("tables/a").update({"id": "id + 10"})
        if context.retry_number < 2:
            raise RuntimeError("after both")

    result = testing.materialize([changed], resources=resources(lake, scope="run"), instance=instance)
    assert result.success
    assert lake.delta("tables/a").to_arrow()["id"].to_pylist() == [12]


def test_what_needs_a_lake_says_so(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    plain = LakeResource(root=str(tmp_path / "plain"), scope="run")
    with pytest.raises(NotALake, match="lake init"):
        dg.materialize(assets()[:1], resources={"io_manager": DeltaIOManager(lake=plain)}, instance=instance)
    on_branch = LakeResource(root=str(tmp_path / "plain"), branch="dev")
    with pytest.raises(LakeError, match="lake init"):
        dg.materialize(assets()[:1], resources={"io_manager": DeltaIOManager(lake=on_branch)}, instance=instance)


def test_gating_more_than_can_be_gated_is_refused_at_definition() -> None:
    with pytest.raises(ValidationError, match="scope='run'"):
        LakeResource(root="/lake", gate="error")
    assert LakeResource(root="/lake", gate="error", scope="run").gate == "error"


@pytest.mark.parametrize("scope", ["asset", "run"])
def test_a_retried_multi_asset_stores_its_first_output_again(
    lake: Lake, instance: dg.DagsterInstance, scope: str
) -> None:
    """Dagster hands over both outputs at each try.

    The first output is skipped if it is published, and replaced if it is staged.
    """
    append = {"lake/mode": "append"}

    @dg.multi_asset(
        outs={name: dg.AssetOut(metadata=append) for name in ("left", "right")},
        retry_policy=dg.RetryPolicy(max_retries=2),
    )
    def pair(context: dg.AssetExecutionContext) -> Iterator[dg.Output[Any]]:
        yield dg.Output(pa.table({"id": [context.retry_number]}), "left")
        if context.retry_number < 2:
            raise RuntimeError("between the outputs")
        yield dg.Output(pa.table({"id": [context.retry_number]}), "right")

    assert dg.materialize([pair], resources=resources(lake, scope=scope), instance=instance).success
    ids = {name: lake.delta(f"tables/{name}").to_arrow()["id"].to_pylist() for name in ("left", "right")}
    assert ids == {"left": [0] if scope == "asset" else [2], "right": [2]}


def test_a_conflict_that_is_made_up_for_leaves_nothing(lake: Lake, instance: dg.DagsterInstance) -> None:
    """Another writer is faster at the same table: the step is retried on the new version, and leaves no session."""
    assert dg.materialize(assets()[:1], resources=resources(lake), instance=instance).success
    tries = []

    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=2))
    def total(context: dg.AssetExecutionContext, lake: LakeResource) -> None:
        with lake.session(context) as session:
            session.delta("tables/first").update({"id": "id + 10"})
            if not tries:
                with lake.open().session() as other:
                    other.delta("tables/first").update({"id": "id + 1"})
            tries.append(context.retry_number)

    assert dg.materialize([total], resources=resources(lake), instance=instance).success
    assert tries == [0, 1]
    assert sorted(lake.delta("tables/first").to_arrow()["id"].to_pylist()) == [12, 13]
    assert lake.list_sessions() == []
    assert [record.state for record in lake.list_sessions(include_ended=True)] == ["abandoned"]
