"""Where the commits that a catalog records are, seen from the commit that is synced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.catalog.plan import Position
from lake_core.lake.refs.reached import CommitLinks

if TYPE_CHECKING:
    from lake_core.graveler import Commit
    from lake_core.lake.refs.refs_state import RefsState


class Positions:
    """Where commits are, seen from a head. `may_differ`: whether the branch may have been deleted and made again."""

    def __init__(self, refs: RefsState, head: Commit, *, may_differ: bool) -> None:
        self._links, self._head, self._may_differ = CommitLinks(refs), head, may_differ
        self._known: dict[str, Position] = {}

    def position(self, commit: str) -> Position:
        """Return where a commit is."""
        if commit not in self._known:
            if self._is_reached(self._head.id, commit):
                self._known[commit] = Position.REACHED
            elif self._may_differ:
                self._known[commit] = Position.UNKNOWN if self._links.get(commit) is None else Position.REPLACED
            else:
                is_later = self._is_reached(commit, self._head.id)
                self._known[commit] = Position.LATER if is_later else Position.UNKNOWN
        return self._known[commit]

    def _is_reached(self, start: str, commit: str) -> bool:
        """Return whether a commit is another one, or one of its ancestors."""
        target = self._links.get(commit)
        if target is None:
            return False
        waiting, seen = [start], {start}
        while waiting:
            if (id := waiting.pop()) == commit:
                return True
            link = self._links.get(id)
            if link is None or link.generation <= target.generation:
                continue
            parents = [parent for parent in link.parents if parent not in seen]
            seen.update(parents)
            waiting.extend(parents)
        return False
