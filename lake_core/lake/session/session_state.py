"""The state of a shared session in its record: open or failed, until it is published, abandoned or expired."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from lake_core.journal import Action, Append, State, Update
from lake_core.lake.errors import SessionClosed, StaleEpoch, UnexpectedHead
from lake_core.lake.refs.refs_state import RefsState
from lake_core.lake.refs.session_record import ABANDONED, EXPIRED, FAILED, MOST_EXPIRY, OPEN, PUBLISHED, SessionRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.lake.repository import Repository

DEFAULT_EXPIRY = timedelta(hours=24)
KEEP_FAILED = timedelta(hours=24)


def renewed_expiry(record: SessionRecord, now: datetime, expires_in: timedelta) -> datetime:
    """Return the new expiry of a session in use."""
    return min(now + expires_in, record.opened + MOST_EXPIRY)


def closed(record: SessionRecord) -> SessionClosed:
    """Return the error of a session that accepts no more writes."""
    reasons = {
        PUBLISHED: f"was published as commit {(record.commit or '')[:12]}",
        ABANDONED: "was abandoned",
        EXPIRED: "has expired",
        FAILED: f"failed ({record.reason}): resume it with open_session, "
        "or use fork to carry on with what does not conflict",
    }
    return SessionClosed(f"session {record.id!r} {reasons.get(record.state, record.state)}", state=record.state)


def expire_if_due(repository: Repository, record: SessionRecord) -> SessionRecord:
    """Return the record of a session. If its time is up, first record that it has expired."""
    if record.state not in (OPEN, FAILED) or repository.clock() < record.expires:
        return record

    def plan(state: State) -> Sequence[Action]:
        newest = RefsState(state).session(record.id)
        if newest.state not in (OPEN, FAILED) or repository.clock() < newest.expires:
            return ()
        return [Update(newest.key, replace(newest, state=EXPIRED).to_json())]

    repository.journal.append(plan)
    return repository.refs().session(record.id)


def open_record(repository: Repository, refs: RefsState, id: str, epoch: int | None) -> SessionRecord:
    """Return the record of a session that accepts writes at this epoch.

    Raises SessionNotFound, SessionClosed, StaleEpoch.
    """
    record = expire_if_due(repository, refs.session(id))
    if record.state != OPEN:
        raise closed(record)
    check_epoch(record, epoch)
    return record


def check_tree(record: SessionRecord, expected_tree: str | None) -> None:
    """Check that a session has the expected tree. Raises UnexpectedHead."""
    if expected_tree is not None and record.tree != expected_tree:
        raise UnexpectedHead(f"session {record.id!r} has been written to in the meantime: look again")


def check_epoch(record: SessionRecord, epoch: int | None) -> None:
    """Check that an epoch is the newest one of a session. Raises StaleEpoch."""
    if epoch is not None and epoch < record.epoch:
        raise StaleEpoch(
            f"session {record.id!r} was resumed, or taken over from a run that counts as failed (it has epoch "
            f"{record.epoch}, and this process has epoch {epoch}), so writes from here are refused: "
            "join the session again if this process is the one to continue"
        )


def fence(repository: Repository, id: str, epoch: int) -> int:
    """Raise the epoch of a session, and return it. One that has ended, or has a later epoch, does not change."""

    def plan(state: State) -> Append[int]:
        record = RefsState(state).session(id)
        if record.state not in (OPEN, FAILED) or epoch < record.epoch:
            return Append((), epoch)
        return Append([Update(record.key, replace(record, epoch=epoch + 1).to_json())], epoch + 1)

    return repository.journal.append(plan)


def fail(
    repository: Repository,
    id: str,
    reason: str,
    keep: timedelta = KEEP_FAILED,
    epoch: int | None = None,
    *,
    conflicts: bool = False,
) -> None:
    """Mark an open session as failed for `keep`. One that has ended, or has a later epoch, does not change."""

    def plan(state: State) -> Sequence[Action]:
        record = RefsState(state).session(id)
        if record.state != OPEN or (epoch is not None and epoch < record.epoch):
            return ()
        expires = min(repository.clock() + keep, record.opened + MOST_EXPIRY)
        failed = replace(record, state=FAILED, reason=reason[:1000], expires=expires, conflicts=conflicts)
        return [Update(record.key, failed.to_json())]

    repository.journal.append(plan)
