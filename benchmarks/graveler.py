"""Trees of a million keys and more on local files: what commits, differences and look-ups cost.

Each is measured in a process of its own.
"""

from __future__ import annotations

import statistics
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.measure import Program, run

SETUP = """
import hashlib, random, statistics, sys, time
from lake_core.graveler import Graveler, Record
from lake_core.store import LocalStore

def key(at, n):
    day = at * 1000 // n
    inner = hashlib.blake2b(at.to_bytes(8, "big"), digest_size=12).hexdigest()
    return b"warehouse/tables/events_%02d/date=2024-%02d-%02d/part-%09d-%b-c000.snappy.parquet" % (
        day // 50, day % 50 // 25 + 1, day % 25 + 1, at, inner.encode())

def record(name, salt=b""):
    identity = hashlib.sha256(name + salt).digest()
    hexed = identity.hex().encode()
    time = b"\\x12\\x0c\\x08\\x80\\x9c\\xaf\\x88\\x06\\x10\\xcb\\x94\\xd3\\xe0\\x01"
    value = b"\\n\\x34data/" + hexed[:47] + time + b"\\x18\\x8b\\x08\\" " + hexed[:32] + b"0\\x01"
    return Record(name, identity, value)

class Counting(LocalStore):
    def _get(self, key, start, end):
        self.reads = getattr(self, "reads", 0) + 1
        return super()._get(key, start, end)
"""

OPEN = """
folder, tree, n = {folder!r}, {tree!r}, {count}
store = Counting(folder)
rng = random.Random({seed})
"""

BUILD = """
trees = Graveler(LocalStore(folder))
begin_cpu = time.process_time()
changes = ((name, record(name)) for name in (key(at, n) for at in range(n)))
built = trees.build("", changes)
counts = [info.count for info in trees.ranges(built.tree)]
result = [built.tree, time.process_time() - begin_cpu, len(counts), statistics.mean(counts), max(counts)]
"""

COMMIT = """
spent = []
for number in range(25):
    name = key(rng.randrange(n), n)
    trees = Graveler(store)
    begin_cpu = time.process_time()
    built = trees.build(tree, [(name, record(name, b"new%d" % number))])
    spent.append(time.process_time() - begin_cpu)
    assert built.changed == 1
result = [statistics.mean(spent), statistics.median(spent), max(spent)]
"""

DIFF = """
names = sorted(key(rng.randrange(n), n) for _ in range(10))
after = Graveler(store).build(tree, [(name, record(name, b"other")) for name in names]).tree
trees = Graveler(store)
store.reads = 0
begin_cpu = time.process_time()
found = [difference.key for difference in trees.diff(tree, after)]
assert found == names
result = [store.reads - 2, time.process_time() - begin_cpu]
"""

GETS = """
trees = Graveler(store, memory_bytes=1 << 30)
def batch():
    return [key(rng.randrange(n), n) for _ in range(100_000)]
first = batch()
begin_first = time.process_time()
trees.get_many(tree, first)
cold = len(first) / (time.process_time() - begin_first)
total, spent = 0, 0.0
while spent < 4:
    wanted = batch()
    begin_batch = time.process_time()
    found = trees.get_many(tree, wanted)
    spent += time.process_time() - begin_batch
    total += len(wanted)
    assert found[7].key == wanted[7] and None not in found
result = [total / spent, cold]
"""

ONE_BY_ONE = """
trees = Graveler(store)
names = [key(rng.randrange(n), n) for _ in range(40)]
begin_first = time.process_time()
assert trees.get(tree, names[0]).key == names[0]
first = time.process_time() - begin_first
begin_rest = time.process_time()
for name in names[1:]:
    trees.get(tree, name)
result = [first, (time.process_time() - begin_rest) / 39]
"""

EXPORT = """
from datetime import UTC, datetime
from lake_core.graveler import Commit, export_commits
from lake_core.graveler.export import EarlierExport
from lake_core.store import MemoryStore

class Namespace(MemoryStore):
    def _put(self, key, data, if_absent, if_match, unique):
        if not key.startswith("data/"):
            return super()._put(key, data, if_absent, if_match, unique)

trees = Graveler(store)
commits = [Commit.create("ann", "first", datetime.now(UTC), tree)]
for number in range(100):
    name = key(rng.randrange(n), n)
    tree = trees.build(tree, [(name, record(name, b"change%d" % number))]).tree
    commits.append(Commit.create("ann", "next", datetime.now(UTC), tree, parents=[commits[-1]]))
target, earlier, result = Namespace(), EarlierExport(), []
for repetition in range(2):
    begin_cpu = time.process_time()
    export_commits(
        commits, target,
        records=lambda commit: trees.scan(commit.metarange_id),
        differences=lambda before, after: (
            (each.key, each.after) for each in trees.diff(before.metarange_id, after.metarange_id, exact=True)
        ),
        read=lambda entry, start, end: b"", branches={"main": commits[-1].id}, earlier=earlier, may_exist=False,
    )
    result.append(time.process_time() - begin_cpu)
"""

