"""The archive of the refs journal: its snapshots leave out older commits that no ref names, and collected ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.journal import ArchiveRule
from lake_core.lake.refs.commit_link import LINKS
from lake_core.lake.refs.refs_state import RefsState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake_core.journal import State


def _named_commits(state: State) -> Iterator[str]:
    """Yield the keys of the commits that branches, tags, sessions and checkouts name."""
    refs = RefsState(state)
    checked_out = (refs.checked_out(branch) for branch in refs.branches())
    sessions = (id for session in refs.sessions() for id in (session.base, session.commit))
    for id in (*refs.branches().values(), *refs.tags().values(), *checked_out, *sessions):
        if id is not None:
            yield f"commit/{id}"


COMMIT_ARCHIVE = ArchiveRule("commit", _named_commits, at_once=LINKS)
"""The prefix is that of commits and of links. No other keys of the refs begin with it."""
