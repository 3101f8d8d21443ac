"""Files: bytes, text and JSON become plain files of the lake, and back."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, get_origin

from lake_core.errors import NotFound
from lake_core.readable import readable_bytes
from lake_core.store import ObjectStore
from lake_core.workspace import DirectWrites, Workspace
from lake_orch.assets.asset_format import (
    AssetFormat,
    AssetInput,
    AssetOutput,
    AssetRead,
    AssetWrite,
    ReadingStep,
    Written,
)
from lake_orch.assets.files.encoding import EXTENSIONS, JSON_TYPES, decode, encode
from lake_orch.assets.files.location import FileLocation, file_location
from lake_orch.assets.files.owner import FileOwners, Files, FileWrite, claim, endings_of
from lake_orch.assets.metadata_names import OF_OUTPUTS, MetadataNames
from lake_orch.assets.owner import Owner
from lake_orch.assets.place import Place
from lake_orch.definition_metadata import Ownership, read_ownership
from lake_orch.errors import PartitionSliceError
from lake_orch.location import PATH_METADATA
from lake_pipes.metadata import PATH, receipt_metadata

ALLOW_MISSING = "allow_missing_partitions"


@dataclass(frozen=True, slots=True)
class FileFormat(AssetFormat):
    """Files of bytes, text and JSON, and of pickles if they are allowed."""

    format = "files"
    names = MetadataNames("files", OF_OUTPUTS, without_prefix=(ALLOW_MISSING,))
    is_dataset = False
    takes_partitions = True

    allow_pickle: bool = False
    prefix: str = "files"
    """The folder of files of assets without `lake/path`."""

    @classmethod
    def place(cls, asset_key: Sequence[str] | None, metadata: Mapping[str, Any], options: Mapping[str, Any]) -> Place:
        """Return the place of an output's file, or of the files of its partitions."""
        location = file_location(asset_key, metadata, options.get("prefix", "files"))
        return Place(location.stem, endings_of(location.extension))

    def accepts(self, value: object) -> bool:
        """Return whether a value is bytes, text, or what JSON can hold."""
        return isinstance(value, (bytes, bytearray, memoryview, str, *JSON_TYPES))

    def exists(self, files: ObjectStore, output: AssetOutput) -> bool:
        """Return whether a file of an output exists, or of one of its partitions."""
        location = file_location(output.asset_key, output.metadata, self.prefix).below(*output.mapping_keys)
        endings = tuple(endings_of(location.extension))
        below = (meta.key.endswith(endings) for meta in files.list(f"{location.stem}/"))
        return bool(location.existing(files)) or next(below, False)

    def loads(self, annotation: object) -> bool:
        """Return whether a type is bytes, text, or what JSON can hold."""
        return (get_origin(annotation) or annotation) in (bytes, str, *JSON_TYPES)

    def write(self, value: Any, output: AssetOutput) -> FilesWrite:
        """Prepare the write of a file, or of one for each partition of a dict."""
        subject = output.subject
        base = file_location(output.asset_key, output.metadata, self.prefix).below(*output.mapping_keys)
        ownership = read_ownership(output.metadata, output.producer)
        places = {key: output.partitions.split(key) for key in output.keys} if output.partitions is not None else {}
        depth = base.of(next(iter(places.values()))).depth_below(base) if places else 0
        files = {}
        for key, part in _by_partition(value, output.keys, subject).items():
            kind, data = encode(part, subject, allow_pickle=self.allow_pickle)
            location = base if key is None else base.of(places[key])
            files[location.stem + (location.extension or EXTENSIONS[kind])] = (data, location)
        return FilesWrite(base, Files(base.stem, base.extension, depth), files, output.owner, ownership)

    def read(self, request: AssetInput) -> FilesRead:
        """Prepare the read of files."""
        return FilesRead(request, self)


@dataclass(frozen=True, slots=True)
class FilesWrite(AssetWrite[None]):
    """The write of one output to its files."""

    base: FileLocation
    owned: Files
    files: Mapping[str, tuple[bytes, FileLocation]]
    """The content and the location of each file, by path."""
    owner: Owner | None
    ownership: Ownership

    def to(self, workspace: Workspace) -> None:
        """Put the files, and make the asset their owner."""
        store = workspace.store
        writes = [
            FileWrite(path, Files(location.stem, location.extension), location.existing(store))
            for path, (_, location) in self.files.items()
        ]
        since = claim(store, self.owned, writes, self.owner, self.ownership)
        for each in writes:
            _put(store, each, self.files[each.path][0], since)

    def written(self, result: None, workspace: Workspace) -> Written:
        """Describe the files."""
        paths, contents = list(self.files), [data for data, _ in self.files.values()]
        size = sum(map(len, contents))
        verb = "staged for" if workspace.is_staged else "to"
        where = paths[0] if len(paths) == 1 else self.base.stem
        metadata: dict[str, Any] = {PATH: where, "lake/bytes_written": size, "lake/files_added": len(paths)}
        if isinstance(workspace, DirectWrites):
            metadata["dagster/uri"] = workspace.url(where)
        if workspace.receipt is not None:
            metadata |= receipt_metadata(workspace.receipt)
        content = hashlib.sha256("".join(hashlib.sha256(data).hexdigest() for data in contents).encode())
        shown = f"{', '.join(paths[:3])}{' …' if len(paths) > 3 else ''}"
        return Written(f"{readable_bytes(size)} {verb} {shown}", metadata, content.hexdigest()[:32])


