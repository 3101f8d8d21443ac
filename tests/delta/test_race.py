"""Sixteen processes that append, merge, delete, update, optimize and vacuum one table.

What they acknowledged is one serial history.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from multiprocessing.sharedctypes import Synchronized, SynchronizedArray
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TypedDict

import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import ConcurrentModification, DataFileMissing, LogGap, VersionNotFound
from lake_core.delta.file_name import new_name
from tests.processes import CONTEXT, run_together

KINDS = ("append", "merge", "delete", "update", "optimize", "vacuum")
WORKERS = 16
PARTS = 8
DAY = 86_400.0
EACH = 10
"""How often every kind of operation must have worked."""

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("p", pa.int64()), pa.field("v", pa.int64())])


class Operation(TypedDict):
    """An acknowledged operation: its version, its worker and its arguments."""

    version: int
    worker: int
    number: int
    kind: str
    part: int
    rest: int
    ids: list[int]


def _rows(ids: list[int]) -> pa.Table:
    return pa.table({"id": ids, "p": [i % PARTS for i in ids], "v": [0] * len(ids)}, schema=SCHEMA)


def _apply(model: dict[int, int], operation: Operation) -> None:
    """Apply the same operation to plain rows: values by id."""
    hit = [i for i in model if i % PARTS == operation["part"] and i // PARTS % 5 == operation["rest"]]
    match operation["kind"]:
        case "append":
            assert not model.keys() & set(operation["ids"])
            model |= dict.fromkeys(operation["ids"], 0)
        case "merge":
            for i in operation["ids"]:
                model[i] = model[i] + 100 if i in model else 0
        case "delete":
            for i in hit:
                del model[i]
        case "update":
            for i in hit:
                model[i] += 1


def _attempt(table: DeltaTable, todo: Operation, txn: tuple[str, int]) -> int | None:
    """Carry out an operation. Return the version that it made, or None if there was nothing to do."""
    where = f"p = {todo['part']} AND id DIV {PARTS} % 5 = {todo['rest']}"
    before = table.version
    match todo["kind"]:
        case "append":
            return table.append(_rows(todo["ids"]), txn=txn).version
        case "merge":
            merge = table.merge(_rows(todo["ids"]), "t.id = s.id AND t.p = s.p")
            return merge.when_matched_update({"v": "t.v + 100"}).when_not_matched_insert("*").execute(txn).version
        case "delete":
            result = table.delete(where)
        case "update":
            result = table.update({"v": "v + 1"}, where)
        case "optimize":
            result = table.optimize(f"p = {todo['part']}", zorder_by=["id", "v"] if todo["rest"] == 0 else ())
        case _:
            table.vacuum(mode="lite" if todo["rest"] == 0 else "full")
            return None
    if not result.metrics:
        assert result.version == before
        return None
    return result.version


def _work(
    url: str,
    worker: int,
    clock: Synchronized[float],
    start_times: SynchronizedArray[float],
    counts: SynchronizedArray[int],
    barrier: Barrier,
    seconds: float,
) -> None:
    chance = random.Random(worker)
    table = DeltaTable.open(url, clock=lambda: clock.value)
    barrier.wait()
    start = time.monotonic()
    acknowledged: list[Operation] = []
    number, queue = 0, list[str]()
    while (passed := time.monotonic() - start) < seconds or (passed < 120 and min(counts[:]) < EACH):
        queue = queue or chance.sample(KINDS, len(KINDS))
        number += 1
        kind = queue.pop()
        fresh = [(worker * 100_000 + number * 4 + i) for i in range(4)]
        old = sorted({i for operation in acknowledged[-20:] for i in operation["ids"]})
        chosen = chance.sample(old, min(len(old), 3)) if kind == "merge" else []
        todo: Operation = {
            "version": -1,
            "worker": worker,
            "number": number,
            "kind": kind,
            "part": chance.randrange(PARTS),
            "rest": chance.randrange(5),
            "ids": [*fresh, *chosen],
        }
        while True:
            start_times[worker] = clock.value
            try:
                table.refresh()
                version = _attempt(table, todo, (f"worker-{worker}", number))
            except ConcurrentModification:
                continue
            break
        if version is not None:
            acknowledged.append({**todo, "version": version})
        with counts.get_lock():
            counts[KINDS.index(kind)] += kind in ("optimize", "vacuum") or version is not None
    start_times[worker] = 1e18
    Path(url).with_name(f"worker-{worker}.json").write_text(json.dumps(acknowledged))


def _advance(clock: Synchronized[float], start_times: SynchronizedArray[float], stop: threading.Event) -> None:
    """Let days pass, but never two within one attempt at an operation.

    Otherwise vacuum could delete files that are being written.
    """
    while not stop.wait(0.05):
        clock.value = min(clock.value + 0.06 * DAY, max(clock.value, min(start_times[:]) + 1.5 * DAY))


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(4.0, marks=pytest.mark.exhaustive),
        pytest.param(10.0, marks=pytest.mark.exhaustive),
        pytest.param(60.0, marks=[pytest.mark.stress, pytest.mark.timeout(900)]),
    ],
)
def test_sixteen_processes(tmp_path: Path, seconds: float) -> None:
    url, now = tmp_path / "table", time.time()
    seeded, model = _seed(url, now)
    clock, start_times = CONTEXT.Value("d", now), CONTEXT.Array("d", [now] * WORKERS)
    counts, barrier = CONTEXT.Array("l", [0] * len(KINDS)), CONTEXT.Barrier(WORKERS)
    stop = threading.Event()
    days = threading.Thread(target=_advance, args=(clock, start_times, stop))
    days.start()
    try:
        run_together(
            _work, [(str(url), worker, clock, start_times, counts, barrier, seconds) for worker in range(WORKERS)]
        )
    finally:
        stop.set()
        days.join()
    assert clock.value > now + 2 * DAY
    assert min(counts[:]) >= EACH, dict(zip(KINDS, counts[:], strict=True))

    history = [
        operation
        for worker in range(WORKERS)
        for operation in json.loads((tmp_path / f"worker-{worker}.json").read_text())
    ]
    history.sort(key=lambda operation: operation["version"])
    table = DeltaTable.open(url, clock=lambda: clock.value)
    first = history[0]["version"]
    # Every version belongs to exactly one worker.
    assert [operation["version"] for operation in history] == list(range(first, table.version + 1))
    opened = 0
    for operation in history:
        _apply(model, operation)
        if operation["version"] % 25 == 0 or operation["version"] > table.version - 8:
            opened += _opens_with(url, operation["version"], model)
    assert opened >= 3  # the others' files were vacuumed, or their commits cleaned up
    assert _values(table) == model
    marked = {
        operation["worker"]: operation["number"] for operation in history if operation["kind"] in ("append", "merge")
    }
    assert len(marked) > WORKERS // 2
    assert [table.txn_version(f"worker-{worker}") for worker in range(WORKERS)] == [
        marked.get(worker) for worker in range(WORKERS)
    ]

    assert not [path for path in seeded if path.exists()]
    # Later only the files that the table needs are left on disk.
    later = DeltaTable.open(url, clock=lambda: clock.value + 30 * DAY)
    later.vacuum()
    kept = {str(path.relative_to(url)) for path in url.rglob("*") if path.is_file() and "_delta_log" not in path.parts}
    assert kept == set(later.files(["path"])["path"].to_pylist())
    assert _values(later) == model


def _seed(url: Path, now: float) -> tuple[list[Path], dict[int, int]]:
    """Create a table with expired tombstones, some missing from a checkpoint, and an orphan.

    Return these files and the rows.
    """
    properties = {
        "delta.enableInCommitTimestamps": "true",
        "delta.logRetentionDuration": "interval 2 days",
        "delta.checkpointInterval": "7",
    }
    past = [now - 20 * DAY]
    table = DeltaTable.create(url, SCHEMA, partition_by=["p"], properties=properties, clock=lambda: past[0])
    ids = [10_000_000 + i for i in range(40)]
    gone: list[Path] = []
    for _ in range(3):
        table.append(_rows(ids))
        gone += [url / path for path in table.files(["path"])["path"].to_pylist()]
        table.delete()
        past[0] += 5 * DAY
    gone = list(dict.fromkeys(gone))
    table.append(_rows(ids))
    orphan = url / "p=0" / new_name(0)
    orphan.write_bytes(b"of a writer that died")
    os.utime(orphan, (past[0], past[0]))
    for path in gone:
        os.utime(path, (past[0], past[0]))
    # The tombstones of the last round are five days old, and expire on the way.
    assert len(gone) == 3 * PARTS
    assert all(path.exists() for path in gone)
    return [*gone[: 2 * PARTS], orphan], dict.fromkeys(ids, 0)


def _values(table: DeltaTable) -> dict[int, int]:
    rows = table.to_arrow()
    values = dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))
    assert len(values) == rows.num_rows, "a row is there twice"
    return values


def _opens_with(url: Path, version: int, model: dict[int, int]) -> bool:
    """Return whether a version can still be read. A version that can be read must hold these rows."""
    try:
        values = _values(DeltaTable.open(url, version=version))
    except (DataFileMissing, LogGap, VersionNotFound):
        return False
    assert values == model, f"version {version}"
    return True
