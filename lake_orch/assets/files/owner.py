"""The owners of files. Files have no metadata, so records in the folder `_lake_owners` of the same root name them.

A record says which asset owns one file, or the files of all partitions at one path, so that there is one for each
asset. It is written with the files: in a lake it is published with them, or not at all. An asset may have a file where
another has its partitions, if it is none of these, such as `sales/total` next to the partitions of `sales`. Then files
at this path have records of their own.

A file that no record names belongs to the partitions that were recorded first, if it was put after that. What was there
before the records has no owner, and the first asset that writes it becomes its owner.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lake_core.errors import AlreadyExists
from lake_core.store import ObjectMeta, ObjectStore
from lake_orch.assets.files.encoding import EXTENSIONS
from lake_orch.assets.owner import Owner, owned
from lake_orch.definition_metadata import Ownership

FOLDER = "_lake_owners"

_SINCE = "since"


@dataclass(frozen=True, slots=True)
class Files:
    """The files of an output: one, or one for each partition."""

    stem: str
    """The path without the partition and the extension."""
    extension: str
    """Empty if the values' formats decide."""
    depth: int = 0
    """The number of parts of the path that a partition has."""

    @property
    def endings(self) -> frozenset[str]:
        """Return the extensions that the files may have."""
        return endings_of(self.extension)

    @property
    def record_key(self) -> str:
        """Return the key of the record that names the owner."""
        return f"{_folder(self.stem)}{self.depth}{self.extension}"

    def __str__(self) -> str:
        return f"{self.stem}{'/*' * self.depth}{self.extension or '.*'}"


def endings_of(extension: str) -> frozenset[str]:
    """Return the extensions that a file may have if its path has this one, or none."""
    return frozenset({extension} if extension else EXTENSIONS.values())


@dataclass(frozen=True, slots=True)
class _Record:
    """A record that names the owner of files."""

    files: Files
    owner: Owner
    since: datetime
    """The time from which files at the path are the owner's."""


class FileOwners:
    """The owners of files in a store, as its records name them. Each record is read once."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._records: dict[str, Sequence[_Record]] = {}

    def owner_of(self, stem: str, extension: str, put: datetime | None) -> Owner | None:
        """Return the owner of a file, or None if nothing tells.

        Args:
            stem: The path of the file without its extension.
            extension: The extension.
            put: When the file was put, or None if it does not exist.
        """
        exact = self._with(stem, 0, {extension})
        if exact:
            return exact[0].owner
        covering = [record for record in self.around(stem, {extension}) if put is not None and record.since <= put]
        return min(covering, key=lambda record: record.since).owner if covering else None

    def of(self, files: Files) -> Sequence[_Record]:
        """Return the records of the same files, which may name other extensions."""
        return self._with(files.stem, files.depth, files.endings)

    def around(self, stem: str, endings: Collection[str]) -> Iterator[_Record]:
        """Yield the records of partitions that a file of this path could be of."""
        parts = stem.split("/")
        for depth in range(1, len(parts)):
            yield from self._with("/".join(parts[:-depth]), depth, endings)

    def _with(self, stem: str, depth: int, endings: Collection[str]) -> list[_Record]:
        return [
            record
            for record in self._at(stem)
            if record.files.depth == depth and not record.files.endings.isdisjoint(endings)
        ]

    def _at(self, stem: str) -> Sequence[_Record]:
        if stem not in self._records:
            self._records[stem] = [self._read(stem, meta) for meta in self._store.list(_folder(stem))]
        return self._records[stem]

    def _read(self, stem: str, meta: ObjectMeta) -> _Record:
        depth, dot, extension = meta.key.rpartition("/")[2].partition(".")
        record: Mapping[str, Any] = json.loads(self._store.get(meta.key))
        owner = Owner.of_properties(record)
        assert owner is not None, f"{meta.key} names an owner"
        since = datetime.fromisoformat(record[_SINCE]) if _SINCE in record else meta.last_modified
        return _Record(Files(stem, dot + extension, int(depth)), owner, since)


@dataclass(frozen=True, slots=True)
class FileWrite:
    """One file that an asset writes."""

    path: str
    files: Files
    """The file, without its partition's path."""
    existing: Sequence[ObjectMeta]
    """The files that the write replaces, or deletes because they have other extensions."""

    @property
    def extensions(self) -> frozenset[str]:
        """Return the extensions of all files that the write changes."""
        return frozenset(key[len(self.files.stem) :] for key in [self.path, *(meta.key for meta in self.existing)])


