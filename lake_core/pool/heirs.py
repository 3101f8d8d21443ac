"""Where the records of data objects went when commits rewrote these."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

    from lake_core.pool.commit_store import Change


def heirs(changes: Iterable[Change], ids: Set[str], known: Set[str]) -> set[str]:
    """Return the data objects that may hold records of others, which commits deleted.

    These are all that a commit added that deleted one of them, and in turn their heirs.

    Args:
        changes: The commits.
        ids: The ids of the deleted data objects.
        known: The ids of data objects that do not count, nor their heirs.
    """
    rewritten: dict[str, set[str]] = {}
    for change in changes:
        for id in change.replaced:
            rewritten.setdefault(id, set()).update(change.added)
    received: set[str] = set()
    following = set(ids)
    while following:
        following = {heir for id in following for heir in rewritten.get(id, ())} - received - known
        received |= following
    return received
