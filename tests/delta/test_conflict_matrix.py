"""The conflict matrix: which operation loses, at which isolation level, with what error, and the rows after it."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.action import DomainMetadata, Protocol, SetTransaction
from lake_core.delta.commit_file import read_commit_info
from lake_core.delta.conflict import Reads
from lake_core.delta.errors import (
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    ConcurrentModification,
    ConcurrentTransaction,
    ConstraintViolation,
    InvalidProperty,
    MetadataChanged,
    ProtocolChanged,
    UnsupportedWriterFeature,
)
from lake_core.delta.log_segment import commit_key
from lake_core.delta.operation import Operation
from lake_core.delta.operations.write import Write
from lake_core.delta.parquet_options import WriterProperties
from lake_core.delta.result import OperationResult
from lake_core.delta.snapshot import Snapshot
from lake_core.delta.table import ArrowData
from lake_core.delta.transaction import commit
from lake_core.store import MemoryStore, ObjectStore
from lake_core.store.object_store import Bytes, ObjectMeta
from lake_core.testing import FaultStore
from lake_core.txn import Txn
from tests.delta.tables import SCHEMA, ids, rows

Rows: TypeAlias = dict[int, tuple[str, float]]
Partition: TypeAlias = str

CA, CDR, MC, PC = ConcurrentAppend, ConcurrentDeleteRead, MetadataChanged, ProtocolChanged
ERRORS: Mapping[str, type[ConcurrentModification]] = {"CA": CA, "CDR": CDR, "MC": MC, "PC": PC}
WIDE = SCHEMA.append(pa.field("extra", pa.int32()))
BASE: Rows = {i: (f"p{i % 3}", i / 2) for i in range(12)}


def _arrow(state: Rows) -> pa.Table:
    return pa.table(
        {"id": list(state), "p": [p for p, _ in state.values()], "v": [v for _, v in state.values()]}, schema=SCHEMA
    )


def _table_rows(store: ObjectStore) -> Rows:
    read = DeltaTable.open(store).to_arrow(columns=["id", "p", "v"]).to_pylist()
    state = {row["id"]: (row["p"], row["v"]) for row in read}
    assert len(state) == len(read), "a row is there twice"
    return state


def _table(isolation: str | None = None, **properties: str) -> MemoryStore:
    """Create three partitions of two files each. Version 1 holds the first half."""
    all_properties = {**({} if isolation is None else {"delta.isolationLevel": isolation}), **properties}
    template = _template(tuple(all_properties.items()))
    store = MemoryStore()
    for meta in template.list():
        store.put(meta.key, template.get(meta.key))
    return store


@functools.cache
def _template(properties: tuple[tuple[str, str], ...]) -> MemoryStore:
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA, partition_by=["p"], properties=dict(properties))
    table.append(rows(0, 6))
    table.append(rows(6, 12))
    return store


@dataclass(frozen=True)
class Act:
    """An operation on the table, and what it does to plain rows."""

    run: Callable[[DeltaTable, Partition], object]
    model: Callable[[Rows, Partition], Rows]


def _same(state: Rows, _: Partition) -> Rows:
    return state


def _number(partition: Partition) -> int:
    return int(partition[1:])


def _insert_only(table: DeltaTable, source: Rows) -> object:
    # The values are floating point, so only partitions limit what is read.
    return table.merge(_arrow(source), "t.p = s.p AND t.v = s.v").when_not_matched_insert("*").execute()


def _merge(table: DeltaTable, _: Partition) -> object:
    source = _arrow({101: ("p0", 0.0), 100: ("p0", 500.0)})
    return table.merge(source, "t.p = s.p AND t.v = s.v").when_matched_delete().when_not_matched_insert("*").execute()


def _merged(state: Rows) -> Rows:
    inserted = {100: ("p0", 500.0)} if ("p0", 0.0) in state.values() else {100: ("p0", 500.0), 101: ("p0", 0.0)}
    return {i: row for i, row in state.items() if row != ("p0", 0.0)} | inserted


def _without(state: Rows, gone: Callable[[int, str], bool]) -> Rows:
    return {i: (p, v) for i, (p, v) in state.items() if not gone(i, p)}


ZONE = "p = 'p0' AND id >= 3"


def _in_zone(i: int, p: str) -> bool:
    return p == "p0" and i >= 3


NEW: Rows = {100: ("p0", 50.0)}

WINNERS: dict[str, Act] = {
    "blind append": Act(
        lambda t, q: t.append(_arrow({200 + _number(q): (q, 900.0)})), lambda r, q: {**r, 200 + _number(q): (q, 900.0)}
    ),
    "append that read": Act(
        lambda t, q: _insert_only(t, {210 + _number(q): (q, 901.0)}), lambda r, q: {**r, 210 + _number(q): (q, 901.0)}
    ),
    "rewrite": Act(
        lambda t, q: t.update({"v": "v + 0.25"}, f"id = {_number(q)}"),
        lambda r, q: {i: (p, v + 0.25 * (i == _number(q))) for i, (p, v) in r.items()},
    ),
    "removes": Act(lambda t, q: t.delete(f"p = '{q}'"), lambda r, q: _without(r, lambda _, p: p == q)),
    "optimize": Act(lambda t, q: t.optimize(f"p = '{q}'"), _same),
    "metadata": Act(lambda t, _: t.set_properties({"owner": "somebody"}), _same),
    "harmless": Act(lambda t, _: t.set_properties({"delta.enableDeletionVectors": "true"}), _same),
    "protocol": Act(lambda t, _: t.set_properties({"delta.feature.vacuumProtocolCheck": "supported"}), _same),
}

LOSERS: dict[str, Act] = {
    "append": Act(lambda t, _: t.append(_arrow(NEW)), lambda r, _: r | NEW),
    "append that read": Act(lambda t, _: _insert_only(t, NEW), lambda r, _: r | NEW),
    "append new column": Act(
        lambda t, _: t.append(_arrow(NEW).append_column("extra", pa.array([1], pa.int32())), schema_mode="merge"),
        lambda r, _: r | NEW,
    ),
    "delete": Act(lambda t, _: t.delete(ZONE), lambda r, _: _without(r, _in_zone)),
    "delete partition": Act(lambda t, _: t.delete("p = 'p0'"), lambda r, _: _without(r, lambda _, p: p == "p0")),
    "delete all": Act(lambda t, _: t.delete(), lambda _r, _q: {}),
    "update": Act(
        lambda t, _: t.update({"v": "v + 1"}, ZONE),
        lambda r, _: {i: (p, v + 1 if _in_zone(i, p) else v) for i, (p, v) in r.items()},
    ),
    "merge": Act(_merge, lambda r, _: _merged(r)),
    "replace": Act(lambda t, _: t.overwrite(_arrow(NEW), where=ZONE), lambda r, _: _without(r, _in_zone) | NEW),
    "replace partition": Act(
        lambda t, _: t.overwrite(_arrow(NEW), where="p = 'p0'"), lambda r, _: _without(r, lambda _, p: p == "p0") | NEW
    ),
    "dynamic": Act(
        lambda t, _: t.overwrite(_arrow(NEW), dynamic=True), lambda r, _: _without(r, lambda _, p: p == "p0") | NEW
    ),
    "overwrite": Act(lambda t, _: t.overwrite(_arrow(NEW)), lambda _r, _q: dict(NEW)),
    "overwrite schema": Act(
        lambda t, _: t.overwrite(
            _arrow(NEW).append_column("extra", pa.array([1], pa.int32())), schema_mode="overwrite"
        ),
        lambda _r, _q: dict(NEW),
    ),
    "restore": Act(lambda t, _: t.restore(1), lambda _r, _q: {i: row for i, row in BASE.items() if i < 6}),
    "optimize": Act(lambda t, _: t.optimize("p = 'p0'"), _same),
    "zorder": Act(lambda t, _: t.optimize("p = 'p0'", zorder_by=["v"]), _same),
    "add columns": Act(lambda t, _: t.add_columns(pa.schema([("more", pa.int32())])), _same),
    "set properties": Act(lambda t, _: t.set_properties({"colour": "red"}), _same),
    "add constraint": Act(lambda t, _: t.add_constraint("positive", "v >= 0"), _same),
}

# The loser's outcome, by winner. `*`: only where both touch the same partition. `/`: at Serializable / at
# WriteSerializable.
READS_PARTITION = "CA*/ok CA* CA* CDR* CA* MC ok ok"
READS_ALL = "CA/ok CA CA CDR CA MC ok ok"
METADATA_ONLY = "ok ok ok ok ok MC MC ok"
REARRANGES = "ok ok CDR* CDR* CDR* MC ok ok"
MATRIX = {
    "append": "ok ok ok ok ok MC ok ok",
    "append that read": READS_PARTITION,
    "append new column": METADATA_ONLY,
    "delete": READS_PARTITION,
    "delete partition": READS_PARTITION,
    "delete all": READS_ALL,
    "update": READS_PARTITION,
    "merge": READS_PARTITION,
    "replace": READS_PARTITION,
    "replace partition": READS_PARTITION,
    "dynamic": READS_PARTITION,
    "overwrite": READS_ALL,
    "overwrite schema": "CA CA CA CDR CA MC MC ok",
    "restore": READS_ALL,
    "optimize": REARRANGES,
    "zorder": REARRANGES,
    "add columns": METADATA_ONLY,
    "set properties": METADATA_ONLY,
    "add constraint": "CA CA CA CDR CA MC PC PC",
}
CELLS = [
    pytest.param(
        loser,
        winner,
        level,
        partition,
        id=f"{loser}-{winner}-{level}-{partition}",
        # The default level and each row's own partition run by default, the rest of the matrix with the exhaustive
        # tests.
        marks=[] if (level, partition) == ("Serializable", "p0") else [pytest.mark.exhaustive],
    )
    for loser in LOSERS
    for winner in WINNERS
    for level in ("Serializable", "WriteSerializable")
    for partition in ("p0", "p1")
    if partition == "p0" or MATRIX[loser].split()[list(WINNERS).index(winner)].split("/")[0].endswith("*")
]


def _expected(loser: str, winner: str, level: str, partition: Partition) -> str:
    cell = MATRIX[loser].split()[list(WINNERS).index(winner)]
    serializable, _, write_serializable = cell.partition("/")
    verdict = write_serializable if level == "WriteSerializable" and write_serializable else serializable
    return verdict.removesuffix("*") if not verdict.endswith("*") or partition == "p0" else "ok"


@pytest.mark.parametrize(("loser", "winner", "level", "partition"), CELLS)
def test_cell(loser: str, winner: str, level: str, partition: Partition) -> None:
    store = _table(level)
    stale = DeltaTable.open(store)
    WINNERS[winner].run(DeltaTable.open(store), partition)
    won = WINNERS[winner].model(BASE, partition)
    assert _table_rows(store) == won
    version = stale.version + 1
    expected = _expected(loser, winner, level, partition)
    act, after = LOSERS[loser], LOSERS[loser].model(won, partition)
    if expected == "ok":
        act.run(stale, partition)
        if (winner, level) == ("blind append", "WriteSerializable"):
            # The append counts as later than an operation that did not see it.
            after = WINNERS[winner].model(LOSERS[loser].model(BASE, partition), partition)
        assert stale.version == version + 1
    else:
        with pytest.raises(ERRORS[expected]) as caught:
            act.run(stale, partition)
        assert type(caught.value) is ERRORS[expected]
        assert caught.value.version == version
        assert "run the operation again" in str(caught.value)
        assert (stale.version, _table_rows(store)) == (version - 1, won)
        act.run(stale.refresh(), partition)  # which says the truth: then it works
    assert _table_rows(store) == after


def test_the_matrix_is_whole() -> None:
    assert set(MATRIX) == set(LOSERS)
    assert all(len(line.split()) == len(WINNERS) for line in MATRIX.values())


def test_serializable_is_the_default() -> None:
    store = _table()
    stale = DeltaTable.open(store)
    DeltaTable.open(store).append(_arrow({200: ("p0", 1.0)}))
    with pytest.raises(ConcurrentAppend):
        stale.overwrite(_arrow(NEW))
    with pytest.raises(InvalidProperty, match="isolationLevel"):
        _table("Snapshot")


@pytest.mark.parametrize("flag", [None, False])
def test_only_what_says_so_is_a_blind_append(flag: bool | None) -> None:
    """Other writers leave the flag out, and their operations may have read the table."""
    store = _table("WriteSerializable")
    stale = DeltaTable.open(store)
    DeltaTable.open(store).append(_arrow({200: ("p0", 1.0)}))
    lines = [json.loads(line) for line in store.get(commit_key(3)).splitlines()]
    assert lines[0]["commitInfo"].pop("isBlindAppend") is True
    if flag is not None:
        lines[0]["commitInfo"]["isBlindAppend"] = flag
    store.put(commit_key(3), b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    with pytest.raises(ConcurrentAppend):
        stale.delete("p = 'p0'")


def test_files_that_provably_hold_no_such_row_do_not_conflict() -> None:
    store = _table()
    stale = DeltaTable.open(store)
    DeltaTable.open(store).append(_arrow({200: ("p0", 1.0)}))
    stale.delete("id = 3")
    assert _table_rows(store) == _without(BASE, lambda i, _: i == 3) | {200: ("p0", 1.0)}
    stale = DeltaTable.open(store)
    DeltaTable.open(store).append(_arrow({6: ("p0", 1.0)}))
    with pytest.raises(ConcurrentAppend):
        stale.update({"v": "0"}, "id = 6")


@pytest.mark.parametrize("properties", [{}, {"delta.dataSkippingNumIndexedCols": "0"}], ids=["bounds", "none"])
def test_rows_decide_where_statistics_cannot(properties: dict[str, str]) -> None:
    added: Rows = {100: ("p0", 1.0), 300: ("p0", 2.0)}
    store = _table(**properties)
    apart, touching = DeltaTable.open(store), DeltaTable.open(store)
    DeltaTable.open(store).append(_arrow(added))
    apart.update({"v": "0"}, "id = 200 OR id = 3")
    with pytest.raises(ConcurrentAppend):
        touching.update({"v": "0"}, "id = 300 OR id = 4")
    assert _table_rows(store) == BASE | {3: (BASE[3][0], 0.0)} | added


def test_removed_files_conflict_one_by_one() -> None:
    store = _table()
    stale, other = DeltaTable.open(store), DeltaTable.open(store)
    other.delete("id = 6")  # leaves the file with 9 alone
    stale.delete("id = 0")
    assert _table_rows(store) == _without(BASE, lambda i, _: i in (0, 6))
    stale, other = DeltaTable.open(store), DeltaTable.open(store)
    other.delete("id = 4")  # of the file with 1
    with pytest.raises(ConcurrentDeleteRead):
        stale.delete("id = 4")
    # The new file holds the row 1 and no 4, but the row 1 that is to be deleted was in the old one.
    with pytest.raises((ConcurrentDeleteRead, ConcurrentAppend)):
        stale.delete("id = 1")
    assert _table_rows(store) == _without(BASE, lambda i, _: i in (0, 4, 6))


@pytest.mark.parametrize(
    "act",
    [
        lambda t: t.delete("p = 'p0' AND id IN (1, 6)"),
        lambda t: t.update({"v": "0"}, "p = 'p0' AND id IN (1, 6)"),
        lambda t: t.overwrite(SCHEMA.empty_table(), where="p = 'p0' AND id IN (1, 6)"),
        lambda t: (
            t.merge(_arrow({1: ("p0", 0.0), 6: ("p0", 3.0)}), "t.p = s.p AND t.id = s.id")
            .when_matched_delete()
            .execute()
        ),
    ],
    ids=["delete", "update", "overwrite", "merge"],
)
def test_a_file_that_was_read_conflicts_also_where_it_is_kept(act: Callable[[DeltaTable], object]) -> None:
    """The file of the rows 0 and 3 is searched for a row 1 and not rewritten."""
    store = _table()
    stale = DeltaTable.open(store)
    DeltaTable.open(store).delete("id IN (0, 3)")
    with pytest.raises(ConcurrentDeleteRead):
        act(stale)
    act(stale.refresh())
    assert _table_rows(store) == _without(BASE, lambda i, _: i in (0, 3, 6)) or _table_rows(store)[6] == ("p0", 0.0)


def test_two_removals_of_a_file_that_was_not_read() -> None:
    store = _table()
    snapshot = DeltaTable.open(store).snapshot
    files = snapshot.files(["path", "partitionValues", "size"])
    DeltaTable.open(store).delete("p = 'p0'")
    with pytest.raises(ConcurrentDeleteDelete):
        commit(Operation("DELETE", base=snapshot, removes=files, read_files=files.slice(0, 0)), 0)


def test_what_changes_no_data_looks_at_no_added_file() -> None:
    """Whatever it read: the snapshot that it rearranges is as it was. With a change of anything else it looks again."""
    store = _table()
    snapshot = DeltaTable.open(store).snapshot
    DeltaTable.open(store).append(_arrow({200: ("p0", 1.0)}))
    reading = Operation("OPTIMIZE", base=snapshot, reads=Reads.WHOLE_TABLE, data_change=False)
    assert commit(reading, 0).version == 4
    for more in (
        replace(reading, data_change=True),
        replace(reading, metadata=replace(snapshot.metadata, name="x")),
        replace(reading, protocol=Protocol(1, 3)),
    ):
        with pytest.raises(ConcurrentAppend):
            commit(more, 0)
    with pytest.raises(ConcurrentDeleteRead):
        files = snapshot.files(["path", "partitionValues", "size"])
        DeltaTable.open(store).delete("p = 'p0'")
        commit(replace(reading, removes=files), 0)


@pytest.mark.parametrize("curve", [(), ("v",)])
def test_optimize_says_that_it_changes_no_data(curve: tuple[str, ...]) -> None:
    store = _table()
    DeltaTable.open(store).optimize(zorder_by=curve)
    lines = [json.loads(line) for line in store.get(commit_key(3)).splitlines()]
    files = [body for line in lines for name, body in line.items() if name in ("add", "remove")]
    assert len(files) == 9
    assert [body["dataChange"] for body in files] == [False] * 9
    assert lines[0]["commitInfo"]["isolationLevel"] == "SnapshotIsolation"
    assert lines[0]["commitInfo"]["isBlindAppend"] is False


def test_two_that_delete_everything() -> None:
    store = _table()
    stale = DeltaTable.open(store)
    DeltaTable.open(store).delete()
    with pytest.raises(ConcurrentDeleteRead):
        stale.overwrite(_arrow(NEW))
    assert _table_rows(store) == {}


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("changes", ["row", "file", "partition"])
def test_every_winner_is_looked_at(changes: str, late: bool) -> None:
    """Every commit since the snapshot is checked, also those that were put after the first lost put."""
    store = _table()
    stale = DeltaTable.open(store)
    other = DeltaTable.open(store)
    for number in range(300, 303):
        other.append(_arrow({number: ("p1", 0.0)}))
    if late:
        other.set_properties({"delta.checkpointPolicy": "classic"})
    {
        "row": lambda: other.update({"v": "7"}, "id = 3"),
        "file": lambda: other.optimize("p = 'p0'"),
        "partition": lambda: other.append(_arrow({400: ("p0", 0.0)})),
    }[changes]()
    other.append(_arrow({303: ("p2", 0.0)}))
    other.set_properties({"delta.enableDeletionVectors": "true"})  # starts a new run of commits
    other.append(_arrow({304: ("p2", 0.0)}))
    with pytest.raises(ConcurrentModification):
        stale.delete("p = 'p0'")
    assert set(_table_rows(store)) >= {0, 3, 6, 9, 303, 304}


def test_a_winner_between_the_look_and_the_put() -> None:
    """A commit that takes the version while the loser's put is under way is checked like the earlier ones."""
    store = _table()
    stale = DeltaTable.open(_Rival(store, lambda: DeltaTable.open(store).append(_arrow({200: ("p0", 1.0)}))))
    with pytest.raises(ConcurrentAppend):
        stale.delete("p = 'p0'")
    assert _table_rows(store) == BASE | {200: ("p0", 1.0)}
    stale = DeltaTable.open(_Rival(store, lambda: DeltaTable.open(store).append(_arrow({201: ("p1", 1.0)}))))
    stale.delete("p = 'p0'")
    assert _table_rows(store) == _without(BASE, lambda _, p: p == "p0") | {201: ("p1", 1.0)}


