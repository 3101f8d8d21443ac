"""Reads of rows. The log selects the files and has the partition values, and only the needed columns are read."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lake_core import runtime
from lake_core.clock import now_ms, system_clock
from lake_core.delta.column_mapping import renamed_field
from lake_core.delta.conform import conform_out, relabelled
from lake_core.delta.deletion_vector import deleted_rows
from lake_core.delta.errors import CorruptDataFile, CorruptDeletionVector, DataFileMissing, SchemaMismatch
from lake_core.delta.numpy_arrays import integers, mask
from lake_core.delta.path import locate_all
from lake_core.delta.skipping import matching_partitions, partition_filter, partition_table, skip
from lake_core.errors import NotFound
from lake_core.expression import TRUE, Predicate, columns, matching, parse_predicate
from lake_core.hybrid_calendar import HybridCalendar
from lake_core.store.object_file import open_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lake_core.delta.snapshot import Snapshot
    from lake_core.store import ObjectStore

_READERS = 4
_BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class Scan:
    """A read of a snapshot: the files that may contain matching rows, and how to read each."""

    snapshot: Snapshot
    schema: pa.Schema
    """The schema of the rows, with the columns in the requested order."""
    predicate: Predicate | None
    files: pa.Table
    """path, partitionValues, size, and where present stats and deletionVector of the files to read."""
    read_schema: pa.Schema
    """Columns to read, those of the predicate included."""

    @property
    def condition(self) -> Predicate:
        """Return the condition that is true for the rows of the scan: the predicate, or TRUE without one."""
        return TRUE if self.predicate is None else self.predicate


def plan_read(snapshot: Snapshot, names: Sequence[str] | None, where: str | Predicate | None) -> Scan:
    """Plan as `plan_scan` for rows that the caller gets. In a lake, the session records that they were read."""
    snapshot.store.note_scan()
    return plan_scan(snapshot, names, where)


def plan_scan(snapshot: Snapshot, names: Sequence[str] | None, where: str | Predicate | None) -> Scan:
    """Select files by partition values and statistics. Raises SchemaMismatch for unknown columns, InvalidExpression."""
    whole = snapshot.metadata.arrow_schema
    schema = whole if names is None else chosen_columns(whole, names)
    predicate = parse_predicate(where, whole, now=now_ms(system_clock)) if isinstance(where, str) else where
    named = set() if predicate is None else {column.path[0] for column in columns(predicate)}
    # Statistics are by far the largest column, and partition values are often enough.
    stats = [] if named <= set(snapshot.partition_columns) else ["stats"]
    only = None if predicate is None else partition_filter(predicate, snapshot.metadata)
    files = snapshot.files([*snapshot.identity, "partitionValues", "size", *stats], only)
    read = schema
    if predicate is not None:
        files = files.filter(mask(skip(files, predicate, snapshot.metadata)))
        read = pa.schema(
            [*schema, *(child for child in whole if child.name in named and child.name not in schema.names)]
        )
    return Scan(snapshot, schema, predicate, files, read)


def files_of_partitions(snapshot: Snapshot, fields: Sequence[str], predicate: Predicate | None) -> pa.Table:
    """Return file actions, with these fields, of the partitions that satisfy a predicate over partition columns.

    None returns all of them.
    """
    names = [*snapshot.identity, "partitionValues", *fields]
    if predicate is None:
        return snapshot.files(names)
    files = snapshot.files(names, partition_filter(predicate, snapshot.metadata))
    return files.filter(mask(matching_partitions(files, predicate, snapshot.metadata)))


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
    """The rows of each file that its deletion vector deletes, ascending. Empty if no file has one."""
    predicate: Predicate | None = None
    """The predicate that is true for the rows to return."""
    elsewhere: Mapping[int, ObjectStore] = field(default_factory=dict)
    """The stores of the files outside of the table's root, by the number of the file."""
    only: Sequence[npt.NDArray[np.int64] | None] = ()
    """The only rows of each file to read, in ascending order; empty to read all."""
    by_name: frozenset[str] = frozenset()
    """Columns that no table has, found by their names also where the others are read by id."""
    position: str | None = None
    """A column of this name is put last: the number of each row in its file, from 0."""

    def __iter__(self) -> Iterator[pa.Table]:
        return map(self.read, range(len(self.keys)))

    def read(self, index: int) -> pa.Table:
        """Read the rows of one file.

        Raises DataFileMissing, CorruptDataFile, CorruptDeletionVector and the store's errors.
        """
        with self.telling(index):
            file, names = self._open(index)
            rows = _in_gregorian(file.read(columns=names, use_threads=False), file)
        return self._finished(index, rows, 0, file.metadata.num_rows)

    def batches(self, index: int) -> Iterator[pa.Table]:
        """Yield the rows of one file in their order, some tens of thousands at a time.

        Memory holds one such batch, so the file may have any size. Raises what `read` raises.
        """
        with self.telling(index):
            file, names = self._open(index)
        total, first = file.metadata.num_rows, 0
        if not names:
            yield from (
                self._finished(index, pa.table({}), start, min(_BATCH_ROWS, total - start))
                for start in range(0, total, _BATCH_ROWS)
            )
            return
        for group in range(file.num_row_groups):
            # Read one row group after another, because reading ahead would keep all of them in memory.
            batches = file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=names, use_threads=False)
            while True:
                with self.telling(index):
                    batch = next(batches, None)
                if batch is None:
                    break
                rows = _in_gregorian(pa.Table.from_batches([batch]), file)
                yield self._finished(index, rows, first, batch.num_rows)
                first += batch.num_rows
        if first != total:
            raise CorruptDataFile(
                f"data file {self.keys[index]} holds {first} rows instead of {total}: restore it from a backup"
            )

    def _open(self, index: int) -> tuple[pq.ParquetFile, list[str]]:
        """Open a file. Returns it with the names of the columns to read."""
        file = pq.ParquetFile(
            open_object(self.elsewhere.get(index, self.store), self.keys[index], self.sizes[index]),
            coerce_int96_timestamp_unit="us",
            pre_buffer=True,
            page_checksum_verification=True,
        )
        gone = self.deleted[index] if self.deleted else None
        if gone is not None and len(gone) and gone[-1] >= file.metadata.num_rows:
            raise CorruptDeletionVector(
                f"the deletion vector of {self.keys[index]} names row {gone[-1]} of {file.metadata.num_rows}. "
                "Restore the table's log"
            )
        folded = {child.name.lower() for child in self._data_fields()[1]}
        file_schema = file.schema_arrow
        return file, [
            old.name
            for old, new in zip(file_schema, self._named(file_schema), strict=True)
            if new.name.lower() in folded
        ]

    def _named(self, file_schema: pa.Schema) -> pa.Schema:
        """Return a file's own schema under physical names."""
        if not self.names_by_id:
            return file_schema
        return pa.schema(
            [child if child.name in self.by_name else renamed_field(child, self.names_by_id) for child in file_schema]
        )

    def _data_fields(self) -> tuple[pa.Schema, pa.Schema]:
        """Return the columns that are stored in data files, under the table's names and under physical ones."""
        chosen = [number for number, child in enumerate(self.schema) if child.name not in self.partitions.column_names]
        data, physical = (
            pa.schema([schema.field(number) for number in chosen]) for schema in (self.schema, self.physical)
        )
        return data, physical

    def _finished(self, index: int, rows: pa.Table, first: int, count: int) -> pa.Table:
        """Return a file's rows `first` to `first + count` in the table's columns, without deleted or filtered rows."""
        data, physical = self._data_fields()
        if rows.num_columns:
            file_schema = self._named(rows.schema)
            rows = relabelled(rows, file_schema)
        else:
            # A file may have none of the columns, but its rows count nevertheless.
            rows = pa.table({"\x00rows": pa.nulls(count)})
        conformed = relabelled(conform_out(rows, physical), data)
        arrays = []
        for child in self.schema:
            if child.name in self.partitions.column_names:
                arrays.append(pa.chunked_array([pa.repeat(self.partitions[child.name][index], count)]))
            else:
                arrays.append(conformed[child.name])
        # A table without columns has no number of rows. The extra column is dropped again below.
        table = pa.Table.from_arrays(arrays, schema=self.schema) if arrays else pa.table({"\x00rows": pa.nulls(count)})
        names = self.schema.names
        if self.position is not None:
            table = table.append_column(self.position, integers(np.arange(first, first + count, dtype=np.int64)))
            names = [*names, self.position]
        keep = self._kept(index, first, count)
        if keep is not None:
            table = table.filter(mask(keep))
        return (table if self.predicate is None else matching(table, self.predicate)).select(names)

    def _kept(self, index: int, first: int, count: int) -> npt.NDArray[np.bool_] | None:
        gone = self.deleted[index] if self.deleted else None
        only = self.only[index] if self.only else None
        if gone is None and only is None:
            return None
        keep = np.full(count, only is None)
        if only is not None:
            keep[_within(only, first, count)] = True
        if gone is not None:
            keep[_within(gone, first, count)] = False
        return keep

    @contextmanager
    def telling(self, index: int) -> Iterator[None]:
        """Turn the errors of reading a file into ours."""
        key = self.keys[index]
        try:
            yield
        except NotFound:
            raise data_file_missing(self.version, key) from None
        except (pa.ArrowException, OSError) as error:
            raise CorruptDataFile(
                f"data file {key} cannot be read as Parquet: {error}. Restore it from a backup"
            ) from None


