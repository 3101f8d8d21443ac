"""Names of a journal's objects, below its folder."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Naming:
    """Names of entries, pointers and snapshots. `ZED_NAMING` is that of the Zed lake format, v3.

    With fixed-width numbers (`digits`) a listing is in the order of entries, so purging need not list them all.
    """

    suffix: str = ".json"
    """The extension of entries and snapshots."""
    digits: int = 20
    """The width of the numbers, padded with zeros; 1 for plain decimals."""
    head: str = "HEAD"
    tail: str = "TAIL"
    fixed_snapshot: str | None = None
    """The one name under which each snapshot overwrites the last; by default each has its own, below `snapshots/`."""

    @property
    def ordered(self) -> bool:
        """Return whether a listing shows entries in order."""
        return self.digits >= 20

    @property
    def snapshots(self) -> str:
        """Return the folder of snapshots that have their own names."""
        return "snapshots/"

    @property
    def bases(self) -> str:
        """Return the folder of snapshots that replace purged entries."""
        return "bases/"

    @property
    def segments(self) -> str:
        """Return the folder of segments, which hold archived records."""
        return "archive/"

    def entry(self, number: int) -> str:
        """Return the name of an entry."""
        return f"{number:0{self.digits}d}{self.suffix}"

    def snapshot(self, number: int) -> str:
        """Return the name of the snapshot as of an entry."""
        return self.fixed_snapshot or self.snapshots + self.entry(number)

    def base(self, number: int) -> str:
        """Return the name of the snapshot that replaces all entries up to this one, which are purged."""
        return self.bases + self.entry(number)

    def number(self, name: str) -> int | None:
        """Parse the number of an entry's name (without its folder); None for any other name."""
        digits = name.removesuffix(self.suffix)
        if re.fullmatch("[0-9]{1,20}", digits, re.ASCII) and int(digits) > 0 and name == self.entry(int(digits)):
            return int(digits)
        return None


ZED_NAMING = Naming(suffix=".zng", digits=1, fixed_snapshot="snap.zng")
"""N.zng, HEAD, TAIL and snap.zng, as in `zed` 1.7.0."""
