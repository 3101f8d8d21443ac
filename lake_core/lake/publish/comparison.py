"""Readable differences between two refs: tables by versions, rows and columns, plain files by key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lake_core.lake.state.content import item_of
from lake_core.lake.state.view import RESERVED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.dataset import DatasetComparison
    from lake_core.lake.state.state_store import StateStore


@dataclass(frozen=True, slots=True)
class ChangedKey:
    """A key that differs between two states."""

    key: str
    kind: Literal["added", "removed", "changed"]
    dataset: str | None
    """The dataset that the key is part of."""
    size: int
    """The size in bytes: of the new object, or of the old one if the key was deleted."""


@dataclass(frozen=True, slots=True)
class ChangedDataset:
    """A dataset that differs between two states."""

    path: str
    format: str
    kind: Literal["added", "removed", "changed"]
    comparison: DatasetComparison


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between two states."""

    datasets: Sequence[ChangedDataset]
    files: Sequence[ChangedKey]
    """The plain files, without those of datasets."""


def changed_keys(old: StateStore, new: StateStore, prefix: str) -> Iterator[ChangedKey]:
    """Yield the keys that differ between two states, in order."""
    paths = sorted({**old.registered(), **new.registered()}, key=len, reverse=True)
    for difference in new.view.graveler.diff(old.view.tree, new.view.tree, prefix.encode()):
        key = difference.key.decode()
        record = difference.after or difference.before
        if key.startswith(RESERVED) or record is None:
            continue
        kind: Literal["added", "removed", "changed"] = (
            "added" if difference.before is None else "removed" if difference.after is None else "changed"
        )
        dataset = next((path for path in paths if key.startswith(f"{path}/")), None)
        yield ChangedKey(key, kind, dataset, item_of(record).entry.size)


def changed_paths(old: StateStore, new: StateStore, prefix: str = "") -> tuple[list[str], list[ChangedKey]]:
    """Return the paths of the datasets that may differ between two states, and the plain files that do."""
    files: list[ChangedKey] = []
    paths: dict[str, None] = {}
    for each in changed_keys(old, new, prefix):
        if each.dataset is None:
            files.append(each)
        else:
            paths[each.dataset] = None
    return sorted(paths), files


def compare_states(old: StateStore, new: StateStore, *, prefix: str, sample: int, most_rows: int) -> Comparison:
    """Group the keys that differ by dataset, and compare each dataset by its format."""
    paths, files = changed_paths(old, new, prefix)
    datasets = (compare_dataset(old, new, path, sample=sample, most_rows=most_rows) for path in paths)
    return Comparison([each for each in datasets if each is not None], files)


def compare_dataset(
    old: StateStore, new: StateStore, path: str, *, sample: int, most_rows: int
) -> ChangedDataset | None:
    """Compare a dataset in two states. Return None if neither has it: both dropped it, after different histories."""
    before, after = (state.datasets().get(path) for state in (old, new))
    record = after or before
    if record is None:
        return None
    views = [None if side is None else state.folder_of(side) for state, side in ((old, before), (new, after))]
    comparison = next(view for view in views if view is not None).format.compare(
        *views, sample=sample, most_rows=most_rows
    )
    return ChangedDataset(
        path, record.format, "added" if before is None else "removed" if after is None else "changed", comparison
    )
