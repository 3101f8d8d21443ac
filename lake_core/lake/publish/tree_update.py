"""The changes that an application makes to a tree."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from lake_core.lake.errors import Collected

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lake_core.graveler import Record
    from lake_core.lake.refs.pending_deletions import PendingDeletions
    from lake_core.lake.repository import Repository
    from lake_core.lake.state.content import Item

Strategy: TypeAlias = Literal["ours", "theirs"]
"""The side that each dataset and key in conflict takes: the target's, or that of the changes."""

MergeStrategy: TypeAlias = Literal["ours", "theirs", "dest-wins", "source-wins"]
"""The names of the sides for callers of a merge: git's or lakeFS's."""


@dataclass(frozen=True, slots=True)
class DatasetUpdate:
    """The change of a dataset."""

    format: str
    version: int | None
    operation: str
    summary: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Return the JSON for the dataset in a commit's metadata."""
        return {
            "format": self.format,
            "version": self.version,
            "operation": self.operation,
            "summary": dict(self.summary),
        }


@dataclass(frozen=True, slots=True)
class TreeUpdate:
    """The changes of the target."""

    items: Mapping[str, Item | None]
    """The changed items by key. None deletes."""
    onto: str
    """The tree that the items change: the target's, or that of the other side if the target has not changed."""
    datasets: Mapping[str, DatasetUpdate] = field(default_factory=dict)
    """The datasets that change, by path."""
    references: Sequence[str] = ()
    """The keys, in place, of the unique objects that datasets reach now and did not before."""
    skipped: Sequence[str] = ()
    """The datasets whose changes the target had already, by their transaction identifiers."""
    resolved: Mapping[str, str] = field(default_factory=dict)
    """The datasets and keys whose conflicts a strategy resolved, with the kinds of the conflicts."""
    taken: bool = False
    """Whether `tree` is that of the other side, which differs from the target's already."""

    def __bool__(self) -> bool:
        return bool(self.items) or self.taken


def check_references(update: TreeUpdate, pending: PendingDeletions) -> None:
    """Raise Collected if the update would bring back an object that a collector may be deleting."""
    gone = next((key for key in update.references if pending(key)), None)
    if gone is not None:
        raise Collected(
            f"{gone}, which this change would bring back, is being garbage-collected, because "
            "its commit is past the retention"
        )


def write_tree(repository: Repository, tree: str, items: Mapping[str, Item | None], pending: PendingDeletions) -> str:
    """Store items that are not stored yet, build the tree, and return its id."""
    content = repository.content
    placed = {key: None if item is None else content.place(item, pending) for key, item in items.items()}
    storing = [partial(content.store, item) for item in placed.values() if item is not None]
    built, _ = repository.root.gather(
        lambda: repository.graveler.build(tree, _sorted_changes(placed), avoid=pending.range),
        lambda: repository.root.gather(*storing),
    )
    return built.tree


def _sorted_changes(items: Mapping[str, Item | None]) -> Iterator[tuple[bytes, Record | None]]:
    """Yield changes as records in the order of their encoded keys."""
    encoded = sorted((key.encode(), key) for key in items)
    return ((name, None if (item := items[key]) is None else item.record(key)) for name, key in encoded)
