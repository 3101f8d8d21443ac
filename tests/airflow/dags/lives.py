"""A run with all that Airflow has: mapped tasks, a branch, a task that is deferred, and a check."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from airflow.providers.standard.triggers.temporal import DateTimeTrigger
from airflow.sdk import BaseOperator, TriggerRule, dag, get_current_context, task

from lake_orch.airflow import LakeFile, LakeTable, lake_session
from tests.airflow.behaviour import act, begin, note, planned

SLICE = LakeTable("tables/slice", partition_by=["day"])
SHARED, OWN, REPORT = LakeTable("tables/shared"), LakeTable("tables/own"), LakeFile("reports/last")


def rows(ti: Any, more: int = 0) -> pa.Table:
    """Return the rows of a try, which nothing else has."""
    number = note(ti)
    return pa.table({"run": [ti.run_id] * 2, "task": [ti.task_id] * 2, "n": [number, number], "row": [more, more + 1]})


class Halves(BaseOperator):
    """Writes one half, defers, and writes the other half in another process."""

    def __init__(self, work: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.work = work

    def execute(self, context: Any) -> None:
        number = note(context["ti"])
        with self.work() as w:
            w.append("tables/shared", self._half(context["ti"], number, 0))
        context["ti"].xcom_push(key="number", value=number)
        self.defer(trigger=DateTimeTrigger(moment=datetime.now(UTC) + timedelta(milliseconds=10)), method_name="go_on")

    def go_on(self, context: Any, event: Any = None) -> None:
        act(context["ti"].task_id)
        number = context["ti"].xcom_pull(key="number", map_indexes=None) or context["ti"].xcom_pull(key="number")
        with self.work() as w:
            w.append("tables/shared", self._half(context["ti"], number, 1))

    def _half(self, ti: Any, number: int, row: int) -> pa.Table:
        return pa.table({"run": [ti.run_id], "task": [ti.task_id], "n": [number], "row": [row]})


@dag(schedule=None, start_date=datetime(2026, 1, 1), catchup=False)
def lives() -> None:
    with lake_session() as run:

        @task
        def files() -> list[int]:
            return list(range(planned().get("files", 2)))

        @task.lake(into=SLICE, slice="day = DATE '{{ ds }}'")
        def day(ds: str | None = None) -> pa.Table:
            ti = get_current_context()["ti"]
            begin(ti)
            data = rows(ti)
            return data.append_column("day", pa.array([datetime.fromisoformat(str(ds)).date()] * len(data)))

        @task.lake(into=SHARED, mode="append")
        def line(file: int) -> pa.Table:
            ti = get_current_context()["ti"]
            begin(ti)
            return rows(ti)

        @task.branch
        def choose() -> str:
            return f"session.{planned().get('branch', 'left')}"

        @task.lake(into=SHARED, mode="append")
        def left() -> pa.Table:
            return rows(get_current_context()["ti"])

        @task.lake(into=OWN, mode="append")
        def right() -> pa.Table:
            return rows(get_current_context()["ti"])

        @task.lake(into=OWN, mode="append", trigger_rule=TriggerRule.NONE_FAILED)
        def down(lines: LakeTable, of_day: pa.Table) -> pa.Table:
            ti = get_current_context()["ti"]
            begin(ti)
            run_id = ti.run_id
            read = lines.load(pa.Table, where=f"run = '{run_id}' AND task = 'session.line'")
            assert read.num_rows == 2 * planned().get("files", 2), read.to_pylist()
            assert of_day.num_rows
            return rows(ti)

        @task.lake(into=REPORT)
        def report() -> str:
            ti = get_current_context()["ti"]
            begin(ti)
            return str(note(ti))

        @run.check(SLICE)
        def some(of_day: pa.Table) -> bool:
            return len(of_day) > 0 and not planned().get("bad")

        halves = Halves(task_id="halves", work=run.writer)
        lines, of_day = line.expand(file=files()), day()
        choose() >> [left(), right()] >> report()
        down(lines, of_day)
        of_day >> halves


lives()
