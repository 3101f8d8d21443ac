"""A state of the lake (a commit, a branch, a session) as an object store, and its datasets as the stores that formats run on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

from lake_core.dataset import DatasetStore, KeyClass, Resolver, resolver
from lake_core.errors import AlreadyExists, InvalidKey, NotFound, PreconditionFailed
from lake_core.lake.content import ContentStore, Item, as_object, new_item
from lake_core.lake.errors import DatasetNotFound, ReadOnly
from lake_core.lake.view import RESERVED, DatasetRecord, View, dataset_above, dataset_path, read_datasets
from lake_core.store import FolderStore, ObjectBytes, ObjectMeta, ObjectStore
from lake_core.store.folder import renamed
from lake_core.store.object_store import Bytes

Clock = Callable[[], datetime]
"""Tells the time, with a zone."""
_LAST = "\U0010ffff" * 256
"""Sorts behind all that can follow a slash in a key."""


class StateStore(ObjectStore):
    """A state of the lake: plain files and datasets at their natural keys. Reads only; `Session` writes.

    What stands in the tree is read by content. A dataset's unique objects (data files, chunks) are read where they stand in place,
    which is the same for all states.
    """

    def __init__(self, root: ObjectStore, view: View, clock: Clock, *, name: str) -> None:
        self._root, self._view, self._clock, self._name = root, view, clock, name
        self._content = ContentStore(root)
        self._datasets: dict[str, DatasetRecord] | None = None
        self._guard = threading.RLock()

    @property
    def name(self) -> str:
        """What the state calls itself: a ref, a commit, a session."""
        return self._name

    @property
    def view(self) -> View:
        """The tree, and what is changed on top of it."""
        return self._view

    @property
    def root(self) -> ObjectStore:
        """The lake's own root."""
        return self._root

    @property
    def content(self) -> ContentStore:
        """The content-addressed objects that its tree names."""
        return self._content

    @property
    def clock(self) -> Clock:
        return self._clock

    def datasets(self) -> dict[str, DatasetRecord]:
        """The datasets of this state, by path."""
        return {path: record for path, record in self.registered().items() if not record.dropped}

    def registered(self) -> dict[str, DatasetRecord]:
        """The datasets that were ever created in this state's past, dropped ones too."""
        with self._guard:
            if self._datasets is None:
                self._datasets = read_datasets(self._view)
            return self._datasets

    def dataset(self, path: str, format: str | None = None) -> DatasetView:
        """A dataset's folder as the store that its format runs on. Raises DatasetNotFound."""
        record = self.datasets().get(dataset_path(path))
        if record is None or (format is not None and record.format != format):
            what = "dataset" if format is None else f"{format} dataset"
            there = ", ".join(sorted(self.datasets())) or "none"
            raise DatasetNotFound(f"no {what} at {path!r} in {self._name}; there are {there}")
        return self.folder_of(record)

    def folder_of(self, record: DatasetRecord) -> DatasetView:
        """The store of a dataset that is registered here."""
        return DatasetView(self, record)

    def open(self, path: str, format: str | None = None, **options: Any) -> Any:
        """A dataset's handle as its format has it, such as a `DeltaTable`. Raises DatasetNotFound and what the format raises."""
        found = self.dataset(path, format)
        return found.resolver.open(found, clock=self._clock, **options)

    def delta(self, path: str, **options: Any) -> Any:
        """A Delta table of this state, as a `lake_core.delta.DeltaTable`. `options` are those of its `open`."""
        return self.open(path, "delta", **options)

    def filesystem(self) -> Any:
        """The state for libraries that take an fsspec file system: a `LakeFileSystem` whose paths are this store's keys."""
        from lake_core.lake.filesystem import LakeFileSystem  # which looks at all of a lake

        return LakeFileSystem(state=self)

    def url(self, key: str = "") -> str:
        return self._root.url(key)

    @property
    def storage_options(self) -> dict[str, object]:
        return self._root.storage_options

    def _owner(self, key: str) -> tuple[DatasetView, str] | None:
        """The dataset that a key belongs to, and the key within it. Raises InvalidKey for the lake's own keys."""
        if key.startswith(RESERVED):
            raise InvalidKey(f"{key!r} belongs to the lake itself: {' and '.join(RESERVED)} are not for data", key=key)
        record = dataset_above(key, self.datasets())
        return None if record is None else (self.folder_of(record), key[len(record.path) + 1 :])

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        return self._get_many([(key, start, end)])[0]

    def _get_many(self, requests: Sequence[tuple[str, int | None, int | None]]) -> list[ObjectBytes]:
        found: dict[int, ObjectBytes] = {}
        inside: dict[str, tuple[DatasetView, list[int], list[tuple[str, int | None, int | None]]]] = {}
        plain: list[int] = []
        for place, (key, start, end) in enumerate(requests):
            owner = self._owner(key)
            if owner is None:
                self._read(key)
                plain.append(place)
            else:
                _, places, wanted = inside.setdefault(owner[0].record.path, (owner[0], [], []))
                places.append(place)
                wanted.append((owner[1], start, end))
        for path, (view, places, wanted) in inside.items():
            with renamed("", f"{path}/"):
                got = view.get_many(wanted)
            for place, data in zip(places, got, strict=True):
                meta = data.meta
                found[place] = ObjectBytes(data, ObjectMeta(requests[place][0], meta.size, meta.etag, meta.last_modified))
        found |= zip(plain, self.read_tree([requests[place] for place in plain]), strict=True)
        return [found[place] for place in range(len(requests))]

    def read_tree(self, requests: Sequence[tuple[str, int | None, int | None]]) -> list[ObjectBytes]:
        """Objects of the tree, by their keys in the lake. Raises NotFound, ContentMissing."""
        items = []
        for (key, _, _), item in zip(requests, self._view.get_many([key for key, _, _ in requests]), strict=True):
            if item is None:
                raise NotFound(f"no object stands at {key!r} in {self._name}", key=key)
            items.append(item)
        got = self._content.get_many([(item, start, end) for item, (_, start, end) in zip(items, requests, strict=True)])
        return [as_object(data, item, key) for data, item, (key, _, _) in zip(got, items, requests, strict=True)]

    def head_tree(self, key: str) -> ObjectMeta:
        """The metadata of an object of the tree. Raises NotFound."""
        item = self._view.get(key)
        if item is None:
            raise NotFound(f"no object stands at {key!r} in {self._name}", key=key)
        return item.meta(key)

    def _head(self, key: str) -> ObjectMeta:
        owner = self._owner(key)
        if owner is None:
            self._read(key)
            return self.head_tree(key)
        with renamed("", key[: -len(owner[1])]):
            meta = owner[0].head(owner[1])
        return ObjectMeta(key, meta.size, meta.etag, meta.last_modified)

    def _list(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        datasets = self.datasets()
        inside = dataset_above(f"{prefix}x", datasets)
        if inside is None:
            self._read(f"{prefix}*")
        else:
            yield from self.folder_of(inside).listed(prefix, start_after)
            return
        folders = sorted(f"{path}/" for path in datasets if f"{path}/".startswith(prefix))
        at = start_after
        for folder in folders:
            yield from self._plain(prefix, at, folder)
            yield from self.folder_of(datasets[folder[:-1]]).listed(folder, max(at, start_after))
            at = max(at, f"{folder}{_LAST}")
        yield from self._plain(prefix, at, None)

    def _plain(self, prefix: str, start_after: str, until: str | None) -> Iterator[ObjectMeta]:
        for key, item in self._view.list(prefix, start_after):
            if until is not None and key >= until:
                return
            if not key.startswith(RESERVED) and not self._hidden(key):
                yield item.meta(key)

    def _hidden(self, key: str) -> bool:
        """Whether a key is of a dropped dataset, whose log stays in the tree."""
        above = dataset_above(key, self.registered())
        return above is not None and above.dropped

    def _list_folders(self, prefix: str) -> list[str]:
        names: set[str] = set()
        at = ""
        while True:
            found = next(self._list(prefix, at), None)
            if found is None:
                return sorted(names, key=lambda name: f"{name}/")
            name, slash, _ = found.key[len(prefix) :].partition("/")
            if slash:
                names.add(name)
            at = f"{prefix}{name}/{_LAST}" if slash else found.key

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        raise self._refusal(key)

    def _delete(self, keys: Sequence[str]) -> None:
        raise self._refusal(next(iter(keys), ""))

    def _refusal(self, key: str) -> ReadOnly:
        return ReadOnly(f"{self._name} is only read: write {key!r} in a session, `with lake.session(branch) as s: s.put(…)`")

    def note_read(self, what: str) -> None:
        """Take note of a key, or a prefix and a `*`, that was read."""
        self._read(what)

    def _read(self, what: str) -> None:
        """Called with each key that is read, and with each listed prefix and a `*`."""

    def __getstate__(self) -> dict[str, Any]:
        if self._view.overlay:
            raise TypeError(f"{self._name} has changes that are nowhere but in this process: it cannot be pickled")
        return self.__dict__ | {"_view": (self._view.graveler, self._view.tree), "_guard": None, "_datasets": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _view=View(*state["_view"]), _guard=threading.RLock())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r} of {self._root.url()!r})"


