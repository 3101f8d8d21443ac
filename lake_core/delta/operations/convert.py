"""CONVERT: make a folder of Parquet files a table, without copying a file.

Partitions are read from Hive's folder names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from lake_core.delta.action import Protocol
from lake_core.delta.commit_actions import partition_by_text
from lake_core.delta.data_file import AddFile
from lake_core.delta.data_file_reader import DataFiles
from lake_core.delta.definition import new_metadata
from lake_core.delta.errors import ConvertFailed, CorruptDataFile, SchemaMismatch, TableAlreadyExists
from lake_core.delta.features import READER_VERSION, WRITER_VERSION, upgraded_for
from lake_core.delta.log_segment import log_exists
from lake_core.delta.operation import Operation
from lake_core.delta.partition_value import parse
from lake_core.delta.path import encode_path
from lake_core.delta.schema import StructType, schema_from_arrow
from lake_core.delta.schema_evolution import added
from lake_core.delta.statistics import Leaf, StatisticsCollector, indexed_leaves
from lake_core.nested_arrays import leaf_types
from lake_core.parquet_rows import INT96_UNIT, with_instants
from lake_core.runner import Runner, run_here
from lake_core.store.object_file import open_object

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Sequence

    from lake_core.store import ObjectStore

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_NULL = "__HIVE_DEFAULT_PARTITION__"


def convert(
    store: ObjectStore, partition_by: pa.Schema | Sequence[str] | None, now: int, run: Runner = run_here
) -> Operation:
    """Plan the first commit of a table over the Parquet files in a store. `now` is in milliseconds.

    `partition_by` lists the partition columns in the folders' names (`day=2024-01-01/`), in their order. A schema also
    gives their types, which otherwise follow from the values. None infers the columns from the folders' names. Hidden
    files and folders (`_…`, `.…`) are ignored. The schema is that of all files together. Raises TableAlreadyExists,
    ConvertFailed, SchemaMismatch, UnsupportedType, CorruptDataFile.
    """
    if log_exists(store):
        raise TableAlreadyExists(f"a table exists at {store.url()} already: open it with DeltaTable.open")
    data_files = [meta for meta in store.list() if _is_data(meta.key)]
    if not data_files:
        raise ConvertFailed(
            f"there are no Parquet files at {store.url()} to convert: to create an empty table, use DeltaTable.create"
        )
    keys, sizes = [meta.key for meta in data_files], [meta.size for meta in data_files]
    texts = [_partition_texts(key) for key in keys]
    columns = _partition_columns(partition_by, keys, texts)
    data = _data_schema(keys, run(_SchemaTask(store, keys, sizes), len(keys)))
    both = {name.lower() for name in columns.names} & {name.lower() for name in data.names}
    if both:
        raise ConvertFailed(
            f"column {min(both)!r} is both in the files and in the names of the folders, but a partition column of a "
            "table must not be in the files: rename one of them"
        )
    metadata = new_metadata(pa.schema([*data, *columns]), columns.names, {}, now)
    leaves = indexed_leaves(metadata.arrow_schema, columns.names, {})
    files = DataFiles(store, 0, keys, sizes, pa.table({}), data, data)
    counted = run(_StatisticsTask(files, leaves), len(keys))
    adds = [
        AddFile(
            encode_path(meta.key),
            {name: text[name] for name in columns.names},
            meta.size,
            _milliseconds(meta.last_modified),
            stats,
            rows,
        )
        for meta, text, (stats, rows) in zip(data_files, texts, counted, strict=True)
    ]
    parameters = {
        "numFiles": str(len(adds)),
        "partitionedBy": partition_by_text(columns.names),
        "collectStats": "true",
        "sourceFormat": "parquet",
    }
    protocol = upgraded_for(Protocol(READER_VERSION, WRITER_VERSION), None, metadata)
    return Operation(
        "CONVERT", parameters, None, {"numConvertedFiles": len(adds)}, adds=adds, protocol=protocol, metadata=metadata
    )


def _is_data(key: str) -> bool:
    return key.lower().endswith((".parquet", ".parq")) and not any(
        part.startswith(".") or (part.startswith("_") and "=" not in part) for part in key.split("/")
    )


def _partition_texts(key: str) -> dict[str, str | None]:
    """Return the partition values of a file's folders, as text for the log."""
    texts: dict[str, str | None] = {}
    for part in key.split("/")[:-1]:
        name, equals, value = part.partition("=")
        if not equals:
            continue
        if unquote(name) in texts:
            raise ConvertFailed(f"the folder names of {key} contain the partition column {unquote(name)!r} twice")
        texts[unquote(name)] = None if value in (_NULL, "") else unquote(value)
    return texts


