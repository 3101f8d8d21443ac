"""Deletion of listed objects in batches. Each batch is a task of a runner.

A task may run late: again after its executor was lost, or when another process has completed the collection. It
deletes only what is on the collection's final list. No publish uses that for eight days after the collection is
complete. A task that runs more than a day after the collector read the list deletes nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake_core import runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lake_core.runner import Runner
    from lake_core.store import ObjectStore

_KEYS_A_BATCH = 1000
_BATCHES_AT_ONCE = 64
MOST_SECONDS = 86_400.0
"""A collector that takes longer stops: eight days after another completed the collection, the objects may be in use."""


def delete_listed(
    root: ObjectStore,
    keys: Sequence[str],
    started: float,
    tell: Callable[[str, int], None],
    run: Runner,
) -> list[str]:
    """Delete objects, and return the keys of those that were deleted: all, unless it became too late.

    Args:
        root: The lake's root.
        keys: The keys of the objects.
        started: When the collector read that the collection is not complete, by the monotonic clock.
        tell: Called with "deleted" and the number of objects.
        run: Calls the tasks.
    """
    deleted: list[str] = []
    for start in range(0, len(keys), _KEYS_A_BATCH * _BATCHES_AT_ONCE):
        left = started + MOST_SECONDS - runtime.monotonic()
        if left < 0:
            return deleted
        part = keys[start : start + _KEYS_A_BATCH * _BATCHES_AT_ONCE]
        batches = [part[first : first + _KEYS_A_BATCH] for first in range(0, len(part), _KEYS_A_BATCH)]
        task = DeleteTask(root, batches, time.time() + left)
        for batch, is_in_time in zip(batches, run(task, len(batches)), strict=True):
            if is_in_time:
                deleted += batch
                tell("deleted", len(deleted))
    return deleted


@dataclass(frozen=True, slots=True)
class DeleteTask:
    """Deletes a batch of objects. Picklable."""

    root: ObjectStore
    batches: Sequence[Sequence[str]]
    until: float
    """When to stop, in seconds since the epoch."""

    def __call__(self, index: int) -> bool:
        """Delete the objects of the batch of this number. Return False, and delete nothing, if it is too late."""
        if time.time() > self.until:
            return False
        self.root.delete(self.batches[index])
        return True
