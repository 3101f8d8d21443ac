"""`pyarrow.dataset.Dataset`, which DuckDB, polars and Arrow read in parallel, with filters and columns pushed down."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from lake_core.delta import DeltaTable
from lake_core.delta.operations.rewrite import on_partitions_only
from lake_core.delta.scan import DataFiles, open_data_files, plan_read
from lake_core.expression import columns, is_pushable, to_arrow
from lake_core.store.object_file import open_object
from lake_orch.tables.data.handler import TableData, TableSlice

if TYPE_CHECKING:
    import pyarrow.dataset as ds


class ArrowDatasets:
    """`pyarrow.dataset.Dataset`. A returned one is written as a stream.

    A loaded one reads the table's files when it is scanned. A table whose files must not be read as they are (deletion
    vectors, column mapping, widened types) is loaded into memory instead.
    """

    supported_types = ("pyarrow.dataset.Dataset",)

    def to_rows(self, value: Any) -> TableData:
        """Return a stream of the rows that the dataset scans."""
        return value.scanner().to_reader()

    def from_table(self, part: TableSlice, annotation: type) -> Any:
        """Return a dataset over the table's files, or over rows in memory if the files cannot be read as they are."""
        import pyarrow.dataset as ds

        return _dataset_of_files(part) or ds.dataset(part.to_arrow())


def _dataset_of_files(part: TableSlice) -> ds.Dataset | None:
    """Open the slice as a dataset over the table's files. Return None if Arrow's reader would return wrong rows."""
    import pyarrow.dataset as ds

    table = part.table
    if table is None or table.metadata.column_mapping.mode != "none" or _widened(table):
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
    if files.deleted:
        return None
    dataset: ds.Dataset = ds.FileSystemDataset(
        _fragments(files), schema, ds.ParquetFileFormat(), pafs.PyFileSystem(_Files(files))
    )
    return dataset if exact or scan.predicate is None else dataset.filter(to_arrow(scan.predicate))


def _widened(table: DeltaTable) -> bool:
    return table.properties.get("delta.enableTypeWidening", "false").lower() == "true"


def _fragments(files: DataFiles) -> list[Any]:
    import pyarrow.dataset as ds

    parquet, system = ds.ParquetFileFormat(), pafs.PyFileSystem(_Files(files))
    fragments = []
    for index in range(len(files.keys)):
        guarantee = _all_of(
            pc.field(name).is_null()
            if not (value := files.partitions[name][index]).is_valid
            else pc.field(name) == value
            for name in files.partitions.column_names
        )
        fragments.append(parquet.make_fragment(str(index), system, guarantee))
    return fragments


def _all_of(parts: Iterable[pc.Expression]) -> pc.Expression:
    whole = None
    for part in parts:
        whole = part if whole is None else whole & part
    return pc.scalar(True) if whole is None else whole


class _Files(pafs.FileSystemHandler):  # type: ignore[misc]
    """A filesystem for Arrow's scanner, over a table's data files in any store. Their paths are their numbers."""

    def __init__(self, files: DataFiles) -> None:
        self._files = files

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Files) and other._files is self._files

    def __ne__(self, other: object) -> bool:
        return not self == other

    def get_type_name(self) -> str:
        return "lake"

    def open_input_file(self, path: str) -> pa.NativeFile:
        index = int(path)
        store = self._files.elsewhere.get(index, self._files.store)
        return open_object(store, self._files.keys[index], self._files.sizes[index])

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
