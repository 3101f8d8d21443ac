"""What the commits of a pool must hold, as sets of records.

A commit names the action that made it. So its records follow from those of the commit before it, whatever data objects
there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from lake_core.journal import Delete as DeleteEntry
from lake_core.pool import Pool
from lake_core.pool.commit import Commit
from lake_core.pool.config import BranchConfig
from lake_core.pool.config_journal import open_journal
from lake_core.pool.key_range import KeyRange
from lake_core.pool.ksuid import NIL
from lake_core.pool.scan import Scan
from tests.simulation.pool_actions import Change, Compact, Delete, DeleteObject, Load, Merge, Revert

Row: TypeAlias = tuple[int, int, int]
"""The key of a record, the number of its load, and its position there. No two records are equal."""
Branches: TypeAlias = dict[str, BranchConfig]


@dataclass(frozen=True, slots=True)
class State:
    """The records as of a commit.

    Attributes:
        rows: The records.
        known: Those of this commit and of all commits before it.
        loads: The ids of the loads that are among these commits.
        has_reverts: Whether reverts are among these commits.
    """

    rows: frozenset[Row] = frozenset()
    known: frozenset[Row] = frozenset()
    loads: frozenset[str] = frozenset()
    has_reverts: bool = False

    def after(self, rows: Iterable[Row], loads: Iterable[str] = (), *, has_reverts: bool = False) -> State:
        """Return the state with these records after this one."""
        now = frozenset(rows)
        return State(now, self.known | now, self.loads | frozenset(loads), self.has_reverts or has_reverts)

    def merged(self, child: State, rows: Iterable[Row]) -> State:
        """Return the state with these records after a merge of a branch."""
        return State(
            frozenset(rows), self.known | child.known, self.loads | child.loads, self.has_reverts or child.has_reverts
        )

    def rows_with(self, child: State) -> frozenset[Row]:
        """Return the records after a merge of a branch: a record stays unless one side has deleted it."""
        return (self.rows & child.rows) | (self.rows - child.known) | (child.rows - self.known)


def rows_of(load: Load) -> list[Row]:
    """Return the records of a load."""
    return [(key, load.number, position) for position, key in enumerate(load.keys)]


def scanned(scan: Scan) -> Counter[Row]:
    """Return the records of a scan, and how often each is there."""
    return Counter((record["k"], record["batch"], record["n"]) for record in scan.records())


class PoolModel:
    """The commits and branches of a pool as they come to be, and what each must hold."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.changes: dict[str, Change] = {}
        """By id: what processes do, before they do it."""
        self.commits: dict[str, Commit] = {}
        self.states: dict[str, State] = {NIL: State()}
        self.history: list[Branches] = [{}]
        """The branches after each entry of the journal."""
        self._journal = open_journal(pool.store, f"{pool.config.id}/branches", lambda: pool._clock())

    def learn(self) -> int:
        """Read what is new in the journal of branches. Return how many entries there are."""
        for entry in self._journal.entries(len(self.history)):
            branches = dict(self.history[-1])
            for action in entry.actions:
                if isinstance(action, DeleteEntry):
                    del branches[action.key]
                else:
                    branches[action.key] = action.value
                    self.state(action.value.commit)
            self.history.append(branches)
        return len(self.history) - 1

    @property
    def branches(self) -> Branches:
        """The branches after the last entry that was read."""
        return self.history[-1]

    def since(self, entry: int, branch: str) -> list[BranchConfig | None]:
        """Return what a branch was from the state after an entry on."""
        return [branches.get(branch) for branches in self.history[entry:]]

    def state(self, commit: str) -> State:
        """Return what a commit must hold."""
        if commit not in self.states:
            new = []
            for each in self.pool.log(commit=commit):
                if each.id in self.states:
                    break
                new.append(each)
            for each in reversed(new):
                self.commits[each.id] = each
                self.states[each.id] = self._after(self.states[each.parent], each)
        return self.states[commit]

    def log(self, commit: str) -> list[Commit]:
        """Return a commit and those before it, the newest first."""
        commits = []
        while commit != NIL:
            commits.append(self.commits[commit])
            commit = commits[-1].parent
        return commits

    def _after(self, before: State, commit: Commit) -> State:
        match self.changes[commit.message]:
            case Load() as load:
                return before.after([*before.rows, *rows_of(load)], [load.id])
            case Delete() as delete:
                return before.after(before.rows - matching(before, delete))
            case DeleteObject():
                objects = [each for each in self.pool.objects(commit=commit.parent) if each.id == commit.meta.decode()]
                deleted = scanned(Scan(self.pool.store, self.pool.config, objects, KeyRange()))
                return before.after(before.rows - frozenset(deleted))
            case Compact():
                return before
            case Merge():
                return self._merged(before, self.state(commit.merged), commit.id)
            case Revert():
                return self._reverted(before, commit)

    def _merged(self, before: State, child: State, commit: str) -> State:
        rows = before.rows_with(child)
        if before.has_reverts or child.has_reverts:
            # A record that came back may have been deleted before the branches parted or after, so the merge decides.
            rows |= (before.rows | child.rows) & frozenset(scanned(self.pool.scan(commit=commit)))
        return before.merged(child, rows)

    def _reverted(self, before: State, commit: Commit) -> State:
        reverted = self.commits[commit.meta.decode()]
        now, earlier = self.states[reverted.id].rows, self.states[reverted.parent].rows
        returned = earlier - now
        for later in self.log(commit.parent):
            if later.id == reverted.id:
                break
            # What came back since, and may be deleted again, is not brought back once more.
            returned -= self.states[later.id].rows - self.states[later.parent].rows
        return before.after(before.rows - (now - earlier) | returned, has_reverts=True)


def matching(state: State, delete: Delete) -> frozenset[Row]:
    """Return the records that a deletion deletes."""
    column = {"k": 0, "batch": 1}[delete.field]
    return frozenset(row for row in state.rows if delete.start <= row[column] < delete.stop)
