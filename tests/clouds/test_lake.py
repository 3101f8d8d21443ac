"""Tables, journals and lakes in each cloud, and processes that race for them."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from tests.clouds.servers import CloudServer
from tests.journal import test_race as journal_race
from tests.lake.in_a_bucket import race, work_on_sessions_branches_and_merges
from tests.processes import run_together

pytestmark = [pytest.mark.clouds, pytest.mark.timeout(600)]


@pytest.fixture
def url(cloud_server: CloudServer) -> str:
    return cloud_server.url(uuid.uuid4().hex)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep cached ranges apart from the user's own cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_sessions_branches_and_merges(url: str, cloud_server: CloudServer) -> None:
    work_on_sessions_branches_and_merges(url, cloud_server.storage_options)


def test_processes_that_append_to_one_journal(url: str, cloud_server: CloudServer, tmp_path: Path) -> None:
    journal_race.race(url, cloud_server.storage_options, 4, 10, tmp_path)


def test_eight_processes_that_publish_on_one_branch(url: str, cloud_server: CloudServer) -> None:
    race(url, cloud_server.storage_options, workers=8, count=4)


def _append(url: str, options: dict[str, object], worker: int, count: int) -> None:
    table = DeltaTable.open(url, storage_options=options)
    for number in range(count):
        table.append(pa.table({"id": [worker * 1000 + number]}), txn=(f"worker-{worker}", number))


def test_eight_processes_that_append_to_one_table(url: str, cloud_server: CloudServer) -> None:
    options = cloud_server.storage_options
    DeltaTable.create(url, pa.schema([("id", pa.int64())]), storage_options=options)
    run_together(_append, [(url, options, worker, 4) for worker in range(8)])
    table = DeltaTable.open(url, storage_options=options)
    assert table.version == 32
    assert sorted(table.to_arrow()["id"].to_pylist()) == [w * 1000 + n for w in range(8) for n in range(4)]
