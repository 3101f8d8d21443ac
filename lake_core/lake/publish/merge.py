"""Merge, revert and cherry-pick: apply the changes of a branch or of one commit to a branch.

All use `apply`, which decides what conflicts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from lake_core.lake.errors import Conflict, NothingToApply, RefNotFound
from lake_core.lake.publish.commit_to_branch import commit_to_branch
from lake_core.lake.publish.conflict_commits import with_commits
from lake_core.lake.publish.conflict_report import ConflictReport
from lake_core.lake.publish.file_values import file_values
from lake_core.lake.publish.give_way import MADE, without_compactions
from lake_core.lake.publish.prepare import Change, Proposal, head_of, prepare_change
from lake_core.lake.publish.replay import Shortcut, Step, replay, steps_of, taken
from lake_core.lake.publish.write_changes import WriteChanges
from lake_core.lake.publish.write_checks import check_writes
from lake_core.lake.refs.commit_record import (
    MERGE_FIELD,
    PARENT_FIELD,
    PICK_FIELD,
    REVERT_FIELD,
    SQUASH_FIELD,
    UNDOES_FIELD,
)
from lake_core.lake.refs.reached import Divergence, Flip, UndoneElsewhere, WriteSets, undo_of, write_sets
from lake_core.readable import count_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from lake_core.graveler import Commit
    from lake_core.lake.publish.branch_update import BranchUpdate
    from lake_core.lake.publish.published import Published
    from lake_core.lake.publish.tree_update import MergeStrategy, Strategy
    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.repository import Repository
    from lake_core.lake.state.state_store import StateStore


@dataclass(frozen=True, slots=True)
class Merge:
    """A `Source` that brings to a branch the writes of a commit that the branch does not have.

    The new commit has two parents, or with `squash` only the branch's head.
    """

    repository: Repository
    incoming: Commit
    name: str
    """The caller's name for the commit."""
    branch: str
    message: str | None = None
    strategy: Strategy | None = None
    squash: bool = False
    compares_checkout: bool = False

    def prepare(self, refs: RefsState) -> BranchUpdate:
        """Merge into the head of these refs."""
        target = head_of(self.repository, refs, self.branch)
        change = self.change(refs, target)
        return prepare_change(self.repository, refs, self.proposal(), change)

    def divergence(self, refs: RefsState) -> Divergence:
        """Compare the histories of the branch and the commit. Raises NothingToApply, RefNotFound."""
        divergence = Divergence.of(refs, refs.branch(self.branch), self.incoming.id)
        if not divergence.missing:
            raise NothingToApply(f"the branch {self.branch!r} already has all of {self.name!r}")
        divergence.check_known(f"between {self.incoming.id[:12]} and {divergence.head[:12]} and their merge base")
        if not divergence.bases:
            raise RefNotFound(
                f"commits {self.incoming.id[:12]} and {divergence.head[:12]} have no commit in common, so they cannot "
                "be merged: copy what you need into a session"
            )
        return divergence

    def proposal(self) -> Proposal:
        """Return the message, metadata and parents of the commit."""
        return Proposal(
            self.branch,
            self.message or f"Merge {self.name} into {self.branch}",
            {SQUASH_FIELD if self.squash else MERGE_FIELD: self.incoming.id}
            | ({} if self.strategy is None else {"strategy": self.strategy}),
            parents=() if self.squash else (self.incoming.id,),
            is_merge=True,
            is_recorded=True,
            brings=True,
        )

    def change(self, refs: RefsState, target: StateStore) -> Change:
        """Return the change of the branch's head. Raises Conflict, NothingToApply, RefNotFound, ContentGone.

        Where the difference from the merge base says the same as the writes, it is that difference.
        """
        divergence = self.divergence(refs)
        remedy = (
            f"Nothing was merged: merge with strategy='theirs' to take what {self.name} has of these or with "
            f"strategy='ours' to keep what {self.branch} has of them, "
            f"or do the work again on a new branch of {self.branch}"
        )
        incoming = self.repository.commit_state(self.incoming, self.name)
        if not divergence.is_direct:
            if self.strategy is None:
                return self._replayed(refs, divergence, target, remedy)
            return _resolved_change(
                self.repository, refs, divergence, target, self.branch, incoming, self.strategy, remedy
            )
        purpose = f"the merge base of {self.incoming.id[:12]} and {divergence.head[:12]}"
        base = self.repository.commit_state(
            refs.commit_for(purpose, divergence.bases[0].id), f"the merge base of {self.name} and {self.branch}"
        )
        committed = self.incoming.creation_date
        direct = Change(base, incoming, strategy=self.strategy, remedy=remedy, committed=committed)
        return replace(direct, otherwise=partial(self._replayed, refs, divergence, target, remedy))

    def _replayed(self, refs: RefsState, divergence: Divergence, target: StateStore, remedy: str) -> Change:
        sets = write_sets(divergence)
        incoming = self.repository.commit_state(self.incoming, self.name)
        return replayed_change(self.repository, refs, sets, target, self.branch, incoming=incoming, remedy=remedy)


