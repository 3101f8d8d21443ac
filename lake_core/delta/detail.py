"""A summary of a table: Spark's DESCRIBE DETAIL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from lake_core.delta.clustering import clustered_by
from lake_core.delta.commit_time import CommitTimes, instant_of
from lake_core.delta.features import supported_features
from lake_core.delta.row_counts import row_count

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from lake_core.delta.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class TableDetail:
    """A table's definition, protocol and size at one version."""

    id: str
    name: str | None
    description: str | None
    location: str
    version: int
    created_at: dt.datetime | None
    last_modified: dt.datetime | None
    """When this version was committed; None if the log no longer has it."""
    partition_columns: tuple[str, ...]
    clustering_columns: tuple[str, ...]
    num_files: int
    size_in_bytes: int
    """The size of the data files."""
    num_rows: int | None
    """The number of rows. None if a file has no statistics."""
    columns: Mapping[str, str]
    """Their types, by name."""
    properties: Mapping[str, str]
    min_reader_version: int
    min_writer_version: int
    table_features: tuple[str, ...]
    """What writers must know, by its names; those that a legacy version stands for included."""


def table_detail(snapshot: Snapshot) -> TableDetail:
    """Return the detail of a table at a snapshot's version."""
    metadata, protocol = snapshot.metadata, snapshot.protocol
    files = snapshot.files(["path", "size", "stats", "deletionVector"])
    times = CommitTimes(snapshot)
    return TableDetail(
        id=metadata.id,
        name=metadata.name,
        description=metadata.description,
        location=snapshot.store.url(),
        version=snapshot.version,
        created_at=None if metadata.created_time is None else instant_of(metadata.created_time),
        last_modified=instant_of(times.at(snapshot.version)) if snapshot.version in times.versions else None,
        partition_columns=metadata.partition_columns,
        clustering_columns=clustered_by(metadata, snapshot.domains).names,
        num_files=len(files),
        size_in_bytes=int(pc.sum(files["size"]).as_py() or 0),
        num_rows=row_count(files),
        columns={
            child.name: str(child.type) + ("" if child.nullable else " not null") for child in metadata.arrow_schema
        },
        properties=dict(metadata.configuration),
        min_reader_version=protocol.min_reader_version,
        min_writer_version=protocol.min_writer_version,
        table_features=tuple(sorted(supported_features(protocol) | (protocol.reader_features or frozenset()))),
    )
