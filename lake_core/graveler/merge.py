"""Three-way merges: one side's changes since the base apply to the other, unless both changed a key differently.

A lake merges datasets by their formats and does not call this: it is the merge of the lakeFS data model, for trees of
plain keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, TypeAlias

from lake_core.graveler.errors import MergeConflict
from lake_core.graveler.record import Record

if TYPE_CHECKING:
    from lake_core.graveler.result import ThreeWay

Strategy: TypeAlias = Literal["ours", "theirs"]
Resolve: TypeAlias = Callable[[bytes, Record | None, Record | None, Record | None], Record | None]
"""Maps (key, base, ours, theirs) to the merged record, or to None to remove the key."""


def settled(
    changes: Iterable[ThreeWay], strategy: Strategy | None, resolve: Resolve | None
) -> tuple[list[tuple[bytes, Record | None]], tuple[bytes, ...]]:
    """Return the changes to apply to our side (the target), and the keys that were in conflict.

    Raises MergeConflict if there are conflicts, and neither `strategy` nor `resolve` is given.
    """
    apply: list[tuple[bytes, Record | None]] = []
    conflicts: list[bytes] = []
    for key, base, theirs, ours in changes:
        if same(ours, theirs):
            continue
        if same(ours, base):
            apply.append((key, theirs))
            continue
        conflicts.append(key)
        if resolve is not None:
            apply.append((key, resolve(key, base, ours, theirs)))
        elif strategy == "theirs":
            apply.append((key, theirs))
    if conflicts and resolve is None and strategy is None:
        raise MergeConflict(conflicts)
    return apply, tuple(conflicts)


def same(first: Record | None, second: Record | None) -> bool:
    """Return whether two records of one key are the same: both absent, or with the same identity."""
    if first is None or second is None:
        return first is second
    return first.identity == second.identity