@dataclass(frozen=True, slots=True)
class Pick:
    """A `Source` that brings to a branch the writes that reached a commit since its parent."""

    repository: Repository
    commit: Commit
    branch: str
    parent: int
    message: str | None
    compares_checkout: bool = False

    def prepare(self, refs: RefsState) -> BranchUpdate:
        """Apply the writes to the head of these refs. Raises NothingToApply, Conflict."""
        return prepare_change(self.repository, refs, *self.plan(refs))

    def plan(self, refs: RefsState) -> tuple[Proposal, Change]:
        """Return the commit to make, and the change of the branch's head. Raises NothingToApply, Conflict."""
        divergence = Divergence.of(refs, refs.branch(self.branch), self.commit.id)
        between = divergence.links.range_writes(self.commit.id, self.parent)
        sets = write_sets(divergence, between)
        if not sets.new:
            raise NothingToApply(
                f"the branch {self.branch!r} has commit {self.commit.id[:12]} already. If it was reverted there, "
                "revert the revert"
            )
        target = head_of(self.repository, refs, self.branch)
        step = Step(_parent(refs, self.commit, self.parent), self.commit)
        # What a merge with a strategy did can only be brought as a whole. What others brought may have had no effect.
        is_whole = "strategy" in divergence.links[self.commit.id].metadata
        shortcut = Shortcut(step, sets.net(frozenset(between))) if is_whole else None
        change = replayed_change(self.repository, refs, sets, target, self.branch, shortcut=shortcut)
        metadata = {PICK_FIELD: self.commit.id, "cherry-pick-committer": self.commit.committer}
        message, metadata = self.message or self.commit.message, metadata | _parent_field(self.parent)
        return Proposal(self.branch, message, metadata, is_recorded=True, brings=True), change


