"""Several processes that publish on one branch: every acknowledged commit is there, no row is lost or doubled."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lake_core import Lake
from lake_core.lake.errors import Conflict
from tests.lake.lakes import SCHEMA, create_tables, ids, plain, rows
from tests.processes import run_together

SHARED = ("t/shared-a", "t/shared-b")


def _publisher(root: str, worker: int, count: int) -> None:
    """Append to both shared tables and to the worker's own, and put a file.

    Every tenth time, put a file that all workers put.
    """
    lake = Lake.open(root)
    published, lost = [], 0
    for number in range(count):
        id = worker * 100_000 + number
        session = lake.session(message=f"{worker}/{number}")
        for path in SHARED:
            session.delta(path).append(rows([id]), txn=(f"worker-{worker}", number))
        session.create_delta(f"t/own-{worker}", SCHEMA, exist_ok=True).append(rows([id]))
        session.put(f"files/{worker}/{number}", b"%d" % id)
        if number % 10 == 5:
            session.put("contested", b"%d" % id)
        try:
            published.append(session.publish().commit)
        except Conflict as error:
            assert error.keys == ("contested",)
            assert not error.datasets
            assert error.session is not None
            lost += 1
            forked = lake.get_session(error.session).fork(without=["contested"])
            published.append(lake.get_session(forked.id).publish().commit)
    Path(f"{root}.{worker}.json").write_text(json.dumps({"commits": published, "lost": lost}))


def _race(folder: Path, workers: int, count: int) -> Lake:
    root = str(folder / "lake")
    lake = Lake.create(root)
    create_tables(lake, *SHARED)
    run_together(_publisher, [(root, worker, count) for worker in range(workers)])
    reports = [json.loads(Path(f"{root}.{worker}.json").read_text()) for worker in range(workers)]
    commits = [commit for each in reports for commit in each["commits"]]
    log = lake.log("main")
    assert len(commits) == workers * count == len(set(commits))
    assert {commit.id for commit in log} >= set(commits)
    assert len(log) == workers * count + 2
    all_ids = [worker * 100_000 + number for worker in range(workers) for number in range(count)]
    for path in SHARED:
        assert ids(lake.delta(path)) == sorted([*range(10), *all_ids])
        assert ids(plain(lake.repository.root, path)) == sorted([*range(10), *all_ids])
        assert lake.delta(path).version == workers * count
    for worker in range(workers):
        expected = [id for id in all_ids if id // 100_000 == worker]
        assert ids(lake.delta(f"t/own-{worker}")) == ids(plain(lake.repository.root, f"t/own-{worker}")) == expected
    at = lake.at("main")
    assert sum(1 for _ in at.list("files/")) == workers * count
    assert lake.maintenance.verify() == []
    return lake


def test_processes_that_publish_on_one_branch(tmp_path: Path) -> None:
    import deltalake

    lake = _race(tmp_path, workers=4, count=6)
    for path in SHARED:
        table = deltalake.DeltaTable(str(tmp_path / "lake" / path))
        assert table.version() == lake.delta(path).version
        assert ids(table.to_pyarrow_table()) == ids(lake.delta(path))


@pytest.mark.stress
@pytest.mark.timeout(1800)
def test_eight_processes_publish_a_hundred_times_each(tmp_path: Path) -> None:
    _race(tmp_path, workers=8, count=100)


def _once(root: str, worker: int) -> None:
    from lake_core.lake.publish import prepare

    tried = 0
    original = prepare.apply

    def counted(*args: object, **options: object) -> object:
        nonlocal tried
        tried += 1
        return original(*args, **options)  # type: ignore[arg-type]

    prepare.apply = counted  # type: ignore[assignment]
    lake = Lake.open(root)
    session = lake.session()
    session.delta(SHARED[0]).append(rows([1000 + worker]))
    (Path(root).parent / f"ready-{worker}").touch()
    while not (Path(root).parent / "go").exists():
        os.sched_yield()
    session.publish()
    (Path(root).parent / f"tried-{worker}").write_text(str(tried))


def _publishers_at_once(folder: Path, count: int) -> int:
    import threading
    import time

    root = str(folder / "lake")
    create_tables(Lake.create(root), SHARED[0])

    def start() -> None:
        while len(list(folder.glob("ready-*"))) < count:
            time.sleep(0.05)
        (folder / "go").touch()

    starter = threading.Thread(target=start)
    starter.start()
    run_together(_once, [(root, worker) for worker in range(count)])
    starter.join()
    assert ids(Lake.open(root).delta(SHARED[0])) == [*range(10), *range(1000, 1000 + count)]
    return sum(int(path.read_text()) for path in folder.glob("tried-*"))


def test_publishers_take_turns(tmp_path: Path) -> None:
    assert _publishers_at_once(tmp_path, 6) <= 9


@pytest.mark.stress
def test_forty_publishers_at_once_apply_sixty_times_at_most(tmp_path: Path) -> None:
    assert _publishers_at_once(tmp_path, 40) <= 60
