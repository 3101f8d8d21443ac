"""The changes that an application makes to a tree."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from lake_core.lake.errors import Collected
from lake_core.lake.state.content import item_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lake_core.graveler import Record
    from lake_core.lake.publish.published import SkippedWrite
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
    """The changes to make to the target's tree."""

    items: Mapping[str, Item | None]
    """The changed items by key. None deletes."""
    onto: str
    """The tree that the items change: the target's, or that of the other side if the target has not changed."""
    datasets: Mapping[str, DatasetUpdate] = field(default_factory=dict)
    """The datasets that change, by path."""
    references: Sequence[str] = ()
    """The keys, in the lake's folder, of the unique objects that datasets reach now and did not before."""
    skipped: Sequence[SkippedWrite] = ()
    """The writes that the target had already, by their transaction identifiers."""
    resolved: Mapping[str, str] = field(default_factory=dict)
    """The datasets and keys whose conflicts a strategy resolved, with the kinds of the conflicts."""
    undoes: Sequence[str] = ()
    """The commits that the change undoes besides: compactions that gave way."""
    taken: bool = False
    """Whether `onto` is the other side's tree. It then differs from the target's tree even without `items`."""

    def __bool__(self) -> bool:
        return bool(self.items) or self.taken


def write_tree(
    repository: Repository,
    tree: str,
    items: Mapping[str, Item | None],
    pending: PendingDeletions,
    *,
    exact: bool = False,
) -> str:
    """Store items that are not stored yet, build the tree, and return its id.

    With `exact`, items also replace those of the same content.
    """
    content = repository.content
    addressed = {key: None if item is None else content.assign_address(item, pending) for key, item in items.items()}
    storing = [partial(content.store, item) for item in addressed.values() if item is not None]
    built, _ = repository.root.gather(
        lambda: repository.graveler.build(tree, _sorted_changes(addressed), avoid=pending.range, exact=exact),
        lambda: repository.root.gather(*storing),
    )
    return built.tree


def check_references(keys: Iterable[str], pending: PendingDeletions) -> None:
    """Raise Collected if a collector may be deleting one of the unique objects that datasets would reach again."""
    gone = next((key for key in keys if pending(key)), None)
    if gone is not None:
        raise Collected(
            f"{gone}, which this change would bring back, is being garbage-collected, because "
            "its commit is past the retention"
        )


def taken_tree(repository: Repository, tree: str, head: str, pending: PendingDeletions) -> str:
    """Return a tree with the records of `tree`, for a publish that takes all of it.

    The tree may be one that is no longer retained. What it shares with `head`, a tree that is, needs no change.
    """
    if not pending.keys:
        return tree
    differences = repository.graveler.diff(head, tree, exact=True)
    items = {each.key.decode(): item_of(each.after) for each in differences if each.after is not None}
    moved: dict[str, Item | None] = {key: item for key, item in items.items() if pending(item.entry.address)}
    return write_tree(repository, rebuilt(repository, tree, pending), moved, pending, exact=True)


def rebuilt(repository: Repository, tree: str, pending: PendingDeletions) -> str:
    """Return a tree with the same records, and without ranges that a collector may be deleting."""
    if not any(pending.range(name) for name in repository.graveler.names(tree)):
        return tree
    records = ((record.key, record) for record in repository.graveler.scan(tree))
    return repository.graveler.build("", records, avoid=pending.range).tree


def _sorted_changes(items: Mapping[str, Item | None]) -> Iterator[tuple[bytes, Record | None]]:
    """Yield changes as records in the order of their encoded keys."""
    encoded = sorted((key.encode(), key) for key in items)
    return ((name, None if (item := items[key]) is None else item.record(key)) for name, key in encoded)