class _Rival(FaultStore):
    """A store in which another writer commits just before the first commit that is put here."""

    def __init__(self, inner: ObjectStore, act: Callable[[], object]) -> None:
        super().__init__(inner, at=10**9)
        self._acts = [act]

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        if key.startswith("_delta_log/0") and self._acts:
            self._acts.pop()()
        return super()._put(key, data, if_absent, if_match, unique)


# Metadata and protocol


@pytest.mark.parametrize(
    ("properties", "passes"),
    [
        ({"delta.enableDeletionVectors": "true"}, True),
        ({"delta.checkpointPolicy": "classic"}, True),
        ({"delta.enableDeletionVectors": "true", "owner": "me"}, False),
        ({"delta.appendOnly": "true"}, False),
        ({"delta.enableChangeDataFeed": "true"}, False),
        ({"delta.columnMapping.mode": "name"}, False),
        ({"delta.isolationLevel": "WriteSerializable"}, False),
    ],
)
def test_properties_that_change_nothing_for_others(properties: dict[str, str], passes: bool) -> None:
    store = _table()
    stale, altering = DeltaTable.open(store), DeltaTable.open(store)
    DeltaTable.open(store).set_properties(properties)
    if passes:
        stale.append(_arrow(NEW))
        assert _table_rows(store) == BASE | NEW
    else:
        with pytest.raises(MetadataChanged):
            stale.append(_arrow(NEW))
        assert _table_rows(store) == BASE
    # A writer of metadata would undo it.
    with pytest.raises(ConcurrentModification):
        altering.set_properties({"colour": "red"})
    assert properties.items() <= DeltaTable.open(store).properties.items()


