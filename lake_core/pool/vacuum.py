"""Vacuums: objects that no branch of a pool needs any more are deleted from the store."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from lake_core.journal import Journal
from lake_core.pool.commit_store import CommitStore
from lake_core.pool.config_journal import read_state
from lake_core.pool.ksuid import NIL, time_of_ksuid

_KSUID: Final = "[0-9A-Za-z]{27}"
_DATA: Final = re.compile(rf"data/({_KSUID})(?:-seek\.zng|\.zng|\.vng)|index/{_KSUID}/({_KSUID})\.zng")
_COMMIT: Final = re.compile(rf"commits/({_KSUID})(\.snap)?\.zng")
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
    """The objects that the branches of a pool need.

    Attributes:
        objects: The ids of the data objects as of the branches' tips, and of those that commits deleted after a time.
        commits: The ids of the branches' commits.
        snapshots: The ids of commits whose cached snapshots stay.
    """

    objects: frozenset[str]
    commits: frozenset[str]
    snapshots: frozenset[str]


def vacuum(commits: CommitStore, branches: Journal, before: datetime, *, dry_run: bool) -> VacuumResult:
    """Delete the objects that were written before a time and that no branch has needed since.

    Raises:
        DamagedLake: The journal or a commit cannot be read, so it is unknown which objects are needed. Nothing was
            deleted.
    """
    # Listed first, so that no object that is written later is deleted.
    listed = [meta for meta in commits.store.list(f"{commits.folder}/") if meta.last_modified < before]
    needed = _Needed(frozenset(), frozenset(), frozenset())
    tips: list[str] = []
    while (newest := _tips(branches)) != tips:
        tips = newest
        needed = _needed(commits, tips, before)
    dead = [meta for meta in listed if _is_dead(meta.key.removeprefix(f"{commits.folder}/"), needed, before)]
    if not dry_run:
        commits.store.delete([meta.key for meta in dead])
    return VacuumResult(tuple(meta.key for meta in dead), sum(meta.size for meta in dead), dry_run)


def _is_dead(name: str, needed: _Needed, before: datetime) -> bool:
    """Return whether an object of a pool's folder was written before a time and is not needed."""
    if match := _DATA.fullmatch(name):
        id = match[1] or match[2]
        # The id has the time of the writer's clock, and the metadata that of the store's: both must be before.
        return id not in needed.objects and time_of_ksuid(id) < before
    if match := _COMMIT.fullmatch(name):
        id, snapshot = match[1], match[2]
        if snapshot:
            return id not in needed.snapshots
        return id not in needed.commits and time_of_ksuid(id) < before
    return False


def _needed(commits: CommitStore, tips: Sequence[str], before: datetime) -> _Needed:
    """Return the objects that the branches of a pool need. Raises DamagedLake."""
    objects: set[str] = set()
    ids: set[str] = set()
    snapshots: set[str] = set()
    for tip in tips:
        objects.update(commits.objects(tip))
        distance = _SNAPSHOT_DISTANCE
        for change in commits.changes(tip):
            id = change.commit.id
            if change.commit.date >= before:
                objects.update(change.deleted)
            if distance >= _SNAPSHOT_DISTANCE and commits.store.exists(commits.snapshot_key(id)):
                snapshots.add(id)
                distance = 0
            distance += 1
            ids.add(id)
    return _Needed(frozenset(objects), frozenset(ids), frozenset(snapshots))


def _tips(branches: Journal) -> list[str]:
    """Return the tips of the branches. Raises DamagedLake."""
    return sorted({branch.commit for branch in read_state(branches).values()} - {NIL})