@dataclass(frozen=True, slots=True)
class Revert:
    """A `Source` that undoes on a branch the writes that reached a commit since its parent."""

    repository: Repository
    commit: Commit
    branch: str
    parent: int
    message: str | None
    compares_checkout: bool = False

    def prepare(self, refs: RefsState) -> BranchUpdate:
        """Undo the writes on the head of these refs. Raises NothingToApply, Conflict."""
        return prepare_change(self.repository, refs, *self.plan(refs))

    def plan(self, refs: RefsState) -> tuple[Proposal, Change]:
        """Return the commit to make, and the change of the branch's head. Raises NothingToApply, Conflict."""
        divergence = Divergence.of(refs, refs.branch(self.branch), self.commit.id)
        target = head_of(self.repository, refs, self.branch)
        try:
            sets = undo_of(divergence, self.parent, made=MADE)
        except UndoneElsewhere as error:
            raise Conflict(
                f"commit {self.commit.id[:12]} cannot be reverted on {self.branch!r}: commit {error.undo[:12]} has "
                "undone the same",
                commit=divergence.head,
                remedy="Revert that commit too",
            ) from None
        undone = sets.undone[MADE]
        if not undone:
            raise NothingToApply(f"commit {self.commit.id[:12]} is already reverted, or not on {self.branch!r}")
        between = divergence.links.range_writes(self.commit.id, self.parent)
        step = Step(self.commit, _parent(refs, self.commit, self.parent))
        undone_flips = (Flip(flip.id, comes=not flip.comes) for flip in sets.net(frozenset(between)))
        link = divergence.links[self.commit.id]
        # What a merge with a strategy did can only be taken back as a whole. What others brought may have had an effect
        # elsewhere that it had not here.
        is_whole = "strategy" in link.metadata or divergence.is_on_line
        shortcut = Shortcut(step, frozenset(undone_flips)) if is_whole else None
        try:
            change = replayed_change(self.repository, refs, sets, target, self.branch, shortcut=shortcut)
        except Conflict as error:
            if not link.left_out:
                raise
            raise error.replace(
                summary=f"commit {link.id[:12]} left out writes that {self.branch!r} had already ({link.left_out}). "
                f"What it brought cannot be undone without those: delete its rows in a session. {error.summary}"
            ) from error.__cause__
        metadata = {REVERT_FIELD: self.commit.id} | _parent_field(self.parent)
        if set(undone) != set(between):
            metadata[UNDOES_FIELD] = " ".join(undone)
        message = self.message or f"Revert {self.commit.message or self.commit.id[:12]}"
        return Proposal(self.branch, message, metadata, is_recorded=True), change


def replayed_change(
    repository: Repository,
    refs: RefsState,
    sets: WriteSets,
    target: StateStore,
    branch: str,
    *,
    incoming: StateStore | None = None,
    remedy: str = "",
    shortcut: Shortcut | None = None,
    without: Collection[str] = (),
) -> Change:
    """Return the change that brings to a branch the writes of some sets, and undoes others.

    Args:
        repository: The lake.
        refs: Its refs.
        sets: The writes.
        target: The state of the branch's head.
        branch: The branch.
        incoming: The state that has the writes, for a merge in which compactions may give way.
        remedy: The advice in a conflict.
        shortcut: One step that may do the same as several.
        without: Datasets and plain files to leave as they are.

    Raises:
        Conflict: The writes contradict what is there.
        ContentGone: The content of a commit that is needed was collected.
    """
    head = refs.commit(refs.branch(branch))

    def change(sets: WriteSets) -> Change:
        steps = steps_of(refs, sets, shortcut)
        # What a merge with a strategy did can be taken back as a whole.
        is_whole = shortcut is not None and steps == [shortcut.step] and sets.new == [MADE]
        changes, report = WriteChanges(repository, refs, sets, without), ConflictReport(head.id, branch)
        check_writes(changes, sets, report, branch, are_told_apart=not is_whole)
        files = file_values(changes, sets, report)
        if incoming is None and len(steps) == 1 and not files:
            before, after = (repository.commit_state(each) for each in (steps[0].before, steps[0].after))
            return Change(before, after, remedy=remedy, by_writes=True, restores=True)
        state, skipped = replay(repository, head, target, steps, files, without)
        return Change(target, state, remedy=remedy, skipped=skipped, by_writes=True, restores=True)

    try:
        if sets.lacking:
            raise Conflict(
                f"what commit {sets.lacking[0][:12]} did is to be undone on {branch!r}, which does not have it",
                commit=head.id,
                remedy=remedy or "Bring that commit too",
            )
        return change(sets)
    except Conflict as error:
        conflict = with_commits(repository, refs, head, target, error, remedy)
    if incoming is None:
        raise conflict from None
    way = without_compactions(repository, refs, sets, conflict.datasets, head, (target, incoming), MADE)
    if way is None:
        raise conflict
    rest = way[0]
    try:
        return replace(change(rest), undoes=rest.undone[MADE])
    except Conflict:
        raise conflict from None


