"""The IO manager for other objects: it stores them as files of the lake."""

import hashlib
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import quote

from dagster import ConfigurableIOManager, InputContext, MultiPartitionKey, OutputContext
from pydantic import Field

from lake_core.errors import NotFound
from lake_core.readable import readable_bytes
from lake_core.store import ObjectMeta, ObjectStore
from lake_core.workspace import DirectWrites, Workspace
from lake_orch.assets.asset_format import PAUSES, TRIES
from lake_orch.assets.owner import Owner
from lake_orch.dagster.metadata import plain_metadata
from lake_orch.dagster.owner import owner_of_output
from lake_orch.dagster.runs.attempt import run_of, step_of
from lake_orch.definition_metadata import REF, check_settings, read_ownership, read_text
from lake_orch.errors import InvalidDefinition, PartitionSliceError
from lake_orch.io_managers.annotation import without_none
from lake_orch.io_managers.file_format import EXTENSIONS, decode, encode
from lake_orch.io_managers.file_owner import FOLDER, FileOwners, Files, FileWrite, claim, endings_of
from lake_orch.io_managers.input import check_input_published, input_name, reads_itself
from lake_orch.io_managers.nothing_returned import warn_of_nothing
from lake_orch.io_managers.output import mapping_keys, output_partitions, producer_name, set_data_version
from lake_orch.io_managers.place import HasPlaces, Place, check_place
from lake_orch.io_managers.retry import write_with_retries
from lake_orch.location import PATH_METADATA, checked_path
from lake_orch.resources import LakeResource
from lake_pipes.metadata import PATH, receipt_metadata

ALLOW_MISSING = "allow_missing_partitions"


