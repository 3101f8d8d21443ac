"""Links of tasks to what they wrote. Airflow asks for them in the task's process, at its end.

They lead to the pages of `lake ui`, if the connection says where these are. Otherwise a link leads to the page of its
task, and what to look for is in its fragment: `<url of the lake>#commit=<id>`. Airflow's pages show no link with a
scheme such as `s3`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

from lake_pipes.metadata import COMMIT, PATH, SESSION
from lake_pipes.pages import (
    COMMIT_PAGE,
    DATASET_PAGE,
    SESSION_PAGE,
    comparison_address,
    page_addresses,
)

if TYPE_CHECKING:
    from lake_core.graveler import Commit
    from lake_orch.airflow.task_run import TaskRun


class LakeLink(BaseOperatorLink):
    """The base class of the links."""

    attribute: ClassVar[str]
    """The attribute of a task that says what to look for."""

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the link, or nothing if the task has nothing to link to."""
        target = getattr(operator, self.attribute, None)
        if not target:
            return ""
        return f"{_page(ti_key)}#{target}" if "#" in target else str(target)  # addresses of pages have no fragment


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


class DatasetLink(LakeLink):
    """The dataset that a task has written, as its commit or its session has it, on a page of `lake ui`."""

    name = "Dataset"
    attribute = "dataset_link"


LINKS = (CommitLink(), CompareLink(), SessionLink(), DatasetLink())
"""The links of each task that writes into a lake."""


def set_links(
    operator: Any, run: TaskRun, session: str | None, commit: Commit | None = None, path: str | None = None
) -> None:
    """Say what the links of a task lead to.

    Args:
        operator: The task.
        run: Its run.
        session: The session of the run.
        commit: The commit that the task has published.
        path: The dataset that it has written.
    """
    lake, ui_url = run.lake, run.ui_url
    parents = () if commit is None else commit.parents
    if ui_url is None:
        operator.session_link = None if session is None else f"{lake.url}#session={session}"
        if commit is not None:
            operator.commit_link = f"{lake.url}#commit={commit.id}"
            operator.compare_link = f"{lake.url}#diff={parents[0]}..{commit.id}" if parents else None
        return
    operator.session_link = page_addresses(ui_url, {SESSION: session}).get(SESSION_PAGE)
    written = page_addresses(ui_url, {COMMIT: None if commit is None else commit.id, SESSION: session, PATH: path})
    operator.dataset_link = written.get(DATASET_PAGE)
    if commit is not None:
        operator.commit_link = written[COMMIT_PAGE]
        operator.compare_link = comparison_address(ui_url, parents[0], commit.id) if parents else None


def _page(ti: Any) -> str:
    """Return the page that shows the links of a task instance, below the address of Airflow, which may have a path."""
    page = f"dags/{quote(ti.dag_id)}/runs/{quote(ti.run_id, safe='')}/tasks/{quote(ti.task_id)}"
    mapped = ti.map_index is not None and ti.map_index >= 0
    return f"{page}/mapped/{ti.map_index}/details" if mapped else f"{page}/details"
