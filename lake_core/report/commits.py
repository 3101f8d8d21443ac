"""Commits as rows, and what they changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.dataset import MOST_ROWS
from lake_core.lake.refs.commit_record import changed_datasets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lake_core.graveler import Commit
    from lake_core.lake import Lake
    from lake_core.lake.publish.comparison import Comparison

OWN_METADATA = ("datasets", "at")
"""The keys of a commit's metadata that the lake uses itself. They are not shown as metadata."""


def commit_row(commit: Commit) -> dict[str, object]:
    """Return a commit as a row."""
    return {
        "commit": commit.id,
        "date": commit.creation_date,
        "committer": commit.committer,
        "message": commit.message,
        "datasets": changed_datasets(commit),
        "parents": commit.parents,
        "metadata": commit.metadata,
    }


def against_parent(lake: Lake, commit: Commit, *, most_rows: int = MOST_ROWS, sample: int = 0) -> Comparison:
    """Compare a commit with its first parent. The first commit of a lake changed nothing."""
    if not commit.parents:
        from lake_core.lake.publish.comparison import Comparison

        return Comparison((), ())
    return lake.compare(commit.parents[0], commit.id, sample=sample, most_rows=most_rows)


def is_run(name: str) -> bool:
    """Return whether a key of a commit's metadata is that of a run of an orchestrator."""
    return name.rpartition("/")[2] in ("run", "run_id")


def run_of(metadata: Mapping[str, str]) -> str:
    """Return the run that made a commit, empty if it records none."""
    return next((text for name, text in metadata.items() if is_run(name)), "")
