"""Where an output is stored. Two outputs of one place replace one another, and are read as one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

_FOLDER = frozenset({"/"})


@dataclass(frozen=True, slots=True)
class Place:
    """The place where an output is stored."""

    path: str
    """The path of a dataset, or of a file without its extension."""
    endings: frozenset[str] = _FOLDER
    """The extensions that the file may have."""
    replaces: bool = True
    """Whether a write replaces what is there."""
    others: tuple[Place, ...] = ()
    """Where else it may be stored, if its value decides."""

    def overlaps(self, other: Place) -> bool:
        """Return whether both may be the same dataset or file."""
        return any(
            one.path == another.path and not one.endings.isdisjoint(another.endings)
            for one in (self, *self.others)
            for another in (other, *other.others)
        )

    def below(self, mapping_keys: Sequence[str]) -> Place:
        """Return the place of a mapped output."""
        others = tuple(other.below(mapping_keys) for other in self.others)
        return replace(self, path="/".join([self.path, *mapping_keys]), others=others)
