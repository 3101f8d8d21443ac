"""The chapters of `make demo`: a year of flights that arrives month by month, and all that can go wrong on the way.

Twelve files are dropped into a landing zone. A sensor asks for a run for each; the run is one session of the lake and
publishes five tables and the weather's arrays at once. One month arrives broken and is held back; one step is killed;
late corrections are merged; a question is tried out on a branch; small files and manifests are merged. Runs go on in
this process, so that all of them share one Spark session; the killed step has its own.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import dagster as dg

from example_pipelines.flights import checks, definitions, report, source
from example_pipelines.flights.definitions import defs
from example_pipelines.flights.folders import drop
from example_pipelines.flights.tables import ORIGINS
from lake_core.lake import Lake
from lake_orch.landing_zone.definitions import LEDGER_TAG

BROKEN_MONTH, CORRECTED_MONTH, KILLED_MONTH = 6, 2, f"{source.YEAR}-01-01"

QUIET: dict[str, Any] = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
HERE: dict[str, Any] = {**QUIET, "execution": {"config": {"in_process": {}}}}
"""The executor of the run that opens and publishes its session, with the steps in this process."""


class Demo:
    """The story, chapter by chapter. Each says whether it came out as it should."""

    def __init__(self, instance: dg.DagsterInstance, lake: Lake) -> None:
        self.instance, self.lake = instance, lake
        self.cursors: dict[str, str | None] = {}

    # Twelve months

    def year(self) -> bool:
        """Load the reference tables, then twelve files through the landing zone; one of them is broken."""
        print("\nReference tables ...", flush=True)
        self.run(reference_job)
        print(
            "Twelve monthly files arrive. Each is one run, one session, "
            "one commit of five tables and an array of weather:",
            flush=True,
        )
        fine = [self.month(number) for number in range(1, 13)]  # all of them, whatever becomes of one
        return all(fine)

    def month(self, number: int) -> bool:
        """Let a month's file arrive, run the job that the sensor requests, and return whether main has all of it."""
        name, started = f"{source.YEAR}-{number:02}", time.monotonic()
        broken = number == BROKEN_MONTH
        drop("flights", name, source.broken_month(number) if broken else source.flights_of_month(number))
        request = self.ask(definitions.arrivals)
        run = self.run(month_job, request)
        if broken:
            return self.repair(run, name)
        rows, hours = self.count(name), self.hours(name)
        size = f"{rows:>7,} flights  {hours} hours of weather  {len(self.touched())} datasets"
        print(f"  {name}  {size}  {time.monotonic() - started:5.1f} s", flush=True)
        return (
            run.is_success
            and rows == source.flights_of_month(number).num_rows
            and hours == source.hours_of_month(number)
        )

    def repair(self, run: dg.DagsterRun, name: str) -> bool:
        """Repair a month that arrived broken.

        Its run failed, and main is as before. The file is replaced, and the run is resumed.
        """
        rows, months = self.count(name), len({str(month) for month in self.rows("monthly_totals", "month")})
        session = run.tags["lake/session"]
        held = self.lake.delta("tables/flights", ref=session).to_arrow(columns=["month"]).num_rows
        hours, held_hours = self.hours(name), self.hours(name, ref=session)
        failed = [
            entry.dagster_event.asset_check_evaluation_data.check_name
            for entry in self.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
            if entry.dagster_event and not entry.dagster_event.asset_check_evaluation_data.passed
        ]
        print(
            f"  {name}  arrived broken: the checks {' and '.join(map(repr, sorted(failed)))} failed, "
            f"run {run.run_id[:8]} is held back",
            flush=True,
        )
        print(
            f"           main still has {months} months, and {rows} flights of this one; "
            f"the session can be read: it has {held:,} flights of {months + 1} months",
            flush=True,
        )
        print(
            f"           the arrays are held back with the tables: main has {hours} hours of its weather, "
            f"the session {held_hours}",
            flush=True,
        )
        drop("flights", name, source.flights_of_month(BROKEN_MONTH))
        resumed = self.run(month_job, reexecute=run)
        mended = self.count(name)
        same = resumed.tags.get("lake/session") == session
        print(
            f"           the file is replaced, and run {resumed.run_id[:8]} resumes the session: {mended:,} flights",
            flush=True,
        )
        return (
            not run.is_success
            and rows == hours == 0
            and held_hours == self.hours(name) == source.hours_of_month(BROKEN_MONTH)
            and months == BROKEN_MONTH - 1
            and resumed.is_success
            and same
            and mended == source.flights_of_month(BROKEN_MONTH).num_rows
        )

    # What comes late

    def late_corrections(self) -> bool:
        """Merge arrivals that were reported again, and make what depends on them again, in one commit."""
        name = f"{source.YEAR}-{CORRECTED_MONTH:02}"
        before = self.arrivals_of("HA")
        drop("corrections", name, source.corrections(CORRECTED_MONTH))
        run = self.run(corrections_job, self.ask(definitions.late))
        after = self.arrivals_of("HA")
        changed = sum(pair[0] != pair[1] for pair in zip(before, after, strict=True))
        print(
            f"\nCorrections for {name} came late: {changed} arrivals merged, "
            f"{len(self.touched())} tables in one commit",
            flush=True,
        )
        self.print_last_commit(run)
        again = self.ask(definitions.late) is None and self.ask(definitions.arrivals) is None
        return run.is_success and changed == source.corrections(CORRECTED_MONTH).num_rows and again

    def print_last_commit(self, run: dg.DagsterRun) -> None:
        """Print the last commit on main, with the run that made it and the datasets that it changed."""
        commit = self.lake.log(limit=1)[0]
        print(f"  commit {commit.id[:12]} of run {run.run_id[:8]}: {', '.join(sorted(self.touched()))}", flush=True)

    # What is killed

    def kill_and_resume(self) -> bool:
        """Kill a step between its batches with SIGKILL, re-execute the run from failure, and count."""
        expected = source.departures(int(KILLED_MONTH[5:7]))
        tags = {"dagster/partition": KILLED_MONTH}
        config: dict[str, Any] = {**QUIET, "ops": {"departure_log": {"config": {"pause": 2.0}}}}
        batches = len(ORIGINS)
        print(
            f"\nThe departure log of {KILLED_MONTH[:7]} publishes in {batches} batches, from a process of its own.",
            flush=True,
        )
        killer = StepKiller(self.instance)
        killer.start()
        with dg.execute_job(
            dg.reconstructable(log_job), instance=self.instance, run_config=config, tags=tags
        ) as failed:
            killer.join()
            outcome = "succeeded" if failed.success else "failed"
            print(f"  run {failed.run_id[:8]}: {outcome}; {report.rows_of('departure_log'):,} rows are in the table")
        if failed.success:  # the killer came too late
            return False
        options = dg.ReexecutionOptions.from_failure(failed.run_id, self.instance)
        config["ops"] = {"departure_log": {"config": {"pause": 0.0}}}
        with dg.execute_job(
            dg.reconstructable(log_job),
            instance=self.instance,
            run_config=config,
            tags=tags,
            reexecution_options=options,
        ) as resumed:
            print(
                f"  run {resumed.run_id[:8]}, re-executed from failure: {'succeeded' if resumed.success else 'failed'}"
            )
        for message in log_messages(self.instance, resumed.run_id):
            print(f"    {message}")
        rows = report.rows_of("departure_log")
        verdict = "every flight that left, once" if rows == expected else "WRONG"
        print(f"  {rows:,} rows in the table, {expected:,} departures in the source: {verdict}")
        return killer.killed and resumed.success and rows == expected

    # What is tried out

    def branch(self) -> bool:
        """Try another definition of late on a branch: main keeps its own until the branch is merged."""
        self.lake.create_branch("experiment")
        config = {**HERE, "ops": {"carrier_airport_summary": {"config": {"late_after": 60}}}}
        before = self.share_late()
        run = self.run(year_job, tags={"lake/branch": "experiment"}, config=config)
        tried, during = self.share_late("experiment"), self.share_late()
        print(
            f"\nOn branch 'experiment' a flight is late from an hour on: {tried:.1%} are late there, "
            f"and on main {during:.1%}, as before",
            flush=True,
        )
        self.lake.merge("experiment", into="main", message="Late means an hour")
        merged = self.share_late()
        print(f"  merged: {merged:.1%} on main", flush=True)
        self.lake.delete_branch("experiment")
        return run.is_success and before == during != tried == merged

    # What grows

    def maintain(self) -> bool:
        """Compact small files. Old commits read as before."""
        print("\nMaintenance:", flush=True)
        fine = True
        for table in ("monthly_totals", "departure_log"):
            path = f"tables/{table}"
            files, rows = len(self.lake.delta(path).files()), report.rows_of(table)
            run = self.run(compaction_job, tags={"dagster/partition": path})
            after = len(self.lake.delta(path).files())
            old = len(self.lake.delta(path, ref="main~1").files())
            print(f"  {table}: {files} files became {after}; the commit before still reads its {old}", flush=True)
            fine = fine and run.is_success and after < files == old and rows == report.rows_of(table)
        return self.rewrite_manifests() and fine

    def rewrite_manifests(self) -> bool:
        """Merge small manifests of arrays."""
        before = self.manifests()
        run = self.run(manifests_job)
        print(f"  hourly_weather: {before} manifests became {self.manifests()}", flush=True)
        return run.is_success and self.manifests() < before

    def checks(self) -> bool:
        """Run every asset check, after all that."""
        print("\nChecks ...", flush=True)
        run = self.run(check_job)
        entries = self.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        evaluations = [entry.dagster_event.asset_check_evaluation_data for entry in entries if entry.dagster_event]
        for evaluation in sorted(evaluations, key=lambda evaluation: (evaluation.asset_key, evaluation.check_name)):
            name = f"{evaluation.asset_key.to_user_string()}: {evaluation.check_name}"
            print(f"  {'passed' if evaluation.passed else 'FAILED'}  {name}")
        return len(evaluations) == len(checks.all_checks) and all(evaluation.passed for evaluation in evaluations)

    # How

    def ask(self, sensor: dg.SensorDefinition) -> dg.RunRequest | None:
        """Ask a sensor for its run request, as its daemon does."""
        with dg.build_sensor_context(
            self.instance, cursor=self.cursors.get(sensor.name), resources={"lake": definitions.lake}, definitions=defs
        ) as context:
            result = sensor(context)
            self.cursors[sensor.name] = context.cursor
        requests = result.run_requests if isinstance(result, dg.SensorResult) else ()
        return requests[0] if requests else None

    def run(
        self,
        job: Callable[[], dg.JobDefinition],
        request: dg.RunRequest | None = None,
        *,
        reexecute: dg.DagsterRun | None = None,
        tags: dict[str, str] | None = None,
        config: dict[str, Any] | None = None,
    ) -> dg.DagsterRun:
        """Run a job with its executor, in this process.

        Its events go to the instance, so the UI shows it like any other.
        """
        asked = {**(request.tags if request else {}), **(tags or {})}
        if request is not None and request.partition_key is not None:
            asked["dagster/partition"] = request.partition_key
        options = None
        if reexecute is not None:
            options = dg.ReexecutionOptions.from_failure(reexecute.run_id, self.instance)
            asked = {
                name: value
                for name, value in reexecute.tags.items()
                if name.startswith(("lake/landing", LEDGER_TAG, "dagster/partition"))
            }
        with dg.execute_job(
            dg.reconstructable(job),
            instance=self.instance,
            run_config=config or HERE,
            tags=asked,
            reexecution_options=options,
        ) as result:
            run = self.instance.get_run_by_id(result.run_id)
        assert run is not None
        return run

    def touched(self) -> Sequence[str]:
        """Return the tables that main's last commit changed."""
        return sorted(change.dataset or change.key for change in self.lake.diff("main~1", "main") if change.dataset)

    def rows(self, table: str, column: str) -> list[Any]:
        """Return one column of a table on main."""
        return list(self.lake.delta(f"tables/{table}").to_arrow(columns=[column])[column].to_pylist())

    def count(self, month: str) -> int:
        """Count the flights of a month on main."""
        table = self.lake.delta("tables/flights") if "tables/flights" in self.lake.at().datasets() else None
        return 0 if table is None else len(table.to_arrow(columns=["month"], where=f"month = DATE '{month}-01'"))

    def hours(self, month: str, ref: str = "main") -> int:
        """Return how many hours of a month have temperatures."""
        temperatures = report.open_arrays(self.lake, ref).temp.sel(time=month)
        return int(temperatures.notnull().any("origin").sum())

    def manifests(self) -> int:
        """Count the manifests of the arrays' last snapshot on main."""
        return len(next(self.lake.icechunk(report.ARRAYS).ancestry(branch="main")).manifests)

    def arrivals_of(self, carrier: str) -> list[Any]:
        """Return the delays on arrival of a carrier in the corrected month, in order of departure."""
        where = (
            f"carrier = '{carrier}' AND month = DATE '{source.YEAR}-{CORRECTED_MONTH:02}-01' AND arr_delay IS NOT NULL"
        )
        table = self.lake.delta("tables/flights").to_arrow(columns=["time_hour", "arr_delay"], where=where)
        return list(table.sort_by("time_hour")["arr_delay"].to_pylist())

    def share_late(self, ref: str = "main") -> float:
        """Return the part of the year's flights that were late."""
        table = self.lake.delta("tables/carrier_airport_summary", ref=ref).to_arrow(
            columns=["flights", "cancelled", "share_late"]
        )
        rows = [row for row in table.to_pylist() if row["share_late"] is not None]
        left = sum(row["flights"] - row["cancelled"] for row in rows)
        return round(sum((row["flights"] - row["cancelled"]) * row["share_late"] for row in rows) / left, 6)


