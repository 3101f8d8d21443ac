"""Reading checkpoints: classic, multi-part, and version 2 with sidecars. Only the requested columns are read.

Protocol sections: Checkpoints, Checkpoint Format, Sidecar Files.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lake_core.delta.action import DomainMetadata, Metadata, Protocol
from lake_core.delta.action_fields import (
    ADD_FIELDS,
    DOMAIN_METADATA,
    METADATA,
    PARTITION_VALUES,
    PROTOCOL,
    REMOVE_FIELDS,
    TRANSACTION_FIELDS,
    tag_texts,
)
from lake_core.delta.errors import CheckpointGone, CorruptCheckpoint
from lake_core.delta.log_segment import SIDECARS_FOLDER, CheckpointFiles
from lake_core.delta.numpy_arrays import booleans, empty_table, integers, mask
from lake_core.delta.struct_statistics import stats_json
from lake_core.errors import InvalidKey, NotFound
from lake_core.hybrid_calendar import HybridCalendar
from lake_core.json_numbers import loads
from lake_core.store.object_file import open_object

if TYPE_CHECKING:
    from lake_core.store import ObjectStore

_ACTIONS = ("add", "remove", "txn", "metaData", "protocol", "domainMetadata", "sidecar")
_DAMAGE = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""The errors that reading a file that is not a checkpoint can raise: its columns can be anything."""

_BATCH_ROWS = 1 << 16

