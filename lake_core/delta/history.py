"""The history of a table, from its commits' provenance. Protocol section: Commit Provenance Information."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lake_core.delta.commit_file import read_commit_info, single_actions
from lake_core.delta.commit_time import CommitTimes
from lake_core.delta.log_segment import commit_key
from lake_core.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake_core.delta.snapshot import Snapshot
    from lake_core.store import ObjectStore

_LOOK_BACK = 1000
"""The most commits that are searched for the one that recorded a txn action."""


def history(snapshot: Snapshot, limit: int | None) -> list[dict[str, Any]]:
    """Return the commits that lead to the snapshot's version and that the log still holds, newest first.

    Each has its `version`, its `timestamp` (milliseconds since the epoch, as `DeltaTable.open(timestamp=)` uses it) and
    the other fields of its commitInfo.
    """
    times = CommitTimes(snapshot)
    commits = []
    for version in times.versions if limit is None else times.versions[:limit]:
        info = read_commit_info(version, snapshot.store.get(commit_key(version)))
        # Old writers leave a `version` of null in commitInfo, so the version is that of the file's name.
        commits.append({"version": version, **info} | {"version": version, "timestamp": times.at(version, info)})
    return commits


def find_transaction(store: ObjectStore, latest: int, app_id: str, version: int) -> tuple[int, dict[str, Any]] | None:
    """Return the version and the commitInfo of the commit that recorded a txn action.

    The operationMetrics in it are an object, if present.

    Return None if the log no longer holds that commit.
    """
    quoted = json.dumps(app_id, ensure_ascii=False).encode()
    escaped = json.dumps(app_id).encode()
    for number, data in _newest_first(store, latest):
        if quoted in data or escaped in data:
            for body in single_actions(number, data, "txn"):
                if body.get("appId") == app_id and body.get("version") == version:
                    return number, _with_metrics(read_commit_info(number, data))
    return None


def _with_metrics(info: dict[str, Any]) -> dict[str, Any]:
    """Return a commitInfo in which operationMetrics, if present, is an object.

    The field has no fixed form: other writers put any values there.
    """
    return info if isinstance(info.get("operationMetrics", {}), dict) else {**info, "operationMetrics": {}}


def _newest_first(store: ObjectStore, latest: int) -> Iterator[tuple[int, bytes]]:
    for number in range(latest, max(-1, latest - _LOOK_BACK), -1):
        try:
            yield number, store.get(commit_key(number))
        except NotFound:
            return
