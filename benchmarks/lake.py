"""A lake: what publishing, opening, importing and collecting cost, how that grows, and what is written.

Each is measured in a process of its own.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from benchmarks.measure import Program, run

SETUP = """
import re, statistics, subprocess, sys, time
from collections import Counter
from datetime import UTC, datetime, timedelta
import pyarrow as pa
from lake_core import Lake
from lake_core.store import LocalStore, MemoryStore, ObjectMeta

folder = {folder!r}
TABLES = ("t/a", "t/b", "t/c")
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
KINDS = [(r"\\.parquet$", "data file"), (r"^_lake/objects/", "content object"), (r"^_lakefs/", "range or metarange"),
         (r"^_lake/refs/[0-9]+[.]", "refs entry"), (r"^_lake/refs/", "refs HEAD or snapshot"),
         (r"^_lake/leases/", "lease"), (r"/_delta_log/[0-9]+.json$", "checkout"), (r"/_delta_log/", "checkpoint"),
         (r"", "other")]

def rows(n):
    return pa.table({{"id": [n] * 3, "v": [1, 2, 3]}}, schema=SCHEMA)

class Counting(LocalStore):
    writes, reads = Counter(), Counter()
    def _count(self, counter, key, verb):
        counter[next(kind for pattern, kind in KINDS if re.search(pattern, key)) + verb] += 1
    def _put(self, key, *rest):
        self._count(self.writes, key, "")
        return super()._put(key, *rest)
    def _delete(self, keys):
        for key in keys:
            self._count(self.writes, key, ", deleted")
        return super()._delete(keys)
    def _get(self, key, start, end):
        self._count(self.reads, key, "")
        return super()._get(key, start, end)
    def _head(self, key):
        self._count(self.reads, key, ", head")
        return super()._head(key)
    def _list(self, prefix, start_after):
        self._count(self.reads, prefix, ", list")
        return super()._list(prefix, start_after)

def new_lake(store):
    lake = Lake.create(store)
    with lake.session() as s:
        for path in TABLES:
            s.create_delta(path, SCHEMA).append(rows(0))
    return lake

def work(lake, n):
    s = lake.session(message="work")
    for path in TABLES:
        s.delta(path).append(rows(n))
    return s
"""

HISTORY = """
memory = MemoryStore()
lake = new_lake(memory)
for n in range({commits}):
    work(lake, n).publish()
store = LocalStore(folder)
for meta in memory.list():
    store.put(meta.key, memory.get(meta.key))
result = lake.delta(TABLES[0]).version
"""

PUBLISH = """
spent, cpu, all_spent, writes, reads = [], [], [], [], []
for n in range(15):
    session_begin = time.perf_counter()
    session = work(lake, n)
    store.writes.clear(); store.reads.clear()
    publish_begin, cpu_begin = time.perf_counter(), time.process_time()
    session.publish()
    spent.append(time.perf_counter() - publish_begin)
    cpu.append(time.process_time() - cpu_begin)
    all_spent.append(time.perf_counter() - session_begin)
    writes.append(dict(store.writes)); reads.append(dict(store.reads))
