"""The change data feed: which rows each version inserted, deleted and updated.

If a version has change files, they hold its changes. Otherwise its added files hold inserts and its removed files
deletes; if only the deletion vector of a file changed, only the rows that differ changed. Versions and files are read
one by one.
Protocol sections: Add CDC File, Change Data Files.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import FALSE_VALUE, TRUE_VALUE, scalar
from lake_core.clock import now_ms, system_clock
from lake_core.delta.action import Metadata
from lake_core.delta.commit_file import change_files, parse_run, read_commit_info, single_actions
from lake_core.delta.commit_time import CommitTimes, Instant, parse_instant
from lake_core.delta.data_file_reader import DataFiles
from lake_core.delta.errors import (
    ChangeDataFeedDisabled,
    CorruptCommit,
    CorruptDataFile,
    DataFileMissing,
    IncompatibleSchema,
    SchemaMismatch,
    VersionNotFound,
)
from lake_core.delta.log_segment import commit_key
from lake_core.delta.numpy_arrays import booleans, mask
from lake_core.delta.path import locate_all, same_paths
from lake_core.delta.scan import chosen_columns, deleted_of_files
from lake_core.delta.skipping import partition_table, skip
from lake_core.delta.snapshot import Snapshot, load_snapshot
from lake_core.errors import NotFound
from lake_core.expression import And, Predicate, columns, matching, parse_predicate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
_CHANGE_COLUMNS = pa.schema(
    [(CHANGE_TYPE, pa.string()), (COMMIT_VERSION, pa.int64()), (COMMIT_TIMESTAMP, pa.timestamp("us", tz="UTC"))]
)
_PROPERTY = "delta.enableChangeDataFeed"
_COMMITS_AT_ONCE = 8
_ENTRIES = pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.string())]))

Bound: TypeAlias = "int | Instant"
"""A version, or an instant."""


def read_changes(
    snapshot: Snapshot, start: Bound, end: Bound | None, names: Sequence[str] | None, where: str | None
) -> pa.RecordBatchReader:
    """Read the changes of the versions `start` to `end`, both included; see `DeltaTable.changes`."""
    first, last, times = _range(snapshot, start, end)
    final = (
        snapshot
        if last >= snapshot.version
        else load_snapshot(snapshot.store, last, allowed_roots=snapshot.allowed_roots)
    )
    metadata = final.metadata
    whole = _columns(metadata)
    selected = (
        whole if names is None else chosen_columns(whole, [name for name in names if name not in _CHANGE_COLUMNS.names])
    )
    schema = pa.schema([*selected, *_CHANGE_COLUMNS])
    predicate = (
        None
        if where is None
        else parse_predicate(where, pa.schema([*whole, *_CHANGE_COLUMNS]), now=now_ms(system_clock))
    )
    named = set() if predicate is None else {column.path[0] for column in columns(predicate)}
    read = pa.schema(
        [*selected, *(child for child in whole if child.name in named and child.name not in selected.names)]
    )
    if first > last:
        return pa.RecordBatchReader.from_batches(schema, iter(()))
    initial = final if first == last else load_snapshot(snapshot.store, first, allowed_roots=snapshot.allowed_roots)
    feed = _Feed(final, first, times, read, schema, predicate)
    feed.check(initial.metadata, first)
    feed.check(metadata, last)
    return pa.RecordBatchReader.from_batches(schema, feed.batches())


def changes_of_commit(snapshot: Snapshot, version: int, data: bytes) -> Iterator[pa.Table]:
    """Yield the changed rows of one commit of a snapshot's log, with `_change_type` as their last column.

    They have the columns of the snapshot, whose definition the files of the commit must fit (`fits`).

    Raises SchemaMismatch, and what reading the files raises.
    """
    read = _columns(snapshot.metadata)
    feed = _Feed(snapshot, version, CommitTimes(snapshot), read, pa.schema([*read, *_CHANGE_COLUMNS]), None)
    yield from feed._version_rows(version, data)


def _columns(metadata: Metadata) -> pa.Schema:
    """Return the columns of a table in its feed. Raises SchemaMismatch for a name that the feed itself needs."""
    whole = _nullable(metadata.arrow_schema)
    taken = [name for name in whole.names if name.lower() in _CHANGE_COLUMNS.names]
    if taken:
        raise SchemaMismatch(
            f"the table has a column {taken[0]!r}, a name that the change data feed needs: its changes cannot be read"
        )
    return whole


def _range(snapshot: Snapshot, start: Bound, end: Bound | None) -> tuple[int, int, CommitTimes]:
    lower, upper = _bound(start), snapshot.version if end is None else _bound(end)
    times = CommitTimes(snapshot)
    first = _earliest_from(times, lower, snapshot.version) if isinstance(lower, dt.datetime) else lower
    last = _latest_until(times, upper) if isinstance(upper, dt.datetime) else upper
    for version in (first, last):
        if not 0 <= version <= snapshot.version:
            raise VersionNotFound(
                f"version {version} does not exist: the latest version of this snapshot is {snapshot.version}"
            )
    # Nothing changed between two commits, but a start after the end is an error.
    by_time = isinstance(lower, dt.datetime) or isinstance(upper, dt.datetime)
    if first > last + by_time:
        raise ValueError(f"the changes from version {first} to {last} cannot be read: the start is after the end")
    return first, last, times


def _bound(bound: Bound) -> int | dt.datetime:
    """Return a version unchanged, and a timestamp parsed."""
    if isinstance(bound, bool) or not isinstance(bound, (int, str, dt.datetime)):
        raise ValueError(f"the start and end of changes must be versions or timestamps, not {bound!r}")
    return bound if isinstance(bound, int) else parse_instant(bound)


def _earliest_from(times: CommitTimes, moment: dt.datetime, latest: int) -> int:
    version = times.earliest_from(moment)
    if version is None:
        raise VersionNotFound(
            f"there is no commit at or after {moment.isoformat()}: the last one, version {latest}, was "
            f"committed at {times.text(latest)}"
        )
    return version


def _latest_until(times: CommitTimes, moment: dt.datetime) -> int:
    version = times.latest_until(moment)
    if version is None:
        raise VersionNotFound(
            f"there is no commit at or before {moment.isoformat()}: the first one that can be rebuilt, "
            f"version {times.earliest}, was committed at {times.text(times.earliest)}"
        )
    return version


@dataclass(frozen=True, slots=True)
class _Feed:
    snapshot: Snapshot
    """The snapshot of the last version. Its columns are those of all rows."""
    first: int
    times: CommitTimes
    read: pa.Schema
    """The table's columns to read, including those of the predicate."""
    schema: pa.Schema
    """The schema of the rows."""
    predicate: Predicate | None

    def check(self, metadata: Metadata, version: int) -> None:
        """Raise ChangeDataFeedDisabled or IncompatibleSchema if the feed cannot cover a version with this metadata."""
        last = self.snapshot.version
        if metadata.configuration.get(_PROPERTY, "false").lower() != "true":
            raise ChangeDataFeedDisabled(
                f"the changes of version {version} were not recorded, because {_PROPERTY} was not set: read "
                "versions for which it was set, or set it to record future changes"
            )
        final = self.snapshot.metadata
        if not fits(metadata, final):
            raise IncompatibleSchema(
                f"the rows of version {version} do not fit the schema of version {last}: in between, a column "
                "was dropped or changed its type, or the partitioning changed. Read the changes before and "
                "after that version separately"
            )

    def batches(self) -> Iterator[pa.RecordBatch]:
        for version, data in self._commits():
            info = read_commit_info(version, data)
            for body in single_actions(version, data, "metaData"):
                self.check(Metadata.from_json(body), version)
            when = scalar(self.times.at(version, info) * 1000, _CHANGE_COLUMNS.field(COMMIT_TIMESTAMP).type)
            for rows in self._version_rows(version, data):
                arrays = [
                    *rows.columns,
                    pa.repeat(scalar(version, pa.int64()), len(rows)),
                    pa.repeat(when, len(rows)),
                ]
                table = pa.table(arrays, schema=pa.schema([*self.read, *_CHANGE_COLUMNS]))
                if self.predicate is not None:
                    table = matching(table, self.predicate)
                yield from (batch for batch in table.select(self.schema.names).to_batches() if batch.num_rows)

    def _commits(self) -> Iterator[tuple[int, bytes]]:
        last = self.snapshot.version
        for start in range(self.first, last + 1, _COMMITS_AT_ONCE):
            versions = range(start, min(start + _COMMITS_AT_ONCE, last + 1))
            try:
                bodies = self.snapshot.store.get_many([commit_key(version) for version in versions])
            except NotFound as error:
                raise VersionNotFound(
                    f"{error.key} was deleted when the log was cleaned up, and the changes of that version with it: "
                    "start at a later version"
                ) from None
            yield from zip(versions, bodies, strict=True)

    def _version_rows(self, version: int, data: bytes) -> Iterator[pa.Table]:
        """Yield the changed rows of one version, with `_change_type` as their last column."""
        keys = list(self.snapshot.metadata.partition_keys.values())
        changes = change_files(version, data, keys)
        try:
            if len(changes):
                yield from self._recorded(version, changes)
            else:
                yield from self._derived(version, data, keys)
        except DataFileMissing as error:
            raise DataFileMissing(
                f"{str(error).partition(':')[0]}: it was vacuumed, and the changes of version {version} with it. "
                "Start at a later version"
            ) from None

    def _recorded(self, version: int, changes: pa.Table) -> Iterator[pa.Table]:
        kind = _CHANGE_COLUMNS.field(CHANGE_TYPE)
        files = self._files(version, self._pruned(changes), pa.schema([*self.read, kind]))
        for index in range(len(files.keys)):
            for rows in files.batches(index):
                # Other writers may use kinds of their own, which are passed on unchanged.
                if rows[CHANGE_TYPE].null_count:
                    raise CorruptDataFile(
                        f"change file {files.keys[index]} of version {version} has rows without {CHANGE_TYPE}: "
                        "restore it from a backup"
                    )
                yield rows

    def _derived(self, version: int, data: bytes, keys: Sequence[str]) -> Iterator[pa.Table]:
        run = parse_run([(version, data)], keys, None)
        adds, removes = (
            table.filter(pc.fill_null(table["dataChange"], TRUE_VALUE)) for table in (run.adds, run.removes)
        )
        if keys:
            removes = self._with_partitions(version, removes)
        adds, removes = self._pruned(adds), self._pruned(removes)
        new, old = self._files(version, adds, self.read), self._files(version, removes, self.read)
        before, after = _deleted_rows_by_file(old, version), _deleted_rows_by_file(new, version)
        for files, kind, rows_of_side, other in ((old, "delete", before, after), (new, "insert", after, before)):
            for number, file in enumerate(rows_of_side):
                chosen = files
                if file in other:
                    # The file stayed. The rows that changed are those in only one of the two deletion vectors.
                    differing = np.setdiff1d(other[file], rows_of_side[file], assume_unique=True)
                    if not len(differing):
                        continue
                    chosen = replace(
                        files, only=[differing if index == number else None for index in range(len(files.keys))]
                    )
                for rows in chosen.batches(number):
                    yield rows.append_column(CHANGE_TYPE, pa.repeat(scalar(kind), len(rows)))

    def _files(self, version: int, files: pa.Table, schema: pa.Schema) -> DataFiles:
        metadata, roots = self.snapshot.metadata, self.snapshot.roots
        keys, elsewhere = locate_all(files["path"], roots)
        mapping = metadata.column_mapping
        data_columns = [name for name in schema.names if name != CHANGE_TYPE]
        physical = _nullable(mapping.physical_schema(data_columns).to_arrow())
        return DataFiles(
            roots[0],
            version,
            keys,
            files["size"].to_pylist(),
            partition_table(files, metadata, [name for name in metadata.partition_columns if name in data_columns]),
            schema,
            pa.schema([*physical, *(child for child in schema if child.name == CHANGE_TYPE)]),
            mapping.names_by_id(),
            deleted_of_files(files, roots),
            elsewhere=elsewhere,
            by_name=frozenset([CHANGE_TYPE]),
        )

    def _pruned(self, files: pa.Table) -> pa.Table:
        """Return the files that may hold matching rows, by the parts of the predicate over the table's columns."""
        about = None if self.predicate is None else _about(self.predicate, set(self.read.names))
        return files if about is None else files.filter(mask(skip(files, about, self.snapshot.metadata)))

    def _with_partitions(self, version: int, removes: pa.Table) -> pa.Table:
        """Return removes with their partition values.

        If an old writer left these out, they are those of the version before.
        """
        bare = pc.invert(pc.fill_null(removes["extendedFileMetadata"], FALSE_VALUE))
        bare = pc.and_(bare, mask(_without_values(removes["partitionValues"])))
        if not pc.any(bare).as_py():
            return removes
        earlier = load_snapshot(self.snapshot.store, version - 1, allowed_roots=self.snapshot.allowed_roots)
        earlier_files = earlier.files(["path", "partitionValues"])
        rows = pc.index_in(same_paths(removes["path"].filter(bare)), same_paths(earlier_files["path"]).combine_chunks())
        if rows.null_count:
            raise CorruptCommit(
                f"{commit_key(version)} removes a file without its partition values that version {version - 1} lacks"
            )
        incomplete = removes.filter(bare)
        index = incomplete.column_names.index("partitionValues")
        return pa.concat_tables(
            [
                removes.filter(pc.invert(bare)),
                incomplete.set_column(index, "partitionValues", earlier_files["partitionValues"].take(rows)),
            ]
        )


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([(child.name, child.type) for child in schema])


