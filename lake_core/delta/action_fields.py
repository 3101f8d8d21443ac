"""The fields of each action as Arrow types, in the protocol's own names.

Protocol section: Actions, Checkpoint Schema.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

DELETION_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
TEXTS = pa.map_(pa.string(), pa.string())
PARTITION_VALUES = TEXTS

ADD_FIELDS: tuple[tuple[str, pa.DataType], ...] = (
    ("path", pa.string()),
    ("partitionValues", PARTITION_VALUES),
    ("size", pa.int64()),
    ("modificationTime", pa.int64()),
    ("dataChange", pa.bool_()),
    ("stats", pa.string()),
    ("deletionVector", DELETION_VECTOR),
    ("baseRowId", pa.int64()),
    ("defaultRowCommitVersion", pa.int64()),
    ("clusteringProvider", pa.string()),
    ("tags", TEXTS),
)
"""Columns of add actions in bulk, in the protocol's own names."""

REMOVE_FIELDS: tuple[tuple[str, pa.DataType], ...] = (
    ("path", pa.string()),
    ("deletionTimestamp", pa.int64()),
    ("dataChange", pa.bool_()),
    ("extendedFileMetadata", pa.bool_()),
    ("partitionValues", PARTITION_VALUES),
    ("size", pa.int64()),
    ("deletionVector", DELETION_VECTOR),
    ("baseRowId", pa.int64()),
    ("defaultRowCommitVersion", pa.int64()),
)
"""Columns of remove actions in bulk."""

CHANGE_FIELDS: tuple[tuple[str, pa.DataType], ...] = (
    ("path", pa.string()),
    ("partitionValues", PARTITION_VALUES),
    ("size", pa.int64()),
)
"""Columns of cdc actions (section Add CDC File)."""

TRANSACTION_FIELDS: tuple[tuple[str, pa.DataType], ...] = (
    ("appId", pa.string()),
    ("version", pa.int64()),
    ("lastUpdated", pa.int64()),
)

METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", TEXTS)])),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("configuration", TEXTS),
        ("createdTime", pa.int64()),
    ]
)
PROTOCOL = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", pa.list_(pa.string())),
        ("writerFeatures", pa.list_(pa.string())),
    ]
)
DOMAIN_METADATA = pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())])


def with_fields(files: pa.Table, fields: Sequence[tuple[str, pa.DataType]]) -> pa.Table:
    """Return the actions with every one of these columns, null where it is lacking."""
    present = set(files.column_names)
    return pa.table({name: files[name] if name in present else pa.nulls(len(files), kind) for name, kind in fields})


def tag_texts(tags: Any) -> list[tuple[str, str | None]] | None:
    """Return the tags of an action as pairs of text, None without any. Some writers put other values there."""
    if not isinstance(tags, dict) or not tags:
        return None
    return [(key, text if text is None or isinstance(text, str) else json.dumps(text)) for key, text in tags.items()]