class DatasetView(DatasetStore):
    """A dataset's folder in a state of the lake."""

    def __init__(self, state: StateStore, record: DatasetRecord) -> None:
        self._state, self._record = state, record
        self._prefix = f"{record.path}/"
        self._resolver = resolver(record.format)
        self._place = FolderStore(state.root, record.path)

    @property
    def record(self) -> DatasetRecord:
        return self._record

    @property
    def resolver(self) -> Resolver:
        return self._resolver

    @property
    def place(self) -> ObjectStore:
        return self._place

    @property
    def provisional(self) -> bool:
        return self._state.provisional if isinstance(self._state, WritableState) else False

    @property
    def base(self) -> ObjectStore | None:
        return self._state.base_of(self._record.path) if isinstance(self._state, WritableState) else self

    def note_read(self) -> None:
        self._state.note_read(f"{self._prefix}*")

    def end_retention(self, before: datetime) -> None:
        if not isinstance(self._state, WritableState):
            raise self._state._refusal(self._record.path)
        self._state.end_retention(self._record.path, before)

    def item(self, key: str) -> Item | None:
        """What the tree has at a key of the dataset."""
        return self._state.view.get(f"{self._prefix}{key}")

    def in_place(self, key: str) -> bool:
        """Whether a key's object stands at its natural place for all states, not in the tree."""
        match self._resolver.key_class(key):
            case None:
                raise InvalidKey(f"a {self._record.format} dataset has no place for {self._prefix}{key}", key=key)
            case KeyClass.UNIQUE:
                return True
            case KeyClass.DERIVED:
                # An imported log may begin with a checkpoint, which then stands in the tree like the log.
                return self._state.view.get(f"{self._prefix}{key}") is None
            case _:
                return False

    def _check_derived(self, key: str) -> None:
        if self._resolver.key_class(key) is KeyClass.DERIVED and not self._is_own(key):
            raise NotFound(f"{self._prefix}{key} is not of {self._state.name}", key=key)

    def _is_own(self, key: str) -> bool:
        """Whether a derived object in place is derived from this state's log: its log entry in place is the very one of this state."""
        source = self._resolver.derived_from(key)
        if not source:
            return source is not None
        own = self._state.view.get(f"{self._prefix}{source}")
        if own is None:
            return False
        try:
            return new_item(self._place.get(source), self._state.clock()).entry.etag == own.entry.etag
        except NotFound:
            return False

    def listed(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        """The dataset's objects under a prefix (keys of the lake): its log from the tree, the derived ones in place that are its own.

        Unique objects are not listed: other states' lie among them.
        """
        stored = ((key, item.meta(key)) for key, item in self._state.view.list(prefix, start_after))
        # They are of use to whoever reads the log from its start.
        derived = {} if start_after > prefix else {meta.key: meta for meta in self._derived(prefix)}
        pending = sorted(derived)
        for key, meta in stored:
            while pending and pending[0] < key:
                yield derived[pending.pop(0)]
            if pending and pending[0] == key:
                pending.pop(0)
            yield meta
        for key in pending:
            yield derived[key]

    def _derived(self, prefix: str) -> list[ObjectMeta]:
        """The newest derived objects in place that are of this state; older ones tell nothing more."""
        inner = prefix[len(self._prefix) :]
        groups: dict[str, list[ObjectMeta]] = {}
        folder = self._resolver.derived_prefix
        if not (inner.startswith(folder) or folder.startswith(inner)):
            return []
        for meta in self._place.list(max(inner, folder, key=len)):
            if self._resolver.key_class(meta.key) is KeyClass.DERIVED:
                source = self._resolver.derived_from(meta.key)
                if source:
                    groups.setdefault(source, []).append(meta)
        for source in sorted(groups, reverse=True):
            if self._is_own(groups[source][0].key):
                return [ObjectMeta(f"{self._prefix}{meta.key}", meta.size, meta.etag, meta.last_modified) for meta in groups[source]]
        return []

    def url(self, key: str = "") -> str:
        return self._place.url(key)

    @property
    def storage_options(self) -> dict[str, object]:
        return self._place.storage_options

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        return self._get_many([(key, start, end)])[0]

    def _get_many(self, requests: Sequence[tuple[str, int | None, int | None]]) -> list[ObjectBytes]:
        found: dict[int, ObjectBytes] = {}
        in_place = [place for place, (key, _, _) in enumerate(requests) if self.in_place(key)]
        for place in in_place:
            self._check_derived(requests[place][0])
        found |= zip(in_place, self._place.get_many([requests[place] for place in in_place]), strict=True)
        rest = [place for place in range(len(requests)) if place not in found]
        wanted = [(self._prefix + key, start, end) for key, start, end in (requests[place] for place in rest)]
        with renamed(self._prefix, ""):
            found |= zip(rest, (self._own(data) for data in self._state.read_tree(wanted)), strict=True)
        return [found[place] for place in range(len(requests))]

    def _head(self, key: str) -> ObjectMeta:
        if self.in_place(key):
            self._check_derived(key)
            return self._place.head(key)
        with renamed(self._prefix, ""):
            return self._named(self._state.head_tree(self._prefix + key))

    def _list(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        after = self._prefix + start_after if start_after else ""
        return (self._named(meta) for meta in self.listed(self._prefix + prefix, after))

    def _list_folders(self, prefix: str) -> list[str]:
        names = (meta.key[len(prefix) :].partition("/") for meta in self._list(prefix, ""))
        return list(dict.fromkeys(name for name, slash, _ in names if slash))

    def _own(self, data: ObjectBytes) -> ObjectBytes:
        return ObjectBytes(data, self._named(data.meta))

    def _named(self, meta: ObjectMeta) -> ObjectMeta:
        return ObjectMeta(meta.key[len(self._prefix) :], meta.size, meta.etag, meta.last_modified)

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        with renamed(self._prefix, ""):
            return self._named(self._state.put(self._prefix + key, data, if_absent=if_absent, if_match=if_match, unique=unique))

    def _delete(self, keys: Sequence[str]) -> None:
        with renamed(self._prefix, ""):
            self._state.delete([self._prefix + key for key in keys])

    def __reduce__(self) -> tuple[Any, ...]:
        return DatasetView, (self._state, self._record)


class WritableState(StateStore):
    """A state that takes writes: what formats ask of a session (`DatasetStore`)."""

    @property
    def provisional(self) -> bool:
        return True

    def base_of(self, path: str) -> ObjectStore | None:
        """A dataset as the session found it."""
        raise NotImplementedError

    def end_retention(self, path: str, before: datetime) -> None:
        """See `DatasetStore.end_retention`."""
        raise NotImplementedError

    def _check_conditions(self, key: str, if_absent: bool, if_match: str | None) -> None:
        if not if_absent and if_match is None:
            return
        old = self._view.get(key)
        if if_absent and old is not None:
            raise AlreadyExists(f"an object stands at {key!r} in {self.name} already", key=key)
        if if_match is not None and (old is None or old.entry.etag != if_match):
            raise PreconditionFailed(f"the object at {key!r} in {self.name} is not the one to replace", key=key)
