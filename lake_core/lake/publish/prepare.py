"""Preparation of a publish: apply changes to a branch's head, and write everything but the entry that commits them."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from lake_core.errors import ObjectMissing
from lake_core.graveler import Commit
from lake_core.lake.errors import READ_CHANGED, Conflict, ContentGone
from lake_core.lake.publish.apply import apply
from lake_core.lake.publish.branch_update import (
    AddCommit,
    BranchUpdate,
    EndRetention,
    HeadIs,
    NoNewCollection,
    NotProtected,
    RefsUpdate,
    Requirement,
    SetValue,
)
from lake_core.lake.publish.checkout import check_free, check_out, has_pointers, pending_checkout
from lake_core.lake.publish.conflict_commits import with_commits
from lake_core.lake.publish.conflict_report import ConflictReport
from lake_core.lake.publish.difference import overlap
from lake_core.lake.publish.presence import check_present, collected, retention_ended
from lake_core.lake.publish.published import Published, SkippedWrite
from lake_core.lake.publish.tree_update import Strategy, TreeUpdate, check_references, taken_tree, write_tree
from lake_core.lake.refs.commit_record import (
    DATASETS_FIELD,
    LEFT_OUT_FIELD,
    MOST_LEFT_OUT,
    MOST_RESOLVED,
    RESOLVED_FIELD,
    UNDOES_FIELD,
)
from lake_core.lake.refs.pending_deletions import collections

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.repository import Repository
    from lake_core.lake.state.dataset_record import DatasetRecord
    from lake_core.lake.state.state_store import StateStore

READ_AGAIN = "Nothing was published: do the work again in a new session, which reads what is there now"
"""The advice where what a session read has changed. A fork of it would conflict in the same way."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """The commit to make, without its changes."""

    branch: str
    message: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    parents: Sequence[str] = ()
    """The parents of the new commit besides the branch's head."""
    session: str | None = None
    retention: Mapping[str, str] = field(default_factory=dict)
    """Datasets whose retention ends before these instants (ISO 8601)."""
    adopts: str | None = None
    """The dataset to adopt. Its checked-out log may differ from main's."""
    is_merge: bool = False
    """Whether it is a merge. Protected branches accept only merges."""
    is_recorded: bool = False
    """Whether it is committed even if nothing differs, so that the history has what it brought or undid."""
    brings: bool = False
    """Whether it brings writes of other commits: a merge or a cherry-pick."""


@dataclass(frozen=True, slots=True)
class Change:
    """The difference between two states, and how to apply it to a third."""

    base: StateStore
    incoming: StateStore
    reads: Sequence[str] = ()
    strategy: Strategy | None = None
    """The side that wins a conflict."""
    remedy: str = ""
    """The advice in a conflict."""
    by_writes: bool = False
    """Whether the history has decided which writes come, as in `ApplyContext`."""
    skipped: Sequence[SkippedWrite] = ()
    """Writes that were left out before, as the target has them by their transaction identifiers."""
    resolved: Mapping[str, str] = field(default_factory=dict)
    """Conflicts that the strategy resolved before."""
    undoes: Sequence[str] = ()
    """Compactions that are undone, so that nothing conflicts."""
    replaces: Collection[str] = ()
    """Datasets that become what the incoming state has, whatever the target has."""
    otherwise: Callable[[], Change] | None = None
    """Returns another form of the same change, to apply if this one conflicts. It raises Conflict if it does too."""
    committed: datetime | None = None
    """When the incoming state of a merge was committed. Datasets whose retention ended later may lack objects of it."""
    restores: bool = False
    """Whether it brings back an earlier state, any of whose objects may be gone."""


def head_of(repository: Repository, refs: RefsState, branch: str) -> StateStore:
    """Return the state of a branch's head."""
    return repository.commit_state(refs.commit(refs.branch(branch)), branch)


