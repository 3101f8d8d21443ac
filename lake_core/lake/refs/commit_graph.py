"""The graph of a lake's commits in memory, without messages and metadata, to decide which commits are retained."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from lake_core.graveler import Commit
    from lake_core.lake.refs.refs_state import RefsState


@dataclass(frozen=True, slots=True)
class CommitNode:
    """The part of a commit that the graph needs."""

    id: str
    tree: str
    date: datetime
    parents: tuple[str, ...]
    generation: int

    @property
    def order(self) -> tuple[int, datetime, str]:
        """Return the key of a total order in which children follow their parents."""
        return self.generation, self.date, self.id


class CommitGraph:
    """The commits of the refs of the last update. Each commit is decoded once."""

    def __init__(self) -> None:
        self._nodes: dict[str, CommitNode] = {}

    @property
    def nodes(self) -> Mapping[str, CommitNode]:
        """Return the commits by their ids."""
        return self._nodes

    def update(self, refs: RefsState) -> None:
        """Update the graph to other refs. Raises DamagedLake, JournalDamaged."""
        if not self._nodes:
            self._add(refs.commits())
            return
        ids = refs.commit_ids()
        self._add(refs.commit(id) for id in ids - self._nodes.keys())
        for id in self._nodes.keys() - ids:
            del self._nodes[id]

    def _add(self, commits: Iterable[Commit]) -> None:
        names: dict[str, str] = {}
        for commit in commits:
            # Commits that name the same id share one string, which saves memory.
            id = names.setdefault(commit.id, commit.id)
            parents = tuple(names.setdefault(parent, parent) for parent in commit.parents)
            self._nodes[id] = CommitNode(id, commit.metarange_id, commit.creation_date, parents, commit.generation)

    def merge_bases(self, heads: Iterable[str]) -> set[str]:
        """Find the merge base of each pair of heads, as `history.merge_base` does, in one walk for all of them."""
        names = sorted(heads)
        reached_by = {id: 1 << bit for bit, id in enumerate(names)}
        """The heads that reach each commit, as one bit per head."""
        has_base_with = [1 << bit for bit in range(len(names))]
        """For each head, the heads whose merge base with it is known."""
        everything = (1 << len(names)) - 1
        unfinished = len(names)
        queue = [self._queued(id) for id in names]
        heapq.heapify(queue)
        joined = set(names)
        """The commits that were reached by several paths. Only these can be merge bases."""
        bases: set[str] = set()
        while queue and unfinished > 1:
            id = heapq.heappop(queue)[2]
            mask = reached_by[id]
            if id in joined:
                for bit in _bits(mask):
                    before = has_base_with[bit]
                    if mask & ~before:
                        bases.add(id)
                        has_base_with[bit] |= mask
                        unfinished -= has_base_with[bit] == everything
            for parent in self._nodes[id].parents:
                known = reached_by.get(parent, 0)
                if parent in self._nodes and known | mask != known:
                    reached_by[parent] = known | mask
                    if known:
                        joined.add(parent)
                    heapq.heappush(queue, self._queued(parent))
        return bases

    def _queued(self, id: str) -> tuple[int, float, str]:
        node = self._nodes[id]
        return -node.generation, -node.date.timestamp(), id


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
