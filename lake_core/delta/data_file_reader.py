"""Reading data files: the rows of each in the table's columns, without those that are deleted or do not match."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lake_core.arrow_scalar import scalar
from lake_core.delta.column_mapping import renamed_field
from lake_core.delta.conform import conform_out, relabelled
from lake_core.delta.errors import CorruptDataFile, CorruptDeletionVector, DataFileMissing
from lake_core.delta.numpy_arrays import empty_table, integers, mask, numbers
from lake_core.delta.row_groups import RowGroup, encoded_texts, matching_row_groups, row_groups
from lake_core.delta.row_tracking import ROW_COMMIT_VERSION, ROW_ID_FIELDS
from lake_core.errors import NotFound
from lake_core.expression import Predicate, columns, matching
from lake_core.hybrid_calendar import HybridCalendar
from lake_core.store.object_file import is_read_at_once, open_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lake_core.store import ObjectStore

_BATCH_ROWS = 1 << 16
_ROW_IDS = frozenset(child.name for child in ROW_ID_FIELDS)
POSITION = "\x00position"
"""A name for `DataFiles.position` that no column of a table has."""


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
    row_ids: tuple[Sequence[int | None], Sequence[int | None]] | None = None
    """The base row id and the default row commit version of each file, where the schema has ROW_ID_FIELDS."""

    def __iter__(self) -> Iterator[pa.Table]:
        return map(self.read, range(len(self.keys)))

    def read(self, index: int) -> pa.Table:
        """Read the rows of one file.

        Raises DataFileMissing, CorruptDataFile, CorruptDeletionVector and the store's errors.
        """
        return self.open(index).read()

    def batches(self, index: int) -> Iterator[pa.Table]:
        """Yield the rows of one file in their order, some tens of thousands at a time.

        Memory holds one such batch, so the file may have any size. Raises what `read` raises.
        """
        return self.open(index).batches()

    def open(self, index: int) -> OpenDataFile:
        """Open a file. Raises what `read` raises."""
        source = self.source(index)
        with self.telling(index):
            parquet = _reader(source)
        gone = self.deleted[index] if self.deleted else None
        if gone is not None and len(gone) and gone[-1] >= parquet.metadata.num_rows:
            raise CorruptDeletionVector(
                f"the deletion vector of {self.keys[index]} names row {gone[-1]} of {parquet.metadata.num_rows}. "
                "Restore the table's log"
            )
        return OpenDataFile(self, index, source, parquet, self._chosen_groups(index, parquet.metadata))

    def source(self, index: int) -> pa.NativeFile:
        """Open the bytes of a file. Raises DataFileMissing and the store's errors."""
        with self.telling(index):
            return open_object(self.elsewhere.get(index, self.store), self.keys[index], self.sizes[index])

    def _chosen_groups(self, index: int, metadata: pq.FileMetaData) -> list[RowGroup]:
        groups = self._matching_groups(metadata)
        only = self.only[index] if self.only else None
        return groups if only is None else [group for group in groups if len(_within(only, group.first, group.rows))]

    def _matching_groups(self, metadata: pq.FileMetaData) -> list[RowGroup]:
        if self.predicate is None or self.names_by_id:
            return row_groups(metadata)
        physical_paths = {column.path: self._physical_path(column.path) for column in columns(self.predicate)}
        return matching_row_groups(metadata, self.predicate, physical_paths)

    def _physical_path(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return the path that data files have for a column of the table."""
        kind, physical, found = pa.struct(list(self.schema)), pa.struct(list(self.physical)), []
        for name in path:
            position = kind.get_field_index(name)
            found.append(physical.field(position).name)
            kind, physical = kind.field(position).type, physical.field(position).type
        return tuple(found)

    def only_columns(self, names: Sequence[str]) -> DataFiles:
        """Return the files with some of the columns, and all of their rows."""
        schema, physical = self._fields(names)
        return replace(self, schema=schema, physical=physical, predicate=None, deleted=(), only=(), position=None)

    def stored_names(self, file_schema: pa.Schema) -> list[str]:
        """Return the names that a file has for those of the columns that it has."""
        folded = {child.name.lower() for child in self._data_fields()[1]}
        return [
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
        return self._fields([name for name in self.schema.names if name not in self.partitions.column_names])

    def _fields(self, names: Sequence[str]) -> tuple[pa.Schema, pa.Schema]:
        """Return some of the columns, under the table's names and under physical ones."""
        numbers = [self.schema.get_field_index(name) for name in names]
        schema, physical = (
            pa.schema([schema.field(number) for number in numbers]) for schema in (self.schema, self.physical)
        )
        return schema, physical

    def finished(self, index: int, rows: pa.Table, first: int, count: int) -> pa.Table:
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
            elif child.name in _ROW_IDS and self.row_ids is not None:
                arrays.append(pc.coalesce(conformed[child.name], self._default_ids(child.name, index, first, count)))
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
            table = _chosen_rows(table, keep)
        return (table if self.predicate is None else matching(table, self.predicate)).select(names)

    def _default_ids(self, name: str, index: int, first: int, count: int) -> pa.Array:
        """Return the ids, or the versions, of rows that have none of their own."""
        assert self.row_ids is not None
        bases, versions = self.row_ids
        base, version = bases[index], versions[index]
        if name == ROW_COMMIT_VERSION or base is None:
            return pa.repeat(scalar(None if base is None else version, pa.int64()), count)
        return integers(np.arange(base + first, base + first + count, dtype=np.int64))

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


@dataclass(frozen=True, slots=True)
class OpenDataFile:
    """A data file whose footer was read."""

    files: DataFiles
    index: int
    source: pa.NativeFile
    parquet: pq.ParquetFile
    groups: Sequence[RowGroup]
    """The row groups that may hold rows to return."""

    def read(self, *, use_threads: bool = False) -> pa.Table:
        """Read all rows. With `use_threads`, columns are decoded concurrently. Raises what `DataFiles.read` raises."""
        first_columns = self._first_columns()
        if first_columns is None and len(self.groups) == self.parquet.num_row_groups:
            rows = self._decoded(self._names(self.files), use_threads=use_threads)
            return self.files.finished(self.index, rows, 0, self.parquet.metadata.num_rows)
        parts = list(self.parts(use_threads=use_threads))
        return pa.concat_tables(parts) if parts else self._nothing()

    def parts(self, *, use_threads: bool = False) -> Iterator[pa.Table]:
        """Yield the rows of one row group after another, in their order. Raises what `DataFiles.read` raises.

        Columns that are not in the predicate are read only where a row matches.
        """
        first_columns = self._first_columns()
        for group in self.groups:
            yield self._read_group(group, first_columns, use_threads=use_threads)

    def reads(self) -> list[Callable[[], pa.Table]]:
        """Return functions that read all rows, part by part, and that threads may call at the same time."""
        size = self.files.sizes[self.index]
        if len(self.groups) == 1 or size is None or is_read_at_once(size):
            return [partial(self.read, use_threads=True)]
        return [partial(self._read_alone, group) for group in self.groups]

    def _read_alone(self, group: RowGroup) -> pa.Table:
        # A reader of Arrow is not for several threads.
        source = self.files.source(self.index)
        return replace(self, source=source, parquet=_reader(source, self.parquet.metadata), groups=[group]).read()

    def _read_group(self, group: RowGroup, first_columns: DataFiles | None, *, use_threads: bool) -> pa.Table:
        """Read the rows of one row group. Columns that are not among the first ones are read only if a row matches."""
        files = self.files
        if first_columns is None:
            rows = self._decoded(self._names(files), group, use_threads=use_threads)
            return files.finished(self.index, rows, group.first, group.rows)
        rows = self._decoded(self._names(first_columns), group, use_threads=use_threads)
        found = first_columns.finished(self.index, rows, group.first, group.rows)
        if not found.num_rows:
            return self._nothing()
        matched = numbers(found[POSITION]) - group.first
        others = files.only_columns([name for name in files.schema.names if name not in first_columns.schema.names])
        rows = self._chosen(self._names(others), group, matched, use_threads=use_threads)
        rest = others.finished(self.index, rows, 0, len(matched))
        columns_found = dict(zip(found.column_names, found.columns, strict=True)) | dict(
            zip(rest.column_names, rest.columns, strict=True)
        )
        if files.position is not None:
            columns_found[files.position] = columns_found[POSITION]
        schema = self._nothing().schema
        return pa.Table.from_arrays([columns_found[name] for name in schema.names], schema=schema)

    def _chosen(
        self, names: list[str], group: RowGroup, chosen: npt.NDArray[np.int64], *, use_threads: bool
    ) -> pa.Table:
        """Decode columns of some rows of a row group."""
        if len(chosen) == group.rows:
            return self._decoded(names, group, use_threads=use_threads)
        # Texts that are left out need not be made.
        encoded = encoded_texts(self.parquet.metadata, group, names)
        reader = replace(self, parquet=_reader(self.source, self.parquet.metadata, encoded)) if encoded else self
        keep = np.zeros(group.rows, np.bool_)
        keep[chosen] = True
        rows = reader._decoded(names, group, use_threads=use_threads).filter(mask(keep))
        for name in encoded:
            position = rows.schema.get_field_index(name)
            field = rows.schema.field(position)
            # The field keeps its metadata, in which the id of the column may be.
            texts = field.with_type(field.type.value_type)
            rows = rows.set_column(position, texts, rows.column(position).cast(texts.type))
        return rows

    def batches(self) -> Iterator[pa.Table]:
        """Yield the rows in their order, some tens of thousands at a time. Raises what `DataFiles.read` raises."""
        names = self._names(self.files)
        for group in self.groups:
            stop = group.first + group.rows
            if not names:
                for first in range(group.first, stop, _BATCH_ROWS):
                    yield self.files.finished(self.index, pa.table({}), first, min(_BATCH_ROWS, stop - first))
                continue
            first = group.first
            # Read one row group after another, because reading ahead would keep all of them in memory.
            batches = self.parquet.iter_batches(
                _BATCH_ROWS, row_groups=[group.number], columns=names, use_threads=False
            )
            while True:
                with self.files.telling(self.index):
                    batch = next(batches, None)
                if batch is None:
                    break
                rows = _in_gregorian(pa.Table.from_batches([batch]), self.parquet)
                yield self.files.finished(self.index, rows, first, batch.num_rows)
                first += batch.num_rows
            if first != stop:
                raise CorruptDataFile(
                    f"data file {self.files.keys[self.index]} holds {first - group.first} rows instead of {group.rows} "
                    f"in row group {group.number}: restore it from a backup"
                )

    def _first_columns(self) -> DataFiles | None:
        """Return the files with the columns of the predicate alone, if there are others, which can wait."""
        files = self.files
        if files.predicate is None:
            return None
        # The ids of rows follow from their places in the file.
        named = {column.path[0] for column in columns(files.predicate)} | _ROW_IDS
        first_columns = replace(
            files.only_columns([name for name in files.schema.names if name in named]),
            predicate=files.predicate,
            deleted=files.deleted,
            only=files.only,
            position=POSITION,
        )
        first_names = self._names(first_columns)
        return first_columns if first_names and len(first_names) < len(self._names(files)) else None

    def _names(self, files: DataFiles) -> list[str]:
        """Return the names of the columns to decode."""
        return files.stored_names(self.parquet.schema_arrow)

    def _decoded(self, names: list[str], group: RowGroup | None = None, *, use_threads: bool) -> pa.Table:
        with self.files.telling(self.index):
            rows = (
                self.parquet.read(columns=names, use_threads=use_threads)
                if group is None
                else self.parquet.read_row_group(group.number, columns=names, use_threads=use_threads)
            )
            return _in_gregorian(rows, self.parquet)

    def _nothing(self) -> pa.Table:
        schema = self.files.schema
        if self.files.position is not None:
            schema = schema.append(pa.field(self.files.position, pa.int64()))
        return empty_table(schema)


def _reader(
    source: pa.NativeFile, metadata: pq.FileMetaData | None = None, dictionaries: Sequence[str] = ()
) -> pq.ParquetFile:
    """Return a reader of a file, which reads the footer unless it is given.

    Texts of the columns `dictionaries` are returned as indexes of a dictionary.
    """
    return pq.ParquetFile(
        source,
        metadata=metadata,
        read_dictionary=list(dictionaries),
        coerce_int96_timestamp_unit="us",
        # Arrow reads a local file by itself, and faster without.
        pre_buffer=isinstance(source, pa.PythonFile),
        page_checksum_verification=True,
    )


def _in_gregorian(rows: pa.Table, file: pq.ParquetFile) -> pa.Table:
    """Return rows of a file with dates and times as Spark reads them. Old writers stored others than they meant."""
    calendar = HybridCalendar.of(file.metadata.metadata)
    return rows if calendar is None else calendar.in_gregorian(rows, file.schema)


def _chosen_rows(table: pa.Table, keep: npt.NDArray[np.bool_]) -> pa.Table:
    """Return the rows of a table where `keep` is true."""
    chosen = mask(keep)
    if 2 * np.count_nonzero(keep) < len(keep):
        return table.filter(chosen)
    # Arrow filters a table by the numbers of its rows, which takes longer than a mask if most of them stay.
    return pa.Table.from_arrays([column.filter(chosen) for column in table.columns], schema=table.schema)


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
