"""Histories of a lake: sessions, merges, reverts, tidying, collection, and a writer that does not know the lake.

Each piece of work leaves a file `works/<id>` beside what it does to tables and files. So a state says itself which
works are in it, and must hold exactly what those works add up to: nothing lost, nothing doubled, nothing half.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Literal

import pyarrow as pa

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.delta.errors import CommitOutcomeUnknown, ConcurrentModification
from lake_core.errors import LakeError, StoreUnavailable
from lake_core.icechunk import Repository
from lake_core.journal.errors import AppendOutcomeUnknown, AppendTimeout
from lake_core.lake.errors import (
    Collected,
    Conflict,
    ContentGone,
    Diverged,
    NothingToApply,
    PublishTimeout,
    RefExists,
    RefNotFound,
    SessionClosed,
    SessionNotFound,
    StaleAttempt,
    StaleEpoch,
)
from lake_core.lake.gc.collect import CollectionRefused
from lake_core.lake.gc.retention import HISTORY
from lake_core.lake.session.private_session import Session
from lake_core.lake.state.state_store import StateStore
from lake_core.lake.state.writable_state import WritableState
from lake_core.store import FolderStore, ObjectStore
from lake_core.testing.simulation import Process, SimulatedStore, Violation, World
from tests.lake.lakes import forget_datasets
from tests.simulation.lake_actions import (
    ARRAY,
    FIRST_ROWS,
    MANAGED,
    NEW_TABLE,
    OPEN_TABLE,
    POOL,
    SCHEMA,
    TABLES,
    Action,
    Branch,
    Foreign,
    Merge,
    Pick,
    Publish,
    PublishHeld,
    Read,
    Revert,
    Share,
    Shared,
    Tag,
    Tidy,
    Wait,
    Work,
)  # fmt: skip
from tests.simulation.lake_array import array_contents, change_array, create_array
from tests.simulation.lake_pool import change_pool, create_pool, pool_contents

UNKNOWN = (StoreUnavailable, AppendOutcomeUnknown, CommitOutcomeUnknown)
REFUSED = (
    AppendTimeout, Collected, ConcurrentModification, Conflict, NothingToApply, PublishTimeout, RefExists, RefNotFound,
    SessionClosed, SessionNotFound, StaleAttempt, StaleEpoch,
)  # fmt: skip


_MOST_SKEW = timedelta(hours=1)
"""By how much the clock of a writer, which dates its commits, may differ from that of the collection."""
_MARKERS_COUNT = 29 * 86_400.0
"""For how many seconds a work is tried again. Pools forget the markers of its writes after 30 days."""


@dataclass(slots=True)
class Fate:
    """What became of a work, as far as its writer was told."""

    work: Work
    branch: str
    state: Literal["published", "unknown"] = "unknown"
    began: float = 0.0
    """When it was tried first, in seconds of the simulation."""
    tries: int = 0
    """How often it was tried, by all processes."""
    refusals: int = 0
    """How many of these tries were refused, with nothing published."""
    commits: set[str] = field(default_factory=set)
    shared: Share | None = None
    session_opened_at: int = 0
    """The entry of the refs that the shared session was opened after."""


class LakeScenario:
    """A lake on a simulated store, and a record of what its users were told."""

    def __init__(self, world: World) -> None:
        self.world = world
        forget_datasets()  # what an earlier run has cached would be read less often in this one
        self.fates: dict[str, Fate] = {}
        self.foreign: dict[int, str] = {}
        self.foreign_rows: dict[int, list[int]] = {}
        self.published_sessions: dict[tuple[str, int], str] = {}
        """The commits of shared sessions, by id and by the entry that they were opened after.

        Weeks later an id may be used again.
        """
        self.reverted: set[str] = set()
        """Commits that a revert took back, or may have taken back."""
        self.reverted_works: set[str] = set()
        """The works of these commits. A writer that began before the revert must not bring them back."""
        self.brought: dict[str, set[str]] = {}
        """By branch: the works that a merge or a pick that was acknowledged brought to it."""
        self.observed: list[tuple[str, int, Counter[tuple[int, int]]]] = []
        self.held: dict[int, tuple[Publish, Session]] = {}
        self.lakes: dict[str, Lake] = {}

    # Acting

    def prepare(self) -> None:
        lake = Lake.create(self.world.store, clock=lambda: self.world.time)
        first = pa.table({"id": list(range(FIRST_ROWS)), "v": [0] * FIRST_ROWS}, schema=SCHEMA)
        with lake.session(message="begin") as session:
            for path in MANAGED:
                session.create_delta(path, SCHEMA).append(first)
            session.create_delta(OPEN_TABLE, SCHEMA, managed=False).append(first)
            create_array(session, spec_version=1 + self.world.seed % 2)
            create_pool(session)

    def lake(self, process: Process) -> Lake:
        """Return the lake that a process has open."""
        if process.host not in self.lakes:
            lake = Lake.open(SimulatedStore(self.world.store, process), clock=process.clock)
            # The age of objects follows the store's clock, as in production.
            self.lakes[process.host] = Lake(replace(lake.repository, given_clock=False))
        return self.lakes[process.host]

    def died(self, process: Process, action: Action) -> None:
        self.held.pop(process.index, None)

    def act(self, process: Process, action: Action) -> Iterator[Violation]:
        try:
            yield from self._act(process, action)
        except UNKNOWN as error:
            self.world.tell(process, f"    is told: {type(error).__name__}: {error}")
        except REFUSED as error:
            self.world.tell(process, f"    is refused: {type(error).__name__}: {error}")
            if isinstance(error, Conflict) and isinstance(action, Publish) and self._cannot_conflict(action.work):
                yield Violation("false conflict", f"{action}, which contradicts nothing: {error}")
        except LakeError as error:
            self.world.tell(process, f"    is told: {type(error).__name__}: {error}")
            if not self._may_be_told(error):
                yield Violation(f"told {type(error).__name__}", f"{process.name} {action}: {error}")
        except Exception as error:
            self.world.tell(process, f"    fails: {type(error).__name__}: {error}")
            yield Violation(f"raw {type(error).__name__}", f"{process.name} {action}: {error!r}")

    def _cannot_conflict(self, work: Work) -> bool:
        return work.id not in self.reverted_works and all(
            change.kind == "add" and change.target in MANAGED for change in work.changes
        )

    def _may_be_told(self, error: LakeError) -> bool:
        if isinstance(error, CollectionRefused):
            return isinstance(error.__cause__, UNKNOWN)
        if isinstance(error, ContentGone):
            return self._may_be_gone(error.commit)
        # Only this table can diverge, because other clients may write to it.
        return isinstance(error, Diverged) and error.path == OPEN_TABLE

    def _may_be_gone(self, commit: str) -> bool:
        """Return whether collection may have taken a commit: one past the retention that no branch or tag names."""
        refs = Lake.open(self.world.store, clock=lambda: self.world.time).repository.refs()
        link = refs.link(commit)
        return (
            link is not None
            and self.world.time - link.date > HISTORY - _MOST_SKEW
            and commit not in {*refs.branches().values(), *refs.tags().values()}
        )

    def _act(self, process: Process, action: Action) -> Iterator[Violation]:
        lake = self.lake(process)
        match action:
            case Publish():
                self._publish(process, lake, action)
            case PublishHeld():
                if process.index in self.held:
                    held, session = self.held.pop(process.index)
                    self._settle(process, held, session)
            case Share():
                self._share(lake, action)
            case Shared():
                self._shared(lake, action)
            case Branch():
                lake.create_branch(action.name)
            case Tag():
                lake.create_tag(action.name)
            case Merge():
                self._merge(lake, action)
            case Pick():
                self._pick(lake, action)
            case Revert():
                self._revert(lake, action)
            case Tidy():
                self._tidy(lake, action)
            case Foreign():
                self._append_past_the_lake(process, action)
            case Read():
                yield from self._read(process, lake, action)
            case Wait():
                process.sleep(action.day * 86_400 - self.world.now)

    def _publish(self, process: Process, lake: Lake, action: Publish) -> None:
        fate = self.fates.setdefault(action.work.id, Fate(action.work, action.branch, began=self.world.now))
        if fate.state == "published" or self.world.now - fate.began > _MARKERS_COUNT:
            return
        fate.tries += 1
        session = lake.session(action.branch, metadata={"work": action.work.id})
        do(session, action.work)
        if action.hold:
            self.held[process.index] = (action, session)
        else:
            self._settle(process, action, session)

    def _settle(self, process: Process, action: Publish, session: Session) -> None:
        fate = self.fates[action.work.id]
        tries = 0
        while True:
            try:
                published = session.publish()
            except UNKNOWN as error:
                tries += 1
                self.world.tell(process, f"    is told: {type(error).__name__}: {error}")
                if tries > 2:
                    raise
                process.sleep(1.0)
                continue
            except REFUSED:
                fate.refusals += not tries  # an attempt before this one may have landed
                raise
            break
        fate.state = "published"
        fate.commits.add(published.commit)
        self.world.tell(process, f"    published as {published.commit[:8]} {dict(published.versions)}")

    def _share(self, lake: Lake, action: Share) -> None:
        opened = lake.open_session(id=action.session, resume=False)
        fate = self.fates.setdefault(action.work.id, Fate(action.work, "main", shared=action))
        fate.session_opened_at = opened.record.opened_at
        with opened.join(task=action.output, attempt=action.attempt) as part:
            do(part, action.work)
        fate.state = "published"  # into its session

    def _shared(self, lake: Lake, action: Shared) -> None:
        record = next(
            (record for record in lake.list_sessions(include_ended=True) if record.id == action.session), None
        )
        if record is None:
            return
        match action.verb:
            case "publish":
                published = lake.get_session(action.session).publish()
                earlier = self.published_sessions.setdefault((action.session, record.opened_at), published.commit)
                if earlier != published.commit:
                    raise AssertionError(
                        f"session {action.session} was published as {earlier[:8]} and {published.commit[:8]}"
                    )
            case "resume":
                lake.open_session(id=action.session)
            case "abandon":
                lake.get_session(action.session).abandon()
            case "fail":
                lake.get_session(action.session).fail("a step failed")
            case "fork":
                lake.get_session(action.session).fork()

    def _merge(self, lake: Lake, action: Merge) -> None:
        before = works_of(lake.at(action.name))
        lake.merge(action.name, into=action.into, squash=action.squash)
        self.brought.setdefault(action.into, set()).update(before)

    def _pick(self, lake: Lake, action: Pick) -> None:
        commit = next(iter(lake.log(action.name, limit=1)))
        lake.cherry_pick(commit.id, onto=action.onto)
        if "work" in commit.metadata:
            self.brought.setdefault(action.onto, set()).add(commit.metadata["work"])

    def _revert(self, lake: Lake, action: Revert) -> None:
        log = lake.log(action.branch, first_parent=True, limit=30)
        commits = [commit for commit in log if "work" in commit.metadata]
        if len(commits) > action.back:
            commit = commits[action.back]
            self.reverted.add(commit.id)
            self.reverted_works.add(commit.metadata["work"])
            lake.revert(commit.id, branch=action.branch)

    def _tidy(self, lake: Lake, action: Tidy) -> None:
        match action.task:
            case "optimize" | "vacuum":
                with lake.session() as session:
                    table = session.delta(action.table)
                    if action.task == "optimize":
                        table.optimize()
                    else:
                        table.vacuum()
            case "checkpoint":
                lake.maintenance.checkpoint(action.table)
            case "checkout":
                lake.maintenance.checkout()
            case "gc":
                lake.maintenance.gc()
            case "adopt":
                lake.maintenance.adopt(OPEN_TABLE)

    def _append_past_the_lake(self, process: Process, action: Foreign) -> None:
        rows = [900_000 + 100 * action.number + row for row in range(action.rows)]
        self.foreign_rows[action.number] = rows
        self.foreign[action.number] = "unknown"
        table = DeltaTable.open(FolderStore(SimulatedStore(self.world.store, process), OPEN_TABLE), clock=process.clock)
        table.append(rows_of(rows))
        self.foreign[action.number] = "published"

    def _read(self, process: Process, lake: Lake, action: Read) -> Iterator[Violation]:
        if action.source in TABLES:
            table = DeltaTable.open(
                FolderStore(SimulatedStore(self.world.store, process), action.source), clock=process.clock
            )
            self.observed.append((action.source, table.version, contents(table)))
            return
        yield from self._check_state(lake.at(action.source), f"{process.name} reads {action.source}")

    # Checking

    def check(self) -> Iterator[Violation]:
        lake = Lake.open(self.world.store, clock=lambda: self.world.time)
        try:
            yield from self._check(lake)
        except Exception as error:
            yield Violation(f"afterwards {type(error).__name__}", f"when all is quiet: {error!r}")

    def _check(self, lake: Lake) -> Iterator[Violation]:
        if not self.foreign:
            lake.maintenance.checkout()
        with suppress(NothingToApply):
            lake.maintenance.adopt(OPEN_TABLE)
        lake.maintenance.checkout()
        yield from self._check_main(lake)
        for problem in lake.maintenance.verify():
            yield Violation("verify", str(problem))
        if lake.status().pending_checkout:
            yield Violation("not checked out", f"after checkout: {lake.status().pending_checkout}")
        for path in TABLES:
            if contents(plain(self.world.store, path)) != contents(lake.delta(path)):
                yield Violation("checked out", f"{path} in its folder is not what main holds")
        if array_contents(Repository.open(FolderStore(self.world.store, ARRAY))) != array_contents(
            lake.icechunk(ARRAY)
        ):
            yield Violation("checked out", f"{ARRAY} in its folder is not what main holds")
        yield from self._check_observed(lake)

    def _check_main(self, lake: Lake) -> Iterator[Violation]:
        heads = lake.list_branches()
        for name in heads:
            yield from self._check_state(lake.at(name), f"branch {name}, when all is quiet,")
        log = lake.log()
        present = works_of(lake.at("main"))
        commits = {commit.id: commit for commit in log}
        is_cut = all(commit.parents for commit in log)
        taken_back = {commit.metadata["revert"] for commit in log if "revert" in commit.metadata}
        for id in taken_back - self.reverted:
            yield Violation("reverted", f"nobody reverted {id[:8]}")
        counted = Counter(
            commit.metadata["work"] for commit in log if "work" in commit.metadata and commit.id not in taken_back
        )
        for id, fate in self.fates.items():
            if fate.shared is not None:
                yield from self._check_share(fate, present, lake)
            elif fate.branch == "main":
                undone = any(commit in taken_back for commit in fate.commits) or any(
                    commits[commit].metadata.get("work") == id for commit in taken_back if commit in commits
                )
                undone = undone or (is_cut and id in self.reverted_works)
                if fate.state == "published" and id not in present and not undone:
                    yield Violation("lost", f"{fate.work} was acknowledged, and is not in main")
                if fate.tries == fate.refusals and id in present:
                    yield Violation("refused, but there", f"{fate.work} was refused each time, and is in main")
            elif fate.state == "published" and fate.branch in heads and id not in works_of(lake.at(fate.branch)):
                if id in self.reverted_works:
                    continue
                yield Violation("lost", f"{fate.work} was acknowledged, and is not in {fate.branch}")
            if counted[id] > 1 and any(change.kind != "list" for change in fate.work.changes):
                yield Violation("twice", f"{fate.work} has {counted[id]} commits in main")
        for branch, works in self.brought.items():
            there = works_of(lake.at(branch)) if branch in heads else works
            for id in works - there - self.reverted_works:
                yield Violation("lost", f"{id} was brought to {branch}, and is not there")
        for number, state in self.foreign.items():
            rows = set(self.foreign_rows[number])
            visible = {row for row, _ in contents(lake.delta(OPEN_TABLE))} & rows
            if visible and visible != rows:
                yield Violation("half", f"f{number} is half there: {sorted(visible)}")
            if state == "published" and not visible:
                yield Violation("lost", f"f{number} was acknowledged to another client, and is gone")

    def _check_share(self, fate: Fate, present: set[str], lake: Lake) -> Iterator[Violation]:
        share = fate.shared
        assert share is not None
        commit = self.published_sessions.get((share.session, fate.session_opened_at))
        rivals = [
            other for other in self.fates.values()
            if other.shared is not None and other.session_opened_at == fate.session_opened_at
            and (other.shared.session, other.shared.output) == (share.session, share.output)
        ]  # fmt: skip
        winners = [other for other in rivals if other.work.id in present]
        if len(winners) > 1:
            yield Violation("twice", f"several attempts at {share.output} of {share.session} are in main")
        later = any(other.shared is not None and other.shared.attempt > share.attempt for other in rivals)
        if commit is not None and fate.state == "published" and not later and fate.work.id not in present:
            yield Violation(
                "lost", f"{fate.work} was flushed into {share.session}, which was published, and is not in main"
            )

    def _check_state(self, state: StateStore, name: str) -> Iterator[Violation]:
        included = works_of(state)
        works = [self.fates[id].work for id in included]
        for path in (*TABLES, NEW_TABLE, ARRAY, POOL):
            expected = self._expected(works, path)
            actual = contents_at(state, path)
            if path == OPEN_TABLE:
                foreign = {row for rows in self.foreign_rows.values() for row in rows}
                doubled = [row for (row, _), count in actual.items() if row in foreign and count > 1]
                if doubled:
                    yield Violation("doubled", f"{name} has rows of another client twice in {path}: {doubled}")
                actual = Counter({pair: count for pair, count in actual.items() if pair[0] not in foreign})
            if actual != expected:
                lacking, extra = dict(expected - actual), dict(actual - expected)
                yield Violation(
                    "wrong rows", f"{name} with {sorted(included)} lacks {lacking} of {path}, and has {extra} besides"
                )
        for path in ("list/x", "list/y"):
            lines = state.get(path).decode().split() if state.exists(path) else []
            expected_lines = [work.id for work in works if any(change.target == path for change in work.changes)]
            if sorted(lines) != sorted(expected_lines):
                yield Violation("wrong file", f"{name} has {lines} in {path}, which should be {expected_lines}")

    @staticmethod
    def _expected(works: Sequence[Work], path: str) -> Counter[tuple[int, int]]:
        values = dict.fromkeys(range(FIRST_ROWS) if path in (*TABLES, ARRAY, POOL) else (), 0)
        gone = set()
        for work in works:
            for index, change in enumerate(work.changes):
                if change.target == path:
                    match change.kind:
                        case "add":
                            values |= dict.fromkeys(work.rows(index), 0)
                        case "count":
                            values[change.number] += 1
                        case "delete":
                            gone.add(change.number)
        return Counter((id, v) for id, v in values.items() if id not in gone)

    def _check_observed(self, lake: Lake) -> Iterator[Violation]:
        """Check that what plain readers saw is a version of main."""
        for path, version, observed_rows in self.observed:
            try:
                rows = contents(lake.delta(path, version=version))
            except LakeError:
                continue  # past the retention of the log, or of the table where a vacuum ended it
            if path in MANAGED and rows != observed_rows:
                yield Violation(
                    "seen by plain readers",
                    f"a plain reader saw version {version} of {path} with other rows than main has there",
                )


def do(session: WritableState, work: Work) -> None:
    """Carry out a work in a session, each write with its own marker. That of arrays is the file of the whole work."""
    is_recorded = session.exists(f"works/{work.id}")
    for index, change in enumerate(work.changes):
        if change.target == ARRAY:
            if not is_recorded:
                change_array(session, change, work.rows(index))
            continue
        marker = (f"{work.id}-{index}", 1)
        if change.target == POOL:
            change_pool(session, change, work.rows(index), marker)
            continue
        match change.kind:
            case "add":
                if change.target == NEW_TABLE:
                    session.create_delta(NEW_TABLE, SCHEMA, exist_ok=True)
                session.delta(change.target).append(rows_of(work.rows(index)), txn=marker)
            case "count":
                session.delta(change.target).update({"v": "v + 1"}, f"id = {change.number}", txn=marker)
            case "delete":
                session.delta(change.target).delete(f"id = {change.number}", txn=marker)
            case "list":
                lines = session.get(change.target).decode().split() if session.exists(change.target) else []
                if work.id not in lines:
                    session.put(change.target, "\n".join([*lines, work.id]).encode())
    session.put(f"works/{work.id}", b"done")


def rows_of(ids: Sequence[int]) -> pa.Table:
    """Return rows of these ids, with a count of zero."""
    return pa.table({"id": list(ids), "v": [0] * len(ids)}, schema=SCHEMA)


def works_of(state: ObjectStore) -> set[str]:
    """Return the works that a state names."""
    return {meta.key.removeprefix("works/") for meta in state.list("works/")}


def contents_at(state: StateStore, path: str) -> Counter[tuple[int, int]]:
    """Return the rows of the table or the cells of the array at a path. There are none where the path holds nothing."""
    if path not in state.datasets():
        return Counter()
    if path == POOL:
        return pool_contents(state)
    return array_contents(state.icechunk(path)) if path == ARRAY else contents(state.delta(path))


def contents(table: DeltaTable) -> Counter[tuple[int, int]]:
    """Return the rows of a table and how often each occurs."""
    rows = table.to_arrow()
    return Counter(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))


def plain(root: ObjectStore, path: str) -> DeltaTable:
    """Open a table as a reader without knowledge of the lake does."""
    return DeltaTable.open(FolderStore(root, path))
