"""Committing: one put-if-absent at the next version, replayed on top of whoever was faster, settled when the answer is lost.

Protocol section: Delta Log Entries (commits are never overwritten).
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lake_core.delta.action import Metadata, Protocol, SetTransaction
from lake_core.delta.commit_file import encode_actions, read_commit_info
from lake_core.delta.conflict import Footprint, Reads, check_conflicts, check_unseen
from lake_core.delta.data_file import AddFile
from lake_core.delta.errors import CommitOutcomeUnknown, CommitTimeout, TableAlreadyExists, VersionNotFound
from lake_core.delta.features import check_writable
from lake_core.delta.log_segment import commit_key
from lake_core.delta.snapshot import Snapshot
from lake_core.errors import AlreadyExists, NotFound, StoreUnavailable
from lake_core.expression import Predicate
from lake_core.store import ObjectStore

ENGINE = "lake-orch"
COMMIT_DEADLINE = 120.0
"""Seconds after which a commit gives up on winning the race."""

_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class Operation:
    """What a commit does, as it will stand in the log."""

    name: str
    """As in commitInfo: WRITE, CREATE TABLE, …"""
    parameters: Mapping[str, str] = field(default_factory=dict)
    base: Snapshot | None = None
    """What it was planned on, so that whatever others committed since is checked; None for what creates the table."""
    metrics: Mapping[str, int] = field(default_factory=dict)
    adds: Sequence[AddFile] = ()
    removes: pa.Table | None = None
    """File actions to remove: path, partitionValues, size, deletionVector where present."""
    reads: Reads | Predicate = Reads.NOTHING
    transaction: SetTransaction | None = None
    protocol: Protocol | None = None
    metadata: Metadata | None = None

    @property
    def is_blind_append(self) -> bool:
        return self.reads is Reads.NOTHING and not self.removes and self.metadata is None and self.protocol is None


@dataclass(frozen=True, slots=True)
class Committed:
    """How a commit ended."""

    snapshot: Snapshot
    """The table with the commit in it."""
    version: int
    already_recorded: bool = False
    """Whether another attempt at the same marker won the race, so that nothing was committed by this one."""


@dataclass(frozen=True, slots=True)
class Pacing:
    """Time and chance of the commit loop, replaceable in tests."""

    deadline: float = COMMIT_DEADLINE
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic
    uniform: Callable[[float, float], float] = random.uniform


def commit(operation: Operation, now: int, pacing: Pacing | None = None) -> Committed:
    """Commit an operation at the next free version, on top of what was committed since its base.

    `now`: milliseconds since the epoch. Raises a ConcurrentModification where a faster commit is in the way, CommitTimeout
    after the deadline, CommitOutcomeUnknown where the store stopped answering in between.
    """
    assert operation.base is not None
    pacing = pacing or Pacing()
    end = pacing.monotonic() + pacing.deadline
    txn_id = str(uuid.uuid4())
    body = _encode(operation, operation.base.version, txn_id, now)
    latest, attempt = operation.base, 0
    while True:
        # Never into the next slot unseen: where a log was cleaned up, slots that were taken once look free.
        newest = latest.refreshed()
        if newest is not latest and _overtaken(operation, latest, newest):
            return Committed(newest, newest.version, already_recorded=True)
        latest, version = newest, newest.version + 1
        if _put_commit(latest.store, version, body, txn_id, pacing, end):
            return Committed(latest.advanced([(version, body)]), version)
        attempt += 1
        if pacing.monotonic() > end:
            raise CommitTimeout(
                f"version {version} was taken by another writer, as were the {attempt} before it, for {pacing.deadline:g} s. "
                f"Run the operation again, or let fewer writers commit to this table"
            )
        pacing.sleep(pacing.uniform(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(attempt, 10))))


def _overtaken(operation: Operation, seen: Snapshot, newest: Snapshot) -> bool:
    """Whether the commits between two snapshots hold this very operation. Raises where they bar it."""
    footprint = Footprint(operation.reads, operation.removes, operation.transaction, operation.protocol is not None)
    if newest.version < seen.version or newest.metadata.id != seen.metadata.id:
        return check_unseen(footprint, seen, newest)  # another table stands here now
    try:
        winners = newest.since(seen)
    except VersionNotFound:
        return check_unseen(footprint, seen, newest)
    recorded = check_conflicts(footprint, winners, seen.metadata)
    if not recorded:
        check_writable(newest.protocol, newest.metadata)
    return recorded


def commit_first(store: ObjectStore, operation: Operation, now: int, pacing: Pacing | None = None) -> bytes:
    """Create version 0. Returns its bytes. Raises TableAlreadyExists where another writer was first."""
    pacing = pacing or Pacing()
    txn_id = str(uuid.uuid4())
    body = _encode(operation, None, txn_id, now)
    if not _put_commit(store, 0, body, txn_id, pacing, pacing.monotonic() + pacing.deadline):
        raise TableAlreadyExists(f"a table stands at {store.url()}. Open it, or pass exist_ok=True")
    return body


def _put_commit(store: ObjectStore, version: int, body: bytes, txn_id: str, pacing: Pacing, end: float) -> bool:
    """Try to create one version. True: it is ours; False: it is another writer's."""
    key = commit_key(version)
    pause = _FIRST_PAUSE
    tried = False
    while True:
        try:
            if not tried:
                store.put(key, body, if_absent=True)
                return True
            # The store's answer was lost, or it says that the version exists: who wrote it?
            return read_commit_info(version, store.get(key)).get("txnId") == txn_id
        except AlreadyExists:
            tried = True
        except (NotFound, StoreUnavailable) as error:
            # Not there: it never arrived, so the same version again, never the next one.
            tried = not isinstance(error, NotFound)
            if pacing.monotonic() > end:
                raise CommitOutcomeUnknown(
                    f"the store gave no clear answer while version {version} was committed ({error}). Whether it landed is unknown: "
                    f"repeat the operation with the same txn marker once the store is back"
                ) from None
            pacing.sleep(pacing.uniform(pause / 2, pause))
            pause = min(_LONGEST_PAUSE, pause * 2)


