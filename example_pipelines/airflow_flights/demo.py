"""`make demo-airflow`: the year of flights under Airflow, without a scheduler, and all that can go wrong on the way.

Each month is a run of a DAG, which publishes four tables and the weather's arrays at once. One month arrives broken
and is held back by its checks; one task is killed half-way; one is cleared after its run was published. Airflow writes
much into its logs, which go into a file.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from example_pipelines.airflow_flights import home
from example_pipelines.flights import report, source
from example_pipelines.flights.folders import MARK, check_own, drop
from example_pipelines.flights.places import IS_LOCAL, LAKE_ROOT, LANDING, REPOSITORY
from lake_core.lake import Lake
from lake_core.store import open_store

BROKEN_MONTH, KILLED_MONTH, CLEARED_MONTH = 6, 12, 1
FOLDER = "airflow/"
PATIENCE = 120.0


def main() -> int:
    """Run all of it. The exit code is 0 only if everything came out as it should."""
    warnings.simplefilter("ignore")
    started = time.monotonic()
    lake = prepare_lake()
    say(f"Lake: {LAKE_ROOT}, and files arrive in {LANDING}")
    demo = Demo(lake, home.make_home(anew=True))
    chapters = (demo.reference, demo.year, demo.kill_and_clear, demo.clear_after_the_publish, demo.carriers)
    fine = [chapter() for chapter in chapters]
    fine.append(demo.tables())
    report.print_log(lake)
    print_further()
    print(f"\nDone in {time.monotonic() - started:.0f} s. The lake stays in {LAKE_ROOT}.")
    return 0 if all(fine) else 1


def prepare_lake() -> Lake:
    """Make the lake, or take that of an earlier demo: what Dagster has published in it stays, what Airflow has goes."""
    if "://" in LANDING:
        sys.exit(f"The demo lets files arrive in a folder of this machine, and LAKE_LANDING is {LANDING}.")
    store = open_store(LAKE_ROOT)
    keys = {meta.key for meta in store.list()}
    if keys:
        check_own(LAKE_ROOT, keys)
    store.put(MARK, b"")
    for file in (Path(LANDING) / FOLDER).glob("*.parquet"):
        file.unlink()
    lake = Lake.create(LAKE_ROOT, exist_ok=True)
    earlier = [record.path for record in lake.list_datasets() if record.path.startswith(FOLDER)]
    if earlier:
        with lake.session("main", message="Drop what an earlier demo made with Airflow") as session:
            for path in earlier:
                session.drop(path)
        print(f"Dropped {len(earlier)} datasets of an earlier demo with Airflow from {LAKE_ROOT}")
    return lake


class Demo:
    """The story, chapter by chapter. Each says whether it came out as it should."""

    def __init__(self, lake: Lake, folder: Path) -> None:
        self.lake, self.log = lake, folder / "demo.log"
        self.log.write_text("")
        # Runs have names of their own in each demo: the lake knows a run of the same name again.
        self.name = f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}"
        self.months: dict[int, Any] = {}

    def reference(self) -> bool:
        """Load the tables that have no months."""
        say("\nReference tables ...")
        state = self.finish(self.trigger("flights_reference", self.name))
        return state == "success" and len(self.changed()) == 4

    def year(self) -> bool:
        """Load eleven months; one of them arrives broken."""
        say("Each month is one run of a DAG, one session, one commit of four tables and an array of weather:")
        fine = [self.month(number) for number in range(1, 13) if number != KILLED_MONTH]
        return all(fine)  # all of them, whatever becomes of one

    def month(self, number: int) -> bool:
        """Run the month's DAG, and return whether main has all of it."""
        started, broken = time.monotonic(), number == BROKEN_MONTH
        if broken:
            drop(FOLDER, f"{source.YEAR}-{number:02}", source.broken_month(number))
        state = self.finish(self.trigger_month(number))
        if broken:
            return self.mend(number, state)
        rows, hours = self.count("flights", number), self.hours(number)
        size = f"{rows:>7,} flights  {hours} hours of weather  {len(self.changed())} datasets"
        say(f"  {source.YEAR}-{number:02}  {size}  {time.monotonic() - started:5.1f} s")
        return state == "success" and self.is_whole(number) and len(self.changed()) == 5

    def mend(self, number: int, state: str) -> bool:
        """Replace the file of the month that arrived broken, and clear the task that reads it with those below it."""
        run, name = self.months[number], f"{source.YEAR}-{number:02}"
        with self.quiet():
            failed = [check for check in ("identified", "possible") if run.state_of(f"session.{check}") == "failed"]
        (record,) = [session for session in self.lake.list_sessions() if session.metadata["airflow/run"] == run.run_id]
        rows, hours = self.count("flights", number), self.hours(number)
        held, held_hours = self.count("flights", number, record.id), self.hours(number, record.id)
        say(f"  {name}  arrived broken: the checks {' and '.join(map(repr, failed))} failed, the run is {state}")
        say(
            f"           main has {rows} flights and {hours} hours of weather of this month; "
            f"its session can be read: it has {held:,} and {held_hours}"
        )
        drop(FOLDER, name, source.flights_of_month(number))
        with self.quiet():
            run.clear("session.flights", downstream=True)
        again = self.finish(run)
        mended = self.count("flights", number)
        say(f"           the file is replaced, and 'flights' cleared with what is below it: {mended:,} flights")
        return (
            (state, rows, hours) == ("failed", 0, 0)
            and failed == ["identified", "possible"]
            and held > mended
            and again == "success"
            and self.is_whole(number)
        )

    def kill_and_clear(self) -> bool:
        """Kill a task between its writes with SIGKILL, clear what failed, and count."""
        number, name = KILLED_MONTH, f"{source.YEAR}-{KILLED_MONTH:02}"
        expected = source.departures(number)
        say(f"\nThe departure log of {name} is written airport by airport, in a process of its own.")
        run = self.trigger_month(number, {"pause": 4.0})
        with self.log.open("a") as log:
            command = [sys.executable, "-m", "example_pipelines.airflow_flights.runs", run.dag.dag_id, run.run_id]
            process = subprocess.Popen(command, cwd=REPOSITORY, stdout=log, stderr=log)
        deadline = time.monotonic() + PATIENCE
        with self.quiet():
            while run.state_of("session.departure_log") != "running" and time.monotonic() < deadline:
                time.sleep(0.2)
        time.sleep(5.0)  # at least one airport is written, and another is to follow
        process.send_signal(signal.SIGKILL)
        killed = process.wait() == -signal.SIGKILL
        say(f"  process {process.pid} is killed half-way")
        with self.quiet():
            run.mark("session.departure_log", "failed")
        state = self.finish(run)
        rows = self.count("flights", number), self.count("departure_log", number)
        say(f"  the run is {state}: {rows[0]} flights and {rows[1]} departures of {name} are on main")
        with self.quiet():
            run.clear(only_failed=True)
        again = self.finish(run)
        logged = self.count("departure_log", number)
        verdict = "every flight that left, once" if logged == expected else "WRONG"
        say(f"  the failed tasks are cleared, and the run is a {again}")
        say(f"  {logged:,} rows in the table, {expected:,} departures in the source: {verdict}")
        return (
            killed
            and (state, again) == ("failed", "success")
            and rows == (0, 0)
            and logged == expected
            and self.is_whole(number)
        )

    def clear_after_the_publish(self) -> bool:
        """Clear one task of a month that is published: what it writes replaces what it had published."""
        number, path = CLEARED_MONTH, f"{FOLDER}departure_log"
        before, commits = self.lake.delta(path).to_arrow().num_rows, len(self.lake.log())
        say(f"\nThe departure log of {source.YEAR}-{number:02} is cleared, alone, in a run that is published.")
        run = self.months[number]
        with self.quiet():
            run.clear("session.departure_log")
        state = self.finish(run)
        rows = self.lake.delta(path).to_arrow().num_rows
        verdict = "as before" if rows == before else "WRONG"
        changed = self.changed()
        say(f"  the run is a {state}, its commit changed {', '.join(changed)}: {rows:,} rows, {verdict}")
        return (state, rows, changed) == ("success", before, [path]) and len(self.lake.log()) == commits + 1

    def carriers(self) -> bool:
        """Run the DAG that is scheduled by the flights: a scheduler runs it after each publish."""
        state = self.finish(self.trigger("flights_summary", self.name))
        carriers = self.lake.delta(f"{FOLDER}carriers").to_arrow().to_pylist()
        flights = sum(carrier["flights"] for carrier in carriers)
        say(f"\nThe DAG that the flights schedule made {len(carriers)} carriers of {flights:,} flights")
        return state == "success" and flights == source.flights().num_rows

    def tables(self) -> bool:
        """Print the tables, with their rows. Return whether they are as many as in the source."""
        records = [record for record in self.lake.list_datasets() if record.path.startswith(FOLDER)]
        tables = [record.path for record in records if record.format == "delta"]
        lines = [("table", "rows", "version", "path")]
        for path in tables:
            table = self.lake.delta(path)
            rows = table.to_arrow(columns=table.schema.names[:1]).num_rows
            lines.append((path.removeprefix(FOLDER), f"{rows:,}", str(table.version), f"{LAKE_ROOT}/{path}"))
        print()
        report.print_columns(lines)
        departures = sum(map(source.departures, range(1, 13)))
        counts = {line[0]: line[1] for line in lines}
        return (counts["flights"], counts["departure_log"]) == (f"{source.flights().num_rows:,}", f"{departures:,}")

    # How

    def trigger_month(self, number: int, conf: dict[str, Any] | None = None) -> Any:
        """Make the run of a month."""
        end = (source.YEAR, number + 1) if number < 12 else (source.YEAR + 1, 1)
        interval = datetime(source.YEAR, number, 1, tzinfo=UTC), datetime(*end, 1, tzinfo=UTC)
        run = self.trigger("flights_by_month", f"{self.name}-{number:02}", interval, conf)
        self.months[number] = run
        return run

    def trigger(self, dag_id: str, run_id: str, *options: Any) -> Any:
        """Make a run of a DAG."""
        with self.quiet():
            from example_pipelines.airflow_flights.runs import Run

            return Run.trigger(dag_id, run_id, *options)

    def finish(self, run: Any) -> str:
        """Run the tasks of a run, and return its state."""
        with self.quiet():
            state: str = run.go()
        return state

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Let what Airflow says go into the log."""
        sys.stdout.flush()
        shown = {number: os.dup(number) for number in (1, 2)}
        with self.log.open("a") as log:
            for number in shown:
                os.dup2(log.fileno(), number)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, copy in shown.items():
                os.dup2(copy, number)
                os.close(copy)

    def changed(self) -> list[str]:
        """Return the datasets that main's last commit changed."""
        changes = self.lake.diff("main~1", "main")
        return sorted({change.dataset for change in changes if change.dataset})

    def count(self, table: str, number: int, ref: str = "main") -> int:
        """Count the rows of a month."""
        path = f"{FOLDER}{table}"
        if path not in self.lake.at(ref).datasets():
            return 0
        where = f"month = DATE '{source.YEAR}-{number:02}-01'"
        return self.lake.delta(path, ref=ref).to_arrow(columns=["month"], where=where).num_rows

    def hours(self, number: int, ref: str = "main") -> int:
        """Return how many hours of a month have temperatures."""
        import xarray as xr

        store = self.lake.icechunk(f"{FOLDER}hourly_weather", ref=ref).store
        arrays = xr.open_zarr(store, consolidated=False, chunks=None)
        return int(arrays.temp.sel(time=f"{source.YEAR}-{number:02}").notnull().any("origin").sum())

    def is_whole(self, number: int) -> bool:
        """Return whether main has all flights, departures and hours of a month, once."""
        return (
            self.count("flights", number) == source.flights_of_month(number).num_rows
            and self.count("departure_log", number) == source.departures(number)
            and self.hours(number) == source.hours_of_month(number)
        )


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def print_further() -> None:
    """Print where to look at what the demo made."""
    is_default = str(REPOSITORY / ".lake") == LAKE_ROOT
    lake = f"{Path(sys.executable).parent}/lake --lake {LAKE_ROOT}".replace(f"{REPOSITORY}/", "", 1 + IS_LOCAL)
    command = "make ui-airflow" if is_default else f"make ui-airflow LAKE_ROOT={LAKE_ROOT}"
    print("\nLook at it:")
    print(f"  {command:<45} the runs, tasks and assets at http://127.0.0.1:8080")
    print(f"  {lake} log")
    print(f"  {lake} head airflow/carriers")


if __name__ == "__main__":
    sys.exit(main())
