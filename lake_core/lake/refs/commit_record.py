"""Commits in the refs journal, and their metadata."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lake_core.graveler import Commit
from lake_core.lake.errors import DamagedLake

if TYPE_CHECKING:
    from collections.abc import Mapping

DATASETS_FIELD = "datasets"
"""The key of a commit's metadata that lists the datasets it changed: JSON, path → {format, version, operation}."""


def commit_value(commit: Commit) -> dict[str, Any]:
    """Return the value of a commit in the refs journal."""
    return {
        "committer": commit.committer,
        "message": commit.message,
        "date": commit.creation_date.isoformat(),
        "tree": commit.metarange_id,
        "metadata": dict(commit.metadata),
        "parents": list(commit.parents),
        "generation": commit.generation,
    }


def commit_of(id: str, value: Mapping[str, Any]) -> Commit:
    """Read the commit that `commit_value` wrote. Raises DamagedLake."""
    try:
        commit = Commit(
            id=id,
            committer=value["committer"],
            message=value["message"],
            creation_date=datetime.fromisoformat(value["date"]),
            metarange_id=value["tree"],
            metadata=dict(value["metadata"]),
            parents=tuple(value["parents"]),
            generation=value["generation"],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedLake(f"the record of commit {id!r} in the refs journal is damaged: {error!r}") from None
    texts = [
        commit.metarange_id,
        commit.message,
        commit.committer,
        *commit.parents,
        *commit.metadata,
        *commit.metadata.values(),
    ]
    if (
        type(commit.generation) is not int
        or not all(isinstance(text, str) for text in texts)
        or commit.creation_date.tzinfo is None
    ):
        raise DamagedLake(f"the record of commit {id!r} in the refs journal is damaged")
    return commit


def changed_datasets(commit: Commit) -> Mapping[str, Mapping[str, object]]:
    """Read which datasets a commit changed, by path. Raises DamagedLake."""
    return datasets_in(commit.id, commit.metadata)


def datasets_in(id: str, metadata: Mapping[str, str]) -> Mapping[str, Mapping[str, object]]:
    """Read the changed datasets in a commit's metadata. Raises DamagedLake, which names the commit."""
    try:
        datasets = json.loads(metadata.get(DATASETS_FIELD, "{}"))
    except ValueError:
        datasets = None
    if not isinstance(datasets, dict) or not all(isinstance(update, dict) for update in datasets.values()):
        raise DamagedLake(f"commit {id[:12]} does not record which datasets it changed")
    return datasets


def version_of(update: Mapping[str, object]) -> int | None:
    """Return the version of a dataset that a commit created, or None if the format has no versions."""
    version = update.get("version")
    return version if isinstance(version, int) else None