def test_a_constraint_is_not_added_past_a_row_that_breaks_it() -> None:
    for level in ("Serializable", "WriteSerializable"):
        store = _table(level)
        stale = DeltaTable.open(store)
        DeltaTable.open(store).append(_arrow({200: ("p2", -1.0)}))
        with pytest.raises(ConcurrentAppend):
            stale.add_constraint("positive", "v >= 0")
        with pytest.raises(ConstraintViolation):
            stale.refresh().add_constraint("positive", "v >= 0")


def test_a_row_is_not_added_past_a_constraint_that_it_breaks() -> None:
    store = _table()
    stale = DeltaTable.open(store)
    DeltaTable.open(store).add_constraint("positive", "v >= 0")
    with pytest.raises(MetadataChanged):
        stale.append(_arrow({200: ("p2", -1.0)}))
    with pytest.raises(ConstraintViolation):
        stale.refresh().append(_arrow({200: ("p2", -1.0)}))


def test_a_feature_that_was_dropped_or_is_unknown() -> None:
    store = _table(**{"delta.feature.changeDataFeed": "supported"})
    stale = DeltaTable.open(store)
    snapshot = DeltaTable.open(store).snapshot
    commit(Operation("DROP FEATURE", base=snapshot, protocol=Protocol(1, 2)), 0)
    with pytest.raises(ProtocolChanged):
        stale.append(_arrow(NEW))
    stale.refresh()
    snapshot = DeltaTable.open(store).snapshot
    unknown = Protocol(1, 7, None, frozenset({"appendOnly", "invariants", "fromTheFuture"}))
    commit(Operation("UPGRADE PROTOCOL", base=snapshot, protocol=unknown), 0)
    with pytest.raises(UnsupportedWriterFeature, match="fromTheFuture"):
        stale.append(_arrow(NEW))
    assert _table_rows(store) == BASE


