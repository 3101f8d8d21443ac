"""The rules of delta-spark for replaying an operation on top of commits that came first.

Each of these commits is checked for its protocol, metadata, domains, txn actions, added files and removed files. Only
the isolation level of the operation counts. delta-spark checks whether an added file is in a partition that was read.
Here its statistics are checked too: if they prove that the file has no row for which the operation's predicate is true,
the file cannot have changed the outcome.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta.commit_file import CommitRun, read_commit_info
from lake_core.delta.errors import (
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    ConcurrentModification,
    ConcurrentTransaction,
    MetadataChanged,
    ProtocolChanged,
)
from lake_core.delta.features import supported_features
from lake_core.delta.file_key import file_key
from lake_core.delta.identity import without_marks
from lake_core.delta.numpy_arrays import mask
from lake_core.delta.set_transaction import is_expired, recorded_version
from lake_core.delta.skipping import skip
from lake_core.readable import count_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lake_core.delta.action import Metadata, Protocol, SetTransaction
    from lake_core.delta.snapshot import Snapshot
    from lake_core.expression import Predicate

_NAMED = 3
"""The most partitions or files that an error names."""
_LOOKED_THROUGH = 100
"""The most files whose partitions are searched for an error."""
ISOLATION_PROPERTY = "delta.isolationLevel"


class Reads(Enum):
    """The reads of an operation that no predicate describes."""

    NOTHING = "nothing"
    """A blind append: its rows do not depend on the table's."""
    WHOLE_TABLE = "whole table"


class Isolation(Enum):
    """The isolation level: which commits of other writers an operation may follow."""

    SERIALIZABLE = "Serializable"
    """Serializable: as if the operations had run one after another, in the order of their versions."""
    WRITE_SERIALIZABLE = "WriteSerializable"
    """As if they had run one after another in some order: concurrent blind appends do not conflict."""
    SNAPSHOT = "SnapshotIsolation"
    """For commits that change no data: files that others added do not conflict."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """The reads and removals of an operation, which decide which other commits it may follow."""

    reads: Reads | Predicate
    read_files: pa.Table | None
    """The file actions that the operation read or depends on (path, deletionVector if any)."""
    removed: pa.Table | None
    """The file actions that it removes (path, deletionVector if any)."""
    transaction: SetTransaction | None
    isolation: Isolation = Isolation.SERIALIZABLE
    changes_protocol: bool = False
    metadata: Metadata | None = None
    """The table's metadata, if it changes that."""
    domains: frozenset[str] = frozenset()
    markers: frozenset[str] = frozenset()
    """The application ids of its txn actions, except its own."""


def isolation_level(metadata: Metadata, *, data_change: bool) -> Isolation:
    """Return the isolation level of a commit of only file actions: the table's, or lower if it changes no data."""
    if not data_change:
        return Isolation.SNAPSHOT
    level = metadata.configuration.get(ISOLATION_PROPERTY, Isolation.SERIALIZABLE.value)
    return Isolation.WRITE_SERIALIZABLE if level.lower() == "writeserializable" else Isolation.SERIALIZABLE


def check_conflicts(
    footprint: Footprint,
    winners: Sequence[CommitRun],
    metadata: Metadata,
    protocol: Protocol,
    now: int,
    holding: Callable[[pa.Table, Predicate], pa.Table] | None = None,
) -> bool:
    """Return True if the other commits include this operation: the same application id, at this or a later version.

    Return False if the operation can be committed after them. Raises a ConcurrentModification if it cannot.

    `metadata` and `protocol` are those that the operation was planned on. `now` is in milliseconds since the epoch.
    `holding` returns those of some files that hold a row for which a predicate is true; without it, the statistics
    decide which may.
    """
    if footprint.transaction is not None and _recorded(footprint.transaction, winners, metadata, now):
        return True
    before = metadata
    for run in winners:
        version = run.versions[0]
        if run.protocol is not None:
            dropped = supported_features(protocol) - supported_features(run.protocol)
            if footprint.changes_protocol or dropped:
                raise ProtocolChanged(f"version {version} changed the table's protocol", version=version)
        if run.metadata is not None:
            if footprint.metadata is not None or not _harmless(before, run.metadata):
                raise MetadataChanged(f"version {version} changed the table's schema or properties", version=version)
            before = run.metadata
        twice = footprint.domains & {domain.domain for domain in run.domains}
        if twice:
            raise ConcurrentTransaction(
                f"version {version} changed the metadata domain {min(twice)!r}, as does this operation", version=version
            )
        set_by_both = footprint.markers & set(run.transactions["appId"].to_pylist()) if footprint.markers else set()
        if set_by_both:
            raise ConcurrentTransaction(
                f"version {version} recorded a version of application {min(set_by_both)!r}, "
                "whose transaction identifier this operation sets",
                version=version,
            )
    for run in winners:
        _check_files(footprint, run, footprint.metadata or metadata, holding)
    return False


_HARMLESS = (
    "delta.enableDeletionVectors",
    "delta.enableRowTracking",
    "delta.rowTracking.",
    "delta.checkpointPolicy",
    "delta.enableInCommitTimestamps",
    "delta.inCommitTimestampEnablement",
)
"""Properties whose change conflicts with no other commit."""


