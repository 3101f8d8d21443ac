"""What the tests of lakes share: small tables, and what is in them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from lake_core import Lake
from lake_core import dataset as formats
from lake_core.delta import DeltaTable
from lake_core.installed import installed
from lake_core.lake.refs.lease import LeaseConfig
from lake_core.pool import dataset_state
from lake_core.store import FolderStore, MemoryStore, ObjectStore
from lake_core.testing import FaultStore
from lake_core.testing.fault_store import FaultMode, StoreDied
from lake_core.testing.manual_clock import ManualClock

TOY_FORMATS = Path(__file__).parent / "formats"
"""Where two formats lie that register themselves, for tests that put this folder on the path."""
SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.int64())])
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def forget_formats() -> None:
    """Make the next lookup of formats read the installed ones again, without what they have cached."""
    installed.cache_clear()
    forget_datasets()


def forget_datasets() -> None:
    """Make the formats read anew what they have cached of datasets, as a new process does."""
    for cached in (formats.dataset_format, dataset_state._pool_of_entries):
        cached.cache_clear()


def opened(store: ObjectStore, time: ManualClock) -> Lake:
    """Open a lake whose publishers do not wait for a publisher that died."""
    lake = Lake.open(store, clock=time)
    return Lake(replace(lake.repository, lease_config=LeaseConfig(stale=0.0)))


def died_at(
    operation: int, mode: FaultMode, work: Callable[[Lake], None], make: Callable[[ManualClock], MemoryStore]
) -> tuple[MemoryStore, ManualClock, bool]:
    """Let work on a new lake die at a store operation.

    Return the store, its clock, and whether the work came that far.
    """
    time = ManualClock()
    store = make(time)
    dying = FaultStore(store, operation, mode)
    with suppress(StoreDied):
        work(opened(dying, time))
    return store, time, dying.fired


def rows(ids: Iterable[int], v: int = 0) -> pa.Table:
    """Return rows of these ids, in two partitions."""
    numbers = list(ids)
    return pa.table({"id": numbers, "p": [f"p{i % 2}" for i in numbers], "v": [v] * len(numbers)}, schema=SCHEMA)


def ids(table: DeltaTable | pa.Table) -> list[int]:
    """Return the sorted ids of a table, including doubled ones."""
    data = table.to_arrow() if isinstance(table, DeltaTable) else table
    return sorted(data["id"].to_pylist())


def values(table: DeltaTable) -> dict[int, int]:
    """Return the value of each id."""
    data = table.to_arrow()
    assert len(set(data["id"].to_pylist())) == len(data), "a row is doubled"
    return dict(zip(data["id"].to_pylist(), data["v"].to_pylist(), strict=True))


def plain(root: ObjectStore, path: str) -> DeltaTable:
    """Open a table as a reader without knowledge of the lake does."""
    return DeltaTable.open(FolderStore(root, path))


def create_tables(lake: Lake, *paths: str, **options: object) -> None:
    """Create tables of `SCHEMA` with the ids 0 to 9, in one commit."""
    with lake.session(message="begin") as s:
        for path in paths:
            s.create_delta(path, SCHEMA, **options).append(rows(range(10)))