def _in_gregorian(rows: pa.Table, file: pq.ParquetFile) -> pa.Table:
    """Return rows of a file with dates and times as Spark reads them. Old writers stored others than they meant."""
    calendar = HybridCalendar.of(file.metadata.metadata)
    return rows if calendar is None else calendar.in_gregorian(rows, file.schema)


def _within(rows: npt.NDArray[np.int64], first: int, count: int) -> npt.NDArray[np.int64]:
    """Return those of the ascending row numbers that are in [first, first + count), counted from `first`."""
    start, stop = np.searchsorted(rows, [first, first + count])
    return rows[start:stop] - first


def data_file_missing(version: int, what: str) -> DataFileMissing:
    """Return the error for a data file of the log that the store does not have."""
    return DataFileMissing(
        f"data file {what} of version {version} is gone: it was vacuumed while this reader used an old "
        "version, or deleted by hand. Refresh the table; "
        "if the latest version lacks it too, restore the file from a backup"
    )


def open_data_files(scan: Scan, rows: Sequence[int] | None = None, predicate: Predicate | None = None) -> DataFiles:
    """Prepare the files of a scan for reading, or only those with these row numbers in `scan.files`."""
    files = scan.files if rows is None else scan.files.take(integers(np.asarray(rows, np.int64)))
    snapshot, metadata = scan.snapshot, scan.snapshot.metadata
    partition_columns = [name for name in snapshot.partition_columns if name in scan.read_schema.names]
    keys, elsewhere = locate_all(files["path"], snapshot.roots)
    return DataFiles(
        snapshot.data_root,
        snapshot.version,
        keys,
        files["size"].to_pylist(),
        partition_table(files, metadata, partition_columns),
        scan.read_schema,
        metadata.column_mapping.physical_schema(scan.read_schema.names).to_arrow(),
        metadata.column_mapping.names_by_id(),
        deleted_of_files(files, snapshot.roots),
        predicate,
        elsewhere,
    )


