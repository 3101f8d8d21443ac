"""The lanes of the graph: lines are continuous from row to row, and end at the commits that they lead to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from types import SimpleNamespace
from typing import Any

from lake_core.ui.lanes import LaneRow, Lanes

Graph = Sequence[Sequence[int]]
"""The parents of each commit, newest first: numbers of later commits."""


def graphs(size: int) -> Iterator[Graph]:
    """Yield all histories of some commits, each with up to two parents."""

    def parents(number: int) -> list[Sequence[int]]:
        older = range(number + 1, size)
        return [(), *((each,) for each in older), *combinations(older, 2)]

    yield from product(*(parents(number) for number in range(size)))


def laid_out(graph: Graph) -> list[LaneRow]:
    lanes = Lanes(())
    commits: list[Any] = [SimpleNamespace(id=str(number)) for number in range(len(graph))]
    return [
        lanes.add(commit, [str(parent) for parent in parents]) for commit, parents in zip(commits, graph, strict=True)
    ]


def test_lines_are_continuous_and_lead_to_the_parents() -> None:
    count = 0
    for graph in graphs(5):
        count += 1
        rows = laid_out(graph)
        waiting: dict[int, int] = {}
        """The commit that each lane between two rows leads to."""
        for number, row in enumerate(rows):
            assert set(waiting) == {*row.through, *row.joins}, graph
            assert {lane for lane, target in waiting.items() if target == number} == set(row.joins), graph
            assert row.lane not in row.through, graph
            assert len(row.leaves) == len(graph[number]), graph
            waiting = {lane: waiting[lane] for lane in row.through}
            for lane, parent in zip(row.leaves, graph[number], strict=True):
                assert waiting.get(lane, parent) == parent, graph
                waiting[lane] = parent
            assert row.width > max([row.lane, *row.through, *row.joins, *row.leaves])
        assert waiting == {}, graph
    assert count == 1 * 2 * 4 * 7 * 11


def test_the_first_parents_of_the_first_commit_are_one_straight_line() -> None:
    for graph in graphs(5):
        rows, number = laid_out(graph), 0
        while graph[number]:
            number = graph[number][0]
            assert rows[number].lane == 0, graph


def test_many_lanes_stay_within_the_page() -> None:
    lanes = Lanes(())
    commits: list[Any] = [SimpleNamespace(id=f"head {number}") for number in range(100)]
    rows = [lanes.add(commit, [f"parent of {commit.id}"]) for commit in commits]
    drawing = str(rows[-1].svg(rows[-1].width))
    assert int(drawing.split('width="')[1].split('"')[0]) < 250
