"""The settings of retries."""

from __future__ import annotations

from dataclasses import dataclass, field

from lake_core.backoff import Backoff


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The limits of retries, after no response or a response that says to try later. All times are in seconds."""

    attempts: int = 5
    """The most attempts at a request while the service is overloaded or cannot be reached."""
    conflict_seconds: float = 30.0
    """How long a conditional put is retried if it conflicts with another put of the same key."""
    backoff: Backoff = field(default_factory=lambda: Backoff(0.1, 5.0, shortest_share=0.2))
    """How long to wait between attempts."""
