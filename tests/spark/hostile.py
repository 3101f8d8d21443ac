"""Executors that lack packages, and stores whose clients die."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from lake_core.spark import executor
from lake_core.store import LocalStore, ObjectBytes, ObjectMeta
from lake_core.store.object_store import Bytes

_HIDDEN = ("lake_core", "sqlglot", "pyroaring", "deltalake", "cramjam", "google_crc32c")


def without_the_package(original: Callable[[Any], Callable[[Any], Any]]) -> Callable[[Any], Callable[[Any], Any]]:
    """Hide this package and the packages that only it needs from the functions that workers run."""

    def hidden(function: Any) -> Callable[[Any], Any]:
        inner, streams = original(function), original is executor.batch_function
        hidden_packages = _HIDDEN

        def hide() -> dict[str, Any]:
            names = [name for name in sys.modules if name.split(".")[0] in hidden_packages]
            modules = {name: sys.modules.pop(name) for name in names}
            sys.modules.update(dict.fromkeys(hidden_packages))  # type: ignore[arg-type]
            return modules

        def show(modules: dict[str, Any]) -> None:
            for name in hidden_packages:
                del sys.modules[name]
            sys.modules.update(modules)

        def run_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            modules = hide()
            try:
                yield from inner(batches)
            finally:
                show(modules)

        def run_table(table):  # type: ignore[no-untyped-def]
            modules = hide()
            try:
                return inner(table)
            finally:
                show(modules)

        for helper in (run_batches, run_table, hide, show):
            helper.__module__ = "__main__"  # so that they travel by value
        return run_batches if streams else run_table

    return hidden


class DeadlyStore(LocalStore):
    """A folder that kills the first process, besides that which made it, that uses it a few times in the same way.

    It travels to executors by value. `flag` begins the names of files that tell of deaths.
    """

    def __init__(self, root: Path, flag: Path, *, after: int = 3) -> None:
        super().__init__(root)
        self._flag = str(flag)
        self._left = {"get": after, "put": after, "delete": 1}
        self._safe = os.getpid()

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        data = super()._get(key, start, end)
        self._die("get")
        return data

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        meta = super()._put(key, data, if_absent, if_match, unique)
        self._die("put")
        return meta

    def _delete(self, keys: list[str]) -> None:
        super()._delete(keys[:1])
        self._die("delete")
        super()._delete(keys[1:])

    def _die(self, operation: str) -> None:
        if os.getpid() == self._safe:
            return
        self._left[operation] -= 1
        flag = f"{self._flag}-{operation}"
        if self._left[operation] <= 0 and not os.path.exists(flag):
            open(flag, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)


# Executors do not have the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
