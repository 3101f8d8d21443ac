"""A clock that a test moves by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_START = datetime(2026, 1, 1, tzinfo=UTC)
_STEP = timedelta(microseconds=10)


class ManualClock:
    """A clock that tests advance. Each reading also advances it by some microseconds, so that no two are equal."""

    def __init__(self, now: datetime = _START) -> None:
        self.now = now

    def __call__(self) -> datetime:
        """Move the clock by one step, and return the time."""
        self.now += _STEP
        return self.now

    def pass_days(self, days: float) -> None:
        """Move the clock on."""
        self.now += timedelta(days=days)
