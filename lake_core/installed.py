"""What installed packages register by entry points. It is loaded when it is needed: some of it imports much."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from lake_core.errors import RegisteredTwice

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.metadata import EntryPoint


@cache
def installed(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name.

    Raises:
        RegisteredTwice: Packages register different things by one name.
    """
    from importlib.metadata import entry_points  # takes longer than the rest of most modules that use this one

    points: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        first = points.setdefault(point.name, point)
        if first.value != point.value:
            packages = " and ".join(sorted(map(_package, (first, point))))
            raise RegisteredTwice(f"{packages} both register {point.name!r} in {group!r}: uninstall one of them")
    return points


def _package(point: EntryPoint) -> str:
    return f"{point.value} (of no package)" if point.dist is None else f"the package {point.dist.name!r}"
