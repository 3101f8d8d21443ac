"""The actions of a commit as bytes: those of its operation, and commitInfo, which depend on the version before.

Row ids, numbers and times of a commit follow from the version that it is put on top of, so an operation that others
were faster than is encoded again. Protocol sections: Commit Provenance Information, Row Tracking, In-Commit Timestamps.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lake_core.delta.commit_file import encode_actions, read_commit_info
from lake_core.delta.commit_time import CommitTimes
from lake_core.delta.conflict import Isolation
from lake_core.delta.errors import MissingMetadata
from lake_core.delta.features import is_active
from lake_core.delta.iceberg_compat import file_tags
from lake_core.delta.log_segment import commit_key
from lake_core.delta.read_set import READS_FIELD, read_set_texts
from lake_core.delta.row_tracking import DOMAIN as ROW_IDS_DOMAIN
from lake_core.delta.row_tracking import FreshIds, gives_ids, high_water_mark, materialized_columns
from lake_core.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lake_core.delta.action import DomainMetadata, Metadata, Protocol
    from lake_core.delta.operation import Operation
    from lake_core.delta.snapshot import Snapshot
    from lake_core.store import ObjectStore

ENGINE = "lake-orch"
_COMMIT_TIMES = "inCommitTimestamp"


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
        actions += [
            ("remove", remove_body(row | {"deletionTimestamp": now, "dataChange": change} | _described(row)))
            for row in operation.removes.to_pylist()
        ]
    restored = [] if operation.restored is None else operation.restored.to_pylist()
    restated = [] if operation.restated is None else operation.restated.to_pylist()
    adds = [add_body(row | {"dataChange": False}) for row in restated]
    adds += [add_body(row | {"dataChange": change}) for row in restored]
    adds += [add.to_json(data_change=change) for add in operation.adds]
    rows = [None] * (len(restated) + len(restored)) + [add.rows for add in operation.adds]
    metadata, protocol = defined_by(operation, latest)
    tags = file_tags(protocol, metadata)
    if tags is not None:
        adds = [{**add, "tags": {**tags, **(add.get("tags") or {})}} for add in adds]
    actions += [("domainMetadata", domain.to_json()) for domain in _give_ids(operation, latest, adds, rows)]
    actions += [("add", add) for add in adds]
    actions += [("cdc", file.to_change_json()) for file in operation.changes]
    return encode_actions(actions)


def depends_on_version(operation: Operation, latest: Snapshot) -> bool:
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
    if before < 0:
        # The commit before the first one that has a time of its own has that of its file, if the log still has it.
        times = CommitTimes(latest)
        before = times.at(latest.version) if latest.version in times.versions else -1
    return max(now, before + 1)


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


def _described(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether a remove action says more than a path. One of a file of vectors does not."""
    return {"extendedFileMetadata": True if row["size"] is not None else None}


def remove_body(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a remove action, from a row with at least the path (fields of REMOVE_FIELDS)."""
    return {
        "path": row["path"],
        "deletionTimestamp": row["deletionTimestamp"],
        "dataChange": row["dataChange"],
        "extendedFileMetadata": row["extendedFileMetadata"],
        "partitionValues": dict(row["partitionValues"] or ()) if row["extendedFileMetadata"] else None,
        "size": row["size"],
        "deletionVector": _present(row.get("deletionVector")),
        "baseRowId": row.get("baseRowId"),
        "defaultRowCommitVersion": row.get("defaultRowCommitVersion"),
    }


def add_body(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of an add action, from a row of the fields of ADD_FIELDS."""
    maps = {name: dict(row[name]) for name in ("partitionValues", "tags") if row.get(name) is not None}
    return {**row, **maps, "deletionVector": _present(row.get("deletionVector"))}


def _present(vector: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if vector is None else {key: value for key, value in vector.items() if value is not None}


def partition_by_text(columns: Sequence[str]) -> str:
    """Return partition columns as in commitInfo, as a JSON list."""
    return json.dumps(list(columns), ensure_ascii=False)
