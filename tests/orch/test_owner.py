"""A table knows the asset that made it: no other asset replaces its rows unless its definition says so."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_orch import DeltaIOManager, InvalidDefinition, LakeResource, TableOwned
from lake_orch.assets.owner import Owner
from lake_orch.assets.tables.owner import claim

ROWS = pa.table({"id": [1, 2], "v": [10, 20]})
OTHER = pa.table({"id": [7], "v": [70]})
PATH = "tables/customers"


def write(root: str, asset: str, rows: pa.Table, **metadata: Any) -> None:
    lake = LakeResource(root=root)

    @dg.asset(key=asset.split("/"), metadata={"lake/path": PATH, **metadata})
    def customers() -> pa.Table:
        return rows

    dg.materialize([customers], resources={"io_manager": DeltaIOManager(lake=lake)})


def ids(root: str) -> list[int]:
    return sorted(DeltaTable(f"{root}/{PATH}").to_arrow()["id"].to_pylist())


@pytest.mark.parametrize("in_lake", [False, True])
@pytest.mark.parametrize("metadata", [{}, {"lake/mode": "overwrite_partitions", "lake/partition_by": ["id"]}])
def test_another_asset_does_not_replace_rows(root: str, in_lake: bool, metadata: dict[str, Any]) -> None:
    if in_lake:
        Lake.create(root)
    write(root, "crm/customers", ROWS, **metadata)
    with pytest.raises(
        TableOwned, match=r"was made by asset crm/customers, and asset shop/customers would replace its rows"
    ):
        write(root, "shop/customers", OTHER, **metadata)
    assert ids(root) == [1, 2]


def test_its_own_asset_replaces_rows_without_a_further_commit(root: str) -> None:
    write(root, "customers", ROWS)
    write(root, "customers", OTHER)
    assert ids(root) == [7]
    assert DeltaTable(f"{root}/{PATH}").version == 2


@pytest.mark.parametrize(
    "metadata", [{"lake/mode": "append"}, {"lake/merge": ["id"]}, {"lake/replace_where": "id >= 7"}]
)
def test_another_asset_adds_rows_of_its_own(root: str, metadata: dict[str, Any]) -> None:
    write(root, "customers", ROWS)
    write(root, "others", OTHER, **metadata)
    assert ids(root) == [1, 2, 7]


def test_a_table_is_taken_over_where_that_is_asked_for(root: str) -> None:
    write(root, "customers", ROWS)
    write(root, "clients", OTHER, **{"lake/owner": "take"})
    write(root, "clients", ROWS)
    with pytest.raises(TableOwned, match="was made by asset clients"):
        write(root, "customers", OTHER)
    assert ids(root) == [1, 2]


def test_a_table_is_shared_where_that_is_asked_for(root: str) -> None:
    write(root, "customers", ROWS)
    write(root, "clients", OTHER, **{"lake/owner": "shared"})
    assert ids(root) == [7]
    assert Owner.of_properties(DeltaTable(f"{root}/{PATH}").properties) == Owner("customers")


def test_a_table_that_was_made_by_hand_has_no_owner(root: str) -> None:
    DeltaTable.create(f"{root}/{PATH}", ROWS.schema)
    for asset in ("customers", "clients"):
        write(root, asset, ROWS)
    assert Owner.of_properties(DeltaTable(f"{root}/{PATH}").properties) is None


@pytest.mark.parametrize(
    ("first", "second", "is_other"),
    [("a", "b", True), ("a", "a", False), (None, "b", False), ("a", None, False), (None, None, False)],
)
def test_code_locations_are_told_apart_where_both_are_known(
    root: str, first: str | None, second: str | None, is_other: bool
) -> None:
    table = DeltaTable.create(f"{root}/{PATH}", ROWS.schema, properties=dict(Owner("customers", first).properties))
    if not is_other:
        claim(table, Owner("customers", second), "keep", replaces_rows=True)
        return
    with pytest.raises(
        TableOwned, match="asset customers of code location 'a', and asset customers of code location 'b'"
    ):
        claim(table, Owner("customers", second), "keep", replaces_rows=True)


def test_what_the_metadata_says_of_the_owner_is_checked(root: str) -> None:
    with pytest.raises(InvalidDefinition, match="lake/owner of asset customers is 'me': use one of keep, take, shared"):
        write(root, "customers", ROWS, **{"lake/owner": "me"})


def test_another_asset_does_not_replace_rows_by_hand(root: str) -> None:
    write(root, "customers", ROWS)

    @dg.asset(metadata={"lake/path": PATH})
    def others(context: dg.AssetExecutionContext, lake: LakeResource) -> None:
        lake.table(context).overwrite(OTHER)

    with pytest.raises(TableOwned, match="asset others would replace its rows"):
        dg.materialize([others], resources={"lake": LakeResource(root=root)})
    assert ids(root) == [1, 2]


def test_a_table_that_an_asset_makes_by_hand_knows_it(root: str) -> None:
    @dg.asset(metadata={"lake/path": PATH})
    def customers(context: dg.AssetExecutionContext, lake: LakeResource) -> None:
        lake.table(context).append(ROWS)

    dg.materialize([customers], resources={"lake": LakeResource(root=root)})
    with pytest.raises(TableOwned):
        write(root, "others", OTHER)