def claim(
    store: ObjectStore, files: Files, writes: Sequence[FileWrite], writer: Owner | None, ownership: Ownership
) -> datetime | None:
    """Make an asset the owner of the files that it is about to write.

    Args:
        store: The store with the files.
        files: The files of the asset, of all partitions.
        writes: What it writes.
        writer: The asset, or None for an output of an op.
        ownership: How the asset handles files of another asset.

    Returns:
        The time from which files at the path are the asset's. Files that were put before must be put again. None if
        their time does not matter.

    Raises:
        TableOwned: The asset would replace a file of another.
    """
    if writer is None or ownership == "shared":
        return None
    owners = FileOwners(store)
    recorded = owners.of(files)
    _check_same(recorded, writer, ownership)
    if ownership == "keep":
        _check(owners, writes, writer)
    for write in writes if files.depth else ():
        contested = any(record.owner.is_other(writer) for record in owners.around(write.files.stem, write.extensions))
        exact = owners.of(write.files)
        if contested or exact:
            _record(store, write.files, exact, writer, ownership)
    _record(store, files, recorded, writer, ownership)
    if not files.depth:
        return None
    return min((record.since for record in recorded), default=datetime.max.replace(tzinfo=UTC))


def _check_same(recorded: Sequence[_Record], writer: Owner, ownership: Ownership) -> None:
    """Raise TableOwned if a record of the same files names another asset, unless the writer takes them over."""
    for record in recorded:
        if ownership == "keep" and record.owner.is_other(writer):
            raise owned(f"the file {record.files}", record.owner, writer, "it")


def _check(owners: FileOwners, writes: Sequence[FileWrite], writer: Owner) -> None:
    """Raise TableOwned if a write would replace or delete a file of another asset."""
    for write in writes:
        put = {meta.key: meta.last_modified for meta in write.existing}
        for extension in sorted(write.extensions):
            path = f"{write.files.stem}{extension}"
            owner = owners.owner_of(write.files.stem, extension, put.get(path))
            if owner is not None and owner.is_other(writer):
                raise owned(f"the file {path}", owner, writer, "it")


def _record(store: ObjectStore, files: Files, recorded: Sequence[_Record], writer: Owner, ownership: Ownership) -> None:
    """Record the owner of files in place of what is recorded.

    The record of a first write says nothing about the run, so that those of several first runs are equal.
    """
    if recorded and (
        all(record.owner == writer and record.files == files for record in recorded)
        or (ownership == "keep" and not any(record.owner.is_other(writer) for record in recorded))
    ):
        return
    content = {"files": str(files), **writer.properties}
    if not recorded:
        try:
            store.put(files.record_key, json.dumps(content).encode(), if_absent=True)
        except AlreadyExists:  # another run has just recorded one
            _check_same(FileOwners(store).of(files), writer, ownership)
        return
    content[_SINCE] = min(record.since for record in recorded).isoformat()
    store.delete([record.files.record_key for record in recorded if record.files != files])
    store.put(files.record_key, json.dumps(content).encode())


def _folder(stem: str) -> str:
    """Return the folder of the records for a path. The hash fits the limits of keys for each path."""
    return f"{FOLDER}/{hashlib.sha256(unicodedata.normalize('NFC', stem).encode()).hexdigest()[:32]}/"
