"""A state of the lake (a commit, a branch, a session) as an object store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lake_core.errors import InvalidKey
from lake_core.lake.errors import DatasetNotFound
from lake_core.lake.state.dataset_record import DatasetRecord, dataset_above, dataset_path
from lake_core.lake.state.dataset_view import DatasetView
from lake_core.lake.state.state_tree import StateTree
from lake_core.lake.state.view import RESERVED, View
from lake_core.store import ObjectBytes, ObjectMeta, ObjectStore
from lake_core.store.folder import renamed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from fsspec import AbstractFileSystem

    from lake_core.clock import AwareClock
    from lake_core.delta import DeltaTable
    from lake_core.icechunk import DatasetRepository
    from lake_core.lake.state.content import ContentStore, Item
    from lake_core.pool import Pool
    from lake_core.store.object_store import Bytes

_LAST = "\U0010ffff" * 256
"""A suffix that sorts after everything that can follow a slash in a key."""


class StateStore(ObjectStore):
    """A state of the lake: plain files and datasets at their natural keys. Reads only; `Session` writes.

    Entries of the tree are read from the content store. Data files and chunks, which all states share, are read from
    the folders of the datasets.
    """

    def __init__(self, tree: StateTree) -> None:
        self._tree = tree

    @property
    def name(self) -> str:
        """Return the name of the state: a ref, a commit, a session."""
        return self._tree.name

    @property
    def tree(self) -> StateTree:
        """Return the objects of the state."""
        return self._tree

    @property
    def view(self) -> View:
        """Return the tree with the changes on top of it."""
        return self._tree.view

    @property
    def root(self) -> ObjectStore:
        """Return the root of the lake."""
        return self._tree.root

    @property
    def content(self) -> ContentStore:
        """Return the content-addressed objects that the tree names."""
        return self._tree.content

    @property
    def clock(self) -> AwareClock:
        """Return the lake's clock."""
        return self._tree.clock

    def datasets(self) -> dict[str, DatasetRecord]:
        """List the datasets of this state, by path."""
        return self._tree.datasets()

    def registered(self) -> dict[str, DatasetRecord]:
        """List all datasets that were created in the history of this state, also those that were dropped."""
        return self._tree.registered()

    def dataset(self, path: str, format: str | None = None) -> DatasetView:
        """Return the folder of a dataset as a store for its format. Raises DatasetNotFound."""
        record = self.datasets().get(dataset_path(path))
        if record is None or (format is not None and record.format != format):
            what = "dataset" if format is None else f"{format} dataset"
            paths = ", ".join(sorted(self.datasets())) or "none"
            raise DatasetNotFound(f"there is no {what} at {path!r} in {self.name}; its datasets are {paths}")
        return self.folder_of(record)

    def folder_of(self, record: DatasetRecord) -> DatasetView:
        """Return the folder of a registered dataset as a store for its format."""
        return DatasetView(self._tree, record)

    def open(self, path: str, format: str | None = None, **options: Any) -> Any:
        """Open a dataset as its format's handle, such as a `DeltaTable`.

        Raises DatasetNotFound, and what the format raises.
        """
        view = self.dataset(path, format)
        return view.format.open(view, clock=self.clock, **options)

    def delta(self, path: str, **options: Any) -> DeltaTable:
        """Open a Delta table of this state. `options` are those of `DeltaTable.open`. Raises DatasetNotFound."""
        table: DeltaTable = self.open(path, "delta", **options)
        return table

    def icechunk(self, path: str, **options: Any) -> DatasetRepository:
        """Open an Icechunk repository of this state.

        `options` are those of `Repository.open`. Raises DatasetNotFound.
        """
        repository: DatasetRepository = self.open(path, "icechunk", **options)
        return repository

    def pool(self, path: str) -> Pool:
        """Open a pool of this state. Raises DatasetNotFound."""
        pool: Pool = self.open(path, "pool")
        return pool

    def changed(self, items: Mapping[str, Item | None]) -> StateStore:
        """Return the state with other items of its tree. None deletes."""
        view = self.view.copy()
        for key, item in items.items():
            view.overlay.set(key, item)
        return StateStore(StateTree(self.root, view, self.clock, name=self.name, content=self.content))

    def filesystem(self) -> AbstractFileSystem:
        """Return a `LakeFileSystem` whose paths are this store's keys, for libraries that take fsspec file systems."""
        import fsspec

        return fsspec.get_filesystem_class("lake")(state=self)

    def gather(self, *calls: Callable[[], Any]) -> tuple[Any, ...]:
        """Call functions concurrently if the lake's store gains from it."""
        return self._tree.root.gather(*calls)

    def url(self, key: str = "") -> str:
        """Return the URL of a key in the lake's folder.

        If the state is not main, another file or none may be there.
        """
        return self.root.url(key)

    @property
    def storage_options(self) -> dict[str, object]:
        """Return the options with which other tools open the URLs."""
        return self.root.storage_options

    def _owner(self, key: str) -> tuple[DatasetView, str] | None:
        """Find the dataset that a key belongs to, and the key within it. Raises InvalidKey for the lake's own keys."""
        if key.startswith(RESERVED):
            raise InvalidKey(
                f"{key!r} belongs to the lake itself: data cannot be written under {' and '.join(RESERVED)}", key=key
            )
        record = dataset_above(key, self.datasets())
        return None if record is None else (self.folder_of(record), key[len(record.path) + 1 :])

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        return self._get_many([(key, start, end)])[0]

    def _get_many(self, requests: Sequence[tuple[str, int | None, int | None]]) -> list[ObjectBytes]:
        bodies: dict[int, ObjectBytes] = {}
        inside: dict[str, tuple[DatasetView, list[int], list[tuple[str, int | None, int | None]]]] = {}
        plain: list[int] = []
        for number, (key, start, end) in enumerate(requests):
            owner = self._owner(key)
            if owner is None:
                self._tree.note_read(key)
                plain.append(number)
            else:
                _, numbers, ranges = inside.setdefault(owner[0].record.path, (owner[0], [], []))
                numbers.append(number)
                ranges.append((owner[1], start, end))
        for path, (view, numbers, ranges) in inside.items():
            with renamed("", f"{path}/"):
                stored = view.get_many(ranges)
            for number, data in zip(numbers, stored, strict=True):
                bodies[number] = ObjectBytes(data, data.meta.with_key(requests[number][0]))
        bodies |= zip(plain, self._tree.get_many([requests[number] for number in plain]), strict=True)
        return [bodies[number] for number in range(len(requests))]

    def _head(self, key: str) -> ObjectMeta:
        owner = self._owner(key)
        if owner is None:
            self._tree.note_read(key)
            return self._tree.head(key)
        view, inner = owner
        with renamed("", key[: -len(inner)]):
            return view.head(inner).with_key(key)

    def _list(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        datasets = self.datasets()
        inside = dataset_above(f"{prefix}x", datasets)
        if inside is None:
            self._tree.note_read(f"{prefix}*")
        else:
            yield from self.folder_of(inside).listed(prefix, start_after)
            return
        folders = sorted(f"{path}/" for path in datasets if f"{path}/".startswith(prefix))
        at = start_after
        for folder in folders:
            yield from self.plain(prefix, at, folder)
            yield from self.folder_of(datasets[folder[:-1]]).listed(folder, max(at, start_after))
            at = max(at, f"{folder}{_LAST}")
        yield from self.plain(prefix, at)

    def plain(self, prefix: str, start_after: str = "", until: str | None = None) -> Iterator[ObjectMeta]:
        """List the plain files under a prefix, up to the key `until`."""
        # The logs of dropped datasets stay in the tree.
        hidden = (*RESERVED, *(f"{path}/" for path, record in self.registered().items() if record.dropped))
        for meta in self.view.list_metadata(prefix, start_after):
            if until is not None and meta.key >= until:
                return
            if not meta.key.startswith(hidden):
                yield meta

    def _list_folders(self, prefix: str) -> list[str]:
        names: set[str] = set()
        at = ""
        while True:
            meta = next(self._list(prefix, at), None)
            if meta is None:
                return sorted(names, key=lambda name: f"{name}/")
            name, slash, _ = meta.key[len(prefix) :].partition("/")
            if slash:
                names.add(name)
            at = f"{prefix}{name}/{_LAST}" if slash else meta.key

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        raise self._tree.refusal(key)

    def _delete(self, keys: Sequence[str]) -> None:
        raise self._tree.refusal(next(iter(keys), ""))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r} of {self.root.url()!r})"
