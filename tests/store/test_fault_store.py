"""The store that fails on demand."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lake_core.errors import AlreadyExists, LakeError, NotFound, StoreError, StoreUnavailable
from lake_core.store import LocalStore, MemoryStore, ObjectStore
from lake_core.testing import FaultStore, ObjectStoreSuite, StoreDied


class TestFaultStoreThatNeverFails(ObjectStoreSuite):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return FaultStore(MemoryStore(), 10**9)


VERBS: list[Callable[[ObjectStore], object]] = [
    lambda store: store.get("a"),
    lambda store: store.get("a", 0, 1),
    lambda store: store.get_many(["a", "a"]),
    lambda store: store.put("b", b""),
    lambda store: store.put("c", b"", if_absent=True),
    lambda store: store.head("a"),
    lambda store: store.exists("a"),
    lambda store: list(store.list()),
    lambda store: store.list_folders(),
    lambda store: store.delete(["b", "c"]),
]


def _full() -> MemoryStore:
    inner = MemoryStore()
    inner.put("a", b"hello")
    return inner


def test_every_verb_counts_once() -> None:
    store = FaultStore(_full(), 100)
    for number, verb in enumerate(VERBS, 1):
        verb(store)
        assert store.operations == number
    with pytest.raises(NotFound):
        store.get("absent")
    assert store.operations == len(VERBS) + 1
    assert not store.fired


@pytest.mark.parametrize("at", range(1, len(VERBS) + 1))
@pytest.mark.parametrize("mode", ["before", "after"])
def test_dies_at_any_verb_and_stays_dead(at: int, mode: str) -> None:
    store = FaultStore(_full(), at, mode)  # type: ignore[arg-type]
    for verb in VERBS[: at - 1]:
        verb(store)
    assert not store.fired
    with pytest.raises(StoreDied, match=f"{mode} operation {at}"):
        VERBS[at - 1](store)
    assert store.fired
    for verb in VERBS:
        with pytest.raises(StoreDied):
            verb(store)
    assert store.operations == at + len(VERBS)


def test_before_does_nothing_and_after_does_all() -> None:
    for mode, applied in (("before", False), ("after", True)):
        inner = _full()
        with pytest.raises(StoreDied):
            FaultStore(inner, 1, mode).put("b", b"")  # type: ignore[arg-type]
        assert inner.exists("b") is applied
        with pytest.raises(StoreDied):
            FaultStore(inner, 1, mode).delete(["a"])  # type: ignore[arg-type]
        assert inner.exists("a") is not applied


def test_only_writes_that_were_done_count_as_writes() -> None:
    store = FaultStore(_full(), len(VERBS) + 2)
    for verb in VERBS:
        verb(store)
    with pytest.raises(AlreadyExists):
        store.put("a", b"", if_absent=True)
    with pytest.raises(StoreDied):
        store.put("d", b"")
    assert store.writes == 3


def test_death_is_no_store_error() -> None:
    assert issubclass(StoreDied, LakeError)
    assert not issubclass(StoreDied, StoreError)


def test_an_error_is_raised_once() -> None:
    for mode, applied in (("before", False), ("after", True)):
        inner = _full()
        error = StoreUnavailable("no answer", key="b")
        store = FaultStore(inner, 2, mode, error=error)  # type: ignore[arg-type]
        store.head("a")
        with pytest.raises(StoreUnavailable) as caught:
            store.put("b", b"", if_absent=True)
        assert caught.value is error
        assert store.fired
        assert inner.exists("b") is applied
        if applied:
            with pytest.raises(AlreadyExists):
                store.put("b", b"", if_absent=True)
        else:
            store.put("b", b"", if_absent=True)


def test_an_error_of_the_inner_store_is_that_error() -> None:
    with pytest.raises(NotFound):
        FaultStore(MemoryStore(), 1, "after").get("absent")


def test_delay() -> None:
    store = FaultStore(_full(), 2, "delay", delay=0.2)
    start = time.monotonic()
    store.get("a")
    assert time.monotonic() - start < 0.1
    assert store.get("a") == b"hello"
    assert time.monotonic() - start >= 0.2


def test_exit_kills_the_process_before_the_operation(tmp_path: Path) -> None:
    program = f"""
from lake_core.store import LocalStore
from lake_core.testing import FaultStore
store = FaultStore(LocalStore({str(tmp_path)!r}), 2, "exit")
store.put("a", b"")
store.put("b", b"")
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == -9
    assert [meta.key for meta in LocalStore(tmp_path).list()] == ["a"]


def test_many_threads_count_exactly_and_one_dies_first() -> None:
    store = FaultStore(_full(), 500)

    def use(i: int) -> bool:
        try:
            store.put(f"k/{i}", b"")
        except StoreDied:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(use, range(1000)))
    assert store.operations == 1000
    assert sum(outcomes) == 499
    assert len(list(store.inner.list("k/"))) == 499


def test_hands_on_url_and_options_and_pickles(tmp_path: Path) -> None:
    inner = LocalStore(tmp_path)
    store = FaultStore(inner, 3)
    assert (store.url("x"), store.storage_options) == (inner.url("x"), {})
    store.put("a", b"")
    again = pickle.loads(pickle.dumps(store))
    again.head("a")
    assert (store.operations, again.operations) == (1, 2)
    with pytest.raises(StoreDied):
        again.head("a")


def test_wrong_use() -> None:
    for arguments, options in (((-1,), {}), ((1, "later"), {}), ((1, "exit"), {"error": LakeError("x")})):
        with pytest.raises(ValueError):
            FaultStore(MemoryStore(), *arguments, **options)  # type: ignore[arg-type]
