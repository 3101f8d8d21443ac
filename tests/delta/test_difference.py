"""The difference of two snapshots is the same, whether one was made from the other or both were read from the log."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.difference import SnapshotDifference, difference
from lake_core.delta.snapshot import Snapshot, load_snapshot
from lake_core.store import MemoryStore

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])


def rows(chance: random.Random) -> pa.Table:
    ids = [chance.randrange(30) for _ in range(4)]
    return pa.table({"id": ids, "day": [f"d{number % 3}" for number in ids]}, schema=SCHEMA)


def step(table: DeltaTable, chance: random.Random) -> None:
    """Commit one operation, most of which change files."""
    txn = (chance.choice("ab"), table.version) if chance.random() < 0.4 else None
    match chance.randrange(8):
        case 0 | 1 | 2:
            table.append(rows(chance), txn=txn)
        case 3:
            table.delete(f"id = {chance.randrange(30)}", txn=txn)
        case 4:
            table.update({"id": "id + 1"}, f"id < {chance.randrange(30)}", txn=txn)
        case 5:
            table.overwrite(
                rows(chance), dynamic=bool(table.metadata.partition_columns) and chance.random() < 0.5, txn=txn
            )
        case 6:
            table.restore(chance.randrange(max(0, table.version - 4), table.version + 1))
        case _:
            table.set_properties({"owner": str(chance.randrange(3))})
    if chance.random() < 0.15:
        table.checkpoint()
        if chance.random() < 0.5:
            table.refresh()


def plain(changes: SnapshotDifference) -> dict[str, Any]:
    def files(actions: pa.Table) -> list[dict[str, Any]]:
        # A checkpoint does not keep dataChange.
        return sorted(actions.drop_columns("dataChange").to_pylist(), key=lambda action: str(action["path"]))

    return {
        "adds": files(changes.adds),
        "removes": files(changes.removes),
        "markers": sorted((each.app_id, each.version) for each in changes.markers),
        "metadata": changes.metadata,
        "protocol": changes.protocol,
        "domains": list(changes.domains),
    }


@pytest.mark.parametrize("partition_by", [[], ["day"]], ids=["whole", "partitioned"])
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.sampled(3)
def test_snapshots_made_from_another_differ_as_those_that_were_read(seed: int, partition_by: list[str]) -> None:
    chance, store = random.Random(seed), MemoryStore()
    table = DeltaTable.create(store, SCHEMA, partition_by=partition_by)
    snapshots: list[Snapshot] = [table.snapshot]
    for _ in range(10):
        before = table.version
        step(table, chance)
        if table.version != before:
            snapshots.append(table.snapshot)
    known = 0
    for index, earlier in enumerate(snapshots):
        for later in snapshots[index:]:
            known += later.known_since(earlier) is not None
            read = difference(load_snapshot(store, earlier.version), load_snapshot(store, later.version))
            assert plain(difference(earlier, later)) == plain(read), (earlier.version, later.version)
    assert known > len(snapshots), "most of the snapshots should have been made from earlier ones"


def test_a_file_that_is_added_again_is_no_difference() -> None:
    table = DeltaTable.create(MemoryStore(), SCHEMA)
    table.append(pa.table({"id": [1], "day": ["d1"]}, schema=SCHEMA))
    before = table.snapshot
    table.delete()
    table.restore(before.version)
    assert table.snapshot.known_since(before) is not None
    assert not difference(before, table.snapshot)
