"""`SessionWork`: a writer for tasks that write more than one value, or in several processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow.sdk import get_current_context

if TYPE_CHECKING:
    from lake_orch.airflow.session_group import SessionGroup
    from lake_pipes import ExternalWriter


@dataclass(frozen=True, slots=True)
class SessionWork:
    """Opens writers into the session of a group. A task gets it as the default of a parameter: `work=run.writer`."""

    session: SessionGroup

    @contextmanager
    def __call__(self) -> Iterator[ExternalWriter]:
        """Write in a task that is running. What is written takes effect together, when the run is published.

        A task may do so several times, also in the processes in which it goes on after it was deferred: all of them
        count together.
        """
        from lake_core.workspace import Assignment
        from lake_orch.airflow.errors import without_retry
        from lake_orch.airflow.session_group import session_of
        from lake_orch.airflow.task_run import TaskRun
        from lake_orch.errors import InvalidDefinition
        from lake_pipes import ExternalWriter

        with without_retry():
            own = session_of(get_current_context())
            if own is None or own.group_id != self.session.group_id:
                raise InvalidDefinition(
                    f"the writer of the session {self.session.group_id!r} is for the tasks of its group: put this task "
                    "into it"
                )
            run = TaskRun.of_session(self.session)
            workspace = run.begin()
            record = run.run.session
            assignment = Assignment(
                run.lake.url, workspace.task_id, run.branch, session=None if record is None else record.id
            )
            with workspace:
                yield ExternalWriter(workspace, assignment)
