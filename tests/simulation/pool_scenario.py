"""Histories of a pool in a Zed lake: repeated loads, deletions, compactions, branches, reverts, vacuums and readers.

Each commit names the action that made it, so a commit must hold exactly what the actions up to it add up to: nothing
lost, nothing doubled, nothing half.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from lake_core.errors import LakeError, StoreUnavailable
from lake_core.journal.errors import AppendOutcomeUnknown, AppendTimeout
from lake_core.pool import Pool, PoolLake
from lake_core.pool.commit import Commit
from lake_core.pool.errors import (
    BranchExists,
    DamagedLake,
    DeleteConflict,
    NoSuchBranch,
    NoSuchCommit,
    NoSuchObject,
    ObjectsVacuumed,
    WriteConflict,
)
from lake_core.testing.simulation import Process, SimulatedStore, Violation, World
from tests.simulation.pool_actions import (
    Action,
    Change,
    Compact,
    CreateBranch,
    Delete,
    DeleteBranch,
    DeleteObject,
    Load,
    Look,
    Merge,
    Pause,
    Revert,
    SetClock,
    Vacuum,
)
from tests.simulation.pool_model import PoolModel, Row, matching, rows_of, scanned

POOL = "events"
UNKNOWN = (StoreUnavailable, AppendOutcomeUnknown)
REFUSED = (
    AppendTimeout, BranchExists, DamagedLake, DeleteConflict, NoSuchBranch, NoSuchCommit, NoSuchObject, ObjectsVacuumed,
    WriteConflict,
)  # fmt: skip
_DAY = timedelta(days=1)
_CLOCKS_DIFFER = timedelta(minutes=30)
_ENTRIES_BEFORE = 20
"""Entries of the journal before the first process starts, so that cached snapshots are written after a few more."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A commit that its writer was told of."""

    commit: str
    branch: str
    created: int
    """When the branch was created, which tells it from others of its name."""


