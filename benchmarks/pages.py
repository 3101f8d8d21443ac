"""What the pages of `lake ui` cost in a lake of 100,000 commits and 1,000 tables, and of one of ten million rows.

The server is a process of its own, as `lake ui` starts it. Each page is asked for once cold and then again: warm is the
median. Memory is the peak of the server so far.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lake_core import Lake
from lake_core.graveler import Commit
from lake_core.journal import Add, Update
from lake_core.lake.refs.commit_record import commit_value

if TYPE_CHECKING:
    from collections.abc import Iterator

_AT_ONCE = 1000
"""The synthetic commits that one entry of the refs journal adds, but for the newest ones."""
_ALONE = 200
"""The newest commits, each of which has an entry of its own, as commits of publishes have."""
_FILES = 100


def measure(folder: str, rounds: int, commits: int = 100_000, tables: int = 1_000, rows: int = 10_000_000) -> None:
    """Write the lake, serve it, and print seconds and megabytes."""
    root = Path(folder) / "pages"
    write_lake(root, commits, tables, rows)
    pages = {
        "first page": "/",
        "graph, newest": "/history?ref=*",
        "graph, one page of 500": "/history?ref=main&n=500",
        "commits of one table": "/history?ref=main&dataset=t/t0007",
        "datasets": "/data?prefix=t",
        "rows of a table": "/dataset/large",
        "rows of a table, sorted": "/dataset/large?sort=v&desc=1",
        "rows that differ": "/compare/dataset?from=before&to=after&path=large&key=id",
    }
    for name, address in pages.items():
        # A server for each, so that memory is that of the page.
        with served(root) as (url, process):
            seconds = [fetch(url + address) for _ in range(max(rounds, 2))]
            print(
                f"{name:26} cold {seconds[0]:6.2f} s   warm {statistics.median(seconds[1:]):6.3f} s   "
                f"{peak(process.pid):6.0f} MB",
                flush=True,
            )


def write_lake(root: Path, commits: int, tables: int, rows: int) -> None:
    """Write small tables, a large one of two versions that differ in 1,000 rows, and synthetic commits."""
    lake = Lake.create(str(root))
    small = pa.table({"id": [1]})
    with lake.session(message="tables") as session:
        for number in range(tables):
            session.create_delta(f"t/t{number:04}", small.schema).append(small)
    per_file = rows // _FILES
    with lake.session(message="a large table") as session:
        schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
        large = session.create_delta("large", schema, properties={"delta.enableDeletionVectors": "true"})
        for number in range(_FILES):
            ids = np.arange(number * per_file, (number + 1) * per_file)
            large.append(pa.table({"id": ids, "v": ids * 7 % 1_000_003}))
    lake.create_tag("before")
    with lake.session(message="change 1,000 rows") as session:
        session.delta("large").update({"v": "-1"}, f"id >= {per_file * 40} AND id < {per_file * 40 + 1000}")
    lake.create_tag("after")
    refs = lake.repository.refs()
    head = refs.commit(refs.branch("main"))
    older = range(0, commits - _ALONE, _AT_ONCE)
    starts = [*older, *range(commits - _ALONE, commits)]
    for first, end in zip(starts, [*starts[1:], commits], strict=True):
        actions = []
        for number in range(first, end):
            update = {f"t/t{number % tables:04}": {"format": "delta", "version": 1, "operation": "WRITE"}}
            head = Commit.create(
                "ann",
                f"load {number}",
                head.creation_date + timedelta(seconds=30),
                head.metarange_id,
                parents=(head,),
                metadata={"dagster/run": f"run-{number}", "datasets": json.dumps(update)},
            )
            actions.append(Add(f"commit/{head.id}", commit_value(head)))
        actions += [Update("branch/main", {"commit": head.id}), Update("place/main", {"commit": head.id})]
        lake.repository.journal.append(lambda state, actions=actions: actions)
    lake.repository.journal.write_snapshot()


@contextmanager
def served(root: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Serve a lake in a process of its own."""
    command = [sys.executable, "-m", "lake_core.cli", "--lake", str(root), "ui", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        match = re.search(r"http://[^/\s]+", process.stdout.readline())
        assert match is not None
        try:
            yield match[0], process
        finally:
            process.terminate()


def fetch(address: str) -> float:
    """Return the seconds until a page is there."""
    begin = time.perf_counter()
    with urllib.request.urlopen(address, timeout=600) as answer:
        assert answer.status == 200
        answer.read()
    return time.perf_counter() - begin


def peak(pid: int) -> float:
    """Return the most memory that a process had, in megabytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as temporary:
        measure(temporary, 5)
