"""Commits: put-if-absent of the next version, again after commits that came first, and a check if a response is lost.

Protocol section: Delta Log Entries (commits are never overwritten).
"""

from __future__ import annotations

import json
import threading
import weakref
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lake_core import runtime
from lake_core.backoff import Backoff
from lake_core.delta.action_fields import ADD_FIELDS
from lake_core.delta.clustering import check_clustering
from lake_core.delta.column_mapping import with_highest_id
from lake_core.delta.commit_file import encode_actions, read_commit_info
from lake_core.delta.commit_time import CommitTimes
from lake_core.delta.conflict import Footprint, Isolation, Reads, check_conflicts, check_unseen, isolation_level
from lake_core.delta.difference import difference
from lake_core.delta.errors import (
    CommitOutcomeUnknown,
    CommitTimeout,
    MissingMetadata,
    TableAlreadyExists,
    TableNotFound,
    VersionNotFound,
)
from lake_core.delta.features import check_writable, is_active, upgraded_for
from lake_core.delta.file_key import identity
from lake_core.delta.iceberg_compat import check_compat, file_tags
from lake_core.delta.identity import with_highest_marks, without_marks
from lake_core.delta.log_segment import commit_key
from lake_core.delta.numpy_arrays import empty_table
from lake_core.delta.read_set import READS_FIELD, read_set_texts
from lake_core.delta.row_conflict import (
    VectorChanges,
    check_rows,
    combined,
    holding,
    without_changes,
)
from lake_core.delta.row_tracking import DOMAIN as ROW_IDS_DOMAIN
from lake_core.delta.row_tracking import FreshIds, gives_ids, high_water_mark, materialized_columns
from lake_core.errors import AlreadyExists, NotFound, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lake_core.delta.action import DomainMetadata, Metadata, Protocol, SetTransaction
    from lake_core.delta.data_file import AddFile
    from lake_core.delta.snapshot import Snapshot
    from lake_core.expression import Predicate
    from lake_core.store import ObjectStore

ENGINE = "lake-orch"
_COMMIT_TIMES = "inCommitTimestamp"
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
            if after is not operation or _depends_on_version(operation, newest):
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


def encode_operation(operation: Operation, latest: Snapshot | None, now: int) -> bytes:
    """Encode everything except the commitInfo of a commit on top of `latest`; None for the first one."""
    actions: list[tuple[str, dict[str, Any]]] = []
    if operation.protocol is not None:
        actions.append(("protocol", operation.protocol.to_json()))
    if operation.metadata is not None:
        actions.append(("metaData", _with_enablement(operation, latest, now).to_json()))
    if operation.transaction is not None:
        actions.append(("txn", operation.transaction.to_json()))
    recorded_id = None if operation.transaction is None else operation.transaction.app_id
    actions += [("txn", marker.to_json()) for marker in operation.markers if marker.app_id != recorded_id]
    actions += [("domainMetadata", domain.to_json()) for domain in operation.domains if domain.domain != ROW_IDS_DOMAIN]
    change = operation.data_change
    if operation.removes is not None:
        actions += [("remove", _remove(row, now, change)) for row in operation.removes.to_pylist()]
    restored = [] if operation.restored is None else operation.restored.to_pylist()
    adds = [_restored(row, change) for row in restored] + [add.to_json(data_change=change) for add in operation.adds]
    rows = [None] * len(restored) + [add.rows for add in operation.adds]
    metadata, protocol = defined_by(operation, latest)
    tags = file_tags(protocol, metadata)
    if tags is not None:
        adds = [{**add, "tags": add.get("tags") or tags} for add in adds]
    actions += [("domainMetadata", domain.to_json()) for domain in _give_ids(operation, latest, adds, rows)]
    actions += [("add", add) for add in adds]
    actions += [("cdc", file.to_change_json()) for file in operation.changes]
    return encode_actions(actions)


def _depends_on_version(operation: Operation, latest: Snapshot) -> bool:
    """Return whether the actions of an operation on top of a version are others than on top of another one."""
    return gives_ids(latest.protocol, latest.metadata) or _enables_commit_times(operation, latest)


def _enables_commit_times(operation: Operation, latest: Snapshot | None) -> bool:
    if latest is None or is_active(_COMMIT_TIMES, latest.protocol, latest.metadata):
        return False
    metadata, protocol = defined_by(operation, latest)
    return is_active(_COMMIT_TIMES, protocol, metadata)


def _with_enablement(operation: Operation, latest: Snapshot | None, now: int) -> Metadata:
    """Return an operation's metadata. If it enables in-commit timestamps, it says since when the log has them."""
    metadata, _ = defined_by(operation, latest)
    if latest is None or not _enables_commit_times(operation, latest):
        return metadata
    since = {
        "delta.inCommitTimestampEnablementVersion": str(latest.version + 1),
        "delta.inCommitTimestampEnablementTimestamp": str(_commit_time(latest, now)),
    }
    return replace(metadata, configuration={**metadata.configuration, **since})


def _commit_time(latest: Snapshot | None, now: int) -> int:
    """Return the in-commit timestamp of a commit, which is later than that of the one before."""
    if latest is None:
        return now
    before = last_in_commit_timestamp(latest)
    # The commit before the first one that has a time of its own has that of its file.
    return max(now, (CommitTimes(latest).at(latest.version) if before < 0 else before) + 1)