FileFilter: TypeAlias = Callable[[pa.Table], "npt.NDArray[np.bool_]"]
"""Tells which of some files are wanted, from their `partitionValues`."""
Share: TypeAlias = Callable[[pa.Table], "npt.NDArray[np.bool_]"]
"""Tells which of some actions on files are wanted, from their `path`."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _naming_damage(method: Callable[Concatenate[Checkpoint, _P], _R]) -> Callable[Concatenate[Checkpoint, _P], _R]:
    """Make a method raise CorruptCheckpoint for any damaged file, so that the snapshot can fall back to older ones.

    One thread at a time runs it: threads that read one Parquet file at the same time crash the process.
    """

    def wrapped(self: Checkpoint, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            with self.lock:
                return method(self, *args, **kwargs)
        except _DAMAGE as error:
            raise CorruptCheckpoint(f"the checkpoint of version {self.version} cannot be read ({error})") from error

    functools.update_wrapper(wrapped, method)
    return wrapped


class Checkpoint:
    """The state of a table at one version, read in columns on demand.

    Every method raises CorruptCheckpoint for damaged files. Threads may share it.
    """

    def __init__(self, store: ObjectStore, files: CheckpointFiles, share: Share | None = None) -> None:
        """Read a checkpoint. With a `share`, only these of its actions on files: read them with their paths."""
        self._store = store
        self._files = files
        self._share = share
        self.lock = threading.RLock()
        """A lock that is held while the files are read."""
        self._top: list[pq.ParquetFile] | None = None
        self._sidecars: list[pq.ParquetFile] | None = None
        self._transactions: pa.Table | None = None
        self._vectors: bool | None = None

    def __reduce__(self) -> tuple[type[Checkpoint], tuple[ObjectStore, CheckpointFiles, Share | None]]:
        return Checkpoint, (self._store, self._files, self._share)

    @property
    def version(self) -> int:
        """Return the version of the table that the checkpoint holds."""
        return self._files.version

    @property
    def files(self) -> CheckpointFiles:
        """Return the files of the checkpoint."""
        return self._files

    @_naming_damage
    def protocol(self) -> Protocol | None:
        """Return the table's protocol; None if the checkpoint lacks it."""
        actions = self._singles("protocol")
        return Protocol.from_json(actions[-1]) if actions else None

    @_naming_damage
    def metadata(self) -> Metadata | None:
        """Return the table's metadata; None if the checkpoint lacks it."""
        actions = self._singles("metaData")
        return Metadata.from_json(actions[-1]) if actions else None

    @_naming_damage
    def domains(self) -> list[DomainMetadata]:
        """Return the configurations of metadata domains."""
        return [DomainMetadata.from_json(body) for body in self._singles("domainMetadata")]

    @_naming_damage
    def transactions(self) -> pa.Table:
        """Return the txn actions: appId, version, lastUpdated."""
        if self._transactions is None:  # every write with a txn needs them
            markers = self._rows("txn", "appId", TRANSACTION_FIELDS, self._top_files())
            if markers["version"].null_count:
                raise CorruptCheckpoint(f"the checkpoint of version {self.version} holds a txn without its version")
            self._transactions = markers
        return self._transactions

    @_naming_damage
    def adds(self, columns: Sequence[str], only: FileFilter | None = None) -> pa.Table:
        """Return the add actions that `only` accepts, in the checkpoint's order, with these fields (of ADD_FIELDS)."""
        fields = [(name, kind) for name, kind in ADD_FIELDS if name in columns]
        return self._rows("add", "path", fields, [*self._top_files(), *self._sidecar_files()], only)

    @_naming_damage
    def removes(self) -> pa.Table:
        """Return the tombstones, with the fields of REMOVE_FIELDS."""
        return self._rows("remove", "path", REMOVE_FIELDS, [*self._top_files(), *self._sidecar_files()])

    @_naming_damage
    def has_deletion_vectors(self) -> bool:
        """Return whether any add has a deletion vector."""
        # This reads the column and not the footer's statistics, because damaged statistics crash the process.
        if self._vectors is None:
            name = "add.deletionVector.storageType"
            files = [file for file in [*self._top_files(), *self._sidecar_files()] if name in _leaves(file)]
            kinds = (
                pc.struct_field(struct, ["deletionVector", "storageType"])
                for file in files
                for struct in self._structs(file, [name], "add")
            )
            self._vectors = any(kind.null_count < len(kind) for kind in kinds)
        return self._vectors

    @_naming_damage
    def sidecars(self) -> list[str]:
        """Return the keys of the sidecar files that the checkpoint names."""
        return [_sidecar_key(row.get("path")) for row in self._singles("sidecar")]

    @_naming_damage
    def count_rows(self) -> int:
        """Return the number of all actions, without reading them."""
        return sum(file.metadata.num_rows for file in [*self._top_files(), *self._sidecar_files()])

    @_naming_damage
    def open(self) -> None:
        """Open the checkpoint's files, except sidecars, in as few round trips as the store allows."""
        self._top_files()

    def _top_files(self) -> list[pq.ParquetFile]:
        if self._top is None:
            sizes = self._files.sizes or [None] * len(self._files.keys)
            opening = [
                functools.partial(self._open, key, _ACTIONS, size)
                for key, size in zip(self._files.keys, sizes, strict=True)
            ]
            self._top = list(self._store.gather(*opening))
        return self._top

    def _sidecar_files(self) -> list[pq.ParquetFile]:
        if self._sidecars is None:
            opening = [functools.partial(self._open, key, ("add", "remove")) for key in self.sidecars()]
            self._sidecars = list(self._store.gather(*opening))
        return self._sidecars

    def _open(self, key: str, expected: Sequence[str], size: int | None = None) -> pq.ParquetFile:
        try:
            if key.endswith(".json"):
                return _parquet_of_json(self._store.get(key))
            file = pq.ParquetFile(open_object(self._store, key, size), pre_buffer=True, page_checksum_verification=True)
            _check_columns(file.schema_arrow, expected)
            return file
        except (NotFound, InvalidKey):
            raise CheckpointGone(
                f"checkpoint file {key} is gone: open an older version, which may still be readable"
            ) from None
        except _DAMAGE as error:
            raise CorruptCheckpoint(
                f"checkpoint file {key} cannot be read ({error}): delete it if the commits that it covers exist"
            ) from None

    def _checked(self, read: Callable[[], Any]) -> Any:
        """Return what a read of a file's columns returns, validated.

        Raises CheckpointGone for a deleted file, CorruptCheckpoint for data that cannot be read.
        """
        try:
            table = read()
            if table is not None:
                table.validate(full=True)
            return table
        except NotFound as error:
            raise CheckpointGone(
                f"checkpoint file {error.key} is gone: the log was cleaned up while it was read. Open the table again"
            ) from None
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptCheckpoint(f"the checkpoint of version {self.version} cannot be read ({error})") from None

    def _structs(self, file: pq.ParquetFile, columns: Sequence[str], action: str) -> Iterator[pa.StructArray]:
        """Yield the column of an action, in pieces.

        Most rows belong to other actions, so a whole column would take too much memory.
        """
        for group in range(file.num_row_groups):
            yield from self._group_structs(file, group, columns, action)

    def _group_structs(
        self, file: pq.ParquetFile, group: int, columns: Sequence[str], action: str
    ) -> Iterator[pa.StructArray]:
        batches = file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=list(columns), use_threads=False)
        while (batch := self._checked(functools.partial(next, batches, None))) is not None:
            yield batch.column(action)

    def _wanted(self, file: pq.ParquetFile, columns: Sequence[str], only: FileFilter) -> Iterator[pa.StructArray]:
        """Yield the add column, without files for which `only` is false.

        It is read row group by row group, and the columns of a group one batch at a time.
        """
        for group in range(file.num_row_groups):
            struct = self._checked(functools.partial(file.read_row_group, group, columns=["add.partitionValues"]))[
                "add"
            ].combine_chunks()
            if not _has(struct.type, "partitionValues"):
                raise ValueError("it has no column add.partitionValues")
            values = _as_type(pc.struct_field(struct, ["partitionValues"]), PARTITION_VALUES)
            rows = np.flatnonzero(booleans(values.is_valid()))
            keep = np.full(len(values), True)
            if len(rows):
                partition_values = (
                    values.slice(int(rows[0]), len(rows))
                    if rows[-1] - rows[0] + 1 == len(rows)
                    else values.take(integers(rows))
                )
                keep[rows] = only(pa.table({"partitionValues": partition_values}))
            if not keep[rows].any() and struct.null_count == len(struct) - len(rows):
                continue
            first = 0
            for part in self._group_structs(file, group, columns, "add"):
                yield part.filter(mask(keep[first : first + len(part)]))
                first += len(part)
            if first != len(keep):
                raise ValueError(f"its columns hold {first} and {len(keep)} rows")

    def _singles(self, action: str) -> list[dict[str, Any]]:
        bodies: list[dict[str, Any]] = []
        for file in self._top_files():
            leaves = [leaf for leaf in _leaves(file) if leaf.startswith(f"{action}.")]
            if leaves:
                for column in self._structs(file, leaves, action):
                    if column.null_count < len(column):
                        bodies += [_plain(row, column.type) for row in column.drop_null().to_pylist()]
        return bodies

    def _rows(
        self,
        action: str,
        key: str,
        fields: Sequence[tuple[str, pa.DataType]],
        files: Sequence[pq.ParquetFile],
        only: FileFilter | None = None,
    ) -> pa.Table:
        schema = pa.schema(list(fields))
        tables = []
        for file in files:
            leaves = _leaves(file)
            if any(leaf.startswith(f"{action}.") for leaf in leaves):
                tables.append(self._file_rows(file, leaves, action, key, fields, only))
        return pa.concat_tables(tables) if tables else empty_table(schema)

    def _file_rows(
        self,
        file: pq.ParquetFile,
        leaves: Sequence[str],
        action: str,
        key: str,
        fields: Sequence[tuple[str, pa.DataType]],
        only: FileFilter | None,
    ) -> pa.Table:
        leaf_names = [f"{action}.{name}" for name, _ in fields]
        if f"{action}.{key}" not in leaf_names:
            leaf_names.append(f"{action}.{key}")
        # Bounds of the hybrid calendar are others than those of the values that are read: no file is skipped by them.
        is_gregorian = HybridCalendar.of(file.metadata.metadata) is None
        parsed_stats = action == "add" and "add.stats" in leaf_names and "add.stats" not in leaves and is_gregorian
        if parsed_stats:
            leaf_names.append("add.stats_parsed")
        chunks = []
        for struct in self._structs(file, leaf_names, action) if only is None else self._wanted(file, leaf_names, only):
            # A struct column of an action may be null as a whole, or (older writers) have all of its fields null.
            if not _has(struct.type, key):
                raise CorruptCheckpoint(
                    f"the checkpoint of version {self.version} has {action} actions, but no column {action}.{key}"
                )
            present = pc.struct_field(struct, [key]).is_valid()
            if not pc.all(present).as_py():
                _check_empty(struct.filter(pc.and_not(struct.is_valid(), present)), action, key)
                struct = _rows_where(struct, present)
            columns = {}
            for name, kind in fields:
                if parsed_stats and name == "stats" and _has(struct.type, "stats_parsed"):
                    columns[name] = stats_json(pc.struct_field(struct, ["stats_parsed"]))
                elif _has(struct.type, name):
                    columns[name] = _as_type(pc.struct_field(struct, [name]), kind)
                else:
                    columns[name] = pa.nulls(len(struct), kind)
            rows = pa.table(columns, schema=pa.schema(list(fields)))
            if self._share is not None and action in ("add", "remove"):
                rows = rows.filter(mask(self._share(rows)))
            chunks.append(rows)
        return pa.concat_tables(chunks) if chunks else empty_table(pa.schema(list(fields)))