# Jobs, for processes that build them anew.


def reference_job() -> dg.JobDefinition:
    """Return the job for the tables without months."""
    return defs.resolve_job_def("reference")


def month_job() -> dg.JobDefinition:
    """Return the job that lands the files of one month."""
    return defs.resolve_job_def("month")


def corrections_job() -> dg.JobDefinition:
    """Return the job that merges late corrections."""
    return defs.resolve_job_def("corrections")


def year_job() -> dg.JobDefinition:
    """Return the job that computes the summary of the year."""
    return defs.resolve_job_def("year")


def log_job() -> dg.JobDefinition:
    """Return the job that writes the departure log in batches, each published by itself."""
    return defs.resolve_job_def("log")


def check_job() -> dg.JobDefinition:
    """Return the job that runs only the checks of all assets."""
    return defs.resolve_job_def("check")


def compaction_job() -> dg.JobDefinition:
    """Return the job that merges small files of tables."""
    return defs.resolve_job_def("compaction")


def manifests_job() -> dg.JobDefinition:
    """Return the job that rewrites the manifests of the arrays."""
    return defs.resolve_job_def("manifests")


class StepKiller(threading.Thread):
    """A thread that kills the step's process as soon as readers can see the first batch of the departure log."""

    def __init__(self, instance: dg.DagsterInstance, patience: float = 120.0) -> None:
        super().__init__(daemon=True)
        self.killed = False
        self._instance = instance
        self._deadline = time.monotonic() + patience
        self._earlier = {
            record.dagster_run.run_id for record in instance.get_run_records(dg.RunsFilter(job_name="log"))
        }

    def run(self) -> None:
        """Poll until the first batch is visible, then send SIGKILL to the process of the step."""
        while time.monotonic() < self._deadline:
            pid = self._step_pid()
            if pid and report.exists("departure_log") and report.rows_of("departure_log"):
                os.kill(pid, signal.SIGKILL)
                self.killed = True
                print(
                    f"  the first batch is visible ({report.rows_of('departure_log'):,} rows): process {pid} killed",
                    flush=True,
                )
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
    """Return what the step's code logged in a run."""
    return [entry.user_message for entry in instance.all_logs(run_id) if entry.user_message.startswith("batch ")]