class PoolScenario:
    """A pool on a simulated store, and a record of what its users were told."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pools: dict[str, Pool] = {}
        self.tries: Counter[str] = Counter()
        """How often each change was tried, by all processes."""
        self.refusals: Counter[str] = Counter()
        """How many of these tries were refused, with nothing committed."""
        self.acknowledged: list[Acknowledged] = []
        self.seen: dict[int, tuple[str, datetime]] = {}
        """By process: the commit that it has seen last, and when."""
        self.vacuumed_before = world.time - 365 * _DAY
        """What was written or deleted later than this is in the retention of all vacuums so far."""
        self.model: PoolModel

    # Acting

    def prepare(self) -> None:
        pool = PoolLake.create(self.world.store, clock=lambda: self.world.time).create_pool(
            POOL, key="k", order="asc", threshold=400
        )
        self.model = PoolModel(pool)
        first = Load(0, "main", (1, 5, 9, 20), has_marker=False)
        self.model.changes[first.id] = first
        pool.load(_records(first), message=first.id)
        for _ in range(_ENTRIES_BEFORE // 2):
            pool.create_branch("dev")
            pool.delete_branch("dev")
        pool.create_branch("dev")
        self.model.learn()

    def died(self, process: Process, action: Action) -> None:
        return

    def act(self, process: Process, action: Action) -> Iterator[Violation]:
        entry = self.model.learn()
        try:
            yield from self._act(process, action, entry)
        except UNKNOWN as error:
            self.world.tell(process, f"    is told: {type(error).__name__}: {error}")
        except REFUSED as error:
            self.world.tell(process, f"    is refused: {type(error).__name__}: {error}")
            self.model.learn()
            if isinstance(action, Change):
                self.refusals[action.id] += 1
            if not self._is_possible(process, action, error, entry):
                yield Violation(f"told {type(error).__name__}", f"{process.name} {action}: {error}")
        except LakeError as error:
            self.world.tell(process, f"    is told: {type(error).__name__}: {error}")
            yield Violation(f"told {type(error).__name__}", f"{process.name} {action}: {error}")
        except Exception as error:
            self.world.tell(process, f"    fails: {type(error).__name__}: {error}")
            yield Violation(f"raw {type(error).__name__}", f"{process.name} {action}: {error!r}")

    def _pool(self, process: Process) -> Pool:
        if process.host not in self.pools:
            store = SimulatedStore(self.world.store, process)
            self.pools[process.host] = PoolLake.open(store, clock=process.clock).pool(POOL)
        return self.pools[process.host]

    def _act(self, process: Process, action: Action, entry: int) -> Iterator[Violation]:
        match action:
            case Pause():
                process.sleep(action.day * 86_400 - self.world.now)
            case SetClock():
                process.skew = timedelta(seconds=action.seconds)
            case CreateBranch():
                at = action.at or self.seen.get(process.index, ("main",))[0]
                self._pool(process).create_branch(action.branch, at=at)
            case DeleteBranch():
                self._pool(process).delete_branch(action.branch)
            case Vacuum():
                pool = self._pool(process)
                retention = action.days * _DAY
                self.vacuumed_before = max(self.vacuumed_before, process.clock() - retention)
                self.world.tell(process, f"    deleted {len(pool.vacuum(retention).keys)} objects")
            case Look():
                yield from self._look(process, action, entry)
            case _:
                yield from self._change(process, action, entry)

    # Changes

    def _change(self, process: Process, change: Change, entry: int) -> Iterator[Violation]:
        pool = self._pool(process)
        self.model.changes[change.id] = change
        self.tries[change.id] += 1
        commit: Commit | None
        match change:
            case Load():
                commit = self._load(process, pool, change)
            case Delete():
                commit = pool.delete(change.where, change.branch, message=change.id)
            case DeleteObject():
                objects = pool.objects(change.branch)
                if not objects:
                    return
                chosen = objects[change.position % len(objects)].id
                commit = pool.delete(branch=change.branch, ids=[chosen], message=change.id, meta=chosen)
            case Compact():
                commit = pool.compact(branch=change.branch, message=change.id)
            case Merge():
                commit = pool.merge(change.child, change.branch, message=change.id)
            case Revert():
                log = list(pool.log(change.branch))
                if not log:
                    return
                reverted = log[change.position % len(log)].id
                self.world.tell(process, f"    which is {reverted}")
                commit = pool.revert(reverted, change.branch, message=change.id, meta=reverted)
        if commit is None:
            self.refusals[change.id] += 1
            self.world.tell(process, "    there was nothing to commit")
            self.model.learn()
            if not self._may_be_nothing(change, entry):
                yield Violation("nothing", f"{process.name} {change}: it was told that there is nothing to commit")
        else:
            yield from self._acknowledge(process, change, commit, entry)

    def _load(self, process: Process, pool: Pool, load: Load) -> Commit | None:
        marker = (load.id, 1) if load.has_marker else None
        for attempt in range(3):
            try:
                return pool.load(_records(load), load.branch, message=load.id, txn=marker)
            except UNKNOWN as error:
                if marker is None or attempt == 2:
                    raise
                self.world.tell(process, f"    is told: {type(error).__name__}: {error}")
                self.tries[load.id] += 1
                process.sleep(1.0)
        raise AssertionError("unreachable")

    def _acknowledge(self, process: Process, change: Change, commit: Commit, entry: int) -> Iterator[Violation]:
        self.model.learn()
        self.world.tell(process, f"    committed as {commit.id}")
        # A repeated load may have been committed by an earlier step.
        for config in self.model.since(entry, change.branch):
            if config is not None and config.commit == commit.id:
                self.acknowledged.append(Acknowledged(commit.id, change.branch, config.ts))
                return
        yield Violation(
            "not there", f"{process.name} {change}: it was told of the commit {commit.id}, which the branch never had"
        )

    def _may_be_nothing(self, change: Change, entry: int) -> bool:
        """Return whether a change has had nothing to commit at any time since an entry of the journal."""
        states = [
            self.model.state(config.commit) for config in self.model.since(entry, change.branch) if config is not None
        ]
        match change:
            case Load():
                return change.has_marker and any(change.id in state.loads for state in states)
            case Delete():
                return any(not matching(state, change) for state in states)
            case Merge():
                children = [
                    self.model.state(config.commit)
                    for config in self.model.since(entry, change.child)
                    if config is not None
                ]
                sides = [(state, child) for state in states for child in children]
                return any(
                    child.has_reverts or state.has_reverts or state.rows_with(child) == state.rows
                    for state, child in sides
                )
            case DeleteObject():
                return False
        return True

    # Reading

    def _look(self, process: Process, look: Look, entry: int) -> Iterator[Violation]:
        pool = self._pool(process)
        match look.point:
            case "tip":
                rows = scanned(pool.scan(look.branch))
                self.model.learn()
                commits = [config.commit for config in self.model.since(entry, look.branch) if config is not None]
            case "commit":
                commits = [pool.tip(look.branch)]
                self.seen[process.index] = commits[0], self.world.time
                rows = scanned(pool.scan(commit=commits[0]))
                self.model.learn()
            case "seen":
                if process.index not in self.seen:
                    return
                commits = [self.seen[process.index][0]]
                rows = scanned(pool.scan(commit=commits[0]))
        if all(rows != Counter(self.model.state(commit).rows) for commit in commits):
            yield Violation("wrong rows", f"{process.name} {look}: {self._difference(rows, commits[-1])}")

    def _difference(self, rows: Counter[Row], commit: str) -> str:
        expected = Counter(self.model.state(commit).rows)
        return f"at {commit} it lacks {sorted(expected - rows)}, and has {sorted((rows - expected).elements())} besides"

    # Judging refusals

    def _is_possible(self, process: Process, action: Action, error: LakeError, entry: int) -> bool:
        """Return whether what an error says has been so at any time since an entry of the journal."""
        match error:
            case WriteConflict() | AppendTimeout():
                return True
            case BranchExists():
                return isinstance(action, CreateBranch) and any(self.model.since(entry, action.branch))
            case NoSuchBranch():
                return any(None in self.model.since(entry, name) for name in _branches(action)) or self._is_old(
                    process, action
                )
            case NoSuchCommit() if isinstance(action, Look):
                return self._is_old(process, action)
            case NoSuchCommit() | NoSuchObject():
                return isinstance(action, Change) and self._has_moved(action.branch, entry)
            case ObjectsVacuumed():
                return isinstance(action, Revert | CreateBranch)
            case DamagedLake():
                return isinstance(action, Look) and self._is_old(process, action)
            case DeleteConflict():
                return self._may_conflict(action, entry)
        return False

    def _is_old(self, process: Process, action: Action) -> bool:
        """Return whether an action concerns a commit that was seen before the retention of vacuums."""
        concerns_seen = (isinstance(action, Look) and action.point == "seen") or (
            isinstance(action, CreateBranch) and action.at is None
        )
        return concerns_seen and self.seen[process.index][1] < self.vacuumed_before + _CLOCKS_DIFFER

    def _has_moved(self, branch: str, entry: int) -> bool:
        return len(set(self.model.since(entry, branch))) > 1

    def _may_conflict(self, action: Action, entry: int) -> bool:
        match action:
            case DeleteObject():
                return self._has_moved(action.branch, entry)
            case Revert():
                return True
            case Merge():
                return all(
                    any(
                        config is not None and self._has_rewritten(config.commit)
                        for config in self.model.since(entry, branch)
                    )
                    for branch in (action.branch, action.child)
                )
        return False

    def _has_rewritten(self, commit: str) -> bool:
        """Return whether one of the commits up to a commit deleted or rewrote data objects."""
        return any(not isinstance(self.model.changes[each.message], Load) for each in self.model.log(commit))

    # Checking

    def check(self) -> Iterator[Violation]:
        try:
            yield from self._check()
        except Exception as error:
            yield Violation(f"afterwards {type(error).__name__}", f"when all is quiet: {error!r}")

    def _check(self) -> Iterator[Violation]:
        self.model.learn()
        pool = PoolLake.open(self.world.store, clock=lambda: self.world.time).pool(POOL)
        branches = {branch.name: branch for branch in pool.list_branches()}
        if branches != self.model.branches:
            yield Violation("branches", f"the branches are {branches}, and not {self.model.branches}")
        yield from self._check_told()
        checked: set[str] = set()
        for branch in branches.values():
            yield from self._check_log(pool, branch.name, checked)
        pool.vacuum(_DAY)
        for branch in branches.values():
            yield from self._check_rows(pool, branch.name, branch.commit)

    def _check_log(self, pool: Pool, branch: str, checked: set[str]) -> Iterator[Violation]:
        """Check each commit of a branch that was not checked before, and whose data objects vacuums must have kept."""
        later: Commit | None = None
        for commit in pool.log(branch):
            is_retained = later is None or later.date > self.vacuumed_before + _CLOCKS_DIFFER
            if is_retained and commit.id not in checked:
                checked.add(commit.id)
                yield from self._check_rows(pool, branch, commit.id)
            later = commit

    def _check_rows(self, pool: Pool, branch: str, commit: str) -> Iterator[Violation]:
        try:
            rows = scanned(pool.scan(commit=commit))
        except DamagedLake as error:
            yield Violation(
                "lost objects", f"when all is quiet, the commit {commit} of {branch} cannot be read: {error}"
            )
            return
        if rows != Counter(self.model.state(commit).rows):
            yield Violation(
                "wrong rows", f"when all is quiet, {branch} has other records: {self._difference(rows, commit)}"
            )

    def _check_told(self) -> Iterator[Violation]:
        """Check what writers were told against the branches."""
        logs = {
            name: [commit.id for commit in self.model.log(branch.commit)]
            for name, branch in self.model.branches.items()
        }
        for each in self.acknowledged:
            branch = self.model.branches.get(each.branch)
            if branch is not None and branch.ts == each.created and each.commit not in logs[each.branch]:
                yield Violation(
                    "lost",
                    f"{self.model.commits[each.commit].message!r} was acknowledged, and {each.branch} does not have it",
                )
        for name, log in logs.items():
            counts = Counter(self.model.commits[commit].message for commit in log)
            for id, count in counts.items():
                change = self.model.changes[id]
                if count > 1 and (self.tries[id] <= 1 or isinstance(change, Load)):
                    yield Violation("twice", f"{change}: {name} has {count} commits of it")
        for id in {commit.message for commit in self.model.commits.values()}:
            if 0 < self.tries[id] == self.refusals[id]:
                yield Violation(
                    "refused, but there",
                    f"{self.model.changes[id]} was refused each time, and a branch has a commit of it",
                )


def _records(load: Load) -> list[dict[str, int]]:
    return [{"k": key, "batch": number, "n": index} for key, number, index in rows_of(load)]


def _branches(action: Action) -> list[str]:
    """Return the names of the branches that an action needs."""
    match action:
        case CreateBranch():
            return [action.at or "main"]
        case Merge():
            return [action.branch, action.child]
        case Load() | Delete() | DeleteObject() | Compact() | Revert() | DeleteBranch() | Look():
            return [action.branch]
    return []