class FileIOManager(HasPlaces, ConfigurableIOManager):
    """An IO manager that stores bytes, text and JSON (dicts, lists, numbers) as files of the lake.

    A run with a session writes to the session.

    Example:
        .. code-block:: python

            @dg.asset(io_manager_key="files")
            def report(orders: pa.Table) -> dict[str, Any]:     # files/report.json
                return {"rows": orders.num_rows}

            resources = {"io_manager": DeltaIOManager(lake=lake), "files": FileIOManager(lake=lake), "lake": lake}

    The file is `files/<asset key>.<extension>` below the root. The file of a partition is `files/<asset
    key>/<partition>.<extension>`. The type of the value decides the extension. The metadata `lake/path` of an asset
    sets another path, with or without an extension.

    A file belongs to the asset that wrote it first, and no other asset replaces it (`TableOwned`), or reads it as its
    own (`NotFound`). The metadata `lake/owner` of an asset says otherwise: `take` takes over a file that another asset
    wrote, `shared` also lets other assets overwrite it.

    Several partitions are loaded as a dict by partition key, and written from such a dict, as by Dagster's own file
    managers. Metadata of an input: `lake/ref` reads at a branch, tag or commit. `allow_missing_partitions` leaves out
    partitions that have no file.

    Any other type needs `allow_pickle=True`. Reading a pickle can run any code that its writer put there.
    """

    lake: LakeResource
    allow_pickle: bool = Field(default=False, description="Whether other objects are stored, and loaded, with pickle.")
    prefix: str = Field(
        default="files", description="The folder below the lake's root for files of assets without lake/path."
    )

    @classmethod
    def place_of(
        cls, asset_key: Sequence[str] | None, metadata: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Place:
        """Return the place of an output's file, or of the files of its partitions."""
        location = _location(asset_key, metadata, options.get("prefix", "files"))
        return Place(location.stem, endings_of(location.extension))

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Write an output to its file.

        Raises UnsupportedData, InvalidDefinition, PartitionSliceError, TableOwned and the store's errors.
        """
        if obj is None:
            warn_of_nothing(context)
            return
        name = f"the output of {producer_name(context)}"
        base = self._base(context)
        check_place(context, type(self), dict(self))
        check_settings(plain_metadata(context.definition_metadata or {}), "files", "output", name)
        ownership = read_ownership(plain_metadata(context.definition_metadata or {}), producer_name(context))
        keys = output_partitions(context)
        owned = Files(base.stem, base.extension, base.of(keys[0]).depth_below(base) if keys else 0)
        owner = owner_of_output(context)
        files = {}
        for key, value in _by_partition(obj, keys, name).items():
            format_name, data = encode(value, name, allow_pickle=self.allow_pickle)
            location = base.of(key)
            files[location.stem + (location.extension or EXTENSIONS[format_name])] = (data, location)

        def write(workspace: Workspace) -> None:
            store = workspace.store
            writes = [
                FileWrite(path, Files(location.stem, location.extension), location.existing(store))
                for path, (_, location) in files.items()
            ]
            since = claim(store, owned, writes, owner, ownership)
            for each in writes:
                _put(store, each, files[each.path][0], since)

        _, workspace = write_with_retries(context, self.lake, keys, write, name, tries=TRIES, pauses=PAUSES)
        size = sum(len(data) for data, _ in files.values())
        verb = "staged for" if workspace.is_staged else "to"
        context.log.info(
            f"{name}: {readable_bytes(size)} {verb} {', '.join(list(files)[:3])}" + (" …" if len(files) > 3 else "")
        )
        where = next(iter(files)) if len(files) == 1 else base.stem
        metadata: dict[str, Any] = {PATH: where, "lake/bytes_written": size, "lake/files_added": len(files)}
        if isinstance(workspace, DirectWrites):
            metadata["dagster/uri"] = workspace.url(where)
        if workspace.receipt is not None:
            metadata |= receipt_metadata(workspace.receipt)
        context.add_output_metadata(metadata)
        if context.has_asset_key:
            content = hashlib.sha256("".join(hashlib.sha256(data).hexdigest() for data, _ in files.values()).encode())
            set_data_version(context, content.hexdigest()[:32])

    def load_input(self, context: InputContext) -> Any:
        """Read an input. Raises NotFound for a missing file, or one of another asset, and UnsupportedData."""
        name = input_name(context)
        metadata = plain_metadata(context.definition_metadata or {})
        check_settings(metadata, "files", "input", name)
        ref = read_text(metadata, REF, name)
        annotation, optional = without_none(context.dagster_type.typing_type)
        upstream = context.upstream_output
        base = self._base(upstream if upstream is not None else context)
        check_input_published(self.lake, context, ref)
        files = self.lake.read_files(run_of(context), ref=ref, step=step_of(context))
        reader = _Reader(files, _owner_of_input(context))
        if not context.has_asset_partitions:
            return self._load(reader, base, annotation, name)
        keys = list(context.asset_partition_keys)
        if not keys and optional:
            return None
        values = {}
        for key in keys:
            try:
                values[str(key)] = self._load(reader, base.of(key), annotation, name)
            except NotFound:
                if metadata.get(ALLOW_MISSING) is True:
                    continue
                if optional and len(keys) == 1 and reads_itself(context):
                    return None
                raise
        return values[str(keys[0])] if len(keys) == 1 and values else values

    def _load(self, reader: "_Reader", location: "_FileLocation", annotation: object, name: str) -> Any:
        path, data = reader.read(location)
        return decode(data, posixpath.splitext(path)[1], annotation, f"{name}, {path},", allow_pickle=self.allow_pickle)

    def _base(self, context: OutputContext | InputContext) -> "_FileLocation":
        metadata = plain_metadata(context.definition_metadata or {}) if isinstance(context, OutputContext) else {}
        location = _location(context.asset_key.path if context.has_asset_key else None, metadata, self.prefix)
        return location.below(*mapping_keys(context)) if isinstance(context, OutputContext) else location


def _location(asset_key: Sequence[str] | None, metadata: Mapping[str, Any], prefix: str) -> "_FileLocation":
    """Return the location of an output's file. Raises InvalidDefinition."""
    if PATH_METADATA in metadata:
        location = _FileLocation(*posixpath.splitext(checked_path(metadata[PATH_METADATA])))
    elif asset_key is not None:
        location = _FileLocation(checked_path("/".join([prefix, *asset_key])), "")
    else:
        raise InvalidDefinition(
            f"the output of an op has no asset key to name its file: give it the metadata {PATH_METADATA!r}"
        )
    if location.stem.split("/")[0] == FOLDER:
        raise InvalidDefinition(f"{FOLDER} holds the owners of files: choose another path than {location.stem!r}")
    return location


def _owner_of_input(context: InputContext) -> Owner | None:
    """Return the asset whose file an input reads, or None if it may be that of another asset."""
    upstream = context.upstream_output
    metadata = plain_metadata({} if upstream is None else upstream.definition_metadata or {})
    if not context.has_asset_key or read_ownership(metadata, input_name(context)) != "keep":
        return None
    if PATH_METADATA in metadata and _is_external(context):
        return None  # the definition names a file that something else writes
    return Owner(context.asset_key.to_user_string())


def _is_external(context: InputContext) -> bool:
    """Return whether no asset of this code location makes what an input reads, as far as is known."""
    if run_of(context) is None:
        return True
    assets = context.step_context.job_def.asset_layer
    return not assets.has(context.asset_key) or assets.get(context.asset_key).is_external


def _by_partition(value: object, keys: Sequence[str], name: str) -> dict[str | None, object]:
    """Return the values to write, by partition."""
    if len(keys) < 2:
        return {keys[0] if keys else None: value}
    if not isinstance(value, Mapping) or {str(key) for key in value} != {str(key) for key in keys}:
        raise PartitionSliceError(
            f"this run is for {len(keys)} partitions, and {name} is not a dict with a value for each of them: "
            "return {key: value, …} for context.partition_keys"
        )
    return {key: value[str(key)] for key in keys}


@dataclass(frozen=True, slots=True)
class _FileLocation:
    """The location of one file, or of one file for each partition."""

    stem: str
    extension: str
    """Empty if the value's format decides."""

    def below(self, *parts: str) -> "_FileLocation":
        """Return the location of a part. Characters that paths do not allow are percent-encoded."""
        return _FileLocation("/".join([self.stem, *map(_quoted, parts)]), self.extension)

    def of(self, key: str | None) -> "_FileLocation":
        """Return the location of a partition's file."""
        if key is None:
            return self
        return (
            self.below(*(value for _, value in sorted(key.keys_by_dimension.items())))
            if isinstance(key, MultiPartitionKey)
            else self.below(key)
        )

    def depth_below(self, other: "_FileLocation") -> int:
        """Return the number of parts that its path has below another one."""
        return self.stem.count("/") - other.stem.count("/")

    def find(self, files: ObjectStore) -> str:
        """Return the path of the existing file. Raises NotFound."""
        paths = [f"{self.stem}{self.extension}"] if self.extension else [meta.key for meta in self.existing(files)]
        if not paths:
            raise NotFound(
                f"no file {self.stem}.* ({', '.join(EXTENSIONS.values())}): materialize the asset first", key=self.stem
            )
        return paths[0]

    def existing(self, files: ObjectStore) -> list[ObjectMeta]:
        """Return the existing file, or the files with any extension if the value's format decides it."""
        if self.extension:
            try:
                return [files.head(f"{self.stem}{self.extension}")]
            except NotFound:
                return []
        names = [f"{self.stem}{extension}" for extension in EXTENSIONS.values()]
        return [meta for meta in files.list(f"{self.stem}.") if meta.key in names]


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads files of one asset."""

    files: ObjectStore
    asset: Owner | None
    """The asset, or None if files of any asset are read."""
    owners: FileOwners = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "owners", FileOwners(self.files))

    def read(self, location: _FileLocation) -> tuple[str, bytes]:
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


def _quoted(part: str) -> str:
    quoted = quote(part, safe=" !#$&'()+,-;=@[]^_`{}~.:")
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted


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
