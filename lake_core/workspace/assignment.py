"""The assignment of an attempt at a task: where it writes, and under which identifiers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lake_core.workspace.direct_writes import DirectWrites
from lake_core.workspace.session_writes import PublishedWrites, StagedWrites

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lake_core.lake import Lake
    from lake_core.lake.session.read_record import ReadRecord
    from lake_core.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Assignment:
    """The target that an attempt at a task writes to: a folder of plain tables, a branch, or a shared session.

    Nothing of it is secret.
    """

    root: str
    task_id: str
    """The application id of the task's transaction identifiers. All attempts at the task have it, and only they."""
    branch: str | None = None
    """None in a folder of plain tables."""
    session: str | None = None
    """The shared session; None where the attempt publishes by itself."""
    epoch: int = 0
    """Of the shared session, when the attempt was started."""
    attempt: int = 0
    """Orders the attempts at the task: in a shared session a later one replaces an earlier one's writes."""
    token: str = ""
    """What tells attempts of one number apart, in a shared session: another token replaces, the same one is skipped."""
    part: str = ""
    """The part of the attempt, in a shared session: each process that writes for it in turn names another one."""
    session_task: str = ""
    """The name of the task in a shared session, if it is not `task_id`."""
    private_session: str = ""
    """The id of the session in which any attempt at the task publishes by itself."""
    since: datetime | None = None
    """No attempt at the task was made before then; None if that is not known."""
    is_retry: bool = False
    """Whether there may have been an earlier attempt."""
    message: str = ""
    """Of the commit that it becomes."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    reads: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What was read for the attempt before it was assigned: keys, and prefixes ending in "*", by commit."""
    owner: str = ""
    """What the attempt works for, such as a run. Once it is fenced, an attempt that publishes by itself cannot."""

    def numbered(self, number: int) -> Assignment:
        """Return the assignment of the n-th task of the same step; the first is the one assigned here.

        A task with a name of its own in the session stays one task there. What is assigned is another part of its
        attempt then, such as `0.2`.
        """
        if number == 1:
            return self
        task_id, private = f"{self.task_id}-{number}", f"{self.private_session}-{number}"
        part = f"{self.part}.{number}" if self.session_task else self.part
        return replace(self, task_id=task_id, private_session=private, part=part)

    def to_json(self) -> dict[str, Any]:
        """Return it as values that JSON has."""
        return {
            "root": self.root,
            "branch": self.branch,
            "session": self.session,
            "epoch": self.epoch,
            "task": self.task_id,
            "attempt": self.attempt,
            "token": self.token,
            "part": self.part,
            "session_task": self.session_task,
            "private_session": self.private_session,
            "since": None if self.since is None else self.since.isoformat(),
            "is_retry": self.is_retry,
            "message": self.message,
            "metadata": dict(self.metadata),
            "reads": {commit: list(reads) for commit, reads in self.reads.items()},
            "owner": self.owner,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Assignment:
        """Read what `to_json` gave, in this process or in one with an earlier version of this package."""
        since = values["since"]
        return cls(
            root=values["root"],
            task_id=values["task"] if "task" in values else values["output"],
            branch=values["branch"],
            session=values["session"],
            epoch=values["epoch"] or 0,
            attempt=values["attempt"],
            token=values.get("token", ""),
            part=values.get("part", ""),
            session_task=values.get("session_task", ""),
            private_session=values["private_session"],
            since=None if since is None else datetime.fromisoformat(since),
            is_retry=values.get("is_retry", False),
            message=values["message"],
            metadata=values["metadata"],
            reads=values.get("reads", {}),
            owner=values.get("owner", ""),
        )


def open_workspace(
    assignment: Assignment,
    storage_options: Mapping[str, Any] | None,
    open_lake: Callable[[], Lake],
    *,
    reads: ReadRecord | None = None,
) -> Workspace:
    """Open the workspace of an attempt.

    Args:
        assignment: Where the attempt writes, and under which names.
        storage_options: Options of the store, for a folder of plain tables only.
        open_lake: Opens the lake at the root; not called for a folder of plain tables.
        reads: What the attempt reads of the branch, for an attempt that publishes by itself in a serializable lake.

    Raises what joining a session raises: SessionNotFound, SessionClosed, StaleEpoch; and RefNotFound.
    """
    if assignment.branch is None:
        return DirectWrites(assignment.root, storage_options, assignment.task_id)
    lake, root = open_lake(), assignment.root
    if assignment.session is not None:
        branch, task_id = assignment.branch, assignment.task_id
        writer = lake.get_session(assignment.session, epoch=assignment.epoch).join(
            task=assignment.session_task or task_id,
            attempt=assignment.attempt,
            token=assignment.token,
            part=assignment.part,
        )
        return StagedWrites(lake, writer, branch, root, task_id)
    return PublishedWrites(
        lake,
        assignment.branch,
        root,
        assignment.task_id,
        session_id=assignment.private_session,
        since=assignment.since,
        is_retry=assignment.is_retry,
        message=assignment.message,
        metadata=assignment.metadata,
        reads=reads,
        owner=assignment.owner,
    )
