"""Tables whose clock the tests of vacuum and of the log's cleaning set."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from typing import Any

from lake_core.delta import DeltaTable
from lake_core.delta.file_name import new_name
from lake_core.delta.log_segment import commit_key
from tests.delta.tables import SCHEMA

START = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
ORPHAN = new_name(int(START.timestamp() * 1000))
"""A file that one of our own writers left."""


class Time:
    """The clock of a table and of the memory store that it lies in."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> dt.datetime:
        return self.now


def create(store: Any, clock: Time, partition_by: Sequence[str] = (), **properties: Any) -> DeltaTable:
    table_properties = {name.replace("_", "."): value for name, value in properties.items()}
    return DeltaTable.create(store, SCHEMA, partition_by=partition_by, properties=table_properties, clock=clock)


def live_paths(table: DeltaTable) -> list[str]:
    return sorted(table.files(["path"])["path"].to_pylist())


def stored_files(store: Any) -> list[str]:
    return sorted(meta.key for meta in store.list() if not meta.key.startswith("_delta_log/"))


def add_actions(table: DeltaTable, *actions: dict[str, Any]) -> None:
    """Add a commit as another writer would."""
    info = {"commitInfo": {"timestamp": int(table._clock().timestamp() * 1000)}}  # type: ignore[union-attr]
    lines = [json.dumps(action) for action in (info, *actions)]
    table.store.put(commit_key(table.refresh().version + 1), "\n".join(lines).encode())
    table.refresh()


def remove(path: str, when: dt.datetime = START) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": int(when.timestamp() * 1000), "dataChange": True}}
