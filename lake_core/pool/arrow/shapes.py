"""The shapes of a stream: each distinct type of its values, and how many have it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lake_core.pool.arrow.bodies import occurrences, read_uvarints
from lake_core.pool.arrow.walk import walk_values
from lake_core.pool.zng.reader import read_payloads

if TYPE_CHECKING:
    from collections.abc import Callable

    from lake_core.pool.arrow.bodies import Positions
    from lake_core.pool.types import Type
    from lake_core.pool.zng.frame import Source


@dataclass(frozen=True, slots=True)
class Shape:
    """A type of values.

    Attributes:
        type: The type.
        count: How many values have it.
    """

    type: Type
    count: int


def shapes(source: Source, visit: Callable[[Positions, int], None] | None = None) -> list[Shape]:
    """Return each distinct type of the values of ZNG streams, in the order of their first values.

    The values are not decoded.

    Args:
        source: The bytes, or a file.
        visit: Is called for each frame, with the positions where its values begin and where the last one ends.

    Raises:
        InvalidZng: The bytes are damaged.
    """
    counts: dict[Type, int] = {}
    for types, (payload,) in read_payloads(source):
        data = np.frombuffer(payload, np.uint8)
        starts = walk_values(data, payload)
        if visit is not None:
            visit(starts, len(payload))
        ids, _ = read_uvarints(data, starts)
        for id, count in occurrences(ids):
            type = types.lookup(id)
            counts[type] = counts.get(type, 0) + count
    return [Shape(type, count) for type, count in counts.items()]
