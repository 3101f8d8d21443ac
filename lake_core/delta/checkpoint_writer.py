"""Writing a checkpoint: the state of a snapshot, then the hint that names it.

It is one classic Parquet file, or of version 2 where the table's `delta.checkpointPolicy` asks for that: the actions on
files are in sidecars, which a file with all others names. `checkpoint_parts` writes several classic files.

Protocol sections: Checkpoints, Checkpoint Format, Sidecar Files, Last Checkpoint File.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lake_core import runtime
from lake_core.arrow_scalar import TRUE_VALUE
from lake_core.delta.action_fields import (
    ADD_FIELDS,
    DOMAIN_METADATA,
    METADATA,
    PROTOCOL,
    REMOVE_FIELDS,
    TEXTS,
    TRANSACTION_FIELDS,
)
from lake_core.delta.features import V2_CHECKPOINT, supported_features
from lake_core.delta.log_segment import (
    LAST_CHECKPOINT,
    LOG_FOLDER,
    SIDECARS_FOLDER,
    CheckpointFiles,
    checkpoint_key,
    read_last_checkpoint,
)
from lake_core.delta.properties import (
    deleted_file_retention_ms,
    has_v2_policy,
    stats_as_json,
    stats_as_struct,
    transaction_retention_ms,
)
from lake_core.delta.skipping import partition_table
from lake_core.delta.statistics import indexed_leaves
from lake_core.delta.struct_statistics import parsed_stats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lake_core.delta.action import DomainMetadata, Metadata, Protocol
    from lake_core.delta.snapshot import Snapshot
    from lake_core.store import ObjectStore

SIDECAR_ROWS = 500_000
"""The most actions of a sidecar."""
_DEFINITION = ("protocol", "metaData", "domainMetadata")
_CHECKPOINT_METADATA = pa.struct([("version", pa.int64()), ("tags", TEXTS)])
_SIDECAR = pa.struct(
    [("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64()), ("tags", TEXTS)]
)


@dataclass(frozen=True, slots=True)
class CheckpointActions:
    """The actions of a checkpoint, or of a part of one."""

    adds: pa.Table
    removes: pa.Table
    transactions: pa.Table
    metadata: Metadata
    protocol: Protocol
    domains: Sequence[DomainMetadata]

    def table(self, now: int, *, has_definition: bool = True, as_text: bool = False) -> pa.Table | None:
        """Return the actions in the columns of a checkpoint, without those that have expired at a time.

        Args:
            now: The time in milliseconds.
            has_definition: Whether to include the protocol, the metadata and the domains.
            as_text: Whether statistics are text in any case. Otherwise return None if the properties require columns
                and these cannot hold the statistics.
        """
        columns = self.columns(now, as_text=as_text)
        if columns is None:
            return None
        return stacked([each for each in columns if has_definition or each[0] not in _DEFINITION])

    def columns(self, now: int, *, as_text: bool = False) -> list[tuple[str, pa.StructArray]] | None:
        """Return the actions of each kind, without those that have expired at a time; see `table`."""
        # Readers use a checkpoint to rebuild the state, never to follow changes.
        adds = self.adds.set_column(
            self.adds.schema.get_field_index("dataChange"), "dataChange", pa.repeat(False, len(self.adds))
        )
        described = _with_columns(adds, self.metadata, as_text=as_text)
        if described is None:
            return None
        adds = described
        removes = self.removes
        retention = deleted_file_retention_ms(self.metadata.configuration)
        if retention is not None:
            expired = pc.less_equal(pc.fill_null(removes["deletionTimestamp"], 0), now - retention)
            removes = removes.filter(pc.invert(expired))
        removes = removes.set_column(
            removes.schema.get_field_index("dataChange"), "dataChange", pa.repeat(False, len(removes))
        )
        return [
            ("protocol", _rows([self.protocol.to_json()], PROTOCOL)),
            ("metaData", _rows([_pairs(self.metadata.to_json())], METADATA)),
            ("domainMetadata", _rows([domain.to_json() for domain in self.domains], DOMAIN_METADATA)),
            ("txn", _struct(self._unexpired(now).select([name for name, _ in TRANSACTION_FIELDS]))),
            ("remove", _struct(_without_empty(removes, REMOVE_FIELDS))),
            ("add", _struct(_without_empty(adds, ADD_FIELDS))),
        ]

    def _unexpired(self, now: int) -> pa.Table:
        """Return the txn actions that have not expired."""
        markers, retention = self.transactions, transaction_retention_ms(self.metadata.configuration)
        if retention is None:
            return markers
        return markers.filter(pc.fill_null(pc.greater(markers["lastUpdated"], now - retention), TRUE_VALUE))


def stacked(columns: Sequence[tuple[str, pa.StructArray]]) -> pa.Table:
    """Return actions of several kinds as a table: each row has one of them, in the column of its kind."""
    columns = [(name, array) for name, array in columns if len(array) or name in ("txn", "remove", "add")]
    total = sum(len(array) for _, array in columns)
    before = 0
    padded = {}
    for name, array in columns:
        after = total - before - len(array)
        padded[name] = pa.chunked_array([pa.nulls(before, array.type), array, pa.nulls(after, array.type)])
        before += len(array)
    return pa.table(padded)


def write_checkpoint(snapshot: Snapshot, now: int, target: ObjectStore | None = None) -> CheckpointFiles:
    """Write the checkpoint of a snapshot's version, and return its files, without sidecars.

    `now`, in milliseconds, decides which tombstones have expired.

    `target` is another store for it than the one of the log. A crash at any point leaves the table valid: the hint is
    written last, and never moves to an earlier checkpoint.
    """
    store = target or snapshot.store
    actions = CheckpointActions(
        snapshot.files([name for name, _ in ADD_FIELDS]),
        snapshot.tombstones(),
        snapshot.transactions(),
        snapshot.metadata,
        snapshot.protocol,
        snapshot.domains,
    )
    columns = actions.columns(now)
    if columns is None:
        columns = actions.columns(now, as_text=True)
    assert columns is not None
    if V2_CHECKPOINT in supported_features(snapshot.protocol) and has_v2_policy(snapshot.metadata.configuration):
        return _write_v2(store, snapshot.version, columns, now, len(actions.adds))
    table = stacked(columns)
    body = encode(table)
    store.put(checkpoint_key(snapshot.version), memoryview(body))
    write_hint(store, snapshot.version, table.num_rows, body.size, len(actions.adds))
    return CheckpointFiles(snapshot.version, (checkpoint_key(snapshot.version),))


def _write_v2(
    store: ObjectStore, version: int, columns: Sequence[tuple[str, pa.StructArray]], now: int, adds: int
) -> CheckpointFiles:
    """Write a checkpoint of version 2: sidecars, then the file that names them, then the hint."""
    identity = runtime.uuid4()
    files = stacked([each for each in columns if each[0] in ("add", "remove")])
    total = max(1, -(-len(files) // SIDECAR_ROWS))
    sidecars = []
    for number in range(total):
        body = encode(files.slice(number * SIDECAR_ROWS, SIDECAR_ROWS))
        name = f"{version:020d}.checkpoint.{number + 1:010d}.{total:010d}.{identity}.parquet"
        store.put(f"{SIDECARS_FOLDER}/{name}", memoryview(body))
        sidecars.append({"path": name, "sizeInBytes": body.size, "modificationTime": now})
    top = stacked(
        [
            ("checkpointMetadata", _rows([{"version": version}], _CHECKPOINT_METADATA)),
            ("sidecar", _rows(sidecars, _SIDECAR)),
            # delta-spark needs the columns of these, too, though no row has one.
            *((name, array[:0] if name in ("add", "remove") else array) for name, array in columns),
        ]
    )
    body = encode(top)
    key = f"{LOG_FOLDER}/{version:020d}.checkpoint.{identity}.parquet"
    store.put(key, memoryview(body))
    path = {"path": key.rpartition("/")[2], "sizeInBytes": body.size, "modificationTime": now}
    size = body.size + sum(int(str(sidecar["sizeInBytes"])) for sidecar in sidecars)
    write_hint(store, version, len(files) + len(top), size, adds, v2=path)
    return CheckpointFiles(version, (key,))


def encode(table: pa.Table) -> pa.Buffer:
    """Return a file of a checkpoint. Equal tables have equal files."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="snappy", write_page_checksum=True)
    return sink.getvalue()


