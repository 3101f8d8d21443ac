"""The settings of retries."""

from __future__ import annotations

from dataclasses import dataclass, field

from lake_core.backoff import Backoff


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long requests without a response, or with the response to try later, are retried. All times in seconds."""

    attempts: int = 5
    """Requests at most while the service is overloaded or out of reach."""
    conflict_seconds: float = 30.0
    """For how long a conditional put is tried again that met another one of the same key."""
    backoff: Backoff = field(default_factory=lambda: Backoff(0.1, 5.0, shortest_share=0.2))
    """How long to wait in between."""
