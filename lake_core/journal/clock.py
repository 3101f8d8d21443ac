"""Time and chance of a journal: replaceable, so that tests are deterministic."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lake_core import runtime

NEVER_YOUNGER = timedelta(days=8)
"""Entries younger than this are never purged, so that a writer or reader that was away for less can trust what it saw."""
ASLEEP = timedelta(days=1)
"""After so long a pause a handle no longer trusts that what it saw is still there. Far less than the above: clocks differ."""

_SHORTEST = 0.001
_LONGEST = 1.0
_WIDEST = 16.0
_NARROWEST = 2.0


def system_clock() -> datetime:
    """Now, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time by both clocks."""

    wall: datetime
    monotonic: float


@dataclass(frozen=True, slots=True)
class Pacing:
    """The clocks, the waiting and the chance of one journal."""

    clock: Callable[[], datetime] = system_clock
    monotonic: Callable[[], float] = runtime.monotonic
    sleep: Callable[[float], None] = runtime.sleep
    chance: random.Random | None = None
    """None: the random numbers of the process, which differ after a fork."""

    def now(self) -> datetime:
        """The clock's time in UTC. Raises ValueError for a clock without a zone."""
        now = self.clock()
        if now.tzinfo is None:
            raise ValueError("the clock returned a datetime without a time zone")
        return now.astimezone(UTC)

    def moment(self) -> Moment:
        """This moment."""
        return Moment(self.now(), self.monotonic())

    def asleep(self, since: Moment) -> bool:
        """Whether so much time may have passed that entries seen then may be purged: by either clock, and if one was set back."""
        passed = max(abs(self.now() - since.wall), timedelta(seconds=self.monotonic() - since.monotonic))
        return passed > ASLEEP

    def uniform(self, low: float, high: float) -> float:
        """A random number between the two."""
        return self.chance.uniform(low, high) if self.chance is not None else runtime.uniform(low, high)

    def after_loss(self, lost: int, put_seconds: float) -> float:
        """How long to wait after losing so many races in a row, where a put takes so long: at random, about as long as it takes
        a few others to get through, and shorter again for whoever has waited for long.
        """
        widest = min(2.0 ** min(lost, 8), _WIDEST, max(_NARROWEST, _WIDEST * 8 / lost))
        return self.uniform(0, min(_LONGEST, widest * max(_SHORTEST, put_seconds)))

    def after_failure(self, attempt: int) -> float:
        """How long to wait after the store failed so many times in a row."""
        return self.uniform(0.5, 1.0) * min(_LONGEST, 0.01 * 2.0 ** min(attempt, 10))
