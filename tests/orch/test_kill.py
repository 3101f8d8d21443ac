"""Steps in real processes, killed with SIGKILL at the seams of a write: every row is there exactly once.

Each test appends, because an append is what a careless retry doubles.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lake_core.delta import DeltaTable
from tests.orch import kill_pipeline

pytestmark = pytest.mark.xdist_group("kill")  # one process of several: it keeps Dagster's fork server


class Outcome:
    """A finished run: its id, whether it succeeded, and what its last materialization says."""

    def __init__(self, instance: dg.DagsterInstance, run_id: str, success: bool) -> None:
        self.run_id, self.success = run_id, success
        self.events = instance.all_logs(run_id)
        entries = [
            entry.dagster_event.step_materialization_data.materialization.metadata
            for entry in self.events
            if entry.dagster_event and entry.dagster_event.is_step_materialization
        ]
        self.metadata: dict[str, Any] = {name: value.value for name, value in entries[-1].items()} if entries else {}

    @property
    def attempts(self) -> int:
        """Return how many processes ran the step."""
        return sum(entry.dagster_event_type == dg.DagsterEventType.STEP_WORKER_STARTED for entry in self.events)


class Bench:
    def __init__(self, folder: Path, instance: dg.DagsterInstance, root: Path) -> None:
        self.folder, self.instance, self.root = folder, instance, root

    def die(self, seam: str) -> None:
        (self.folder / "plan.json").write_text(json.dumps({"seam": seam, "root": str(self.root)}))

    def run(self, asset: str, *, options: dg.ReexecutionOptions | None = None) -> Outcome:
        job = dg.build_reconstructable_job(
            "tests.orch.kill_pipeline", "job", reconstructable_kwargs={"name": asset, "folder": str(self.folder)}
        )
        with dg.execute_job(job, instance=self.instance, reexecution_options=options) as result:
            return Outcome(self.instance, result.run_id, result.success)

    def resume(self, asset: str, failed: Outcome) -> Outcome:
        return self.run(asset, options=dg.ReexecutionOptions.from_failure(failed.run_id, self.instance))

    def ids(self, asset: str) -> list[str]:
        url = f"{self.root}/tables/{asset}"
        return sorted(DeltaTable.open(url).to_arrow()["id"].to_pylist()) if DeltaTable.exists(url) else []


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dg.DagsterInstance]]:
    folder = tmp_path_factory.mktemp("kill")
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DAGSTER_HOME", str(folder))
        with dg.DagsterInstance.get() as instance:
            yield folder, instance


@pytest.fixture
def bench(home: tuple[Path, dg.DagsterInstance], tmp_path: Path) -> Bench:
    return Bench(*home, tmp_path / "lake")


ONE_BATCH = [f"0-{row}" for row in range(kill_pipeline.ROWS)]
ALL_BATCHES = [f"{number}-{row}" for number in range(kill_pipeline.BATCHES) for row in range(kill_pipeline.ROWS)]

SEAMS = [
    # asset, where it dies, rows that the dead attempt leaves, all rows, whether the retry had nothing left to write
    ("by_io_manager", "before commit", [], ONE_BATCH, False),
    ("by_io_manager", "after commit", ONE_BATCH, ONE_BATCH, True),
    ("by_hand", "before commit", [], ALL_BATCHES, False),
    ("by_hand", "after commit", ALL_BATCHES[:3], ALL_BATCHES, False),
    ("by_hand", "between batches", ALL_BATCHES[:6], ALL_BATCHES, False),
]


def _only(*numbers: int) -> list[object]:
    """Return the seams, all but these only for `make test-all`."""
    return [
        pytest.param(*seam, marks=[] if number in numbers else pytest.mark.exhaustive)
        for number, seam in enumerate(SEAMS)
    ]


@pytest.mark.parametrize(("asset", "seam", "left", "expected", "skipped"), _only(1))
def test_killed_and_reexecuted_from_failure(
    bench: Bench, asset: str, seam: str, left: list[str], expected: list[str], skipped: bool
) -> None:
    bench.die(seam)
    failed = bench.run(asset)
    assert not failed.success
    assert bench.ids(asset) == left
    resumed = bench.resume(asset, failed)
    assert resumed.success
    assert bench.ids(asset) == expected
    assert resumed.metadata.get("lake/skipped", False) is skipped
    assert resumed.metadata["dagster/row_count"] == len(expected)


@pytest.mark.parametrize(("asset", "seam", "left", "expected", "skipped"), _only(0))
def test_killed_and_retried_by_policy(
    bench: Bench, asset: str, seam: str, left: list[str], expected: list[str], skipped: bool
) -> None:
    asset += "_retried"
    bench.die(seam)
    run = bench.run(asset)
    assert run.success
    assert run.attempts == 2
    assert bench.ids(asset) == expected
    assert run.metadata.get("lake/skipped", False) is skipped


@pytest.mark.exhaustive
def test_all_steps_of_a_finished_run_write_again(bench: Bench) -> None:
    bench.die("nowhere")
    first = bench.run("by_hand")
    again = bench.run("by_hand", options=dg.ReexecutionOptions(first.run_id))
    assert first.success
    assert again.success
    assert bench.ids("by_hand") == sorted(ALL_BATCHES * 2)
    assert again.metadata.get("lake/skipped", False) is False


@pytest.mark.extended
def test_killed_twice_and_reexecuted_twice(bench: Bench) -> None:
    """The second re-execution continues the first run, through the one in between."""
    bench.die("after commit")
    first = bench.run("by_hand")
    (bench.root / "died").unlink()
    bench.die("between batches")
    second = bench.resume("by_hand", first)
    assert not second.success
    assert bench.ids("by_hand") == ALL_BATCHES[:6]
    assert bench.resume("by_hand", second).success
    assert bench.ids("by_hand") == ALL_BATCHES


@pytest.mark.exhaustive
@pytest.mark.spark
def test_killed_after_the_commit_of_a_spark_frame(bench: Bench) -> None:
    bench.die("after commit")
    failed = bench.run("by_spark")
    assert not failed.success
    resumed = bench.resume("by_spark", failed)
    assert resumed.success
    assert bench.ids("by_spark") == ONE_BATCH
    assert resumed.metadata.get("lake/skipped", False) is True


@pytest.mark.exhaustive
@pytest.mark.spark
@pytest.mark.parametrize("asset", ["by_spark_worker", "by_spark_worker_retried"])
def test_a_python_worker_of_spark_is_killed_half_way(bench: Bench, asset: str) -> None:
    """Spark runs on one thread here and tries a task once, so the step fails.

    Retried by its policy, or re-executed from failure, it writes once.
    """
    bench.die("in the worker")
    outcome = bench.run(asset)
    if asset == "by_spark_worker":
        assert not outcome.success
        assert bench.ids(asset) == []
        outcome = bench.resume(asset, outcome)
    assert outcome.success
    assert (bench.root / "died").exists()
    assert bench.ids(asset) == ONE_BATCH
    assert outcome.metadata.get("lake/skipped", False) is False
