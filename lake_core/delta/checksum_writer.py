"""Writing version checksums (`N.crc`) after commits. Protocol section: Version Checksum File.

The totals of a version follow from those of the version before and the files that its commit added and removed. Where
these are not at hand, tables with few files are counted anew, as all are at each checkpoint.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import scalar
from lake_core.delta.action import SetTransaction
from lake_core.delta.commit_file import read_commit_info
from lake_core.delta.log_segment import commit_key
from lake_core.delta.row_counts import deletions
from lake_core.delta.version_checksum import VersionChecksum, checksum_key, read_checksum
from lake_core.errors import AlreadyExists

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.delta.snapshot import Snapshot

FEW_ACTIONS = 1_000
"""The most actions on files that are counted anew for each commit."""
_MOST_TRANSACTIONS = 100
_MOST_DOMAINS = 10


def write_checksum(
    snapshot: Snapshot, before: VersionChecksum | None = None, *, adds_are_new: bool = True, count: bool = False
) -> VersionChecksum | None:
    """Write the checksum of a snapshot's version, and return it; None if its totals are unknown.

    Args:
        snapshot: The table at the version, as its commit left it.
        before: The checksum of the version before, if it is known. Else it is read where the table has many files.
        adds_are_new: Whether the commit adds no file that the table has and that the commit does not remove.
        count: Whether to count the files whatever their number.
    """
    can_follow = adds_are_new and not count
    checksum = _followed(snapshot, before) if can_follow else None
    if checksum is None and (count or snapshot.count_actions() <= FEW_ACTIONS):
        checksum = _counted(snapshot)  # sooner than to wait for the checksum of the version before
    elif checksum is None and can_follow:
        checksum = _followed(snapshot, read_checksum(snapshot.store, snapshot.version - 1))
    if checksum is None:
        return None
    body = json.dumps(checksum.to_json(), separators=(",", ":"), ensure_ascii=False).encode()
    with suppress(AlreadyExists):  # another writer had the same in mind
        snapshot.store.put(checksum_key(snapshot.version), body, if_absent=True)
    return checksum


class _Totals(NamedTuple):
    files: int
    size: int
    """Bytes."""
    deleted_rows: int
    vectors: int


def _totals(files: pa.Table) -> _Totals:
    vectors, deleted = deletions(files)
    return _Totals(len(files), int(pc.sum(files["size"]).as_py() or 0), deleted, vectors)


def _counted(snapshot: Snapshot) -> VersionChecksum:
    return _checksum(
        snapshot, _totals(snapshot.files(["path", "size", "deletionVector"])), _markers(snapshot.transactions())
    )


def _followed(snapshot: Snapshot, before: VersionChecksum | None) -> VersionChecksum | None:
    """Return the checksum after a commit from the one before. None if that one, or what the commit did, is unknown."""
    if before is None or before.version != snapshot.version - 1 or not snapshot.runs:
        return None
    run = snapshot.runs[-1]
    adds, removes, transactions = (
        rows.filter(pc.equal(rows["commit"], scalar(snapshot.version, pa.int64())))
        for rows in (run.adds, run.removes, run.transactions)
    )
    known = (before.num_files, before.size_bytes, before.deleted_rows, before.vectors)
    if removes["size"].null_count or None in known:
        return None
    markers = None
    if before.transactions is not None:
        latest = {marker.app_id: marker for marker in [*before.transactions, *_markers(transactions)]}
        markers = list(latest.values())
    totals = (a + b - c for a, b, c in zip(known, _totals(adds), _totals(removes), strict=True) if a is not None)
    return _checksum(snapshot, _Totals(*totals), markers)


def _markers(rows: pa.Table) -> list[SetTransaction]:
    return [SetTransaction.from_json(row) for row in rows.to_pylist()]


def _checksum(snapshot: Snapshot, totals: _Totals, markers: Sequence[SetTransaction] | None) -> VersionChecksum:
    info = _commit_info(snapshot)
    return VersionChecksum(
        snapshot.version,
        num_files=totals.files,
        size_bytes=totals.size,
        deleted_rows=totals.deleted_rows,
        vectors=totals.vectors,
        protocol=snapshot.protocol,
        metadata=snapshot.metadata,
        transactions=markers if markers is not None and len(markers) <= _MOST_TRANSACTIONS else None,
        domains=snapshot.domains if len(snapshot.domains) <= _MOST_DOMAINS else None,
        commit_id=info.get("txnId"),
        commit_time=info.get("inCommitTimestamp"),
    )


def _commit_info(snapshot: Snapshot) -> dict[str, Any]:
    run = snapshot.runs[-1] if snapshot.runs else None
    is_held = run is not None and run.versions[-1] == snapshot.version and run.sources
    data = run.sources[-1] if run is not None and is_held else snapshot.store.get(commit_key(snapshot.version))
    return read_commit_info(snapshot.version, data)
