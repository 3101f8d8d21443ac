"""Commits: put-if-absent of the next version, again after commits that came first, and a check if a response is lost.

Protocol section: Delta Log Entries (commits are never overwritten).
"""

from __future__ import annotations

import threading
import weakref
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lake_core import runtime
from lake_core.backoff import Backoff
from lake_core.delta.action_fields import ADD_FIELDS
from lake_core.delta.clustering import check_clustering
from lake_core.delta.column_mapping import with_highest_id
from lake_core.delta.commit_actions import commit_info, depends_on_version, encode_operation
from lake_core.delta.commit_file import encode_actions, read_commit_info
from lake_core.delta.conflict import Footprint, Isolation, Reads, check_conflicts, check_unseen, isolation_level
from lake_core.delta.difference import difference
from lake_core.delta.errors import (
    CommitOutcomeUnknown,
    CommitTimeout,
    TableAlreadyExists,
    TableNotFound,
    VersionNotFound,
)
from lake_core.delta.features import check_writable, upgraded_for
from lake_core.delta.file_key import identity
from lake_core.delta.iceberg_compat import check_compat
from lake_core.delta.identity import with_highest_marks, without_marks
from lake_core.delta.log_segment import commit_key
from lake_core.delta.numpy_arrays import empty_table
from lake_core.delta.row_conflict import (
    VectorChanges,
    check_rows,
    combined,
    holding,
    without_changes,
)
from lake_core.delta.row_tracking import DOMAIN as ROW_IDS_DOMAIN
from lake_core.errors import AlreadyExists, NotFound, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lake_core.delta.action import DomainMetadata, Metadata, Protocol, SetTransaction
    from lake_core.delta.data_file import AddFile
    from lake_core.delta.snapshot import Snapshot
    from lake_core.expression import Predicate
    from lake_core.store import ObjectStore

COMMIT_DEADLINE = 120.0
"""The number of seconds after which a commit gives up."""

_FEWEST_TRIES = 3
"""Even after the deadline: a process that was suspended may reach the deadline without having tried."""
_AFTER_LOSS = Backoff(0.02, 1.0, shortest_share=0.0)
_AFTER_FAILURE = Backoff(0.01, 1.0)


