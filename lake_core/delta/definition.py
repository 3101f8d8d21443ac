"""The definition of a new table: its metadata and its protocol."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from lake_core import runtime
from lake_core.delta.action import Metadata, Protocol
from lake_core.delta.column_mapping import MODE_PROPERTY, with_mapping, without_mapping
from lake_core.delta.errors import FolderNotEmpty, InvalidProperty, SchemaMismatch
from lake_core.delta.features import upgraded, with_versions
from lake_core.delta.file_name import is_hidden
from lake_core.delta.iceberg_compat import check_compat, with_compat
from lake_core.delta.identity import identity_columns, without_marks
from lake_core.delta.log_segment import log_exists
from lake_core.delta.properties import check_honoured, check_properties, check_texts
from lake_core.delta.row_rules import check_rules
from lake_core.delta.row_tracking import ENABLED, with_column_names
from lake_core.delta.schema import PrimitiveType, StructType, check_storable, schema_from_arrow, schema_to_json
from lake_core.store import FolderStore, ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

_NAMED = 3
"""Files that an error names."""
_FEATURE_PREFIX = "delta.feature."


def asked_protocol(protocol: Protocol, properties: Mapping[str, str]) -> tuple[Protocol, dict[str, str]]:
    """Return a protocol with what properties request by name, and the other properties.

    Such properties are `delta.feature.X`, `delta.minReaderVersion` and `delta.minWriterVersion`. Raises
    InvalidProperty, UnsupportedWriterFeature.
    """
    check_texts(properties)
    check_honoured(properties)
    reader, writer = (_version(properties, key) for key in ("delta.minReaderVersion", "delta.minWriterVersion"))
    features = [key.removeprefix(_FEATURE_PREFIX) for key in properties if key.startswith(_FEATURE_PREFIX)]
    for key, value in properties.items():
        if key.startswith(_FEATURE_PREFIX) and value not in ("supported", "enabled"):
            raise InvalidProperty(f"{key} is {value!r}, but only 'supported' is valid")
    protocol = with_versions(protocol, reader, writer)
    plain_properties = {
        key: value for key, value in properties.items() if key not in _VERSIONS and not key.startswith(_FEATURE_PREFIX)
    }
    return upgraded(protocol, features), plain_properties


_VERSIONS = {"delta.minReaderVersion": 3, "delta.minWriterVersion": 7}
"""Properties that ask for a protocol version, with the highest one."""


def _version(properties: Mapping[str, str], key: str) -> int:
    text = properties.get(key, "1")
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= _VERSIONS[key]):
        raise InvalidProperty(f"{key} is {text!r}: use a whole number from 1 to {_VERSIONS[key]}")
    return int(text)


def new_metadata(
    schema: pa.Schema, partition_by: Sequence[str] | None, properties: Mapping[str, str], now: int
) -> Metadata:
    """Return the metadata of a table that is to be created. `now`: milliseconds since the epoch.

    Raises SchemaMismatch, UnsupportedType, InvalidProperty, UnsupportedExpression.
    """
    if isinstance(partition_by, str):
        raise SchemaMismatch(f"partition_by must be a list of columns: [{partition_by!r}]")
    # The schema may come from another table, whose physical names and numbers do not apply here.
    struct = without_marks(without_mapping(schema_from_arrow(schema)))
    if not struct.fields:
        raise SchemaMismatch("the schema has no columns, but a table needs at least one")
    check_storable(struct)
    partition_by = partition_by or ()
    check_partitioning(struct, partition_by)
    check_properties(properties)
    properties = with_compat(properties)
    if properties.get(MODE_PROPERTY, "none") != "none":
        struct, properties = with_mapping(struct, properties, keep_names=False)
    if properties.get(ENABLED, "false").lower() == "true":
        properties = with_column_names(properties)
    metadata = Metadata(
        id=str(runtime.uuid4()),
        schema=struct,
        schema_string=schema_to_json(struct),
        partition_columns=tuple(partition_by),
        configuration=dict(properties),
        created_time=now,
    )
    check_rules(metadata)
    check_compat(metadata)
    identity_columns(metadata)
    return metadata


def check_partitioning(struct: StructType, partition_by: Sequence[str]) -> None:
    """Raise SchemaMismatch unless these columns can partition a table of this schema."""
    for name in partition_by:
        if name not in struct.names:
            raise SchemaMismatch(
                f"partition column {name!r} is not in the schema, which has the columns {', '.join(struct.names)}"
            )
        kind = struct.field(name).type
        if not isinstance(kind, PrimitiveType) or kind.name == "variant":
            what = "nested" if not isinstance(kind, PrimitiveType) else "a variant"
            raise SchemaMismatch(f"partition column {name!r} is {what}: only columns of a primitive type can partition")
    if len(set(partition_by)) < len(partition_by):
        raise SchemaMismatch(f"a column is named twice in partition_by: {list(partition_by)}")
    if struct.fields and len(partition_by) == len(struct.fields):
        raise SchemaMismatch("every column is a partition column: leave at least one column for the data files")


def check_same(existing: Metadata, asked: Metadata, store: ObjectStore) -> None:
    """Raise SchemaMismatch unless the existing table has the schema and partitioning of the one to be created."""
    if existing.schema.to_arrow() != asked.schema.to_arrow():
        raise SchemaMismatch(
            f"the table at {store.url()} has another schema: {existing.schema.to_arrow()} instead of "
            f"{asked.schema.to_arrow()}"
        )
    if existing.partition_columns != asked.partition_columns:
        raise SchemaMismatch(
            f"the table at {store.url()} is partitioned by {list(existing.partition_columns)}, not by "
            f"{list(asked.partition_columns)}"
        )


def check_empty(store: ObjectStore) -> None:
    """Raise FolderNotEmpty for a new table in a folder with other files.

    Hidden files (`_…`, `.…`) and other tables in folders of their own may be there. In a lake its own rules hold
    instead.
    """
    if store.versioned:
        return
    keys = list(islice(_foreign_keys(store), _NAMED + 1))
    if not keys or log_exists(
        store
    ):  # another writer may have created the table, and written to it, during the listing
        return
    names = ", ".join(repr(key) for key in keys[:_NAMED]) + (", …" if len(keys) > _NAMED else "")
    raise FolderNotEmpty(
        f"the folder {store.url()} already holds files that do not belong to a table: {names}. Convert "
        f"Parquet files to a table with DeltaTable.convert({store.url()!r}), or choose another path. "
        "Nothing was written"
    )


def _foreign_keys(store: ObjectStore) -> Iterator[str]:
    is_table: dict[str, bool] = {}
    for meta in store.list():
        if is_hidden(meta.key):
            continue
        parts = meta.key.split("/")[:-1]
        folders = ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
        for folder in folders:
            if folder not in is_table:
                is_table[folder] = log_exists(FolderStore(store, folder))
        if not any(is_table[folder] for folder in folders):
            yield meta.key
