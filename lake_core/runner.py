"""Runners, which call the tasks of an operation."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Protocol, TypeVar

from lake_core import runtime
from lake_core.errors import LakeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

T = TypeVar("T")
_WORKERS = 2


class RunnerFailed(LakeError):
    """A runner could not call the tasks, or lost them. Their own errors are raised as they are."""


class Runner(Protocol):
    """Calls `task(0)` … `task(count - 1)`, in any order and process. Tasks and their results are picklable.

    A task may run more than once. The files of its earlier runs are then unreferenced.
    """

    def __call__(self, task: Callable[[int], T], count: int) -> Iterable[T]:
        """Call the task for each number below `count`, and return the results."""


def run_in_turn(task: Callable[[int], T], count: int) -> Iterator[T]:
    """Call tasks in this thread, each when its result is needed."""
    return map(task, range(count))


def run_here(task: Callable[[int], T], count: int) -> Iterator[T]:
    """Call tasks in this process, a few at a time to limit memory."""
    if count <= 1:
        yield from run_in_turn(task, count)
        return
    with runtime.thread_pool(_WORKERS) as pool:
        numbers = iter(range(count))
        pending: list[Future[T]] = [pool.submit(task, number) for number in islice(numbers, _WORKERS * 2)]
        try:
            while pending:
                result = pending.pop(0).result()
                pending += [pool.submit(task, number) for number in islice(numbers, 1)]
                yield result
        finally:
            for future in pending:
                future.cancel()