def _check_columns(schema: pa.Schema, expected: Sequence[str]) -> None:
    """Raise ValueError for a file with none of the expected columns: it is not part of a checkpoint."""
    if not any(child.name in expected for child in schema):
        raise ValueError(f"it has none of the columns {', '.join(expected)}")
    _check_structs(schema)


def _check_structs(schema: pa.Schema) -> None:
    """Raise ValueError for a column that is not a struct.

    If it were treated as absent, every action (or deletion vector) in it would be lost.
    """
    for child in schema:
        if child.name not in _ACTIONS:
            continue
        if not pa.types.is_struct(child.type) or len(schema.get_all_field_indices(child.name)) > 1:
            raise ValueError(f"its column {child.name} is {child.type}, not one struct")
        for vector in child.type:
            if vector.name == "deletionVector" and not pa.types.is_struct(vector.type):
                raise ValueError(f"its column {child.name}.deletionVector is {vector.type}, not a struct")


def _has(struct: pa.StructType, name: str) -> bool:
    count = len(struct.get_all_field_indices(name))
    if count > 1:
        raise ValueError(f"it has {count} columns {name}")
    return count == 1


def _check_empty(rows: pa.StructArray, action: str, key: str) -> None:
    """Check that rows without their key are empty: they are other actions' rows, as older writers write them."""
    for child in rows.type:
        if (
            child.name != key
            and not pa.types.is_nested(child.type)
            and pc.struct_field(rows, [child.name]).null_count < len(rows)
        ):
            raise CorruptCheckpoint(f"an action {action} in a checkpoint has no {key}")