middle = sorted(range(len(writes)), key=lambda n: sum(writes[n].values()))[len(writes) // 2]
most = max(writes, key=lambda counts: sum(counts.values()))
medians = [statistics.median(seconds) for seconds in (spent, cpu, all_spent)]
result = [*medians, writes[middle], most, reads[middle]]
"""

READ = """
begin, cpu_begin = time.perf_counter(), time.process_time()
lake = Lake.open(folder)
opened = time.perf_counter() - begin
got = lake.delta(TABLES[0]).to_arrow().num_rows
result = [opened, time.process_time() - cpu_begin, got]
"""

COLLECT = """
lake = Lake.open(folder, clock=lambda: datetime.now(UTC) + timedelta(days=20))
cpu_begin = time.process_time()
result = [len(lake.maintenance.gc(dry_run=True).keys), time.process_time() - cpu_begin]
"""

IMPORT_SETUP = """
class Landing(LocalStore):
    def _list(self, prefix, start_after):
        if prefix != "landing/":
            yield from super()._list(prefix, start_after)
            return
        for n in range(count):
            key = f"landing/day={{n * 1000 // count:03}}/part-{{n:08}}-c000.snappy.parquet"
            yield ObjectMeta(key, 1000 + n, f"{{n:032x}}", NOW)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
count = {count}
lake = Lake.create(Landing(folder), exist_ok=True)
"""

IMPORT = """
begin, cpu_begin = time.perf_counter(), time.process_time()
session = lake.session(message="import")
imported = session.import_objects("landing/")
named = time.perf_counter() - begin
session.publish()
assert imported.objects == count
result = [named, time.process_time() - cpu_begin]
"""

ONE_FILE = """
lake.at().exists("landing/day=000/absent")
spent, cpu = [], []
for n in range(15):
    session = lake.session(message="one file")
    publish_begin, cpu_begin = time.perf_counter(), time.process_time()
    session.put(f"landing/day={n * 61:03}/new-{n}", b"%d" % n)
    session.publish()
    spent.append(time.perf_counter() - publish_begin)
    cpu.append(time.process_time() - cpu_begin)
result = [statistics.median(spent), statistics.median(cpu)]
"""

PUBLISHER = """
worker, count = int(sys.argv[1]), int(sys.argv[2])
lake = Lake.open(folder)
print("ready", flush=True)
sys.stdin.readline()
for n in range(count):
    with lake.session(message=f"{worker}/{n}") as s:
        s.delta(TABLES[0]).append(rows(n))
        s.put(f"files/{worker}/{n}", b"1")
"""

RACE = """
pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
running = [subprocess.Popen([sys.executable, "-c", program, str(worker), str(count)], **pipes)
           for worker in range(workers)]
for process in running:
    process.stdout.readline()
race_begin = time.perf_counter()
for process in running:
    process.stdin.write("go\\n"); process.stdin.flush()
assert [process.wait() for process in running] == [0] * workers
spent = time.perf_counter() - race_begin
lake = Lake.open(folder)
assert lake.delta(TABLES[0]).version == workers * count and len(lake.log()) == workers * count + 2
result = [workers * count / spent, spent]
"""


def measure(commits: int, keys: int) -> None:
    """Print all figures.

    They are for a new lake, for one with `commits` commits of tables with as many versions, and for trees of `keys`
    keys.
    """
    with tempfile.TemporaryDirectory() as folder:
        new, old = f"{folder}/new", f"{folder}/old"
        run(_program(new, "lake = new_lake(LocalStore(folder)); result = 0"))
        first = _publish("new lake", new)
        _read("new lake", new)
        measured = run(_program(old, HISTORY.format(commits=commits)))
        assert measured.result == commits
        _say(f"{commits} publishes of 3 tables, in memory", f"{measured.seconds:.1f} s, {measured.peak:.0f} MB")
        later = _publish(f"{commits} commits", old)
        _say("its growth", f"{later / first:.2f} x")
        _read(f"{commits} commits", old)
        measured = run(_program(old, COLLECT))
        collected, cpu = measured.result  # type: ignore[misc]
        _say(
            f"dry run of gc, {commits} commits",
            f"{measured.seconds:.2f} s, {cpu:.2f} s CPU, {measured.peak:.0f} MB; {collected} objects",
        )
        for count in sorted({keys // 10, keys}):
            _keys(f"{folder}/{count}", count)
        _race(f"{folder}/race", 8, 10)


def _publish(name: str, folder: str) -> float:
    measured = run(_program(folder, PUBLISH, "store = Counting(folder); lake = Lake.open(store)"))
    seconds, cpu, whole, writes, most, reads = measured.result  # type: ignore[misc]
    _say(
        f"publish of 3 tables, {name}",
        f"{seconds:.3f} s, {cpu:.3f} s CPU, {measured.peak:.0f} MB; {whole:.3f} s with the session's appends",
    )
    _say("  its writes", _told(writes))
    _say("  at most", _told(most))
    _say("  its reads", _told(reads))
    return float(seconds)


def _told(counted: dict[str, int]) -> str:
    counted = {kind: count for kind, count in counted.items() if not kind.startswith("data file")}
    return f"{sum(counted.values())}: " + ", ".join(f"{count} {kind}" for kind, count in sorted(counted.items()))


def _read(name: str, folder: str) -> None:
    """Measure, imports aside, from a process that has opened nothing to the rows of one table."""
    runs = [run(_program(folder, READ)) for _ in range(5)]
    opened = statistics.median(measured.result[0] for measured in runs)  # type: ignore[index]
    cpu = statistics.median(measured.result[1] for measured in runs)  # type: ignore[index]
    seconds, peak = (statistics.median(getattr(measured, field) for measured in runs) for field in ("seconds", "peak"))
    _say(
        f"open, then first read, {name}",
        f"{opened:.3f} s, then {seconds - opened:.3f} s; {cpu:.3f} s CPU, {peak:.0f} MB",
    )


def _keys(folder: str, count: int) -> None:
    setup = IMPORT_SETUP.format(count=count)
    measured = run(_program(folder, IMPORT, setup))
    named, cpu = measured.result  # type: ignore[misc]
    figures = f"{named:.1f} s, {measured.seconds - named:.2f} s to publish, {cpu:.1f} s CPU, {measured.peak:.0f} MB"
    _say(f"import of {count} objects, uncopied", figures)
    measured = run(_program(folder, ONE_FILE, setup))
    seconds, cpu = measured.result  # type: ignore[misc]
    _say(f"one-file commit, {count} keys", f"{seconds:.3f} s, {cpu:.3f} s CPU, {measured.peak:.0f} MB")


def _race(folder: str, workers: int, count: int) -> None:
    program = SETUP.format(folder=folder) + PUBLISHER
    setup = f"new_lake(LocalStore(folder)); program, workers, count = {program!r}, {workers}, {count}"
    measured = run(_program(folder, RACE, setup))
    rate, seconds = measured.result  # type: ignore[misc]
    _say(f"{workers} processes, {count} publishes each", f"{rate:.1f} commits/s ({seconds:.1f} s)")


def _program(folder: str, body: str, setup: str = "") -> Program:
    Path(folder).mkdir(exist_ok=True)
    return Program(f"{SETUP.format(folder=folder)}\n{setup}\n", body)


def _say(name: str, figures: str) -> None:
    print(f"{name:<48} {figures}", flush=True)
