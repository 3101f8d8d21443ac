"""What a merge, a revert, a cherry-pick or a publish would do now. Nothing is written.

The same sources plan the change, and `apply_change` applies it, as when it is made. Objects of steps that build on one
another stay in memory. Two things are looked at only when it is made: whether objects that come back were
garbage-collected after a vacuum, and whether another writer changed main's logs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lake_core.errors import ObjectMissing
from lake_core.lake.publish.merge import Merge, Pick, Revert, check_parent, side_of
from lake_core.lake.publish.prepare import apply_change, check_protected, head_of
from lake_core.lake.publish.presence import collected
from lake_core.lake.state.content import item_of
from lake_core.lake.state.dataset_record import dataset_above
from lake_core.lake.state.view import RESERVED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lake_core.graveler import Commit
    from lake_core.lake.publish.prepare import Change, Proposal
    from lake_core.lake.publish.published import SkippedWrite
    from lake_core.lake.publish.tree_update import DatasetUpdate, MergeStrategy
    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.repository import Repository
    from lake_core.lake.state.state_store import StateStore


@dataclass(frozen=True, slots=True)
class ChangePreview:
    """The result that a merge, a revert, a cherry-pick or a publish would have."""

    commit: str
    """The head of the branch."""
    base: str
    """The commit with which the change begins: a merge base, the base of a session, the parent of a commit that is
    picked, or the commit that is reverted."""
    incoming: str
    """What the change leads to: a commit, or the id of a session. For a revert, the parent of the commit."""
    datasets: Mapping[str, DatasetUpdate]
    """The datasets that would change, with their new versions."""
    keys: Mapping[str, Literal["put", "deleted"]]
    """The plain files that would change."""
    resolved: Mapping[str, str]
    """The datasets and keys whose conflicts the strategy resolves, with the kinds of the conflicts."""
    skipped: Sequence[SkippedWrite] = ()
    """The writes that the branch already has, by their transaction identifiers."""
    undone: Sequence[str] = ()
    """The commits that would be undone besides: compactions that conflict with it."""


def preview_merge(
    repository: Repository, incoming: Commit, name: str, into: str, strategy: MergeStrategy | None
) -> ChangePreview:
    """Return what `merge` would do now. Raises what `merge` raises."""
    repository, refs = repository.for_preview(), repository.refs()
    source = Merge(repository, incoming, name, into, None, side_of(strategy))
    bases = source.divergence(refs).bases
    change = source.change(refs, head_of(repository, refs, into))
    return preview_change(repository, refs, source.proposal(), change, bases[0].id, incoming.id)


def preview_revert(repository: Repository, commit: Commit, branch: str, parent: int) -> ChangePreview:
    """Return what `revert` would do now. Raises what `revert` raises."""
    check_parent(commit, parent, "there is nothing before it")
    repository, refs = repository.for_preview(), repository.refs()
    proposal, change = Revert(repository, commit, branch, parent, None).plan(refs)
    return preview_change(repository, refs, proposal, change, commit.id, commit.parents[parent - 1])


def preview_cherry_pick(repository: Repository, commit: Commit, onto: str, parent: int) -> ChangePreview:
    """Return what `cherry_pick` would do now. Raises what `cherry_pick` raises."""
    check_parent(commit, parent, "it changed nothing")
    repository, refs = repository.for_preview(), repository.refs()
    proposal, change = Pick(repository, commit, onto, parent, None).plan(refs)
    return preview_change(repository, refs, proposal, change, commit.parents[parent - 1], commit.id)


def preview_change(
    repository: Repository,
    refs: RefsState,
    proposal: Proposal,
    change: Change,
    base: str,
    incoming: str,
    *,
    onto: StateStore | None = None,
    undone: Sequence[str] = (),
) -> ChangePreview:
    """Return what a change would do to the branch of its commit.

    Args:
        repository: The lake.
        refs: Its refs.
        proposal: The commit that would be made.
        change: The change of the branch's head.
        base: The name of what the change begins with.
        incoming: The name of what it leads to.
        onto: The state to apply it to. By default, the head of the branch.
        undone: The commits that are undone before, so that the head becomes `onto`.

    Raises:
        Conflict: The branch has changed the same.
        ProtectedBranch: The branch accepts only merges.
        Collected: Objects that it needs were garbage-collected.
    """
    check_protected(refs, proposal)
    target = head_of(repository, refs, proposal.branch) if onto is None else onto
    try:
        update = apply_change(repository, refs, proposal, change, target, dry_run=True)
    except ObjectMissing as error:
        raise collected(change.incoming.name, str(error)) from error
    items = update.items
    if update.taken:
        changed = repository.graveler.diff(target.view.tree, update.onto)
        items = {each.key.decode(): None if each.after is None else item_of(each.after) for each in changed}
    registered = {**target.registered(), **change.incoming.registered()}
    keys: dict[str, Literal["put", "deleted"]] = {
        key: "deleted" if item is None else "put"
        for key, item in sorted(items.items())
        if not key.startswith(RESERVED) and dataset_above(key, registered) is None
    }
    return ChangePreview(
        refs.branch(proposal.branch),
        base,
        incoming,
        update.datasets,
        keys,
        update.resolved,
        update.skipped,
        (*undone, *update.undoes),
    )