@dataclass(frozen=True, slots=True)
class Operation:
    """The operation of a commit, as the log stores it."""

    name: str
    """As in commitInfo: WRITE, CREATE TABLE, …"""
    parameters: Mapping[str, str] = field(default_factory=dict)
    base: Snapshot | None = None
    """The snapshot that it was planned on, since which other commits are checked; None if it creates the table."""
    metrics: Mapping[str, int] = field(default_factory=dict)
    adds: Sequence[AddFile] = ()
    restored: pa.Table | None = None
    """File actions to add as they are, deletion vectors included (columns of `action_fields.ADD_FIELDS`)."""
    changes: Sequence[AddFile] = ()
    """Change data files, which readers of the change data feed read instead of the adds and removes."""
    removes: pa.Table | None = None
    """File actions to remove: path, partitionValues, size, deletionVector where present."""
    reads: Reads | Predicate = Reads.NOTHING
    read_files: pa.Table | None = None
    """File actions that the operation read or depends on (path, deletionVector). None: those that are removed."""
    data_change: bool = True
    """False if the files hold the same rows as before, in another arrangement."""
    transaction: SetTransaction | None = None
    markers: Sequence[SetTransaction] = ()
    """The txn actions of other applications that it sets."""
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    domains: Sequence[DomainMetadata] = ()

    @property
    def planned_on(self) -> Snapshot:
        """Return the base. Raises TableNotFound for an operation that creates its table; see `commit_first`."""
        if self.base is None:
            raise TableNotFound(
                f"{self.name} has no version to start from: open the table first, and run the operation on it"
            )
        return self.base

    @property
    def is_blind_append(self) -> bool:
        """Return whether it only adds files and read nothing, so no other append conflicts with it."""
        defines = (self.metadata is not None and not self.gives_numbers) or self.protocol is not None
        only_adds = not self.removes and not defines and self.restored is None
        return self.reads is Reads.NOTHING and not self.read_files and only_adds

    @property
    def gives_numbers(self) -> bool:
        """Return whether all that changes of the table's definition are the numbers that identity columns gave."""
        if (
            self.metadata is None
            or self.base is None
            or self.metadata.schema_string == self.base.metadata.schema_string
        ):
            return False
        before = replace(self.base.metadata, schema=self.metadata.schema, schema_string=self.metadata.schema_string)
        return before == self.metadata and without_marks(self.metadata.schema) == without_marks(
            self.base.metadata.schema
        )

    def defining(self, metadata: Metadata, protocol: Protocol | None = None) -> Operation:
        """Return the operation with a change of the table's definition, limited to what differs from the base's.

        `protocol`: the lowest that the metadata needs by default. Raises UnsupportedWriterFeature; InvalidProperty for
        a column by which the table is clustered that would get no statistics.
        """
        base = self.planned_on
        if metadata.id == base.metadata.id or metadata.column_mapping.mode != "none":
            configuration = with_highest_id(metadata.configuration, base.metadata.configuration)
            metadata = with_highest_marks(replace(metadata, configuration=configuration), base.metadata)
        check_clustering(metadata, self.domains or base.domains)
        if metadata.id == base.metadata.id:
            check_compat(metadata, base.metadata)
        lowest = upgraded_for(base.protocol, base.metadata, metadata) if protocol is None else protocol
        return replace(
            self,
            metadata=metadata if metadata != base.metadata else None,
            protocol=lowest if lowest != base.protocol else None,
        )

    @property
    def isolation(self) -> Isolation:
        """Return the isolation level, which depends on the table's properties and the operation."""
        only_files = self.metadata is None and self.protocol is None and not self.domains
        return isolation_level(
            self.metadata or self.planned_on.metadata, data_change=self.data_change or not only_files
        )

    @property
    def footprint(self) -> Footprint:
        """Return the properties that decide which commits it may follow."""
        return Footprint(
            self.reads,
            self.removes if self.read_files is None else self.read_files,
            self.removes,
            self.transaction,
            self.isolation,
            self.protocol is not None,
            self.metadata,
            frozenset(domain.domain for domain in self.domains if domain.domain != ROW_IDS_DOMAIN),
            frozenset(marker.app_id for marker in self.markers),
        )


@dataclass(frozen=True, slots=True)
class Committed:
    """The result of a commit."""

    snapshot: Snapshot
    """The table with the commit in it."""
    version: int
    already_recorded: bool = False
    """Whether another attempt with the same txn committed first, so that this one committed nothing."""


def commit(operation: Operation, now: int, deadline: float = COMMIT_DEADLINE) -> Committed:
    """Commit an operation at the next free version, on top of what was committed since its base.

    `now` is in milliseconds since the epoch, `deadline` in seconds. Raises a ConcurrentModification if another commit
    conflicts; CommitTimeout after the deadline; CommitOutcomeUnknown if the store stopped answering.
    """
    end = runtime.monotonic() + deadline
    with _queue(operation.planned_on.store.url()):
        return _commit(operation, now, deadline, end)


def _commit(operation: Operation, now: int, deadline: float, end: float) -> Committed:
    commit_id = str(runtime.uuid4())
    latest, attempt = operation.planned_on, 0
    actions = encode_operation(operation, latest, now)
    while True:
        # Never try the next version without looking: after a cleanup of the log, used versions look free.
        newest = latest.refreshed()
        if newest is not latest:
            after = _after_others(operation, latest, newest, now)
            if after is None:
                return Committed(newest, newest.version, already_recorded=True)
            if after is not operation or depends_on_version(operation, newest):
                operation, actions = after, encode_operation(after, newest, now)
        latest, version = newest, newest.version + 1
        body = encode_actions([("commitInfo", commit_info(operation, latest, latest.store, commit_id, now))]) + actions
        if _put_commit(latest.store, version, body, commit_id, end):
            return Committed(latest.advanced([(version, body)]), version)
        attempt += 1
        if runtime.monotonic() > end and attempt >= _FEWEST_TRIES:
            raise CommitTimeout(
                f"other writers committed version {version} and the {attempt} versions before it, for "
                f"{deadline:g} s. Run the operation again, or let fewer writers commit to this table"
            )
        _AFTER_LOSS.wait(attempt)


