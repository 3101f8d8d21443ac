"""`make demo`: the year 2013 month by month, then a step that is killed half-way and re-executed.

The months run one after the other in this process, one Dagster run each: that is how months arrive, each run replaces only
its own slice of the tables, and all of them share one Spark session. A single run over the whole range would be quicker
by some seconds and show none of it.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from example_pipelines.flights import assets, checks
from example_pipelines.flights.definitions import LAKE_ROOT, REPOSITORY, defs
from lake_core.delta import DeltaTable

TABLES = (
    "flights",
    "weather",
    "planes",
    "airlines",
    "airports",
    "delays_by_hour",
    "carrier_airport_summary",
    "departure_log",
)
KILLED_MONTH = f"{assets.source.YEAR}-01-01"
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def main() -> int:
    """Run all of it. The exit code is 0 only if every check passed and every row is there exactly once."""
    warnings.simplefilter("ignore")
    started = time.monotonic()
    os.environ.setdefault("DAGSTER_HOME", str(REPOSITORY / ".dagster"))
    remove_tables(Path(LAKE_ROOT))
    with dg.DagsterInstance.get() as instance:
        run_year(instance)
        print_tables()
        exact = kill_and_resume(instance)
        passed = run_checks(instance)
    print(f"\nDone in {time.monotonic() - started:.0f} s. `make ui` shows these runs; the tables stay in {LAKE_ROOT}.")
    return 0 if exact and passed else 1


def remove_tables(root: Path) -> None:
    """Remove what an earlier demo left: the tables of this pipeline and nothing else."""
    if "://" in LAKE_ROOT:
        sys.exit(f"The demo starts from empty tables and removes old ones only from local folders: LAKE_ROOT is {LAKE_ROOT}.")
    old = [folder for folder in (root / "tables" / name for name in TABLES) if (folder / "_delta_log").is_dir()]
    for folder in old:
        shutil.rmtree(folder)
    print(f"Lake: {root}" + (f" (removed {len(old)} tables of an earlier demo: {', '.join(folder.name for folder in old)})" if old else ""))


def run_year(instance: dg.DagsterInstance) -> None:
    """Reference tables, twelve months, and the summary of the year."""
    print("\nReference tables ...", flush=True)
    run_job(instance, "reference")
    for month in assets.MONTHS.get_partition_keys():
        begun = time.monotonic()
        result = run_job(instance, "month", month)
        rows = written(result, "flights")["lake/rows_written"].value
        print(f"  {month[:7]}  {rows:>7,} flights  {time.monotonic() - begun:5.1f} s", flush=True)
    print("Summary of the year ...", flush=True)
    run_job(instance, "year")


def run_job(instance: dg.DagsterInstance, name: str, month: str | None = None) -> dg.ExecuteInProcessResult:
    """One run in this process. Its events go to the instance, so the UI shows it like any other."""
    return defs.resolve_job_def(name).execute_in_process(run_config=QUIET, partition_key=month, instance=instance)


def written(result: dg.ExecuteInProcessResult, asset: str) -> dict[str, Any]:
    """The metadata of an asset's materialization in a run."""
    (event,) = [event for event in result.get_asset_materialization_events() if event.asset_key == dg.AssetKey(asset)]
    return dict(event.materialization.metadata)


def kill_and_resume(instance: dg.DagsterInstance) -> bool:
    """Kill a step between its batches with SIGKILL, re-execute the run from failure, and count."""
    expected = checks.departures(int(KILLED_MONTH[5:7]))
    tags = {"dagster/partition": KILLED_MONTH}
    config: dict[str, Any] = {**QUIET, "ops": {"departure_log": {"config": {"pause": 3.0}}}}
    print(f"\nThe departure log of {KILLED_MONTH[:7]} is written in {len(assets.ORIGINS)} batches, by a process of its own.", flush=True)
    killer = StepKiller(instance)
    killer.start()
    with dg.execute_job(dg.reconstructable(log_job), instance=instance, run_config=config, tags=tags) as failed:
        killer.join()
        print(
            f"  run {failed.run_id[:8]}: {'succeeded' if failed.success else 'failed'}; {rows_of('departure_log'):,} rows are in the table"
        )
    if failed.success:  # the killer came too late
        return False
    options = dg.ReexecutionOptions.from_failure(failed.run_id, instance)
    config = {**QUIET, "ops": {"departure_log": {"config": {"pause": 0.0}}}}
    with dg.execute_job(
        dg.reconstructable(log_job), instance=instance, run_config=config, tags=tags, reexecution_options=options
    ) as resumed:
        print(f"  run {resumed.run_id[:8]}, re-executed from failure: {'succeeded' if resumed.success else 'failed'}")
    for message in log_messages(instance, resumed.run_id):
        print(f"    {message}")
    rows = rows_of("departure_log")
    verdict = "every flight that left, once" if rows == expected else "WRONG"
    print(f"  {rows:,} rows in the table, {expected:,} departures in the source: {verdict}")
    return killer.killed and resumed.success and rows == expected