def _physical(metadata: Metadata) -> pa.StructType:
    return pa.struct(list(metadata.column_mapping.physical_schema(metadata.arrow_schema.names).to_arrow()))


def fits(old: Metadata, new: Metadata) -> bool:
    """Return whether the data files of an earlier definition can be read as those of a later one."""
    same_partitions = sorted(old.partition_keys.values()) == sorted(new.partition_keys.values())
    return same_partitions and _reads_as(_physical(old), _physical(new))


def _reads_as(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether `old` values can be read as `new`: equal, with added fields, or widened (Type Widening)."""
    types = pa.types
    if types.is_struct(old) and types.is_struct(new):
        fields = {child.name: child.type for child in new}
        return all(child.name in fields and _reads_as(child.type, fields[child.name]) for child in old)
    if types.is_map(old) and types.is_map(new):
        return _reads_as(old.key_type, new.key_type) and _reads_as(old.item_type, new.item_type)
    if types.is_list(old) and types.is_list(new):
        return _reads_as(old.value_type, new.value_type)
    return _scalar_reads_as(old, new)


def _scalar_reads_as(old: pa.DataType, new: pa.DataType) -> bool:
    types = pa.types
    if types.is_decimal(old) and types.is_decimal(new):
        return bool(old.scale <= new.scale and old.precision - old.scale <= new.precision - new.scale)
    if types.is_integer(old):
        digits = {8: 3, 16: 5, 32: 10, 64: 19}[old.bit_width]
        wider = types.is_integer(new) and old.bit_width <= new.bit_width
        exact = types.is_float64(new) and old.bit_width <= 32
        return bool(wider or exact or (types.is_decimal(new) and digits <= new.precision - new.scale))
    return bool(
        old == new
        or (types.is_float32(old) and types.is_float64(new))
        or (types.is_date(old) and types.is_timestamp(new) and not new.tz)
    )


def _deleted_rows_by_file(files: DataFiles, version: int) -> dict[tuple[int, str], npt.NDArray[np.int64]]:
    """Return the rows that the deletion vector of each file deletes, by the file's root and key, in file order."""
    rows_by_file: dict[tuple[int, str], npt.NDArray[np.int64]] = {}
    for number, key in enumerate(files.keys):
        file = (id(files.elsewhere.get(number)), key)
        if file in rows_by_file:
            raise CorruptCommit(
                f"{commit_key(version)} names the file {key} in two actions of one kind, so its changes are ambiguous"
            )
        gone = files.deleted[number] if files.deleted else None
        rows_by_file[file] = np.empty(0, np.int64) if gone is None else gone
    return rows_by_file


def _without_values(values: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Mark the partition values (maps of equally many entries) that are null throughout."""
    maps = values.combine_chunks()
    if not len(maps):
        return np.empty(0, np.bool_)
    has_value = booleans(pc.list_flatten(maps.cast(_ENTRIES)).field("value").is_valid())
    return np.asarray(~has_value.reshape(len(maps), -1).any(axis=1), dtype=np.bool_)


def _about(predicate: Predicate, names: set[str]) -> Predicate | None:
    """Return the part of a predicate that names only these columns; None if there is none."""
    if isinstance(predicate, And):
        parts = [part for child in predicate.operands if (part := _about(child, names)) is not None]
        return And(tuple(parts)) if parts else None
    named = {column.path[0] for column in columns(predicate)}
    return predicate if named <= names else None