def _give_ids(
    operation: Operation, latest: Snapshot | None, adds: Sequence[dict[str, Any]], rows: Sequence[int | None]
) -> Sequence[DomainMetadata]:
    """Give ids to the rows of added files that have none, if they must have any, and return what records the highest.

    `rows`: how many a file has, if that is known without its statistics.
    """
    metadata, protocol = defined_by(operation, latest)
    if not gives_ids(protocol, metadata):
        for add in adds:
            add.pop("baseRowId", None)
            add.pop("defaultRowCommitVersion", None)
        return []
    before = high_water_mark(() if latest is None else latest.domains)
    mark = max(before, high_water_mark(operation.domains))
    fresh = FreshIds(mark, 0 if latest is None else latest.version + 1)
    lacking = [(add, count) for add, count in zip(adds, rows, strict=True) if add.get("baseRowId") is None]
    for add, count in lacking:
        add.update(fresh.give(count if count is not None else _rows_of(add), add["path"]))
    return [fresh.domain()] if lacking or mark > before else []


def _rows_of(add: Mapping[str, Any]) -> int | None:
    try:
        count = json.loads(add.get("stats") or "{}").get("numRecords")
    except (ValueError, AttributeError):
        return None
    return count if type(count) is int else None


def defined_by(operation: Operation, latest: Snapshot | None) -> tuple[Metadata, Protocol]:
    """Return the definition of the table after an operation on top of `latest`. Raises MissingMetadata."""
    metadata = operation.metadata or (latest.metadata if latest is not None else None)
    protocol = operation.protocol or (latest.protocol if latest is not None else None)
    if metadata is None or protocol is None:
        raise MissingMetadata(f"{operation.name} is to create a table, but has no columns for it")
    return metadata, protocol


def commit_info(
    operation: Operation, latest: Snapshot | None, store: ObjectStore, commit_id: str, now: int
) -> dict[str, Any]:
    """Return the provenance of a commit on top of `latest`; inside a lake also what it read.

    `now`: milliseconds since the epoch.
    """
    metadata, protocol = defined_by(operation, latest)
    info: dict[str, Any] = {}
    if is_active(_COMMIT_TIMES, protocol, metadata):
        now = _commit_time(latest, now)
        info["inCommitTimestamp"] = now
    return info | {
        "timestamp": now,
        "operation": operation.name,
        "operationParameters": dict(operation.parameters),
        "readVersion": operation.base.version if operation.base is not None else None,
        "isolationLevel": (operation.isolation if operation.base is not None else Isolation.SERIALIZABLE).value,
        "isBlindAppend": operation.is_blind_append,
        "operationMetrics": {name: str(value) for name, value in operation.metrics.items()},
        "engineInfo": ENGINE,
        "txnId": commit_id,
        **_tags(operation, metadata, protocol),
        **({READS_FIELD: read_set_texts([operation.reads])} if store.versioned else {}),
    }


def _tags(operation: Operation, metadata: Metadata, protocol: Protocol) -> dict[str, Any]:
    """Return what commitInfo says of a commit: whether moved rows keep their ids, and whether new ones got numbers."""
    base, tags = operation.base, {}
    if materialized_columns(protocol, metadata):
        kept = base is None or bool(materialized_columns(base.protocol, base.metadata))
        tags["delta.rowTracking.preserved"] = str(kept).lower()
    if operation.gives_numbers:
        tags["delta.identity.schemaUpdate"] = "true"
    return {"tags": tags} if tags else {}


def last_in_commit_timestamp(snapshot: Snapshot) -> int:
    """Return the inCommitTimestamp of a snapshot's last commit, in milliseconds since the epoch; -1 if it has none."""
    try:
        info = read_commit_info(snapshot.version, snapshot.store.get(commit_key(snapshot.version)))
    except NotFound:
        return -1
    timestamp = info.get("inCommitTimestamp")
    return timestamp if type(timestamp) is int else -1


def _remove(row: dict[str, Any], now: int, data_change: bool) -> dict[str, Any]:
    return {
        "path": row["path"],
        "deletionTimestamp": now,
        "dataChange": data_change,
        "extendedFileMetadata": True,
        "partitionValues": dict(row["partitionValues"] or ()),
        "size": row["size"],
        "deletionVector": _present(row.get("deletionVector")),
        "baseRowId": row.get("baseRowId"),
        "defaultRowCommitVersion": row.get("defaultRowCommitVersion"),
    }


def _restored(row: dict[str, Any], data_change: bool) -> dict[str, Any]:
    maps = {name: dict(row[name]) for name in ("partitionValues", "tags") if row.get(name) is not None}
    return row | maps | {"dataChange": data_change, "deletionVector": _present(row.get("deletionVector"))}


def _present(vector: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if vector is None else {key: value for key, value in vector.items() if value is not None}


def partition_by_text(columns: Sequence[str]) -> str:
    """Return partition columns as in commitInfo, as a JSON list."""
    return json.dumps(list(columns), ensure_ascii=False)
