"""Checkpoints of version 2: sidecars hold the actions on files, and readers find the same table."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable, checkpoint_writer
from lake_core.delta.errors import InvalidProperty
from lake_core.delta.features import supported_features
from lake_core.runner import run_here
from lake_core.store import MemoryStore
from lake_core.testing import FaultStore, StoreDied
from lake_core.testing.fault_store import FaultMode
from tests.delta.tables import SCHEMA, held, ids, rows

POLICY = {"delta.checkpointPolicy": "v2"}
LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {"properties": POLICY},
    "columns": {
        "properties": POLICY
        | {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false"},
        "partition_by": ["p"],
    },
    "vectors and ids": {
        "properties": POLICY | {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}
    },
}
MODES: tuple[FaultMode, ...] = ("before", "after")


def keys(store: MemoryStore, prefix: str) -> list[str]:
    return [meta.key for meta in store.list(prefix)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sidecar_rows", [1, 3, 500_000])
def test_a_table_is_read_from_its_checkpoint(monkeypatch: pytest.MonkeyPatch, layout: str, sidecar_rows: int) -> None:
    monkeypatch.setattr(checkpoint_writer, "SIDECAR_ROWS", sidecar_rows)
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA, **LAYOUTS[layout])
    for start in range(0, 15, 5):
        table.append(rows(start, start + 5), txn=("app", start))
    table.delete("id = 7")
    before = held(table), table.snapshot.domains, table.snapshot.metadata, table.protocol
    table.checkpoint()
    sidecars = keys(store, "_delta_log/_sidecars/")
    assert len(sidecars) >= (3 if sidecar_rows == 1 else 1)
    hint = json.loads(bytes(store.get("_delta_log/_last_checkpoint")))
    assert store.exists(f"_delta_log/{hint['v2Checkpoint']['path']}")
    assert not store.exists(f"_delta_log/{table.version:020}.checkpoint.parquet")
    store.delete([f"_delta_log/{version:020}.json" for version in range(table.version)])
    again = DeltaTable.open(store)
    assert (held(again), again.snapshot.domains, again.snapshot.metadata, again.protocol) == before
    assert again.txn_version("app") == 10
    again.append(rows(50, 52))
    again.checkpoint()
    assert held(DeltaTable.open(store)) == held(again)


def test_the_property_brings_the_feature_and_the_default_stays_classic() -> None:
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA, properties={"delta.checkpointPolicy": "classic"})
    assert "v2Checkpoint" not in supported_features(table.protocol)
    table.checkpoint()
    assert store.exists("_delta_log/00000000000000000000.checkpoint.parquet")
    table.set_properties(POLICY)
    assert "v2Checkpoint" in supported_features(table.protocol)
    table.checkpoint()
    assert len(keys(store, "_delta_log/_sidecars/")) == 1
    with pytest.raises(InvalidProperty, match="checkpointPolicy"):
        table.set_properties({"delta.checkpointPolicy": "v3"})


def test_no_classic_checkpoint_of_several_parts_is_written() -> None:
    for properties in (POLICY, {"delta.feature.v2Checkpoint": "supported"}):
        store = MemoryStore()
        table = DeltaTable.create(store, SCHEMA, properties=properties)
        for start in range(4):
            table.append(rows(start, start + 1))
        table.checkpoint(run=run_here, part_rows=2)
        assert not [
            key for key in keys(store, "_delta_log/") if ".checkpoint.000000000" in key and "_sidecars" not in key
        ]
        assert ids(DeltaTable.open(store).to_arrow()) == [0, 1, 2, 3]


def test_a_checkpoint_that_dies_anywhere_leaves_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_writer, "SIDECAR_ROWS", 2)
    number, fired = 1, True
    while fired:
        fired = False
        for mode in MODES:
            store = MemoryStore()
            table = DeltaTable.create(store, SCHEMA, properties=POLICY)
            for start in range(4):
                table.append(rows(start, start + 1))
            dying = FaultStore(store, number, mode)
            with suppress(StoreDied):
                DeltaTable.open(dying).checkpoint()
            fired = fired or dying.fired
            assert ids(DeltaTable.open(store).to_arrow()) == [0, 1, 2, 3]
            DeltaTable.open(store).checkpoint()
            store.delete([f"_delta_log/{version:020}.json" for version in range(4)])
            assert ids(DeltaTable.open(store).to_arrow()) == [0, 1, 2, 3]
        number += 1
    assert number > 5


def test_in_a_lake() -> None:
    lake = Lake.create(MemoryStore())
    with lake.session(message="rows") as session:
        table = session.create_delta("t", SCHEMA, properties=POLICY | {"delta.checkpointInterval": "2"})
        table.append(rows(0, 3))
    for number in range(3, 9):
        with lake.session(message="more") as session:
            session.delta("t").append(rows(number, number + 1))
    assert ids(lake.delta("t").to_arrow()) == list(range(9))
    assert lake.maintenance.verify() == []
