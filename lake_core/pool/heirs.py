"""The heirs of deleted data objects: those into which commits may have written their records again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

    from lake_core.pool.commit_store import Change


def heirs(changes: Iterable[Change], ids: Set[str], known: Set[str]) -> set[str]:
    """Return the ids of the data objects that may hold the records of deleted ones.

    A commit that deletes a data object may write its records to any data object that it adds. Later commits may
    rewrite those in turn.

    Args:
        changes: The commits to follow.
        ids: The ids of the deleted data objects.
        known: The ids of data objects to leave out, with their own heirs.
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
