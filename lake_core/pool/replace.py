"""Replacements: one commit deletes the values of ranges of keys and adds others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lake_core.pool.action import Action, AddObject, DeleteObject
from lake_core.pool.errors import OutsideRange
from lake_core.pool.order import pool_key
from lake_core.pool.rewrite import ObjectRewriter
from lake_core.pool.sorted_batch import keys_of
from lake_core.pool.zson.formatter import format_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lake_core.pool.arrow.arrays import Mask
    from lake_core.pool.commit_store import CommitStore
    from lake_core.pool.config import PoolConfig
    from lake_core.pool.data_object import DataObject
    from lake_core.pool.key_column import KeyColumn
    from lake_core.pool.key_range import KeyRange
    from lake_core.pool.load import Loader
    from lake_core.pool.value import Value
    from lake_core.pool.value_batch import ValueBatch


@dataclass(frozen=True, slots=True)
class Replacement:
    """A replacement of the values of ranges of keys.

    Attributes:
        commits: The pool's commits.
        ranges: The ranges. One without bounds holds all values.
        objects: The data objects that are added.
        rewriter: Writes the remaining values of data objects that hold replaced ones.
    """

    commits: CommitStore
    ranges: Sequence[KeyRange]
    objects: Sequence[DataObject]
    rewriter: ObjectRewriter

    @classmethod
    def of(cls, loader: Loader, ranges: Sequence[KeyRange], objects: Sequence[DataObject]) -> Replacement:
        """Return a replacement of the values of ranges of keys by data objects."""
        path = loader.config.keys[0]
        rewriter = ObjectRewriter(loader, lambda batch: _mask(batch.batch, batch.keys, path, ranges))
        return cls(loader.branches.commits, ranges, objects, rewriter)

    def plan(self, tip: str) -> list[Action]:
        """Return the actions of a replacement on top of a tip. Raises DamagedLake."""
        deletes: list[Action] = []
        adds: list[Action] = []
        for each in self.commits.objects(tip).values():
            if not any(key_range.overlaps(each.min, each.max) for key_range in self.ranges):
                continue
            remainder = self._remainder(each)
            if remainder is None:
                continue
            deletes.append(DeleteObject(each.id))
            adds += map(AddObject, remainder)
        return [*deletes, *adds, *map(AddObject, self.objects)]

    def _remainder(self, data_object: DataObject) -> list[DataObject] | None:
        """Return data objects with the remaining values of one; None where it keeps all of its values."""
        if any(
            key_range.holds(data_object.min.under()) and key_range.holds(data_object.max.under())
            for key_range in self.ranges
        ):
            return []
        return self.rewriter.remainder(data_object)


def _mask(batch: ValueBatch, keys: KeyColumn | None, path: Sequence[str], ranges: Sequence[KeyRange]) -> Mask:
    """Return which values have a key, at a path of field names, that is in one of several ranges."""
    masks = [key_range.mask(batch, keys, path) for key_range in ranges]
    return np.logical_or.reduce(masks) if masks else np.zeros(len(batch), np.bool_)


def checked(config: PoolConfig, ranges: Sequence[KeyRange], name: str) -> Callable[[ValueBatch], ValueBatch]:
    """Return a function that returns a batch if all of its keys are in one of several ranges.

    The function raises OutsideRange for any other batch.
    """
    path = config.keys[0]

    def check(batch: ValueBatch) -> ValueBatch:
        others = np.flatnonzero(~_mask(batch, keys_of(batch, config), path, ranges))
        if len(others):
            raise outside(pool_key(batch.value(int(others[0])), path), path, ranges, name)
        return batch

    return check


def check_objects(objects: Sequence[DataObject], path: Sequence[str], ranges: Sequence[KeyRange], name: str) -> None:
    """Raise OutsideRange for data objects whose smallest or largest key is outside of ranges.

    The ranges have no gaps between them.
    """
    for each in objects:
        for key in (each.min, each.max):
            if not any(not key_range.is_bounded or key_range.holds(key.under()) for key_range in ranges):
                raise outside(key, path, ranges, name)


def outside(key: Value, path: Sequence[str], ranges: Sequence[KeyRange], name: str) -> OutsideRange:
    """Return the error for a key that is in none of several ranges."""
    expected = " or ".join(_shown(key_range) for key_range in ranges[:3]) + (" or …" if len(ranges) > 3 else "")
    shown = "no key" if key.body is None else f"the key {format_value(key)}"
    return OutsideRange(
        f"{name} has a record with {shown} at {'.'.join(path)!r}, but only {expected} can be written. "
        "Nothing was written"
    )


def _shown(key_range: KeyRange) -> str:
    parts = [
        *([f"from {format_value(key_range.start)}"] if key_range.start is not None else []),
        *([f"up to, but not including, {format_value(key_range.stop)}"] if key_range.stop is not None else []),
    ]
    return " ".join(["keys", *parts]) if parts else "anything"
