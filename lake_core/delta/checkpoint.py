"""Reading checkpoints: classic, multi-part, and version 2 with their sidecars. Only the columns asked for are read.

Protocol sections: Checkpoints, Checkpoint Format, Sidecar Files.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lake_core.delta.action import DomainMetadata, Metadata, Protocol
from lake_core.delta.action_fields import ADD_FIELDS, DOMAIN_METADATA, METADATA, PROTOCOL, REMOVE_FIELDS, TRANSACTION_FIELDS
from lake_core.delta.errors import CorruptCheckpoint
from lake_core.delta.log_segment import SIDECARS_FOLDER, CheckpointFiles
from lake_core.errors import NotFound
from lake_core.store import ObjectStore
from lake_core.store.object_file import open_object


class Checkpoint:
    """The state of a table at one version, read in columns on demand. Every method raises CorruptCheckpoint for damaged files."""

    def __init__(self, store: ObjectStore, files: CheckpointFiles) -> None:
        self._store = store
        self._files = files
        self._top: list[pq.ParquetFile] | None = None
        self._sidecars: list[pq.ParquetFile] | None = None
        self._transactions: pa.Table | None = None

    @property
    def version(self) -> int:
        return self._files.version

    def protocol(self) -> Protocol | None:
        found = self._singles("protocol")
        return Protocol.from_json(found[-1]) if found else None

    def metadata(self) -> Metadata | None:
        found = self._singles("metaData")
        return Metadata.from_json(found[-1]) if found else None

    def domains(self) -> list[DomainMetadata]:
        return [DomainMetadata.from_json(body) for body in self._singles("domainMetadata")]

    def transactions(self) -> pa.Table:
        """The txn markers: appId, version, lastUpdated."""
        if self._transactions is None:  # asked for by every marked write
            self._transactions = self._rows("txn", "appId", TRANSACTION_FIELDS, self._top_files())
        return self._transactions

    def adds(self, columns: Sequence[str]) -> pa.Table:
        """The add actions with these of their fields (names of ADD_FIELDS), in the checkpoint's order."""
        fields = [(name, kind) for name, kind in ADD_FIELDS if name in columns]
        return self._rows("add", "path", fields, [*self._top_files(), *self._sidecar_files()])

    def removes(self) -> pa.Table:
        """The tombstones, with the fields of REMOVE_FIELDS."""
        return self._rows("remove", "path", REMOVE_FIELDS, [*self._top_files(), *self._sidecar_files()])

    def has_deletion_vectors(self) -> bool:
        """Whether any add may have a deletion vector: told from the schema and its statistics, without reading rows."""
        name = "add.deletionVector.storageType"
        return any(not _all_null(file, name) for file in [*self._top_files(), *self._sidecar_files()] if name in _leaves(file))

    def tags(self) -> dict[str, dict[str, str | None]]:
        """The tags of the add actions by path, of those that have any."""
        tags: dict[str, dict[str, str | None]] = {}
        for file in [*self._top_files(), *self._sidecar_files()]:
            if any(leaf.startswith("add.tags.") and not _all_null(file, leaf) for leaf in _leaves(file)):
                struct = self._read(file, ["add.path", "add.tags"])["add"].combine_chunks()
                chosen = struct.filter(pc.struct_field(struct, "tags").is_valid())
                tags |= {row["path"]: dict(row["tags"]) for row in chosen.to_pylist() if row["tags"]}
        return tags

    def _top_files(self) -> list[pq.ParquetFile]:
        if self._top is None:
            self._top = [self._open(key) for key in self._files.keys]
        return self._top

    def _sidecar_files(self) -> list[pq.ParquetFile]:
        if self._sidecars is None:
            names = [row["path"] for row in self._singles("sidecar")]
            self._sidecars = [self._open(_sidecar_key(name)) for name in names]
        return self._sidecars

    def _open(self, key: str) -> pq.ParquetFile:
        try:
            if key.endswith(".json"):
                return _parquet_of_json(self._store.get(key))
            return pq.ParquetFile(open_object(self._store, key), pre_buffer=True, page_checksum_verification=True)
        except NotFound:
            raise CorruptCheckpoint(f"checkpoint file {key} is gone. Older versions may still be readable") from None
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptCheckpoint(
                f"checkpoint file {key} cannot be read ({error}). Delete it if the commits that it covers exist"
            ) from None

    def _read(self, file: pq.ParquetFile, columns: Sequence[str]) -> pa.Table:
        try:
            table = file.read(columns=list(columns))
            table.validate(full=True)
            return table
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptCheckpoint(f"the checkpoint of version {self.version} cannot be read ({error})") from None

    def _singles(self, action: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for file in self._top_files():
            leaves = [leaf for leaf in _leaves(file) if leaf.startswith(f"{action}.")]
            groups = _row_groups_with(file, leaves)
            if groups:
                try:
                    column = file.read_row_groups(groups, columns=leaves)[action].combine_chunks()
                except (pa.ArrowException, OSError, ValueError) as error:
                    raise CorruptCheckpoint(f"the checkpoint of version {self.version} cannot be read ({error})") from None
                found += [_plain(row, column.type) for row in column.drop_null().to_pylist()]
        return found

    def _rows(self, action: str, key: str, fields: Sequence[tuple[str, pa.DataType]], files: Sequence[pq.ParquetFile]) -> pa.Table:
        schema = pa.schema(list(fields))
        tables = []
        for file in files:
            leaves = _leaves(file)
            if any(leaf.startswith(f"{action}.") for leaf in leaves):
                tables.append(self._file_rows(file, leaves, action, key, fields))
        return pa.concat_tables(tables) if tables else schema.empty_table()

    def _file_rows(
        self, file: pq.ParquetFile, leaves: Sequence[str], action: str, key: str, fields: Sequence[tuple[str, pa.DataType]]
    ) -> pa.Table:
        wanted = [f"{action}.{name}" for name, _ in fields]
        if f"{action}.{key}" not in wanted:
            wanted.append(f"{action}.{key}")
        parsed_stats = action == "add" and "add.stats" in wanted and "add.stats" not in leaves
        if parsed_stats:
            wanted.append("add.stats_parsed")
        table = self._read(file, wanted)
        chunks = []
        for struct in table[action].chunks:
            # A struct column of an action may be null as a whole, or (older writers) have all of its fields null.
            present = pc.struct_field(struct, key).is_valid()
            struct = struct if pc.all(present).as_py() else struct.filter(present)
            columns = {}
            for name, kind in fields:
                if parsed_stats and name == "stats" and struct.type.get_field_index("stats_parsed") >= 0:
                    columns[name] = stats_json(pc.struct_field(struct, "stats_parsed"))
                elif struct.type.get_field_index(name) < 0:
                    columns[name] = pa.nulls(len(struct), kind)
                else:
                    columns[name] = _as_type(pc.struct_field(struct, name), kind)
            chunks.append(pa.table(columns, schema=pa.schema(list(fields))))
        return pa.concat_tables(chunks) if chunks else pa.schema(list(fields)).empty_table()


def _sidecar_key(path: str) -> str:
    name = unquote(path)
    return name if name.startswith(f"{SIDECARS_FOLDER}/") else f"{SIDECARS_FOLDER}/{name.rpartition('/')[2]}"


def _leaves(file: pq.ParquetFile) -> list[str]:
    schema = file.schema
    return [schema.column(index).path for index in range(len(schema))]


def _all_null(file: pq.ParquetFile, leaf: str) -> bool:
    return not _row_groups_with(file, [leaf])


def _row_groups_with(file: pq.ParquetFile, leaves: Sequence[str]) -> list[int]:
    """Row groups in which any of these leaf columns may hold a value."""
    indexes = [index for index, path in enumerate(_leaves(file)) if path in leaves]
    groups = []
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        for index in indexes:
            column = group.column(index)
            statistics = column.statistics
            if statistics is None or not statistics.has_null_count or statistics.null_count < column.num_values:
                groups.append(number)
                break
    return groups


def _as_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        children = [
            _as_type(pc.struct_field(array, child.name), child.type)
            if array.type.get_field_index(child.name) >= 0
            else pa.nulls(len(array), child.type)
            for child in kind
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    return array.cast(kind)


def _plain(row: dict[str, Any], struct: pa.StructType) -> dict[str, Any]:
    """A row as JSON would have had it: maps as objects, null fields left out."""
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
    """A version 2 checkpoint in JSON, brought into the same columns as one in Parquet."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for line in data.splitlines():
        if line.strip():
            for action, body in json.loads(line).items():
                rows.setdefault(action, []).append(body)
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


def stats_json(parsed: pa.StructArray) -> pa.Array:
    """Statistics as the JSON text that an add action carries, from the struct form that some checkpoints hold instead."""
    return pa.array([None if row is None else json.dumps(_present(row), separators=(",", ":")) for row in parsed.to_pylist()], pa.string())


def _present(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _present(child) for key, child in value.items() if child is not None}
    if isinstance(value, dt.datetime):
        zone = "Z" if value.tzinfo else ""
        return value.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z" if zone else value.isoformat()
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, (str, int, float, bool)):
        return value
    return float(value)
