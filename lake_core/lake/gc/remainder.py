"""Remainders: the objects that a tree reaches and another tree, its successor, does not.

A remainder depends only on the ids of the two trees, which are hashes of their content. So it can be stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lake_core.clock import system_clock
from lake_core.dataset import AtLeast, KeyClass, Sizes, dataset_format, sizes_of
from lake_core.graveler import Entry
from lake_core.lake.state.content import digest_of, part_of
from lake_core.lake.state.dataset_record import DATASETS, dataset_above
from lake_core.lake.state.state_store import StateStore
from lake_core.lake.state.state_tree import StateTree
from lake_core.lake.state.version_search import last_version
from lake_core.lake.state.view import View

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lake_core.graveler import Graveler, Record
    from lake_core.lake.repository import Repository
    from lake_core.lake.state.content import ContentStore
    from lake_core.lake.state.dataset_record import DatasetRecord
    from lake_core.lake.state.dataset_view import DatasetView
    from lake_core.store import ObjectStore

_CACHED_STATES = 8


@dataclass(frozen=True, slots=True)
class DatasetRemainder:
    """The UNIQUE objects that a dataset of a tree reaches and that of the successor does not."""

    format: str
    objects: Mapping[str, int | None]
    """Sizes as the dataset records them, by key below the lake's root."""


@dataclass(frozen=True, slots=True)
class Remainder:
    """The objects that a tree reaches and its successor does not, as keys below the lake's root."""

    keys: Mapping[str, int | None] = field(default_factory=dict)
    """Its metarange, ranges and content, with the sizes that the tree records."""
    entries: Sequence[Entry] = ()
    """Entries of objects that the lake did not write: imported ones, and those outside of the lake."""
    datasets: Mapping[str, DatasetRemainder] = field(default_factory=dict)
    """Those of the datasets that differ, by path."""


@dataclass(frozen=True, slots=True)
class Trees:
    """The trees of a lake, and the objects that they name. Picklable if the lake's store is."""

    root: ObjectStore
    graveler: Graveler
    content: ContentStore

    @classmethod
    def of(cls, repository: Repository) -> Trees:
        """Return the trees of an open lake."""
        return cls(repository.root, repository.graveler, repository.content.detached())

    def state(self, tree: str) -> StateStore:
        """Return a tree as a store."""
        view = View(self.graveler, tree)
        # Nothing that is compared depends on the time.
        return StateStore(StateTree(self.root, view, system_clock, name=f"tree {tree[:12]}", content=self.content))


