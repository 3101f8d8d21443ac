"""The graph of a lake's commits in memory, without messages and metadata, to decide which commits are retained."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake_core.lake.refs.commit_link import link_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
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
    squashed: str | None = None
    """The commit that it squashed, which is none of its parents."""

    @property
    def order(self) -> tuple[int, datetime, str]:
        """Return the key of a total order in which children follow their parents."""
        return self.generation, self.date, self.id


class CommitGraph:
    """The commits of the refs of the last update. Each commit is decoded once.

    Links of collected commits are read only where a walk passes them.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, CommitNode] = {}
        self._refs: RefsState | None = None
        self._collected: dict[str, CommitNode | None] = {}
        """What was read of commits that are not retained. None for commits that the lake does not know."""
        self._bases: tuple[frozenset[str], set[str]] = frozenset(), set()
        """The last heads whose merge bases were asked for, and these."""

    @property
    def nodes(self) -> Mapping[str, CommitNode]:
        """Return the retained commits by their ids."""
        return self._nodes

    def update(self, refs: RefsState) -> None:
        """Update the graph to other refs. Raises DamagedLake, JournalDamaged."""
        self._refs = refs
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
            squashed = link_of(commit).squashed
            node = CommitNode(id, commit.metarange_id, commit.creation_date, parents, commit.generation, squashed)
            self._nodes[id] = node

    def merge_bases(self, heads: Iterable[str]) -> set[str]:
        """Find all best common ancestors of each pair of heads, whether or not they are retained.

        These are the common ancestors of which no descendant is one. They are searched over parents, as
        `Divergence.bases` does, and again with each squashed commit as a further parent.
        """
        names = frozenset(heads)
        if self._bases[0] != names:  # no later commit becomes an ancestor of a head
            bases, has_squashed = self._best(names, with_squashed=False)
            if has_squashed:
                bases |= self._best(names, with_squashed=True)[0]
            self._bases = names, bases
        return set(self._bases[1])

    def _best(self, heads: Set[str], *, with_squashed: bool) -> tuple[set[str], bool]:
        """Find the best common ancestors of all pairs, and whether the walk met a commit that squashed another one."""
        everything = (1 << len(heads)) - 1
        reached_by: dict[str, int] = {}
        """The heads that reach each commit, as one bit per head."""
        queue: list[tuple[int, float, str]] = []
        unfinished: set[str] = set()
        """The queued commits that not all heads are known to reach."""
        has_squashed = False

        def reach(id: str, mask: int) -> None:
            known = reached_by.get(id, 0)
            if known | mask == known or (node := self._node(id)) is None:
                return
            reached_by[id] = known | mask
            if known | mask == everything:
                unfinished.discard(id)
            else:
                unfinished.add(id)
            heapq.heappush(queue, (-node.generation, -node.date.timestamp(), id))

        for bit, id in enumerate(sorted(heads)):
            reach(id, 1 << bit)
        # A commit may be older, by generation, than one that it squashed. What reaches more heads is queued again.
        while unfinished:
            id = heapq.heappop(queue)[2]
            unfinished.discard(id)
            node = self._node(id)
            assert node is not None
            has_squashed |= node.squashed is not None
            for parent in _sources(node, with_squashed):
                reach(parent, reached_by[id])
        return self._joined(sorted(heads), reached_by, with_squashed), has_squashed

    def _joined(self, heads: Sequence[str], reached_by: Mapping[str, int], with_squashed: bool) -> set[str]:
        """Choose the commits that are a common ancestor of two heads, and have no descendant that is one of both."""
        lines: dict[str, set[int]] = {}
        """For each commit the heads that reach each of its children, and itself if it is a head."""
        for bit, id in enumerate(heads):
            lines.setdefault(id, set()).add(1 << bit)
        for id, mask in reached_by.items():
            node = self._node(id)
            assert node is not None
            for parent in _sources(node, with_squashed):
                if parent in reached_by:
                    lines.setdefault(parent, set()).add(mask)
        return {
            id
            for id, masks in lines.items()
            if id in reached_by and reached_by[id] not in masks and _has_new_pair(reached_by[id], masks)
        }

    def _node(self, id: str) -> CommitNode | None:
        """Return a commit, retained or not, or None if the lake does not know it."""
        node = self._nodes.get(id)
        if node is not None:
            return node
        if id not in self._collected:
            assert self._refs is not None
            link = self._refs.link(id)
            self._collected[id] = (
                None if link is None else CommitNode(id, "", link.date, link.parents, link.generation, link.squashed)
            )
        return self._collected[id]


def _sources(node: CommitNode, with_squashed: bool) -> Sequence[str]:
    """Return the commits whose changes a commit has beside its own."""
    if with_squashed and node.squashed is not None:
        return (*node.parents, node.squashed)
    return node.parents


def _has_new_pair(reached: int, lines: Set[int]) -> bool:
    """Return whether two heads reach a commit, of which no single line of descendants reaches both."""
    for bit in _bits(reached):
        beside = 0
        for mask in lines:
            if mask >> bit & 1:
                beside |= mask
        if beside != reached:
            return True
    return False


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