def write_hint(
    store: ObjectStore,
    version: int,
    rows: int,
    size: int,
    adds: int,
    parts: int | None = None,
    v2: Mapping[str, Any] | None = None,
) -> None:
    """Point `_last_checkpoint` to a checkpoint, unless it points to a later one.

    `parts`: of how many files it is, if it is a classic one of several. `v2`: the file of one of version 2.
    """
    hint = read_last_checkpoint(store)
    if hint is None or hint <= version:
        last: dict[str, Any] = {"version": version, "size": rows, "sizeInBytes": size, "numOfAddFiles": adds}
        if parts is not None:
            last["parts"] = parts
        if v2 is not None:
            last["v2Checkpoint"] = v2
        store.put(LAST_CHECKPOINT, json.dumps(last, separators=(",", ":")).encode())


def _with_columns(adds: pa.Table, metadata: Metadata, *, as_text: bool) -> pa.Table | None:
    """Return adds with their statistics and partition values in the forms that the table's properties require.

    None if columns cannot hold the statistics, unless they shall be text in any case.
    """
    as_json = stats_as_json(metadata.configuration) or as_text
    if stats_as_struct(metadata.configuration):
        mapping = metadata.column_mapping
        chosen = indexed_leaves(metadata.arrow_schema, metadata.partition_columns, metadata.configuration)
        if not as_text:
            parsed = parsed_stats(adds["stats"], [(mapping.physical_path(path), kind) for path, kind in chosen])
            if parsed is None:
                return None  # other writers' text
            adds = adds.append_column("stats_parsed", parsed)
        if metadata.partition_columns:
            values = partition_table(adds, metadata)
            keys = list(metadata.partition_keys.values())
            arrays = [column.combine_chunks() for column in values.columns]
            adds = adds.append_column("partitionValues_parsed", pa.StructArray.from_arrays(arrays, names=keys))
    if not as_json:
        adds = adds.drop_columns(["stats"])
    return adds


def _without_empty(table: pa.Table, fields: Sequence[tuple[str, pa.DataType]]) -> pa.Table:
    """Leave out optional columns that no row uses. Readers read a missing column as nulls."""
    optional = {"deletionVector", "baseRowId", "defaultRowCommitVersion", "clusteringProvider", "tags"}
    unused = [
        name
        for name, _ in fields
        if name in optional and name in table.column_names and table[name].null_count == len(table)
    ]
    return table.drop_columns(unused)


def _struct(table: pa.Table) -> pa.StructArray:
    arrays = [column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in table.columns]
    return pa.StructArray.from_arrays(arrays, fields=list(table.schema))


def _rows(bodies: list[dict[str, Any]], kind: pa.StructType) -> pa.StructArray:
    return pa.array(bodies, kind)


def _pairs(body: dict[str, Any]) -> dict[str, Any]:
    """Convert maps to the lists of pairs that Arrow takes."""
    file_format = {**body["format"], "options": list(body["format"]["options"].items())}
    return {**body, "format": file_format, "configuration": list(body["configuration"].items())}
