"""Processes that append to one journal: every acknowledged entry stands exactly once, and the numbers have no gaps."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from lake_core.journal import Action, Add, Journal, State, Update
from lake_core.journal.errors import HistoryPurged, KeyExists
from lake_core.store import LocalStore, MemoryStore, ObjectStore, open_store
from lake_core.testing import FaultStore
from tests.journal.plans import count
from tests.processes import CONTEXT, run_together
from tests.store.s3_server import S3Server


def _work(url: str, options: dict[str, object], worker: int, appends: int, results: str) -> None:
    """Count in total and by worker, and claim a name that another worker may have claimed."""
    store = open_store(url, storage_options=options)
    journal = Journal(store, "refs", snapshot_every=16, head_every=4)
    chance = random.Random(worker)
    acknowledged, refused = [], 0
    for number in range(appends):
        name = f"name-{chance.randrange(appends)}"

        def plan(state: State, number: int = number, name: str = name) -> Sequence[Action]:
            mine = f"worker-{worker}"
            assert state.get(mine, 0) == number
            return [*count(state), Update(mine, number + 1) if number else Add(mine, 1), Add(name, worker)]

        try:
            entry = journal.append(plan)
        except KeyExists:
            refused += 1
            entry = journal.append(
                lambda state, plan=plan, name=name: [action for action in plan(state) if action.key != name]
            )  # type: ignore[misc]
        assert entry is not None
        assert journal.state(refresh=False)["n"] == entry.number
        acknowledged.append((entry.number, entry.writer))
        if number % 10 == 9:
            journal = Journal(store, "refs", snapshot_every=16, head_every=4)
    with open(os.path.join(results, f"{worker}.json"), "w") as file:
        json.dump({"acknowledged": acknowledged, "refused": refused}, file)


def race(url: str, options: dict[str, object], workers: int, appends: int, results: Path) -> None:
    run_together(_work, [(url, options, worker, appends, str(results)) for worker in range(workers)])
    reports = [json.loads((results / f"{worker}.json").read_text()) for worker in range(workers)]
    journal = Journal(open_store(url, storage_options=options), "refs")
    total = workers * appends
    entries = list(journal.entries(1))
    assert [entry.number for entry in entries] == list(range(1, total + 1))
    assert [entry.actions[0].value for entry in entries] == list(range(1, total + 1))  # type: ignore[union-attr]
    acknowledged = [tuple(each) for report in reports for each in report["acknowledged"]]
    assert sorted(acknowledged) == [(entry.number, entry.writer) for entry in entries]
    assert len({entry.writer for entry in entries}) == total
    assert all(earlier.time < later.time for earlier, later in pairwise(entries))
    state = journal.state()
    assert state["n"] == total
    assert all(state[f"worker-{worker}"] == appends for worker in range(workers))
    assert sum(key.startswith("name-") for key in state) + sum(report["refused"] for report in reports) == total
    assert journal.head() == total
    assert total - 4 < int(journal.store.get("refs/HEAD")) <= total


def test_processes_race_on_one_disk(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    race(f"file://{tmp_path}/lake", {}, 6, 30, tmp_path / "results")


@pytest.mark.extended
def test_processes_race_in_s3(s3_url: str, s3_options: dict[str, object], tmp_path: Path) -> None:
    race(s3_url, s3_options, 3, 5, tmp_path)


def test_lost_answers_of_s3(s3_url: str, s3_options: dict[str, object], s3_endpoint: S3Server) -> None:
    """The connection is lost before and after puts, over real HTTP."""
    store = open_store(s3_url, storage_options=s3_options)
    journal = Journal(store, "refs")
    journal.append(count)
    for kind in ("drop_after", "drop_before", "drop_after"):
        s3_endpoint.fault(kind, times=1, method="PUT", key="refs/0")
        assert journal.append(count) is not None
    s3_endpoint.clear()
    fresh = Journal(store, "refs")
    assert fresh.state() == {"n": 4}
    assert len(list(fresh.entries(1))) == 4
    before = len(s3_endpoint.requests())
    journal.append(count)
    assert len(s3_endpoint.requests()) - before == 2, "a put, and a look at TAIL"


def _die(root: str, number: int, mode: str, at: int) -> None:
    store = FaultStore(LocalStore(root), at, mode)  # type: ignore[arg-type]
    journal = Journal(store, "refs", snapshot_every=5, head_every=2)
    while True:
        journal.append(count)


def test_killed_processes_hold_up_nobody(tmp_path: Path) -> None:
    """Each is killed (SIGKILL) somewhere in the middle of appending, while others append."""
    root = str(tmp_path / "lake")
    workers = [CONTEXT.Process(target=_die, args=(root, number, "exit", 30 + 7 * number)) for number in range(4)]
    for worker in workers:
        worker.start()
    journal = Journal(LocalStore(root), "refs")
    appended = [journal.append(count)]
    while any(worker.is_alive() for worker in workers):
        appended.append(journal.append(count))
        time.sleep(0.002)
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [-9] * 4
    end = Journal(LocalStore(root), "refs").head()
    entries = list(journal.entries(1))
    assert [entry.actions[0].value for entry in entries] == list(range(1, end + 1))  # type: ignore[union-attr]
    assert end >= len(appended)
    assert set(appended) <= set(entries)
    assert journal.append(count) is not None
    assert Journal(LocalStore(root), "refs").state() == {"n": end + 1}


class _Distant(FaultStore):
    """A store whose requests take as long as those to a distant one."""

    def _run(self, what, operation):  # type: ignore[no-untyped-def]
        time.sleep(random.uniform(0.001, 0.004))
        return super()._run(what, operation)


def _together(store: ObjectStore, writers: int, appends: int) -> list[float]:
    """Return how long each append took, in seconds, for writers with a handle each."""
    seconds: list[float] = []

    def work() -> None:
        journal = Journal(store, "refs")
        for _ in range(appends):
            began = time.monotonic()
            journal.append(count)
            seconds.append(time.monotonic() - began)

    threads = [threading.Thread(target=work) for _ in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seconds


def test_forty_writers_get_their_turn() -> None:
    store = _Distant(MemoryStore(), 0)
    seconds = _together(store, 40, 3)
    assert len(seconds) == 120
    assert Journal(store.inner, "refs").state() == {"n": 120}
    assert max(seconds) < 20, "a third of the default deadline"


@pytest.mark.stress
def test_many_processes_race_for_long(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    race(f"file://{tmp_path}/lake", {}, 12, 300, tmp_path / "results")


@pytest.mark.stress
def test_forty_writers_race_for_long() -> None:
    store = _Distant(MemoryStore(), 0)
    seconds = _together(store, 40, 50)
    assert len(seconds) == 2000
    assert Journal(store.inner, "refs").state() == {"n": 2000}
    assert max(seconds) < 60


def _read(root: str, until: int) -> None:
    """Follow a journal, and look at its state and history meanwhile: every state is one that was."""
    after = 0
    journal = Journal(LocalStore(root), "refs")
    end = time.monotonic() + 60
    while after < until:
        assert time.monotonic() < end, "the writers are gone"
        for entry in journal.entries(after + 1):
            assert entry.number == after + 1
            assert entry.actions[0].value == entry.number
            after = entry.number
        if not after:
            time.sleep(0.05)
            continue
        state = Journal(LocalStore(root), "refs").state()
        assert state["n"] == state.number >= after
        with suppress(HistoryPurged):
            assert journal.state_at(max(1, after // 2))["n"] == max(1, after // 2)


def _append(root: str, appends: int) -> None:
    journal = Journal(LocalStore(root), "refs", snapshot_every=8)
    for _ in range(appends):
        assert journal.append(count) is not None


def _run(name: str, *arguments: object) -> None:
    globals()[name](*arguments)


def test_readers_follow_writers(tmp_path: Path) -> None:
    root = str(tmp_path)
    run_together(_run, [("_append", root, 60), ("_append", root, 60), ("_read", root, 120), ("_read", root, 120)])
