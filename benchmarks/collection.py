"""What collection and verification cost in a lake of 100,000 commits and 100 tables, when few commits are new.

Each commit adds a version to one table. Only the trees of the newest 1 % of the commits are real, because those of all
would take days to write, and 100 GB. The others have empty files for trees, ranges and data, and what an earlier run
would have remembered of them. All logs are real.
"""

from __future__ import annotations

import json
import shutil
import statistics
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.measure import Program, Run, run
from lake_core import Lake
from lake_core.delta.file_name import new_name
from lake_core.graveler import Commit, Entry
from lake_core.journal import Action, Add, Update
from lake_core.lake.gc.remainder import Remainder
from lake_core.lake.gc.remainder_memo import FOLDER, Pair, RemainderMemo
from lake_core.lake.gc.verified import RECORD, VerifiedObjects
from lake_core.lake.refs.commit_record import commit_value
from lake_core.lake.refs.history import log
from lake_core.lake.repository import REFS, TREES
from lake_core.lake.state.content import address_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.graveler import Record
    from lake_core.journal import State

_TABLES = 100
_COMMITS_PER_ENTRY = 500
"""The synthetic commits that one entry of the refs journal adds."""
_CREATED, _OLDEST, _SYNTHETIC_UNTIL, _BASE = (timedelta(days=days) for days in (21, 20, 9, 8))
"""The ages of the tables, of the first synthetic commit, of the last one, and of the commit before the new ones."""
_WRITTEN_AFTER = timedelta(hours=23)
"""How long after a synthetic commit its log entry claims to be written.

A run opens the tree that was committed after the version that readers a week ago may have open. So this is a real one.
"""
_SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
_ROWS = pa.table({"id": [1], "v": [1]}, schema=_SCHEMA)
_REMEMBERED = "remembered"
"""The folder beside the lake with a copy of what the run before the new commits remembered."""

_SETUP = """
import lake_core.cli.main
from lake_core import Lake
"""
_COLLECT = "result = len(Lake.open({lake!r}).maintenance.gc(dry_run=True).keys)"
_VERIFY = "result = [str(problem) for problem in Lake.open({lake!r}).maintenance.verify()][:3]"


def measure(folder: str, rounds: int, commits: int = 100_000) -> None:
    """Print the CPU time and the peaks of runs in processes of their own, by what is new since the run before.

    The lake stays in the folder. If it has one, that one is measured again.
    """
    lake = Path(folder) / "lake"
    if not (Path(folder) / _REMEMBERED).exists():
        write_lake(lake, commits)
    for name, body in (("gc", _COLLECT), ("verify", _VERIFY)):
        program = Program(_SETUP, body.format(lake=str(lake)))
        few: list[Run] = []
        none: list[Run] = []
        for _ in range(rounds):
            _forget_new(lake)
            few.append(run(program))
            none.append(run(program))
        for new, runs in (("1 % new", few), ("nothing new", none)):
            cpu, peak = (statistics.median(values) for values in zip(*((r.cpu, r.peak) for r in runs), strict=True))
            print(f"{name:7} {commits} commits, {new:12} {cpu:7.1f} s  {peak:7.1f} MB  {runs[0].result}", flush=True)


def _forget_new(lake: Path) -> None:
    """Restore what the run before the new commits remembered."""
    shutil.rmtree(lake / FOLDER, ignore_errors=True)
    shutil.copytree(lake.parent / _REMEMBERED / "marks", lake / FOLDER)
    shutil.copy(lake.parent / _REMEMBERED / "verified", lake / RECORD)


def write_lake(folder: Path, commits: int) -> None:
    """Write a lake with this number of commits, 1 % of them after the last run of maintenance."""
    now = datetime.now(UTC)
    # The times of the tables' first log entries are those of all others at least.
    lake = Lake.create(str(folder), clock=lambda: now - _CREATED)
    paths = [f"t/{number}" for number in range(_TABLES)]
    with lake.session() as session:
        for path in paths:
            session.create_delta(path, _SCHEMA)
    lake = Lake.open(str(folder))
    new = commits // 100
    trees = _write_history(lake, folder, paths, commits - new, now)
    for path in paths:
        lake.maintenance.checkpoint(path)
    _remember(lake, trees)
    for number in range(new):
        with lake.session() as session:
            session.delta(paths[number % _TABLES]).append(_ROWS)


