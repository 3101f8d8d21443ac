"""Where an output is stored. Two outputs of one place replace one another, and are read as one another."""

from __future__ import annotations

from dataclasses import dataclass

_FOLDER = frozenset({"/"})


@dataclass(frozen=True, slots=True)
class Place:
    """The place where an output is stored."""

    path: str
    """The path of a table, pool or arrays, or of a file without its extension."""
    endings: frozenset[str] = _FOLDER
    """The extensions that the file may have."""
    replaces: bool = True
    """Whether a write replaces what is there."""

    def overlaps(self, other: Place) -> bool:
        """Return whether both may be the same table, pool, arrays or file."""
        return self.path == other.path and not self.endings.isdisjoint(other.endings)
