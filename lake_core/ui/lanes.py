"""The lanes of a graph of commits: where each commit is drawn, and the lines between the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lake_core.graveler import Commit

_STEP, _HEIGHT, _RADIUS = 14, 52, 4.5
_MOST_LANES = 14
"""Lanes that are drawn: those to the right of them are drawn in the last one."""
COLORS = 6
"""How many colors of lanes the style sheet has."""


@dataclass(frozen=True, slots=True)
class LaneRow:
    """The part of the graph beside one commit."""

    lane: int
    through: Sequence[int]
    """Lanes that pass the commit."""
    joins: Sequence[int]
    """Lanes that come from above and end at the commit."""
    leaves: Sequence[int]
    """Lanes of its parents, which go on below."""
    width: int
    """How many lanes the row has."""

    def svg(self, lanes: int) -> Markup:
        """Return the drawing, as wide as so many lanes."""

        def x(lane: int) -> float:
            return _STEP * (min(lane, _MOST_LANES) + 0.5)

        def line(lane: int, path: str) -> str:
            return f'<path class="lane lane{lane % COLORS}" d="{path}"/>'

        middle = _HEIGHT / 2
        center = x(self.lane)
        parts = [line(lane, f"M{x(lane):g} 0V{_HEIGHT}") for lane in self.through]
        parts += [
            line(lane, f"M{x(lane):g} 0C{x(lane):g} {middle * 0.8:g} {center:g} {middle * 0.3:g} {center:g} {middle:g}")
            for lane in self.joins
        ]
        parts += [
            line(
                lane,
                f"M{center:g} {middle:g}C{center:g} {middle * 1.7:g} {x(lane):g} {middle * 1.2:g} "
                f"{x(lane):g} {_HEIGHT}",
            )
            for lane in self.leaves
        ]
        parts.append(f'<circle class="dot lane{self.lane % COLORS}" cx="{center:g}" cy="{middle:g}" r="{_RADIUS}"/>')
        width = _STEP * (min(lanes, _MOST_LANES) + 1)
        return Markup(
            f'<svg class="lanes" width="{width}" height="{_HEIGHT}" viewBox="0 0 {width} {_HEIGHT}" '
            f'aria-hidden="true">{"".join(parts)}</svg>'
        )


class Lanes:
    """Lays out commits that come newest first. Each slot holds the commit that the lane waits for."""

    def __init__(self, slots: Iterable[str | None]) -> None:
        self.slots: list[str | None] = list(slots)

    def add(self, commit: Commit, parents: Sequence[str]) -> LaneRow:
        """Place a commit. `parents` are those that are shown below."""
        slots = self.slots
        joins = [lane for lane, id in enumerate(slots) if id == commit.id]
        lane = joins[0] if joins else self._free()
        through = [other for other, id in enumerate(slots) if id is not None and id != commit.id]
        for each in joins or [lane]:
            slots[each] = None
        leaves = []
        for number, parent in enumerate(parents):
            # The line of first parents goes straight down. Another lane that waits for the same commit joins there.
            target = lane if not number else slots.index(parent) if parent in slots else self._free()
            slots[target] = parent
            leaves.append(target)
        width = max([lane, *through, *joins, *leaves]) + 1
        while slots and slots[-1] is None:
            slots.pop()
        return LaneRow(lane, through, joins, leaves, width)

    def _free(self) -> int:
        if None in self.slots:
            return self.slots.index(None)
        self.slots.append(None)
        return len(self.slots) - 1
