"""Reads of rows. The log selects the files and has the partition values, and only the needed columns are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake_core import runtime
from lake_core.clock import now_ms, system_clock
from lake_core.delta.data_file_reader import DataFiles
from lake_core.delta.deletion_vector import deleted_rows
from lake_core.delta.errors import SchemaMismatch
from lake_core.delta.numpy_arrays import empty_table, integers, mask
from lake_core.delta.path import locate_all
from lake_core.delta.row_tracking import ROW_ID_FIELDS, materialized_columns
from lake_core.delta.skipping import matching_partitions, partition_filter, partition_table, skip
from lake_core.expression import TRUE, Filters, Predicate, bind_filters, columns, parse_predicate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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


def plan_read(snapshot: Snapshot, names: Sequence[str] | None, where: str | Filters | Predicate | None) -> Scan:
    """Plan as `plan_scan` for rows that the caller gets. In a lake, the session records that they were read."""
    snapshot.store.note_scan()
    return plan_scan(snapshot, names, where)


def plan_scan(snapshot: Snapshot, names: Sequence[str] | None, where: str | Filters | Predicate | None) -> Scan:
    """Select files by partition values and statistics. Raises SchemaMismatch for unknown columns, InvalidExpression."""
    whole = snapshot.metadata.arrow_schema
    schema = whole if names is None else chosen_columns(_with_ids_asked_for(snapshot, whole, names), names)
    predicate = _predicate(where, whole)
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


def _predicate(where: str | Filters | Predicate | None, schema: pa.Schema) -> Predicate | None:
    # Not `parse_where`: only operations record the text, which may be long.
    match where:
        case str(text):
            return parse_predicate(text, schema, now=now_ms(system_clock))
        case Sequence() as filters:
            return bind_filters(filters, schema)
        case predicate:
            return predicate


def files_of_partitions(snapshot: Snapshot, fields: Sequence[str], predicate: Predicate | None) -> pa.Table:
    """Return file actions, with these fields, of the partitions that satisfy a predicate over partition columns.

    None returns all of them.
    """
    names = [*snapshot.identity, "partitionValues", *fields]
    if predicate is None:
        return snapshot.files(names)
    files = snapshot.files(names, partition_filter(predicate, snapshot.metadata))
    return files.filter(mask(matching_partitions(files, predicate, snapshot.metadata)))


def open_data_files(scan: Scan, rows: Sequence[int] | None = None, predicate: Predicate | None = None) -> DataFiles:
    """Prepare the files of a scan for reading, or only those with these row numbers in `scan.files`."""
    files = scan.files if rows is None else scan.files.take(integers(np.asarray(rows, np.int64)))
    snapshot, metadata = scan.snapshot, scan.snapshot.metadata
    partition_columns = [name for name in snapshot.partition_columns if name in scan.read_schema.names]
    materialized = materialized_columns(snapshot.protocol, metadata)
    tracked = {
        name: pa.field(materialized[name], pa.int64()) for name in scan.read_schema.names if name in materialized
    }
    own = [name for name in scan.read_schema.names if name not in tracked]
    physical = dict(zip(own, metadata.column_mapping.physical_schema(own).to_arrow(), strict=True)) | tracked
    keys, elsewhere = locate_all(files["path"], snapshot.roots)
    return DataFiles(
        snapshot.data_root,
        snapshot.version,
        keys,
        files["size"].to_pylist(),
        partition_table(files, metadata, partition_columns),
        scan.read_schema,
        pa.schema([physical[name] for name in scan.read_schema.names]),
        metadata.column_mapping.names_by_id(),
        deleted_of_files(files, snapshot.roots),
        predicate,
        elsewhere,
        by_name=frozenset(child.name for child in tracked.values()),
        row_ids=(files["baseRowId"].to_pylist(), files["defaultRowCommitVersion"].to_pylist()) if tracked else None,
    )


def with_tracked_rows(scan: Scan) -> Scan:
    """Return a scan of whole rows that also reads their ids, if the table tracks rows."""
    if not materialized_columns(scan.snapshot.protocol, scan.snapshot.metadata):
        return scan
    fields = [*scan.read_schema, *ROW_ID_FIELDS]
    return replace(scan, schema=pa.schema(fields), read_schema=pa.schema(fields))


def _with_ids_asked_for(snapshot: Snapshot, schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    asked = [child for child in ROW_ID_FIELDS if child.name in names and child.name not in schema.names]
    if asked and not materialized_columns(snapshot.protocol, snapshot.metadata):
        raise SchemaMismatch(
            f"there is no column {asked[0].name!r}, because the table does not track rows: set its property "
            "delta.enableRowTracking to true"
        )
    return pa.schema([*schema, *asked])


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
    count = len(files.keys)
    with runtime.thread_pool(_READERS) as pool:
        if count >= _READERS:
            parts = pool.map(files.read, range(count))
        else:
            # A few files: the row groups of each are read concurrently, or else its columns.
            reads = [read for file in pool.map(files.open, range(count)) for read in file.reads()]
            parts = pool.map(lambda read: read(), reads)
        tables = [table.select(scan.schema.names) for table in parts]
    if not scan.schema.names:
        return pa.table({"\x00rows": pa.nulls(sum(table.num_rows for table in tables))}).select([])
    return pa.concat_tables(tables) if tables else empty_table(scan.schema)


def chosen_columns(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Return the columns of these names, in this order, ignoring case. Raises SchemaMismatch."""
    if isinstance(names, str):
        raise SchemaMismatch(f"columns must be a list of names: [{names!r}]")
    exact = {child.name: child for child in schema}
    folded: dict[str, pa.Field] = {}
    for child in schema:
        folded.setdefault(child.name.lower(), child)
    fields = [_field(exact, folded, name) for name in names]
    if len({child.name for child in fields}) < len(fields):
        raise SchemaMismatch(f"a column is requested twice: {list(names)}")
    return pa.schema(fields)


def _field(exact: Mapping[str, pa.Field], folded: Mapping[str, pa.Field], name: str) -> pa.Field:
    chosen = (exact.get(name) or folded.get(name.lower())) if isinstance(name, str) else None
    if chosen is None:
        raise SchemaMismatch(f"there is no column {name!r} in the table; the columns are {', '.join(exact)}")
    return chosen
