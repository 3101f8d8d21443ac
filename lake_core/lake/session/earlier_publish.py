"""The result of a session that an earlier attempt has published, but whose response was lost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lake_core.lake.publish.checkout import pending_checkout, try_check_out
from lake_core.lake.publish.published import Published, SkippedWrite
from lake_core.lake.publish.session_update import undone_for
from lake_core.lake.refs.commit_record import (
    LEFT_OUT_FIELD,
    changed_datasets,
    version_of,
)

if TYPE_CHECKING:
    from lake_core.graveler import Commit
    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.repository import Repository


def published_earlier(repository: Repository, refs: RefsState, branch: str, session: str, commit: Commit) -> Published:
    """Return the earlier result of a session, and complete the checkout of main."""
    is_checked_out = branch != repository.format.branch or try_check_out(repository, pending_checkout(refs, branch))
    is_own = commit.metadata.get("session") == session  # else it changed nothing, and is the head that it found
    updates = changed_datasets(commit).items() if is_own else ()
    versions = {path: version for path, update in updates if (version := version_of(update)) is not None}
    left_out = json.loads(commit.metadata.get(LEFT_OUT_FIELD, "[]")) if is_own else []
    return Published(
        commit.id,
        versions,
        session,
        tuple(SkippedWrite(*write) for write in left_out),
        undone=undone_for(refs, session, refs.first_parent(commit)) if is_own else (),
        is_checked_out=is_checked_out,
    )


def remedy(session: str) -> str:
    """Return what to do about a session that conflicts with what was published in the meantime."""
    return (
        "Nothing was published: do the work again in a new session. This session stays readable: call "
        f"lake.get_session({session!r}).fork(without=[…]) to carry on with what does not conflict"
    )
