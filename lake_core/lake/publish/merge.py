"""Merge, revert and cherry-pick: apply the changes of a branch or of one commit to a branch.

All use `apply`, which decides what conflicts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lake_core.lake.errors import NothingToApply, RefNotFound
from lake_core.lake.publish.commit_to_branch import commit_to_branch
from lake_core.lake.publish.prepare import Change, Proposal, apply_change, head_of, prepare_change
from lake_core.lake.refs.history import is_ancestor, merge_base
from lake_core.lake.state.content import item_of
from lake_core.lake.state.dataset_record import dataset_above
from lake_core.lake.state.view import RESERVED
from lake_core.readable import count_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lake_core.graveler import Commit
    from lake_core.lake.publish.branch_update import BranchUpdate
    from lake_core.lake.publish.published import Published
    from lake_core.lake.publish.tree_update import DatasetUpdate, MergeStrategy, Strategy
    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.repository import Repository


@dataclass(frozen=True, slots=True)
class MergePreview:
    """The result that a merge would have."""

    commit: str
    """The head of the branch."""
    base: str
    """The merge base."""
    incoming: str
    """The commit that would be merged."""
    datasets: Mapping[str, DatasetUpdate]
    """The datasets that would change, with their new versions."""
    keys: Mapping[str, Literal["put", "deleted"]]
    """The plain files that would change."""
    resolved: Mapping[str, str]
    """The datasets and keys whose conflicts the strategy resolves, with the kinds of the conflicts."""
    skipped: Sequence[str] = ()
    """The datasets whose writes the branch already has, by their transaction identifiers."""


@dataclass(frozen=True, slots=True)
class Merge:
    """A `Source` that applies to a branch the changes of a commit that the branch does not have.

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
        """Merge into the head of these refs, from the merge base of the two."""
        return prepare_change(self.repository, refs, self.proposal(), self.change(self.base(refs)))

    def base(self, refs: RefsState) -> Commit:
        """Find the merge base. Raises NothingToApply, RefNotFound."""
        head = refs.commit(refs.branch(self.branch))
        if is_ancestor(refs, self.incoming, head):
            raise NothingToApply(f"the branch {self.branch!r} already has all of {self.name!r}")
        return merge_base(refs, self.incoming, head)

    def proposal(self) -> Proposal:
        """Return the message, metadata and parents of the commit."""
        return Proposal(
            self.branch,
            self.message or f"Merge {self.name} into {self.branch}",
            {"squash" if self.squash else "merge": self.incoming.id}
            | ({} if self.strategy is None else {"strategy": self.strategy}),
            parents=() if self.squash else (self.incoming.id,),
            is_merge=True,
        )

    def change(self, base: Commit) -> Change:
        """Return the difference between the merge base and the commit."""
        return Change(
            self.repository.commit_state(base, f"the merge base of {self.name} and {self.branch}"),
            self.repository.commit_state(self.incoming, self.name),
            strategy=self.strategy,
            remedy=(
                f"Nothing was merged: merge with strategy='theirs' to take what {self.name} has of these or with "
                f"strategy='ours' to keep what {self.branch} has of them, "
                f"or do the work again on a new branch of {self.branch}"
            ),
            committed=self.incoming.creation_date,
        )


@dataclass(frozen=True, slots=True)
class Replay:
    """A `Source` that applies the difference between two commits to a branch."""

    repository: Repository
    proposal: Proposal
    before: Commit
    after: Commit
    compares_checkout: bool = False

    @property
    def branch(self) -> str:
        """Return the branch that the difference is applied to."""
        return self.proposal.branch

    def prepare(self, refs: RefsState) -> BranchUpdate:
        """Apply the difference between the two commits to the head of these refs."""
        change = Change(
            self.repository.commit_state(self.before),
            self.repository.commit_state(self.after),
            restores=True,
        )
        return prepare_change(self.repository, refs, self.proposal, change)


def merge(
    repository: Repository,
    incoming: Commit,
    name: str,
    into: str,
    message: str | None,
    strategy: MergeStrategy | None,
    *,
    squash: bool = False,
) -> Published:
    """Apply to a branch the changes of a commit that it does not have. Raises NothingToApply, Conflict."""
    source = Merge(repository, incoming, name, into, message, _side(strategy), squash)
    source.base(repository.refs())  # without anything to merge, nothing is written
    if squash:
        return _replay(source, f"the branch {into!r} already has all that differs in {name!r}")
    return commit_to_branch(repository, source)


def preview_merge(
    repository: Repository, incoming: Commit, name: str, into: str, strategy: MergeStrategy | None
) -> MergePreview:
    """Return what `merge` would do now, and write nothing. Raises what `merge` raises."""
    refs = repository.refs()
    source = Merge(repository, incoming, name, into, None, _side(strategy))
    base = source.base(refs)
    change = source.change(base)
    target = head_of(repository, refs, into)
    update = apply_change(repository, refs, source.proposal(), change, target, dry_run=True)
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
    return MergePreview(refs.branch(into), base.id, incoming.id, update.datasets, keys, update.resolved, update.skipped)


def revert(repository: Repository, commit: Commit, branch: str, parent: int, message: str | None) -> Published:
    """Undo the changes of a commit since its `parent`-th parent, in a new commit. Raises NothingToApply, Conflict."""
    before = _parent(repository, commit, parent, "there is nothing before it")
    proposal = Proposal(branch, message or f"Revert {commit.message or commit.id[:12]}", {"revert": commit.id})
    return _replay(Replay(repository, proposal, commit, before), f"commit {commit.id[:12]} is already reverted")


def cherry_pick(repository: Repository, commit: Commit, onto: str, parent: int, message: str | None) -> Published:
    """Apply to a branch the changes of a commit since its `parent`-th parent. Raises NothingToApply, Conflict."""
    before = _parent(repository, commit, parent, "it changed nothing")
    metadata = {"cherry-pick-origin": commit.id, "cherry-pick-committer": commit.committer}
    source = Replay(repository, Proposal(onto, message or commit.message, metadata), before, commit)
    return _replay(source, f"the branch {onto!r} has commit {commit.id[:12]} already")


def _replay(source: Replay | Merge, nothing: str) -> Published:
    head = source.repository.refs().branch(source.branch)
    published = commit_to_branch(source.repository, source)
    if published.commit == head:
        raise NothingToApply(nothing)
    return published


def _parent(repository: Repository, commit: Commit, number: int, without: str) -> Commit:
    if not commit.parents:
        raise NothingToApply(f"commit {commit.id[:12]} is the first one: {without}")
    if not 1 <= number <= len(commit.parents):
        raise RefNotFound(
            f"commit {commit.id[:12]} has {count_of(len(commit.parents), 'parent')}, so there is no parent {number}"
        )
    return repository.refs().commit_for(f"parent {number} of {commit.id[:12]}", commit.parents[number - 1])


def _side(strategy: MergeStrategy | None) -> Strategy | None:
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
