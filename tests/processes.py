"""Several processes at once, for tests of races."""

from __future__ import annotations

import os
import time
import urllib.request
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any


class _Process(ForkServerProcess):
    """A process with the environment variables that its creator has now, not those of the fork server's start."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._environment = dict(os.environ)

    def run(self) -> None:
        os.environ.clear()
        os.environ.update(self._environment)
        super().run()


class _Context(ForkServerContext):
    Process = _Process  # type: ignore[assignment,misc]


CONTEXT = _Context()
"""Where processes of tests come from: forked from a process that has imported the package and done nothing else.

To import the package takes longer than most of these processes need for their work.
"""
CONTEXT.set_forkserver_preload(
    [
        "pytest",
        "deltalake",
        "zarr",
        "lake_core.delta",
        "lake_core.icechunk",
        "lake_core.lake",
        "lake_core.lake.filesystem",
        "lake_core.pool",
        "lake_core.store.cloud.s3",
        "tests.lake.lakes",
    ]
)


def run_together(target: Callable[..., None], arguments: Sequence[tuple[Any, ...]]) -> None:
    """Run `target` with each of these arguments in a process of its own, and check that every process succeeds."""
    workers = [CONTEXT.Process(target=target, args=each) for each in arguments]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * len(workers)


def until(condition: Callable[[], Any], what: str, seconds: float) -> Any:
    """Wait until `condition` returns a true value, and return it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        time.sleep(0.1)
    raise AssertionError(f"waited {seconds} s for {what}")


def answers(url: str) -> bool:
    """Return whether Dagster's web server answers at a URL."""
    try:
        with urllib.request.urlopen(f"{url}/server_info", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