REUSE = """
shares = []
for number in range(20):
    trees = Graveler(store)
    size = int(n * {share} / 20)
    at = rng.randrange(n - size)
    changes = sorted((name, record(name, b"day%d" % number)) for name in (key(at + step, n) for step in range(size)))
    before = len(trees.ranges(tree))
    built = trees.build(tree, changes)
    shares.append(built.reused / len(trees.ranges(built.tree)))
    tree = built.tree
result = [statistics.mean(shares), min(shares)]
"""

_EXPORTED = 100_000
"""The number of keys of the tree whose history is exported."""


def measure(count: int, large: int) -> None:
    """Print all figures, for trees of `count` keys and, where growth is the question, of `large`."""
    with tempfile.TemporaryDirectory() as folder:
        small = _build(f"{folder}/small", count)
        mean, middle, most = _told(COMMIT, f"{folder}/small", small, count)
        _say(f"one-key commit, {count} keys", f"{mean:.3f} s CPU, median {middle:.3f} s, at most {most:.3f} s")
        reads, spent = _told(DIFF, f"{folder}/small", small, count)
        _say(f"diff of 10 changes, {count} keys", f"{reads / 2:g} ranges read a side, {spent:.3f} s CPU")
        for share in (0.05, 0.1, 0.2):
            body = REUSE.format(share=share)
            mean_share, least = _told(body, f"{folder}/small", small, count)
            _say(
                f"20 commits change {share:.0%} of the keys",
                f"{mean_share:.2%} of the ranges reused, at least {least:.2%}",
            )
        first, later = _told(ONE_BY_ONE, f"{folder}/small", small, count)
        _say("single gets, cold", f"first {first * 1000:.1f} ms CPU, then {later * 1000:.2f} ms each")
        _gets(f"{folder}/small", small, count)
        exported = _build(f"{folder}/exported", _EXPORTED)
        first, again = _told(EXPORT, f"{folder}/exported", exported, _EXPORTED)
        _say(
            f"export of 101 commits, {_EXPORTED} keys",
            f"{first:.1f} s CPU without the copies; {again:.3f} s again",
        )
        if large > count:
            tree = _build(f"{folder}/large", large)
            bigger, middle, most = _told(COMMIT, f"{folder}/large", tree, large)
            _say(f"one-key commit, {large} keys", f"{bigger:.3f} s CPU, median {middle:.3f} s, at most {most:.3f} s")
            _say("its growth", f"{bigger / mean:.2f} x for {large / count:g} x the keys")
            for share in (0.05, 0.1, 0.2):
                mean_share, least = _told(REUSE.format(share=share), f"{folder}/large", tree, large)
                _say(
                    f"20 commits change {share:.0%} of {large} keys",
                    f"{mean_share:.2%} of the ranges reused, at least {least:.2%}",
                )


def _build(folder: str, count: int) -> str:
    Path(folder).mkdir()
    measured = run(Program(SETUP + f"folder, n = {folder!r}, {count}", BUILD))
    tree, cpu, ranges, mean, most = measured.result  # type: ignore[misc]
    rate = f"{count / cpu / 1000:.0f}k keys/s"
    _say(
        f"build of {count} keys",
        f"{cpu:.1f} s CPU ({rate}), {measured.peak:.0f} MB; {ranges} ranges, {mean:.0f} records each, at most {most}",
    )
    return str(tree)


def _program(body: str, folder: str, tree: str, count: int, seed: int = 1) -> Program:
    return Program(SETUP + OPEN.format(folder=folder, tree=tree, count=count, seed=seed), body)


def _told(body: str, folder: str, tree: str, count: int) -> list[float]:
    return run(_program(body, folder, tree, count)).result  # type: ignore[return-value]


def _gets(folder: str, tree: str, count: int) -> None:
    """Two processes at once, each over all keys.

    By CPU time: whatever else runs on the machine takes turns with them.
    """
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda seed: run(_program(GETS, folder, tree, count, seed)), (1, 2)))
    warm = sum(measured.result[0] for measured in both)  # type: ignore[index]
    cold = sum(measured.result[1] for measured in both)  # type: ignore[index]
    peak = statistics.mean(measured.peak for measured in both)
    _say(
        "random gets, 100k a batch, 2 processes",
        f"{warm / 1000:.0f}k a second of both CPUs, {cold / 1000:.0f}k cold, {peak:.0f} MB each",
    )


def _say(name: str, figures: str) -> None:
    print(f"{name:<48} {figures}", flush=True)
