"""The retention of a lake: the states that collection keeps, in an order in which each has a successor."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate, pairwise
from math import inf
from typing import TYPE_CHECKING

from lake_core.lake.refs.session_record import FAILED, OPEN
from lake_core.lake.refs.values import instant_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from lake_core.lake.refs.commit_graph import CommitGraph, CommitNode
    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.refs.session_record import SessionRecord

HISTORY = timedelta(days=30)
"""How long commits that no branch, tag or session names are retained by default."""
_LOOKED_AT = 3
"""States in which the version of a dataset is looked for."""


@dataclass(frozen=True, slots=True)
class RetainedState:
    """A state to keep."""

    tree: str
    name: str
    since: datetime | None
    """When it was committed, for history that a dataset's ended retention may drop.

    None for what a ref or session names.
    """
    successor: int | None
    """The index of a similar state that comes earlier in the list of all states. None for the first."""
    is_step: bool
    """Whether this state and the successor follow each other directly, in either direction."""


class Trunk:
    """The kept states of the checked-out branch, newest first, as far as each succeeds the next."""

    def __init__(self, states: Sequence[RetainedState]) -> None:
        self.states = states
        times = (inf if state.since is None else state.since.timestamp() for state in states)
        # Each with the earliest time of those up to it, so that a binary search works even if clocks differ.
        self._ages = [-time for time in accumulate(times, min)]

    def keeping(self, nanoseconds: int, before: datetime | None) -> Iterator[RetainedState]:
        """Yield the first few states that were committed after an instant, oldest first.

        They, and all newer ones, keep the files of a dataset whose retention ended at `before`, if at all.
        """
        end = bisect_right(self._ages, -nanoseconds / 1e9)
        for index in reversed(range(max(0, end - _LOOKED_AT), end)):
            if before is None or -self._ages[index] >= before.timestamp():
                yield self.states[index]


@dataclass(frozen=True, slots=True)
class Retention:
    """The states of a lake to keep, the newest commit first, sessions last."""

    states: Sequence[RetainedState]
    trunk: Trunk
    ended: Mapping[str, datetime]
    """When the retention of datasets ended, by path."""
    dropped: frozenset[str]
    """The commits that are not kept, but for their links."""

    def keeps_files(self, state: RetainedState, path: str) -> bool:
        """Return whether a state keeps the files of a dataset from collection.

        A state that a ref or a session names always does. Another one does if it was committed since the dataset's
        retention ended, or if that has not ended.
        """
        before = self.ended.get(path)
        return before is None or state.since is None or state.since >= before


def kept_commits(graph: CommitGraph, refs: RefsState, cutoff: datetime) -> set[str]:
    """Return the commits to keep.

    Those that refs and sessions name, those since the cutoff, the heads at the cutoff, and merge bases.
    """
    named = refs.named()
    for id in named - graph.nodes.keys():
        refs.commit(id)  # Raises: a ref names what the lake does not have.
    live = _live_sessions(refs)
    kept = named | {id for record in live for id in (record.base, record.commit) if id is not None}
    for node in graph.nodes.values():
        if node.date >= cutoff:
            kept.add(node.id)
            kept.update(node.parents[:1])  # the head at the cutoff
    return (kept | graph.merge_bases(named)) & graph.nodes.keys()


def retain(graph: CommitGraph, refs: RefsState, branch: str, cutoff: datetime) -> Retention:
    """Return the states to keep. `branch` is the one that is checked out."""
    kept = kept_commits(graph, refs, cutoff)
    nodes = sorted((graph.nodes[id] for id in kept), key=lambda node: node.order, reverse=True)
    indexes = {node.id: index for index, node in enumerate(nodes)}
    trunk = _trunk(graph, indexes, refs.branch(branch))
    successors = _successors(nodes, indexes, trunk)
    named = refs.named()
    states = [
        RetainedState(
            node.tree,
            node.id,
            None if node.id in named else node.date,
            successor,
            successor is not None and node.id in nodes[successor].parents,
        )
        for node, successor in zip(nodes, successors, strict=True)
    ]
    for record in _live_sessions(refs):
        successor = indexes.get(record.base, 0)
        for tree in reversed(_session_trees(refs, record)):
            states.append(RetainedState(tree, record.id, None, successor, is_step=True))
            successor = len(states) - 1
    ended = {path: instant_of(f"retention/{path}", value, "before") for path, value in refs.under("retention/").items()}
    dropped = frozenset(graph.nodes.keys() - kept)
    return Retention(states, Trunk([states[indexes[id]] for id in trunk]), ended, dropped)


def _live_sessions(refs: RefsState) -> list[SessionRecord]:
    """List the sessions whose trees are kept: those that may go on, and those whose tasks may be replaced."""
    return [
        record
        for record in refs.sessions()
        if record.state in (OPEN, FAILED) or (record.replaceable and refs.batches(record))
    ]


def _session_trees(refs: RefsState, record: SessionRecord) -> list[str]:
    """List the distinct trees of a session in the order in which they were written."""
    batches = (tree for batch in refs.batches(record) for tree in (batch.before, batch.after))
    return list(dict.fromkeys([*batches, record.tree]))


def _trunk(graph: CommitGraph, kept: Collection[str], head: str) -> list[str]:
    """List a head and its first parents, up to the first that is not kept or out of order."""
    ids = [head]
    while (parents := graph.nodes[ids[-1]].parents) and parents[0] in kept:
        if graph.nodes[parents[0]].order >= graph.nodes[ids[-1]].order:
            break
        ids.append(parents[0])
    return ids


def _successors(nodes: Sequence[CommitNode], indexes: Mapping[str, int], trunk: Sequence[str]) -> list[int | None]:
    """Choose a successor for each commit: one that comes before it in the list, so that all lead to the first.

    It is the next commit of the checked-out branch, else the oldest child, else the next commit. New commits change few
    of them.
    """
    successors: list[int | None] = [index - 1 if index else None for index in range(len(nodes))]
    # The list runs from the newest to the oldest: the oldest child is entered last, and so are children by their first
    # parent, and the checked-out branch.
    for is_first in (False, True):
        for index, node in enumerate(nodes):
            for parent in node.parents[:1] if is_first else node.parents[1:]:
                if indexes.get(parent, -1) > index:
                    successors[indexes[parent]] = index
    for child, parent in pairwise(trunk):
        successors[indexes[parent]] = indexes[child]
    return successors
