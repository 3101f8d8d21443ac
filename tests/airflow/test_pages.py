"""The pages about Airflow: their DAGs run, their commands can be typed, and what they say is so."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake_core import Lake
from tests.airflow import pages

pytestmark = [pytest.mark.airflow, pytest.mark.newest]

REFERENCE, HOW_TO = "airflow.md", "how-to/airflow.md"
_days = count()


def new_life(dag_id: str, day: datetime | None = None) -> Any:
    from tests.airflow.scheduler import Life

    return Life(dag_id, day or datetime(2026, 3, 1, tzinfo=UTC) + timedelta(days=next(_days)))


def rows(root: Path, path: str) -> list[dict[str, Any]]:
    return list(Lake.open(str(root)).delta(path).to_arrow().to_pylist())


def test_the_dag_of_the_reference_is_published_once_however_often_it_is_cleared(lake_root: Path) -> None:
    life = new_life("orders")
    assert life.go() == "success"
    assert len(Lake.open(str(lake_root)).log()) == 2
    for cleared in ([], ["session.lines"], [("session.lines", 1)]):
        life.clear(*cleared)
        assert life.go() == "success"
        assert sorted(row["file"] for row in rows(lake_root, "tables/lines")) == ["a.csv", "b.csv"]
        assert [row["customer"] for row in rows(lake_root, "tables/orders")] == ["ann", "bob"]
        assert len(rows(lake_root, "tables/totals")) == 2


def test_a_run_whose_rows_later_runs_have_rewritten_is_done_again_on_top_of_theirs(lake_root: Path) -> None:
    older, newer = new_life("orders"), new_life("orders")
    assert (older.go(), newer.go()) == ("success", "success")
    older.clear()
    assert older.go() == "success"
    assert [len(rows(lake_root, f"tables/{name}")) for name in ("orders", "lines", "totals")] == [4, 4, 2]


def test_appended_rows_that_others_rewrote_are_not_taken_out(lake_root: Path) -> None:
    life = new_life("orders")
    life.go()
    with Lake.open(str(lake_root)).session() as session:
        session.delta("tables/lines").update({"amount": "11.0"}, "file = 'a.csv'")
    before = Lake.open(str(lake_root)).list_branches()
    life.clear("session.lines")
    assert life.go() == "failed"
    assert Lake.open(str(lake_root)).list_branches() == before


def test_a_task_outside_of_a_session_publishes_by_itself(lake_root: Path) -> None:
    assert new_life("orders").go() == "success"
    life = new_life("report")
    for _ in range(2):
        assert life.go() == "success"
        assert (
            b"".join(Lake.open(str(lake_root)).at().get(f"reports/today{end}") for end in (".txt",)) == b"2 customers"
        )
        life.clear()


def test_a_data_interval_is_a_slice(lake_root: Path) -> None:
    lives = [new_life("hours"), new_life("hours")]
    for life in (*lives, lives[0]):
        life.clear()
        assert life.go() == "success"
    assert len(rows(lake_root, "tables/hours")) == 2


def test_a_schedule_without_data_intervals_is_refused() -> None:
    from lake_orch.airflow.writing import _interval
    from lake_orch.errors import InvalidDefinition

    moment = datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(InvalidDefinition, match="schedule the DAG by a CronDataIntervalTimetable"):
        _interval({"data_interval_start": moment, "data_interval_end": moment}, "task a")


def test_the_writer_publishes_all_that_it_wrote(lake_root: Path) -> None:
    life = new_life("by_hand")
    for _ in range(2):
        assert life.go() == "success"
        assert (rows(lake_root, "tables/log"), rows(lake_root, "tables/days")) == ([{"id": 1}], [{"day": 1}])
        assert bytes(Lake.open(str(lake_root)).at().get("reports/log.json")) == b"{}"
        life.clear()


def test_a_process_elsewhere_writes_in_place_of_its_task(lake_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert new_life("outside").go() == "success"
    assert [row["n"] for row in rows(lake_root, "tables/outside")] == [1, 2]


def test_files_land_once(lake_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lake_root.parent)
    (lake_root.parent / "landing" / "events").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), "landing/events/a.parquet")
    life = new_life("land")
    for _ in range(2):
        assert life.go() == "success"
        assert [row["id"] for row in rows(lake_root, "tables/events")] == [1, 2]
        life.clear()


def test_the_maintenance_of_the_page_runs(lake_root: Path) -> None:
    assert new_life("by_hand").go() == "success"
    assert new_life("lake_maintenance_lake_default").go() == "success"
    assert rows(lake_root, "tables/log") == [{"id": 1}]


def test_runs_with_a_branch_in_their_conf_are_published_there_until_it_is_merged(lake_root: Path) -> None:
    from example_pipelines.airflow_flights.runs import Run

    lake = Lake.open(str(lake_root))
    lake.create_branch("march")
    before = lake.list_branches()["main"]
    for day in (1, 2):
        date = datetime(2026, 3, day, tzinfo=UTC)
        assert Run.trigger("days", conf={"branch": "march"}, logical_date=date).go() == "success"
    assert lake.list_branches()["main"] == before
    lake.merge("march")
    assert len(rows(lake_root, "tables/days")) == 2


def test_events_of_another_branch_are_those_of_other_assets(lake_root: Path) -> None:
    from example_pipelines.airflow_flights.runs import Run, call

    Lake.open(str(lake_root)).create_branch("april")
    run = Run.trigger("days", conf={"branch": "april"}, logical_date=datetime(2026, 4, 1, tzinfo=UTC))
    run.go()
    events = call("GET", f"/assets/events?source_dag_id=days&source_run_id={quote(run.run_id)}")["asset_events"]
    assert [event["uri"] for event in events] == ["lake://lake_default/april/tables/days"]


@pytest.mark.timeout(600)
def test_the_how_to_page_is_typed(tmp_path: Path) -> None:
    """Up to the scheduler: its second day is refused, and is published once its file is right."""
    home, landed, first, refused, reads_session, corrected = [
        block
        for block in pages.blocks(HOW_TO, "console")
        if not any(word in block for word in ("pip install", "standalone", "unpause", "list-runs"))
    ]
    for name, code in pages.files(HOW_TO).items():
        (tmp_path / Path(name).name).write_text(code)
    script = [
        *("set -e", home, landed, "cp ../*.py dags", first),
        *(f"if {refused.strip()}; then exit 3; fi", reads_session, corrected),
        *(refused, "airflow dags test customers", "lake head tables/customers"),
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "LAKE"))}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    ended = subprocess.run(
        ["bash", "-c", "\n".join(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=550
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    shown = [line.split() for line in ended.stdout.splitlines()]
    assert ["2025-01-02", "ann", "-99.0"] in shown, "the session is read"
    assert shown[-2:] == [["ann", "109.5"], ["bob", "10.0"]]
    assert len(Lake.open(str(tmp_path / "shop" / "lake")).log()) == 4, "two days and the customers"


def test_a_failed_run_says_how_its_session_is_read(lake_root: Path) -> None:
    from lake_orch.airflow.operators import _kept

    session: Any = SimpleNamespace(keep_failed_for=timedelta(hours=24))
    run: Any = SimpleNamespace(run=SimpleNamespace(session=SimpleNamespace(id="run-1", conflicts=False)))
    assert "`lake ls run-1:`" in _kept(run, session)


def test_datasets_load_their_settings_by_their_short_names(airflow_home: Path) -> None:
    from lake_orch.airflow import LakeTable

    settings = LakeTable("tables/a", partition_by=["day"], metadata={"lake/schema": pa.schema([])}).settings()
    assert settings == {"lake/path": "tables/a", "lake/partition_by": ["day"], "lake/schema": pa.schema([])}
