"""What a task of a session costs beside a bare task that writes a Parquet file, as Airflow's own workers run both.

It runs where Airflow is: `make bench-airflow`.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from lake_core import Lake
from tests.airflow.standalone import PRELOADED, Standalone, connection

TASKS = 8
ROWS = 100_000

_DAGS = f"""
import os
from datetime import datetime
from pathlib import Path

from airflow.sdk import dag, task

from lake_orch.airflow import LakeTable, lake_session


def rows():
    import pyarrow as pa

    return pa.table({{"id": list(range({ROWS})), "value": [float(n) for n in range({ROWS})]}})


@dag(schedule=None, start_date=datetime(2026, 1, 1), catchup=False)
def bare():
    for number in range({TASKS}):

        @task(task_id=f"write_{{number}}")
        def write(number: int) -> str:
            import pyarrow.parquet as pq

            path = Path(os.environ["BENCH_HOME"], f"{{number}}.parquet")
            pq.write_table(rows(), path, compression="zstd")
            return str(path)

        write(number)


@dag(schedule=None, start_date=datetime(2026, 1, 1), catchup=False)
def lake():
    with lake_session():
        for number in range({TASKS}):

            @task.lake(task_id=f"write_{{number}}", into=LakeTable(f"tables/t{{number}}"))
            def write():
                return rows()

            write()


bare()
lake()
"""

_PLUGIN = """
import json, os, sys, time
from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

me = sys.modules[__name__]


@hookimpl
def on_task_instance_success(previous_state, task_instance):
    peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
    cost = {"dag": task_instance.dag_id, "task": task_instance.task_id, "cpu": time.process_time(), "peak": peak}
    with open(os.environ["BENCH_HOME"] + "/costs.jsonl", "a") as file:
        file.write(json.dumps(cost) + "\\n")


class Costs(AirflowPlugin):
    name = "costs"
    listeners = [me]
"""


def measure(rounds: int, local_settings: str) -> list[dict[str, object]]:
    """Run both DAGs in turn, after one run of each that does not count, and return the costs of their tasks."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for name, file, text in (("dags", "bench.py", _DAGS), ("plugins", "costs.py", _PLUGIN)):
            (home / name).mkdir()
            (home / name / file).write_text(text)
        Lake.create(str(home / "lake"))
        costs = home / "costs.jsonl"
        environment = {
            "BENCH_HOME": folder,
            "AIRFLOW_CONN_LAKE_DEFAULT": connection(home / "lake"),
            # One after another: tasks side by side would be measured with one another's caches.
            "AIRFLOW__CORE__PARALLELISM": "1",
        }
        airflow = Standalone(home, environment, dags=home / "dags", local_settings=local_settings)
        try:
            airflow.wait_until_up(["bare", "lake"])
            for number in range(rounds + 1):
                if number == 1:
                    costs.unlink()
                for dag_id in ("bare", "lake"):
                    state = airflow.run(dag_id, datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number)).end()
                    if state != "success":
                        raise RuntimeError(f"the run of {dag_id} is {state}")
            return [json.loads(line) for line in costs.read_text().splitlines()]
        finally:
            airflow.stop()


def report(name: str, costs: list[dict[str, object]], rounds: int) -> None:
    """Print the medians of a task, and the sums of a run."""

    def values(dag: str, field: str, task: str = "write_") -> list[float]:
        return [float(str(each[field])) for each in costs if each["dag"] == dag and task in str(each["task"])]

    for field, unit in (("cpu", "s"), ("peak", "MB")):
        ours, theirs = (statistics.median(values(dag, field)) for dag in ("lake", "bare"))
        print(f"{name}, a task: {ours:7.2f} {unit:<2}  bare {theirs:7.2f} {unit:<2}  ratio {ours / theirs:5.2f}")
    whole, theirs = (sum(values(dag, "cpu", "")) / rounds for dag in ("lake", "bare"))
    print(f"{name}, a run of {TASKS}: {whole:7.2f} s   bare {theirs:7.2f} s   ratio {whole / theirs:5.2f}")
    for task in ("open", "publish", "close"):
        print(f"  of that {task}: {statistics.median(values('lake', 'cpu', task)):5.2f} s")


def main() -> None:
    """Measure with and without modules that the workers load once."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for name, local_settings in (("as installed", "import pyarrow\n"), ("with modules preloaded", PRELOADED)):
        report(name, measure(rounds, local_settings), rounds)


if __name__ == "__main__":
    main()
