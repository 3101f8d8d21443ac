"""The writes with a marker that commits are, also where several became one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.pool.marker import rising

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lake_core.pool.commit_store import Change
    from lake_core.pool.marked_write import MarkedWrites
    from lake_core.pool.marker import Markers


def marked_writes(changes: Sequence[Change], before: Markers, added: Collection[str]) -> MarkedWrites | None:
    """Return the writes with a marker that commits are. None if they are not known.

    Args:
        changes: The commits, newest first.
        before: The markers before all of them.
        added: The ids of the data objects that they add, all together.
    """
    writes: dict[tuple[str, int], Sequence[str] | None] = {}
    earlier = before
    for change in reversed(changes):
        later = change.commit.markers or {}
        if rising(later, {application: marker for application, marker in earlier.items() if application in later}):
            return None  # an undo among them
        raised, earlier = rising(earlier, later), later
        if change.commit.marked:
            writes |= change.commit.marked
        elif raised and change.commit.writes != 1:
            return None
        else:
            ids = change.added if len(raised) == 1 and not change.replaced else None
            writes |= {(application, marker.version): ids for application, marker in raised.items()}
    return {marker: ids if ids is not None and set(ids) <= set(added) else None for marker, ids in writes.items()}
