"""The trees of a lake's commits as an export has them: plain files, and the logs and live data files of datasets.

An entry of a data file depends on the lake's contents alone: it has no etag and no time of a store.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING

from lake_core import runtime
from lake_core.errors import NotFound
from lake_core.graveler import Entry
from lake_core.lake.errors import ContentMissing
from lake_core.lake.state.content import Item
from lake_core.lake.state.dataset_record import DATASETS, dataset_above
from lake_core.lake.state.view import RESERVED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from lake_core.graveler import Commit, Record
    from lake_core.lake.repository import Repository
    from lake_core.lake.state.content import ContentStore
    from lake_core.lake.state.state_store import StateStore
    from lake_core.store import ObjectMeta

_RESERVED = tuple(prefix.encode() for prefix in RESERVED)
_HEADS = 8
"""The number of data files that are asked for at the same time."""
_CACHED = 64
"""The number of datasets' states whose files are remembered: a commit is compared with its parent."""


@dataclass(frozen=True, slots=True)
class EntryReader:
    """Reads the objects of a lake's entries. Picklable if the lake's store is."""

    content: ContentStore

    def __call__(self, entry: Entry, start: int, end: int) -> bytes:
        """Return the bytes [start, end) of an entry's object. Raises ContentMissing, ContentChanged."""
        return self.content.get(Item(entry), start, end)


class ExportedTrees:
    """The exported trees of a lake's commits. Each data file is asked for once."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self.read = EntryReader(repository.content.detached())
        self._sizes: dict[str, int] = {}
        self._files = lru_cache(maxsize=_CACHED)(self._read_files)
        self._states = lru_cache(maxsize=2)(lambda tree: repository.state(tree, f"the tree {tree[:12]}"))

    def records(self, commit: Commit) -> Iterator[Record]:
        """Yield the records of a commit's whole tree, by key."""
        state = self._states(commit.metarange_id)
        files = sorted({key for path in state.datasets() for key in self._files(commit.metarange_id, path)})
        excluded = (*_RESERVED, *_dropped(state))
        taken = {key.encode() for key in files}
        plain = (
            record
            for record in state.view.graveler.scan(commit.metarange_id)
            if not record.key.startswith(excluded) and record.key not in taken
        )
        return heapq.merge(plain, self._file_records(state, files), key=lambda record: record.key)

    def differences(self, before: Commit, after: Commit) -> Iterator[tuple[bytes, Record | None]]:
        """Yield the keys at which the trees of two commits differ, with the second one's records, by key."""
        old, new = self._states(before.metarange_id), self._states(after.metarange_id)
        graveler = new.view.graveler
        hidden_before, hidden_after = _dropped(old), _dropped(new)
        excluded = (*_RESERVED, *hidden_before, *hidden_after)
        changed: dict[bytes, Record | None] = {}
        # A log that is hidden on one side only appears or disappears as a whole.
        for prefix in hidden_after - hidden_before:
            changed |= dict.fromkeys(record.key for record in graveler.scan(before.metarange_id, prefix))
        for prefix in hidden_before - hidden_after:
            changed |= {record.key: record for record in graveler.scan(after.metarange_id, prefix)}
        added: set[str] = set()
        removed: set[str] = set()
        for path in _touched(old, new):
            files_before = self._files(before.metarange_id, path) if path in old.datasets() else frozenset()
            files_after = self._files(after.metarange_id, path) if path in new.datasets() else frozenset()
            added |= files_after - files_before
            removed |= files_before - files_after
        gone = [key.encode() for key in removed - added]
        in_tree = graveler.get_many(after.metarange_id, gone)
        changed |= {key: None for key, record in zip(gone, in_tree, strict=True) if record is None}
        changed |= {record.key: record for record in self._file_records(new, sorted(added))}
        plain = (
            (difference.key, difference.after)
            for difference in graveler.diff(before.metarange_id, after.metarange_id, exact=True)
            if not difference.key.startswith(excluded) and difference.key not in changed
        )
        return heapq.merge(plain, sorted(changed.items(), key=lambda change: change[0]), key=lambda change: change[0])

    def _read_files(self, tree: str, path: str) -> frozenset[str]:
        """Return the keys of a dataset's live data files."""
        state = self._states(tree)
        view = state.folder_of(state.datasets()[path])
        return frozenset(f"{path}/{inner}" for inner in view.format.reachable(view, None))

    def _file_records(self, state: StateStore, keys: Collection[str]) -> Iterator[Record]:
        """Yield the records of data files. Keys are unique, and objects immutable: the key stands for the content."""
        datasets = state.datasets()
        missing = [key for key in keys if key not in self._sizes]
        for key, meta in zip(missing, runtime.map_ahead(self._head, missing, _HEADS), strict=True):
            self._sizes[key] = meta.size
        for key in keys:
            dataset = dataset_above(key, datasets)
            name = key if dataset is None else f"{dataset.id}{key[len(dataset.path) :]}"
            yield Entry(key, self._sizes[key], sha256(name.encode()).hexdigest()).record(key.encode())

    def _head(self, key: str) -> ObjectMeta:
        try:
            return self._repository.root.head(key)
        except NotFound:
            raise ContentMissing(
                f"{key} is missing, though a commit refers to it: restore it from a backup, or, if its retention has "
                "ended, export without history"
            ) from None


def _dropped(state: StateStore) -> set[bytes]:
    """Return the folders of datasets that were dropped: their logs stay in the tree, but are not part of the state."""
    return {f"{path}/".encode() for path, record in state.registered().items() if record.dropped}


def _touched(before: StateStore, after: StateStore) -> Iterable[str]:
    """Return the paths of the datasets whose log, pointers or registration differ."""
    registered = {**before.registered(), **after.registered()}
    touched: set[str] = set()
    for difference in after.view.graveler.diff(before.view.tree, after.view.tree):
        key = difference.key.decode()
        if key.startswith(DATASETS):
            touched.add(key[len(DATASETS) :])
        elif (record := dataset_above(key, registered)) is not None:
            touched.add(record.path)
    return touched
