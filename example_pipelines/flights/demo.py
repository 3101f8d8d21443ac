"""`make demo`: make a lake, tell the story of a year of flights in it, and show what to look at.

Spark comes first: its JVM starts while Dagster is imported.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from example_pipelines.flights import spark_settings


def main() -> int:
    """Run all of it. The exit code is 0 only if everything came out as it should."""
    warnings.simplefilter("ignore")
    started = time.monotonic()
    home = Path(os.environ.setdefault("DAGSTER_HOME", str(Path(__file__).resolve().parents[2] / ".dagster")))
    with spark_starting(home / "spark.log"):
        fine, root = tell_story()
    print(f"\nDone in {time.monotonic() - started:.0f} s. The lake stays in {root}.")
    return 0 if fine else 1


def tell_story() -> tuple[bool, str]:
    """Make the lake, tell the story, and report. Return whether all came out as it should, and the lake's root."""
    import dagster as dg

    from example_pipelines.flights import report
    from example_pipelines.flights.folders import remove_lake
    from example_pipelines.flights.places import LAKE_ROOT, LANDING
    from example_pipelines.flights.story import Demo
    from lake_core.lake import Lake

    if "://" in LANDING:
        sys.exit(f"The demo lets files arrive in a folder of this machine, and LAKE_LANDING is {LANDING}.")
    remove_lake(LAKE_ROOT, LANDING)
    lake = Lake.create(LAKE_ROOT)
    print(f"Lake: {LAKE_ROOT}, and files arrive in {LANDING}")
    with dg.DagsterInstance.get() as instance:
        demo = Demo(instance, lake)
        chapters = (demo.year, demo.late_corrections, demo.kill_and_resume, demo.branch, demo.maintain, demo.checks)
        fine = [chapter() for chapter in chapters]
    report.print_tables()
    report.print_log(lake)
    report.print_plot(lake)
    report.print_arrays(lake)
    report.print_further()
    return all(fine), LAKE_ROOT


@contextmanager
def spark_starting(log: Path) -> Iterator[None]:
    """Start Spark beside the first steps. What its JVM says of itself goes into a file."""
    with log.open("w") as file:
        shown = os.dup(sys.stderr.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())  # for the JVM, which inherits it
    starting = threading.Thread(target=spark_settings.start, daemon=True)
    starting.start()

    def show_errors() -> None:
        starting.join()
        os.dup2(shown, sys.stderr.fileno())
        os.close(shown)

    waiting = threading.Thread(target=show_errors, daemon=True)
    waiting.start()
    try:
        yield
    finally:
        waiting.join()


if __name__ == "__main__":
    sys.exit(main())
