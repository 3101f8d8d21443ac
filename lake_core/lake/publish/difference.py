"""The difference between two states of a lake: which keys changed, and which datasets they are part of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from lake_core.lake.state.content import Item, is_same, item_of
from lake_core.lake.state.dataset_record import DATASETS, DatasetRecord, dataset_above
from lake_core.lake.state.view import View

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from lake_core.lake.state.state_store import StateStore

ItemChange: TypeAlias = tuple[Item | None, Item | None]
"""What a key has before and after."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The keys that differ between two states, by what they are part of."""

    formats: Mapping[str, str]
    """The formats of the datasets that changed, by path."""
    plain: Mapping[str, ItemChange]
    """The plain files that changed."""
    replaced: Mapping[str, ItemChange]
    """The plain files that a dataset has replaced, as deleted."""
    hidden: Sequence[str]
    """The paths of datasets where plain files have come, which the datasets would hide."""

    @classmethod
    def between(
        cls, base: StateStore, incoming: StateStore, *, on_top: bool = False, without: Collection[str] = ()
    ) -> Difference:
        """Return the difference between two states, but for the datasets and plain files `without`.

        With `on_top`, it is only what was changed on top of the tree of `incoming`.
        """
        before, after = base.registered(), incoming.registered()
        registered = {**before, **after}
        changes = _overlaid(incoming.view, incoming.view.tree) if on_top else changes_between(base, incoming)
        formats: dict[str, str] = {}
        plain: dict[str, ItemChange] = {}
        replaced: dict[str, ItemChange] = {}
        hidden: set[str] = set()
        for key, (old, new) in changes:
            path = dataset_of(key, registered)
            if path is None:
                plain[key] = old, new
                continue
            formats[path] = registered[path].format
            earlier, later = dataset_of(key, before), dataset_of(key, after)
            if earlier is None and old is not None:
                replaced[key] = old, None
            if later is None and earlier is not None and new is not None:
                hidden.add(earlier)
        for path in after.keys() - before.keys():
            # A log entry of the new dataset may have the key and the content of a plain file. Below a dropped one,
            # there may be datasets.
            inside = ((key, item) for key, item in base.view.list(f"{path}/") if dataset_of(key, registered) == path)
            replaced |= {key: (item, None) for key, item in inside}
        for name in without:
            formats.pop(name, None)
            plain.pop(name, None)
        return cls(formats, plain, replaced, sorted(hidden))


def datasets_differ(base: StateStore, incoming: StateStore) -> bool:
    """Return whether the trees, without the changes on top of them, differ in a key of a dataset."""
    paths = {**base.registered(), **incoming.registered()}
    graveler = base.view.graveler
    prefixes = [DATASETS, *(f"{path}/" for path in paths)]
    return any(
        next(graveler.diff(base.view.tree, incoming.view.tree, prefix.encode()), None) is not None
        for prefix in prefixes
    )


def changes_between(base: StateStore, incoming: StateStore) -> Iterator[tuple[str, ItemChange]]:
    """Yield the keys that differ between two states, with their items before and after."""
    before, after = base.view, incoming.view
    yield from _overlaid(after, before.tree)
    if before.tree != after.tree:
        for difference in before.graveler.diff(before.tree, after.tree):
            key = difference.key.decode()
            if key not in after.overlay.items:
                old, new = difference.before, difference.after
                yield key, (None if old is None else item_of(old), None if new is None else item_of(new))


def _overlaid(view: View, tree: str) -> Iterator[tuple[str, ItemChange]]:
    """Yield the keys that are changed on top of a view's tree and differ from another tree."""
    keys = view.overlay.under("")
    for key, old in zip(keys, View(view.graveler, tree).get_many(keys), strict=True):
        new = view.overlay.items[key]
        if not is_same(old, new):
            yield key, (old, new)


def dataset_of(key: str, registered: Mapping[str, DatasetRecord]) -> str | None:
    """Return the dataset that a key of the tree is part of."""
    if key.startswith(DATASETS):
        return key[len(DATASETS) :]
    above = dataset_above(key, registered)
    return None if above is None else above.path


def belongs_to_dataset(key: str, state: StateStore) -> bool:
    """Return whether a plain file cannot be at a key: a dataset is there, or around it, be it a dropped one.

    The folder of a dropped dataset keeps its log, and no state shows plain files in it.
    """
    return key in state.datasets() or dataset_above(key, state.registered()) is not None


def overlap(reads: Sequence[str], base: StateStore, target: StateStore) -> Iterator[str]:
    """Yield the keys that were read and that differ between two states."""
    whole = {read for read in reads if not read.endswith("*")}
    prefixes = tuple(read[:-1] for read in reads if read.endswith("*"))
    for key, _ in changes_between(base, target):
        if key in whole or key.startswith(prefixes):
            yield key
