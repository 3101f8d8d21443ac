"""Tests of concurrent threads and processes: a part of `ObjectStoreSuite`."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from lake_core.errors import AlreadyExists, PreconditionFailed, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lake_core.store.object_store import ObjectStore

_T = TypeVar("_T")


class ObjectStoreRaces:
    """Tests of threads that use one store concurrently."""

    threads: ClassVar[int] = 16
    """The number of concurrent threads."""

    def test_one_of_many_threads_creates(self, store: ObjectStore) -> None:
        """Put with `if_absent` from many threads at once."""
        for turn in range(3):
            self._assert_one_wins(store, f"race/{turn}", None)

    def test_one_of_many_threads_replaces(self, store: ObjectStore) -> None:
        """Put with `if_match` and the same etag from many threads at once."""
        for _ in range(3):
            self._assert_one_wins(store, "race", store.put("race", b"begin").etag)

    def _assert_one_wins(self, store: ObjectStore, key: str, etag: str | None) -> None:
        won = _race(
            self.threads, lambda i: _won(lambda: store.put(key, b"%d" % i, if_absent=etag is None, if_match=etag))
        )
        assert sum(won) == 1
        assert store.get(key) == b"%d" % won.index(True)

    def test_counting_by_if_match_loses_nothing(self, store: ObjectStore) -> None:
        """Count in eight threads. A thread reads again if another one was faster."""
        store.put("count", b"0")
        _race(8, lambda _: _count(store, 5))
        assert store.get("count") == b"40"

    def test_readers_see_objects_whole(self, store: ObjectStore) -> None:
        """Read and list an object while it is replaced by contents of other sizes."""
        sizes = [300_000, 1, 120_000, 70_000]
        store.put("a", b"x" * sizes[0])
        finished = threading.Event()
        letters: set[bytes] = set()

        def read() -> None:
            while not finished.is_set():
                body = store.get("a")
                assert body.size == len(body)
                assert len(set(body)) == 1
                letters.add(body[:1])
                assert next(iter(store.list("a"))).size in sizes

        with ThreadPoolExecutor(2) as pool:
            reading = [pool.submit(read) for _ in range(2)]
            try:
                for i in range(40):
                    store.put("a", bytes([65 + i % 26]) * sizes[i % len(sizes)])
            finally:
                finished.set()
            for future in reading:
                future.result()
        assert letters


class ProcessRaces:
    """Tests of processes that use one store concurrently."""

    def test_one_of_many_processes_wins(self, store: ObjectStore) -> None:
        """Create, replace and count, in processes that were spawned."""
        store.put("race/match", b"begin")
        store.put("count", b"0")
        context = multiprocessing.get_context("spawn")
        barrier, results = context.Barrier(4), context.Queue()
        processes = [context.Process(target=_run_process, args=(store, i, barrier, results)) for i in range(4)]
        for process in processes:
            process.start()
        outcomes = [results.get(timeout=120) for _ in processes]
        for process in processes:
            process.join(timeout=60)
        assert [outcome for outcome in outcomes if isinstance(outcome, str)] == []
        for turn, key in enumerate(("race/absent", "race/match")):
            winners = [index for index, *won in outcomes if won[turn]]
            assert len(winners) == 1
            assert store.get(key) == b"%d" % winners[0]
        assert store.get("count") == b"20"


def _won(put: Callable[[], object]) -> bool:
    try:
        put()
    except (AlreadyExists, PreconditionFailed):
        return False
    return True


def _race(threads: int, run: Callable[[int], _T]) -> list[_T]:
    """Return the results of `run(0)` … `run(threads - 1)`, started at the same moment."""
    barrier = threading.Barrier(threads)

    def begin(i: int) -> _T:
        barrier.wait(30)
        return run(i)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(begin, range(threads)))


def _count(store: ObjectStore, times: int) -> None:
    for _ in range(times):
        while not _counted(store):
            pass


def _counted(store: ObjectStore) -> bool:
    now = store.get("count")
    return _won(lambda: store.put("count", b"%d" % (int(now) + 1), if_match=now.etag))


def _run_process(store: ObjectStore, index: int, barrier: Any, results: Any) -> None:
    try:
        begin = store.head("race/match").etag
        barrier.wait(60)
        absent = _won(lambda: store.put("race/absent", b"%d" % index, if_absent=True))
        barrier.wait(60)
        match = _won(lambda: store.put("race/match", b"%d" % index, if_match=begin))
        barrier.wait(60)
        _count(store, 5)
    except (StoreError, threading.BrokenBarrierError) as error:
        results.put(f"{type(error).__name__}: {error}")
    else:
        results.put((index, absent, match))
