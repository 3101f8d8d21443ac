"""Pools of Zed lakes on local files: loads, scans, key ranges and merges.

They run against `zed` 1.18 if ZED_1_18 or the PATH names it.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import Program, Run, run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GITHUB = Path(__file__).parents[2] / "shared" / "cases" / "zed" / "github2.zng"
"""Records of pull requests that another implementation wrote."""
ZED = os.environ.get("ZED_1_18") or shutil.which("zed")

_RECORDS = """
import numpy as np, pyarrow as pa
def records(count, seed=1, start=0, step=1):
    rng = np.random.default_rng(seed)
    def one_of(words):
        return pa.array(words).take(pa.array(rng.integers(0, len(words), count)))
    times = 1_700_000_000_000_000_000 + 1_000_000 * (start + step * rng.permutation(count))
    return pa.table({
        "ts": pa.array(times, pa.timestamp("ns", "UTC")),
        "level": one_of(["debug", "info", "warn", "error"]),
        "host": one_of([f"host-{number}" for number in range(200)]),
        "service": one_of(["api", "web", "db", "cache", "auth"]),
        "status": pa.array(rng.choice([200, 200, 200, 404, 500], count)),
        "latency": rng.random(count) * 1000,
        "bytes": rng.integers(0, 1 << 20, count),
        "path": one_of([f"/v1/items/{number}" for number in range(100_000)]),
        "message": one_of([f"request {number} took a while and ended well" for number in range(100_000)]),
    })
"""
_POOL = """
import tempfile, atexit, shutil, resource
from pathlib import Path
from lake_core.pool import PoolLake
from lake_core.pool.value_batch import batches_of_arrow
from lake_core.pool.zng.writer import ZngWriter
folder = tempfile.mkdtemp(dir={folder!r})
atexit.register(shutil.rmtree, folder, True)
"""
_FILES = """
table = records({count})
with open({folder!r} + "/log.zng", "wb") as file, ZngWriter(file) as writer:
    for batch in table.to_batches(65536):
        for values in batches_of_arrow(batch):
            values.write_to(writer)
