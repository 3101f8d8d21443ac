"""Reading rows: files chosen by the log, columns by need, partition values from the log alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from lake_core.delta.conform import conform_out
from lake_core.delta.errors import CorruptDataFile, DataFileMissing, SchemaMismatch
from lake_core.delta.path import data_keys
from lake_core.delta.skipping import partition_table, skip
from lake_core.delta.snapshot import Snapshot
from lake_core.errors import NotFound
from lake_core.expression import Predicate, columns, parse_predicate, to_arrow
from lake_core.store import ObjectStore
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


@dataclass(frozen=True, slots=True)
class DataFiles:
    """Data files to read, each into one table of `schema`. Picklable: Spark's executors read with it as well."""

    store: ObjectStore
    version: int
    """Of the snapshot, for errors."""
    keys: Sequence[str]
    sizes: Sequence[int | None]
    partitions: pa.Table
    """The files' partition values, one row a file."""
    schema: pa.Schema
    predicate: Predicate | None = None
    """Keep only the rows for which it is true."""

    def __iter__(self) -> Iterator[pa.Table]:
        return map(self.read, range(len(self.keys)))

    def read(self, index: int) -> pa.Table:
        """The rows of one file. Raises DataFileMissing, CorruptDataFile and the store's errors."""
        partition_values = {name: self.partitions[name][index] for name in self.partitions.column_names}
        data = pa.schema([child for child in self.schema if child.name not in partition_values])
        rows, count = self._read_parquet(index, {name.lower() for name in data.names})
        conformed = conform_out(rows, data)
        columns_ = [
            pa.chunked_array([pa.repeat(partition_values[child.name], count)]) if child.name in partition_values else conformed[child.name]
            for child in self.schema
        ]
        table = pa.Table.from_arrays(columns_, schema=self.schema)
        return table if self.predicate is None else table.filter(to_arrow(self.predicate))

    def _read_parquet(self, index: int, wanted: set[str]) -> tuple[pa.Table, int]:
        key = self.keys[index]
        try:
            file = pq.ParquetFile(
                open_object(self.store, key, self.sizes[index]),
                coerce_int96_timestamp_unit="us",
                pre_buffer=True,
                page_checksum_verification=True,
            )
            count = file.metadata.num_rows
            rows = file.read(columns=[name for name in file.schema_arrow.names if name.lower() in wanted], use_threads=False)
        except NotFound:
            raise DataFileMissing(
                f"data file {key} of version {self.version} is gone: it was vacuumed while this reader held an old version, "
                f"or deleted by hand. Refresh the table; if the latest version misses it too, restore the file from a backup"
            ) from None
        except (pa.ArrowException, OSError) as error:
            raise CorruptDataFile(f"data file {key} cannot be read as Parquet: {error}. Restore it from a backup") from None
        # A file may lack every wanted column: its rows count all the same.
        return (rows if rows.num_columns else pa.table({"\x00rows": pa.nulls(count)})), count


def open_data_files(scan: Scan, rows: Sequence[int] | None = None, predicate: Predicate | None = None) -> DataFiles:
    """The files of a scan (or those with these row numbers in `scan.files`), ready to be read."""
    files = scan.files if rows is None else scan.files.take(pa.array(rows, pa.int64()))
    store = scan.snapshot.store
    partition_columns = [name for name in scan.snapshot.partition_columns if name in scan.read_schema.names]
    partitions = partition_table(files, partition_columns, scan.read_schema)
    keys = data_keys(files["path"], store).to_pylist()
    return DataFiles(store, scan.snapshot.version, keys, files["size"].to_pylist(), partitions, scan.read_schema, predicate)


def read_rows(scan: Scan) -> pa.Table:
    """The rows of a scan as one table. Raises DataFileMissing, CorruptDataFile, PathOutsideTable and the store's errors."""
    files = open_data_files(scan, predicate=scan.predicate)
    with ThreadPoolExecutor(_READERS) as pool:
        tables = [table.select(scan.schema.names) for table in pool.map(files.read, range(len(files.keys)))]
    return pa.concat_tables(tables) if tables else scan.schema.empty_table()


def _field(schema: pa.Schema, name: str) -> pa.Field:
    found = next((child for child in schema if child.name == name), None) or next(
        (c for c in schema if c.name.lower() == name.lower()), None
    )
    if found is None:
        raise SchemaMismatch(f"no column {name!r} in the table; there are {', '.join(schema.names)}")
    return found
