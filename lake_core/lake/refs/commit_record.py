"""Commits in the refs journal, and their metadata."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from lake_core.graveler import Commit
from lake_core.lake.errors import DamagedLake

if TYPE_CHECKING:
    from collections.abc import Mapping

DATASETS_FIELD = "datasets"
"""The key of a commit's metadata that lists the datasets it changed: JSON, path → {format, version, operation}."""

ADOPT_FIELD: Final = "adopt"
"""The key of the metadata of an adoption: the dataset whose folder main follows from that commit on."""

SESSION_FIELD: Final = "session"
"""The key of the session that a commit published. Commits without it are merges, reverts and the like."""
MERGE_FIELD: Final = "merge"
SQUASH_FIELD: Final = "squash"
"""The keys of the commit that a commit merged, as its second parent or without becoming its child."""
PICK_FIELD: Final = "cherry-pick-origin"
REVERT_FIELD: Final = "revert"
"""The keys of the commit whose changes a commit brought or undid, since the parent in `PARENT_FIELD`."""
PARENT_FIELD: Final = "lake:parent"
"""The key of the number of that parent. 1 if there is none."""
UNDOES_FIELD: Final = "lake:undoes"
"""The key of the commits whose writes a revert undoes, if they are others than those that the reverted commit made."""
LEFT_OUT_FIELD: Final = "lake:left-out"
"""The key of the writes that a commit left out, as their transaction identifiers were there: JSON, see `left_out`.

Merges and cherry-picks have it in any case, sessions only if they left something out.
"""
MOST_LEFT_OUT: Final = 100
"""The most of these writes that a commit lists."""
SESSION_UNDO_FIELD: Final = "lake:for-session"
"""The key of the session for whose sake a commit undid compactions."""
RESOLVED_FIELD: Final = "resolved"
"""The key of the conflicts that a merge's strategy resolved: JSON, path → kind."""
MOST_RESOLVED: Final = 100
"""The most of these conflicts that a commit lists. If it lists so many, there may be more."""

_RESERVED_FIELDS = frozenset(
    {
        DATASETS_FIELD,
        "at",
        "cherry-pick-committer",
        "cherry-pick-origin",
        "lake",
        "lineage",
        "merge",
        "resolved",
        "revert",
        "session",
        "squash",
        "strategy",
    }
)
"""The keys of metadata that the lake writes itself. Callers cannot use them."""
_RESERVED_PREFIXES = ("lake:", "retention:")
"""The beginnings of such keys: `retention:` is that of a session's record, and `lake:` is kept for later versions."""


def check_metadata(message: str, metadata: Mapping[str, str] | None) -> None:
    """Check the message and the metadata that a caller gives to a commit. Raises ValueError."""
    if not isinstance(message, str) or not all(
        isinstance(text, str) for pair in (metadata or {}).items() for text in pair
    ):
        raise ValueError("a commit's message must be text, and its metadata a mapping from text to text")
    for name in metadata or {}:
        if name in _RESERVED_FIELDS or name.startswith(_RESERVED_PREFIXES):
            raise ValueError(
                f"the key {name!r} of a commit's metadata is the lake's own: use another name, such as 'my-{name}'"
            )


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
    """Read which datasets a commit changed, by path.

    Metadata of another meaning under the same key, such as that of a commit from lakeFS, lists none. Raises DamagedLake
    if the record was altered.
    """
    datasets = datasets_in(commit.metadata)
    if datasets is not None:
        return datasets
    if not commit.is_named_right:
        raise DamagedLake(f"commit {commit.id[:12]} does not record which datasets it changed")
    return {}


def datasets_in(metadata: Mapping[str, str]) -> Mapping[str, Mapping[str, object]] | None:
    """Read the changed datasets in a commit's metadata. Return None if the text has another meaning."""
    try:
        datasets = json.loads(metadata.get(DATASETS_FIELD, "{}"))
    except (ValueError, RecursionError):
        return None
    is_own = isinstance(datasets, dict) and all(
        isinstance(update, dict) and isinstance(update.get("format"), str) for update in datasets.values()
    )
    return datasets if is_own else None


def version_of(update: Mapping[str, object]) -> int | None:
    """Return the version of a dataset that a commit created, or None if the format has no versions."""
    version = update.get("version")
    return version if isinstance(version, int) else None