lines = table.set_column(0, "ts", table["ts"].cast("int64")).to_pylist()
import json
Path({folder!r}, "log.ndjson").write_text("".join(json.dumps(line) + "\\n" for line in lines))
lake = PoolLake.create({folder!r} + "/lake")
lake.create_pool("log", key="ts").load(table)
overlapping = lake.create_pool("overlapping", key="ts")
for number in range(10):
    overlapping.load(records({count} // 10, number, number, 10))
result = len(overlapping.objects())
"""
_LOAD_ARROW = """
PoolLake.create(folder).create_pool("log", key="ts").load(table)
result = table.num_rows
"""
_LOAD_NDJSON = """
pool = PoolLake.create(folder).create_pool("log", key="ts")
pool.load(Path({folder!r}, "log.ndjson"))
result = sum(each.count for each in pool.objects())
"""
_STREAM = """
result = sum(batch.num_rows for batch in PoolLake.open({folder!r} + "/lake").pool({pool!r}).scan().to_reader())
"""
_TABLE = """
result = PoolLake.open({folder!r} + "/lake").pool({pool!r}).scan().to_table().num_rows
"""
_RANGE_SETUP = """
from lake_core.store import LocalStore
read = [0]
class CountingStore(LocalStore):
    def _get(self, key, start, end):
        data = super()._get(key, start, end)
        read[0] += len(data) if "/data/" in key else 0
        return data
pool = PoolLake.open(CountingStore({folder!r} + "/lake")).pool("log")
size = sum(each.size for each in pool.objects())
def key(number):
    return pa.scalar(1_700_000_000_000_000_000 + number * 1_000_000, pa.timestamp("ns", "UTC")).as_py()
width = {count} // 1000
starts = np.random.default_rng(1).integers(0, {count} - width, 20).tolist()
first, last = key({count} // 2), key({count} // 2 + width)  # `as_py` imports pandas, which is not what is measured
"""
_RANGE = """
rows = [pool.scan(start=key(start), stop=key(start + width)).to_table().num_rows for start in starts]
assert set(rows) == {{width}}
result = round(100 * read[0] / size / len(starts), 2)
"""
_ONE_RANGE = """
result = pool.scan(start=first, stop=last).to_table().num_rows
"""


def _times(first: int, count: int) -> tuple[str, str]:
    """Return the bounds of a range of keys as texts of ZSON."""
    nanoseconds = [1_700_000_000_000_000_000 + 1_000_000 * key for key in (first, first + count)]
    texts = []
    for each in nanoseconds:
        seconds, rest = divmod(each, 1_000_000_000)
        texts.append(time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:09d}Z")
    return texts[0], texts[1]


def _zed(lake: Path, *arguments: str) -> tuple[Run, str]:
    """Run `zed` on a lake, its values into nowhere, and return what it took."""
    environment = {**os.environ, "ZED_LAKE": str(lake)}
    begin = time.perf_counter()
    process = subprocess.Popen([str(ZED), *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    output = b""
    while piece := process.stdout.read(1 << 20):
        output = piece if len(piece) < 1 << 16 else b""
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(process.stderr.read().decode() if process.stderr else "zed failed")
    return Run(seconds, usage.ru_maxrss / 1024, None, usage.ru_utime + usage.ru_stime), output.decode(errors="replace")


def _report(name: str, ours: Sequence[Run], theirs: Sequence[Run]) -> None:
    """Print medians of both, and how many times faster than `zed` it is in processor time and on the clock."""
    parts = []
    for label, field, unit in (("clock", "seconds", "s"), ("processor", "cpu", "s"), ("peak", "peak", "MB")):
        mine = statistics.median(getattr(each, field) for each in ours)
        text = f"{label} {mine:8.2f} {unit}"
        if theirs:
            other = statistics.median(getattr(each, field) for each in theirs)
            text += f"  zed {other:8.2f} {unit}  {other / mine:5.2f}x" if unit == "s" else f"  zed {other:8.2f} {unit}"
        parts.append(text)
    print(f"{name:<44} {' | '.join(parts)} | {json.dumps(ours[0].result)}", flush=True)


def measure(folder: str, rounds: int, count: int) -> None:
    """Print all figures, medians of `rounds` runs in turn, each in a process of its own."""
    setup = _RECORDS + _POOL.format(folder=folder)
    run(Program(setup, _FILES.format(folder=folder, count=count)))
    lake = Path(folder) / "zed-lake"
    if ZED is None:
        print("not measured against zed: neither ZED_1_18 nor the PATH names it; `make interop` builds it")

    def fresh() -> Path:
        shutil.rmtree(lake, ignore_errors=True)
        _zed(lake, "init")
        _zed(lake, "create", "-orderby", "ts:desc", "log")
        return lake

    def versus(name: str, ours: Program, theirs: Callable[[], Run]) -> None:
        pairs = [(run(ours), theirs() if ZED else None) for _ in range(rounds)]
        _report(name, [mine for mine, _ in pairs], [other for _, other in pairs if other is not None])

    def load(format: str, file: str) -> Callable[[], Run]:
        return lambda: _zed(fresh(), "load", "-use", "log", "-i", format, str(Path(folder, file)))[0]

    def query(text: str) -> Callable[[], Run]:
        return lambda: _zed(Path(folder, "lake"), "query", "-f", "zng", text)[0]

    versus(
        f"load of {count} records of Arrow (zed: ZNG)",
        Program(f"{setup}\ntable = records({count})", _LOAD_ARROW),
        load("zng", "log.zng"),
    )
    versus(
        f"load of {count} lines of JSON", Program(setup, _LOAD_NDJSON.format(folder=folder)), load("json", "log.ndjson")
    )
    for pool, name in (("log", "one object"), ("overlapping", "10 overlapping objects")):
        for kind, text in (("table", _TABLE), ("stream", _STREAM)):
            program = Program(setup, text.format(folder=folder, pool=pool))
            versus(f"scan of {name} to an Arrow {kind} (zed: ZNG)", program, query(f"from {pool}"))
    program = Program(setup + _RANGE_SETUP.format(folder=folder, count=count), _RANGE.format())
    _report("20 ranges of 0.1 %: % of bytes read", [run(program) for _ in range(rounds)], [])
    first, last = _times(count // 2, count // 1000)
    versus(
        "one of them",
        Program(setup + _RANGE_SETUP.format(folder=folder, count=count), _ONE_RANGE),
        query(f"from log | ts >= {first} and ts < {last}"),
    )
    _compaction(folder, setup, rounds, count, versus)
    if GITHUB.exists():
        _wide_records(folder, setup, versus)
    else:
        print(f"not measured: wide records of GitHub, {GITHUB} does not exist")


_REPEATED = """
pool = PoolLake.create({folder!r} + "/github", exist_ok=True).create_pool("github", key="created_at")
pool.load(Path({source!r}))
table = pa.concat_tables([pool.scan().to_table()] * {times}).combine_chunks()
"""
_WIDE_FILES = """
import json
lines = [json.dumps(record, default=str) + "\\n" for record in pool.scan().records()]
Path({folder!r}, "github.ndjson").write_text("".join(lines) * {times})
with open({folder!r} + "/github.zng", "wb") as file, ZngWriter(file) as writer:
    for batch in table.to_batches(8192):
        for values in batches_of_arrow(batch):
            values.write_to(writer)
with pa.OSFile({folder!r} + "/github.arrow", "wb") as file, pa.ipc.new_file(file, table.schema) as arrow:
    arrow.write_table(table)
many = PoolLake.open({folder!r} + "/github").create_pool("many", key="created_at")
result = many.load(table) and sum(each.count for each in many.objects())
"""
_WIDE_STREAM = """
scan = PoolLake.open({folder!r} + "/github").pool("many").scan()
result = sum(batch.num_rows for batch in scan.to_reader())
"""
_WIDE_LOAD = """
pool = PoolLake.create(folder).create_pool("log", key="created_at")
pool.load({rows})
result = sum(each.count for each in pool.objects())
"""


def _wide_records(folder: str, setup: str, versus: Callable[[str, Program, Callable[[], Run]], None]) -> None:
    """Print what pull requests of GitHub cost, 1,900 nested records written 50 times over."""
    source = _REPEATED.format(folder=folder, source=str(GITHUB), times=50)
    count = run(Program(setup + source, _WIDE_FILES.format(folder=folder, times=50))).result
    lake = Path(folder, "wide")

    def load(format: str, file: str) -> Callable[[], Run]:
        def theirs() -> Run:
            shutil.rmtree(lake, ignore_errors=True)
            _zed(lake, "init")
            _zed(lake, "create", "-orderby", "created_at:desc", "log")
            return _zed(lake, "load", "-use", "log", "-i", format, str(Path(folder, file)))[0]

        return theirs

    read = f"\ntable = pa.ipc.open_file({folder + '/github.arrow'!r}).read_all()"
    versus(
        f"load of {count} pull requests of Arrow (zed: ZNG)",
        Program(setup + read, _WIDE_LOAD.format(rows="table")),
        load("zng", "github.zng"),
    )
    for format, file in (("zng", "github.zng"), ("json", "github.ndjson")):
        program = Program(setup, _WIDE_LOAD.format(rows=f"Path({folder + '/' + file!r})"))
        versus(f"load of {count} pull requests of {file.partition('.')[2]}", program, load(format, file))
    program = Program(setup, _WIDE_STREAM.format(folder=folder))
    versus(
        "scan of them to an Arrow stream (zed: ZNG)",
        program,
        lambda: _zed(Path(folder, "github"), "query", "-f", "zng", "from many")[0],
    )


_HUNDRED = """
pool = PoolLake.create({folder!r} + "/hundred", exist_ok=True).create_pool("hundred", key="ts")
for number in range(100):
    pool.load(records({count} // 100, number, number, 100))
result = [each.id for each in pool.objects()]
"""
_COMPACT = """
shutil.copytree({folder!r} + "/hundred", folder, dirs_exist_ok=True)
pool = PoolLake.open(folder).pool("hundred")
ids = [each.id for each in pool.objects()]
"""
_COMPACT_BODY = """
pool.compact(ids)
result = sum(each.count for each in pool.objects())
"""


def _compaction(
    folder: str, setup: str, rounds: int, count: int, versus: Callable[[str, Program, Callable[[], Run]], None]
) -> None:
    """Print what it takes to put 100 overlapping objects together: a copy of them each time."""
    objects = run(Program(setup, _HUNDRED.format(folder=folder, count=count))).result
    assert isinstance(objects, list)
    program = Program(setup + _COMPACT.format(folder=folder), _COMPACT_BODY)

    def theirs() -> Run:
        copy = Path(folder, "copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(Path(folder, "hundred"), copy)
        return _zed(copy, "compact", "-use", "hundred", *objects)[0]

    versus("compaction of 100 overlapping objects", program, theirs)
