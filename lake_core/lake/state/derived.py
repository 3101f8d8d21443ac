"""Where the derived objects of a dataset's state are, such as the checkpoints of a table.

Those of the checked-out branch are in the dataset's folder, where every reader finds them. Those of other states are
beside the datasets, in a folder that is named by the content of the log entry that they were derived from. So a state
uses only what was derived from its own log, although other branches have other entries under the same keys. No tree
names derived objects: they are never merged, and may be deleted at any time.
"""

from __future__ import annotations

from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from lake_core.dataset import DatasetFormat, KeyClass
from lake_core.errors import NotFound
from lake_core.lake.state.content import digest_of
from lake_core.store import FolderStore, ObjectMeta, ObjectStore

if TYPE_CHECKING:
    from lake_core.lake.state.dataset_record import DatasetRecord
    from lake_core.lake.state.state_tree import StateTree

DERIVED = "_lake/derived"
"""The folder of derived objects: `<SHA-256 of the dataset's id>/<SHA-256 of the log entry>/<key in the dataset>`."""
_NEWEST = 3
"""How many log entries' derived objects are listed, the newest: a reader that finds those of one incomplete or damaged
has others."""
_FEW = 10
"""If a dataset has at most so many keys after the newest derived object in its folder, no others are looked for."""

Groups: TypeAlias = dict[str, list[tuple[str, ObjectMeta, ObjectStore]]]
"""Derived objects by the log entries that they were derived from: key in the dataset, metadata, and store."""


def derived_folder(record: DatasetRecord) -> str:
    """Return the folder with the derived objects of a dataset's states, except for those in the dataset's folder."""
    return f"{DERIVED}/{sha256(record.id.encode()).hexdigest()}"


class DerivedObjects:
    """The derived objects that belong to one state of a dataset."""

    def __init__(self, tree: StateTree, record: DatasetRecord, format: DatasetFormat, data_root: ObjectStore) -> None:
        self._tree, self._format, self._data_root = tree, format, data_root
        self._prefix = f"{record.path}/"
        self._folder = derived_folder(record)
        self._beside = FolderStore(tree.root, self._folder)
        # The content of an entry decides, so that the answers hold whatever else a session writes.
        self._stores: dict[tuple[str, str], ObjectStore] = {}
        self._checked_out: dict[tuple[str, str], bool] = {}

    def newest(self, prefix: str) -> dict[str, tuple[ObjectMeta, ObjectStore]]:
        """Return the newest derived objects of this state whose keys start with a prefix. Older ones are not needed."""
        folder = self._format.derived_prefix
        if not folder or not (prefix.startswith(folder) or folder.startswith(prefix)):
            return {}
        inner = max(prefix, folder, key=len)
        groups = self._checked_out_groups(inner)
        newest = max(groups, default="")
        if self._has_many_after(newest):
            groups |= {source: group for source, group in self._groups_beside().items() if source > newest}
        objects = {}
        for source in sorted(groups)[-_NEWEST:]:
            for key, meta, store in groups[source]:
                if key.startswith(inner):
                    self._stores[key, self._content(source) or ""] = store
                    objects[key] = (meta, store)
        return objects

    def needed(self) -> set[str]:
        """Return the keys, in the lake, of the newest objects beside the datasets that belong to this state."""
        groups = self._groups_beside()
        return {f"{self._folder}/{meta.key}" for source in sorted(groups)[-_NEWEST:] for _, meta, _ in groups[source]}

    def store_of(self, key: str) -> ObjectStore:
        """Return the store that has a derived object of this state under its key. Raises NotFound."""
        source = self._format.derived_from(key)
        if source == "":
            return self._data_root  # reached only through another derived object
        content = None if source is None else self._content(source)
        if source is not None and content is not None:
            known = self._stores.get((key, content))
            if known is not None:
                return known
            checked_out = [self._data_root] if self.is_checked_out(source) else []
            for store in (*checked_out, FolderStore(self._beside, content)):
                if store.exists(key):
                    self._stores[key, content] = store
                    return store
        raise NotFound(f"{self._prefix}{key} does not belong to {self._tree.name}", key=key)

    def store_for(self, source: str) -> ObjectStore | None:
        """Return the store for new objects beside the datasets that are derived from a log entry of this state.

        None for an entry of an imported log, which is not named by its content.
        """
        content = self._content(source)
        return None if content is None else FolderStore(self._beside, content)

    def _checked_out_groups(self, folder: str) -> Groups:
        """Return the newest objects in the dataset's folder that belong to this state."""
        groups: Groups = {}
        for meta in self._data_root.list(folder):
            source = self._source(meta.key)
            if source and self._content(source) is not None:
                groups.setdefault(source, []).append((meta.key, meta, self._data_root))
        sources = sorted(groups)
        own = self._count_own(sources)
        return {source: groups[source] for source in sources[max(0, own - _NEWEST) : own]}

    def _count_own(self, sources: list[str]) -> int:
        """Return how many of these log entries, ascending, are the same in the checked-out log and in this state.

        The two logs are equal up to some entry, and differ in all later ones.
        """
        if not sources or self.is_checked_out(sources[-1]):
            return len(sources)
        low, high = 0, len(sources) - 1
        while low < high:
            middle = (low + high) // 2
            if self.is_checked_out(sources[middle]):
                low = middle + 1
            else:
                high = middle
        return low

    def _groups_beside(self) -> Groups:
        """Return all objects beside the datasets that belong to this state."""
        groups: Groups = {}
        for meta in self._beside.list():
            content, _, key = meta.key.partition("/")
            source = self._source(key)
            if source and self._content(source) == content:
                groups.setdefault(source, []).append((key, meta, FolderStore(self._beside, content)))
        return groups

    def _source(self, key: str) -> str | None:
        return self._format.derived_from(key) if self._format.key_class(key) is KeyClass.DERIVED else None

    def _has_many_after(self, source: str) -> bool:
        """Return whether this state has more than a few keys of the dataset after a log entry."""
        later = self._tree.view.list(self._prefix, f"{self._prefix}{source}" if source else "")
        return next(islice(later, _FEW, None), None) is not None

    def _content(self, source: str) -> str | None:
        """Return the SHA-256 of a log entry of this state; None without one, or if it is not stored by content."""
        item = self._tree.view.get(f"{self._prefix}{source}")
        return None if item is None else digest_of(item.entry.address)

    def is_checked_out(self, source: str) -> bool:
        """Return whether a log entry of this state is also in the checked-out log, with the same content."""
        content = self._content(source)
        if content is None:
            return False
        known = self._checked_out.get((source, content))
        if known is None:
            try:
                known = sha256(self._data_root.get(source)).hexdigest() == content
            except NotFound:
                known = False
            if known:  # the checked-out log only grows, so this stays so
                self._checked_out[source, content] = True
        return known
