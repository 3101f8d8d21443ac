"""The publish of a session, for which compactions of the branch give way.

A session that changes a file conflicts with a compaction of that file since it began. If the session would publish
without these compactions, they are undone by a commit of their own, before it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lake_core.errors import ObjectMissing
from lake_core.lake.errors import Collected, Conflict, ContentGone
from lake_core.lake.publish.branch_update import BranchUpdate, CommitFirst
from lake_core.lake.publish.give_way import MADE, without_compactions
from lake_core.lake.publish.prepare import Change, Proposal, apply_change, head_of, prepare_change
from lake_core.lake.publish.preview import ChangePreview, preview_change
from lake_core.lake.refs.commit_record import SESSION_UNDO_FIELD, UNDOES_FIELD
from lake_core.lake.refs.reached import Divergence, write_sets

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lake_core.graveler import Commit
    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.repository import Repository
    from lake_core.lake.state.state_store import StateStore


def prepare_session(
    repository: Repository, refs: RefsState, proposal: Proposal, change: Change, began_on: str
) -> BranchUpdate:
    """Prepare to publish the change of a session.

    Args:
        repository: The lake.
        refs: Its refs.
        proposal: The commit to make.
        change: What the session did since the commit that it began on.
        began_on: The id of that commit.

    Raises:
        CommitFirst: Compactions of the branch are to be undone, so that it does not conflict.
        Conflict: It conflicts with other changes as well.
        ProtectedBranch, Diverged, Collected: As for other changes.
    """
    try:
        update = prepare_change(repository, refs, proposal, change)
    except Conflict as conflict:
        first = _without_compactions(repository, refs, proposal, change, began_on, conflict.datasets)
        if first is None:
            raise
        raise CommitFirst(first) from conflict
    undone = undone_for(refs, proposal.session, refs.commit(refs.branch(proposal.branch)))
    return replace(update, published=replace(update.published, undone=undone))


def undone_for(refs: RefsState, session: str | None, commit: Commit) -> Sequence[str]:
    """Return the compactions that a commit, and those just before it, undid for the sake of a session."""
    undone: list[str] = []
    while session is not None and commit.metadata.get(SESSION_UNDO_FIELD) == session:
        undone[:0] = commit.metadata[UNDOES_FIELD].split()
        commit = refs.first_parent(commit)
    return tuple(undone)


def preview_session(
    repository: Repository, refs: RefsState, proposal: Proposal, change: Change, began_on: str
) -> ChangePreview:
    """Return what `prepare_session` would lead to, and write nothing. Raises Conflict, ProtectedBranch, Collected."""
    session = proposal.session or ""
    try:
        return preview_change(repository, refs, proposal, change, began_on, session)
    except Conflict as conflict:
        way = _way(repository, refs, proposal, change, began_on, conflict.datasets)
        if way is None:
            raise
        try:
            return preview_change(repository, refs, proposal, change, began_on, session, onto=way[1], undone=way[0])
        except (Conflict, Collected):
            raise conflict from None


def _without_compactions(
    repository: Repository, refs: RefsState, proposal: Proposal, change: Change, began_on: str, paths: Iterable[str]
) -> BranchUpdate | None:
    """Return the update that undoes compactions of a branch. None if the change would conflict nevertheless."""
    way = _way(repository, refs, proposal, change, began_on, paths)
    if way is None:
        return None
    undone, state = way
    try:
        apply_change(repository, refs, proposal, change, state, dry_run=True)
        target = head_of(repository, refs, proposal.branch)
        undo = Change(target, state, by_writes=True, restores=True, undoes=undone)
        message = f"Undo compactions that conflict with session {proposal.session}"
        metadata = {} if proposal.session is None else {SESSION_UNDO_FIELD: proposal.session}
        return prepare_change(repository, refs, Proposal(proposal.branch, message, metadata, is_recorded=True), undo)
    except (Conflict, ContentGone, Collected, ObjectMissing):
        return None


def _way(
    repository: Repository, refs: RefsState, proposal: Proposal, change: Change, began_on: str, paths: Iterable[str]
) -> tuple[Sequence[str], StateStore] | None:
    """Return the compactions that could be undone, and the branch's state without them. None if there are none."""
    paths = [path for path in paths if not _rearranges(change, path)]
    if not paths:
        return None
    head, target = refs.commit(refs.branch(proposal.branch)), head_of(repository, refs, proposal.branch)
    sets = write_sets(Divergence.of(refs, head.id, began_on), ())
    way = without_compactions(repository, refs, sets, paths, head, (target, change.base), MADE)
    return None if way is None else (way[0].undone[MADE], way[1])


def _rearranges(change: Change, path: str) -> bool:
    """Return whether the session itself has only compacted a dataset. It then conflicts: one compaction is enough."""
    before, after = change.base.datasets().get(path), change.incoming.datasets().get(path)
    if before is None or after is None:
        return False
    view = change.incoming.folder_of(after)
    return view.format.rearranges(change.base.folder_of(before), view)
