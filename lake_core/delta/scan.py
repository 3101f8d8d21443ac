"""Reading rows: files chosen by the log, columns by need, partition values from the log alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from lake_core.delta.conform import conform_out
from lake_core.delta.errors import CorruptDataFile, DataFileMissing, SchemaMismatch
from lake_core.delta.path import data_key
from lake_core.delta.skipping import partition_table, skip
from lake_core.delta.snapshot import Snapshot
from lake_core.errors import NotFound
from lake_core.expression import Predicate, columns, parse_predicate, to_arrow
from lake_core.store.object_file import open_object

_READERS = 4


@dataclass(frozen=True, slots=True)
class Scan:
    """What a read of a snapshot needs: the files that may hold matching rows, and what to do with each."""

    snapshot: Snapshot
    schema: pa.Schema
    """Of the rows returned, columns in the order asked for."""
    predicate: Predicate | None
    files: pa.Table
    """path, partitionValues, size, stats of the files to read."""
    read_schema: pa.Schema
    """Columns to read, those of the predicate included."""


def plan_scan(snapshot: Snapshot, columns_: Sequence[str] | None, where: str | None) -> Scan:
    """Choose files by partition values and statistics. Raises SchemaMismatch for unknown columns, InvalidExpression."""
    whole = snapshot.metadata.schema.to_arrow()
    schema = whole if columns_ is None else pa.schema([_field(whole, name) for name in columns_])
    predicate = None if where is None else parse_predicate(where, whole)
    files = snapshot.files(["path", "partitionValues", "size", "stats"] if predicate is not None else ["path", "partitionValues", "size"])
    read = schema
    if predicate is not None:
        files = files.filter(pa.array(skip(files, predicate, snapshot.partition_columns, whole)))
        named = {column.path[0] for column in columns(predicate)}
        read = pa.schema([*schema, *(child for child in whole if child.name in named and child.name not in schema.names)])
    return Scan(snapshot, schema, predicate, files, read)


def read_rows(scan: Scan) -> pa.Table:
    """The rows of a scan as one table. Raises DataFileMissing, CorruptDataFile, PathOutsideTable and the store's errors."""
    tables = list(_read_files(scan))
    return pa.concat_tables(tables) if tables else scan.schema.empty_table()


def _read_files(scan: Scan) -> Iterator[pa.Table]:
    partition_columns = [name for name in scan.snapshot.partition_columns if name in scan.read_schema.names]
    partitions = partition_table(scan.files, partition_columns, scan.read_schema)
    keys = [data_key(path, scan.snapshot.store) for path in scan.files["path"].to_pylist()]
    sizes = scan.files["size"].to_pylist()

    def read(index: int) -> pa.Table:
        values = {name: partitions[name][index] for name in partition_columns}
        return _read_file(scan, keys[index], sizes[index], values)

    with ThreadPoolExecutor(_READERS) as pool:
        yield from pool.map(read, range(len(keys)))


def _read_file(scan: Scan, key: str, size: int | None, partition_values: dict[str, pa.Scalar]) -> pa.Table:
    data = pa.schema([child for child in scan.read_schema if child.name not in partition_values])
    try:
        file = pq.ParquetFile(open_object(scan.snapshot.store, key, size), coerce_int96_timestamp_unit="us", pre_buffer=True)
        wanted = {name.lower() for name in data.names}
        rows = file.read(columns=[name for name in file.schema_arrow.names if name.lower() in wanted], use_threads=False)
        count = file.metadata.num_rows
    except NotFound:
        raise DataFileMissing(
            f"data file {key} of version {scan.snapshot.version} is gone: it was vacuumed while this reader held an old version, "
            f"or deleted by hand. Refresh the table; if the latest version misses it too, restore the file from a backup"
        ) from None
    except (pa.ArrowException, OSError) as error:
        raise CorruptDataFile(f"data file {key} cannot be read as Parquet: {error}. Restore it from a backup") from None
    if not rows.num_columns:
        rows = pa.table({"\x00rows": pa.nulls(count)})
    conformed = conform_out(rows, data)
    for index, child in enumerate(scan.read_schema):
        if child.name in partition_values:
            repeated = pa.repeat(partition_values[child.name], count)
            conformed = conformed.add_column(index, child, repeated) if conformed.num_columns else pa.table({child.name: repeated}, schema=pa.schema([child]))
    if scan.predicate is not None:
        conformed = conformed.filter(to_arrow(scan.predicate))
    return conformed.select(scan.schema.names)


def _field(schema: pa.Schema, name: str) -> pa.Field:
    found = next((child for child in schema if child.name == name), None) or next((c for c in schema if c.name.lower() == name.lower()), None)
    if found is None:
        raise SchemaMismatch(f"no column {name!r} in the table; there are {', '.join(schema.names)}")
    return found
