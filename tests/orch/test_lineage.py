"""Whose work a step continues, on every path on which Dagster launches a run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.execution.api import execute_run
from dagster._core.execution.plan.resume_retry import ReexecutionStrategy
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget

from lake_orch.dagster.runs.lineage import step_lineage
from tests.orch import lineage_pipeline

FROM_FAILURE = ReexecutionStrategy.FROM_FAILURE
FROM_ASSET_FAILURE = ReexecutionStrategy.FROM_ASSET_FAILURE
ALL_STEPS = ReexecutionStrategy.ALL_STEPS


class Bench:
    """Runs the pipeline on a real instance, by Dagster's Python API and by the functions behind its UI and daemon."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance, ui: WorkspaceProcessContext) -> None:
        self.folder, self.instance, self.ui = folder, instance, ui

    def fail(self, *steps: str) -> None:
        """From now on exactly these steps fail."""
        for file in self.folder.glob("fail *"):
            file.unlink()
        for step in steps:
            (self.folder / f"fail {step}").touch()

    def run(
        self,
        *,
        job: object = None,
        parent: str | None = None,
        from_failure: bool = False,
        tags: dict[str, str] | None = None,
    ) -> str:
        """`execute_job`: the path of scripts, which sets no tags."""
        options = None
        if parent:
            options = (
                dg.ReexecutionOptions.from_failure(parent, self.instance)
                if from_failure
                else dg.ReexecutionOptions(parent)
            )
        target = dg.reconstructable(job or lineage_pipeline.chain_job)
        with dg.execute_job(target, instance=self.instance, reexecution_options=options, tags=tags) as result:
            return result.run_id

    def reexecute(self, parent: str, strategy: ReexecutionStrategy) -> str:
        """What a click in the UI, or a retry by the daemon, does."""
        parent_run = self.instance.get_run_by_id(parent)
        assert parent_run
        request = self.ui.create_request_context()
        location = request.get_code_location("lineage")
        remote_job = next(iter(location.get_repositories().values())).get_full_job("chain")
        if parent_run.asset_selection:
            remote_job = location.get_job(
                remote_job.get_subset_selector(asset_selection=parent_run.asset_selection, asset_check_selection=None)
            )
        run = self.instance.create_reexecuted_run(
            request_context=request,
            parent_run=parent_run,
            code_location=location,
            remote_job=remote_job,
            strategy=strategy,
            use_parent_run_tags=True,
        )
        job = dg.reconstructable(lineage_pipeline.chain_job).get_subset(asset_selection=run.asset_selection)
        execute_run(job, run, self.instance)
        return run.run_id

    def lineage(self, run_id: str) -> dict[str, str]:
        """The lineage of each step that a run executed."""
        lines = [json.loads(line) for line in (self.folder / "lineage.jsonl").read_text().splitlines()]
        return {step: lineage for run, step, lineage in lines if run == run_id}


@pytest.fixture(scope="module")
def home(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Path, dg.DagsterInstance, WorkspaceProcessContext]]:
    folder = tmp_path_factory.mktemp("lineage")
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DAGSTER_HOME", str(folder))
        environment.setenv("LINEAGE_TEST_FOLDER", str(folder))
        module = LoadableTargetOrigin(
            executable_path=sys.executable,
            module_name="tests.orch.lineage_pipeline",
            attribute="defs",
            working_directory=str(Path.cwd()),
        )
        target = InProcessWorkspaceLoadTarget(InProcessCodeLocationOrigin(module, location_name="lineage"))
        with dg.DagsterInstance.get() as instance, WorkspaceProcessContext(instance, target) as ui:
            yield folder, instance, ui


@pytest.fixture
def bench(home: tuple[Path, dg.DagsterInstance, WorkspaceProcessContext]) -> Bench:
    bench = Bench(*home)
    bench.fail()
    return bench


def test_a_run_of_its_own(bench: Bench) -> None:
    run = bench.run()
    assert bench.lineage(run) == {"first": run, "second": run, "third": run}


def test_from_failure_by_the_python_api(bench: Bench) -> None:
    bench.fail("second")
    failed = bench.run()
    bench.fail()
    run = bench.run(parent=failed, from_failure=True)
    assert "dagster/is_resume_retry" not in bench.instance.get_run_by_id(run).tags  # why the plans are compared
    assert bench.lineage(run) == {"second": failed, "third": failed}


@pytest.mark.parametrize("strategy", [FROM_FAILURE, FROM_ASSET_FAILURE])
def test_from_failure_by_the_ui(bench: Bench, strategy: ReexecutionStrategy) -> None:
    bench.fail("second")
    failed = bench.run()
    bench.fail()
    run = bench.reexecute(failed, strategy)
    assert bench.lineage(run) == {"second": failed, "third": failed}


