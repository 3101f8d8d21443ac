"""Several processes at once, for tests of races."""

from __future__ import annotations

import multiprocessing
import time
import urllib.request
from collections.abc import Callable, Sequence
from multiprocessing.context import SpawnContext
from typing import Any

SPAWN: SpawnContext = multiprocessing.get_context("spawn")


def run_together(target: Callable[..., None], arguments: Sequence[tuple[Any, ...]]) -> None:
    """Run `target` with each of these arguments in a process of its own, and check that every process succeeds."""
    workers = [SPAWN.Process(target=target, args=each) for each in arguments]
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