def test_two_upgrades_of_the_protocol() -> None:
    store = _table()
    stale = DeltaTable.open(store)
    DeltaTable.open(store).set_properties({"delta.feature.vacuumProtocolCheck": "supported"})
    with pytest.raises(ProtocolChanged):
        stale.set_properties({"delta.feature.deletionVectors": "supported"})
    stale.refresh().set_properties({"delta.feature.deletionVectors": "supported"})
    assert {"vacuumProtocolCheck", "deletionVectors"} <= (stale.protocol.reader_features or frozenset())


def test_two_writers_of_a_metadata_domain() -> None:
    store = _table(**{"delta.feature.domainMetadata": "supported"})
    snapshot = DeltaTable.open(store).snapshot

    def operation(domain: str) -> Operation:
        return Operation("SET", base=snapshot, domains=[DomainMetadata(domain, "{}", False)])

    commit(operation("a"), 0)
    commit(operation("b"), 0)
    with pytest.raises(ConcurrentTransaction, match="domain 'a'"):
        commit(operation("a"), 0)


# Markers


def test_a_marker_that_another_attempt_recorded() -> None:
    store = _table()
    attempts = [DeltaTable.open(store) for _ in range(2)]
    results = [attempt.append(_arrow(NEW), txn=("app", 1)) for attempt in attempts]
    assert [result.skipped for result in results] == [False, True]
    assert results[0].version == results[1].version == 3
    assert results[0].rows == results[1].rows == 1
    assert _table_rows(store) == BASE | NEW


