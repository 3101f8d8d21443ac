"""Time as the log stores it. A table's clock can be replaced, so that tests advance it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import TypeAlias

Clock: TypeAlias = Callable[[], "dt.datetime | float"]
"""Tells the time: an aware datetime, or seconds since the epoch as `time.time` does."""


def system_clock() -> dt.datetime:
    """Now, in UTC."""
    return dt.datetime.now(dt.UTC)


def now_ms(clock: Clock) -> int:
    """The clock's time in whole milliseconds since the epoch. Raises ValueError for a datetime without a zone."""
    now = clock()
    if isinstance(now, dt.datetime):
        if now.tzinfo is None:
            raise ValueError("the clock returned a datetime without a time zone")
        return int(now.timestamp() * 1000)
    return int(now * 1000)
