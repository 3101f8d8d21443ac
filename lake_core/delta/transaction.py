"""Commits: put-if-absent of the next version, again after commits that came first, and a check if a response is lost.

Protocol section: Delta Log Entries (commits are never overwritten).
"""

from __future__ import annotations

import threading
import weakref
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lake_core import runtime
from lake_core.backoff import Backoff
from lake_core.delta.action_fields import ADD_FIELDS
from lake_core.delta.commit_actions import commit_info, depends_on_version, encode_operation
from lake_core.delta.commit_file import encode_actions, read_commit_info
from lake_core.delta.conflict import check_conflicts, check_unseen
from lake_core.delta.difference import difference
from lake_core.delta.errors import (
    CommitOutcomeUnknown,
    CommitTimeout,
    TableAlreadyExists,
    VersionNotFound,
)
from lake_core.delta.features import check_writable
from lake_core.delta.file_key import identity
from lake_core.delta.log_segment import commit_key
from lake_core.delta.numpy_arrays import empty_table
from lake_core.delta.row_conflict import (
    VectorChanges,
    check_rows,
    combined,
    holding,
    without_changes,
)
from lake_core.errors import AlreadyExists, NotFound, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake_core.delta.operation import Operation
    from lake_core.delta.snapshot import Snapshot
    from lake_core.store import ObjectStore

COMMIT_DEADLINE = 120.0
"""The number of seconds after which a commit gives up."""

_FEWEST_TRIES = 3
"""Even after the deadline: a process that was suspended may reach the deadline without having tried."""
_AFTER_LOSS = Backoff(0.02, 1.0, shortest_share=0.0)
_AFTER_FAILURE = Backoff(0.01, 1.0)


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
