"""A store that dies before or after each of its operations: the table stays readable, and the next attempt finishes.

What the dead attempt left behind is bounded, and vacuum removes it.
"""

from __future__ import annotations

import datetime as dt
import functools
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.commit_file import single_actions
from lake_core.delta.errors import DeltaError, TableAlreadyExists
from lake_core.delta.file_name import new_name
from lake_core.delta.log_segment import commit_key
from lake_core.delta.path import data_key
from lake_core.delta.snapshot import load_snapshot
from lake_core.delta.version_checksum import checksum_key
from lake_core.store import MemoryStore, ObjectStore
from lake_core.testing import FaultStore
from lake_core.testing.fault_store import StoreDied
from tests.delta.tables import SCHEMA, ids, rows
from tests.examples import stride

Row: TypeAlias = tuple[int, str, float]
TXN = ("crash", 1)
START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
CDF = {"delta.enableChangeDataFeed": "true"}


class Time:
    """The clock of a table and its store."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> dt.datetime:
        return self.now


@dataclass(frozen=True)
class Case:
    """An operation, and the rows that it leaves (by id, partition and value)."""

    run: Callable[[DeltaTable], object]
    after: Callable[[set[Row]], set[Row]]
    later: dt.timedelta = dt.timedelta()
    """How long after the table was made it runs."""
    properties: tuple[tuple[str, str], ...] = ()


BEFORE: set[Row] = {(i, f"p{i % 2}", i / 2) for i in range(8)}
NEW: set[Row] = {(i, f"p{i % 2}", i / 2) for i in range(100, 104)}
NEW_P0: set[Row] = {(102, "p0", 51.0)}


def _arrow(state: set[Row]) -> pa.Table:
    columns = zip(*sorted(state), strict=True)
    return pa.table(dict(zip(SCHEMA.names, map(list, columns), strict=True)), schema=SCHEMA)


def _wider(state: set[Row]) -> pa.Table:
    return _arrow(state).append_column("extra", pa.array([7] * len(state), pa.int32()))


def _merge(table: DeltaTable) -> object:
    source = _arrow({(0, "p0", 70.0), (201, "p1", 71.0)})
    merge = table.merge(source, "t.id = s.id").when_matched_update("*").when_not_matched_insert("*")
    return merge.when_not_matched_by_source_delete("t.id = 1").execute(txn=TXN)


VECTORS = (("delta.enableDeletionVectors", "true"),)


def _delete_and_purge(table: DeltaTable) -> object:
    table.delete("id = 0", txn=TXN)
    return table.optimize(purge=True)


def _delete_and_drop(table: DeltaTable) -> None:
    table.delete("id = 0", txn=TXN)
    if "deletionVectors" in table.detail().table_features:
        table.drop_feature("deletionVectors")


def _in_p0_from_3(row: Row) -> bool:
    return row[1] == "p0" and row[0] >= 3


def _same(state: set[Row]) -> set[Row]:
    return state


LONG = dt.timedelta(days=40)
CASES: dict[str, Case] = {
    "append": Case(lambda t: t.append(_arrow(NEW), txn=TXN), lambda r: r | NEW),
    "append new column": Case(lambda t: t.append(_wider(NEW), schema_mode="merge", txn=TXN), lambda r: r | NEW),
    "overwrite": Case(lambda t: t.overwrite(_arrow(NEW), txn=TXN), lambda _: NEW),
    "overwrite partition": Case(
        lambda t: t.overwrite(_arrow(NEW_P0), where="p = 'p0'", txn=TXN),
        lambda r: {row for row in r if row[1] != "p0"} | NEW_P0,
    ),
    "overwrite rows": Case(
        lambda t: t.overwrite(_arrow(NEW_P0), where="p = 'p0' AND id >= 3", txn=TXN),
        lambda r: {row for row in r if not _in_p0_from_3(row)} | NEW_P0,
    ),
    "overwrite dynamic": Case(
        lambda t: t.overwrite(_arrow(NEW_P0), dynamic=True, txn=TXN),
        lambda r: {row for row in r if row[1] != "p0"} | NEW_P0,
    ),
    "overwrite schema": Case(
        lambda t: t.overwrite(_wider(NEW), schema_mode="overwrite", partition_by=["extra"], txn=TXN), lambda _: NEW
    ),
    "delete": Case(lambda t: t.delete("id IN (0, 5)", txn=TXN), lambda r: {row for row in r if row[0] not in (0, 5)}),
    "delete partition": Case(lambda t: t.delete("p = 'p1'", txn=TXN), lambda r: {row for row in r if row[1] != "p1"}),
    "update": Case(
        lambda t: t.update({"v": "v + 100"}, "id >= 5", txn=TXN),
        lambda r: {(i, p, v + 100 * (i >= 5)) for i, p, v in r},
    ),
    "merge": Case(_merge, lambda r: {row for row in r if row[0] not in (0, 1)} | {(0, "p0", 70.0), (201, "p1", 71.0)}),
    "optimize": Case(lambda t: t.optimize(txn=TXN), _same),
    "zorder": Case(lambda t: t.optimize(zorder_by=["id", "v"], txn=TXN), _same),
    "restore": Case(lambda t: t.restore(1, txn=TXN), lambda r: {row for row in r if row[0] < 4}),
    "set properties": Case(lambda t: t.set_properties({"delta.enableDeletionVectors": "true"}, txn=TXN), _same),
    "add constraint": Case(lambda t: t.add_constraint("positive", "v >= 0", txn=TXN), _same),
    "add columns": Case(lambda t: t.add_columns(pa.schema([("more", pa.int32())]), txn=TXN), _same),
    "vacuum": Case(lambda t: t.vacuum(), _same, LONG),
    "vacuum lite": Case(lambda t: t.vacuum(mode="lite"), _same, LONG),
    "clean log": Case(lambda t: t.clean_log(), _same, LONG),
    "checkpoint": Case(lambda t: t.checkpoint(), _same),
    "checkpoint later": Case(lambda t: t.checkpoint(), _same, LONG),
    "checkpoint of columns": Case(
        lambda t: t.checkpoint(),
        _same,
        properties=(("delta.checkpoint.writeStatsAsStruct", "true"), ("delta.checkpoint.writeStatsAsJson", "false")),
    ),
    "delete by vectors": Case(
        lambda t: t.delete("id IN (0, 5)", txn=TXN),
        lambda r: {row for row in r if row[0] not in (0, 5)},
        properties=VECTORS,
    ),
    "update by vectors of tracked rows": Case(
        lambda t: t.update({"v": "v + 100"}, "id >= 5", txn=TXN),
        lambda r: {(i, p, v + 100 * (i >= 5)) for i, p, v in r},
        properties=(*VECTORS, ("delta.enableRowTracking", "true")),
    ),
    "merge by vectors": Case(
        _merge,
        lambda r: {row for row in r if row[0] not in (0, 1)} | {(0, "p0", 70.0), (201, "p1", 71.0)},
        properties=VECTORS,
    ),
    "purge": Case(_delete_and_purge, lambda r: {row for row in r if row[0] != 0}, properties=VECTORS),
    "drop vectors": Case(_delete_and_drop, lambda r: {row for row in r if row[0] != 0}, properties=VECTORS),
    "compact log": Case(lambda t: t.compact_log(), _same),
}
VARIANTS = {"overwrite dynamic", "overwrite schema", "zorder", "vacuum lite", "add constraint", "checkpoint later"}
"""Cases that write as another one does, which `make test` leaves to `make test-all`."""
CHANGES_ROWS = ["overwrite rows", "delete", "update", "merge", "overwrite", "restore"]


@functools.cache
def _template(properties: tuple[tuple[str, str], ...]) -> MemoryStore:
    """Create two files per partition, tombstones, an orphan and a checkpoint.

    The next commit is version 5, which is checkpointed.
    """
    time = Time()
    store = MemoryStore(clock=time)
    all_properties = {"delta.checkpointInterval": "5", **dict(properties)}
    table = DeltaTable.create(store, SCHEMA, partition_by=["p"], properties=all_properties, clock=time)
    table.append(rows(0, 4, parts=2))
    table.append(rows(50, 52, parts=2))
    table.append(rows(4, 8, parts=2))
    table.checkpoint()
    table.delete("id >= 50")
    store.put(f"p=p0/{new_name(0)}", b"of a writer that died")
    return store


def _table(properties: tuple[tuple[str, str], ...], time: Time) -> MemoryStore:
    template = _template(properties)
    time.now = START
    store = MemoryStore(clock=time)
    for meta in template.list():
        store.put(meta.key, template.get(meta.key))
    return store


def _rows(table: DeltaTable) -> set[Row]:
    records = table.to_arrow(columns=["id", "p", "v"]).to_pylist()
    state = {(row["id"], row["p"], row["v"]) for row in records}
    assert len(state) == len(records), "a row is there twice"
    return state


def _data(store: ObjectStore) -> set[str]:
    return {meta.key for meta in store.list() if not meta.key.startswith("_delta_log/")}


def _shape(store: ObjectStore) -> tuple[int, list[tuple[str, int]]]:
    """Return what distinguishes the states of one test. Names of data files are random and left out."""
    return len(_data(store)), [(meta.key, meta.size) for meta in store.list("_delta_log/")]


def _live(store: ObjectStore) -> set[str]:
    return set(DeltaTable.open(store).files(["path"])["path"].to_pylist())


def _named(store: ObjectStore) -> set[str]:
    """Return the keys of all files that a commit or the state names."""
    snapshot = load_snapshot(store)
    keys = {
        data_key(path, store)
        for files in (snapshot.files(["path"]), snapshot.tombstones())
        for path in files["path"].to_pylist()
    }
    for meta in store.list("_delta_log/"):
        if meta.key.endswith(".json"):
            data = store.get(meta.key)
            keys |= {
                data_key(body["path"], store)
                for name in ("add", "remove", "cdc")
                for body in single_actions(0, data, name)
            }
    return keys


def _replayed(table: DeltaTable) -> set[Row]:
    """Return the rows that result from applying the change feed."""
    held: dict[Row, int] = {}
    for row in table.changes(0).read_all().to_pylist():
        key = (row["id"], row["p"], row["v"])
        held[key] = held.get(key, 0) + (1 if row["_change_type"] in ("insert", "update_postimage") else -1)
    assert set(held.values()) <= {0, 1}
    return {key for key, count in held.items() if count}


@pytest.mark.filterwarnings("ignore:.*rebuilt from older log files")
@pytest.mark.parametrize("mode", ["before", pytest.param("after", marks=pytest.mark.stress)])
@pytest.mark.parametrize(
    ("name", "feed"),
    [
        *(pytest.param(name, False, marks=pytest.mark.exhaustive if name in VARIANTS else []) for name in CASES),
        *(pytest.param(name, True, marks=pytest.mark.exhaustive) for name in CHANGES_ROWS),
    ],
)
def test_a_death_at_any_operation(name: str, feed: bool, mode: str) -> None:
    case, time = CASES[name], Time()
    properties = (*case.properties, *(CDF.items() if feed else ()))
    after = case.after(BEFORE)

    def attempt(store: ObjectStore) -> object:
        time.now = START + case.later
        return case.run(DeltaTable.open(store, clock=time))

    probe = FaultStore(_table(properties, time), at=10**9)
    kept = _data(probe.inner)
    unnamed = kept - _named(probe.inner)
    attempt(probe)
    assert _rows(DeltaTable.open(probe.inner)) == after
    most = len(_data(probe.inner) - kept)  # the files that one attempt writes
    died, left = 0, None
    # A crash after an operation leaves the same state as one before the next operation, except after the last.
    moments = [*((at, mode) for at in range(1, probe.operations + 1)), (probe.operations, "after")]
    for at, when in moments[:: stride(4)]:
        store = _table(properties, time)
        fault = FaultStore(store, at, when)  # type: ignore[arg-type]
        with suppress(StoreDied):
            attempt(fault)
        assert fault.fired
        if left == (left := _shape(store)):
            continue  # at a read: the store is as it was
        died += _rows(DeltaTable.open(store)) == BEFORE != after
        assert _rows(DeltaTable.open(store)) in (BEFORE, after), f"operation {at}"
        assert len(_data(store) - _named(store) - unnamed) <= most, f"operation {at}"
        attempt(store)
        assert _rows(DeltaTable.open(store)) == after, f"operation {at}"
        assert len(_data(store) - _named(store) - unnamed) <= most, f"operation {at}"
        if feed:
            assert _replayed(DeltaTable.open(store)) == after, f"operation {at}"
        # After the retention, only unneeded files are deleted.
        time.now = START + case.later + dt.timedelta(days=8)
        DeltaTable.open(store, clock=time).vacuum()
        assert _data(store) == _live(store), f"operation {at}"
        assert _rows(DeltaTable.open(store)) == after
        # The log is complete without any checkpoint, unless its beginning was cleaned up.
        if store.exists(commit_key(0)):
            store.delete([meta.key for meta in store.list("_delta_log/") if not meta.key.endswith(".json")])
            assert _rows(DeltaTable.open(store)) == after
        assert DeltaTable.open(store).append(DeltaTable.open(store).to_arrow()).rows == len(after)
    assert probe.operations >= 3
    assert died or after == BEFORE


@pytest.mark.parametrize("mode", [pytest.param("before", marks=pytest.mark.exhaustive), "after"])
@pytest.mark.parametrize("commits", [2, 3])
def test_a_death_with_and_without_a_checkpoint(commits: int, mode: str) -> None:
    """After two commits, the append's own commit is version 3; after three it is version 4, which has a checkpoint."""

    def table() -> MemoryStore:
        store = MemoryStore()
        _create(store)
        for number in range(commits):
            DeltaTable.open(store).append(rows(number * 6 // commits, (number + 1) * 6 // commits))
        return store

    def append(store: ObjectStore) -> object:
        return DeltaTable.open(store).append(rows(100, 104), txn=TXN)

    probe = FaultStore(table(), at=10**9)
    append(probe)
    died = 0
    for at in range(1, probe.operations + 1):
        store = table()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a checkpoint that fails after its commit is a warning
            try:
                append(FaultStore(store, at, mode))  # type: ignore[arg-type]
            except StoreDied:
                died += 1
        assert ids(DeltaTable.open(store).to_arrow()) in ([*range(6)], [*range(6), *range(100, 104)])
        append(store)
        assert ids(DeltaTable.open(store).to_arrow()) == [*range(6), *range(100, 104)]
    assert died >= 3


def _create(store: ObjectStore) -> object:
    return DeltaTable.create(
        store, SCHEMA, partition_by=["p"], exist_ok=True, properties={"delta.checkpointInterval": "2"}
    )


@pytest.mark.parametrize("mode", ["before", "after"])
def test_a_death_while_a_table_is_created(mode: str) -> None:
    probe = FaultStore(MemoryStore(), at=10**9)
    _create(probe)
    for at in range(1, probe.operations + 1):
        store = MemoryStore()
        try:
            _create(FaultStore(store, at, mode))  # type: ignore[arg-type]
        except StoreDied:
            _create(store)
        else:
            assert DeltaTable.exists(store)  # what failed is only derived from the commit
        assert load_snapshot(store).version == 0
        assert DeltaTable.open(store).append(rows(0, 2)).rows == 2


@pytest.mark.parametrize("mode", ["before", "after"])
def test_a_death_while_a_folder_is_converted(mode: str) -> None:
    def folder() -> MemoryStore:
        store = MemoryStore()
        for number in range(3):
            sink = pa.BufferOutputStream()
            pq.write_table(rows(number * 2, number * 2 + 2).drop_columns(["p"]), sink)
            store.put(f"p={number}/data-{number}.parquet", memoryview(sink.getvalue()))
        return store

    def leaves_table(at: int) -> bool:
        store = folder()
        with suppress(StoreDied):
            DeltaTable.convert(FaultStore(store, at, "after"))
        return DeltaTable.exists(store)

    probe = FaultStore(folder(), at=10**9)
    DeltaTable.convert(probe)
    landing = next(at for at in range(1, probe.operations + 1) if leaves_table(at))
    assert landing > 6
    for at in range(1, probe.operations + 1):
        store = folder()
        with suppress(StoreDied):
            DeltaTable.convert(FaultStore(store, at, mode))  # type: ignore[arg-type]
        left = {meta.key for meta in store.list()} - {meta.key for meta in folder().list()} - {checksum_key(0)}
        assert left == ({commit_key(0)} if DeltaTable.exists(store) else set())
        try:
            DeltaTable.convert(store)
        except TableAlreadyExists:
            assert at > landing or (at, mode) == (landing, "after")
        else:
            assert at <= landing
        assert ids(DeltaTable.open(store).to_arrow()) == [*range(6)]


@pytest.mark.filterwarnings("ignore:.*rebuilt from older log files")
@pytest.mark.parametrize("mode", ["before", "after"])
def test_a_death_while_a_log_is_cleaned(mode: str) -> None:
    """Keys are deleted one at a time. Every version then opens with its own rows or is reported as gone."""
    time = Time()

    class OneByOne(FaultStore):
        def _delete(self, keys) -> None:  # type: ignore[no-untyped-def]
            for key in keys:
                super()._delete([key])

    then = [_rows(DeltaTable.open(_table((), time), version=version)) for version in range(5)]
    time.now = START + LONG
    probe = OneByOne(_table((), time), at=10**9)
    time.now = START + LONG
    gone = DeltaTable.open(probe, clock=time).clean_log()
    assert set(gone) == {key(version) for version in range(3) for key in (commit_key, checksum_key)}
    for at in range(1, probe.operations + 1):
        store = _table((), time)
        time.now = START + LONG
        with suppress(StoreDied):
            DeltaTable.open(OneByOne(store, at, mode), clock=time).clean_log()  # type: ignore[arg-type]
        for version in range(5):
            try:
                actual = _rows(DeltaTable.open(store, version=version))
            except DeltaError:
                assert version < 3
            else:
                assert actual == then[version]
        DeltaTable.open(store, clock=time).clean_log()
        assert not any(store.exists(key) for key in gone)
        assert _rows(DeltaTable.open(store)) == BEFORE
