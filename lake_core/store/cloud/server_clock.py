"""The time by a server's clock. The response to a put does not contain it."""

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
    """Estimates the time of a server, from the time of an object that was just put and this machine's clocks."""

    _reading: tuple[datetime, float, float] | None = None
    """The server's time, with this machine's two clocks at that moment. It is one value, because threads share it."""

    def now(self, head: Callable[[], ObjectMeta]) -> datetime:
        """Return the server's time in whole seconds. It may be wrong by a few seconds.

        Args:
            head: Reads the metadata of an object that was put just now. Called about every ten minutes.
        """
        monotonic, wall = time.monotonic(), time.time()
        if self._reading is not None:
            server, monotonic_then, wall_then = self._reading
            elapsed = monotonic - monotonic_then
            # On some systems, the monotonic clock stops while the machine sleeps.
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
