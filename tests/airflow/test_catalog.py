"""The operator that registers the tables of main with a catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lake_core import Lake
from tests.airflow.test_events import run
from tests.catalog.unity_server import UnityServer

pytestmark = [pytest.mark.airflow, pytest.mark.newest]


@pytest.fixture
def unity(monkeypatch: pytest.MonkeyPatch) -> Iterator[UnityServer]:
    with UnityServer() as server:
        monkeypatch.setenv("LAKE_UNITY_URI", server.url)
        yield server


@pytest.fixture
def lake(lake_root: Path) -> Lake:
    lake = Lake.open(str(lake_root))
    with lake.session() as session:
        session.create_delta("tables/orders", pa.schema([("id", pa.int64())]))
    return lake


def test_the_operator_registers_the_tables_and_returns_what_it_did(lake: Lake, unity: UnityServer) -> None:
    register = run("catalogs")
    assert register.go() == "success"
    assert list(unity.schemas["lakes", "sales"]) == ["orders"]
    assert register.xcom("register") == {
        "commit": lake.list_branches()["main"],
        "changes": [{"schema": "sales", "action": "create", "name": "orders", "path": "tables/orders"}],
        "unchanged": 0,
    }


def test_a_refused_table_fails_the_task_and_stays(lake: Lake, unity: UnityServer) -> None:
    foreign = {"name": "orders", "table_id": "theirs", "storage_location": "s3://theirs"}
    unity.schemas["lakes", "sales"] = {"orders": foreign}
    assert run("catalogs").go() == "failed"
    assert unity.schemas["lakes", "sales"] == {"orders": foreign}
    assert lake.delta("tables/orders").version == 0
