"""The place of a commit in the graph of commits, which the refs keep when garbage collection takes its content.

What a merge does depends on the graph. So it must not end where content does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lake_core.lake.errors import DamagedLake
from lake_core.lake.refs.commit_record import (
    DATASETS_FIELD,
    LEFT_OUT_FIELD,
    MOST_RESOLVED,
    PARENT_FIELD,
    PICK_FIELD,
    RESOLVED_FIELD,
    REVERT_FIELD,
    SESSION_FIELD,
    SQUASH_FIELD,
    UNDOES_FIELD,
    changed_datasets,
    datasets_in,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lake_core.graveler import Commit

LINKS = "commit-link/"
"""The prefix of the links of collected commits in the refs journal."""

EDGES = (SQUASH_FIELD, PICK_FIELD, REVERT_FIELD, PARENT_FIELD, "strategy")
"""The keys of a commit's metadata that outlive its content. They say how it relates to other commits."""

_LONGEST_VALUE = 256
_LONGEST_PATHS = 512
"""The most characters of paths that a link keeps. A commit of a large session changes thousands of datasets."""


@dataclass(frozen=True, slots=True)
class CommitLink:
    """The place of a commit in the graph."""

    id: str
    parents: tuple[str, ...]
    generation: int
    date: datetime
    metadata: Mapping[str, str]
    """All of it if the commit is retained. Otherwise `EDGES`, and the paths of the datasets that it changed."""
    has_content: bool
    """Whether the commit is retained."""

    @property
    def squashed(self) -> str | None:
        """Return the id of the commit that it squashed."""
        return self._edge(SQUASH_FIELD)

    @property
    def picked(self) -> str | None:
        """Return the id of the commit whose writes it brought from elsewhere."""
        return self._edge(PICK_FIELD)

    @property
    def reverted(self) -> str | None:
        """Return the id of the commit whose writes it undoes."""
        return self._edge(REVERT_FIELD)

    @property
    def is_undo(self) -> bool:
        """Return whether it undoes writes: a revert, or a merge for the sake of which compactions were undone."""
        return self.reverted is not None or UNDOES_FIELD in self.metadata

    @property
    def parent_number(self) -> int:
        """Return the number of the parent since which it picked or reverted."""
        return int(self.metadata.get(PARENT_FIELD, "1"))

    @property
    def sources(self) -> tuple[str, ...]:
        """Return the commits all of whose writes reached it: its parents, and the commit that it squashed."""
        return self.parents if self.squashed is None else (*self.parents, self.squashed)

    @property
    def is_merge(self) -> bool:
        """Return whether it made no write of its own, because it merged or squashed another commit."""
        return len(self.parents) > 1 or self.squashed is not None

    @property
    def left_out(self) -> str:
        """Return the writes that it left out, as it records them; nothing if there are none, or it does not say."""
        return self.metadata.get(LEFT_OUT_FIELD, "").removeprefix("[").removesuffix("]")

    @property
    def datasets(self) -> frozenset[str] | None:
        """Return the paths of the datasets that it changed, or None if they are not known."""
        datasets = datasets_in(self.metadata)
        return None if datasets is None else frozenset(datasets)

    @property
    def resolved(self) -> frozenset[str] | None:
        """Return the datasets and files where a merge took one side, or None if they are not known."""
        if "strategy" not in self.metadata:
            return frozenset()
        if RESOLVED_FIELD not in self.metadata and not self.has_content:
            return None
        paths = frozenset(json.loads(self.metadata.get(RESOLVED_FIELD, "{}")))
        return paths if len(paths) < MOST_RESOLVED else None

    def _edge(self, field: str) -> str | None:
        """Return the commit that it names in its metadata.

        Those of sessions name none: before such keys were the lake's own, callers could use them.
        """
        return None if SESSION_FIELD in self.metadata else self.metadata.get(field)


def link_of(commit: Commit) -> CommitLink:
    """Return the link of a commit that is retained."""
    return CommitLink(
        commit.id, tuple(commit.parents), commit.generation, commit.creation_date, commit.metadata, has_content=True
    )


def link_value(commit: Commit) -> dict[str, Any]:
    """Return the value that stays in the refs journal when the content of a commit is collected."""
    # An imported commit may have long texts under these keys. They name no commit.
    edges = {
        key: text
        for key in (() if SESSION_FIELD in commit.metadata else EDGES)
        if len(text := commit.metadata.get(key, "")) in range(1, _LONGEST_VALUE)
    }
    undone = commit.metadata.get(UNDOES_FIELD)
    if undone is not None:
        edges[UNDOES_FIELD] = undone
    resolved = commit.metadata.get(RESOLVED_FIELD)
    if resolved is not None and len(resolved) <= _LONGEST_PATHS:
        edges[RESOLVED_FIELD] = resolved
    datasets = _paths(commit)
    return {
        "date": commit.creation_date.isoformat(),
        "parents": list(commit.parents),
        "generation": commit.generation,
        "metadata": edges | ({} if datasets == "{}" else {DATASETS_FIELD: datasets}),
    }


def read_link(id: str, value: Any) -> CommitLink:
    """Read the link that `link_value` wrote. Raises DamagedLake."""
    try:
        link = CommitLink(
            id,
            tuple(value["parents"]),
            value["generation"],
            datetime.fromisoformat(value["date"]),
            dict(value["metadata"]),
            has_content=False,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedLake(f"the link of commit {id!r} in the refs journal is damaged: {error!r}") from None
    texts = [*link.parents, *link.metadata, *link.metadata.values()]
    if type(link.generation) is not int or not all(isinstance(text, str) for text in texts) or link.date.tzinfo is None:
        raise DamagedLake(f"the link of commit {id!r} in the refs journal is damaged")
    return link


def _paths(commit: Commit) -> str:
    """Return the changed datasets in the form of a commit's metadata, without details; null if they are unknown."""
    try:
        paths = sorted(changed_datasets(commit))
    except DamagedLake:
        return "null"
    text = json.dumps({path: {"format": ""} for path in paths}, separators=(",", ":"), ensure_ascii=False)
    return text if len(text) <= _LONGEST_PATHS else "null"
