"""The DAGs of the scenes: four tasks over three tables, each of which a test can hold in the middle of its write."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from airflow.sdk import dag, get_current_context, task

from lake_orch.airflow import LakeTable, lake_session, operators
from tests.airflow.scenes import FOLLOWED, ROWS, SCENES, connection_of, hold, told


def table(scene: str, name: str) -> LakeTable:
    """Return a table of the lake of a scene."""
    return LakeTable(
        f"tables/{name}", connection=connection_of(scene), partition_by=["day"] if name == "days" else None
    )


def half(ti: Any, number: int, **more: pa.Array) -> pa.Table:
    """Return the first or the second half of the rows of a try, which nothing else has."""
    count = ROWS // 2
    columns: Mapping[str, Any] = {
        "run": [ti.run_id] * count,
        "task": [ti.task_id] * count,
        "try": [str(ti.id)] * count,
        "row": range(number * count, (number + 1) * count),
        **more,
    }
    return pa.table(dict(columns))


def in_halves(ti: Any, **more: pa.Array) -> pa.RecordBatchReader | None:
    """Return the rows of a try, of which the second half comes when the first one is being written."""
    match told(ti):
        case "fail":
            raise RuntimeError(f"{ti.task_id} fails, as it was told")
        case "nothing":
            return None

    def halves() -> Iterator[pa.RecordBatch]:
        yield from half(ti, 0, **more).to_batches()
        pause(ti)
        yield from half(ti, 1, **more).to_batches()

    return pa.RecordBatchReader.from_batches(half(ti, 0, **more).schema, halves())


def pause(ti: Any) -> None:
    """Give others the time to interfere."""
    hold(ti)
    if ti.dag_id == "stressed":
        time.sleep(random.uniform(0, 1))


def make(scene: str) -> None:
    days, lines, totals = (table(scene, name) for name in ("days", "lines", "totals"))

    @dag(
        dag_id=scene,
        schedule="@daily",
        start_date=datetime(2026, 1, 1),
        end_date=datetime(2026, 3, 1),
        catchup=False,
        max_active_runs=6,
        default_args={"retries": 3, "retry_delay": timedelta(seconds=1)},
    )
    def write() -> None:
        with lake_session(connection=connection_of(scene)) as session:

            @task.lake(into=days, slice="day = DATE '{{ ds }}'")
            def day(ds: str | None = None) -> pa.RecordBatchReader | None:
                date = datetime.fromisoformat(str(ds)).date()
                return in_halves(get_current_context()["ti"], day=pa.array([date] * (ROWS // 2)))

            @task.lake(into=lines, mode="append")
            def line() -> pa.RecordBatchReader | None:
                return in_halves(get_current_context()["ti"])

            @task
            def more(work: Any = session.writer) -> None:
                ti = get_current_context()["ti"]
                with work() as w:
                    w.append(lines.path, half(ti, 0))
                    pause(ti)
                    w.append(lines.path, half(ti, 1))

            @task.lake(into=totals, mode="append")
            def total(of_day: pa.Table, of_lines: LakeTable) -> pa.RecordBatchReader | None:
                ti = get_current_context()["ti"]
                found = of_lines.load(pa.Table, where=f"run = '{ti.run_id}'")
                assert found.num_rows == 2 * ROWS, found.to_pylist()
                assert of_day["run"].to_pylist().count(ti.run_id) == ROWS, of_day.to_pylist()
                return in_halves(ti)

            written = line()
            # They create the same table, in different ways.
            written >> more() >> total(day(), written)

    write()


def follow(scene: str, dag_id: str) -> None:
    @dag(dag_id=dag_id, schedule=[table(scene, "totals").asset], start_date=datetime(2026, 1, 1), catchup=False)
    def after_totals() -> None:
        @task
        def look() -> None:
            pass

        look()

    after_totals()


tell = operators.tell


def tell_later(*args: Any) -> Any:
    """Hold a task that has published, before it says so."""
    pause(get_current_context()["ti"])
    return tell(*args)


def close_later(_: Any, context: Any) -> None:
    """Hold the task that closes the session, before it does."""
    hold(context["ti"])


operators.tell = tell_later
operators.CloseOperator.pre_execute = close_later
for scene in SCENES:
    make(scene)
for scene, dag_id in FOLLOWED.items():
    follow(scene, dag_id)
