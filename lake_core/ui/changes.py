"""What changed between two commits, kept in memory: it never changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.lake.publish.comparison import changed_paths, compare_dataset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.lake.publish.comparison import ChangedDataset, ChangedKey
    from lake_core.ui.visit import Revision, Visit

SAMPLE_ROWS = 1_000_000


def dataset_change(visit: Visit, before: str, after: str, path: str, most_rows: int) -> ChangedDataset | None:
    """Compare a dataset in two refs."""
    return revisions_change(visit, visit.revision(before), visit.revision(after), path, most_rows)


def revisions_change(visit: Visit, old: Revision, new: Revision, path: str, most_rows: int) -> ChangedDataset | None:
    """Compare a dataset in two revisions. Rows are compared if at most `most_rows` would be read."""
    return visit.site.changes.get(
        (old.tree, new.tree, path, most_rows),
        lambda: compare_dataset(old.state, new.state, path, sample=0, most_rows=most_rows),
    )


def changed_between(visit: Visit, old: Revision, new: Revision) -> tuple[Sequence[str], Sequence[ChangedKey]]:
    """Return the datasets that may differ between two revisions, and the plain files that do."""
    return visit.site.changes.get((old.tree, new.tree), lambda: changed_paths(old.state, new.state))