class _Marked(DeltaTable):
    """Every operation carries one marker."""

    def operate(self, plan: Callable[[Snapshot, int], Operation | None], txn: Txn | None) -> OperationResult:
        return super().operate(plan, ("app", 1))

    def _write(
        self,
        arrow: ArrowData,
        plan: Callable[[pa.Schema], Write],
        txn: Txn | None,
        writer_properties: WriterProperties | None,
    ) -> OperationResult:
        return super()._write(arrow, plan, ("app", 1), writer_properties)


@pytest.mark.parametrize("verb", LOSERS)
def test_any_operation_that_lost_the_race_to_itself(verb: str) -> None:
    store = _table()
    first: list[object] = []
    late = _Marked.open(_Rival(store, lambda: first.append(LOSERS[verb].run(_Marked.open(store), "p0"))))
    result = LOSERS[verb].run(late, "p0")
    assert isinstance(result, OperationResult)
    assert len(first) == 1
    assert (result.skipped, result.version, late.version) == (True, 3, 3)
    assert DeltaTable.open(store).version == 3
    assert _table_rows(store) == LOSERS[verb].model(BASE, "p0")
    # A later attempt is skipped at once.
    result = LOSERS[verb].run(_Marked.open(store), "p0")
    assert isinstance(result, OperationResult)
    assert (result.skipped, DeltaTable.open(store).version) == (True, 3)