class RemainderReader:
    """Computes the remainders of a lake's trees. Safe to use from many threads, and picklable like the trees."""

    def __init__(self, trees: Trees) -> None:
        self._trees = trees
        self._states: dict[str, StateStore] = {}
        self._registered: dict[str, dict[str, DatasetRecord]] = {}
        self._heads: dict[tuple[str, str], int] = {}
        """The versions of datasets by tree and path, of the trees in `_states`."""
        self._versions: dict[tuple[str, str], int] = {}
        """The version of each dataset that was found last, by path and format. The next one is probably close to it."""

    def remainder(self, tree: str, successor: str, is_step: bool) -> Remainder:
        """Compare two trees.

        `is_step` says that the trees are those of consecutive commits. Then the remainder includes objects that only
        versions of a dataset between the two reach, because plain readers may have opened these versions. Otherwise
        it leaves them out, because their commits are not kept.

        Raises the error of a tree or a dataset that cannot be read.
        """
        graveler, addresses = self._trees.graveler, self._trees.content.addresses
        keys: Sizes = dict.fromkeys(
            sorted(f"{graveler.reader.folder}/{id}" for id in graveler.names(tree) - graveler.names(successor))
        )
        entries: list[Entry] = []
        differences = [
            (each.key.decode(), each.before, each.after) for each in graveler.diff(tree, successor, exact=True)
        ]
        if not any(name.startswith(DATASETS) for name, _, _ in differences):
            self._registered[tree] = self._datasets(successor)
        state, registered = self._state(tree), self._datasets(tree)
        changed: set[str] = set()
        forked: set[str] = set()
        """The datasets whose logs do not continue in the successor, which lacks log entries or has other ones."""
        for name, before, after in differences:
            owner = dataset_above(name, registered)
            if name.startswith(DATASETS):
                changed.add(name.removeprefix(DATASETS))
            elif owner is not None:
                changed.add(owner.path)
                if before is not None and _is_log_key(owner, name) and not _has_same_content(before, after):
                    forked.add(owner.path)
            if before is not None:
                entry = Entry.decode(before.value)
                key = addresses.key(entry)
                if key is None or (key and digest_of(key) is None):
                    entries.append(entry)
                else:
                    keys[key] = stored_size(entry)
        keys.pop("", None)
        datasets = {}
        for path in sorted(changed & registered.keys()):
            record = registered[path]
            superseded = self._superseded(state.folder_of(record), tree, successor, is_step, path in forked)
            if superseded:
                sizes = {f"{path}/{key}": size for key, size in superseded.items()}
                datasets[path] = DatasetRemainder(record.format, sizes)
        return Remainder(keys, entries, datasets)

    def _state(self, tree: str) -> StateStore:
        state = self._states.get(tree)
        if state is None:
            if len(self._states) >= _CACHED_STATES:
                self._states, self._registered, self._heads = {}, {}, {}
            state = self._states[tree] = self._trees.state(tree)
        return state

    def _datasets(self, tree: str) -> dict[str, DatasetRecord]:
        """Return the datasets that a tree registers. Neighboring trees mostly register the same."""
        registered = self._registered.get(tree)
        if registered is None:
            registered = self._registered[tree] = self._state(tree).registered()
        return registered

    def _head(self, view: DatasetView, tree: str, hint: int | None) -> int | None:
        """Return the version of a dataset of a tree. That of a successor was mostly found for the pair before."""
        place = tree, view.record.path
        version = self._heads.get(place)
        if version is None and (version := log_head(view, hint)) is not None:
            self._heads[place] = version
        return version

    def _superseded(self, view: DatasetView, tree: str, successor: str, is_step: bool, is_forked: bool) -> Sizes:
        """List the UNIQUE keys that a dataset reaches, and that the same dataset of another tree does not."""
        path, rules = view.record.path, view.format
        record = self._datasets(successor).get(path)
        later = None if record is None else self._state(successor).folder_of(record)
        version = self._head(view, tree, self._versions.get((path, view.record.format)))
        if version is None:
            return self._superseded_pointers(view, later)
        self._versions[path, view.record.format] = version
        if later is None or log_entry(view, version) != log_entry(later, version):
            return sizes_of(rules.reachable(view, version))
        if is_forked:
            return sizes_of(rules.superseded(later, version)) | sizes_of(rules.reachable(view, version))
        newest = self._head(later, successor, version)
        if newest == version:
            return {}
        superseded = sizes_of(rules.superseded(later, version))
        if is_step or newest == version + 1:
            return superseded
        reached = sizes_of(rules.reachable(view, version)) if superseded else {}
        return {key: size for key, size in reached.items() if key in superseded}

    def _superseded_pointers(self, view: DatasetView, later: DatasetView | None) -> Sizes:
        if not view.format.exists(view) or (later is not None and pointers(view) == pointers(later)):
            return {}
        keys = sizes_of(view.format.reachable(view, None))
        if later is not None and later.format.exists(later):
            for key in later.format.reachable(later, None):
                keys.pop(key, None)
        return keys

    def __reduce__(self) -> tuple[type[RemainderReader], tuple[Trees]]:
        return RemainderReader, (self._trees,)


def stored_size(entry: Entry) -> int:
    """Return the size of the object that has an entry's content. The content may be only a part of the object."""
    part = part_of(entry)
    return entry.size if part is None else AtLeast(part[1])


def _is_log_key(record: DatasetRecord, name: str) -> bool:
    return dataset_format(record.format).key_class(name.removeprefix(f"{record.path}/")) is KeyClass.LOG


def _has_same_content(record: Record, other: Record | None) -> bool:
    return other is not None and Entry.decode(record.value).etag == Entry.decode(other.value).etag


def log_entry(view: DatasetView, version: int) -> tuple[str | None, ...]:
    """Return the identity of a version's log entry."""
    items = [view.item(key) for key in view.format.log_keys(view, version)]
    return tuple(None if item is None else item.entry.etag for item in items)


def pointers(view: DatasetView) -> tuple[str, ...]:
    """Return the identity of a state of a dataset without versions: its path, and the etags of its pointers."""
    return (view.record.path, *(view.head(key).etag for key in view.format.pointer_keys(view)))


def log_head(view: DatasetView, hint: int | None) -> int | None:
    """Find a dataset's version by looking up log keys near a guess.

    Return None for a log without entries, and for a format without a log.
    """

    def exists(version: int) -> bool:
        return all(view.item(key) is not None for key in view.format.log_keys(view, version))

    if hint is None:
        version = view.format.version(view)
        return version if version is not None and view.format.log_keys(view, version) else None
    version = last_version(exists, hint)
    return view.format.version(view) if version is None else version  # the first entries may have been cleaned up
