"""Time in a journal: how long a handle trusts its cached state, and how long it waits before retries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lake_core import runtime
from lake_core.backoff import Backoff
from lake_core.clock import AwareClock, system_clock, with_zone

NEVER_YOUNGER = timedelta(days=8)
"""Entries younger than this are never purged.

A writer or reader that was away for less can trust what it saw.
"""
ASLEEP = timedelta(days=1)
"""After a pause of this length, a handle reads the journal anew, because entries may have been purged.

It is far shorter than the time above, because clocks differ.
"""

AFTER_FAILURE = Backoff(0.02, 1.0)
"""The waits after the store failed."""
_SHORTEST = 0.001
_LONGEST = 1.0
_WIDEST = 16.0
_NARROWEST = 2.0


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time by both clocks."""

    wall: datetime
    monotonic: float


@dataclass(frozen=True, slots=True)
class JournalClock:
    """The two clocks of a journal: the caller's, and the one of this machine that never runs backwards."""

    clock: AwareClock = system_clock

    def now(self) -> datetime:
        """Return the caller's time in UTC. Raises ValueError for a clock without a zone."""
        return with_zone(self.clock()).astimezone(UTC)

    def moment(self) -> Moment:
        """Return this moment."""
        return Moment(self.now(), runtime.monotonic())

    def long_ago(self, time: datetime) -> bool:
        """Return whether entries that were made after that time may be purged by now."""
        return self.now() - time > ASLEEP

    def asleep(self, since: Moment) -> bool:
        """Return whether entries seen at that moment may be purged by now.

        Judged by either clock; true also if one was set back.
        """
        passed = max(abs(self.now() - since.wall), timedelta(seconds=runtime.monotonic() - since.monotonic))
        return passed > ASLEEP


def pause_after_loss(lost: int, put_seconds: float) -> float:
    """Return a random time to wait after losing a number of races in a row, given how long a put takes.

    It is about as long as a few other writers need, and shorter for a writer that has already waited long.
    """
    widest = min(2.0 ** min(lost, 8), _WIDEST, max(_NARROWEST, _WIDEST * 8 / lost))
    return runtime.uniform(0, min(_LONGEST, widest * max(_SHORTEST, put_seconds)))
