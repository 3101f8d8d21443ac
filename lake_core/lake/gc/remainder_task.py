"""Remainders of many pairs of trees, in groups of pairs. Each group is a task of a runner."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lake_core.errors import LakeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.lake.gc.remainder import Remainder, RemainderReader
    from lake_core.lake.gc.remainder_memo import Pair
    from lake_core.runner import Runner
    from lake_core.store import ObjectStore

_PAIRS_A_GROUP = 32
"""The number of remainders that a task computes concurrently."""
_GROUPS_AT_ONCE = 256


def compute_remainders(
    root: ObjectStore, reader: RemainderReader, pairs: Sequence[Pair], run: Runner
) -> Iterator[Remainder | None]:
    """Yield the remainder of each pair, in order, and None for those of which a tree or a dataset cannot be read."""
    groups = [pairs[start : start + _PAIRS_A_GROUP] for start in range(0, len(pairs), _PAIRS_A_GROUP)]
    for start in range(0, len(groups), _GROUPS_AT_ONCE):
        task = RemainderTask(root, reader, groups[start : start + _GROUPS_AT_ONCE])
        for remainders in run(task, len(task.groups)):
            yield from remainders


@dataclass(frozen=True, slots=True)
class RemainderTask:
    """Computes the remainders of a group of pairs. Picklable.

    It needs the installed formats: a process without this package cannot call it.
    """

    root: ObjectStore
    reader: RemainderReader
    groups: Sequence[Sequence[Pair]]

    def __call__(self, index: int) -> list[Remainder | None]:
        """Compute the remainders of the group of this number; None for those that cannot be read."""
        newest_first = self.groups[index][::-1]  # each successor has just been read
        return [*self.root.gather(*(partial(self._remainder, pair) for pair in newest_first))][::-1]

    def _remainder(self, pair: Pair) -> Remainder | None:
        try:
            return self.reader.remainder(*pair)
        except LakeError:
            return None
