"""Clocks: what tells a table, a lake or a journal the time.

Each takes one, so that tests and simulations advance it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

Clock: TypeAlias = Callable[[], "datetime | float"]
"""Tells the time: an aware datetime, or seconds since the epoch as `time.time` does."""
AwareClock: TypeAlias = Callable[[], datetime]
"""Tells the time with a zone."""


def system_clock() -> datetime:
    """Return the time in UTC."""
    return datetime.now(UTC)


def aware(clock: Clock | None) -> AwareClock:
    """Return a clock that returns aware datetimes; the system's for None."""
    return system_clock if clock is None else _Aware(clock)


@dataclass(frozen=True, slots=True)
class _Aware:
    clock: Clock

    def __call__(self) -> datetime:
        now = self.clock()
        return with_zone(now) if isinstance(now, datetime) else datetime.fromtimestamp(now, UTC)


def now_ms(clock: Clock) -> int:
    """Return the clock's time in whole milliseconds since the epoch.

    Raises ValueError for a datetime without a zone.
    """
    now = clock()
    return int(with_zone(now).timestamp() * 1000) if isinstance(now, datetime) else int(now * 1000)


def with_zone(now: datetime) -> datetime:
    """Return the time of a clock. Raises ValueError for a datetime without a zone."""
    if now.tzinfo is None:
        raise ValueError("the clock returned a datetime without a time zone")
    return now
