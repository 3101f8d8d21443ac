"""Changes of a branch by its writes, where the difference of two states does not say the same.

The writes that come into force, and those that go out of it, are applied one after another to the branch's head. The
result is published as one commit, like a session. First each write is checked against what others of the branch have
read, by the rules of docs/internals/merge.md. Then only the names of files, chunks and keys decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake_core.lake.publish.apply import apply
from lake_core.lake.publish.conflict_report import ConflictReport
from lake_core.lake.publish.difference import belongs_to_dataset
from lake_core.lake.state.dataset_record import DATASETS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lake_core.graveler import Commit
    from lake_core.lake.publish.published import SkippedWrite
    from lake_core.lake.refs.reached import Flip, WriteSets
    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.repository import Repository
    from lake_core.lake.state.content import Item
    from lake_core.lake.state.state_store import StateStore


@dataclass(frozen=True, slots=True)
class Step:
    """One difference to apply: from the state of a commit to that of another one."""

    before: Commit
    after: Commit


@dataclass(frozen=True, slots=True)
class Shortcut:
    """One step that does the same as several, if exactly these writes come into force or go out of it."""

    step: Step
    flips: frozenset[Flip]


def steps_of(refs: RefsState, sets: WriteSets, shortcut: Shortcut | None = None) -> list[Step]:
    """Return the steps by which a head gets the writes that come into force, and loses those that go out of it.

    Raises RefNotFound, ContentGone.
    """
    flips = sets.flips()
    if shortcut is not None and shortcut.flips == frozenset(flips):
        return [shortcut.step]
    steps = []
    for flip in flips:
        before, commit = change_of(refs, flip.id)
        steps.append(Step(before, commit) if flip.comes else Step(commit, before))
    return steps


def change_of(refs: RefsState, write: str) -> tuple[Commit, Commit]:
    """Return the commit before a write, and its own. Raises RefNotFound, ContentGone."""
    commit = refs.commit_for("one of those whose writes have to be told apart", write)
    return refs.commit_for(f"the parent of commit {write[:12]}", commit.parents[0]), commit


def replay(
    repository: Repository,
    head: Commit,
    target: StateStore,
    steps: Sequence[Step],
    files: Mapping[str, Item | None],
    without: Collection[str],
) -> tuple[StateStore, Sequence[SkippedWrite]]:
    """Apply steps to a head, in memory.

    Args:
        repository: The lake.
        head: The commit of the head.
        target: The state of the head.
        steps: The differences to apply.
        files: The values of plain files that are decided.
        without: The datasets and plain files to leave as they are.

    Returns:
        The state, and the writes that were left out, as they are there by their transaction identifiers.

    Raises:
        Conflict: A step contradicts what is there.
    """
    state = target
    skipped: dict[SkippedWrite, None] = {}
    for step in steps:
        update = apply(
            repository.commit_state(step.before),
            repository.commit_state(step.after),
            state,
            now=repository.clock(),
            session=None,
            commit=head.id,
            by_writes=True,
            decided=files.keys(),
            without=without,
        )
        skipped |= dict.fromkeys(update.skipped)
        state = state.changed(update.items)
    _check_outside_datasets(files, state, head)
    return state.changed(files), tuple(skipped)


def taken(state: StateStore, incoming: StateStore, paths: Collection[str]) -> StateStore:
    """Return a state with some datasets and plain files as another state has them."""
    items: dict[str, Item | None] = {}
    for path in paths:
        keys = {path, f"{DATASETS}{path}"}
        for view in (state.view, incoming.view):
            keys.update(key for key, _ in view.list(f"{path}/"))
        items |= {key: incoming.view.get(key) for key in keys}
    return state.changed(items)


def _check_outside_datasets(files: Mapping[str, Item | None], state: StateStore, head: Commit) -> None:
    """Raise Conflict for plain files that would come into the folder of a dataset."""
    report = ConflictReport(head.id, state.name)
    for key, item in files.items():
        if item is not None and belongs_to_dataset(key, state):
            report.add_key(key, "InsideDataset")
    report.check()