def _sidecar_key(path: Any) -> str:
    """Return a sidecar's key. Its path may be relative or absolute, but all sidecars are in one folder of the log."""
    if not isinstance(path, str):
        raise CorruptCheckpoint(f"a checkpoint names the sidecar {path!r}: a path is text")
    folder, slash, name = unquote(path).rpartition("/")
    inside = not slash or f"/{folder}".endswith("/_sidecars")
    if not inside or ".." in folder.split("/") or name in ("", ".", ".."):
        raise CorruptCheckpoint(f"a checkpoint names the sidecar {path!r}, which is not in {SIDECARS_FOLDER}/")
    return f"{SIDECARS_FOLDER}/{name}"


def _leaves(file: pq.ParquetFile) -> list[str]:
    schema = file.schema
    return [schema.column(index).path for index in range(len(schema))]


def _as_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        if not pa.types.is_struct(array.type):
            raise TypeError(f"a column is {array.type} instead of a struct")
        children = [
            _as_type(pc.struct_field(array, [child.name]), child.type)
            if _has(array.type, child.name)
            else pa.nulls(len(array), child.type)
            for child in kind
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    return array.cast(kind)


def _plain(row: dict[str, Any], struct: pa.StructType) -> dict[str, Any]:
    """Return a row as it would be in JSON: maps as objects, null fields left out."""
    body: dict[str, Any] = {}
    for child in struct:
        value = row.get(child.name)
        if value is None:
            continue
        if pa.types.is_map(child.type):
            value = dict(value)
        elif pa.types.is_struct(child.type):
            value = _plain(value, child.type)
        body[child.name] = value
    return body


def _parquet_of_json(data: bytes) -> pq.ParquetFile:
    """Convert a version 2 checkpoint in JSON to the columns of one in Parquet."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for line in data.splitlines():
        if line.strip():
            actions = loads(line)
            if not isinstance(actions, dict):
                raise ValueError("it holds a line that is not an action")
            for action, body in actions.items():
                is_tagged = action == "add" and isinstance(body, dict) and "tags" in body
                rows.setdefault(action, []).append(body | {"tags": tag_texts(body["tags"])} if is_tagged else body)
    kinds: dict[str, pa.StructType] = {
        "add": pa.struct(list(ADD_FIELDS)),
        "remove": pa.struct(list(REMOVE_FIELDS)),
        "txn": pa.struct(list(TRANSACTION_FIELDS)),
        "sidecar": pa.struct([("path", pa.string())]),
        "domainMetadata": DOMAIN_METADATA,
        "protocol": PROTOCOL,
        "metaData": METADATA,
    }
    total = sum(len(bodies) for action, bodies in rows.items() if action in kinds)
    columns, before = {}, 0
    for action, kind in kinds.items():
        bodies = rows.get(action, [])
        values: list[Any] = [None] * before + bodies + [None] * (total - before - len(bodies))
        columns[action] = pa.array(values, kind)
        before += len(bodies)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return pq.ParquetFile(pa.BufferReader(sink.getvalue()))


def _rows_where(struct: pa.StructArray, present: pa.BooleanArray) -> pa.StructArray:
    """Return the rows of one action. They are mostly adjacent, and then nothing is copied."""
    rows = np.flatnonzero(booleans(present))
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
        return struct.slice(int(rows[0]), len(rows))
    return struct.filter(present)