@pytest.mark.extended
def test_from_failure_where_nothing_had_succeeded(bench: Bench) -> None:
    """The new plan has the same steps as the old one, which is also what a fresh start looks like."""
    bench.fail("first")
    failed = bench.run()
    again = bench.run(parent=failed, from_failure=True)
    assert bench.lineage(again) == {"first": failed}
    bench.fail()
    run = bench.run(parent=again, from_failure=True)
    assert bench.lineage(run) == {"first": failed, "second": failed, "third": failed}
    fresh = bench.run(parent=again)
    assert bench.lineage(fresh) == {"first": fresh, "second": fresh, "third": fresh}


@pytest.mark.extended
def test_a_chain_of_failures_has_the_lineage_of_its_first_run(bench: Bench) -> None:
    bench.fail("second")
    first = bench.run()
    second = bench.run(parent=first, from_failure=True)
    third = bench.reexecute(second, FROM_FAILURE)
    bench.fail("third")
    fourth = bench.reexecute(third, FROM_ASSET_FAILURE)
    assert bench.lineage(fourth)["second"] == first
    bench.fail()
    assert bench.lineage(bench.reexecute(fourth, FROM_FAILURE)) == {"third": first}


@pytest.mark.parametrize("failing", [pytest.param((), marks=pytest.mark.exhaustive), ("second",)])
def test_all_steps_start_over(bench: Bench, failing: tuple[str, ...]) -> None:
    bench.fail(*failing)
    parent = bench.run()
    bench.fail()
    by_api = bench.run(parent=parent)
    assert bench.instance.get_run_by_id(by_api).parent_run_id == parent
    assert bench.lineage(by_api) == {"first": by_api, "second": by_api, "third": by_api}
    by_ui = bench.reexecute(parent, ALL_STEPS)
    assert bench.lineage(by_ui) == {"first": by_ui, "second": by_ui, "third": by_ui}


@pytest.mark.extended
@pytest.mark.parametrize("still_failing", [pytest.param((), marks=pytest.mark.exhaustive), ("third",)])
def test_a_leaked_tag_of_an_asset_retry_is_not_believed(bench: Bench, still_failing: tuple[str, ...]) -> None:
    bench.fail("second")
    failed = bench.run()
    bench.fail(*still_failing)
    retried = bench.reexecute(failed, FROM_ASSET_FAILURE)
    bench.fail()
    run = bench.reexecute(retried, ALL_STEPS)
    assert bench.instance.get_run_by_id(run).tags["dagster/is_asset_resume_retry"] == "true"  # it does leak
    assert bench.lineage(run) == {"second": run, "third": run}


@pytest.mark.extended
def test_a_step_that_succeeded_in_the_parent_starts_over(bench: Bench) -> None:
    bench.fail("third")
    parent = bench.run()
    bench.fail()
    # A retry that re-runs a successful step, too, as tools that set the tag by themselves do.
    run = bench.run(parent=parent, tags={"dagster/is_resume_retry": "true"})
    assert bench.lineage(run) == {"first": run, "second": run, "third": parent}


@pytest.mark.extended
def test_selected_steps_of_a_finished_run_start_over(bench: Bench) -> None:
    parent = bench.run()
    with dg.execute_job(
        dg.reconstructable(lineage_pipeline.chain_job),
        instance=bench.instance,
        reexecution_options=dg.ReexecutionOptions(parent, step_selection=["second"]),
    ) as result:
        assert bench.lineage(result.run_id) == {"second": result.run_id}


@pytest.mark.extended
def test_mapped_steps(bench: Bench) -> None:
    bench.fail("mapped[k1]")
    failed = bench.run(job=lineage_pipeline.mapped_job)
    again = bench.run(job=lineage_pipeline.mapped_job, parent=failed, from_failure=True)
    bench.fail()
    run = bench.run(job=lineage_pipeline.mapped_job, parent=again, from_failure=True)
    assert bench.lineage(again) == bench.lineage(run) == {"mapped[k1]": failed}
    run = bench.run(job=lineage_pipeline.mapped_job, parent=again)
    assert set(bench.lineage(run).values()) == {run}


@pytest.mark.extended
def test_a_deleted_parent_ends_the_chain(bench: Bench) -> None:
    bench.fail("second")
    failed = bench.run()
    bench.fail()
    run = bench.reexecute(failed, FROM_FAILURE)
    bench.instance.delete_run(failed)
    record = bench.instance.get_run_by_id(run)
    assert record
    assert step_lineage(bench.instance, record, "second") == run
