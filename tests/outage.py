"""A store that goes away with one operation, which has happened or not, and comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeVar

from lake_core import runtime
from lake_core.errors import StoreUnavailable
from lake_core.store import MemoryStore
from lake_core.testing.fault_store import FaultStore

_T = TypeVar("_T")


class Outage(FaultStore):
    """A store that goes away with one operation after `begin`, and comes back with `end`."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner, 0)
        self._left: int | None = None
        self._happens = False
        self._is_away = False

    def begin(self, operation: int, mode: Literal["before", "after"], error: BaseException | None = None) -> None:
        self._left, self._happens = operation, mode == "after"
        self._error_of_begin = error or StoreUnavailable("the response is lost")

    def end(self) -> bool:
        """Come back. Return whether the store was away."""
        was_away, self._is_away, self._left = self._is_away, False, None
        return was_away

    def _run(self, what: str, operation: Callable[[], _T]) -> _T:
        if self._is_away:
            raise StoreUnavailable("the store is away")
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self._is_away = True
                if self._happens:
                    operation()
                raise self._error_of_begin
        return operation()


@contextmanager
def no_waiting() -> Iterator[None]:
    """Let the time that the `with` block waits pass at once."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    with runtime.using(runtime.Runtime(sleep=sleep, monotonic=lambda: now[0])):
        yield
