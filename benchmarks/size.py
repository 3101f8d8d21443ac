"""What long histories cost: a lake with few commits and one with many, each opened by a process of its own."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import cast

from benchmarks.measure import Program, run

_WRITE = """
import json
from datetime import UTC, datetime, timedelta
from lake_core import Lake
from lake_core.graveler import Commit
from lake_core.journal import Add, Journal, Update
from lake_core.lake.refs.commit_archive import COMMIT_ARCHIVE
from lake_core.lake.refs.commit_record import commit_value
from lake_core.store import LocalStore, MemoryStore

memory = MemoryStore()
lake = Lake.create(memory)
with lake.session() as session:
    for number in range(100):
        session.put(f"files/{{number}}", b"x")
refs = lake.repository.refs()
head = refs.commit(refs.branch("main"))
begin = datetime.now(UTC) - timedelta(days=20)
for number in range({count}):
    datasets = json.dumps({{"tables/orders": {{"format": "delta", "version": number, "operation": "WRITE"}}}})
    head = Commit.create(
        "ada", f"commit {{number}}", begin + timedelta(seconds=10 * number), head.metarange_id, parents=(head,),
        metadata={{"session": f"s-{{number}}", "datasets": datasets}},
    )
    actions = [
        Add(f"commit/{{head.id}}", commit_value(head)),
        Update("branch/main", {{"commit": head.id}}),
        Update("place/main", {{"commit": head.id}}),
    ]
    lake.repository.journal.append(lambda state: actions)
store = LocalStore({folder!r})
for meta in memory.list():
    store.put(meta.key, memory.get(meta.key))
result = None
"""

_SETUP = """
import time
import lake_core.cli.main
from lake_core import Lake
"""

_USE = """
figures = {{}}
def measured(name, function):
    begin = time.process_time()
    value = function()
    figures[name] = 1000 * (time.process_time() - begin)
    return value
def opened():
    lake = Lake.open({folder!r})
    lake.list_branches()
    return lake
def publish():
    with lake.session() as session:
        session.put("files/0", str(time.time()).encode())
lake = measured("open", opened)
measured("log of 10 commits", lambda: lake.log(limit=10))
publish()
measured("publish of one file", publish)
measured("diff of two commits", lambda: lake.diff("main~1", "main"))
result = figures
"""

_COLLECT = """
begin = time.process_time()
Lake.open({folder!r}).maintenance.gc(dry_run=True)
result = time.process_time() - begin
"""


def measure(rounds: int, few: int = 100, many: int = 100_000) -> None:
    """Print medians of `rounds` processes in milliseconds of the processor, and their peaks."""
    with tempfile.TemporaryDirectory() as folder:
        folders = {count: str(Path(folder) / str(count)) for count in (few, many)}
        for count, lake_folder in folders.items():
            run(Program("", _WRITE.format(count=count, folder=lake_folder)))
        runs = {count: [] for count in folders}  # type: dict[int, list[tuple[dict[str, float], float]]]
        for _ in range(rounds):
            for count, lake_folder in folders.items():
                measured = run(Program(_SETUP, _USE.format(folder=lake_folder)))
                runs[count].append((measured.result, measured.peak))  # type: ignore[arg-type]
        for name in runs[few][0][0]:
            left, right = (statistics.median(figures[name] for figures, _ in runs[count]) for count in folders)
            print(f"{name:24} {few} commits {left:7.2f} ms  {many} commits {right:7.2f} ms  {right / left:5.2f}x")
        left, right = (statistics.median(peak for _, peak in runs[count]) for count in folders)
        print(f"{'memory':24} {few} commits {left:7.1f} MB  {many} commits {right:7.1f} MB  {right / left:5.2f}x")
        for count, lake_folder in folders.items():
            collected = run(Program(_SETUP, _COLLECT.format(folder=lake_folder)))
            print(f"collection, a dry run: {count} commits {collected.result:7.2f} s  {collected.peak:7.1f} MB")
    _measure_growth()


_LAKE = """
import time
import pyarrow as pa
from lake_core import Lake
from lake_core.store import MemoryStore

schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
rows = pa.table({{"id": [1], "v": [1]}}, schema=schema)
class Counted(MemoryStore):
    written = 0
    def _put(self, key, data, *conditions):
        if key.startswith("_lake/refs/"):
            Counted.written += len(data)
        return super()._put(key, data, *conditions)
lake = Lake.create(Counted())
count = {count}
"""

_OUTPUTS = """
shared = lake.open_session()
begin = time.process_time()
for number in range(count):
    with shared.join(task=str(number)) as writer:
        writer.put(f"outputs/{{number}}", b"%d" % number)
flushed = time.process_time() - begin
shared.publish()
result = {{"flushes": flushed, "publish": time.process_time() - begin - flushed, "refs": Counted.written / 2**20}}
"""

_TABLES = """
with lake.session() as session:
    for number in range(count):
        session.create_delta(f"t/{{number}}", schema)
session = lake.session()
for number in range(count):
    session.delta(f"t/{{number}}").append(rows)
begin = time.process_time()
session.publish()
result = {{"publish": time.process_time() - begin}}
"""

_BRANCHES = """
with lake.session() as session:
    session.create_delta("t/shared", schema)
begin = time.process_time()
for number in range(count):
    lake.create_branch(f"b{{number}}")
    with lake.session(f"b{{number}}") as session:
        session.delta("t/shared").append(rows)
published = time.process_time() - begin
for number in range(count):
    lake.merge(f"b{{number}}")
merged = time.process_time() - begin - published
begin = time.process_time()
lake.maintenance.gc(dry_run=True)
result = {{"branch and publish": published, "merge": merged, "gc": time.process_time() - begin}}
"""

_RUNS = """
import subprocess, sys, time
from pathlib import Path
from lake_core import Lake

folder, count = {folder!r}, {count}
Lake.create(folder)
source = '''
import sys, time
from pathlib import Path
from lake_core import Lake
folder, number = sys.argv[1:]
lake = Lake.open(folder)
session = lake.session()
session.put(f"runs/{{number}}", b"1")
Path(f"{{folder}}.{{number}}").touch()
while not Path(f"{{folder}}.go").exists():
    time.sleep(0.01)
session.publish()
'''
workers = [subprocess.Popen([sys.executable, "-c", source, folder, str(number)]) for number in range(count)]
while not all(Path(f"{{folder}}.{{number}}").exists() for number in range(count)):
    time.sleep(0.1)
Path(f"{{folder}}.go").touch()
begin = time.perf_counter()
assert not any(worker.wait() for worker in workers)
published = time.perf_counter() - begin
assert len(list(Lake.open(folder).at().list("runs/"))) == count
result = {{"all published": published}}
"""


def _measure_growth() -> None:
    """Print what one output, table, branch or process costs when there are few and when there are many."""
    for name, body, few, many in (
        ("outputs", _LAKE + _OUTPUTS, 500, 5_000),
        ("tables", _LAKE + _TABLES, 50, 500),
        ("branches", _LAKE + _BRANCHES, 10, 100),
        ("runs", _RUNS, 5, 50),
    ):
        with tempfile.TemporaryDirectory() as folder:
            results = [
                run(Program("", body.format(count=count, folder=f"{folder}/{count}"))).result for count in (few, many)
            ]
        of_few, of_many = (cast("dict[str, float]", result) for result in results)
        for figure, left in of_few.items():
            right = of_many[figure]
            unit, factor = ("MB", 1.0) if figure == "refs" else ("ms each", 1000.0)
            each = (1, 1) if figure in ("refs", "gc") else (few, many)
            left, right = factor * left / each[0], factor * right / each[1]
            print(
                f"{name:9} {figure:19} {few}: {left:8.2f} {unit:8} {many}: {right:8.2f}  {right / left:5.2f}x",
                flush=True,
            )
