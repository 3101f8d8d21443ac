"""The generations of a session: one follows another that has ended, and can replace what its tasks wrote."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from lake_core import runtime
from lake_core.lake.errors import BatchesGone
from lake_core.lake.refs.commit_record import REVERT_FIELD, UNDOES_FIELD
from lake_core.lake.refs.history import log
from lake_core.lake.refs.reached import CommitLinks, has_reached
from lake_core.lake.refs.session_record import FAILED, OPEN, Batch
from lake_core.lake.session.task_attempt import TaskAttempt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.refs.session_record import SessionRecord

REPLACEABLE = timedelta(days=16)
"""How long the batches of a published session are kept at least, and the records of others that have ended."""


def generations(refs: RefsState, id: str) -> Mapping[int, SessionRecord]:
    """Return the generations of a session that the lake still knows, by their numbers, oldest first."""
    pattern = re.compile(rf"session/{re.escape(id)}(?:\.([2-9]|[1-9][0-9]+))?")
    matches = (pattern.fullmatch(key) for key in refs.state.under(f"session/{id}"))
    numbers = sorted(int(match[1] or 1) for match in matches if match is not None)
    return {number: refs.session(generation_id(id, number)) for number in numbers}


def generation_id(id: str, number: int) -> str:
    """Return the id of a generation of a session: the first one has the session's own id."""
    return id if number == 1 else f"{id}.{number}"


def is_generation(session: str, id: str) -> bool:
    """Return whether the id of a session is that of a generation of another one."""
    return session == id or re.fullmatch(rf"{re.escape(id)}\.([2-9]|[1-9][0-9]+)", session) is not None


DISCARDING = "discards "
"""How the writers of batches begin that record what was taken out of their own session."""

_MARK = re.compile(rf"(?:{DISCARDING}|replaces (?P<commit>[0-9a-f]+) )(?P<task>.*)", re.DOTALL)
"""The writers of batches that record from which tasks something was taken out."""


def replacing_writer(commit: str, task: str | None) -> str:
    """Return the writer of the batch that takes out what a task published with a commit."""
    return f"replaces {commit} {task}"


def marks(prefix: str, before: str, after: str, batches: Iterable[Batch]) -> list[Batch]:
    """Return the batches that record from which attempts something was taken out of a session.

    Args:
        prefix: How the names of their writers begin, which is followed by the task.
        before: The tree of the session before that.
        after: The tree after that. It is that of the first mark, and the others change nothing.
        batches: What was taken out.
    """
    attempts = {(batch.task, batch.attempt, batch.token): None for batch in batches if batch.task is not None}
    return [
        Batch(
            runtime.uuid4().hex,
            f"{prefix}{task}",
            after if index else before,
            after,
            attempt=number,
            is_last=True,
            token=token,
        )
        for index, (task, number, token) in enumerate(sorted(attempts))
    ]


def taken_out(refs: RefsState, id: str) -> Sequence[TaskAttempt]:
    """Return the attempts of which something was taken out of a session's generations for good.

    That is what `discard_batches` was told to remember, and what replaced publishes: the latter where it is published,
    or may still be.
    """
    attempts: list[TaskAttempt] = []
    for record in generations(refs, id).values():
        replaces = _replaces(refs, record)
        attempts += [
            TaskAttempt(match["task"], batch.attempt, batch.token)
            for batch in refs.batches(record)
            if batch.task is None
            and (match := _MARK.fullmatch(batch.writer)) is not None
            and (replaces or match["commit"] is None)
        ]
    return attempts


def _replaces(refs: RefsState, record: SessionRecord) -> bool:
    """Return whether a generation replaces what earlier ones have published, or may still do so."""
    if record.commit is None:
        return record.state in (OPEN, FAILED) and not record.conflicts
    if not refs.has_commit(record.commit) or not _is_of(refs, record.commit, record):
        return True
    return is_in_force(refs, refs.branch(record.branch), record.commit)


def _is_of(refs: RefsState, commit: str, record: SessionRecord) -> bool:
    """Return whether a session made a commit. One that changed nothing names the commit that it met."""
    return refs.commit(commit).metadata.get("session") == record.id


def is_replaceable(refs: RefsState, record: SessionRecord, now: datetime) -> bool:
    """Return whether the batches of a published session are kept, for a later generation to replace them.

    They are kept for some time after the publish, and as long as a later generation is at work.
    """
    if not record.replaceable or record.commit is None or not refs.has_commit(record.commit):
        return False
    if now - refs.commit(record.commit).creation_date <= REPLACEABLE:
        return True
    return any(later.state in (OPEN, FAILED) for later in generations(refs, record.renews).values())


def batches_of(refs: RefsState, record: SessionRecord) -> Sequence[Batch]:
    """Return the batches of a published session. Raises BatchesGone if they are not kept."""
    batches = refs.batches(record)
    if not record.replaceable or len(batches) != record.batch_count:
        raise _gone(record)
    return batches


def _gone(record: SessionRecord) -> BatchesGone:
    return BatchesGone(
        f"what the tasks of session {record.id!r} wrote can no longer be told apart: its batches were removed some "
        f"time after it was published, as commit {(record.commit or '')[:12]}, or it was not opened with renew=True. "
        "Start a new run, which adds to what is published"
    )


def published_batches(refs: RefsState, id: str) -> Mapping[str, Sequence[Batch]]:
    """Return what tasks published with the generations of a session, and is in force, by commit, oldest first.

    It is not if a later generation replaced it, or if the commit was reverted.

    Raises BatchesGone if a generation is too long ago.
    """
    published: dict[str, Sequence[Batch]] = {}
    known = generations(refs, id)
    if len(known) < max(known, default=0):
        raise _gone(next(iter(known.values())))
    for record in known.values():
        if record.commit is None:
            continue
        if not refs.has_commit(record.commit):
            raise _gone(record)
        is_own = _is_of(refs, record.commit, record)
        if is_own and not is_in_force(refs, refs.branch(record.branch), record.commit):
            continue
        batches = batches_of(refs, record)
        writers = {batch.writer for batch in batches}
        for commit, earlier in published.items():
            published[commit] = [each for each in earlier if replacing_writer(commit, each.task) not in writers]
        if is_own:  # else it has changed nothing but that
            published[record.commit] = [batch for batch in batches if batch.task is not None]
    return published


def is_in_force(refs: RefsState, head: str, commit: str) -> bool:
    """Return whether a commit has reached a head, and was not reverted on its branch since."""
    undone: set[str] = set()
    for later in log(refs, refs.commit(head), first_parent=True):
        if later.id == commit:
            return later.id not in undone
        if later.id not in undone:
            undone.update(later.metadata.get(UNDOES_FIELD, later.metadata.get(REVERT_FIELD, "")).split())
    return commit not in undone and has_reached(CommitLinks(refs), head, commit)
