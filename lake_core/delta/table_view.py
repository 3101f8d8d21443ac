"""The read methods of a table: a handle on one snapshot, its rows, files, history and changes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import pyarrow as pa

from lake_core.clock import Clock, system_clock
from lake_core.delta import scan
from lake_core.delta.action_fields import PARTITION_VALUES
from lake_core.delta.commit_time import CommitTimes, Instant, parse_instant
from lake_core.delta.detail import TableDetail, table_detail
from lake_core.delta.errors import SchemaMismatch
from lake_core.delta.history import history
from lake_core.delta.log_segment import log_exists
from lake_core.delta.numpy_arrays import texts
from lake_core.delta.path import data_keys, locate_all, open_roots
from lake_core.delta.row_rules import constraints
from lake_core.delta.skipping import num_records
from lake_core.delta.snapshot import Snapshot, load_snapshot
from lake_core.delta.staged_commits import StagedCommits
from lake_core.errors import LakeError
from lake_core.pandas_frames import to_frame
from lake_core.store import ObjectStore, store_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike
    from types import ModuleType

    from lake_core.delta.action import Metadata, Protocol
    from lake_core.delta.changes import Bound
    from lake_core.expression import Filters

Location: TypeAlias = "str | PathLike[str] | ObjectStore"


class TableView:
    """A table at one snapshot."""

    def __init__(
        self,
        url_or_store: Location,
        *,
        version: int | None = None,
        timestamp: Instant | None = None,
        allowed_roots: Sequence[Location] = (),
        staged_commits: Sequence[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Open the table at `version`, or at the last version that was committed by `timestamp`; the latest by default.

        A timestamp is an aware datetime or ISO 8601 text with a zone, not after the last commit.
        A log may name data files outside of the table's root, as that of a shallow clone does. They are read only from
        folders under the `allowed_roots`. A table that is managed by a catalog is only read, with the names of the
        `staged_commits` that the catalog lists, be it none.

        Raises TableNotFound, VersionNotFound, LogGap, CorruptCommit, CorruptCheckpoint, UnsupportedReaderFeature, and
        the Missing… and Malformed… errors.
        """
        if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
            raise ValueError(f"a version must be a whole number, not {version!r}")
        if timestamp is not None:
            if version is not None:
                raise ValueError("a table can be opened at a version or at a timestamp, but not at both")
            parse_instant(timestamp)
        store = store_at(url_or_store, storage_options)
        if staged_commits is not None:
            store = StagedCommits(store, staged_commits)
        options = storage_options or store.storage_options
        roots = open_roots(allowed_roots, options)
        snapshot = load_snapshot(store, version, allowed_roots=roots)
        if timestamp is not None:
            stood = CommitTimes(snapshot).version_at(timestamp)
            snapshot = snapshot if stood == snapshot.version else load_snapshot(store, stood, allowed_roots=roots)
        self._snapshot, self._clock = snapshot, clock or system_clock

    @classmethod
    def at(cls, snapshot: Snapshot, clock: Clock | None = None) -> Self:
        """Return a handle on a snapshot that is loaded already."""
        table = cls.__new__(cls)
        table._snapshot, table._clock = snapshot, clock or system_clock
        return table

    @classmethod
    def open(
        cls,
        url_or_store: Location,
        *,
        version: int | None = None,
        timestamp: Instant | None = None,
        allowed_roots: Sequence[Location] = (),
        staged_commits: Sequence[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
    ) -> Self:
        """Open a table; the same as `DeltaTable(url_or_store, …)`."""
        return cls(
            url_or_store,
            version=version,
            timestamp=timestamp,
            allowed_roots=allowed_roots,
            staged_commits=staged_commits,
            storage_options=storage_options,
            clock=clock,
        )

    @classmethod
    def exists(cls, url_or_store: Location, *, storage_options: Mapping[str, Any] | None = None) -> bool:
        """Return whether a Delta log with a commit or a checkpoint exists at the location."""
        return log_exists(store_at(url_or_store, storage_options))

    @property
    def version(self) -> int:
        """Return the version that this handle reads."""
        return self._snapshot.version

    @property
    def schema(self) -> pa.Schema:
        """Return the table's columns, including partition columns. Timestamps are in microseconds, UTC."""
        return self._snapshot.metadata.arrow_schema

    @property
    def metadata(self) -> Metadata:
        """Return the table's metadata at this version."""
        return self._snapshot.metadata

    @property
    def protocol(self) -> Protocol:
        """Return the protocol that reading and writing this version requires."""
        return self._snapshot.protocol

    @property
    def properties(self) -> dict[str, str]:
        """Return the table properties, including unknown ones."""
        return dict(self._snapshot.metadata.configuration)

    @property
    def store(self) -> ObjectStore:
        """Return the store at the table's root."""
        return self._snapshot.store

    @property
    def snapshot(self) -> Snapshot:
        """Return the snapshot that this handle reads."""
        return self._snapshot

    @property
    def is_blank(self) -> bool:
        """Return whether the table was created but never written, as when its first writer died."""
        return self.version == 0 and not len(self._snapshot.files(["path"]))

    def refresh(self) -> Self:
        """Move the handle to the latest version, and return it."""
        self._snapshot = self._snapshot.refreshed()
        return self

    def files(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the data files, one per row. Fewer `columns` are faster.

        The columns are path (relative to the root, decoded; a URL for a file elsewhere), size (bytes),
        modification_time (milliseconds), partition_values, num_records (null where unknown) and stats (JSON).
        """
        names = list(_FILE_COLUMNS) if columns is None else list(columns)
        unknown = [name for name in names if name not in _FILE_COLUMNS]
        if unknown:
            raise SchemaMismatch(f"files() has no column {unknown[0]!r}; its columns are {', '.join(_FILE_COLUMNS)}")
        actions = self._snapshot.files(list(dict.fromkeys(_FILE_COLUMNS[name] for name in names)))
        arrays = []
        for name in names:
            column = actions[_FILE_COLUMNS[name]]
            if name == "path":
                column = self._paths(column)
            elif name == "num_records":
                column = num_records(column)
            arrays.append(column)
        return pa.Table.from_arrays(arrays, schema=pa.schema([(name, _FILE_TYPES[name]) for name in names]))

    def _paths(self, paths: pa.ChunkedArray) -> pa.ChunkedArray:
        if not self._snapshot.allowed_roots:
            return data_keys(paths, self.store)
        keys, elsewhere = locate_all(paths, self._snapshot.roots)
        return pa.chunked_array(
            [texts([elsewhere[row].url(key) if row in elsewhere else key for row, key in enumerate(keys)])]
        )

    def to_arrow(self, columns: Sequence[str] | None = None, where: str | Filters | None = None) -> pa.Table:
        """Read these columns of the rows for which `where` is true. Files that cannot hold such rows are not opened.

        `where` is Spark SQL, or filters as values: `[("id", "=", 7), ("day", "in", days)]`, all of which are true, or a
        list of such lists. Null is neither equal nor unequal to a value.

        Raises SchemaMismatch, InvalidExpression, DataFileMissing, CorruptDataFile, PathOutsideTable.
        """
        return scan.read_rows(scan.plan_read(self._snapshot, columns, where))

    def to_pandas(self, columns: Sequence[str] | None = None, where: str | Filters | None = None) -> Any:
        """Read as `to_arrow` does, and return a `pandas.DataFrame`.

        A column of integers with a null has a nullable type, such as `Int64`.

        Raises LakeError too, if pandas is not installed.
        """
        _imported("pandas")
        return to_frame(self.to_arrow(columns, where))

    def to_polars(self, columns: Sequence[str] | None = None, where: str | Filters | None = None) -> Any:
        """Read as `to_arrow` does, and return a `polars.DataFrame`.

        Raises LakeError too, if polars is not installed.
        """
        return _imported("polars").DataFrame(self.to_arrow(columns, where))

    def to_batches(
        self, columns: Sequence[str] | None = None, where: str | Filters | None = None
    ) -> pa.RecordBatchReader:
        """Read as `to_arrow` does, a batch at a time, for tables that do not fit into memory.

        Errors in a data file are raised while the batches are read.
        """
        return scan.stream_rows(scan.plan_read(self._snapshot, columns, where))

    def changes(
        self, start: Bound, end: Bound | None = None, *, columns: Sequence[str] | None = None, where: str | None = None
    ) -> pa.RecordBatchReader:
        """Read the change data feed of the versions from `start` to `end`, both included.

        `end` is this handle's version by default. The result has the table's columns (or those of `columns`), then
        `_change_type` (insert, delete, update_preimage, update_postimage), `_commit_version` and `_commit_timestamp`.
        Only rows for which `where` (Spark SQL over all of these) is true are returned, in the order of the versions.
        The columns are those of the last version, all nullable; a column that an earlier version does not have is null
        in its rows. A timestamp as `start` means the versions committed at or after it; as `end`, at or before it.

        Raises ChangeDataFeedDisabled, IncompatibleSchema, VersionNotFound, SchemaMismatch, InvalidExpression. While the
        result is read, also DataFileMissing, CorruptDataFile, CorruptDeletionVector, PathOutsideTable; and the first
        two, if a version between the first and the last one is the cause.
        """
        from lake_core.delta.changes import read_changes

        return read_changes(self._snapshot, start, end, columns, where)

    def txn_version(self, app_id: str) -> int | None:
        """Return the last version that an application recorded by a txn action, or None.

        It is returned even after `delta.setTransactionRetentionDuration` has passed, when writes no longer consider it.
        """
        return self._snapshot.transaction_version(app_id)

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the commits up to this version, newest first.

        Each has its `version`, its `timestamp` (time of the commit, in milliseconds since the epoch) and the other
        fields of its commitInfo.
        """
        return history(self._snapshot, limit)

    def detail(self) -> TableDetail:
        """Return the table's definition, protocol and size at this version."""
        return table_detail(self._snapshot)

    @property
    def constraints(self) -> dict[str, str]:
        """Return the SQL of each CHECK constraint by its name."""
        return constraints(self._snapshot.metadata)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.store.url()!r}, version={self.version})"


_FILE_COLUMNS: Mapping[str, str] = {
    "path": "path",
    "size": "size",
    "modification_time": "modificationTime",
    "partition_values": "partitionValues",
    "num_records": "stats",
    "stats": "stats",
}
_FILE_TYPES: Mapping[str, pa.DataType] = {
    "path": pa.string(),
    "size": pa.int64(),
    "modification_time": pa.int64(),
    "partition_values": PARTITION_VALUES,
    "num_records": pa.int64(),
    "stats": pa.string(),
}


def _imported(library: str) -> ModuleType:
    try:
        return import_module(library)
    except ImportError:
        raise LakeError(f"to_{library} needs {library}, which is not installed: install it, or use to_arrow") from None