def _write_history(lake: Lake, folder: Path, paths: Sequence[str], count: int, now: datetime) -> list[str]:
    """Commit versions of the tables, and return the trees of all commits, of which the last one is real."""
    repository = lake.repository
    refs = repository.refs()
    head = refs.commit(refs.branch("main"))
    records: list[tuple[bytes, Record | None]] = []
    earlier = [*log(refs, head)][::-1]
    commits: list[Commit] = []
    step = (_OLDEST - _SYNTHETIC_UNTIL) / count
    (folder / TREES).mkdir(exist_ok=True)
    for number in range(count):
        path, version = paths[number % len(paths)], 1 + number // len(paths)
        date = now - _OLDEST + number * step
        tree = _name("tree", number)
        for id in (tree, _name("range", number)):
            (folder / TREES / id).touch()
        records.append(_write_version(folder, path, version, date + _WRITTEN_AFTER))
        if number == count - 1:
            date = now - _BASE
            tree = repository.graveler.build(earlier[-1].metarange_id, sorted(records, key=_key)).tree
        update = {path: {"format": "delta", "version": version, "operation": "WRITE", "summary": {"numFiles": 1}}}
        metadata = {"session": f"s-{_name('session', number)[:32]}", "at": date.isoformat()}
        metadata["datasets"] = json.dumps(update, separators=(",", ":"))
        head = Commit.create("ada", "", date, tree, metadata=metadata, parents=(head,))
        commits.append(head)
    for start in range(0, count, _COMMITS_PER_ENTRY):
        repository.journal.append(partial(_commit, commits[start : start + _COMMITS_PER_ENTRY]))
    return [commit.metarange_id for commit in (*earlier, *commits)]


def _commit(commits: Sequence[Commit], state: State) -> list[Action]:
    head = {"commit": commits[-1].id}
    adds = [Add(f"commit/{commit.id}", commit_value(commit)) for commit in commits]
    return [*adds, Update("branch/main", head), Update("place/main", head)]


def _write_version(folder: Path, path: str, version: int, date: datetime) -> tuple[bytes, Record | None]:
    """Write an empty data file and the log entry that adds it, and return the record of this log entry in a tree."""
    milliseconds = int(date.timestamp() * 1000)
    name = new_name(milliseconds)
    commit_info = {
        "timestamp": milliseconds,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": "[]"},
        "readVersion": version - 1,
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
        "operationMetrics": {"numFiles": "1", "numOutputRows": "1", "numOutputBytes": "813"},
        "engineInfo": "lake-orch",
        "txnId": name[11:47],
    }
    bounds = {"id": 1, "v": 1}
    stats = {"numRecords": 1, "minValues": bounds, "maxValues": bounds, "nullCount": {"id": 0, "v": 0}}
    add = {"path": name, "partitionValues": {}, "size": 813, "modificationTime": milliseconds, "dataChange": True}
    actions = [{"commitInfo": commit_info}, {"add": {**add, "stats": json.dumps(stats)}}]
    data = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions).encode()
    digest = sha256(data).hexdigest()
    content = folder / address_of(digest)
    content.parent.mkdir(parents=True, exist_ok=True)
    content.write_bytes(data)
    key = f"{path}/_delta_log/{version:020d}.json"
    (folder / key).hardlink_to(content)
    (folder / path / name).touch()
    entry = Entry(address_of(digest), len(data), digest, milliseconds * 10**6)
    return key.encode(), entry.record(key.encode())


def _remember(lake: Lake, trees: Sequence[str]) -> None:
    """Write what a run would have remembered when the last of these trees was the newest one, and keep a copy of it."""
    root = lake.repository.root
    folder = Path(root.url().removeprefix("file://"))
    pairs: list[Pair] = [(*pair, True) for pair in pairwise(trees)]
    ranges = {_name("tree", number): _name("range", number) for number in range(len(trees))}

    def compute(missing: Sequence[Pair]) -> Iterator[Remainder]:
        for tree, _, _ in missing:
            names = lake.repository.graveler.names(tree) if tree not in ranges else (tree, ranges[tree])
            yield Remainder(sorted(f"{TREES}/{name}" for name in names))

    for _ in RemainderMemo(root).remainders(pairs, compute):
        pass
    verified = VerifiedObjects()
    for meta in root.list():
        if not meta.key.startswith(REFS):
            verified.add(meta)
    verified.write(root)
    remembered = folder.parent / _REMEMBERED
    shutil.copytree(folder / FOLDER, remembered / "marks")
    shutil.copy(folder / RECORD, remembered / "verified")


def _name(kind: str, number: int) -> str:
    return sha256(f"{kind} {number}".encode()).hexdigest()


def _key(pair: tuple[bytes, Record | None]) -> bytes:
    return pair[0]
