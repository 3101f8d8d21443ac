"""Time, chance and threads of this process. A simulation replaces them for its own threads.

Library code calls these functions instead of `time.sleep`, `uuid.uuid4` or `ThreadPoolExecutor`. A run under `using` is
then determined by its runtime. Wall-clock time is not included: code that needs it takes a `clock`.
"""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections import deque
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")
R = TypeVar("R")


def _monotonic() -> float:
    try:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    except (AttributeError, OSError):
        return time.monotonic()


def _uniform(low: float, high: float) -> float:
    return random.uniform(low, high)


@dataclass(frozen=True, slots=True)
class Runtime:
    """The functions by which a thread sleeps, draws random numbers and starts threads; by default the real ones."""

    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = _monotonic
    uniform: Callable[[float, float], float] = _uniform
    random_bytes: Callable[[int], bytes] = os.urandom
    thread_pool: Callable[[int], Executor] = ThreadPoolExecutor


_SYSTEM = Runtime()
# By thread. A plain dictionary, because functions that use it travel to Spark's executors by value.
_REPLACED: dict[int, Runtime] = {}


@contextmanager
def using(runtime: Runtime) -> Iterator[None]:
    """Replace the runtime of this thread for the block."""
    thread = threading.get_ident()
    before = _REPLACED.get(thread)
    _REPLACED[thread] = runtime
    try:
        yield
    finally:
        if before is None:
            del _REPLACED[thread]
        else:
            _REPLACED[thread] = before


def current() -> Runtime:
    """Return the runtime of this thread."""
    return _REPLACED.get(threading.get_ident(), _SYSTEM) if _REPLACED else _SYSTEM


def sleep(seconds: float) -> None:
    """Wait."""
    current().sleep(seconds)


def monotonic() -> float:
    """Return seconds that never run backwards, and go on while the machine sleeps where the system can tell."""
    return current().monotonic()


def uniform(low: float, high: float) -> float:
    """Return a random number between the two."""
    return current().uniform(low, high)


def random_bytes(count: int) -> bytes:
    """Return random bytes that nobody can guess."""
    return current().random_bytes(count)


def uuid4() -> uuid.UUID:
    """Return a random UUID."""
    return uuid.UUID(bytes=current().random_bytes(16), version=4)


def thread_pool(workers: int) -> Executor:
    """Return a pool of this many threads."""
    return current().thread_pool(workers)


def map_ahead(function: Callable[[T], R], items: Iterable[T], ahead: int) -> Iterator[R]:
    """Yield what a function returns for each item, in order.

    So many items are worked on at once, in as many threads.
    """
    pending: deque[Future[R]] = deque()
    with thread_pool(ahead) as pool:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) == ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
