"""Links of tasks to what they wrote. Airflow asks for them in the task's process, at its end.

A lake has no pages of its own yet. So a link leads to the page of its task, and what to look for is in its fragment:
`<url of the lake>#commit=<id>`. Airflow's pages show no link with a scheme such as `s3`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from lake_core.graveler import Commit
    from lake_core.lake import Lake


class LakeLink(BaseOperatorLink):
    """The base class of the links."""

    attribute: ClassVar[str]
    """The attribute of a task that says what to look for."""

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the link, or nothing if the task has nothing to link to."""
        target = getattr(operator, self.attribute, None)
        return f"{_page(ti_key)}#{target}" if target else ""


class CommitLink(LakeLink):
    """The commit that a task has published."""

    name = "Commit"
    attribute = "commit_link"


class CompareLink(LakeLink):
    """What the commit of a task has changed: its first parent and itself, to be compared."""

    name = "Comparison"
    attribute = "compare_link"


class SessionLink(LakeLink):
    """The session into which a task has written."""

    name = "Session"
    attribute = "session_link"


LINKS = (CommitLink(), CompareLink(), SessionLink())
"""The links of each task that writes into a lake."""


def set_links(operator: Any, lake: Lake, session: str | None, commit: Commit | None = None) -> None:
    """Say what the links of a task lead to: the session of its run, and the commit that it has published."""
    operator.session_link = None if session is None else f"{lake.url}#session={session}"
    if commit is not None:
        operator.commit_link = f"{lake.url}#commit={commit.id}"
        operator.compare_link = f"{lake.url}#diff={commit.parents[0]}..{commit.id}" if commit.parents else None


def _page(ti: Any) -> str:
    """Return the page that shows the links of a task instance, below the address of Airflow, which may have a path."""
    page = f"dags/{quote(ti.dag_id)}/runs/{quote(ti.run_id, safe='')}/tasks/{quote(ti.task_id)}"
    mapped = ti.map_index is not None and ti.map_index >= 0
    return f"{page}/mapped/{ti.map_index}/details" if mapped else f"{page}/details"
