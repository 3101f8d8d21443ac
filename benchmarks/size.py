"""What long histories cost: a lake with few commits and one with many, each opened by a process of its own."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

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


def measure(rounds: int, few: int = 100, many: int = 100_000) -> None:
    """Print medians of `rounds` processes in milliseconds of the processor, and their peaks."""
    with tempfile.TemporaryDirectory() as folder:
        folders = {count: str(Path(folder) / str(count)) for count in (few, many)}
        for count, place in folders.items():
            run(Program("", _WRITE.format(count=count, folder=place)))
        runs = {count: [] for count in folders}  # type: dict[int, list[tuple[dict[str, float], float]]]
        for _ in range(rounds):
            for count, place in folders.items():
                measured = run(Program(_SETUP, _USE.format(folder=place)))
                runs[count].append((measured.result, measured.peak))  # type: ignore[arg-type]
        for name in runs[few][0][0]:
            left, right = (statistics.median(figures[name] for figures, _ in runs[count]) for count in folders)
            print(f"{name:24} {few} commits {left:7.2f} ms  {many} commits {right:7.2f} ms  {right / left:5.2f}x")
        left, right = (statistics.median(peak for _, peak in runs[count]) for count in folders)
        print(f"{'memory':24} {few} commits {left:7.1f} MB  {many} commits {right:7.1f} MB  {right / left:5.2f}x")
