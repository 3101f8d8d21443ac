"""Health of a table, from its log alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta.clustering import clustering_columns
from lake_core.delta.log_segment import list_log
from lake_core.delta.skipping import num_records, partition_table
from lake_core.inspection import SMALL_FILE

if TYPE_CHECKING:
    from lake_core.delta.snapshot import Snapshot
    from lake_core.delta.table_view import TableView


@dataclass(frozen=True, slots=True)
class TableHealth:
    """The health of a table at its latest version."""

    version: int
    files: int
    bytes: int
    """The size of the data files."""
    small_files: int
    """The small files in partitions with several of them. A single small file cannot be merged."""
    partitions: int
    tombstones: int
    """Removed files that old versions may still read."""
    log_length: int
    """Commits in the log."""
    uncheckpointed_commits: int
    """Commits after the last checkpoint, which a reader replays."""
    files_without_statistics: int
    """Files without statistics, so that filters cannot skip them."""
    is_clustered: bool
    """Whether its optimization sorts what is new."""
    markers: int
    """The number of transaction identifiers that the table keeps."""

    @property
    def small_file_ratio(self) -> float:
        """Return the part of the files that are small."""
        return self.small_files / self.files if self.files else 0.0

    @property
    def statistics_coverage(self) -> float:
        """Return the part of the files that have statistics."""
        return 1.0 - self.files_without_statistics / self.files if self.files else 1.0


def table_health(table: TableView, *, small_file: int = SMALL_FILE) -> TableHealth:
    """Measure a table. `small_file` is a size in bytes. Raises the errors of reading the log."""
    return snapshot_health(table.snapshot, small_file)


def snapshot_health(snapshot: Snapshot, small_file: int) -> TableHealth:
    """Measure a table at a snapshot's version, as `table_health` does."""
    files = snapshot.files(["path", "size", "partitionValues", "stats"])
    small, partitions = _small_files(files, snapshot, small_file)
    listing = list_log(snapshot.store, end=snapshot.version)
    checkpointed = max((checkpoint.version for checkpoint in listing.checkpoints), default=-1)
    return TableHealth(
        version=snapshot.version,
        files=len(files),
        bytes=int(pc.sum(files["size"]).as_py() or 0),
        small_files=small,
        partitions=partitions,
        tombstones=len(snapshot.tombstones()),
        log_length=len(listing.commits),
        uncheckpointed_commits=snapshot.version - checkpointed,
        files_without_statistics=num_records(files["stats"]).null_count if len(files) else 0,
        is_clustered=bool(clustering_columns(snapshot.domains)),
        markers=len(snapshot.transactions()),
    )


def _small_files(files: pa.Table, snapshot: Snapshot, small_file: int) -> tuple[int, int]:
    """Count the small files that could be merged with others of their partition, and the partitions."""
    flags = pc.cast(pc.less(files["size"], small_file), "int64")
    if not snapshot.metadata.partition_columns or not len(files):
        small = int(pc.sum(flags).as_py() or 0)
        return small if small > 1 else 0, min(len(files), 1)
    values = partition_table(files, snapshot.metadata)
    columns = [f"part{index}" for index in range(values.num_columns)]
    rows = values.rename_columns(columns).append_column("size", files["size"])
    rows = rows.append_column("small", flags)
    counts = rows.group_by(columns).aggregate([("size", "count"), ("small", "sum")])
    several = counts.filter(pc.greater(counts["small_sum"], 1))
    return int(pc.sum(several["small_sum"]).as_py() or 0), len(counts)
