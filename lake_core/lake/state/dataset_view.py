"""The folder of a dataset in a state of the lake, as a store for its format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lake_core.dataset import BufferT, DatasetFormat, DatasetStore, KeyClass, WriteBuffer, dataset_format
from lake_core.errors import InvalidKey, NotFound
from lake_core.lake.errors import DatasetNotFound, ReadOnly
from lake_core.lake.state.changes import Changes
from lake_core.lake.state.content import Item, new_item
from lake_core.lake.state.derived import DerivedObjects
from lake_core.store import FolderStore, ObjectBytes, ObjectMeta, ObjectStore
from lake_core.store.folder import renamed
from lake_core.store.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from lake_core.lake.state.dataset_record import DatasetRecord
    from lake_core.lake.state.state_tree import StateTree
    from lake_core.store.object_store import Bytes


class DatasetView(DatasetStore):
    """The objects of a dataset by their keys within it.

    The log and pointers are read from the tree, UNIQUE objects from the dataset's folder. Derived objects of a state
    are in the folder, or beside the datasets (see `derived`).
    """

    def __init__(self, tree: StateTree, record: DatasetRecord) -> None:
        self._tree, self._record = tree, record
        self._prefix = f"{record.path}/"
        self._format = dataset_format(record.format)
        self._folder = FolderStore(tree.root, record.path)
        self._derived = DerivedObjects(tree, record, self._format, self._folder)

    @property
    def record(self) -> DatasetRecord:
        """Return the dataset's record in the lake."""
        return self._record

    @property
    def format(self) -> DatasetFormat:
        """Return the dataset's format."""
        return self._format

    @property
    def data_root(self) -> ObjectStore:
        """Return the dataset's folder, which has the UNIQUE objects of all states. Only sessions write to it."""
        return self._folder if self.provisional else _ReadOnlyFolder(self._folder, self._refusal())

    @property
    def checkout_store(self) -> ObjectStore:
        """Return the dataset's folder, which has the log and pointers of main that plain readers see."""
        return self._folder

    @property
    def derived(self) -> DerivedObjects:
        """Return the derived objects of this state, such as checkpoints."""
        return self._derived

    def derived_root_beside(self) -> ObjectStore | None:
        """Return the store for objects that are derived from the newest version, beside the datasets.

        Return None if there is no version, or if its log entry was imported.
        """
        keys = self._newest_keys()
        return self._derived.store_for(keys[-1]) if keys else None

    def _newest_keys(self) -> Sequence[str]:
        version = self._format.version(self)
        return [] if version is None else self._format.log_keys(self, version)

    @property
    def derived_root(self) -> ObjectStore:
        """Return the store for objects that are derived from the newest version.

        It is the dataset's folder if this version is checked out.
        """
        keys = [] if self.provisional else self._newest_keys()
        if keys and self._derived.is_checked_out(keys[-1]):
            return self._folder
        return (self._derived.store_for(keys[-1]) if keys else None) or self

    @property
    def provisional(self) -> bool:
        """Return whether this is a dataset in a session, whose changes are applied again at the publish."""
        return isinstance(self._tree, Changes)

    @property
    def base(self) -> ObjectStore | None:
        """Return the dataset at the session's base: None for a new dataset, and this store outside of a session."""
        if not isinstance(self._tree, Changes):
            return self
        before = self._tree.base
        record = before.datasets().get(self._record.path)
        return None if record is None else DatasetView(before, record)

    def write_buffer(self, create: Callable[[], BufferT]) -> BufferT:
        """Return the session's buffer for the dataset. The first call creates it with `create`."""
        return self._changes(self._record.path).buffer(self._record.path, create)

    def check_buffer(self, buffer: WriteBuffer) -> None:
        """Raise DatasetNotFound if the dataset was dropped, or created again, since the buffer was made."""
        path = self._record.path
        if not self._changes(path).has_buffer(path, buffer):
            raise DatasetNotFound(
                f"{path!r} was dropped in {self._tree.name}: open the dataset that is there now, and write to that"
            )

    def note_scan(self) -> None:
        """Record that the whole dataset was read."""
        self._tree.note_read(f"{self._prefix}*")

    def end_retention(self, before: datetime) -> None:
        """Make the publish of the session end the retention of states older than `before`."""
        self._changes(self._record.path).ended_retention[self._record.path] = before

    def item(self, key: str) -> Item | None:
        """Return the item of the tree at a key of the dataset."""
        return self._tree.view.get(f"{self._prefix}{key}")

    def is_outside_tree(self, key: str) -> bool:
        """Return whether a key's object is outside of the tree: unique for all states, or derived."""
        return self._store_outside(key) is not None

    def _store_outside(self, key: str, *, must_exist: bool = False) -> ObjectStore | None:
        """Return the store of an object outside of the tree, None for one in it.

        Raises NotFound for a derived object that does not belong to this state, if it `must_exist`.
        """
        match self._class_of(key):
            case KeyClass.UNIQUE:
                return self._folder
            case KeyClass.DERIVED:
                # An imported log may begin with a checkpoint, which is then in the tree like the log.
                if self.item(key) is not None:
                    return None
                return self._derived.store_of(key) if must_exist else self._folder
            case _:
                return None

    def _class_of(self, key: str) -> KeyClass:
        kind = self._format.key_class(key)
        if kind is None:
            raise InvalidKey(f"a {self._record.format} dataset has no place for {self._prefix}{key}", key=key)
        return kind

    def url(self, key: str = "") -> str:
        """Return the URL of an object in the dataset's folder. Only UNIQUE objects surely are those of this state."""
        return self._folder.url(key)

    @property
    def storage_options(self) -> dict[str, object]:
        """Return the options with which other tools open the URLs."""
        return self._folder.storage_options

    def gather(self, *calls: Callable[[], Any]) -> tuple[Any, ...]:
        """Call functions concurrently if the lake's store gains from it."""
        return self._tree.root.gather(*calls)

    def detached(self, keys: Sequence[str]) -> ObjectStore:
        """Return a store that other processes can read these objects of the log from, by the same keys.

        Raises NotFound, ExternalAddress; ReadOnly for what is not an object of its own.
        """
        objects: dict[str, tuple[ObjectStore, str]] = {}
        for key in keys:
            store = self._store_outside(key, must_exist=True)
            item = None if store is not None else self.item(key)
            if store is not None:
                objects[key] = (store, key)
            elif item is None:
                raise NotFound(f"there is no object at {self._prefix}{key} in {self._tree.name}", key=key)
            elif item.data is not None or item.entry.metadata:
                raise ReadOnly(f"{self._prefix}{key} cannot be read by other processes: publish the session first")
            else:
                objects[key] = self._tree.content.addresses.locate(item.entry)
        return Selection(objects, self._folder)

    # Reading

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        return self._get_many([(key, start, end)])[0]

    def _get_many(self, requests: Sequence[tuple[str, int | None, int | None]]) -> list[ObjectBytes]:
        bodies: dict[int, ObjectBytes] = {}
        outside: dict[int, tuple[ObjectStore, list[int]]] = {}
        for number, (key, _, _) in enumerate(requests):
            store = self._store_outside(key, must_exist=True)
            if store is not None:
                outside.setdefault(id(store), (store, []))[1].append(number)
        for store, numbers in outside.values():
            bodies |= zip(numbers, store.get_many([requests[number] for number in numbers]), strict=True)
        remaining = [number for number in range(len(requests)) if number not in bodies]
        ranges = [(self._prefix + key, start, end) for key, start, end in (requests[number] for number in remaining)]
        with renamed(self._prefix, ""):
            bodies |= zip(remaining, (self._own(data) for data in self._tree.get_many(ranges)), strict=True)
        return [bodies[number] for number in range(len(requests))]

    def _head(self, key: str) -> ObjectMeta:
        store = self._store_outside(key, must_exist=True)
        if store is not None:
            return store.head(key)
        with renamed(self._prefix, ""):
            return self._named(self._tree.head(self._prefix + key))

    def _list(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        after = self._prefix + start_after if start_after else ""
        return (self._named(meta) for meta in self.listed(self._prefix + prefix, after))

    def _list_folders(self, prefix: str) -> list[str]:
        names = (meta.key[len(prefix) :].partition("/") for meta in self._list(prefix, ""))
        return list(dict.fromkeys(name for name, slash, _ in names if slash))

    def listed(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        """List the dataset's log and the derived objects of this state under a prefix (keys of the lake).

        The log is in the tree, and derived objects are in the folder or beside the datasets. Unique objects are not
        listed, because those of other states are in the same folder.
        """
        stored = self._tree.view.list_metadata(prefix, start_after)
        # Only readers that begin at the start of the log use derived objects.
        derived = {} if start_after > prefix else self._listed_derived(prefix)
        pending = sorted(derived)
        for meta in stored:
            while pending and pending[0] < meta.key:
                yield derived[pending.pop(0)]
            if pending and pending[0] == meta.key:
                pending.pop(0)
            yield meta
        for key in pending:
            yield derived[key]

    def _listed_derived(self, prefix: str) -> dict[str, ObjectMeta]:
        """Return the newest derived objects of this state under a prefix, by their keys in the lake."""
        newest = self._derived.newest(prefix[len(self._prefix) :])
        return {f"{self._prefix}{key}": meta.with_key(f"{self._prefix}{key}") for key, (meta, _) in newest.items()}

    def _own(self, data: ObjectBytes) -> ObjectBytes:
        return ObjectBytes(data, self._named(data.meta))

    def _named(self, meta: ObjectMeta) -> ObjectMeta:
        return meta.with_key(meta.key[len(self._prefix) :])

    # Writing

    def _changes(self, key: str) -> Changes:
        """Return the changes to write to. Raises ReadOnly, SessionClosed."""
        if not isinstance(self._tree, Changes):
            raise ReadOnly(self._refusal())
        self._tree.check_open()
        return self._tree

    def _refusal(self) -> str:
        path, format = self._record.path, self._record.format
        opener = format if format in ("delta", "icechunk", "pool") else "open"
        return (
            f"{path!r} is read-only in {self._tree.name}: write to it in a session, "
            f"`with lake.session() as session: session.{opener}({path!r}).…`"
        )

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        path = self._prefix + key
        changes = self._changes(path)
        kind = self._class_of(key)
        if kind is KeyClass.UNIQUE:
            if if_match is not None:
                raise ReadOnly(
                    f"{path!r} is a data file of {self._record.path}, and data files never change: write a new one"
                )
            # All commits have the object at once. If the caller does not guarantee that the name is unique, it must be
            # free.
            return self._folder.put(key, data, if_absent=if_absent or not unique, unique=unique and not if_absent)
        if kind is KeyClass.DERIVED:
            raise ReadOnly(
                f"{path!r} is derived from the session's changes: it is written when the session is published"
            )
        with changes.lock:
            with renamed(self._prefix, ""):
                changes.check_conditions(path, if_absent, if_match)
            self._format.validate_entry(self, key, bytes(data))
            item = new_item(data, changes.clock())
            changes.set(path, item)
        return item.meta(key)

    def _delete(self, keys: Sequence[str]) -> None:
        self._changes(self._prefix + next(iter(keys), ""))
        for key in keys:
            if not self.is_outside_tree(key):
                raise ReadOnly(
                    f"{self._prefix + key!r} belongs to the log of {self._record.path}, from which nothing can be "
                    "deleted: drop the dataset instead"
                )
            # Data files stay: other states may need them, and deleting is left to garbage collection.

    def __reduce__(self) -> tuple[Any, ...]:
        return DatasetView, (self._tree, self._record)


class _ReadOnlyFolder(FolderStore):
    """The folder of a dataset, for those who read it. A writer learns at once that nothing would refer to its files."""

    def __init__(self, folder: FolderStore, refusal: str) -> None:
        self.__dict__.update(folder.__dict__)
        self._refusal = refusal

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        raise ReadOnly(self._refusal)

    def _delete(self, keys: Sequence[str]) -> None:
        raise ReadOnly(self._refusal)
