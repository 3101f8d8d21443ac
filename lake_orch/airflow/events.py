"""The events of assets: one for each dataset that a commit changed, and none for what it did not change."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk.definitions.asset import Asset, AssetAlias

from lake_core.lake.refs.commit_record import changed_datasets

if TYPE_CHECKING:
    from airflow.sdk import Context

    from lake_core.graveler import Commit
    from lake_core.lake import Lake
    from lake_orch.airflow.task_run import TaskRun
    from lake_orch.runs.run import PublishedRun


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit did to one dataset or plain file."""

    path: str
    extra: Mapping[str, Any]
    """What the event says: the commit, the branch, the session, the version and the rows."""


def published_commit(run: TaskRun, published: PublishedRun) -> Commit | None:
    """Return the commit of a publish, or None if it found nothing to change."""
    commit = run.lake.log(published.published.commit, limit=1)[0]
    return commit if commit.metadata.get("session") == published.published.session else None


def changes_of_commit(lake: Lake, commit: Commit, branch: str, files: Collection[str]) -> Sequence[Change]:
    """Return what a commit changed on a branch: its datasets, and those of some files, by their paths."""
    said = {"commit": commit.id, "branch": branch, "session": commit.metadata.get("session"), "lake": lake.url}
    details = json.loads(commit.metadata.get("datasets", "{}"))
    changes = []
    for path in changed_datasets(commit):
        detail = details.get(path, {})
        extra = {**said, "version": detail.get("version"), "rows": rows_of(detail.get("summary") or {})}
        changes.append(Change(path, extra))
    if files and commit.parents:
        keys = [each.key for each in lake.diff(commit.parents[0], commit.id)]
        changed = (
            path for path in files if any(key == path or key.startswith((f"{path}.", f"{path}/")) for key in keys)
        )
        changes += [Change(path, said) for path in changed]
    return changes


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
