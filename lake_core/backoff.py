"""Random pauses between tries that grow with each try, so that writers that collided do not collide again."""

from __future__ import annotations

from dataclasses import dataclass

from lake_core import runtime

_LAST_DOUBLING = 16


@dataclass(frozen=True, slots=True)
class Backoff:
    """The times to wait after failed tries, in seconds."""

    first: float
    """The longest pause after the first try."""
    longest: float
    """The longest pause after any try."""
    factor: float = 2.0
    """By how much the pauses grow from try to try."""
    shortest_share: float = 0.5
    """The shortest pause after a try, as a share of the longest one after it. 0 spreads tries the widest."""

    def pause(self, tries: int) -> float:
        """Draw the pause after this many failed tries in a row, from 1."""
        longest = min(self.longest, self.first * self.factor ** min(tries - 1, _LAST_DOUBLING))
        return runtime.uniform(self.shortest_share * longest, longest)

    def wait(self, tries: int) -> None:
        """Sleep for the pause after this many failed tries in a row."""
        runtime.sleep(self.pause(tries))
