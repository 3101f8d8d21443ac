"""The group of tasks that a session is, as its tasks find it when they run."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import TaskGroup

from lake_orch.airflow.hook import DEFAULT_BRANCH, DEFAULT_CONNECTION

if TYPE_CHECKING:
    from collections.abc import Collection

OnAlone = Literal["publish", "fail"]
OPEN_TASK, PUBLISH_TASK, CLOSE_TASK = "open", "publish", "close"


class SessionGroup(TaskGroup):
    """A group of tasks that write into one session of a lake."""

    def __init__(
        self,
        group_id: str,
        *,
        connection: str = DEFAULT_CONNECTION,
        branch: str | None = None,
        on_alone: OnAlone = "publish",
        keep_failed_for: timedelta = timedelta(hours=24),
        **options: Any,
    ) -> None:
        super().__init__(group_id=group_id, **options)
        self.connection, self.branch = connection, branch
        self.on_alone: OnAlone = on_alone
        self.keep_failed_for = keep_failed_for
        self.is_wired = False
        """Whether its tasks have their order, so that it takes no more."""

    def add(self, task: Any) -> Any:
        """Add a task, or a group of tasks. Raises ValueError after the block of the session."""
        self.check_open()
        return super().add(task)

    def check_open(self) -> None:
        """Raise ValueError after the block of the session: nothing would order a task that is made there."""
        if self.is_wired:
            raise ValueError(
                f"the session {self.group_id!r} takes no more tasks or checks: make them in its block, "
                f"before `{PUBLISH_TASK}` follows them"
            )

    def work_ids(self) -> Collection[str]:
        """Return the ids of the tasks of the group but for its own three."""
        own = {self.own_id(name) for name in (OPEN_TASK, PUBLISH_TASK, CLOSE_TASK)}
        return [task.task_id for task in self if task.task_id not in own]

    def branch_in(self, context: Any) -> str:
        """Return the branch in a run, as its template is rendered there."""
        if self.branch is None:
            return DEFAULT_BRANCH
        branch: str = context["task"].render_template(self.branch, context)
        return branch

    def own_id(self, name: str) -> str:
        """Return the id of one of its own three tasks."""
        id: str = self.child_id(name)
        return id


def session_of(context: Any) -> SessionGroup | None:
    """Return the session of the task that is running, or None if it is in none."""
    return session_around(context["dag"].get_task(context["ti"].task_id).task_group)


def session_around(group: TaskGroup | None) -> SessionGroup | None:
    """Return the session that a group of tasks is or is in, or None if it is in none."""
    while group is not None:
        if isinstance(group, SessionGroup):
            return group
        group = group.parent_group
    return None