def _harmless(before: Metadata, after: Metadata) -> bool:
    def rest(configuration: Mapping[str, str]) -> dict[str, str]:
        return {key: value for key, value in configuration.items() if not key.startswith(_HARMLESS)}

    if (before.id, before.partition_columns) != (after.id, after.partition_columns):
        return False
    # Numbers given to new rows are recorded in the schema.
    if before.schema_string != after.schema_string and without_marks(before.schema) != without_marks(after.schema):
        return False
    changed = before.configuration != after.configuration or before.schema_string != after.schema_string
    return changed and rest(before.configuration) == rest(after.configuration)


def check_unseen(footprint: Footprint, base: Snapshot, newest: Snapshot, now: int) -> bool:
    """Check for conflicts by the two states alone, if the commits in between were cleaned up.

    This does what `check_conflicts` does, but also raises if it cannot be certain.
    """
    if footprint.transaction is not None:
        recorded = recorded_version(newest, footprint.transaction.app_id, now)
        if recorded is not None and recorded >= footprint.transaction.version:
            return True
    if newest.metadata != base.metadata or newest.protocol != base.protocol or newest.version < base.version:
        raise MetadataChanged(f"the table was changed or replaced since version {base.version}", version=newest.version)
    if footprint.reads is not Reads.NOTHING or footprint.removed:
        raise ConcurrentAppend(
            f"the commits since version {base.version} were cleaned up, so their changes are unknown",
            version=newest.version,
        )
    return False


def _recorded(transaction: SetTransaction, winners: Sequence[CommitRun], metadata: Metadata, now: int) -> bool:
    # Only the newest txn action counts, because a restore may lower a version.
    markers_by_run = (
        run.transactions.filter(pc.equal(run.transactions["appId"], transaction.app_id)) for run in reversed(winners)
    )
    markers = next((rows for rows in markers_by_run if len(rows)), None)
    if markers is None or is_expired(markers["lastUpdated"][-1].as_py(), metadata, now):
        return False
    latest = markers["version"][-1].as_py()
    if latest >= transaction.version:
        return True
    version = markers["commit"][-1].as_py()
    raise ConcurrentTransaction(
        f"version {version} recorded version {latest} of application {transaction.app_id!r} while "
        f"version {transaction.version} was being committed: two writers share this application id",
        version=version,
    )


def _check_files(
    footprint: Footprint,
    run: CommitRun,
    metadata: Metadata,
    holding: Callable[[pa.Table, Predicate], pa.Table] | None,
) -> None:
    added, removed = _candidates(footprint, run), run.removes
    match footprint.reads:
        case Reads.NOTHING:
            read_added, all_removed = added.slice(0, 0), False
        case Reads.WHOLE_TABLE:
            read_added, all_removed = added, footprint.isolation is not Isolation.SNAPSHOT
        case predicate:
            read_added, all_removed = added, False
            if len(added):
                read_added = added.filter(mask(skip(added, predicate, metadata)))
            if holding is not None:
                read_added = holding(read_added, predicate)
    _refuse(read_added, ConcurrentAppend, "added {} to what this operation read")
    read_removed = removed if all_removed else _shared(removed, footprint.read_files)
    _refuse(read_removed, ConcurrentDeleteRead, "removed {} that this operation read")
    twice = _shared(removed, footprint.removed)
    _refuse(twice, ConcurrentDeleteDelete, "removed {} that this operation removes too")


def _refuse(files: pa.Table, conflict: type[ConcurrentModification], what: str) -> None:
    """Raise a conflict over files of the winners, if there are any."""
    if len(files):
        version = files["commit"][0].as_py()
        text = what.format(count_of(len(files), "file"))
        raise conflict(f"version {version} {text}{_sample(files)}", version=version)


def _sample(files: pa.Table) -> str:
    """Name the partitions of some files, or the files if the table has no partitions."""
    names: dict[str, None] = {}
    for row in files.select(["path", "partitionValues"]).slice(0, _LOOKED_THROUGH).to_pylist():
        values = dict(row["partitionValues"] or ())
        names[", ".join(f"{column}={value}" for column, value in values.items()) or row["path"]] = None
    more = "" if len(names) <= _NAMED and len(files) <= _LOOKED_THROUGH else ", …"
    return f" ({'; '.join(list(names)[:_NAMED])}{more})"


def _candidates(footprint: Footprint, run: CommitRun) -> pa.Table:
    """Return the added files that can conflict at the operation's isolation level."""
    match footprint.isolation:
        case Isolation.SNAPSHOT:
            return run.adds.slice(0, 0)
        case Isolation.WRITE_SERIALIZABLE if footprint.metadata is None:
            blind = [
                version
                for version, data in zip(run.versions, run.sources, strict=True)
                if read_commit_info(version, data).get("isBlindAppend") is True
            ]
            return (
                run.adds.filter(pc.invert(pc.is_in(run.adds["commit"], value_set=pa.array(blind, pa.int64()))))
                if blind
                else run.adds
            )
        case _:
            return run.adds


def _shared(removed: pa.Table, used: pa.Table | None) -> pa.Table:
    """Return those of the removed files that are among an operation's own."""
    if used is None or not len(used) or not len(removed):
        return removed.slice(0, 0)
    return removed.filter(pc.is_in(file_key(removed), value_set=file_key(used)))
