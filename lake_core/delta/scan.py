"""Reading rows: files chosen by the log, columns by need, partition values from the log alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lake_core.delta.column_mapping import renamed_field
from lake_core.delta.conform import conform_out, relabelled
from lake_core.delta.deletion_vector import deleted_rows
from lake_core.delta.errors import CorruptDataFile, CorruptDeletionVector, DataFileMissing, SchemaMismatch
from lake_core.delta.numpy_arrays import mask
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
    """path, partitionValues, size, and where present stats and deletionVector of the files to read."""
    read_schema: pa.Schema
    """Columns to read, those of the predicate included."""


def plan_scan(snapshot: Snapshot, columns_: Sequence[str] | None, where: str | None) -> Scan:
    """Choose files by partition values and statistics. Raises SchemaMismatch for unknown columns, InvalidExpression."""
    whole = snapshot.metadata.arrow_schema
    schema = whole if columns_ is None else _chosen(whole, columns_)
    predicate = None if where is None else parse_predicate(where, whole)
    named = set() if predicate is None else {column.path[0] for column in columns(predicate)}
    # Statistics are by far the largest column: partition values alone often decide.
    optional = {"stats": not named <= set(snapshot.partition_columns), "deletionVector": snapshot.has_deletion_vectors()}
    files = snapshot.files(["path", "partitionValues", "size", *(name for name, needed in optional.items() if needed)])
    read = schema
    if predicate is not None:
        files = files.filter(mask(skip(files, predicate, snapshot.metadata)))
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
    """Of the rows returned, partition columns included."""
    physical: pa.Schema
    """The same columns under the names that data files have for them."""
    names_by_id: Mapping[int, str] = field(default_factory=dict)
    """Physical names by field id, where files are read by id."""
    deleted: Sequence[npt.NDArray[np.int64] | None] = ()
    """The rows of each file that its deletion vector takes out; empty if no file has one."""
    predicate: Predicate | None = None
    """Keep only the rows for which it is true."""

    def __iter__(self) -> Iterator[pa.Table]:
        return map(self.read, range(len(self.keys)))

    def read(self, index: int) -> pa.Table:
        """The rows of one file. Raises DataFileMissing, CorruptDataFile and the store's errors."""
        partition_values = {name: self.partitions[name][index] for name in self.partitions.column_names}
        chosen = [number for number, child in enumerate(self.schema) if child.name not in partition_values]
        data, physical = (pa.schema([schema.field(number) for number in chosen]) for schema in (self.schema, self.physical))
        rows, count = self._read_parquet(index, physical)
        conformed = relabelled(conform_out(rows, physical), data)
        columns_ = [
            pa.chunked_array([pa.repeat(partition_values[child.name], count)]) if child.name in partition_values else conformed[child.name]
            for child in self.schema
        ]
        # Without columns a table has no rows to count: one that carries them is dropped again last.
        table = pa.Table.from_arrays(columns_, schema=self.schema) if columns_ else pa.table({"\x00rows": pa.nulls(count)})
        gone = self.deleted[index] if self.deleted else None
        if gone is not None:
            if len(gone) and gone[-1] >= count:
                raise CorruptDeletionVector(f"the deletion vector of {self.keys[index]} names row {gone[-1]} of {count}")
            table = table.filter(mask(np.isin(np.arange(count), gone, invert=True)))
        return (table if self.predicate is None else table.filter(to_arrow(self.predicate))).select(self.schema.names)

    def _read_parquet(self, index: int, wanted: pa.Schema) -> tuple[pa.Table, int]:
        key = self.keys[index]
        try:
            file = pq.ParquetFile(
                open_object(self.store, key, self.sizes[index]),
                coerce_int96_timestamp_unit="us",
                pre_buffer=True,
                page_checksum_verification=True,
            )
            count = file.metadata.num_rows
            own = file.schema_arrow
            named = pa.schema([renamed_field(child, self.names_by_id) for child in own]) if self.names_by_id else own
            folded = {child.name.lower() for child in wanted}
            names = [old.name for old, new in zip(own, named, strict=True) if new.name.lower() in folded]
            rows = file.read(columns=names, use_threads=False)
        except NotFound:
            raise data_file_missing(self.version, key) from None
        except (pa.ArrowException, OSError) as error:
            raise CorruptDataFile(f"data file {key} cannot be read as Parquet: {error}. Restore it from a backup") from None
        if not rows.num_columns:
            # A file may lack every wanted column: its rows count all the same.
            return pa.table({"\x00rows": pa.nulls(count)}), count
        return relabelled(rows, pa.schema([named.field(own.get_field_index(name)) for name in rows.column_names])), count


def data_file_missing(version: int, what: str) -> DataFileMissing:
    """The error for a data file that the log names and the store lacks."""
    return DataFileMissing(
        f"data file {what} of version {version} is gone: it was vacuumed while this reader held an old version, or deleted by hand. "
        f"Refresh the table; if the latest version misses it too, restore the file from a backup"
    )


def open_data_files(scan: Scan, rows: Sequence[int] | None = None, predicate: Predicate | None = None) -> DataFiles:
    """The files of a scan (or those with these row numbers in `scan.files`), ready to be read."""
    files = scan.files if rows is None else scan.files.take(pa.array(rows, pa.int64()))
    store = scan.snapshot.store
    partition_columns = [name for name in scan.snapshot.partition_columns if name in scan.read_schema.names]
    metadata = scan.snapshot.metadata
    partitions = partition_table(files, metadata, partition_columns)
    mapping = metadata.column_mapping
    return DataFiles(
        store,
        scan.snapshot.version,
        data_keys(files["path"], store).to_pylist(),
        files["size"].to_pylist(),
        partitions,
        scan.read_schema,
        mapping.physical_schema(scan.read_schema.names).to_arrow(),
        mapping.names_by_id(),
        _deleted(files, store),
        predicate,
    )


def _deleted(files: pa.Table, store: ObjectStore) -> list[npt.NDArray[np.int64] | None]:
    if "deletionVector" not in files.column_names or files["deletionVector"].null_count == len(files):
        return []
    return [None if vector is None else deleted_rows(store, vector) for vector in files["deletionVector"].to_pylist()]


def read_rows(scan: Scan) -> pa.Table:
    """The rows of a scan as one table. Raises DataFileMissing, CorruptDataFile, PathOutsideTable and the store's errors."""
    files = open_data_files(scan, predicate=scan.predicate)
    with ThreadPoolExecutor(_READERS) as pool:
        tables = [table.select(scan.schema.names) for table in pool.map(files.read, range(len(files.keys)))]
    if not scan.schema.names:
        return pa.table({"\x00rows": pa.nulls(sum(table.num_rows for table in tables))}).select([])
    return pa.concat_tables(tables) if tables else scan.schema.empty_table()


def _chosen(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    if isinstance(names, str):
        raise SchemaMismatch(f"columns takes a list of names: [{names!r}]")
    found = [_field(schema, name) for name in names]
    if len({child.name for child in found}) < len(found):
        raise SchemaMismatch(f"a column is asked for twice: {list(names)}")
    return pa.schema(found)


def _field(schema: pa.Schema, name: str) -> pa.Field:
    folded = [child for child in schema if isinstance(name, str) and child.name.lower() == name.lower()]
    found = next((child for child in folded if child.name == name), None) or next(iter(folded), None)
    if found is None:
        raise SchemaMismatch(f"no column {name!r} in the table; there are {', '.join(schema.names)}")
    return found
