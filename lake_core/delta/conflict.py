"""Whether an operation can be replayed on top of commits that won the race. delta-spark's rules at level Serializable.

Checked per winning commit run in this order: protocol, metadata, application markers, added files, removed files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta.action import Metadata, SetTransaction
from lake_core.delta.commit_file import CommitRun
from lake_core.delta.errors import (
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    ConcurrentTransaction,
    MetadataChanged,
    ProtocolChanged,
)
from lake_core.delta.numpy_arrays import mask
from lake_core.delta.replay import file_key
from lake_core.delta.skipping import matching_partitions
from lake_core.delta.snapshot import Snapshot
from lake_core.expression import Predicate


class Reads(Enum):
    """What an operation looked at, where no predicate says it more closely."""

    NOTHING = "nothing"
    """A blind append: its rows do not depend on the table's."""
    WHOLE_TABLE = "whole table"


@dataclass(frozen=True, slots=True)
class Footprint:
    """What an operation read and takes away; decides which other commits it may follow."""

    reads: Reads | Predicate
    """A predicate names partition columns only."""
    removed: pa.Table | None
    """The file actions that it removes (path, deletionVector if any)."""
    transaction: SetTransaction | None
    changes_protocol: bool = False


def check_conflicts(footprint: Footprint, winners: Sequence[CommitRun], metadata: Metadata) -> bool:
    """True if the winners hold this very operation (same marker, same or later version): there is nothing left to do.

    Raises the ConcurrentModification that applies; returns False where the operation may go on.
    """
    if footprint.transaction is not None and any(_recorded(footprint.transaction, run) for run in winners):
        return True
    for run in winners:
        version = run.versions[0]
        if run.protocol is not None and footprint.changes_protocol:
            raise ProtocolChanged(f"commit {version} changed the table's protocol; {_AGAIN}", version=version)
        if run.metadata is not None:
            raise MetadataChanged(f"commit {version} changed the table's schema or properties; {_AGAIN}", version=version)
    for run in winners:
        _check_files(footprint, run, metadata)
    return False


def check_unseen(footprint: Footprint, seen: Snapshot, newest: Snapshot) -> bool:
    """`check_conflicts` where the commits in between were cleaned up: from the two states alone, refusing on a doubt."""
    if footprint.transaction is not None:
        recorded = newest.transaction_version(footprint.transaction.app_id)
        if recorded is not None and recorded >= footprint.transaction.version:
            return True
    if newest.metadata != seen.metadata or newest.protocol != seen.protocol or newest.version < seen.version:
        raise MetadataChanged(f"the table was changed or replaced since version {seen.version}; {_AGAIN}", version=newest.version)
    if footprint.reads is not Reads.NOTHING:
        raise ConcurrentAppend(
            f"the commits since version {seen.version} were cleaned up, so nobody can say what they changed; {_AGAIN}",
            version=newest.version,
        )
    return False


_AGAIN = "nothing was committed here: refresh the table and run the operation again"


def _recorded(transaction: SetTransaction, run: CommitRun) -> bool:
    own = run.transactions.filter(pc.equal(run.transactions["appId"], transaction.app_id))
    if not len(own):
        return False
    latest = own["version"][-1].as_py()
    if latest >= transaction.version:
        return True
    version = own["commit"][-1].as_py()
    raise ConcurrentTransaction(
        f"commit {version} recorded version {latest} of application {transaction.app_id!r} while version {transaction.version} "
        f"was under way: two writers share this id; {_AGAIN}",
        version=version,
    )


def _check_files(footprint: Footprint, run: CommitRun, metadata: Metadata) -> None:
    added, removed = run.adds, run.removes
    match footprint.reads:
        case Reads.NOTHING:
            read_added, read_removed = added.slice(0, 0), removed.slice(0, 0)
        case Reads.WHOLE_TABLE:
            read_added, read_removed = added, removed
        case predicate:
            read_added = added.filter(mask(matching_partitions(added, predicate, metadata)))
            # Removes need not carry partition values: what this operation read is what it removes.
            read_removed = removed.slice(0, 0)
    if len(read_added):
        version = read_added["commit"][0].as_py()
        raise ConcurrentAppend(f"commit {version} added {len(read_added)} files to what this operation read; {_AGAIN}", version=version)
    if len(read_removed):
        version = read_removed["commit"][0].as_py()
        raise ConcurrentDeleteRead(
            f"commit {version} removed {len(read_removed)} files that this operation read; {_AGAIN}", version=version
        )
    if footprint.removed is not None and len(footprint.removed) and len(removed):
        twice = removed.filter(pc.is_in(file_key(removed), value_set=file_key(footprint.removed)))
        if len(twice):
            version = twice["commit"][0].as_py()
            kind = ConcurrentDeleteDelete if footprint.reads is Reads.NOTHING else ConcurrentDeleteRead
            raise kind(f"commit {version} removed {len(twice)} files that this operation replaces; {_AGAIN}", version=version)
