"""Checkpoints in several parts: the same actions as in one file, for every reader, and whole or not there at all."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.delta.checkpoint_parts import PathShare, write_checkpoint_parts
from lake_core.delta.errors import CheckpointRace
from lake_core.delta.log_segment import LAST_CHECKPOINT, checkpoint_key, commit_key, list_log, part_key
from lake_core.delta.snapshot import load_snapshot
from lake_core.runner import run_here
from lake_core.store import LocalStore, MemoryStore
from tests.delta.tables import SCHEMA, rows
from tests.delta.tables import ids as ids_of

T = TypeVar("T")
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "partitioned": {"partition_by": ["p"], "properties": {"delta.checkpoint.writeStatsAsStruct": "true"}},
    "columns alone": {
        "partition_by": ["p"],
        "properties": {
            "delta.checkpoint.writeStatsAsStruct": "true",
            "delta.checkpoint.writeStatsAsJson": "false",
            "delta.columnMapping.mode": "name",
        },
    },
}


def ids(table: DeltaTable) -> list[int]:
    return ids_of(table.to_arrow())


def _table(folder: Path, kind: str) -> DeltaTable:
    """Return a table of many files with tombstones, transactions and an old checkpoint."""
    properties = {"delta.checkpointInterval": "1000"} | KINDS[kind].get("properties", {})
    table = DeltaTable.create(str(folder), SCHEMA, **{**KINDS[kind], "properties": properties})
    for number in range(12):
        table.append(rows(number * 10, number * 10 + 10), txn=(f"app {number % 3}", number))
    table.delete("id < 25")
    table.checkpoint()
    for number in range(12, 20):
        table.append(rows(number * 10, number * 10 + 10), txn=("app 0", number))
    table.delete("id BETWEEN 60 AND 94")
    table.set_properties({"delta.logRetentionDuration": "interval 90 days"})
    table.append(rows(500, 510))
    return table


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _bare(item) for key, item in value.items() if item is not None}
    return value


def _actions(folder: Path, keys: Iterable[str]) -> Counter[str]:
    """Return the rows of the files of a checkpoint."""
    lines = (line for key in keys for line in pq.read_table(folder / key).to_pylist())
    return Counter(json.dumps(_bare(line), sort_keys=True, default=str) for line in lines)


def _parts(table: DeltaTable) -> tuple[str, ...]:
    """Return the files of the newest checkpoint of several parts."""
    return next(files.keys for files in reversed(list_log(table.store).checkpoints) if len(files.keys) > 1)


@pytest.mark.parametrize("base", ["checkpoint", "parts", "commits"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sampled(2)
def test_the_parts_hold_what_one_file_holds(tmp_path: Path, kind: str, base: str) -> None:
    table = _table(tmp_path / "a", kind)
    if base == "parts":
        table.checkpoint(run=run_here, part_rows=7)
        table.append(rows(600, 620))
        table.delete("id IN (601, 3, 505)")
    elif base == "commits":
        for path in (tmp_path / "a/_delta_log").glob("*checkpoint*"):
            path.unlink()
    table = DeltaTable.open(str(tmp_path / "a"))
    expected = ids(table)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    DeltaTable.open(str(tmp_path / "b")).checkpoint()
    table.checkpoint(run=run_here, part_rows=9)
    parts = _parts(table)
    assert len(parts) > 3
    assert _actions(tmp_path / "a", parts) == _actions(tmp_path / "b", [checkpoint_key(table.version)])
    hints = [json.loads((tmp_path / name / LAST_CHECKPOINT).read_bytes()) for name in "ab"]
    assert hints[0].pop("parts") == len(parts)
    assert hints[0].pop("sizeInBytes") > hints[1].pop("sizeInBytes")
    assert hints[0] == hints[1]
    for path in (tmp_path / "a/_delta_log").glob("*.json"):
        path.unlink()  # the readers have nothing but the checkpoint
    reader = DeltaTable.open(str(tmp_path / "a"))
    assert ids(reader) == expected
    assert reader.snapshot.transactions().num_rows == table.snapshot.transactions().num_rows == 3
    if kind != "columns alone":
        foreign = deltalake.DeltaTable(tmp_path / "a")
        assert foreign.version() == table.version
        assert sorted(foreign.to_pyarrow_table()["id"].to_pylist()) == expected


def test_statistics_that_columns_cannot_hold_stay_text_in_all_parts(tmp_path: Path) -> None:
    table = _table(tmp_path, "partitioned")
    key = tmp_path / commit_key(table.version)
    lines = [json.loads(line) for line in key.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["stats"] = '{"numRecords":"many"}'
    key.write_text("".join(json.dumps(line) + "\n" for line in lines))
    table = DeltaTable.open(str(tmp_path))
    shutil.copytree(tmp_path, tmp_path / "b")
    DeltaTable.open(str(tmp_path / "b")).checkpoint()
    table.checkpoint(run=run_here, part_rows=9)
    parts = _parts(table)
    assert _actions(tmp_path, parts) == _actions(tmp_path / "b", [checkpoint_key(table.version)])
    assert len(list(tmp_path.glob(f"_delta_log/{table.version:020d}.checkpoint.*"))) == len(parts)


def test_a_small_table_gets_one_file(tmp_path: Path) -> None:
    table = _table(tmp_path, "plain")
    table.checkpoint(run=run_here)
    assert list_log(table.store).checkpoints[-1].keys == (checkpoint_key(table.version),)
    with pytest.raises(ValueError, match="part_rows must be at least 1"):
        table.checkpoint(run=run_here, part_rows=0)


def test_parts_of_an_attempt_that_failed_are_not_used(tmp_path: Path) -> None:
    table = _table(tmp_path, "plain")
    expected = ids(table)

    def dying(task: Callable[[int], T], count: int) -> Iterable[T]:
        for number in range(count - 1):
            yield task(number)
        raise RuntimeError("the executor is lost")

    before = list_log(table.store).checkpoints
    hint = table.store.get(LAST_CHECKPOINT)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="lost"):
            table.checkpoint(run=dying, part_rows=9)
        assert list_log(table.store).checkpoints == before
        assert table.store.get(LAST_CHECKPOINT) == hint
        assert ids(DeltaTable.open(str(tmp_path))) == expected
    table.checkpoint(run=run_here, part_rows=9)
    assert len(_parts(table)) >= 6, "neither attempt's number of parts is used again"
    assert ids(DeltaTable.open(str(tmp_path))) == expected


def test_a_task_may_run_twice_but_not_over_anothers_part(tmp_path: Path) -> None:
    table = _table(tmp_path, "plain")

    def twice(task: Callable[[int], T], count: int) -> list[T]:
        return [[task(number), task(number)][1] for number in range(count)]

    table.checkpoint(run=twice, part_rows=9)
    expected = ids(table)
    table.append(rows(700, 701))

    def raced(task: Callable[[int], T], count: int) -> list[T]:
        (tmp_path / part_key(table.version, 2, count)).write_bytes(b"another's")
        return [task(number) for number in range(count)]

    with pytest.raises(CheckpointRace, match="another process"):
        table.checkpoint(run=raced, part_rows=9)
    assert ids(DeltaTable.open(str(tmp_path))) == [*expected, 700]


def test_a_damaged_checkpoint_is_not_built_on(tmp_path: Path) -> None:
    table = _table(tmp_path, "plain")
    snapshot = load_snapshot(LocalStore(tmp_path))
    expected = ids(table)
    old = list_log(table.store).checkpoints[-1].keys[0]
    (tmp_path / old).write_bytes(b"PAR1 not a checkpoint PAR1")
    with pytest.warns(UserWarning, match="rebuilt from older log files"):
        damaged = load_snapshot(LocalStore(tmp_path))
    assert write_checkpoint_parts(damaged, 0, run_here, part_rows=9) > 2
    (tmp_path / old).unlink()
    assert snapshot.version == table.version
    assert ids(DeltaTable.open(str(tmp_path))) == expected


def test_branches_and_main_of_a_lake_get_parts() -> None:
    store = MemoryStore()
    lake = Lake.create(store)
    with lake.session() as s:
        s.create_delta("t", SCHEMA)
    lake.create_branch("dev")
    for branch, start in (("main", 0), ("dev", 1000)):
        for number in range(4):
            with lake.session(branch) as s:
                s.delta("t").append(rows(start + number * 10, start + number * 10 + 10))
        lake.delta("t", ref=branch).checkpoint(run=run_here, part_rows=2)
    checked_out = [meta.key for meta in store.list("t/_delta_log/") if "checkpoint." in meta.key]
    beside = [meta.key for meta in store.list("_lake/derived/") if "checkpoint." in meta.key]
    assert len(checked_out) == len(beside) == 2
    with lake.session("dev") as s:
        s.delta("t").append(rows(2000, 2012))
    assert len(ids(lake.delta("t", ref="dev"))) == 52
    assert len(ids(lake.delta("t"))) == 40


def test_each_path_is_in_one_share_however_it_is_written() -> None:
    paths = [f"p={number % 5}/part-{number}-ü.parquet" for number in range(20_000)] + ["", "x" * 3000]
    table = pa.table({"path": paths})
    shares = [PathShare(number, 7)(table) for number in range(7)]
    assert (np.sum(shares, axis=0) == 1).all()
    assert min(map(np.sum, shares)) > 20_000 / 7 * 0.8
    sliced = [PathShare(number, 7)(table.slice(13, 9_000)) for number in range(7)]
    assert all((part == whole[13:9_013]).all() for part, whole in zip(sliced, shares, strict=True))
    for one, other in (("/a/b", "file:///a/b"), ("file:/a/b", "/a/b")):
        same = [PathShare(number, 7)(pa.table({"path": [one, other]})) for number in range(7)]
        assert all(left == right for left, right in same)
