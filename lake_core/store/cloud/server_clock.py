"""The time by a server's clock, which the response to a put does not have."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lake_core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lake_core.store.object_store import ObjectMeta

_FRESH_SECONDS = 600.0
_JUMP_SECONDS = 1.0


@dataclass(slots=True)
class ServerClock:
    """The time of a server, compared with this machine's at an object that was just put, and followed from there."""

    _reading: tuple[datetime, float, float] | None = None
    """The server's time, with this machine's two clocks at that moment. One value, since threads share it."""

    def now(self, head: Callable[[], ObjectMeta]) -> datetime:
        """Return the server's time in whole seconds, right to some seconds.

        Args:
            head: Reads the metadata of an object that was put just now. Called about every ten minutes.
        """
        monotonic, wall = time.monotonic(), time.time()
        if self._reading is not None:
            server, monotonic_then, wall_then = self._reading
            elapsed = monotonic - monotonic_then
            # The monotonic clock of some systems stands still while they sleep.
            jumped = abs((wall - wall_then) - elapsed) > _JUMP_SECONDS
            if not jumped and elapsed <= _FRESH_SECONDS:
                return (server + timedelta(seconds=elapsed)).astimezone(UTC).replace(microsecond=0)
        try:
            server = head().last_modified
        except StoreError:
            # The put itself succeeded. Without permission to read, or after a deletion, use this machine's clock.
            return datetime.now(UTC).replace(microsecond=0)
        self._reading = server, monotonic, wall
        return server
