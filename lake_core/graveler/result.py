"""Results of operations on trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lake_core.graveler.record import Record


@dataclass(frozen=True, slots=True)
class Built:
    """A built tree, and the cost of building it."""

    tree: str
    """The metarange's id, or "" for the empty tree."""
    written: tuple[str, ...]
    """Ids of the files that were put: ranges, then the metarange. Some may have existed before."""
    reused: int
    """Ranges that were reused by name."""
    added: int
    removed: int
    changed: int
    """Records."""


class RecordDifference(NamedTuple):
    """A key whose record differs between two trees. The record is None if a tree does not have the key."""

    key: bytes
    before: Record | None
    after: Record | None


class ThreeWay(NamedTuple):
    """A key whose record differs between `base` and `theirs`, with its record in the target."""

    key: bytes
    base: Record | None
    theirs: Record | None
    target: Record | None


@dataclass(frozen=True, slots=True)
class TreeMerge:
    """The result of a merge."""

    tree: str
    conflicts: tuple[bytes, ...]
    """Keys that both sides had changed differently, and that the strategy or the function resolved."""
    built: Built | None = None
    """The build of the tree, or None if the result is one side's tree."""
