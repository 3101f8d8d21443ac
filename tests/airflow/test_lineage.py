"""What the provider of OpenLineage tells of a run, in processes of its own: it is set up when Airflow is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lake_core import Lake

pytestmark = [pytest.mark.airflow, pytest.mark.newest]

DAG = """
from datetime import datetime
import pyarrow as pa
from airflow.sdk import dag, task
from lake_orch.airflow import LakeTable, lake_session

ORDERS, TOTALS = LakeTable("tables/orders"), LakeTable("tables/totals")

@dag(schedule=None, start_date=datetime(2026, 1, 1))
def shop():
    with lake_session() as run:
        @task.lake(into=ORDERS)
        def orders() -> pa.Table:
            return pa.table({"id": [1, 2, 3], "customer": ["ann", "bob", "ann"]})

        @task.lake(into=TOTALS)
        def totals(orders: pa.Table) -> pa.Table:
            return orders.group_by("customer").aggregate([([], "count_all")])

        totals(orders())

    @task
    def reads() -> int:
        return len(TOTALS.load(pa.Table))

    run >> reads()

shop()
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lineage")


@pytest.fixture(scope="module")
def told(root: Path) -> dict[str, dict[str, Any]]:
    """Return the last event of each task of a run."""
    (root / "dags").mkdir()
    (root / "dags" / "shop.py").write_text(DAG)
    Lake.create(str(root / "lake"))
    log = root / "events.jsonl"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")},
        "AIRFLOW_HOME": str(root / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(root / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__OPENLINEAGE__NAMESPACE": "tests",
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps({"type": "file", "log_file_path": str(log), "append": True}),
        "AIRFLOW_CONN_LAKE_DEFAULT": json.dumps({"conn_type": "lake", "host": str(root / "lake")}),
    }
    for command in (["db", "migrate"], ["dags", "test", "shop", "2026-01-01"]):
        ended = subprocess.run(
            [sys.executable, "-m", "airflow", *command], env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    events = [json.loads(line) for line in log.read_text().splitlines()]
    return {event["job"]["name"]: event for event in events if event["eventType"] == "COMPLETE"}


def test_what_a_task_wrote_has_its_rows_and_columns(told: dict[str, dict[str, Any]], root: Path) -> None:
    (written,) = told["shop.session.orders"]["outputs"]
    assert (written["namespace"], written["name"]) == ("file", f"{root}/lake/tables/orders")
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 3
    columns = [(column["name"], column["type"]) for column in written["facets"]["schema"]["fields"]]
    assert columns == [("id", "bigint"), ("customer", "string")]


def test_what_a_task_read_is_its_input(told: dict[str, dict[str, Any]], root: Path) -> None:
    (read,) = told["shop.session.totals"]["inputs"]
    assert read["name"] == f"{root}/lake/tables/orders"


def test_what_was_published_has_the_commit_as_its_version(told: dict[str, dict[str, Any]], root: Path) -> None:
    head = next(iter(Lake.open(str(root / "lake")).log(limit=1))).id
    published = told["shop.session.publish"]["outputs"]
    assert {each["name"]: each["facets"]["version"]["datasetVersion"] for each in published} == {
        f"{root}/lake/tables/orders": head,
        f"{root}/lake/tables/totals": head,
    }


def test_a_task_outside_of_a_session_tells_what_it_loaded(told: dict[str, dict[str, Any]], root: Path) -> None:
    head = next(iter(Lake.open(str(root / "lake")).log(limit=1))).id
    # All tasks of this run are in one process, whose collector has the inputs of those before as well.
    read = {each["name"]: each["facets"]["version"]["datasetVersion"] for each in told["shop.reads"]["inputs"]}
    assert read[f"{root}/lake/tables/totals"] == head