def _encode(operation: Operation, read_version: int | None, txn_id: str, now: int) -> bytes:
    actions: list[tuple[str, dict[str, Any]]] = [("commitInfo", _commit_info(operation, read_version, txn_id, now))]
    if operation.protocol is not None:
        actions.append(("protocol", operation.protocol.to_json()))
    if operation.metadata is not None:
        actions.append(("metaData", operation.metadata.to_json()))
    if operation.transaction is not None:
        actions.append(("txn", operation.transaction.to_json()))
    if operation.removes is not None:
        actions += [("remove", _remove(row, now)) for row in operation.removes.to_pylist()]
    actions += [("add", add.to_json()) for add in operation.adds]
    return encode_actions(actions)


def _commit_info(operation: Operation, read_version: int | None, txn_id: str, now: int) -> dict[str, Any]:
    return {
        "timestamp": now,
        "operation": operation.name,
        "operationParameters": dict(operation.parameters),
        "readVersion": read_version,
        "isolationLevel": "Serializable",
        "isBlindAppend": operation.is_blind_append,
        "operationMetrics": {name: str(value) for name, value in operation.metrics.items()},
        "engineInfo": ENGINE,
        "txnId": txn_id,
    }


def _remove(row: dict[str, Any], now: int) -> dict[str, Any]:
    return {
        "path": row["path"],
        "deletionTimestamp": now,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": dict(row["partitionValues"] or ()),
        "size": row["size"],
    }


def partition_by_text(columns: Sequence[str]) -> str:
    """Partition columns as commitInfo spells them: a JSON list."""
    return json.dumps(list(columns), ensure_ascii=False)
