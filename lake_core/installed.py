"""What installed packages register by entry points. It is loaded when it is needed: some of it imports much."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.metadata import EntryPoint


@cache
def installed(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name."""
    from importlib.metadata import entry_points  # takes longer than the rest of most modules that use this one

    return {point.name: point for point in sorted(entry_points(group=group), key=lambda point: point.name)}
