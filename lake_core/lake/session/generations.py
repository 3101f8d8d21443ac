"""The generations of a session: one follows another that has ended, and can replace what its tasks wrote."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lake_core.lake.errors import ContentGone
from lake_core.lake.refs.commit_record import REVERT_FIELD, UNDOES_FIELD
from lake_core.lake.refs.history import log

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.refs.session_record import Batch, SessionRecord

_REPLACES = "replaces"
_PURPOSE = "telling apart what the tasks of its session wrote"


def generations(refs: RefsState, id: str) -> Mapping[int, SessionRecord]:
    """Return the generations of a session that the lake still knows, by their numbers, oldest first."""
    pattern = re.compile(rf"session/{re.escape(id)}(?:\.([2-9]|[1-9][0-9]+))?")
    matches = (pattern.fullmatch(key) for key in refs.state.under(f"session/{id}"))
    numbers = sorted(int(match[1] or 1) for match in matches if match is not None)
    return {number: refs.session(generation_id(id, number)) for number in numbers}


def generation_id(id: str, number: int) -> str:
    """Return the id of a generation of a session: the first one has the session's own id."""
    return id if number == 1 else f"{id}.{number}"


def replacing_writer(commit: str, task: str | None) -> str:
    """Return the writer of the batch that takes out what a task published with a commit."""
    return f"{_REPLACES} {commit} {task}"


def batches_of_commit(refs: RefsState, commit: str) -> Sequence[Batch]:
    """Return the batches of the session that a commit is. Raises ContentGone if they are not kept."""
    session = f"session/{refs.commit(commit).metadata.get('session', '')}"
    record = refs.session(session.removeprefix("session/")) if session in refs.state else None
    batches = [] if record is None else refs.batches(record)
    if record is None or not record.replaceable or record.commit != commit or len(batches) != record.batch_count:
        raise ContentGone(commit, _PURPOSE, None)
    return batches


def published_batches(refs: RefsState, id: str) -> Mapping[str, Sequence[Batch]]:
    """Return what tasks published with the generations of a session, and later ones did not replace, by commit.

    Raises ContentGone if a generation is too long ago.
    """
    published: dict[str, Sequence[Batch]] = {}
    for record in generations(refs, id).values():
        if record.commit is not None and not refs.has_commit(record.commit):
            raise ContentGone(record.commit, _PURPOSE, None)
        if record.commit is None or refs.commit(record.commit).metadata.get("session") != record.id:
            continue  # it is not published, or changed nothing
        batches = batches_of_commit(refs, record.commit)
        writers = {batch.writer for batch in batches}
        for commit, earlier in published.items():
            published[commit] = [each for each in earlier if replacing_writer(commit, each.task) not in writers]
        published[record.commit] = [batch for batch in batches if batch.task is not None]
    return published


def is_in_force(refs: RefsState, head: str, commit: str) -> bool:
    """Return whether a commit is in the past of a head of its branch, and was not reverted since."""
    undone: set[str] = set()
    for later in log(refs, refs.commit(head), first_parent=True):
        if later.id == commit:
            return later.id not in undone
        if later.id not in undone:
            undone.update(later.metadata.get(UNDOES_FIELD, later.metadata.get(REVERT_FIELD, "")).split())
    return False