def log_job() -> dg.JobDefinition:
    """The job of the departure log, for processes that build it anew."""
    return defs.resolve_job_def("log")


class StepKiller(threading.Thread):
    """Waits until the first batch of the departure log is visible to readers, and kills the step's process there and then."""

    def __init__(self, instance: dg.DagsterInstance, patience: float = 120.0) -> None:
        super().__init__(daemon=True)
        self.killed = False
        self._instance = instance
        self._deadline = time.monotonic() + patience
        self._earlier = {record.dagster_run.run_id for record in instance.get_run_records(dg.RunsFilter(job_name="log"))}

    def run(self) -> None:
        while time.monotonic() < self._deadline:
            pid = self._step_pid()
            if pid and exists("departure_log") and rows_of("departure_log"):
                os.kill(pid, signal.SIGKILL)
                self.killed = True
                print(f"  the first batch is visible ({rows_of('departure_log'):,} rows): process {pid} killed", flush=True)
                return
            time.sleep(0.1)

    def _step_pid(self) -> int | None:
        for record in self._instance.get_run_records(dg.RunsFilter(job_name="log")):
            run_id = record.dagster_run.run_id
            for entry in self._instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_WORKER_STARTED):
                if run_id not in self._earlier and entry.dagster_event:
                    return int(str(entry.dagster_event.engine_event_data.metadata["pid"].value))
        return None


def log_messages(instance: dg.DagsterInstance, run_id: str) -> list[str]:
    """What the step's code said in a run."""
    return [entry.user_message for entry in instance.all_logs(run_id) if entry.user_message.startswith("batch ")]


def run_checks(instance: dg.DagsterInstance) -> bool:
    """Run every asset check."""
    print("\nChecks ...", flush=True)
    evaluations = run_job(instance, "check").get_asset_check_evaluations()
    for evaluation in sorted(evaluations, key=lambda evaluation: (evaluation.asset_key, evaluation.check_name)):
        name = f"{evaluation.asset_key.to_user_string()}: {evaluation.check_name}"
        print(f"  {'passed' if evaluation.passed else 'FAILED'}  {name}")
    return len(evaluations) == len(checks.all_checks) and all(evaluation.passed for evaluation in evaluations)


def print_tables() -> None:
    """The tables as any Delta reader finds them."""
    lines = [("table", "rows", "version", "files", "MB", "path")]
    for name in filter(exists, TABLES):
        table = open_table(name)
        files = table.files()
        size = sum(files["size"].to_pylist()) / 1e6
        lines.append((name, f"{rows_of(name):,}", str(table.version), str(files.num_rows), f"{size:.1f}", url_of(name)))
    print()
    print_columns(lines)


def print_columns(lines: Sequence[Sequence[str]]) -> None:
    """Text left, numbers right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        first, *numbers, last = line
        print("  ".join([first.ljust(widths[0]), *(text.rjust(width) for text, width in zip(numbers, widths[1:-1], strict=True)), last]))


def url_of(name: str) -> str:
    return f"{LAKE_ROOT}/tables/{name}"


def exists(name: str) -> bool:
    return DeltaTable.exists(url_of(name))


def open_table(name: str) -> DeltaTable:
    return DeltaTable.open(url_of(name))


def rows_of(name: str) -> int:
    """Rows, counted by reading one column: what a query sees, not what a log claims."""
    table = open_table(name)
    return table.to_arrow(columns=table.schema.names[:1]).num_rows


if __name__ == "__main__":
    sys.exit(main())