def _partition_columns(
    partition_by: pa.Schema | Sequence[str] | None, keys: Sequence[str], texts: Sequence[dict[str, str | None]]
) -> pa.Schema:
    if isinstance(partition_by, str):
        raise SchemaMismatch(f"partition_by must be a list of columns: [{partition_by!r}]")
    names = (
        list(texts[0])
        if partition_by is None
        else partition_by.names
        if isinstance(partition_by, pa.Schema)
        else list(partition_by)
    )
    for key, text in zip(keys, texts, strict=True):
        if list(text) != names:
            raise ConvertFailed(
                f"the folder names of {key} contain the partition columns {list(text)}, not {names}: all files "
                "of a table must be partitioned alike"
            )
    columns = (
        partition_by
        if isinstance(partition_by, pa.Schema)
        else pa.schema([(name, _inferred([text[name] for text in texts])) for name in names])
    )
    for name in names:
        parse(pa.array([text[name] for text in texts], pa.string()), columns.field(name).type, name)
    return columns


def _inferred(values: Sequence[str | None]) -> pa.DataType:
    present = [value for value in values if value is not None]
    if present and all(_INTEGER.fullmatch(value) for value in present):
        return pa.int64()
    if present and all(_DATE.fullmatch(value) for value in present):
        return pa.date32()
    return pa.string()


def _data_schema(keys: Sequence[str], schemas: Iterable[pa.Schema]) -> pa.Schema:
    struct: StructType | None = None
    for key, schema in zip(keys, schemas, strict=True):
        try:
            file_struct = schema_from_arrow(pa.schema([child.with_nullable(True) for child in schema]))
            struct = file_struct if struct is None else added(struct, file_struct)
        except SchemaMismatch as error:
            raise SchemaMismatch(f"the files' schemas do not fit together, at {key}: {error}") from None
    if struct is None:
        raise ConvertFailed(
            "there are no Parquet files from which to take the columns: to create an empty table, use DeltaTable.create"
        )
    return struct.to_arrow()


def _check_readable(kind: pa.DataType, subject: str) -> None:
    """Raise ConvertFailed for a type that Spark cannot read from a file of a table, at any level."""
    for leaf in leaf_types(kind):
        if pa.types.is_timestamp(leaf) and leaf.unit == "ns":
            raise ConvertFailed(
                f"{subject} has nanoseconds, which Delta does not have and Spark cannot read: write the file anew with "
                "microseconds, such as by pandas' to_parquet(…, coerce_timestamps='us'), or append its rows to a table"
            )
        if pa.types.is_float16(leaf):
            raise ConvertFailed(
                f"{subject} has half floats (float16), which Spark cannot read: write the file anew with float32, or "
                "append its rows to a table"
            )


@dataclass(frozen=True, slots=True)
class _SchemaTask:
    store: ObjectStore
    keys: Sequence[str]
    sizes: Sequence[int]

    def __call__(self, index: int) -> pa.Schema:
        source = open_object(self.store, self.keys[index], self.sizes[index])
        try:
            file = pq.ParquetFile(source, coerce_int96_timestamp_unit=INT96_UNIT)
        except (pa.ArrowException, OSError) as error:
            raise CorruptDataFile(
                f"{self.keys[index]} is not a Parquet file ({error}): remove or repair it first"
            ) from None
        for child in file.schema_arrow:
            _check_readable(child.type, f"the column {child.name!r} of {self.keys[index]}")
        return with_instants(pa.schema([pa.field(child.name, child.type) for child in file.schema_arrow]), file.schema)


@dataclass(frozen=True, slots=True)
class _StatisticsTask:
    files: DataFiles
    leaves: Sequence[Leaf]

    def __call__(self, index: int) -> tuple[str, int]:
        collector = StatisticsCollector(self.leaves)
        for rows in self.files.batches(index):
            collector.update(rows)
        return collector.to_json(), collector.rows


def _milliseconds(moment: dt.datetime) -> int:
    return int(moment.timestamp() * 1000)
