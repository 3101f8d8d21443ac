"""What differs between two refs, as a person asks: tables by versions, rows and columns, plain files by key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lake_core.dataset import DatasetComparison
from lake_core.lake.state_store import StateStore

if TYPE_CHECKING:
    from lake_core.lake.lake import Difference


MOST_ROWS = 1_000_000
"""Rows of a dataset that are read to compare two states of it."""


@dataclass(frozen=True, slots=True)
class DatasetDifference:
    """A dataset that differs between two states."""

    path: str
    format: str
    kind: Literal["added", "removed", "changed"]
    comparison: DatasetComparison


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs between two states."""

    datasets: Sequence[DatasetDifference]
    files: Sequence[Difference]
    """Plain files; those of datasets are theirs."""


def compare_states(old: StateStore, new: StateStore, differences: Iterable[Difference], *, sample: int, most_rows: int) -> Comparison:
    """Gather the keys that differ by dataset, and compare each dataset by its format's own means."""
    files: list[Difference] = []
    paths: dict[str, None] = {}
    for each in differences:
        if each.dataset is None:
            files.append(each)
        else:
            paths[each.dataset] = None
    datasets = (_compared(old, new, path, sample, most_rows) for path in sorted(paths))
    return Comparison([each for each in datasets if each is not None], files)


def _compared(old: StateStore, new: StateStore, path: str, sample: int, most_rows: int) -> DatasetDifference | None:
    before, after = (state.datasets().get(path) for state in (old, new))
    record = after or before
    if record is None:
        return None  # dropped on both sides, after different histories
    views = [None if side is None else state.folder_of(side) for state, side in ((old, before), (new, after))]
    comparison = next(view for view in views if view is not None).resolver.compare(*views, sample=sample, most_rows=most_rows)
    return DatasetDifference(path, record.format, "added" if before is None else "removed" if after is None else "changed", comparison)
