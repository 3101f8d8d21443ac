"""Reads a journal that has one snapshot, which every writer overwrites, as those of the Zed lake format do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.journal.reader import Reader, Start

if TYPE_CHECKING:
    from collections.abc import Sequence


class SingleSnapshotReader(Reader):
    """A reader that learns the number of the snapshot only by reading it."""

    __slots__ = ()

    def snapshots(self) -> list[tuple[int, str]]:
        """Return nothing: the snapshot need not be listed."""
        return []

    def start(self, floor: int, until: int | None, snapshots: Sequence[tuple[int, str]], hint: int) -> Start:
        """Read the snapshot. If it is older than `floor` or newer than `until`, read what replaces purged entries."""
        state = self.snapshot(self.prefix + self.naming.snapshot(floor))
        if state is None or state.number < floor or (until is not None and state.number > until):
            state = self.base(floor)
        return Start(state, self.tail(), is_end=state is not None and state.number == until)
