"""Compactions that give way: rather than let a merge or a publish conflict, they are undone.

A compaction has read and changed nothing, so that no one misses it. But a write that changes a file conflicts with a
compaction of that file on the other side.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lake_core.errors import LakeError
from lake_core.lake.publish.replay import Step, change_of, replay
from lake_core.lake.publish.write_changes import WriteChanges

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from lake_core.graveler import Commit
    from lake_core.lake.refs.reached import WriteSets
    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.repository import Repository
    from lake_core.lake.state.state_store import StateStore

MADE = ""
"""Stands for the id of an undo that is not committed yet."""


def without_compactions(
    repository: Repository,
    refs: RefsState,
    sets: WriteSets,
    paths: Collection[str],
    head: Commit,
    sides: tuple[StateStore, StateStore],
    made: str,
) -> tuple[WriteSets, StateStore] | None:
    """Return the sets with one more write, which undoes the compactions that only one side has, and the head's state.

    Args:
        repository: The lake.
        refs: Its refs.
        sets: The writes of a merge that conflicts.
        paths: The datasets that conflict.
        head: The commit of the head.
        sides: The states of the head and of what comes.
        made: The id of the undo.

    Returns:
        The sets, and the state of the head without its compactions; None if there is no such compaction, or others
        were made on top of all of them.
    """
    undone: list[str] = []
    states = {True: sides[0], False: sides[1]}
    for write in _compactions(repository, refs, sets, paths):
        on_head = write in sets.target
        before, after = change_of(refs, write)
        try:
            states[on_head], _ = replay(repository, head, states[on_head], [Step(after, before)], {}, ())
        except LakeError:
            continue  # others were made on top of it, or the files that it replaced are gone
        undone.append(write)
    if not undone:
        return None
    return replace(sets, new=[*sets.new, made], undone={**sets.undone, made: undone}), states[True]


def _compactions(repository: Repository, refs: RefsState, sets: WriteSets, paths: Collection[str]) -> Iterator[str]:
    """Yield the compactions of some datasets that only one side has, newest first."""
    changes = WriteChanges(repository, refs, sets, ())
    for write in reversed(sets.ordered((sets.in_force_after & sets.known) - sets.undone.keys())):
        is_shared = write in sets.target and write in sets.incoming
        if is_shared or not sets.links[write].has_content or not changes.paths(write) & set(paths):
            continue
        if changes.only_rearranges(write):
            yield write
