"""What a tree lists, as Arrow: one batch a range, so that it can be read piece by piece and anywhere."""

from __future__ import annotations

import pyarrow as pa

from lake_core.graveler.entry import Entry
from lake_core.graveler.record import split_value
from lake_core.graveler.table import Table

INVENTORY = pa.schema(
    [
        pa.field("key", pa.binary(), nullable=False),
        pa.field("identity", pa.binary(), nullable=False),
        pa.field("address", pa.string(), nullable=False),
        pa.field("address_type", pa.int8(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("last_modified", pa.timestamp("us", "UTC")),
        pa.field("etag", pa.string(), nullable=False),
        pa.field("content_type", pa.string(), nullable=False),
        pa.field("metadata", pa.map_(pa.string(), pa.string()), nullable=False),
    ]
)
"""The columns of an inventory. `last_modified` is null where an entry tells none; `address_type` as in `AddressType`."""


def range_batch(data: bytes) -> pa.RecordBatch:
    """The records of a range's file, with their entries decoded. Needs nothing but the bytes, so that executors can call it.

    Raises CorruptTable, also for records that hold no entries.
    """
    keys, values = Table(data).columns
    identities, entries = [], []
    for value in values:
        identity, encoded = split_value(value)
        identities.append(identity)
        entries.append(Entry.decode(encoded))
    columns = (
        keys,
        identities,
        [entry.address for entry in entries],
        [int(entry.address_type) for entry in entries],
        [entry.size for entry in entries],
        [entry.last_modified // 1000 if entry.last_modified else None for entry in entries],
        [entry.etag for entry in entries],
        [entry.content_type for entry in entries],
        [list(entry.metadata.items()) for entry in entries],
    )
    arrays = [pa.array(column, field.type) for column, field in zip(columns, INVENTORY, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=INVENTORY)