def deleted_of_files(files: pa.Table, roots: Sequence[ObjectStore]) -> list[npt.NDArray[np.int64] | None]:
    """Return the rows that the deletion vector of each file action removes; an empty list if none has one."""
    if "deletionVector" not in files.column_names or files["deletionVector"].null_count == len(files):
        return []
    vectors = files["deletionVector"].to_pylist()
    return [None if vector is None else deleted_rows(roots[0], vector, roots[1:]) for vector in vectors]


def stream_rows(scan: Scan) -> pa.RecordBatchReader:
    """Stream the rows of a scan, file by file, a batch at a time.

    Raises what `read_rows` raises, but the errors of a file only when the stream reaches it.
    """
    files = open_data_files(scan, predicate=scan.predicate)

    def batches() -> Iterator[pa.RecordBatch]:
        for index in range(len(files.keys)):
            for table in files.batches(index):
                yield from (batch for batch in table.select(scan.schema.names).to_batches() if batch.num_rows)

    return pa.RecordBatchReader.from_batches(scan.schema, batches())


def read_rows(scan: Scan) -> pa.Table:
    """Read the rows of a scan as one table.

    Raises DataFileMissing, CorruptDataFile, PathOutsideTable and the store's errors.
    """
    files = open_data_files(scan, predicate=scan.predicate)
    with runtime.thread_pool(_READERS) as pool:
        tables = [table.select(scan.schema.names) for table in pool.map(files.read, range(len(files.keys)))]
    if not scan.schema.names:
        return pa.table({"\x00rows": pa.nulls(sum(table.num_rows for table in tables))}).select([])
    return pa.concat_tables(tables) if tables else scan.schema.empty_table()


def chosen_columns(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Return the columns of these names, in this order, ignoring case. Raises SchemaMismatch."""
    if isinstance(names, str):
        raise SchemaMismatch(f"columns must be a list of names: [{names!r}]")
    fields = [_field(schema, name) for name in names]
    if len({child.name for child in fields}) < len(fields):
        raise SchemaMismatch(f"a column is requested twice: {list(names)}")
    return pa.schema(fields)


def _field(schema: pa.Schema, name: str) -> pa.Field:
    folded = [child for child in schema if isinstance(name, str) and child.name.lower() == name.lower()]
    chosen = next((child for child in folded if child.name == name), None) or next(iter(folded), None)
    if chosen is None:
        raise SchemaMismatch(f"there is no column {name!r} in the table; the columns are {', '.join(schema.names)}")
    return chosen
