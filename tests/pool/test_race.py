"""Processes that load into one branch at once: every load lands, once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from lake_core.pool import PoolLake
from tests.processes import run_together


def load(path: str, worker: int, loads: int, txn: bool) -> None:
    pool = PoolLake.open(path).pool("events")
    for number in range(loads):
        pool.load([{"k": worker * 1000 + number}], txn=(f"worker {worker}", number) if txn else None)


@pytest.mark.parametrize(
    ("workers", "loads"),
    [pytest.param(2, 10, id="a few"), pytest.param(8, 50, id="400", marks=pytest.mark.stress)],
)
def test_all_loads_of_several_processes_land_once(tmp_path: Path, workers: int, loads: int) -> None:
    PoolLake.create(tmp_path).create_pool("events", key="k", order="asc")
    run_together(load, [(str(tmp_path), worker, loads, worker % 2 == 0) for worker in range(workers)])
    pool = PoolLake.open(tmp_path).pool("events")
    assert [record["k"] for record in pool.scan().records()] == [
        worker * 1000 + number for worker in range(workers) for number in range(loads)
    ]
    assert len(list(pool.log())) == workers * loads
    assert len([path for path in tmp_path.rglob("commits/*.zng") if ".snap" not in path.name]) == workers * loads


def test_a_load_that_several_writers_try_happens_once(tmp_path: Path) -> None:
    PoolLake.create(tmp_path).create_pool("events", key="k", order="asc")
    threads = [
        threading.Thread(target=lambda: PoolLake.open(tmp_path).pool("events").load([{"k": 1}], txn=("app", 1)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pool = PoolLake.open(tmp_path).pool("events")
    assert [record["k"] for record in pool.scan().records()] == [1]