def test_an_older_marker_of_the_same_application_is_an_error() -> None:
    store = _table()
    stale = DeltaTable.open(store)
    DeltaTable.open(store).append(_arrow({200: ("p1", 1.0)}), txn=("app", 1))
    with pytest.raises(ConcurrentTransaction, match="two writers share this application id"):
        stale.append(_arrow(NEW), txn=("app", 2))
    assert stale.refresh().append(_arrow(NEW), txn=("app", 2)).version == 4
    stale = DeltaTable.open(store)
    DeltaTable.open(store).append(_arrow({201: ("p1", 1.0)}), txn=("other", 9))
    assert not stale.append(_arrow({202: ("p1", 1.0)}), txn=("app", 3)).skipped


def test_an_operation_without_work_records_its_marker() -> None:
    store = _table()
    stale = DeltaTable.open(store)
    DeltaTable.open(store).append(_arrow({500: ("p1", 1.0)}))
    with pytest.raises(ConcurrentAppend):  # the operation read that there was no such row, which is no longer true
        stale.delete("id = 500", txn=("app", 1))
    assert stale.refresh().delete("id = 501", txn=("app", 1)).version == 4
    assert stale.txn_version("app") == 1
    assert stale.delete("id = 500", txn=("app", 1)).skipped


@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable"])
def test_a_restore_that_lowers_a_marker_does_not_pass_a_later_one(level: str) -> None:
    store = _table(level)
    table = DeltaTable.open(store)
    table.append(_arrow({200: ("p1", 1.0)}), txn=("app", 1))
    stale = DeltaTable.open(store)
    table.append(SCHEMA.empty_table(), txn=("app", 2))
    with pytest.raises(ConcurrentTransaction, match="whose transaction identifier this operation sets"):
        stale.restore(2)
    stale.refresh().restore(2)
    assert _table_rows(store) == BASE
    assert not DeltaTable.open(store).append(_arrow({200: ("p1", 1.0)}), txn=("app", 1)).skipped


