"""Writing a checkpoint: the state of a snapshot as one classic Parquet file, then the hint that names it.

`checkpoint_parts` writes several files.

Protocol sections: Checkpoints, Checkpoint Format, Last Checkpoint File.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lake_core.arrow_scalar import TRUE_VALUE
from lake_core.delta.action_fields import (
    ADD_FIELDS,
    DOMAIN_METADATA,
    METADATA,
    PARTITION_VALUES,
    PROTOCOL,
    REMOVE_FIELDS,
    TRANSACTION_FIELDS,
)
from lake_core.delta.log_segment import LAST_CHECKPOINT, checkpoint_key, read_last_checkpoint
from lake_core.delta.properties import (
    deleted_file_retention_ms,
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


@dataclass(frozen=True, slots=True)
class CheckpointActions:
    """The actions of a checkpoint, or of a part of one."""

    adds: pa.Table
    removes: pa.Table
    tags: Mapping[str, Mapping[str, str | None]]
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
        # Readers use a checkpoint to rebuild the state, never to follow changes.
        adds = self.adds.set_column(
            self.adds.schema.get_field_index("dataChange"), "dataChange", pa.repeat(False, len(self.adds))
        )
        described = _with_columns(adds, self.metadata, as_text=as_text)
        if described is None:
            return None
        adds = described
        if self.tags:
            values = [list(self.tags[path].items()) if path in self.tags else None for path in adds["path"].to_pylist()]
            adds = adds.append_column("tags", pa.array(values, PARTITION_VALUES))
        removes = self.removes
        retention = deleted_file_retention_ms(self.metadata.configuration)
        if retention is not None:
            expired = pc.less_equal(pc.fill_null(removes["deletionTimestamp"], 0), now - retention)
            removes = removes.filter(pc.invert(expired))
        removes = removes.set_column(
            removes.schema.get_field_index("dataChange"), "dataChange", pa.repeat(False, len(removes))
        )
        columns: list[tuple[str, pa.StructArray]] = [
            ("protocol", _rows([self.protocol.to_json()], PROTOCOL)),
            ("metaData", _rows([_pairs(self.metadata.to_json())], METADATA)),
            ("domainMetadata", _rows([domain.to_json() for domain in self.domains], DOMAIN_METADATA)),
        ]
        if not has_definition:
            columns = []
        columns += [
            ("txn", _struct(self._unexpired(now).select([name for name, _ in TRANSACTION_FIELDS]))),
            ("remove", _struct(_without_empty(removes, REMOVE_FIELDS))),
            ("add", _struct(_without_empty(adds, ADD_FIELDS))),
        ]
        columns = [(name, array) for name, array in columns if len(array) or name in ("txn", "remove", "add")]
        total = sum(len(array) for _, array in columns)
        before = 0
        padded = {}
        for name, array in columns:
            after = total - before - len(array)
            padded[name] = pa.chunked_array([pa.nulls(before, array.type), array, pa.nulls(after, array.type)])
            before += len(array)
        return pa.table(padded)

    def _unexpired(self, now: int) -> pa.Table:
        """Return the txn actions that have not expired."""
        markers, retention = self.transactions, transaction_retention_ms(self.metadata.configuration)
        if retention is None:
            return markers
        return markers.filter(pc.fill_null(pc.greater(markers["lastUpdated"], now - retention), TRUE_VALUE))


def write_checkpoint(snapshot: Snapshot, now: int, target: ObjectStore | None = None) -> None:
    """Write the checkpoint of a snapshot's version. `now`, in milliseconds, decides which tombstones have expired.

    `target` is another store for it than the one of the log. A crash at any point leaves the table valid: the hint is
    written last, and never moves to an earlier checkpoint.
    """
    store = target or snapshot.store
    actions = CheckpointActions(
        snapshot.files([name for name, _ in ADD_FIELDS]),
        snapshot.tombstones(),
        snapshot.tags(),
        snapshot.transactions(),
        snapshot.metadata,
        snapshot.protocol,
        snapshot.domains,
    )
    table = actions.table(now)
    if table is None:
        table = actions.table(now, as_text=True)
    assert table is not None
    body = encode(table)
    store.put(checkpoint_key(snapshot.version), memoryview(body))
    write_hint(store, snapshot.version, table.num_rows, body.size, len(actions.adds))


def encode(table: pa.Table) -> pa.Buffer:
    """Return a file of a checkpoint. Equal tables have equal files."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="snappy", write_page_checksum=True)
    return sink.getvalue()


def write_hint(store: ObjectStore, version: int, rows: int, size: int, adds: int, parts: int | None = None) -> None:
    """Point `_last_checkpoint` to a checkpoint of `parts` files (None: one), unless it points to a later one."""
    hint = read_last_checkpoint(store)
    if hint is None or hint <= version:
        last = {"version": version, "size": rows, "sizeInBytes": size, "numOfAddFiles": adds}
        if parts is not None:
            last["parts"] = parts
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
    optional = {"deletionVector", "baseRowId", "defaultRowCommitVersion", "clusteringProvider"}
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
