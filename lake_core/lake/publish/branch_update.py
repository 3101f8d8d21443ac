"""A publish as a value: its conditions on the refs, and its changes of them.

It is committed by one entry of the refs journal.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from lake_core.journal import Action, Add, State
from lake_core.lake.errors import ProtectedBranch
from lake_core.lake.refs.commit_record import commit_value
from lake_core.lake.refs.pending_deletions import Collections, collections
from lake_core.lake.refs.refs_state import RefsState, put
from lake_core.lake.refs.values import instant_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.graveler import Commit
    from lake_core.lake.publish.published import Published

MOST_TRIES = 50
"""How often a change is applied again because another writer was faster."""


class RefsMoved(Exception):
    """The refs changed since an update was prepared: prepare it again."""


class CommitFirst(Exception):
    """Commit another update first, and prepare again."""

    def __init__(self, update: BranchUpdate) -> None:
        super().__init__(update)
        self.update = update


class Requirement(Protocol):
    """A condition on the newest refs."""

    def check(self, refs: RefsState) -> None:
        """Raise RefsMoved if the update must be prepared again, or a LakeError if it must not be made at all."""
        ...


@dataclass(frozen=True, slots=True)
class HeadIs:
    """The branch is at the commit that the update was applied to."""

    branch: str
    commit: str

    def check(self, refs: RefsState) -> None:
        """Raise RefsMoved if the branch has another head now."""
        if refs.branch(self.branch) != self.commit:
            raise RefsMoved


@dataclass(frozen=True, slots=True)
class NoNewCollection:
    """The collections are those of the update's preparation, so it uses nothing that they delete."""

    collections: Collections

    def check(self, refs: RefsState) -> None:
        """Raise RefsMoved if a collection has begun since, or if a list was replaced or removed."""
        if collections(refs) != self.collections:
            raise RefsMoved


@dataclass(frozen=True, slots=True)
class NotProtected:
    """The branch is not protected, so it does not accept only merges."""

    branch: str

    def check(self, refs: RefsState) -> None:
        """Raise ProtectedBranch if a pattern protects the branch."""
        pattern = refs.protected(self.branch)
        if pattern is not None:
            raise ProtectedBranch(
                f"the branch {self.branch!r} is protected (by {pattern!r}): "
                "publish on another branch, and merge that branch"
            )


class RefsUpdate(Protocol):
    """A change of the refs."""

    def actions(self, refs: RefsState) -> Sequence[Action]:
        """Return the actions that apply the change to the newest refs."""
        ...


@dataclass(frozen=True, slots=True)
class SetValue:
    """Adds or updates the value of a key."""

    key: str
    value: Any

    def actions(self, refs: RefsState) -> Sequence[Action]:
        """Return an add or an update, depending on the newest refs."""
        return [put(refs, self.key, self.value)]


@dataclass(frozen=True, slots=True)
class EndRetention:
    """Ends the retention of a dataset before an instant (ISO 8601)."""

    path: str
    before: str

    def actions(self, refs: RefsState) -> Sequence[Action]:
        """Return the action that sets the instant; none if the retention has ended at a later one.

        What was collected up to then does not come back, so the instant never falls.
        """
        key = f"retention/{self.path}"
        ended = refs.state.get(key)
        if ended is not None and instant_of(key, ended, "before") >= datetime.fromisoformat(self.before):
            return ()
        return [put(refs, key, {"before": self.before})]


@dataclass(frozen=True, slots=True)
class AddCommit:
    """Adds a commit record."""

    commit: Commit

    def actions(self, refs: RefsState) -> Sequence[Action]:
        """Return the action that adds the record; none if the refs have it already."""
        key = f"commit/{self.commit.id}"
        # An archived commit may be added again: it can only be the same one.
        return () if refs.state.is_loaded(key) else [Add(key, commit_value(self.commit))]


@dataclass(frozen=True, slots=True)
class BranchUpdate:
    """The changes of the refs in one publish."""

    branch: str
    published: Published
    """The result for the caller."""
    commit: Commit | None = None
    """The branch's new head; None if nothing differs."""
    requirements: Sequence[Requirement] = ()
    updates: Sequence[RefsUpdate] = ()

    def plan(self, state: State) -> Sequence[Action]:
        """Check all requirements, and return the actions of the entry. Raises what the requirements raise."""
        refs = RefsState(state)
        for requirement in self.requirements:
            requirement.check(refs)
        return [action for update in self.updates for action in update.actions(refs)]


class Source(Protocol):
    """The source of a publish: a session, a merge, a revert, an adoption, a release."""

    @property
    def branch(self) -> str:
        """Return the branch to publish to."""
        ...

    @property
    def compares_checkout(self) -> bool:
        """Return whether the source compares checked-out files with the refs.

        A faster publisher may have written these files. So once the branch has moved, a conflict is not final.
        """
        ...

    def prepare(self, refs: RefsState) -> BranchUpdate | Published:
        """Apply this source's changes to the branch's head in these refs, or return what an earlier try published.

        This is called again with newer refs as long as other publishers are faster. Raises why it must not publish.
        """
        ...
