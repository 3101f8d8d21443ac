"""The page of a commit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from starlette.responses import RedirectResponse, Response

from lake_core.errors import LakeError
from lake_core.lake.refs.commit_record import RESOLVED_FIELD, changed_datasets
from lake_core.report.commits import OWN_METADATA, against_parent, commit_row, run_of
from lake_core.ui.changes import SAMPLE_ROWS, changed_between, revisions_change
from lake_core.ui.errors import InvalidRequest
from lake_core.ui.history import labels, session_of
from lake_core.ui.page import Page, url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lake_core.graveler import Commit
    from lake_core.ui.visit import Revision, Visit

PAGE = 20
"""Datasets on a page."""
FILES = 200
"""Plain files on a page."""


def commit_page(visit: Visit) -> Page | Response:
    """Show a commit, and what it changed since its first parent. Its address has its id, which does not move."""
    revision = visit.revision(visit.path["ref"])
    if revision.session is not None:
        raise InvalidRequest(f"{visit.path['ref']!r} is a session, not a commit: its page is under Sessions")
    commit = revision.commit
    if visit.path["ref"] != commit.id:
        return RedirectResponse(url(f"/commit/{commit.id}", **visit.query), 303)
    if visit.get("format") == "json":
        body = commit_row(commit) | {"changes": against_parent(visit.lake, commit)}
        return Page("commit.html", {}, body)
    number = visit.number("page", 1, 1, 100_000)
    values: dict[str, Any] = {"paths": [], "files": [], "changes": [], "parent": None}
    if commit.parents and visit.refs.has_commit(commit.parents[0]):
        parent = visit.revision(commit.parents[0])
        values = changes_of(visit, parent, revision, number) | {"parent": parent.commit}
    return Page(
        "commit.html",
        {
            **values,
            "commit": commit,
            "labels": labels(visit).get(commit.id, ()),
            "run": run_of(commit.metadata),
            "session": session_of(visit, commit),
            "run_url": visit.settings.run_url(commit.metadata),
            "metadata": {name: text for name, text in commit.metadata.items() if name not in OWN_METADATA},
            "recorded": changed_datasets(commit),
            "resolved": _resolved(commit),
            "parents": [(id, visit.refs.commit(id) if visit.refs.has_commit(id) else None) for id in commit.parents],
            "number": number,
        },
        None,
    )


def changes_of(visit: Visit, old: Revision, new: Revision, number: int) -> dict[str, Any]:
    """Return a page of what differs between two revisions."""
    paths, files = changed_between(visit, old, new)
    return {
        "paths": paths,
        "files": files,
        "changes": list(dataset_rows(visit, old, new, paths[(number - 1) * PAGE : number * PAGE])),
        "pages": max(1, -(-len(paths) // PAGE)),
    }


def dataset_rows(visit: Visit, old: Revision, new: Revision, paths: Sequence[str]) -> Any:
    """Yield what differs in datasets. One that cannot be read says so in its own row."""
    for path in paths:
        try:
            change = revisions_change(visit, old, new, path, SAMPLE_ROWS)
        except LakeError as error:
            yield {"path": path, "change": None, "problem": str(error)}
            continue
        if change is not None:
            yield {"path": path, "change": change, "problem": ""}


def _resolved(commit: Commit) -> Mapping[str, str]:
    """Return the conflicts that the strategy of a merge resolved, by path."""
    try:
        resolved = json.loads(commit.metadata.get(RESOLVED_FIELD, "{}"))
    except ValueError:
        return {}
    return {str(path): str(kind) for path, kind in resolved.items()} if isinstance(resolved, dict) else {}
