"""Import of objects, folders of Parquet files and datasets that are in the lake's folder already, without a copy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from lake_core import runtime
from lake_core.dataset import KeyClass, dataset_format
from lake_core.errors import AlreadyExists, InvalidKey
from lake_core.lake.errors import DatasetExists, DatasetNotFound
from lake_core.lake.state.content import Item, new_item, reference
from lake_core.lake.state.dataset_record import DatasetRecord, dataset_above, dataset_path
from lake_core.lake.state.state_store import StateStore
from lake_core.lake.state.state_tree import StateTree
from lake_core.lake.state.view import RESERVED
from lake_core.store import FolderStore
from lake_core.store.key import check_key
from lake_core.store.large_object import parts_of, read_in_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lake_core.graveler import Record
    from lake_core.lake.state.writable_state import WritableState


_COPIES = 4
"""The number of data files that are copied at the same time."""


@dataclass(frozen=True, slots=True)
class ImportedObjects:
    """The imported objects."""

    objects: int
    bytes: int


def import_dataset(session: WritableState, path: str, format: str) -> DatasetRecord:
    """Register a dataset that is in the lake's folder: copy its log into the session's tree. Its data is not copied.

    Raises DatasetNotFound, DatasetExists.
    """
    path = dataset_path(path)
    rules = dataset_format(format)
    folder = FolderStore(session.root, path)
    if path in session.datasets():
        raise DatasetExists(f"{path!r} is already a dataset of the lake")
    if not rules.exists(folder):
        raise DatasetNotFound(f"there is no {format} dataset at {folder.url()}")
    log = ((key, new_item(folder.get(key), session.clock())) for key in rules.import_keys(folder))
    return _take_log(session, path, format, log)


def import_copied_dataset(session: WritableState, path: str, format: str) -> DatasetRecord:
    """Register plain files of the session as a dataset: copy its data files to the dataset's folder.

    The log stays in the tree. This is for files whose bytes are elsewhere, such as those of a lakeFS repository.

    Raises DatasetNotFound, DatasetExists, InvalidKey; AlreadyExists if another file has the key of a data file.
    """
    path = dataset_path(path)
    rules = dataset_format(format)
    changes = session.changes
    files = dict(changes.view.list(f"{path}/"))
    if path in session.datasets():
        raise DatasetExists(f"{path!r} is already a dataset of the lake")
    source = FolderStore(_written_so_far(session), path)
    if not rules.exists(source):
        raise DatasetNotFound(f"the plain files at {path!r} are not a {format} dataset")
    classes = {key: rules.key_class(key[len(path) + 1 :]) for key in files}
    unknown = next((key for key, kind in classes.items() if kind is None), None)
    if unknown is not None:
        raise InvalidKey(
            f"a {format} dataset has no place for {unknown!r}: move or delete that file first", key=unknown
        )
    data_keys = [key for key, kind in classes.items() if kind is KeyClass.UNIQUE]
    for _ in runtime.map_ahead(lambda key: _copy(session, key, files[key]), data_keys, _COPIES):
        pass
    log = [(key, new_item(source.get(key), session.clock())) for key in rules.import_keys(source)]
    changes.clear(f"{path}/")
    try:
        return _take_log(session, path, format, log)
    except BaseException:
        _restore(session, path, files)
        raise


def _take_log(session: WritableState, path: str, format: str, log: Iterable[tuple[str, Item]]) -> DatasetRecord:
    """Register an imported dataset, given the items of its log by their keys within it. Raises DatasetExists."""
    session.check_free(path, format)
    record = DatasetRecord(path, format, str(runtime.uuid4()), imported=True)
    for key, item in log:
        session.changes.set(f"{path}/{key}", session.content.store(item))
    session.changes.register(record)
    return record


def _written_so_far(session: WritableState) -> StateStore:
    """Return the present state of the session, which later writes of the session do not change."""
    changes = session.changes
    tree = StateTree(changes.root, changes.view.copy(), changes.clock, name=changes.name, content=changes.content)
    return StateStore(tree)


def _restore(session: WritableState, path: str, files: Mapping[str, Item]) -> None:
    """Restore plain files at a path, and remove what the session has there now."""
    session.changes.clear(f"{path}/")
    for key, item in files.items():
        session.changes.set(key, item)


def _copy(session: WritableState, key: str, item: Item) -> None:
    """Copy a plain file's bytes to its key in the lake's folder."""
    size = item.entry.size
    data = read_in_parts(size, partial(session.content.get, item))
    try:
        session.root.put(key, data, if_absent=True)
    except AlreadyExists:
        if session.root.head(key).size != size or any(
            session.root.get(key, start, end) != data[start:end] for start, end in parts_of(size)
        ):
            raise AlreadyExists(
                f"another file than the lake's is at {key!r} in its folder: move it away first", key=key
            ) from None


def convert_dataset(
    session: WritableState, path: str, format: str, *, replaces_files: bool = False, **options: Any
) -> Any:
    """Convert plain files to a dataset, and return its handle. Raises DatasetExists and what the format raises.

    The files are in the lake's folder. With `replaces_files`, the files of the session are converted instead, if it has
    any at the path: the format's `convert` gets them as `source`, and they are removed from the session.
    """
    path = dataset_path(path)
    if path in session.datasets():
        raise DatasetExists(f"{path!r} is already a dataset of the lake")
    changes = session.changes
    files = dict(changes.view.list(f"{path}/")) if replaces_files else {}
    if files:
        options["source"] = FolderStore(_written_so_far(session), path)
        changes.clear(f"{path}/")
    record = DatasetRecord(path, format, str(runtime.uuid4()))
    try:
        session.check_free(path, format)
        changes.register(record)
        view = session.folder_of(record)
        return view.format.convert(view, clock=session.clock, **options)
    except BaseException:
        changes.unregister(record)
        _restore(session, path, files)
        raise


def import_objects(session: WritableState, prefix: str, to: str | None = None) -> ImportedObjects:
    """Add the objects under a prefix of the lake's folder to the session's tree, at the same keys or under `to`.

    They are not copied, so they must not change from now on. Raises InvalidKey.
    """
    count = size = 0
    changes = references(session, prefix, prefix if to is None else to)

    def counted() -> Iterator[tuple[bytes, Record | None]]:
        nonlocal count, size
        for key, item in changes:
            count, size = count + 1, size + item.entry.size
            yield key.encode(), item.record(key)

    session.changes.build(counted())
    return ImportedObjects(count, size)


def references(session: WritableState, prefix: str, to: str) -> Iterator[tuple[str, Item]]:
    """Yield the objects under a prefix of the lake's folder with the keys that they would get. Raises InvalidKey."""
    datasets, registered = session.datasets(), {**session.base.registered(), **session.registered()}
    for meta in session.root.list(prefix):
        if meta.key.startswith(RESERVED):
            continue
        key = check_key(to + meta.key[len(prefix) :])
        inside = dataset_above(key, registered)
        if key.startswith(RESERVED) or inside is not None or key in datasets:
            where = "the lake itself" if inside is None else f"the dataset {inside.path!r}"
            raise InvalidKey(
                f"{meta.key!r} cannot be imported as {key!r}, which belongs to {where}: choose another prefix, or `to`",
                key=key,
            )
        yield key, reference(meta.key, meta.size, meta.etag, meta.last_modified)