def prepare_change(repository: Repository, refs: RefsState, proposal: Proposal, change: Change) -> BranchUpdate:
    """Prepare to apply a change to a branch. Raises Conflict, ProtectedBranch, Diverged, Collected."""
    check_protected(refs, proposal)
    target = head_of(repository, refs, proposal.branch)
    lacking: Collection[str] = ()
    """The datasets whose incoming state may need objects that are gone."""
    if change.restores:
        lacking = change.incoming.registered()
    elif change.committed is not None:
        lacking = retention_ended(refs, change.incoming.registered(), change.committed)
    try:
        update = apply_change(repository, refs, proposal, change, target)
    except ObjectMissing as error:
        if not lacking:
            raise
        raise collected(change.incoming.name, str(error)) from error
    check_present(repository.root, update.references, set(lacking).intersection(update.datasets), change.incoming.name)
    return prepare_tree(repository, refs, proposal, target, update, change.incoming.registered())


def prepare_tree(
    repository: Repository,
    refs: RefsState,
    proposal: Proposal,
    target: StateStore,
    update: TreeUpdate,
    registered: Mapping[str, DatasetRecord],
) -> BranchUpdate:
    """Prepare the next commit of a branch from an update of its tree.

    `registered` are the datasets that the update may create.

    Raises ProtectedBranch, Diverged, Collected.
    """
    check_protected(refs, proposal)
    branch, session = proposal.branch, proposal.session or ""
    head = refs.commit(refs.branch(branch))
    is_whole = branch == repository.format.branch and _complete_checkout(
        repository, refs, proposal, target, update, registered
    )
    if not (update or proposal.retention or proposal.is_recorded):
        return BranchUpdate(branch, Published(head.id, {}, session, update.skipped, update.resolved))
    commit = _write_commit(repository, refs, proposal, head, update)
    versions = {path: dataset.version for path, dataset in update.datasets.items() if dataset.version is not None}
    requirements: list[Requirement] = [HeadIs(branch, head.id), NoNewCollection(collections(refs))]
    if not proposal.is_merge:
        requirements.append(NotProtected(branch))
    updates: list[RefsUpdate] = [SetValue(f"branch/{branch}", {"commit": commit.id}), AddCommit(commit)]
    if is_whole:
        updates.append(SetValue(f"place/{branch}", {"commit": head.id}))
    updates += [EndRetention(path, before) for path, before in proposal.retention.items()]
    published = Published(commit.id, versions, session, update.skipped, update.resolved, update.undoes)
    return BranchUpdate(branch, published, commit, requirements, updates)


def apply_change(
    repository: Repository,
    refs: RefsState,
    proposal: Proposal,
    change: Change,
    target: StateStore,
    *,
    dry_run: bool = False,
) -> TreeUpdate:
    """Apply a change to a branch's head. Raises Conflict, which names the commits that conflict."""
    head = refs.commit(refs.branch(proposal.branch))
    tried = change if change.otherwise is None else replace(change, strategy=None)
    try:
        return _apply(repository, proposal, tried, target, head, dry_run=dry_run)
    except Conflict as error:
        remedy = READ_AGAIN if error.is_stale else change.remedy
        conflict = with_commits(repository, refs, head, change.base, error, remedy)
    if change.otherwise is None:
        raise conflict from None
    with suppress(Conflict, ContentGone):
        return apply_change(repository, refs, proposal, change.otherwise(), target, dry_run=dry_run)
    if change.strategy is None:
        raise conflict
    return apply_change(repository, refs, proposal, replace(change, otherwise=None), target, dry_run=dry_run)


def _apply(
    repository: Repository, proposal: Proposal, change: Change, target: StateStore, head: Commit, *, dry_run: bool
) -> TreeUpdate:
    update = apply(
        change.base,
        change.incoming,
        target,
        now=repository.clock(),
        session=proposal.session,
        commit=head.id,
        reads=change.reads,
        strategy=change.strategy,
        dry_run=dry_run,
        by_writes=change.by_writes,
        replaces=change.replaces,
    )
    skipped = tuple(dict.fromkeys((*change.skipped, *update.skipped)))
    return replace(update, skipped=skipped, resolved={**change.resolved, **update.resolved}, undoes=change.undoes)


