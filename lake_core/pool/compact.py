"""Compactions: one commit replaces small or overlapping data objects by large ones whose keys do not overlap."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import TYPE_CHECKING

from lake_core.pool.action import Action, AddObject, DeleteObject
from lake_core.pool.errors import DeleteConflict, InvalidValue, NoSuchObject
from lake_core.pool.ksuid import time_of_ksuid
from lake_core.pool.merge import merge_objects
from lake_core.pool.object_writer import write_objects
from lake_core.pool.order import compare_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime, timedelta

    from lake_core.pool.config import PoolConfig
    from lake_core.pool.data_object import DataObject
    from lake_core.pool.load import Loader
    from lake_core.pool.value import Value

_SMALL_SHARE = 4
"""An object is small if it takes no more than this fraction of the pool's threshold."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """A compaction of runs of data objects.

    Attributes:
        loader: Writes the data objects.
        runs: The ids of the data objects of each run. The objects of a run are replaced together.
        is_optional: Whether to skip a run where another writer has deleted or rewritten one of its objects, instead of
            raising.
    """

    loader: Loader
    runs: Sequence[Sequence[str]]
    is_optional: bool
    _compacted: dict[str, list[DataObject]] = field(default_factory=dict, init=False)

    def plan(self, tip: str) -> list[Action]:
        """Return the actions of a compaction on top of a tip. Raises DeleteConflict, DamagedLake."""
        objects = self.loader.branches.commits.objects(tip)
        deletes: list[Action] = []
        adds: list[Action] = []
        for run in self.runs:
            missing = tuple(id for id in run if id not in objects)
            if missing and not self.is_optional:
                raise DeleteConflict(
                    f"other writers deleted or rewrote {', '.join(missing)} during the compaction; compact again",
                    missing,
                )
            if not missing:
                deletes += map(DeleteObject, run)
                adds += map(AddObject, self._compact([objects[id] for id in run]))
        return [*deletes, *adds]

    def _compact(self, run: Sequence[DataObject]) -> list[DataObject]:
        """Return data objects with the values of others, which are written on the first call only.

        Raises DamagedLake.
        """
        if run[0].id not in self._compacted:
            loader = self.loader
            merged = merge_objects(loader.store, loader.config, run)
            self._compacted[run[0].id] = list(write_objects(loader.store, loader.config, merged, loader.new_id))
        return self._compacted[run[0].id]


def checked_run(ids: Iterable[str], objects: Iterable[str]) -> list[str]:
    """Return the distinct ids of data objects to compact. Raises InvalidValue for fewer than two, NoSuchObject."""
    run = list(dict.fromkeys(ids))
    known = set(objects)
    if len(run) < 2:
        raise InvalidValue("a compaction needs at least two data objects; `objects` lists those of a branch")
    check_objects_exist(run, known)
    return run


def check_objects_exist(ids: Iterable[str], objects: Iterable[str]) -> None:
    """Raise NoSuchObject for ids that are not among the existing ones."""
    known = set(objects)
    if unknown := [id for id in ids if id not in known]:
        raise NoSuchObject(
            f"the branch does not have the data objects {', '.join(unknown)}; `objects` lists those that it has"
        )


def runs_to_compact(
    objects: Iterable[DataObject], config: PoolConfig, now: datetime, cold_age: timedelta
) -> list[list[str]]:
    """Return the ids of data objects that are worth compacting: runs of neighbors that overlap or are small.

    Between two runs, there is a large object that overlaps no other. So what is left over from a run has no small
    neighbor, and after a compaction there is nothing to compact.

    Args:
        objects: The data objects of a branch.
        config: The pool.
        now: The time.
        cold_age: Leave out objects that are younger.
    """
    runs: list[list[str]] = [[]]
    for overlapping in _overlapping(each for each in objects if time_of_ksuid(each.id) <= now - cold_age):
        if len(overlapping) > 1 or overlapping[0].size <= config.threshold // _SMALL_SHARE:
            runs[-1] += [each.id for each in overlapping]
        else:
            runs.append([])
    return [run for run in runs if len(run) > 1]


def _overlapping(objects: Iterable[DataObject]) -> Iterator[list[DataObject]]:
    """Yield data objects in the order of their keys. Those that overlap, directly or by way of others, are together."""
    by_key = cmp_to_key(compare_values)
    together: list[DataObject] = []
    last: Value | None = None
    for each in sorted(objects, key=lambda each: (by_key(each.min), by_key(each.max), each.id)):
        if last is not None and compare_values(each.min, last) > 0:
            yield together
            together, last = [], None
        together.append(each)
        if last is None or compare_values(each.max, last) > 0:
            last = each.max
    if together:
        yield together
