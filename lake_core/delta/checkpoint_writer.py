"""Writing a checkpoint: the state of a snapshot as one classic Parquet file, then the hint that names it.

Protocol sections: Checkpoints, Checkpoint Format, Last Checkpoint File.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

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
    from collections.abc import Sequence

    from lake_core.delta.snapshot import Snapshot


def write_checkpoint(snapshot: Snapshot, now: int) -> None:
    """Write the checkpoint of a snapshot's version. `now`, in milliseconds, decides which tombstones have expired.

    A crash at any point leaves the table valid: the hint is written last, and never moves to an earlier checkpoint.
    """
    sink = pa.BufferOutputStream()
    table, adds = _state(snapshot, now)
    pq.write_table(table, sink, compression="snappy", write_page_checksum=True)
    body = sink.getvalue()
    snapshot.store.put(checkpoint_key(snapshot.version), memoryview(body))
    hint = read_last_checkpoint(snapshot.store)
    if hint is None or hint <= snapshot.version:
        last = {"version": snapshot.version, "size": table.num_rows, "sizeInBytes": body.size, "numOfAddFiles": adds}
        snapshot.store.put(LAST_CHECKPOINT, json.dumps(last, separators=(",", ":")).encode())


def _state(snapshot: Snapshot, now: int) -> tuple[pa.Table, int]:
    adds = snapshot.files([name for name, _ in ADD_FIELDS])
    # Readers use a checkpoint to rebuild the state, never to follow changes.
    adds = adds.set_column(adds.schema.get_field_index("dataChange"), "dataChange", pa.repeat(False, len(adds)))
    adds = _with_columns(adds, snapshot)
    tags = snapshot.tags()
    if tags:
        values = [list(tags.get(path, {}).items()) if path in tags else None for path in adds["path"].to_pylist()]
        adds = adds.append_column("tags", pa.array(values, PARTITION_VALUES))
    removes = snapshot.tombstones()
    retention = deleted_file_retention_ms(snapshot.metadata.configuration)
    if retention is not None:
        expired = pc.less_equal(pc.fill_null(removes["deletionTimestamp"], 0), now - retention)
        removes = removes.filter(pc.invert(expired))
    removes = removes.set_column(
        removes.schema.get_field_index("dataChange"), "dataChange", pa.repeat(False, len(removes))
    )
    columns: list[tuple[str, pa.StructArray]] = [
        ("protocol", _rows([snapshot.protocol.to_json()], PROTOCOL)),
        ("metaData", _rows([_pairs(snapshot.metadata.to_json())], METADATA)),
        ("domainMetadata", _rows([domain.to_json() for domain in snapshot.domains], DOMAIN_METADATA)),
        ("txn", _struct(_unexpired(snapshot, now).select([name for name, _ in TRANSACTION_FIELDS]))),
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
    return pa.table(padded), len(adds)


def _unexpired(snapshot: Snapshot, now: int) -> pa.Table:
    """Return the txn actions that have not expired."""
    markers, retention = snapshot.transactions(), transaction_retention_ms(snapshot.metadata.configuration)
    if retention is None:
        return markers
    return markers.filter(pc.fill_null(pc.greater(markers["lastUpdated"], now - retention), True))


def _with_columns(adds: pa.Table, snapshot: Snapshot) -> pa.Table:
    """Return adds with their statistics and partition values in the forms that the table's properties require."""
    metadata = snapshot.metadata
    as_json = stats_as_json(metadata.configuration)
    if stats_as_struct(metadata.configuration):
        mapping = metadata.column_mapping
        chosen = indexed_leaves(metadata.arrow_schema, metadata.partition_columns, metadata.configuration)
        parsed = parsed_stats(adds["stats"], [(mapping.physical_path(path), kind) for path, kind in chosen])
        if parsed is None:
            as_json = True  # other writers' text that columns cannot hold
        else:
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
