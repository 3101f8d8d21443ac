"""What becomes of sessions of all shapes: checks, skips, trigger rules, branches, and tasks that write no more."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lake_core import Lake
from tests.airflow.behaviour import plan
from tests.airflow.test_events import events, newest_event

pytestmark = [pytest.mark.airflow, pytest.mark.newest]

_days = count()


def life_of(dag_id: str) -> Any:
    from tests.airflow.scheduler import Life

    return Life(dag_id, datetime(2026, 6, 1, tzinfo=UTC) + timedelta(days=next(_days)))


def rows(root: Path, name: str, ref: str = "main") -> list[dict[str, Any]] | None:
    """Return the rows of a table, or None if there is none."""
    lake = Lake.open(str(root))
    there = any(record.path == f"tables/{name}" for record in lake.list_datasets(ref))
    return lake.delta(f"tables/{name}", ref=ref).to_arrow().to_pylist() if there else None


def put(root: Path, name: str, data: pa.Table, branch: str = "main") -> None:
    with Lake.open(str(root)).session(branch) as s:
        s.create_delta(f"tables/{name}", data.schema, exist_ok=True).append(data)


@pytest.mark.parametrize("dag_id", ["checked_by_numpy_and_arrow", "checked_beside_a_skip", "checked_after_the_writer"])
@pytest.mark.parametrize("amounts", [[1.0], [-1.0]])
def test_a_check_judges_what_the_run_has_written(dag_id: str, amounts: list[float], lake_root: Path) -> None:
    put(lake_root, "t", pa.table({"amount": [7.0]}))
    before = rows(lake_root, "t")
    plan(amounts=amounts)
    passes = amounts[0] > 0
    assert life_of(dag_id).go() == ("success" if passes else "failed")
    assert (rows(lake_root, "t") != before) is passes


def test_a_check_of_what_was_skipped_is_skipped(lake_root: Path) -> None:
    plan(branch=None)
    life = life_of("checked_beside_a_skip")
    assert (life.go(), life.states()["session.positive", -1]) == ("success", "skipped")


def test_a_check_that_does_not_block_lets_a_dataset_be_missing(lake_root: Path) -> None:
    assert life_of("checked_without_a_dataset").go() == "success"
    assert rows(lake_root, "u")


def test_a_check_is_made_again_for_what_is_written_alone(lake_root: Path) -> None:
    life = life_of("checked_after_the_writer")
    life.go()
    plan(amounts=[-1.0])
    life.clear("session.write")
    assert life.go() == "failed"
    assert rows(lake_root, "t") == [{"amount": 1.0}]


def test_what_a_coroutine_returns_is_written(lake_root: Path) -> None:
    assert life_of("awaited").go() == "success"
    assert len(rows(lake_root, "t") or []) == 1
    assert bytes(Lake.open(str(lake_root)).at().get("reports/day.txt")) == b"text"


def test_what_a_function_yields_is_not_lost_in_silence(lake_root: Path) -> None:
    assert life_of("yielded").go() == "failed"


def test_a_task_that_runs_where_all_above_was_skipped_is_published(lake_root: Path) -> None:
    assert life_of("skipped_from_above").go() == "success"
    assert (rows(lake_root, "t"), len(rows(lake_root, "u") or [])) == (None, 1)


def test_a_task_that_fails_where_all_above_was_skipped_fails_the_run(lake_root: Path) -> None:
    plan(fail=["audit"])
    assert life_of("skipped_from_above").go() == "failed"


@pytest.mark.parametrize("writes", [False, True])
def test_a_short_circuit_is_green_only_if_it_hides_nothing(writes: bool, lake_root: Path) -> None:
    plan(writes=writes)
    assert life_of("short_circuit").go() == ("failed" if writes else "success")


def test_the_failed_tasks_are_published_at_their_first_clear(lake_root: Path) -> None:
    plan(fail=["load"])
    life = life_of("tidied")
    assert life.go() == "failed"
    plan(fail=[])
    life.clear(only_failed=True)
    assert life.go(choose=lambda ready: ready[-1]) == "success"
    assert len(rows(lake_root, "t") or []) == 1


def test_a_reference_names_its_branch(lake_root: Path) -> None:
    put(lake_root, "t", pa.table({"on": ["main"]}))
    Lake.open(str(lake_root)).create_branch("dev")
    life = life_of("on_another_branch")
    assert (life.go(), life.xcom("read")) == ("success", "dev")


def test_a_reference_to_what_is_not_published_is_refused(lake_root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert life_of("read_too_early").go(choose=lambda ready: ready[0]) == "failed"
    assert "let this task follow its group" in capfd.readouterr().out


def test_a_session_is_read_by_the_name_of_its_branch(lake_root: Path) -> None:
    put(lake_root, "t", pa.table({"n": [-1]}))
    life = life_of("by_its_name")
    life.go()
    staged, by_name = life.xcom("session.read")
    assert staged == by_name != [-1]


def test_a_session_waits_for_what_its_tasks_follow(lake_root: Path) -> None:
    put(lake_root, "t", pa.table({"n": [-1]}))
    life = life_of("one_after_another")
    assert life.go(choose=lambda ready: ready[-1]) == "success"
    assert rows(lake_root, "u") == rows(lake_root, "t") != [{"n": -1}]


def test_blocks_that_ended_are_published_without_the_one_that_did_not(lake_root: Path) -> None:
    assert life_of("blocks").go() == "success"
    assert rows(lake_root, "t") == [{"block": 1}, {"block": 3}]


def test_the_pokes_of_a_rescheduled_sensor_add_up(lake_root: Path) -> None:
    assert life_of("rescheduled").go() == "success"
    assert rows(lake_root, "t") == [{"poke": 0}, {"poke": 1}]


@pytest.mark.parametrize("now", ["nothing", "skips"])
def test_a_task_by_itself_that_writes_no_more_leaves_nothing(now: str, lake_root: Path) -> None:
    life = life_of("by_itself")
    life.go()
    assert len(rows(lake_root, "t") or []) == 1
    plan(**{now: True})
    life.clear()
    assert life.go() == "success"
    assert not rows(lake_root, "t")


def test_a_task_by_itself_that_is_marked_while_it_runs_publishes_nothing(lake_root: Path) -> None:
    plan(is_marked=True)
    life_of("by_itself").go()
    assert not rows(lake_root, "t")


def test_tries_that_airflow_has_forgotten_are_not_taken_for_gone(lake_root: Path) -> None:
    from airflow import settings
    from airflow.models.xcom import XComModel
    from sqlalchemy import delete

    life = life_of("two_writers")
    life.go()
    before = rows(lake_root, "t")
    with settings.Session() as session:
        session.execute(delete(XComModel).where(XComModel.run_id == life.run_id))
        session.commit()
    life.clear("session.other", downstream=True)
    assert (life.go(), rows(lake_root, "t")) == ("failed", before)
    life.clear()
    assert (life.go(), len(rows(lake_root, "t") or [])) == ("success", 1)


@pytest.mark.parametrize("ends", [False, True], ids=["with its session open", "by itself"])
def test_a_run_that_begins_again_reads_what_is_published_by_then(ends: bool, lake_root: Path) -> None:
    put(lake_root, "t", pa.table({"n": [1]}))
    plan(fail=["last"])
    life = life_of("sums")
    if ends:
        life.go()
    else:
        life.go(until=lambda task: task == "session.last")
        life.end()
    put(lake_root, "t", pa.table({"n": [2]}))
    plan(fail=[])
    life.clear()
    assert life.go() == "success"
    assert rows(lake_root, "u") == [{"rows": 2}]


def test_files_that_have_landed_stay_when_their_run_is_cleared(lake_root: Path) -> None:
    from tests.airflow.test_events import run

    folder = lake_root.parent / "landing"
    folder.mkdir()
    runs = []
    for name in ("a", "b"):
        (folder / f"{name}.csv").write_text(f"file\n{name}\n")
        runs.append(run("elsewhere", str(folder)))
        runs[-1].go()
    runs[0].clear("session.land", downstream=True)
    assert runs[0].go() == "success"
    assert sorted(row["file"] for row in rows(lake_root, "landed") or []) == ["a", "b"]


def test_files_that_were_staged_and_never_published_land_in_the_next_run(lake_root: Path) -> None:
    from tests.airflow.test_events import run

    folder = lake_root.parent / "landing"
    folder.mkdir()
    (folder / "a.csv").write_text("file\na\n")
    first = run("elsewhere", str(folder))
    for _ in range(2):
        first.go(until=lambda task: task == "session.publish")
        first.clear("session.land")
    first.end()
    assert run("elsewhere", str(folder)).go() == "success"
    assert [row["file"] for row in rows(lake_root, "landed") or []] == ["a"]


def test_files_have_events_if_they_changed(lake_root: Path) -> None:
    life_of("files_of_all_kinds").go()
    before = newest_event()
    life_of("files_of_all_kinds").go()
    assert {each["path"] for each in events(before)} == {"reports/day.v2", "reports/log.json"}


def test_files_without_events_are_published_nevertheless(lake_root: Path) -> None:
    life = life_of("many_files")
    assert (life.go(), life.states()["session.publish", -1]) == ("success", "success")


def test_a_session_is_open_until_all_its_tasks_have_ended(lake_root: Path) -> None:
    plan(fail=["failing"])
    life = life_of("side_by_side")
    life.go(choose=lambda ready: next((ti for ti in ready if ti.task_id != "session.long"), ready[0]))
    assert life.states()["session.long", -1] == "success"
    plan(fail=[])
    life.clear(only_failed=True)
    assert life.go() == "success"
    assert (len(rows(lake_root, "t") or []), len(rows(lake_root, "u") or [])) == (1, 1)


def test_a_task_beside_open_is_cleared_alone_with_close(lake_root: Path) -> None:
    life = life_of("skipped_from_above")
    life.go()
    before = rows(lake_root, "u")
    life.clear("session.audit")
    life.go()
    assert (life.states()["session.audit", -1], rows(lake_root, "u")) == ("failed", before)
    life.clear("session.audit", "session.close")
    assert life.go() == "success"
    assert rows(lake_root, "u") != before
    assert len(rows(lake_root, "u") or []) == 1


def test_close_gives_the_events_of_a_commit_once(lake_root: Path) -> None:
    life = life_of("two_writers")
    life.go()
    life.clear("session.one")
    life.go()
    before = newest_event()
    life.clear("session.close")
    assert life.go() == "success"
    assert events(before) == []


def for_branch(life: Any, branch: str) -> None:
    """Let a run be for another branch, as a backfill that reprocesses it with another configuration."""
    from airflow import settings
    from airflow.models.dagrun import DagRun
    from sqlalchemy import update

    with settings.Session() as session:
        is_run = DagRun.run_id == life.run_id, DagRun.dag_id == life.dag.dag_id
        session.execute(update(DagRun).where(*is_run).values(conf={"branch": branch}))
        session.commit()


@pytest.mark.parametrize("fails", [True, False], ids=["failed", "published"])
def test_a_run_that_is_taken_to_another_branch_publishes_there(fails: bool, lake_root: Path) -> None:
    Lake.open(str(lake_root)).create_branch("march")
    plan(fail=["other"] if fails else [])
    life = life_of("on_the_branch_of_its_conf")
    for_branch(life, "march")
    assert life.go() == ("failed" if fails else "success")
    plan(fail=[])
    for_branch(life, "main")
    life.clear("session.other", downstream=True)
    assert life.go() == "failed", "the other task has written for march"
    assert rows(lake_root, "u") is None
    before = newest_event()
    life.clear()
    assert life.go() == "success"
    assert [len(rows(lake_root, name) or []) for name in ("t", "u")] == [1, 1]
    assert [each["branch"] for each in events(before)] == ["main", "main"]
    assert [rows(lake_root, name, "march") is None for name in ("t", "u")] == [fails, fails]


def take_newest_version(life: Any) -> None:
    """Give a run the tasks that its DAG has now, as a clear that runs on the newest version of the DAG."""
    from airflow import settings
    from airflow.models.dag_version import DagVersion
    from airflow.models.dagrun import DagRun
    from sqlalchemy import select

    with settings.Session() as session:
        is_run = DagRun.run_id == life.run_id, DagRun.dag_id == life.dag.dag_id
        run = session.scalars(select(DagRun).where(*is_run)).one()
        run.dag = life._scheduled
        newest = DagVersion.get_latest_version(life.dag.dag_id, session=session)
        run.verify_integrity(session=session, dag_version_id=newest.id)
        session.commit()


@pytest.mark.parametrize(
    ("names", "others"),
    [
        (["session", "write"], ["load", "write"]),
        ([None, "write"], [None, "wrote"]),
        ([None, "write"], ["session", "write"]),
        (["session", "write"], [None, "write"]),
    ],
    ids=["group", "task", "into a session", "out of it"],
)
def test_what_was_published_under_another_name_is_not_doubled(
    names: list[str | None], others: list[str | None], lake_root: Path
) -> None:
    from example_pipelines.airflow_flights.runs import Run, dags

    plan(names=names)
    dags.cache_clear()
    life = life_of("under_other_names")
    assert life.go() == "success"
    before = rows(lake_root, "t")
    plan(names=others)
    dags.cache_clear()
    Run.__init__(life, life.dag.dag_id, life.run_id)
    take_newest_version(life)
    life.clear()
    assert life.go() == "failed"
    assert rows(lake_root, "t") == before
    lake = Lake.open(str(lake_root))
    lake.revert(lake.log("main", limit=1)[0].id)
    life.clear()
    assert life.go() == "success"
    assert len(rows(lake_root, "t") or []) == 1


def test_a_parameter_that_is_a_dict_gets_the_json_of_a_file(lake_root: Path) -> None:
    life = life_of("settings_as_a_dict")
    assert (life.go(), life.xcom("read")) == ("success", 7)


@pytest.mark.parametrize("late", ["check", "task"])
def test_what_is_made_after_the_block_of_a_session_is_refused(late: str, airflow_home: Path) -> None:
    from airflow.sdk import DAG, task

    from lake_orch.airflow import LakeTable, lake_session

    with DAG("late", schedule=None):
        with lake_session() as run:

            @task.lake(into=LakeTable("tables/t"))
            def write() -> pa.Table: ...  # type: ignore[empty-body]

            write()

        def no_more() -> None: ...

        with pytest.raises(ValueError, match="make them in its block"):
            if late == "check":
                run.check(LakeTable("tables/t"))(no_more)
            else:
                task(task_group=run)(no_more)()


def test_a_session_in_a_session_is_refused_where_it_is_made(airflow_home: Path) -> None:
    from airflow.sdk import DAG

    from lake_orch.airflow import lake_session

    refused = pytest.raises(ValueError, match="put them beside one another")
    with refused, DAG("nested", schedule=None), lake_session("outer"), lake_session("inner"):
        pass


def test_a_path_of_any_letters_has_events(lake_root: Path) -> None:
    before = newest_event()
    assert life_of("in_another_alphabet").go() == "success"
    assert [each["path"] for each in events(before)] == ["tables/stra%C3%9Fe"]


def test_secrets_are_not_among_the_rendered_fields(lake_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.airflow.scheduler import call

    secret = {"account_pin": "TOPSECRET-1"}
    connection = {"conn_type": "lake", "host": str(lake_root), "password": json.dumps(secret)}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE_DEFAULT", json.dumps(connection))
    life = life_of("elsewhere")
    life.go()
    instance = call("GET", f"{life.path}/taskInstances/session.other_process")
    assert "TOPSECRET" not in json.dumps(instance["rendered_fields"])


@pytest.mark.parametrize("path", ["tables/t/", "/tables/t", "tables//t", "../t", ""])
def test_a_path_that_is_none_is_refused_where_it_is_named(path: str) -> None:
    from lake_orch.airflow import LakeTable

    with pytest.raises(ValueError, match="is no path of a dataset"):
        LakeTable(path)


def test_a_session_in_a_mapped_group_is_refused_where_it_is_made(airflow_home: Path) -> None:
    from airflow.sdk import DAG, task, task_group

    from lake_orch.airflow import LakeTable, lake_session

    @task_group
    def group(number: int) -> None:
        with lake_session():

            @task.lake(into=LakeTable("tables/t"))
            def write() -> None: ...

            write()

    with pytest.raises(ValueError, match="put the mapped group into the session"), DAG("mapped", schedule=None):
        group.expand(number=[1, 2])
