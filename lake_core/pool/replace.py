"""Replacements: the values of ranges of keys are taken out and others put in, in one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from lake_core.pool.action import Action, AddObject, DeleteObject
from lake_core.pool.data_object import DataObject
from lake_core.pool.errors import OutsideRange
from lake_core.pool.key_range import KeyRange
from lake_core.pool.load import Loader
from lake_core.pool.order import pool_key
from lake_core.pool.scan import Scan
from lake_core.pool.value import Value
from lake_core.pool.zson.formatter import format_value


@dataclass(frozen=True, slots=True)
class Replacement:
    """Plans commits that replace the values of ranges of keys.

    Attributes:
        loader: Writes the values that stay in place of the data objects that they share with others.
        ranges: The ranges. One without bounds holds all values.
        objects: The data objects that are put in.
    """

    loader: Loader
    ranges: Sequence[KeyRange]
    objects: Sequence[DataObject]
    _kept: dict[str, list[DataObject]] = field(default_factory=dict, init=False)

    def plan(self, tip: str) -> list[Action]:
        """Return the actions of a commit on top of another one. Raises DamagedLake."""
        deletes: list[Action] = []
        adds: list[Action] = []
        for each in self.loader.branches.commits.objects(tip).values():
            if not any(range.overlaps(each.min, each.max) for range in self.ranges):
                continue
            kept = self._rest(each)
            if kept is None:
                continue
            deletes.append(DeleteObject(each.id))
            adds += map(AddObject, kept)
        return [*deletes, *adds, *map(AddObject, self.objects)]

    def _rest(self, data_object: DataObject) -> list[DataObject] | None:
        """Return data objects with the values of one that stay; None where all of them do."""
        if any(range.holds(data_object.min.under()) and range.holds(data_object.max.under()) for range in self.ranges):
            return []
        if data_object.id not in self._kept:
            count = 0

            def rest() -> Iterator[Value]:
                nonlocal count
                for value in Scan(self.loader.store, self.loader.config, [data_object], KeyRange()).values():
                    if not is_in_ranges(value, self.loader.config.keys[0], self.ranges):
                        count += 1
                        yield value

            objects = self.loader.write(rest())
            if count == data_object.count:
                self.loader.discard(objects)
                objects = [data_object]
            self._kept[data_object.id] = objects
        kept = self._kept[data_object.id]
        return None if kept == [data_object] else kept


def is_in_ranges(value: Value, path: Sequence[str], ranges: Sequence[KeyRange]) -> bool:
    """Tell whether the key of a value, at a path of field names, is in one of several ranges."""
    return any(not range.is_bounded or range.contains(value, path) for range in ranges)


def checked(path: Sequence[str], ranges: Sequence[KeyRange], name: str) -> Callable[[Value], Value]:
    """Return what returns a value whose key is in one of several ranges, and raises OutsideRange for any other."""

    def check(value: Value) -> Value:
        if not is_in_ranges(value, path, ranges):
            raise outside(pool_key(value, path), path, ranges, name)
        return value

    return check


def check_objects(objects: Sequence[DataObject], path: Sequence[str], ranges: Sequence[KeyRange], name: str) -> None:
    """Raise OutsideRange where data objects hold keys that are in none of several ranges without a gap between them."""
    for each in objects:
        for key in (each.min, each.max):
            if not any(not range.is_bounded or range.holds(key.under()) for range in ranges):
                raise outside(key, path, ranges, name)


def outside(key: Value, path: Sequence[str], ranges: Sequence[KeyRange], name: str) -> OutsideRange:
    """Return the error for a key that is in none of several ranges."""
    expected = " or ".join(_shown(range) for range in ranges[:3]) + (" or …" if len(ranges) > 3 else "")
    shown = "no key" if key.body is None else f"the key {format_value(key)}"
    return OutsideRange(
        f"{name} has a record with {shown} at {'.'.join(path)!r}, and only {expected} is to be written. Nothing was written"
    )


def _shown(range: KeyRange) -> str:
    parts = [
        *([f"from {format_value(range.start)}"] if range.start is not None else []),
        *([f"to before {format_value(range.stop)}"] if range.stop is not None else []),
    ]
    return " ".join(parts) or "everything"