def _resolved_change(
    repository: Repository,
    refs: RefsState,
    divergence: Divergence,
    target: StateStore,
    branch: str,
    incoming: StateStore,
    strategy: Strategy,
    remedy: str,
) -> Change:
    """Return the change of a merge by its writes, with one side of each dataset and plain file that conflicts.

    Raises Conflict for what no strategy resolves, ContentGone.
    """
    sets = write_sets(divergence)
    resolved: dict[str, str] = {}
    while True:
        try:
            change = replayed_change(
                repository, refs, sets, target, branch, incoming=incoming, remedy=remedy, without=resolved.keys()
            )
            break
        except Conflict as error:
            new = {path: kind for path, kind in error.kinds.items() if path not in resolved}
            if not new:
                raise
            resolved |= new
    if strategy == "theirs":
        state = taken(change.incoming, incoming, resolved)
        change = replace(change, incoming=state, replaces=resolved.keys())
    return replace(change, resolved=resolved)


def _parent(refs: RefsState, commit: Commit, number: int) -> Commit:
    return refs.commit_for(f"parent {number} of {commit.id[:12]}", commit.parents[number - 1])


def _parent_field(parent: int) -> dict[str, str]:
    return {} if parent == 1 else {PARENT_FIELD: str(parent)}


def merge(
    repository: Repository,
    incoming: Commit,
    name: str,
    into: str,
    message: str | None,
    strategy: MergeStrategy | None,
    *,
    squash: bool = False,
    expected_head: str | None = None,
) -> Published:
    """Apply to a branch the changes of a commit that it does not have.

    Raises NothingToApply, Conflict, UnexpectedHead.
    """
    source = Merge(repository, incoming, name, into, message, side_of(strategy), squash)
    source.divergence(repository.refs())  # without anything to merge, nothing is written
    return commit_to_branch(repository, source, expected_head)


def revert(
    repository: Repository,
    commit: Commit,
    branch: str,
    parent: int,
    message: str | None,
    expected_head: str | None = None,
) -> Published:
    """Undo the changes of a commit since its `parent`-th parent, in a new commit.

    Raises NothingToApply, Conflict, UnexpectedHead.
    """
    check_parent(commit, parent, "there is nothing before it")
    return commit_to_branch(repository, Revert(repository, commit, branch, parent, message), expected_head)


def cherry_pick(
    repository: Repository,
    commit: Commit,
    onto: str,
    parent: int,
    message: str | None,
    expected_head: str | None = None,
) -> Published:
    """Apply to a branch the changes of a commit since its `parent`-th parent.

    Raises NothingToApply, Conflict, UnexpectedHead.
    """
    check_parent(commit, parent, "it changed nothing")
    return commit_to_branch(repository, Pick(repository, commit, onto, parent, message), expected_head)


def check_parent(commit: Commit, number: int, without: str) -> None:
    """Check that a commit has a parent of this number. Raises NothingToApply for a first commit, RefNotFound."""
    if not commit.parents:
        raise NothingToApply(f"commit {commit.id[:12]} is the first one: {without}")
    if not 1 <= number <= len(commit.parents):
        raise RefNotFound(
            f"commit {commit.id[:12]} has {count_of(len(commit.parents), 'parent')}, so there is no parent {number}"
        )


def side_of(strategy: MergeStrategy | None) -> Strategy | None:
    """Return the side that a strategy takes. Raises ValueError."""
    match strategy:
        case None:
            return None
        case "ours" | "dest-wins":
            return "ours"
        case "theirs" | "source-wins":
            return "theirs"
    raise ValueError(
        f"the strategy of a merge must be 'ours' or 'theirs' (lakeFS: 'dest-wins' or 'source-wins'), not {strategy!r}"
    )
