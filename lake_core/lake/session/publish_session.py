"""Publishes a shared session: its changes become a commit of its branch, and its record names this commit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lake_core.journal import Action, Update
from lake_core.lake.errors import Conflict, DamagedLake
from lake_core.lake.publish.branch_update import BranchUpdate, RefsMoved
from lake_core.lake.publish.commit_to_branch import commit_to_branch
from lake_core.lake.publish.prepare import Change, Proposal
from lake_core.lake.publish.session_update import prepare_session, preview_session
from lake_core.lake.refs.commit_record import REVERT_FIELD, UNDOES_FIELD
from lake_core.lake.refs.history import log
from lake_core.lake.refs.session_record import EXPIRED, FAILED, OPEN, PUBLISHED, SessionRecord
from lake_core.lake.session.earlier_publish import published_earlier, remedy
from lake_core.lake.session.session_state import KEEP_FAILED, check_epoch, check_tree, closed, expire_if_due, fail

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from lake_core.lake.publish.preview import ChangePreview
    from lake_core.lake.publish.published import Published
    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.repository import Repository
    from lake_core.lake.session.tasks import Ended

_RETENTION = "retention:"
"""The prefix of the metadata keys that name the datasets whose retention the session ends."""


def publish_session(
    repository: Repository,
    id: str,
    epoch: int | None,
    ended: Ended | None = None,
    expected_tree: str | None = None,
    expected_head: str | None = None,
    keep: timedelta = KEEP_FAILED,
) -> Published:
    """Publish a session. A repeated call returns the same result.

    Args:
        repository: The lake's repository.
        id: The session.
        epoch: The epoch of the caller's handle; None for any.
        ended: The tasks that ended well; None to publish all that is there.
        expected_tree: The tree that the session must have; None for any.
        expected_head: The commit that the branch must be at; None for any.
        keep: How long a session that fails by a conflict is kept.

    Raises:
        UnfinishedTasks: There are writes of other tasks.
        Conflict: The changes conflict with later publishes. The session is marked failed, unless it was resumed.
        SessionClosed: The session was abandoned, or has expired.
        UnexpectedHead: The session has another tree, or the branch another head.
        StaleEpoch: Another process has resumed the session.
    """
    refs = repository.refs()
    record = expire_if_due(repository, refs.session(id))
    if record.is_published:
        return _published(repository, repository.refs(refresh=False), record)
    _check_publishable(record, epoch)
    try:
        source = _SharedSource(repository, id, record.branch, epoch, ended, expected_tree)
        return commit_to_branch(repository, source, expected_head)
    except Conflict as error:
        fail(repository, id, error.explanation, keep, epoch, conflicts=True)
        raise error.replace(session=id) from error.__cause__


@dataclass(frozen=True, slots=True)
class _SharedSource:
    """A `Source` that publishes a shared session."""

    repository: Repository
    id: str
    branch: str
    epoch: int | None
    ended: Ended | None = None
    """The tasks that ended well; None to publish all that is there."""
    expected_tree: str | None = None
    compares_checkout: bool = False

    def prepare(self, refs: RefsState) -> BranchUpdate | Published:
        repository = self.repository
        record = expire_if_due(repository, refs.session(self.id))
        if record.is_published:
            return _published(repository, repository.refs(refresh=False), record)
        _check_publishable(record, self.epoch)
        check_tree(record, self.expected_tree)
        if self.ended is not None:
            self.ended.check(record.id, refs.batches(record))
        proposal, change = _plan(repository, refs, record)
        update = prepare_session(repository, refs, proposal, change, record.base)
        return replace(
            update,
            requirements=(*update.requirements, SessionAt(record.id, self.epoch, record.tree, record.reads)),
            updates=(*update.updates, MarkPublished(record.id, update.published.commit)),
        )


def preview_publish(repository: Repository, id: str) -> ChangePreview:
    """Return what `publish_session` would do now, and write nothing. Raises what it raises."""
    repository, refs = repository.for_preview(), repository.refs()
    record = refs.session(id)
    if record.state in (OPEN, FAILED) and repository.clock() >= record.expires:
        record = replace(record, state=EXPIRED)
    _check_publishable(record, None)
    return preview_session(repository, refs, *_plan(repository, refs, record), record.base)


def _plan(repository: Repository, refs: RefsState, record: SessionRecord) -> tuple[Proposal, Change]:
    """Return the commit to make of a session, and its change. Raises Conflict if the same was reverted since."""
    retention = {key[len(_RETENTION) :]: value for key, value in record.metadata.items() if key.startswith(_RETENTION)}
    metadata = {key: value for key, value in record.metadata.items() if not key.startswith(_RETENTION)}
    proposal = Proposal(
        record.branch,
        record.message or f"session {record.id}",
        metadata | {"lineage": record.lineage},
        session=record.id,
        retention=retention,
    )
    _check_not_undone(refs, record)
    base = repository.commit_state(refs.commit(record.base), f"the base of session {record.id}")
    incoming = repository.state(record.tree, f"session {record.id}")
    change = Change(base, incoming, record.reads, remedy=remedy(record.id))
    return proposal, change


def _check_not_undone(refs: RefsState, record: SessionRecord) -> None:
    """Raise Conflict if a session with the same changes, of the same lineage, was published and then reverted."""
    undone: set[str] = set()
    for commit in log(refs, refs.commit(refs.branch(record.branch)), first_parent=True):
        if commit.id == record.base:
            return
        if commit.id in undone and commit.metadata.get("lineage") == record.lineage:
            raise Conflict(
                f"session {record.id} has changes of session {commit.metadata.get('session')}, which was published "
                f"as commit {commit.id[:12]} and reverted since",
                commit=refs.branch(record.branch),
                remedy="To have them again, revert the revert",
            )
        undone.update(commit.metadata.get(UNDOES_FIELD, commit.metadata.get(REVERT_FIELD, "")).split())


@dataclass(frozen=True, slots=True)
class SessionAt:
    """A `Requirement`: the session can be published, has this epoch, and still has the tree and reads of the change."""

    id: str
    epoch: int | None
    tree: str
    reads: Sequence[str]

    def check(self, refs: RefsState) -> None:
        """Raise RefsMoved if the session changed, SessionClosed or StaleEpoch if it cannot be published."""
        record = refs.session(self.id)
        _check_publishable(record, self.epoch)
        if record.tree != self.tree or record.reads != self.reads:
            raise RefsMoved


@dataclass(frozen=True, slots=True)
class MarkPublished:
    """A `RefsUpdate` that records a shared session as published."""

    id: str
    commit: str

    def actions(self, refs: RefsState) -> Sequence[Action]:
        """Return the update of the session's record, with the commit that it was published as."""
        record = refs.session(self.id)
        count = len(refs.batches(record))
        published = replace(record, state=PUBLISHED, commit=self.commit, batch_count=count)
        return [Update(record.key, published.to_json())]


def _check_publishable(record: SessionRecord, epoch: int | None) -> None:
    if record.state not in (OPEN, FAILED):
        raise closed(record)
    check_epoch(record, epoch)


def _published(repository: Repository, refs: RefsState, record: SessionRecord) -> Published:
    if record.commit is None:
        raise DamagedLake(
            f"the record of session {record.id!r} in the refs journal does not name the commit that it was published as"
        )
    return published_earlier(repository, refs, record.branch, record.id, refs.commit(record.commit))
