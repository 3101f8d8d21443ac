"""Shapes of sessions that a plain run has not: checks of many kinds, skips, trigger rules, branches, two sessions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import quote

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import BaseSensorOperator, dag, get_current_context, setup, task, teardown

from lake_orch.airflow import LakeFile, LakeTable, lake_session
from tests.airflow.behaviour import act, note, planned

T, U = LakeTable("tables/t"), LakeTable("tables/u")
OPTIONS: dict[str, Any] = {"schedule": None, "start_date": datetime(2026, 1, 1), "catchup": False}


def number() -> pa.Table:
    return pa.table({"n": [note(get_current_context()["ti"])]})


def amounts() -> pa.Table:
    return pa.table({"amount": planned().get("amounts", [1.0])})


@dag(**OPTIONS)
def checked_by_numpy_and_arrow() -> None:
    with lake_session() as run:

        @task.lake(into=T)
        def write() -> pa.Table:
            return amounts()

        @run.check(T)
        def by_pandas(rows: pd.DataFrame) -> Any:
            return (rows["amount"] > 0).all()

        @run.check(T)
        def by_arrow(rows: pa.Table) -> Any:
            return pc.all(pc.greater(rows["amount"], 0))

        write()


@dag(**OPTIONS)
def checked_beside_a_skip() -> None:
    with lake_session() as run:

        @task.branch
        def choose() -> str | None:
            return planned().get("branch", "session.left")

        @task.lake(into=T, mode="append")
        def left() -> pa.Table:
            return amounts()

        @task.lake(into=T, mode="append")
        def right() -> pa.Table:
            return amounts()

        @run.check(T)
        def positive(rows: pa.Table) -> bool:
            return pc.min(rows["amount"]).as_py() > 0

        choose() >> [left(), right()]


@dag(**OPTIONS)
def checked_after_the_writer() -> None:
    with lake_session() as run:

        @run.check(T)
        def a_positive(rows: pa.Table) -> bool:
            return pc.min(rows["amount"]).as_py() > 0

        @task
        def write(work: Any = run.writer) -> None:
            with work() as writer:
                writer.overwrite("tables/t", amounts())

        write()


@dag(**OPTIONS)
def checked_without_a_dataset() -> None:
    with lake_session() as run:

        @task.lake(into=T)
        def nothing() -> None: ...

        @task.lake(into=U)
        def other() -> pa.Table:
            return number()

        @run.check(T, blocking=False)
        def some(rows: pa.Table) -> bool:
            return len(rows) > 0

        nothing()
        other()


@dag(**OPTIONS)
def awaited() -> None:
    with lake_session():

        @task.lake(into=T)
        async def rows() -> pa.Table:
            return number()

        @task.lake(into=LakeFile("reports/day"))
        async def report() -> str:
            return "text"

        rows()
        report()


@dag(**OPTIONS)
def yielded() -> None:
    with lake_session():

        @task.lake(into=T)
        def batches() -> Iterator[pa.RecordBatch]:
            yield from number().to_batches()

        batches()


@dag(**OPTIONS)
def skipped_from_above() -> None:
    @task
    def new_files() -> None:
        raise AirflowSkipException("none")

    with lake_session() as run:

        @task.lake(into=T)
        def load() -> pa.Table:
            return number()

        @task.lake(into=U, mode="append", trigger_rule="all_done")
        def audit() -> pa.Table:
            act("audit")
            return number()

        load()
        audit()
    new_files() >> run


@dag(**OPTIONS)
def short_circuit() -> None:
    with lake_session():

        @task.lake(into=U)
        def before() -> pa.Table | None:
            return number() if planned().get("writes") else None

        @task.short_circuit
        def new_files() -> bool:
            return False

        @task.lake(into=T)
        def load() -> pa.Table:
            return number()

        before() >> new_files() >> load()


@dag(**OPTIONS)
def tidied() -> None:
    with lake_session():

        @setup
        def cluster() -> None: ...

        @teardown
        def stop() -> None: ...

        @task.lake(into=T)
        def load() -> pa.Table:
            act("load")
            return number()

        @task(trigger_rule="all_done")
        def tidy() -> None: ...

        made, loaded = cluster(), load()
        made >> loaded >> stop().as_teardown(setups=made)
        loaded >> tidy()


@dag(**OPTIONS)
def on_another_branch() -> None:
    with lake_session(branch="dev") as run:

        @task.lake(into=T)
        def write() -> pa.Table:
            return pa.table({"on": ["dev"]})

        written = write()

    @task.lake
    def read(rows: pa.Table) -> str:
        return str(rows["on"][0])

    run >> read(written)


@dag(**OPTIONS)
def read_too_early() -> None:
    with lake_session():

        @task.lake(into=T)
        def write() -> pa.Table:
            return number()

        written = write()

    @task.lake
    def read(rows: pa.Table) -> int:
        return len(rows)

    read(written)


@dag(**OPTIONS)
def by_its_name() -> None:
    with lake_session():

        @task.lake(into=T)
        def write() -> pa.Table:
            return number()

        @task.lake
        def read() -> list[list[int]]:
            handles = (T, LakeTable("tables/t", branch="main"))
            return [handle.load(pa.Table)["n"].to_pylist() for handle in handles]

        write() >> read()


@dag(**OPTIONS)
def one_after_another() -> None:
    with lake_session("one") as one:

        @task.lake(into=T)
        def write() -> pa.Table:
            return number()

        write()
    with lake_session("two"):

        @task.lake(into=U)
        def copy() -> pa.Table:
            return T.load(pa.Table)

        one >> copy()


@dag(**OPTIONS)
def blocks() -> None:
    with lake_session() as run:

        @task
        def three(work: Any = run.writer) -> None:
            for number in (1, 2, 3):
                try:
                    with work() as writer:
                        writer.append("tables/t", pa.table({"block": [number]}))
                        if number == 2:
                            raise ValueError("a bad file")
                except ValueError:
                    pass

        three()


class Arrived(BaseSensorOperator):
    """Writes at each poke, and passes at the third."""

    def __init__(self, work: Any, **options: Any) -> None:
        super().__init__(**options)
        self.work = work

    def poke(self, context: Any) -> bool:
        poke = note(context["ti"])
        if poke < 2:
            with self.work() as writer:
                writer.append("tables/t", pa.table({"poke": [poke]}))
        return poke >= 2


@dag(**OPTIONS)
def rescheduled() -> None:
    with lake_session() as run:
        Arrived(task_id="arrived", work=run.writer, mode="reschedule", poke_interval=0.1)


@dag(**OPTIONS)
def by_itself() -> None:
    @task.lake(into=T, mode="append")
    def write() -> pa.Table | None:
        if planned().get("skips"):
            raise AirflowSkipException("nothing")
        if planned().get("is_marked"):
            from example_pipelines.airflow_flights.runs import call

            ti = get_current_context()["ti"]
            path = f"/dags/{ti.dag_id}/dagRuns/{quote(ti.run_id)}/taskInstances/{ti.task_id}"
            call("PATCH", path, {"new_state": "success"})
        return None if planned().get("nothing") else number()

    write()


@dag(**OPTIONS)
def two_writers() -> None:
    with lake_session():

        @task.lake(into=T, mode="append")
        def one() -> pa.Table:
            return number()

        @task.lake(into=U, mode="append")
        def other() -> pa.Table:
            return number()

        one()
        other()


@dag(**OPTIONS)
def sums() -> None:
    with lake_session():

        @task.lake(into=U)
        def total() -> pa.Table:
            return pa.table({"rows": [len(T.load(pa.Table))]})

        @task
        def last() -> None:
            act("last")

        total() >> last()


@dag(**OPTIONS)
def files_of_all_kinds() -> None:
    with lake_session() as run:

        @task.lake(into=LakeFile("reports/day"))
        def same() -> str:
            return "the same"

        @task.lake(into=LakeFile("reports/day.v2"))
        def other() -> str:
            return str(note(get_current_context()["ti"]))

        @task
        def by_the_writer(work: Any = run.writer) -> None:
            with work() as writer:
                writer.files.put("reports/log.json", str(note(get_current_context()["ti"])).encode())

        same()
        other()
        by_the_writer()


@dag(**OPTIONS)
def many_files() -> None:
    with lake_session() as run:

        @task
        def put(work: Any = run.writer) -> None:
            with work() as writer:
                for number in range(101):
                    writer.files.put(f"reports/{number}.txt", b"text")

        put()


@dag(**OPTIONS)
def side_by_side() -> None:
    with lake_session():

        @task.lake(into=T)
        def long() -> pa.Table:
            return number()

        @task.lake(into=U)
        def failing() -> pa.Table:
            act("failing")
            return number()

        long()
        failing()


@dag(**OPTIONS)
def on_the_branch_of_its_conf() -> None:
    with lake_session(branch="{{ dag_run.conf.get('branch', 'main') }}"):

        @task.lake(into=T, mode="append")
        def write() -> pa.Table:
            return number()

        @task.lake(into=U, mode="append")
        def other() -> pa.Table:
            act("other")
            return number()

        write()
        other()


@dag(**OPTIONS)
def under_other_names() -> None:
    group, name = planned().get("names", ["session", "write"])

    @task.lake(into=T, mode="append", task_id=name)
    def write() -> pa.Table:
        return number()

    if group is None:
        write()
    else:
        with lake_session(group):
            write()


@dag(**OPTIONS)
def settings_as_a_dict() -> None:
    with lake_session() as run:

        @task.lake(into=LakeFile("settings.json"))
        def write() -> dict[str, int]:
            return {"threshold": 7}

        written = write()

    @task.lake
    def read(settings: dict) -> int:  # type: ignore[type-arg]
        return int(settings["threshold"])

    run >> read(written)


@dag(**OPTIONS)
def in_another_alphabet() -> None:
    with lake_session():

        @task.lake(into=LakeTable("tables/straße"))
        def write() -> pa.Table:
            return number()

        write()


for each in (
    *(checked_by_numpy_and_arrow, checked_beside_a_skip, checked_after_the_writer, checked_without_a_dataset),
    *(awaited, yielded, skipped_from_above, short_circuit, tidied, on_another_branch, read_too_early, by_its_name),
    *(one_after_another, blocks, rescheduled, by_itself, two_writers, sums, files_of_all_kinds, in_another_alphabet),
    *(many_files, side_by_side, on_the_branch_of_its_conf, under_other_names, settings_as_a_dict),
):
    each()
