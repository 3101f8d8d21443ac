"""The availability of a repository of version 2."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from lake_core.icechunk.snapshot import microseconds

if TYPE_CHECKING:
    from datetime import datetime


class RepoAvailability(Enum):
    """Whether a repository can be written."""

    online = 0
    read_only = 1


@dataclass(frozen=True, slots=True)
class RepoStatus:
    """The availability of a repository."""

    availability: RepoAvailability = RepoAvailability.online
    set_at: datetime | None = None
    """When it was set; by default now."""
    limited_availability_reason: str | None = None

    @property
    def set_at_microseconds(self) -> int:
        """Return when it was set: microseconds since the epoch."""
        return 0 if self.set_at is None else microseconds(self.set_at)
