"""The retention of a lake: the states that collection keeps, in an order in which each has a successor."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from lake_core.lake.refs.session_record import FAILED, OPEN

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lake_core.lake.refs.commit_graph import CommitGraph, CommitNode
    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.refs.session_record import SessionRecord

HISTORY = timedelta(days=30)
"""How long commits that no branch, tag or session names are retained by default."""


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
    is_followed: bool
    """Whether this state and the successor follow each other directly, in either direction."""

    def counts_from(self, before: datetime | None) -> bool:
        """Return whether this state keeps the files of a dataset from collection.

        A state that a ref or a session names always does. Another one does if it was committed at or after `before`,
        when the dataset's retention ended. None stands for a retention that has not ended.
        """
        return before is None or self.since is None or self.since >= before


@dataclass(frozen=True, slots=True)
class Retention:
    """The states of a lake to keep, the newest commit first, sessions last."""

    states: Sequence[RetainedState]
    trunk: Sequence[int]
    """The indexes of the head of the checked-out branch and of its first parents, as long as each succeeds the next."""
    dropped: frozenset[str]
    """The commits that are not kept, but for their links."""


def kept_commits(graph: CommitGraph, refs: RefsState, cutoff: datetime) -> set[str]:
    """Return the commits to keep.

    Those that refs and sessions name, those since the cutoff, the heads at the cutoff, and merge bases.
    """
    named = _named(refs)
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
    named = _named(refs)
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
            states.append(RetainedState(tree, record.id, None, successor, is_followed=True))
            successor = len(states) - 1
    return Retention(states, [indexes[id] for id in trunk], frozenset(graph.nodes.keys() - kept))


def _named(refs: RefsState) -> set[str]:
    return {*refs.branches().values(), *refs.tags().values()}


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