def check_unchanged(repository: Repository, refs: RefsState, reads: Sequence[str], read: Commit, base: Commit) -> None:
    """Check that what was read of one commit is the same in another, the base of a session.

    `reads` are keys, and prefixes ending in "*". Raises Conflict, which names the commits that changed it.
    """
    if read.id == base.id:
        return
    before, after = repository.commit_state(read), repository.commit_state(base)
    report = ConflictReport(base.id, after.name)
    for key in overlap(reads, before, after):
        report.add_key(key, READ_CHANGED)
    try:
        report.check()
    except Conflict as error:
        raise with_commits(repository, refs, base, before, error, READ_AGAIN) from None


def check_protected(refs: RefsState, proposal: Proposal) -> None:
    """Raise ProtectedBranch if the branch accepts only merges, and this is not one."""
    if not proposal.is_merge:
        NotProtected(proposal.branch).check(refs)


def _complete_checkout(
    repository: Repository,
    refs: RefsState,
    proposal: Proposal,
    target: StateStore,
    update: TreeUpdate,
    registered: Mapping[str, DatasetRecord],
) -> bool:
    """Complete the checkouts of publishers that died, because a checked-out log must not have gaps.

    Return whether main is then complete.

    Raises Diverged if a version that is about to be published is checked out already.
    """
    behind = pending_checkout(refs, proposal.branch)
    records = {
        path: target.registered().get(path) or registered[path] for path in update.datasets if path != proposal.adopts
    }
    checks = {
        path: partial(check_free, target, record, update.datasets[path].version, update.items)
        for path, record in records.items()
    }
    # Checked-out pointers are compared with the head's, so the head must be checked out first.
    with_pointers = {path for path, record in records.items() if has_pointers(target, record)}
    checkout, _ = repository.root.gather(
        lambda: check_out(repository, behind, needed=update.datasets, without=proposal.adopts),
        lambda: repository.root.gather(*(check for path, check in checks.items() if path not in with_pointers)),
    )
    repository.root.gather(*(check for path, check in checks.items() if path in with_pointers))
    return not checkout.diverged


def _write_commit(
    repository: Repository, refs: RefsState, proposal: Proposal, head: Commit, update: TreeUpdate
) -> Commit:
    """Write everything of a commit except the entry that commits it. Raises Collected."""
    pending = repository.pending_deletions(refs)
    check_references(update.references, pending)
    onto = taken_tree(repository, update.onto, head.metarange_id, pending) if update.taken else update.onto
    tree = write_tree(repository, onto, update.items, pending)
    datasets = {path: dataset.to_json() for path, dataset in update.datasets.items()}
    metadata = dict(proposal.metadata)
    if datasets:
        metadata[DATASETS_FIELD] = json.dumps(datasets, separators=(",", ":"), ensure_ascii=False)
    if update.resolved:
        metadata[RESOLVED_FIELD] = json.dumps(dict(islice(update.resolved.items(), MOST_RESOLVED)), ensure_ascii=False)
    if proposal.brings or update.skipped:
        left_out = [[each.path, each.application, each.version] for each in update.skipped[:MOST_LEFT_OUT]]
        metadata[LEFT_OUT_FIELD] = json.dumps(left_out, separators=(",", ":"), ensure_ascii=False)
    if update.undoes:
        metadata[UNDOES_FIELD] = " ".join(update.undoes)
    if proposal.session is not None:
        metadata["session"] = proposal.session
    parents = [head, *(refs.commit(parent) for parent in proposal.parents)]
    # Ids contain whole seconds. This distinguishes two equal changes within one second.
    metadata["at"] = repository.clock().isoformat(timespec="microseconds")
    return Commit.create(
        repository.committer, proposal.message, repository.clock(), tree, metadata=metadata, parents=parents
    )