def test_a_marker_that_a_restore_took_back_is_not_recorded() -> None:
    """A writer that loses to its own other attempt and to a later restore has no rows in the table."""
    for metadata_too in (False, True):
        store = _table()
        stale = DeltaTable.open(store)
        other = DeltaTable.open(store)
        other.append(_arrow(NEW), txn=("app", 1))
        if metadata_too:
            other.set_properties({"delta.enableDeletionVectors": "true"})
        other.restore(2)
        assert _table_rows(store) == BASE
        with pytest.raises(ConcurrentModification):
            stale._commit(Operation("WRITE", base=stale.snapshot), ("app", 1))
        assert not stale.refresh().append(_arrow(NEW), txn=("app", 1)).skipped
        assert _table_rows(store) == BASE | NEW


def test_a_marker_past_its_retention_counts_for_no_handle() -> None:
    now = [1_700_000_000.0]
    for stale_handle in (False, True):
        store = _table(**{"delta.setTransactionRetentionDuration": "interval 1 day"})
        early = DeltaTable.open(store, clock=lambda: now[0])
        DeltaTable.open(store, clock=lambda: now[0]).append(_arrow(NEW), txn=("app", 1))
        assert DeltaTable.open(store, clock=lambda: now[0]).append(_arrow(NEW), txn=("app", 1)).skipped
        now[0] += 86_401
        table = early if stale_handle else DeltaTable.open(store, clock=lambda: now[0])
        assert not table.append(_arrow({101: ("p0", 1.0)}), txn=("app", 1)).skipped
        assert _table_rows(store) == BASE | NEW | {101: ("p0", 1.0)}
        assert table.append(_arrow({101: ("p0", 1.0)}), txn=("app", 1)).skipped


def test_a_marker_past_its_retention_does_not_count_behind_a_cleaned_log() -> None:
    now = [1_700_000_000.0]
    store = _table(**{"delta.setTransactionRetentionDuration": "interval 1 day"})
    table = DeltaTable.open(store, clock=lambda: now[0])
    table.append(_arrow(NEW), txn=("app", 1))
    table.checkpoint()
    now[0] += 86_401
    stale = DeltaTable.open(store, clock=lambda: now[0])
    table.append(_arrow({101: ("p0", 1.0)}))
    DeltaTable.open(store, clock=lambda: 0.0).checkpoint()  # by a clock that still counts it
    store.delete([commit_key(version) for version in range(4)])
    assert not stale.append(_arrow({102: ("p0", 1.0)}), txn=("app", 1)).skipped
    assert 102 in _table_rows(store)


