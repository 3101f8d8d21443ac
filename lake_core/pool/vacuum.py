"""Vacuums: deletions of the objects that no branch of a pool needs any longer."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from lake_core.journal import ZED_NAMING, Delete, Journal
from lake_core.pool.config_journal import read_state
from lake_core.pool.errors import DamagedLake
from lake_core.pool.ksuid import NIL, time_of_ksuid
from lake_core.pool.pins import DELETIONS, PINS, pinned_commits, write_deletion

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from lake_core.clock import AwareClock
    from lake_core.pool.commit_store import CommitStore
    from lake_core.store import ObjectMeta

_KSUID: Final = "[0-9A-Za-z]{27}"
_DATA: Final = re.compile(rf"data/({_KSUID})(?:-seek\.zng|\.zng|\.vng)|index/{_KSUID}/({_KSUID})\.zng")
_COMMIT: Final = re.compile(rf"commits/({_KSUID})(\.snap)?\.zng")
_LEFT_BEHIND: Final = re.compile(rf"(?:{PINS}|{DELETIONS})/{_KSUID}\.zng")
_SNAPSHOT_DISTANCE: Final = 1000
"""The number of commits of a branch between two cached snapshots that stay.

It bounds how many commits are read for an earlier state.
"""


@dataclass(frozen=True, slots=True)
class VacuumResult:
    """The objects that a vacuum deleted, or would delete.

    Attributes:
        keys: The keys of the objects in the store.
        bytes: Their size.
        dry_run: Whether it only listed them.
    """

    keys: tuple[str, ...]
    bytes: int
    dry_run: bool


@dataclass(frozen=True, slots=True)
class _Needed:
    """The objects of a pool that are needed.

    Attributes:
        objects: The ids of the data objects as of the tips, and of those that commits deleted after a time.
        commits: The ids of the commits.
        snapshots: The ids of commits whose cached snapshots stay.
    """

    objects: set[str] = field(default_factory=set)
    commits: set[str] = field(default_factory=set)
    snapshots: set[str] = field(default_factory=set)


class _Tips(NamedTuple):
    """The tips of the branches of a pool.

    Attributes:
        current: Those of its branches.
        earlier: Those of branches that were deleted after a time, and the commits that are pinned.
    """

    current: list[str]
    earlier: list[str]


def vacuum(
    commits: CommitStore, branches: Journal, before: datetime, clock: AwareClock, *, dry_run: bool
) -> VacuumResult:
    """Delete the objects that were written before a time and that no branch has needed since.

    Raises:
        DamagedLake: The journal or a commit cannot be read, so it is unknown which objects are needed. Nothing was
            deleted.
    """
    # Listed first, so that no object that is written later is deleted.
    listed = list(commits.store.list(f"{commits.folder}/"))
    entry = _next_entry(listed, branches, before)
    dead = [meta for meta in listed if meta.last_modified < before]
    dead = _still_dead(dead, commits, branches, before, entry)
    if dead and not dry_run:
        ids = {id for meta in dead if (id := _id_of(meta.key.removeprefix(f"{commits.folder}/"))) is not None}
        deletion = write_deletion(commits, ids, clock)
        # What came into use before the list was written is seen here, and what comes later sees the list.
        dead = _still_dead(dead, commits, branches, before, entry)
        commits.store.delete([meta.key for meta in dead])
        commits.store.delete([deletion])
    return VacuumResult(tuple(meta.key for meta in dead), sum(meta.size for meta in dead), dry_run)


def _next_entry(listed: Iterable[ObjectMeta], branches: Journal, before: datetime) -> int:
    """Return the number of the first entry of a journal that was written since a time, or of the next one."""
    prefix = f"{branches.folder}/"
    entries = [
        (ZED_NAMING.number(meta.key.removeprefix(prefix)), meta.last_modified)
        for meta in listed
        if meta.key.startswith(prefix)
    ]
    return 1 + max((number for number, written in entries if number is not None and written < before), default=0)


def _still_dead(
    listed: Iterable[ObjectMeta], commits: CommitStore, branches: Journal, before: datetime, entry: int
) -> list[ObjectMeta]:
    """Return which of the objects that were written before a time are not needed. Raises DamagedLake."""
    pinned = pinned_commits(commits)
    needed = _Needed()
    tips = None
    while (newest := _tips(branches, entry)) != tips:
        tips = newest
        needed = _needed(commits, newest, pinned, before)
    return [meta for meta in listed if _is_dead(meta.key.removeprefix(f"{commits.folder}/"), needed, before)]


def _is_dead(name: str, needed: _Needed, before: datetime) -> bool:
    """Return whether an object of a pool's folder was written before a time and is not needed."""
    if _LEFT_BEHIND.fullmatch(name):
        return True
    id = _id_of(name)
    if id is None:
        return False
    if name.endswith(".snap.zng"):
        return id not in needed.snapshots
    # The id has the time of the writer's clock, and the metadata that of the store's: both must be before.
    return id not in needed.objects and id not in needed.commits and time_of_ksuid(id) < before


