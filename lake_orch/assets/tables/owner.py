"""The owner of a table: the asset that its properties name."""

from __future__ import annotations

from lake_core.delta import DeltaTable
from lake_orch.assets.owner import LOCATION, PARTITIONED, Owner, check_partitions, owned
from lake_orch.definition_metadata import Ownership


def claim(
    table: DeltaTable, writer: Owner | None, ownership: Ownership, *, replaces_rows: bool, replaces_all: bool = False
) -> None:
    """Make an asset the owner of the table if it takes it over. Otherwise, check that the asset may replace its rows.

    Raises TableOwned for an asset that would replace the rows of another asset, or all partitions, of which it has none
    any more (`replaces_all`).
    """
    if writer is None or ownership == "shared":
        return
    if ownership == "take":
        _take(table, writer)
    elif replaces_rows:
        _check(table, writer, replaces_all=replaces_all)


def _check(table: DeltaTable, writer: Owner, *, replaces_all: bool) -> None:
    owner = Owner.of_properties(table.properties)
    if owner is not None and owner.is_other(writer):
        raise owned(f"the table {table.store.url()}", owner, writer, "its rows")
    if owner is not None and replaces_all:
        check_partitions(f"the table {table.store.url()}", owner, writer)


def _take(table: DeltaTable, owner: Owner) -> None:
    if not owner.properties.items() <= table.properties.items():
        table.set_properties(owner.properties)
        gone = [name for name in (LOCATION, PARTITIONED) if name in table.properties and name not in owner.properties]
        if gone:
            table.unset_properties(gone)
