"""The rule by which old records of a journal leave its snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lake_core.journal.state import State


@dataclass(frozen=True, slots=True)
class ArchiveRule:
    """The rule by which records leave the snapshots of a journal."""

    prefix: str
    """Keys that start with it are archived. Nothing may update them, or add one again with another value."""
    pinned: Callable[[State], Iterable[str]]
    """Returns the keys that stay, because the other values of a state name them."""
    recent: int = 128
    """Records of so many of the newest entries stay."""
    at_once: str = ""
    """Keys that start with it are archived however new their records are. Empty for none."""
    batch: int = 256
    """Nothing is archived before so many records can be."""

    def old_keys(self, state: State) -> set[str]:
        """List the keys to archive: none if there are few."""
        last = state.number - self.recent
        keys = {
            key
            for key, record in state.loaded_records()
            if key.startswith(self.prefix)
            and (record.number <= last or (self.at_once and key.startswith(self.at_once)))
        }.difference(self.pinned(state))
        return keys if len(keys) >= self.batch else set()
