"""The events of assets: one for each dataset that a commit changed, and none for what it did not change."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk.definitions.asset import Asset, AssetAlias

from lake_core.lake.refs.commit_record import changed_datasets
from lake_core.lake.state.dataset_record import dataset_above
from lake_orch.assets.files.encoding import EXTENSIONS
from lake_orch.assets.files.owner import FOLDER as OWNERS
from lake_pipes.metadata import COMMIT, PATH
from lake_pipes.pages import page_addresses

if TYPE_CHECKING:
    from airflow.sdk import Context

    from lake_core.graveler import Commit
    from lake_core.lake import Lake
    from lake_orch.airflow.task_run import TaskRun
    from lake_orch.runs.run import PublishedRun


_log = logging.getLogger(__name__)
MOST_FILES = 100
"""The most plain files that have events of their own keys: each makes an asset."""
_ENDINGS = frozenset({"", *EXTENSIONS.values()})
"""What may follow the path of a file as a DAG names it."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit did to one dataset or plain file."""

    path: str
    extra: Mapping[str, Any]
    """What the event says: the commit, the branch, the session, the version and the rows, and pages that show it."""


def published_commit(run: TaskRun, published: PublishedRun) -> Commit | None:
    """Return the commit of a publish, or None if it found nothing to change."""
    commit = run.lake.log(published.published.commit, limit=1)[0]
    return commit if commit.metadata.get("session") == published.published.session else None


def changes_of_commit(
    lake: Lake,
    commit: Commit,
    branch: str,
    files: Collection[str],
    *,
    other_files: bool = False,
    ui_url: str | None = None,
) -> Sequence[Change]:
    """Return what a commit changed on a branch: its datasets and plain files, by their paths.

    Args:
        lake: The lake.
        commit: The commit.
        branch: The branch.
        files: The paths of files as a DAG names them, which may lack their extensions.
        other_files: Whether to return the other files as well, by their keys, unless they are too many.
        ui_url: Where `lake ui` serves the lake, for links to its pages.
    """
    said = {"commit": commit.id, "branch": branch, "session": commit.metadata.get("session"), "lake": lake.url}
    details = json.loads(commit.metadata.get("datasets", "{}"))
    changes = []
    for path in changed_datasets(commit):
        detail = details.get(path, {})
        extra = {**said, "version": detail.get("version"), "rows": rows_of(detail.get("summary") or {})}
        changes.append(Change(path, extra | _pages(ui_url, commit.id, path)))
    if commit.parents and (files or other_files):
        named, others = _changed_files(lake, commit.parents[0], commit.id, files)
        if other_files and len(others) > MOST_FILES:
            _log.warning("%s plain files that no task returns into have changed: they have no events", len(others))
        has_events = other_files and len(others) <= MOST_FILES
        paths = (*named, *(others if has_events else ()))
        changes += [Change(path, said | _pages(ui_url, commit.id, path)) for path in paths]
    return changes


def _pages(ui_url: str | None, commit: str, path: str) -> dict[str, str]:
    """Return links to the pages of a change, by names without the prefix that those of other orchestrators have."""
    addresses = page_addresses(ui_url, {COMMIT: commit, PATH: path})
    return {name.removeprefix("lake/"): address for name, address in addresses.items()}


def _changed_files(lake: Lake, before: str, after: str, named: Collection[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the plain files that differ between two commits: those that are named, and the keys of the others."""
    datasets = {record.path: record for ref in (before, after) for record in lake.list_datasets(ref)}
    differing = (each.key for each in lake.diff(before, after) if dataset_above(each.key, datasets) is None)
    keys = [key for key in differing if not key.startswith(f"{OWNERS}/")]
    changed, others = set(), []
    for key in keys:
        of_key = [path for path in named if key.startswith(f"{path}/") or key.removeprefix(path) in _ENDINGS]
        changed.update(of_key)
        others += [] if of_key else [key]
    return sorted(changed), others


def rows_of(summary: Mapping[str, Any]) -> int | None:
    """Return the rows that a commit wrote, by the summary of its format."""
    for name in ("numOutputRows", "records_added", "numTargetRowsInserted"):
        if name in summary:
            return int(summary[name])
    return None


def add_event(asset: Asset, change: Change, context: Context) -> None:
    """Add the event of a change to the task that is running, by its alias."""
    events = context["outlet_events"]
    for alias in context["task"].outlets:
        if isinstance(alias, AssetAlias):
            events[alias].add(asset, extra=dict(change.extra))