def _id_of(name: str) -> str | None:
    """Return the id of a data object or a commit in the name of an object of a pool; None for any other."""
    if match := _DATA.fullmatch(name):
        return match[1] or match[2]
    match = _COMMIT.fullmatch(name)
    return match[1] if match else None


def _needed(commits: CommitStore, tips: _Tips, pinned: Iterable[str], before: datetime) -> _Needed:
    """Return the objects that branches, those that were deleted lately, and pins need. Raises DamagedLake."""
    needed = _Needed()
    for tip in tips.current:
        _add_needed(needed, commits, tip, before)
    for tip in [*tips.earlier, *pinned]:
        # A vacuum with a shorter retention may have deleted some of it.
        with suppress(DamagedLake):
            _add_needed(needed, commits, tip, before)
    return needed


def _add_needed(needed: _Needed, commits: CommitStore, tip: str, before: datetime) -> None:
    """Add the objects that a branch with a tip needs. Raises DamagedLake."""
    needed.objects.update(commits.objects(tip))
    merged: list[str] = []
    distance = _SNAPSHOT_DISTANCE
    for change in commits.changes(tip):
        id = change.commit.id
        if change.commit.date >= before:
            needed.objects.update(change.deleted)
        if distance >= _SNAPSHOT_DISTANCE and commits.store.exists(commits.snapshot_key(id)):
            needed.snapshots.add(id)
            distance = 0
        distance += 1
        needed.commits.add(id)
        merged.append(change.commit.merged)
    _add_merged(needed, commits, merged)


def _add_merged(needed: _Needed, commits: CommitStore, merged: Iterable[str]) -> None:
    """Add commits that were merged, and those before them: the next merge finds by them what was already merged."""
    pending = list(merged)
    while pending:
        id = pending.pop()
        if id != NIL and id not in needed.commits:
            # Earlier versions did not keep them.
            with suppress(DamagedLake):
                commit = commits.read(id).commit
                needed.commits.add(id)
                pending += [commit.parent, commit.merged]


def _tips(branches: Journal, entry: int) -> _Tips:
    """Return the tips of the branches, and of those that were deleted from an entry on. Raises DamagedLake."""
    state = read_state(branches)
    current = sorted({branch.commit for branch in state.values()} - {NIL})
    entries = list(branches.entries(entry)) if entry <= state.number else []
    if not any(isinstance(action, Delete) for each in entries for action in each.actions):
        return _Tips(current, [])
    tips = {branch.name: branch.commit for branch in branches.state_at(entry - 1).values()}
    earlier: set[str] = set()
    for action in (action for each in entries for action in each.actions):
        if isinstance(action, Delete):
            earlier.add(tips.pop(action.key))
        else:
            tips[action.key] = action.value.commit
    return _Tips(current, sorted(earlier - {NIL, *current}))