_QUEUES: weakref.WeakValueDictionary[str, _Queue] = weakref.WeakValueDictionary()
_QUEUES_GUARD = threading.Lock()


class _Queue:
    """The writers of this process that commit to one table. They take turns, so that they do not conflict."""

    def __init__(self) -> None:
        self.turn = threading.RLock()


@contextmanager
def _queue(url: str) -> Iterator[None]:
    with _QUEUES_GUARD:
        queue = _QUEUES.setdefault(url, _Queue())
    with queue.turn:
        yield


def _after_others(operation: Operation, base: Snapshot, newest: Snapshot, now: int) -> Operation | None:
    """Return the operation as it follows the commits between two snapshots; None if they include it.

    Raises a ConcurrentModification if one of them conflicts with it.
    """
    footprint, nothing = operation.footprint, empty_table(pa.schema(list(ADD_FIELDS)))
    if newest.version < base.version or newest.metadata.id != base.metadata.id:
        # There is a different table now.
        return None if check_unseen(footprint, base, newest, now) else operation
    try:
        winners = newest.since(base)
    except VersionNotFound:
        return None if check_unseen(footprint, base, newest, now) else operation
    theirs = VectorChanges(nothing, nothing)
    if any(len(VectorChanges.of(run.removes, run.adds)) for run in winners):
        net = difference(base, newest)
        theirs = VectorChanges.of(net.removes, net.adds)
    winners = tuple(without_changes(run, theirs) for run in winners)
    if check_conflicts(footprint, winners, base.metadata, base.protocol, now, holding(newest)):
        return None
    check_writable(newest.protocol, newest.metadata, newest.store)
    if not len(theirs):
        return operation
    removes = nothing if operation.removes is None else operation.removes
    restored = nothing if operation.restored is None else operation.restored
    check_rows(footprint, VectorChanges.of(removes, restored), theirs, base, newest.version)
    removes, restored = combined(removes, restored, theirs, base, newest.data_root, now)
    read = removes if operation.read_files is None else operation.read_files
    return replace(
        operation,
        removes=removes if len(removes) else None,
        restored=restored if len(restored) else None,
        # What comes next names the files by their new vectors.
        read_files=pa.concat_tables([identity(read), identity(theirs.after)]),
    )


def commit_first(store: ObjectStore, operation: Operation, now: int) -> bytes:
    """Create version 0, and return its bytes. Raises TableAlreadyExists if another writer was first."""
    commit_id = str(runtime.uuid4())
    body = encode_actions([("commitInfo", commit_info(operation, None, store, commit_id, now))]) + encode_operation(
        operation, None, now
    )
    if not _put_commit(store, 0, body, commit_id, runtime.monotonic() + COMMIT_DEADLINE):
        raise TableAlreadyExists(f"a table exists at {store.url()} already: open it, or pass exist_ok=True")
    return body


def _put_commit(store: ObjectStore, version: int, body: bytes, commit_id: str, end: float) -> bool:
    """Try to create a version. Return True if it is this writer's, False if it is another writer's."""
    key = commit_key(version)
    tried, failures = False, 0
    while True:
        try:
            if not tried:
                store.put(key, body, if_absent=True)
                return True
            # The response was lost, or it says that the version exists. Find out which writer wrote it.
            return read_commit_info(version, store.get(key)).get("txnId") == commit_id
        except AlreadyExists:
            tried = True
        except (NotFound, StoreUnavailable) as error:
            # The put never arrived, so try the same version again, never the next one.
            tried = not isinstance(error, NotFound)
            if runtime.monotonic() > end:
                raise CommitOutcomeUnknown(
                    f"the store gave no clear answer while version {version} was committed ({error}), so it is "
                    "unknown whether the commit succeeded: "
                    "repeat the operation with the same transaction identifier (txn) once the store is available"
                ) from None
            failures += 1
            _AFTER_FAILURE.wait(failures)