class FilesRead(AssetRead):
    """The read of an input from its files."""

    loads_each_partition = False

    def __init__(self, request: AssetInput, format: FileFormat) -> None:
        self._request, self._format = request, format
        self._reads_itself = False
        output = request.output
        location = file_location(request.asset_key, {} if output is None else output.metadata, format.prefix)
        self._base = location.below(*(() if output is None else output.mapping_keys))

    def start(self, dataset: ObjectStore | None, step: ReadingStep | None) -> str:
        """Return the path of the files."""
        self._reads_itself = step is not None and step.reads_itself()
        return f"{self._base.stem}{self._base.extension}"

    def load(self, dataset: ObjectStore | None, keys: Sequence[str] | None, annotation: object) -> Any:
        """Return the value of a file, or a dict of them by partition.

        Raises NotFound for a missing file, or one of another asset, and UnsupportedData.
        """
        assert dataset is not None
        reader, request = _Reader(dataset, self._owner()), self._request
        if keys is None:
            return self._load(reader, self._base, request.declared)
        values = {}
        for key in keys:
            try:
                values[key] = self._load(reader, self._base.of(request.of_partitions().split(key)), request.declared)
            except NotFound:
                if request.settings.get(ALLOW_MISSING) is True:
                    continue
                if request.optional and len(keys) == 1 and self._reads_itself:
                    return None
                raise
        return values[keys[0]] if len(keys) == 1 and values else values

    def _load(self, reader: _Reader, location: FileLocation, annotation: object) -> Any:
        path, data = reader.read(location)
        subject = f"{self._request.subject}, {path},"
        return decode(data, posixpath.splitext(path)[1], annotation, subject, allow_pickle=self._format.allow_pickle)

    def _owner(self) -> Owner | None:
        """Return the asset whose file is read, or None if it may be that of another asset."""
        request = self._request
        if request.asset_key is None or read_ownership(request.metadata, request.subject) != "keep":
            return None
        if PATH_METADATA in request.metadata and request.is_external:
            return None  # the definition names a file that something else writes
        return Owner(request.producer)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads files of one asset."""

    files: ObjectStore
    asset: Owner | None
    """The asset, or None if files of any asset are read."""
    owners: FileOwners = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "owners", FileOwners(self.files))

    def read(self, location: FileLocation) -> tuple[str, bytes]:
        """Return the path and the content of a file. Raises NotFound, also for a file of another asset."""
        path = location.find(self.files)
        data = self.files.get(path)
        owner = None
        if self.asset is not None:
            owner = self.owners.owner_of(location.stem, path[len(location.stem) :], data.last_modified)
        if self.asset is not None and owner is not None and owner.is_other(self.asset):
            raise NotFound(
                f"no file of {self.asset}: {path} was made by {owner}. Give one of the assets another path by the "
                "metadata lake/path, and materialize it. If the asset was renamed, or both are to write there, say so "
                'by metadata={"lake/owner": "take"}, or "shared"',
                key=path,
            )
        return path, data


def _by_partition(value: object, keys: Sequence[str], name: str) -> dict[str | None, object]:
    """Return the values to write, by partition."""
    if len(keys) < 2:
        return {keys[0] if keys else None: value}
    if not isinstance(value, Mapping) or {str(key) for key in value} != set(keys):
        raise PartitionSliceError(
            f"this run is for {len(keys)} partitions, and {name} is not a dict with a value for each of them: "
            "return {key: value, …} for context.partition_keys"
        )
    return {key: value[key] for key in keys}


def _put(store: ObjectStore, write: FileWrite, data: bytes, since: datetime | None) -> None:
    """Put a file unless it exists with the same content. Delete a file of the same name with another extension.

    A file from before `since` is put again.
    """
    outdated = [meta.key for meta in write.existing if meta.key != write.path]
    if outdated:
        store.delete(outdated)
    for meta in write.existing:
        is_recent = since is None or since <= meta.last_modified
        if meta.key == write.path and is_recent and meta.size == len(data) and store.get(write.path) == data:
            return
    store.put(write.path, data)
