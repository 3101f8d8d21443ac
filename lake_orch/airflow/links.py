"""Links of tasks to what they wrote. Airflow asks for them in the task's process, at its end."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperatorLink


class CommitLink(BaseOperatorLink):
    """The commit that a task has published."""

    name = "Commit"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the link, or nothing if the task has published nothing."""
        return getattr(operator, "commit_link", None) or ""


class SessionLink(BaseOperatorLink):
    """The session into which a task has written."""

    name = "Session"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the link, or nothing if the task has written nothing."""
        return getattr(operator, "session_link", None) or ""
