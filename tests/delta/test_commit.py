"""Commits whose outcome is unclear, and races of threads and processes: what is acknowledged is there once."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lake_core import runtime
from lake_core.delta import DeltaTable
from lake_core.delta.action import SetTransaction
from lake_core.delta.errors import CommitOutcomeUnknown, CommitTimeout
from lake_core.delta.log_segment import commit_key
from lake_core.delta.operation import Operation
from lake_core.delta.transaction import commit
from lake_core.errors import AlreadyExists, StoreUnavailable
from lake_core.runtime import Runtime
from lake_core.store import MemoryStore
from lake_core.store.object_store import Bytes, ObjectMeta
from lake_core.testing import FaultStore
from tests.delta.tables import SCHEMA, ids, rows
from tests.processes import CONTEXT, run_together

LOST = StoreUnavailable("no answer", key="k")


class Clockwork:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def running(self) -> AbstractContextManager[None]:
        """Let this thread sleep on the clock, as long as it may."""
        return runtime.using(Runtime(sleep=self.sleep, monotonic=lambda: self.now, uniform=lambda low, high: high))

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def _puts_until_commit(store: MemoryStore) -> int:
    probe = FaultStore(store, at=10**9)
    DeltaTable.open(probe).append(rows(0, 3))
    return probe.operations


@pytest.mark.parametrize("mode", ["before", "after"])
def test_a_lost_answer_is_settled_by_reading_the_version(mode: str) -> None:
    total = _puts_until_commit(_new())
    settled = 0
    for at in range(1, total + 1):
        store = _new()
        try:
            result = DeltaTable.open(FaultStore(store, at, mode, error=LOST)).append(rows(0, 3))  # type: ignore[arg-type]
        except StoreUnavailable:
            continue  # a read or a data file failed: no commit was tried
        settled += 1
        assert result.version == 1
        assert ids(DeltaTable.open(store).to_arrow()) == [0, 1, 2]
        assert len([meta for meta in store.list("_delta_log/") if meta.key.endswith(".json")]) == 2
    assert settled >= 1


class RetriesInside(MemoryStore):
    """A client that repeats a put whose answer was lost, and then reports its own object as another's."""

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        meta = super()._put(key, data, if_absent, if_match, unique)
        if if_absent and key.startswith("_delta_log/") and not key.endswith("0.json"):
            raise AlreadyExists(f"{key} exists", key=key)
        return meta


def test_ones_own_commit_is_recognised_behind_already_exists() -> None:
    store = RetriesInside()
    DeltaTable.create(store, SCHEMA)
    table = DeltaTable.open(store)
    assert table.append(rows(0, 3)).version == 1
    assert table.append(rows(3, 4)).version == 2
    assert ids(DeltaTable.open(store).to_arrow()) == [0, 1, 2, 3]


class Silent(MemoryStore):
    """A store that stops answering when the commit of one version is put; `lands` says whether it wrote it."""

    lands = False

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        if key == commit_key(1):
            if self.lands and not self.exists(key):
                super()._put(key, data, if_absent, if_match, unique)
            raise StoreUnavailable("no answer", key=key)
        return super()._put(key, data, if_absent, if_match, unique)


@pytest.mark.parametrize("lands", [False, True])
def test_a_store_that_stays_silent(lands: bool) -> None:
    store = Silent()
    store.lands = lands
    table = DeltaTable.create(store, SCHEMA)
    time = Clockwork()
    operation = Operation("WRITE", base=table.snapshot, transaction=SetTransaction("app", 1, 0))
    if lands:
        # Reading still works, and the version tells who wrote it.
        assert commit(operation, 0).version == 1
    else:
        with time.running(), pytest.raises(CommitOutcomeUnknown, match="same transaction identifier"):
            commit(operation, 0, deadline=10)
        assert time.now > 10


def test_a_commit_that_always_loses_gives_up_at_its_deadline() -> None:
    store = _new()
    table = DeltaTable.open(store)

    class Rival(FaultStore):
        def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
            if key.startswith("_delta_log/"):
                DeltaTable.open(store).append(rows(0, 1))
            return super()._put(key, data, if_absent, if_match, unique)

    snapshot = DeltaTable.open(Rival(store, at=10**9)).snapshot
    time = Clockwork()
    with time.running(), pytest.raises(CommitTimeout):
        commit(Operation("WRITE", base=snapshot), 0, deadline=1)
    assert table.refresh().version > 5


def test_threads_append_to_one_table() -> None:
    store = _new()

    def work(worker: int) -> None:
        table = DeltaTable.open(store)
        for number in range(10):
            table.append(rows(worker * 100 + number, worker * 100 + number + 1))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    table = DeltaTable.open(store)
    assert table.version == 80
    assert ids(table.to_arrow()) == sorted(worker * 100 + number for worker in range(8) for number in range(10))


def _append_many(url: str, worker: int, appends: int) -> None:
    table = DeltaTable.open(url)
    for number in range(appends):
        start = (worker * appends + number) * 2
        table.append(rows(start, start + 2), txn=(f"worker-{worker}", number))


@pytest.mark.parametrize(
    "appends",
    [
        5,
        pytest.param(50, marks=pytest.mark.exhaustive),
        pytest.param(500, marks=[pytest.mark.stress, pytest.mark.timeout(1800)]),
    ],
)
def test_eight_processes_append_to_one_table(tmp_path: Path, appends: int) -> None:
    url = str(tmp_path / "table")
    DeltaTable.create(url, SCHEMA)
    run_together(_append_many, [(url, worker, appends) for worker in range(8)])
    table = DeltaTable.open(url)
    assert table.version == 8 * appends
    assert ids(table.to_arrow()) == list(range(8 * appends * 2))
    assert [table.txn_version(f"worker-{worker}") for worker in range(8)] == [appends - 1] * 8
    writers = [json.loads(line)["commitInfo"]["txnId"] for line in _first_lines(url, table.version)]
    assert len(set(writers)) == table.version + 1


def _first_lines(url: str, version: int) -> list[bytes]:
    return [(Path(url) / commit_key(number)).read_bytes().splitlines()[0] for number in range(version + 1)]


def _same_marker(url: str, barrier: object) -> None:
    table = DeltaTable.open(url)
    barrier.wait()  # type: ignore[attr-defined]
    table.append(rows(0, 5), txn=("one", 1))


def test_processes_with_one_marker_write_once(tmp_path: Path) -> None:
    url = str(tmp_path / "table")
    DeltaTable.create(url, SCHEMA)
    barrier = CONTEXT.Barrier(4)
    run_together(_same_marker, [(url, barrier)] * 4)
    table = DeltaTable.open(url)
    assert (table.version, ids(table.to_arrow())) == (1, [0, 1, 2, 3, 4])


def _new() -> MemoryStore:
    store = MemoryStore()
    DeltaTable.create(store, SCHEMA)
    return store