def test_markers_set_by_hand_meet() -> None:
    store = _table()
    snapshot = DeltaTable.open(store).snapshot
    DeltaTable.open(store).append(_arrow(NEW), txn=("app", 7))
    with pytest.raises(ConcurrentTransaction):
        commit(Operation("RESTORE", base=snapshot, markers=[SetTransaction("app", 3, 0)]), 0)
    commit(Operation("RESTORE", base=snapshot, markers=[SetTransaction("other", 3, 0)]), 0)


# In-commit timestamps


class _Alone(FaultStore):
    """The same store under a name of its own, so that its writers do not queue with the others but race."""

    def __init__(self, inner: ObjectStore, name: str) -> None:
        super().__init__(inner, at=10**9)
        self._name = name

    def url(self, key: str = "") -> str:
        return f"{super().url(key)}#{self._name}"


def test_in_commit_timestamps_rise_also_in_races() -> None:
    store = MemoryStore()
    DeltaTable.create(
        store, SCHEMA, properties={"delta.enableInCommitTimestamps": "true"}, clock=lambda: 1_700_000_000.0
    )
    errors: list[BaseException] = []

    def work(worker: int) -> None:
        try:
            # Clocks that stand still, and differ.
            table = DeltaTable.open(_Alone(store, str(worker)), clock=lambda: 1_700_000_000.0 - worker)
            for number in range(6):
                table.append(rows(worker * 100 + number, worker * 100 + number + 1))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    table = DeltaTable.open(store)
    assert table.version == 36
    infos = [read_commit_info(version, store.get(commit_key(version))) for version in range(37)]
    times = [info["inCommitTimestamp"] for info in infos]
    assert times == [1_700_000_000_000 + version for version in range(37)]
    assert all(next(iter(info)) == "inCommitTimestamp" for info in infos)
    for version in (0, 17, 36):
        assert store.get(commit_key(version)).startswith(b'{"commitInfo"')
        assert DeltaTable.open(store, timestamp="2023-11-14T22:13:20.0" + f"{version:02d}Z").version == version
    assert ids(table.to_arrow()) == sorted(worker * 100 + number for worker in range(6) for number in range(6))


@pytest.mark.parametrize("properties", [{}, {"delta.columnMapping.mode": "name"}])
def test_an_overwrite_by_a_column_that_it_adds(properties: dict[str, str]) -> None:
    """The new column is null in existing rows. In rows that a winner added its value is unknown."""
    store = _table(**properties)
    stale = DeltaTable.open(store)
    wide = _arrow(NEW).append_column("extra", pa.array([7], pa.int32()))
    DeltaTable.open(store).append(_arrow({200: ("p0", 1.0)}))
    with pytest.raises(ConcurrentAppend):
        stale.overwrite(wide, where="extra = 7", schema_mode="merge")
    stale.refresh().overwrite(wide, where="extra = 7", schema_mode="merge")
    assert _table_rows(store) == BASE | NEW | {200: ("p0", 1.0)}
    wider = wide.append_column("other", pa.array([None], pa.int32()))
    stale.overwrite(wider, where="other IS NULL", schema_mode="merge")
    assert _table_rows(store) == NEW


@pytest.mark.parametrize("source", ["table", "reader"])
def test_a_merge_that_lost_is_executed_again_with_all_of_its_source(source: str) -> None:
    store = _table()
    stale = DeltaTable.open(store)
    source_rows = _arrow({0: ("p0", 70.0), 300: ("p0", 71.0)})
    merge = stale.merge(
        source_rows if source == "table" else source_rows.to_reader(), "t.id = s.id"
    ).when_matched_update("*")
    merge = merge.when_not_matched_insert("*").when_not_matched_by_source_delete("t.id < 3")
    DeltaTable.open(store).append(_arrow({200: ("p1", 1.0)}))
    with pytest.raises(ConcurrentAppend):
        merge.execute()
    stale.refresh()
    merge.execute()
    changed: Rows = {0: ("p0", 70.0), 300: ("p0", 71.0), 200: ("p1", 1.0)}
    assert _table_rows(store) == _without(BASE, lambda i, _: i < 3) | changed
