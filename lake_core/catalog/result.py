"""The result of a sync."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lake_core.catalog.errors import TablesRefused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lake_core.catalog.plan import Refusal


@dataclass(frozen=True, slots=True)
class SyncedTable:
    """A change that a sync made in the catalog, or would make."""

    action: str
    """`create`, `update` or `drop`."""
    name: str
    """The table's name in the catalog."""
    path: str
    """Its path in the lake."""
    changed: tuple[str, ...] = ()
    """What an update changes: `schema`, `location`, `path`, or `version` if the table only has a new version."""


@dataclass(frozen=True, slots=True)
class Synced:
    """The result of syncing a branch to a schema."""

    branch: str
    schema: str
    commit: str
    """The head of the branch that the catalog shows now. Empty if the branch was deleted."""
    tables: Sequence[SyncedTable] = ()
    """The changes."""
    unchanged: int = 0
    """The number of tables that the catalog had as they are."""
    refused: Sequence[Refusal] = ()
    """The tables that were left as they are, each with the reason."""
    later: Sequence[str] = ()
    """The names of tables that a sync of a later commit has written."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Datasets that are no tables, by path, with their formats."""
    unused_names: Sequence[str] = ()
    """Paths for which a name was chosen, and at which there is no table."""

    def check(self) -> None:
        """Raise TablesRefused if a table was refused."""
        if self.refused:
            lines = "".join(f"\n- {each.reason}" for each in self.refused)
            raise TablesRefused(f"these tables are not registered in {self.schema!r}, or not as they are:{lines}")
