"""`pyarrow.dataset.Dataset`, which DuckDB, polars and Arrow read in parallel, with filters and columns pushed down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from lake_core import runtime
from lake_core.delta.data_file_reader import DataFiles
from lake_core.delta.file_care import may_hide_nan, needs_care
from lake_core.delta.operations.rewrite import on_partitions_only
from lake_core.delta.scan import Scan, open_data_files, plan_read
from lake_core.expression import columns, is_pushable, to_arrow
from lake_core.parquet_footer import read_tail, without_float_bounds
from lake_core.store.object_file import open_object
from lake_orch.assets.tables.data.handler import TableData, TableSlice

if TYPE_CHECKING:
    import pyarrow.dataset as ds

_READERS = 4


class ArrowDatasets:
    """`pyarrow.dataset.Dataset`. A returned one is written as a stream.

    A loaded one reads the table's files when it is scanned. Arrow's reader does not know the rules of Delta, so only
    files whose footers prove that it would read the same rows are left to it. The rows of the others are read into
    memory: those with deletion vectors, columns of other names or types, or dates of the hybrid calendar. So are all
    rows of a table with column mapping.
    """

    supported_types = ("pyarrow.dataset.Dataset",)

    def to_rows(self, value: Any) -> TableData:
        """Return a stream of the rows that the dataset scans."""
        return value.scanner().to_reader()

    def from_table(self, part: TableSlice, annotation: type) -> Any:
        """Return a dataset over the table's files, and over rows in memory for files that need care."""
        import pyarrow.dataset as ds

        return _dataset_of_files(part) or ds.dataset(part.to_arrow())


def _dataset_of_files(part: TableSlice) -> ds.Dataset | None:
    """Open the slice as a dataset over the table's files. Return None if none of them can be left to Arrow's reader."""
    import pyarrow.dataset as ds

    table = part.table
    if table is None or table.metadata.column_mapping.mode != "none":
        return None
    # The columns of `where` are read as well, so that Arrow can filter by them.
    scan = plan_read(table.snapshot, None, part.where)
    files = open_data_files(scan)
    exact = scan.predicate is None or on_partitions_only(scan.predicate, table.metadata)
    schema = part.schema
    if scan.predicate is not None and not exact:
        named = {column.path[0] for column in columns(scan.predicate)}
        if not is_pushable(scan.predicate) or not named <= set(schema.names):
            return None
    served = _Files(files)
    opener = _Fragments(files, schema, _parquet(), served, pafs.PyFileSystem(served))
    fragments = files.store.gather(*(partial(opener, index) for index in range(len(files.keys))))
    careful = [index for index, fragment in enumerate(fragments) if fragment is None]
    plain: ds.Dataset = ds.FileSystemDataset(
        [fragment for fragment in fragments if fragment is not None],
        schema,
        opener.format,
        opener.filesystem,
    )
    dataset = ds.dataset([plain, ds.dataset(_read(scan, careful).select(schema.names))]) if careful else plain
    return dataset if scan.predicate is None or exact else dataset.filter(to_arrow(scan.predicate))


def _read(scan: Scan, numbers: Sequence[int]) -> pa.Table:
    """Read the matching rows of files of a scan by the reader of this package."""
    files = open_data_files(scan, numbers, scan.predicate)
    with runtime.thread_pool(_READERS) as pool:
        return pa.concat_tables(pool.map(files.read, range(len(numbers))))


def _parquet() -> Any:
    import pyarrow.dataset as ds

    # Times that are stored as int96, as Spark does it by default, have years that nanoseconds cannot hold.
    return ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")


@dataclass(frozen=True, slots=True)
class _Fragments:
    """Opens files for Arrow's reader."""

    files: DataFiles
    schema: pa.Schema
    """The columns that a query may use."""
    format: ds.ParquetFileFormat
    served: _Files
    filesystem: pafs.FileSystem

    def __call__(self, index: int) -> Any:
        """Return a file as a fragment of a dataset, or None if Arrow's reader could return other rows."""
        files = self.files
        if files.deleted and files.deleted[index] is not None:
            return None
        with files.telling(index):
            fragment = self._fragment(index)
            # The footer is read here, and kept for the scan.
            if may_hide_nan(fragment.metadata, files.keys[index]):
                self.served.leave_out_float_bounds(index)
                fragment = self._fragment(index)
            metadata, file_schema = fragment.metadata, fragment.physical_schema
        partitions = set(files.partitions.column_names)
        columns = [child for child in self.schema if child.name not in partitions]
        return None if needs_care(metadata, files.keys[index], file_schema, columns) else fragment

    def _fragment(self, index: int) -> Any:
        return self.format.make_fragment(str(index), self.filesystem, self._guarantee(index))

    def _guarantee(self, index: int) -> pc.Expression:
        partitions = self.files.partitions
        return _all_of(
            pc.field(name).is_null() if not (value := partitions[name][index]).is_valid else pc.field(name) == value
            for name in partitions.column_names
        )


def _all_of(parts: Iterable[pc.Expression]) -> pc.Expression:
    whole = None
    for part in parts:
        whole = part if whole is None else whole & part
    return pc.scalar(True) if whole is None else whole


class _Files(pafs.FileSystemHandler):  # type: ignore[misc]
    """A filesystem for Arrow's scanner, over a table's data files in any store. Their paths are their numbers."""

    def __init__(self, files: DataFiles) -> None:
        self._files = files
        self._tails: dict[int, bytes] = {}
        """The ends of files that are served with another footer."""

    def leave_out_float_bounds(self, index: int) -> None:
        """Serve a file without the bounds of its floating-point columns.

        Arrow takes bounds to hold for all rows, and would drop those with NaN. Raises OSError for a damaged footer;
        NotFound and the store's other errors.
        """
        store = self._files.elsewhere.get(index, self._files.store)
        key, size = self._files.keys[index], self._files.sizes[index]
        tail = read_tail(store, key, store.head(key).size if size is None else size)
        self._tails[index] = without_float_bounds(tail)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Files) and other._files is self._files

    def __ne__(self, other: object) -> bool:
        return not self == other

    def get_type_name(self) -> str:
        return "lake"

    def open_input_file(self, path: str) -> pa.NativeFile:
        index = int(path)
        store = self._files.elsewhere.get(index, self._files.store)
        return open_object(store, self._files.keys[index], self._files.sizes[index], self._tails.get(index, b""))

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def get_file_info(self, paths: list[str]) -> list[pafs.FileInfo]:
        return [pafs.FileInfo(path, pafs.FileType.File, size=self._files.sizes[int(path)] or -1) for path in paths]

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        raise NotImplementedError

    def create_dir(self, path: str, recursive: bool) -> None:
        raise NotImplementedError

    def delete_dir(self, path: str) -> None:
        raise NotImplementedError

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        raise NotImplementedError

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def delete_file(self, path: str) -> None:
        raise NotImplementedError

    def move(self, src: str, dest: str) -> None:
        raise NotImplementedError

    def copy_file(self, src: str, dest: str) -> None:
        raise NotImplementedError

    def open_output_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        raise NotImplementedError

    def open_append_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        raise NotImplementedError
