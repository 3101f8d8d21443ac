"""Time that tests advance."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import ClassVar

START = datetime(2024, 1, 1, tzinfo=UTC)


class Clock:
    """A clock that stands until it is advanced, by tests or by what sleeps on it.

    A test's newest clock is what its journals sleep on.
    """

    newest: ClassVar[Clock | None] = None

    def __init__(self) -> None:
        Clock.newest = self
        self.now = START
        self.passed = 0.0
        self.slept = 0.0

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **by: float) -> None:
        """By seconds=, days=, …; the monotonic clock goes on only forwards."""
        step = timedelta(**by)
        self.now += step
        self.passed += max(0.0, step.total_seconds())

    def monotonic(self) -> float:
        return self.passed

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.passed += seconds
        self.now += timedelta(seconds=seconds)
