"""`lake/since: last run`: each record of a pool is loaded once on each branch, whatever becomes of the runs."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from lake_core import Lake
from lake_core.lake.errors import Conflict
from lake_core.lake.refs.commit_record import changed_datasets
from lake_orch import DeltaIOManager, LakeResource, PoolIOManager
from tests.examples import exhaustive
from tests.orch.read_pipeline import NEW


class Pipeline:
    """A lake with a pool, runs that load what is new in it into a table, and how they end."""

    def __init__(self, folder: Path, scope: str, instance: dg.DagsterInstance) -> None:
        self.folder, self.scope, self.instance = folder, scope, instance
        self.lake = Lake.create(folder / "lake")
        self.count = 0
        self.add()

    def add(self, branch: str = "main") -> None:
        """Add the next two records to the pool."""
        with self.lake.session(branch) as session:
            pool = session.create_pool("tables/events", key="n", exist_ok=True)
            pool.load([{"n": self.count}, {"n": self.count + 1}])
        self.count += 2

    def run(
        self, job: str = "load", *, branch: str = "main", fails: str = "", reexecution: Any = None
    ) -> dg.DagsterRun:
        """Run a job to its end. A step may be told to fail."""
        failure = self.folder / f"fail-{fails}"
        if fails:
            failure.touch()
        target = dg.build_reconstructable_job(
            "tests.orch.read_pipeline",
            "job",
            reconstructable_kwargs={"folder": str(self.folder), "scope": self.scope, "name": job},
        )
        tags = {} if branch == "main" else {"lake/branch": branch}
        with dg.execute_job(target, instance=self.instance, tags=tags, reexecution_options=reexecution) as result:
            run = self.instance.get_run_by_id(result.run_id)
        failure.unlink(missing_ok=True)
        assert run is not None
        return run

    def from_failure(self, run: dg.DagsterRun) -> dg.DagsterRun:
        return self.run(reexecution=dg.ReexecutionOptions.from_failure(run.run_id, self.instance))

    def from_the_start(self, run: dg.DagsterRun) -> dg.DagsterRun:
        return self.run(reexecution=dg.ReexecutionOptions(run.run_id))

    def rows(self, branch: str = "main") -> list[int]:
        """Return the numbers in the table, in order."""
        state = self.lake.at(branch)
        table = "tables/numbers"
        return sorted(state.delta(table).to_arrow()["n"].to_pylist()) if table in state.datasets() else []

    def error(self, run: dg.DagsterRun) -> str:
        """Return what the log of a run says of its failures."""
        events = (entry.dagster_event for entry in self.instance.all_logs(run.run_id))
        return "\n".join(str(event.event_specific_data) for event in events if event is not None and event.is_failure)


@pytest.fixture(params=["asset", "run"])
def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pipeline]:
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        yield Pipeline(tmp_path, request.param, instance)


def test_what_a_failed_run_has_read_is_read_again(pipeline: Pipeline) -> None:
    pipeline.run()
    assert pipeline.rows() == [0, 1]
    pipeline.add()
    pipeline.run(fails="numbers")
    pipeline.add()
    pipeline.run()
    assert pipeline.rows() == list(range(6))
    pipeline.run()
    assert pipeline.rows() == list(range(6)), "nothing was new"


def test_any_number_of_materializations_without_a_publish_leave_the_position(pipeline: Pipeline) -> None:
    pipeline.run()
    for _ in range(120):
        pipeline.instance.report_runless_asset_event(dg.AssetMaterialization("numbers"))
    pipeline.add()
    pipeline.run()
    assert pipeline.rows() == list(range(4))


def test_a_branch_has_a_position_of_its_own(pipeline: Pipeline) -> None:
    pipeline.lake.create_branch("dev")
    pipeline.run(branch="dev")
    assert pipeline.rows("dev") == [0, 1]
    assert pipeline.rows() == []
    pipeline.run()
    assert pipeline.rows() == [0, 1]


def test_branches_that_have_loaded_the_same_are_not_merged(pipeline: Pipeline) -> None:
    pipeline.lake.create_branch("dev")
    pipeline.run(branch="dev")
    pipeline.run()
    with pytest.raises(Conflict, match=r"\.reads/numbers/tables/events/0000000001\.json"):
        pipeline.lake.merge("dev")
    assert pipeline.rows() == [0, 1]


def test_a_merge_brings_the_position_with_the_rows(pipeline: Pipeline) -> None:
    pipeline.lake.create_branch("dev")
    pipeline.run(branch="dev")
    pipeline.lake.merge("dev")
    pipeline.add()
    pipeline.run()
    assert pipeline.rows() == list(range(4))


def test_what_the_newest_load_did_is_loaded_again_after_its_revert(pipeline: Pipeline) -> None:
    pipeline.run("load")
    pipeline.add()
    load = _load(pipeline)
    pipeline.lake.revert(load)
    assert pipeline.rows() == [0, 1]
    pipeline.run()
    assert pipeline.rows() == list(range(4))


def test_what_an_older_load_did_stays_reverted(pipeline: Pipeline) -> None:
    pipeline.run()
    pipeline.add()
    load = _load(pipeline)
    pipeline.add()
    pipeline.run()
    pipeline.lake.revert(load)
    assert pipeline.rows() == [0, 1, 4, 5]
    pipeline.add()
    pipeline.run()
    assert pipeline.rows() == [0, 1, 4, 5, 6, 7]


def _load(pipeline: Pipeline) -> str:
    """Load what is new, and return the commit."""
    pipeline.run()
    log = pipeline.lake.log("main")
    return next(commit.id for commit in log if "tables/numbers" in changed_datasets(commit))


def test_a_failed_run_that_is_resumed_after_another_loaded_the_same_doubles_nothing(pipeline: Pipeline) -> None:
    failed = pipeline.run(fails="later")
    pipeline.run()
    pipeline.from_failure(failed)
    assert pipeline.rows() == [0, 1]


def test_a_run_that_is_executed_again_from_the_start_doubles_nothing(pipeline: Pipeline) -> None:
    run = pipeline.run()
    pipeline.from_the_start(run)
    assert pipeline.rows() == [0, 1]


def test_an_asset_that_no_io_manager_of_the_lake_stores_is_refused(pipeline: Pipeline) -> None:
    for job in ("only_nothing", "only_elsewhere", "only_both"):
        run = pipeline.run(job)
        assert "only an asset with one output and without partitions can read what is new" in pipeline.error(run)


def test_a_folder_of_plain_datasets_is_refused(tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        pipeline = Pipeline(tmp_path, "asset", instance)
        (tmp_path / "lake" / "_lake").rename(tmp_path / "_lake")
        assert "only a lake records what was read" in pipeline.error(pipeline.run())


def test_what_was_added_to_any_partition_of_a_pool_is_new(tmp_path: Path, root: str) -> None:
    Lake.create(root)
    lake = LakeResource(root=root)
    days = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-11")
    read: list[str] = []

    @dg.asset(name="events", io_manager_key="pools", partitions_def=days, metadata={"partition_expr": "ts"})
    def written(context: dg.AssetExecutionContext) -> Any:
        return [{"ts": context.partition_time_window.start, "by": context.run.tags["by"]}]

    @dg.asset(name="reader", ins=NEW)
    def reader(events: pa.Table) -> pa.Table:
        read[:] = events["by"].to_pylist() if "by" in events.column_names else []
        return pa.table({"count": [len(events)]})

    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:

        def run(asset: dg.AssetsDefinition, **options: Any) -> None:
            resources = {"pools": PoolIOManager(lake=lake), "io_manager": DeltaIOManager(lake=lake)}
            dg.materialize([written, reader], selection=[asset], resources=resources, instance=instance, **options)

        for partition, by in (("2024-01-01", "a"), ("2024-01-02", "b")):
            run(written, partition_key=partition, tags={"by": by})
        run(reader)
        assert sorted(read) == ["a", "b"]
        run(written, partition_key="2024-01-02", tags={"by": "again"})
        run(reader)
        assert read == ["again"]
        run(reader)
        assert read == [], "nothing was new"


@pytest.mark.parametrize("seed", [0, *exhaustive(range(1, 24))])
def test_random_runs(pipeline: Pipeline, seed: int) -> None:
    chance = random.Random(seed)
    pipeline.lake.create_branch("dev")
    failed: list[dg.DagsterRun] = []

    def run() -> None:
        branch, fails = chance.choice(["main", "main", "dev"]), chance.choice(["", "", "numbers", "later"])
        result = pipeline.run(branch=branch, fails=fails)
        if not result.is_success and branch == "main":
            failed.append(result)

    def again(how: Callable[[dg.DagsterRun], dg.DagsterRun]) -> None:
        # Dagster does not execute a run again from failure that had begun no step.
        with suppress(dg.DagsterInvariantViolationError):
            if failed and not (result := how(chance.choice(failed))).is_success:
                failed.append(result)

    for _ in range(8):
        chance.choice(
            [
                pipeline.add,
                run,
                run,
                lambda: again(pipeline.from_failure),
                lambda: again(pipeline.from_the_start),
            ]
        )()
        for branch in ("main", "dev"):
            rows = pipeline.rows(branch)
            assert rows == list(range(len(rows))), f"rows of {branch}"
    assert pipeline.run().is_success
    assert pipeline.rows() == list(range(pipeline.count))
