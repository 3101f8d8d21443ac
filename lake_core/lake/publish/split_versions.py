"""A session's changes of a dataset, applied version by version where some of its writes are there already.

A publish makes one version of what a session wrote. If the target has one of these writes, by its transaction
identifier, and not the others, the whole conflicts. The versions within the session tell them apart.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lake_core.dataset import SKIPPED, DatasetConflict
from lake_core.lake.publish.apply_dataset import AppliedDataset
from lake_core.lake.publish.tree_update import DatasetUpdate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake_core.lake.publish.apply_dataset import DatasetApplication
    from lake_core.lake.state.content import Item
    from lake_core.lake.state.state_store import StateStore


def apply_versions(
    application: DatasetApplication, path: str, format: str, conflict: DatasetConflict
) -> AppliedDataset | None:
    """Apply the changes of a dataset version by version. Return None if there is nothing to change.

    Raises the conflict of the whole if its versions cannot be told apart, or if one of them conflicts, too.
    """
    states = list(_versions(application, path))
    if conflict.kind != "ConcurrentTransaction" or len(states) < 2:
        raise conflict
    target = application.target
    recorded: list[tuple[str, int]] = []
    try:
        for before, after in zip([application.base, *states], states, strict=False):
            step = replace(application, base=before, incoming=after, target=target).run(path, format)
            if step is not None:
                recorded += step.recorded
                target = target.changed(step.items)
        whole = replace(application, base=application.target, incoming=target, by_writes=True).run(path, format)
    except DatasetConflict:
        raise conflict from None
    if whole is None and recorded:
        whole = AppliedDataset(DatasetUpdate(format, None, SKIPPED))
    return whole if whole is None else replace(whole, recorded=tuple(recorded))


def _versions(application: DatasetApplication, path: str) -> Iterator[StateStore]:
    """Yield the states of the incoming side after each version of a dataset that its base does not have."""
    base, incoming = application.base.datasets().get(path), application.incoming.datasets().get(path)
    if base is None or incoming is None:
        return
    view = application.incoming.folder_of(incoming)
    first, last = (view.format.version(each) for each in (application.base.folder_of(base), view))
    if first is None or last is None:
        return
    for version in range(first + 1, last):
        later: dict[str, Item | None] = {
            f"{path}/{key}": None for newer in range(version + 1, last + 1) for key in view.format.log_keys(view, newer)
        }
        yield application.incoming.changed(later)
    if last > first:
        yield application.incoming
