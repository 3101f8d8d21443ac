"""`TaskStates`: what an orchestrator knows of the tasks of a run. It is all that a run's session is told of them."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

    from lake_core.lake.session.task_attempt import TaskAttempt


class TryState(Enum):
    """The state of a try at a task."""

    RUNNING = "running"
    """It may still write."""
    SUCCEEDED = "succeeded"
    """It is the last try at its task, and ended well."""
    FAILED = "failed"
    """It is the last try at its task, and did not end well."""
    GONE = "gone"
    """It does not count: the task was begun again, cleared or skipped since, or the run has no such task any longer.

    Whoever wants its task to count again has to begin another try. Where an orchestrator lets a person mark the task as
    a success instead, its run publishes only if nothing of the try has been taken out yet.
    """


class TaskStates(Protocol):
    """The tasks of a run, as the orchestrator knows them when it is asked."""

    def look(self) -> None:
        """Ask the orchestrator again. Until then, answers may be those that it has given before."""

    def of(self, attempt: TaskAttempt) -> TryState:
        """Return the state of a try at a task. Tasks that are not the orchestrator's have succeeded."""

    def unfinished(self) -> Collection[str]:
        """Return the names of the tasks that the run has yet to run to their end, whether or not they have written."""

    def succeeded(self) -> Collection[str]:
        """Return the names of the tasks that have succeeded, whether or not they have written."""

    def replaces(self, task: str) -> bool:
        """Return whether a task writes in place of what it wrote before, such as by an overwrite or a merge by keys.

        What it published may then stay where others have rewritten it since.
        """

    def name(self, task: str) -> str:
        """Return how people know a task of the session."""
