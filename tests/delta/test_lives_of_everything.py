"""Random lives of tables with everything on: they hold what a plain table holds, and their checksums are true."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lake_core.delta import DeltaTable
from lake_core.delta.version_checksum import disagreements, read_checksum
from lake_core.store import MemoryStore
from tests.delta.tables import SCHEMA, held, rows
from tests.delta.test_written_vectors import STEP, take
from tests.examples import examples

EVERYTHING = {
    "delta.enableDeletionVectors": "true",
    "delta.enableRowTracking": "true",
    "delta.enableChangeDataFeed": "true",
    "delta.enableInCommitTimestamps": "true",
    "delta.columnMapping.mode": "name",
    "delta.checkpointPolicy": "v2",
    "delta.checkpointInterval": "5",
}
OWN_STEP = st.one_of(
    st.tuples(st.just("cluster by"), st.sampled_from([["id"], ["v", "p"], ["p", "id", "v"], []])),
    st.tuples(st.just("full"), st.just(None)),
    st.tuples(st.just("purge"), st.just(None)),
    st.tuples(st.just("compact log"), st.just(None)),
    st.tuples(st.just("clone"), st.booleans()),
    st.tuples(st.just("drop feature"), st.sampled_from(["deletionVectors", "v2Checkpoint", "inCommitTimestamp"])),
)


def take_own(table: DeltaTable, step: str, argument: Any) -> DeltaTable:
    """Take a step that changes no row, and return the table that the life goes on with."""
    match step:
        case "cluster by":
            table.cluster_by(argument)
        case "full":
            if table.detail().clustering_columns:
                table.optimize(full=True)
        case "purge":
            table.optimize(purge=True)
        case "compact log":
            table.compact_log()
        case "clone":
            return table.clone(MemoryStore(), shallow=argument)
        case "drop feature":
            if argument in table.detail().table_features:
                table.drop_feature(argument)
    return table


def row_ids(table: DeltaTable) -> Counter[int]:
    return Counter(table.to_arrow(columns=["_metadata.row_id"])["_metadata.row_id"].to_pylist())


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.one_of(STEP, OWN_STEP), min_size=1, max_size=9))
def test_any_life_leaves_what_it_leaves_in_a_plain_table(steps: list[tuple[str, Any]]) -> None:
    plain = DeltaTable.create(MemoryStore(), SCHEMA)
    table = DeltaTable.create(MemoryStore(), SCHEMA, cluster_by=["id", "p"], properties=EVERYTHING)
    for each in (plain, table):
        each.append(rows(0, 12))
        each.append(rows(12, 30))
    is_clone = False
    for step, argument in steps:
        if step in ("cluster by", "full", "purge", "compact log", "clone", "drop feature"):
            if step == "clone" and not argument and is_clone:
                continue  # a deep clone of a shallow one is refused
            before = table
            table = take_own(table, step, argument)
            is_clone |= table is not before and bool(table.snapshot.allowed_roots)
        elif step != "restore":  # the versions of both count differently
            take(plain, step, argument)
            take(table, step, argument)
        assert held(table) == held(plain), (step, argument)
        assert held(table, "id > 7 AND v < 105") == held(plain, "id > 7 AND v < 105")
        assert set(row_ids(table).values()) <= {1}, (step, argument)
        checksum = read_checksum(table.store, table.version)
        assert checksum is not None
        assert disagreements(table.snapshot) == []
    again = DeltaTable.open(table.store, allowed_roots=table.snapshot.allowed_roots)
    assert held(again) == held(plain)
