"""docs/migration.md and docs/how-to/from-deltalake.md: tables stay where they are, and calls are what they were."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import dagster as dg
import deltalake
import pyarrow as pa
import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from tests.docs.blocks import DOCS, run_blocks

SCHEMA = pa.schema([("day", pa.date32()), ("id", pa.int64())])


def test_a_table_that_stands_is_written_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = DeltaTable.create("warehouse/sales/orders", SCHEMA, partition_by=["day"])
    before.append(pa.table([[date(2024, 1, 1), date(2024, 1, 2)], [7, 8]], schema=SCHEMA))
    names = run_blocks("migration.md")
    defs: dg.Definitions = names["defs"]
    job = defs.resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(partition_key="2024-01-01").success
    for table in (DeltaTable.open("warehouse/sales/orders"), Lake.open("warehouse").delta("sales/orders")):
        assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 8]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("upsert", {1: "old", 2: "new", 3: "new"}),
        ("deduplicate_insert", {1: "old", 2: "old", 3: "new"}),
        ("update_only", {1: "old", 2: "new"}),
        ("replace_delete_unmatched", {2: "new", 3: "new"}),
    ],
)
def test_merges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, expected: dict[int, str]) -> None:
    monkeypatch.chdir(tmp_path)
    DeltaTable.create("warehouse/sales/orders", SCHEMA)
    rows = pa.table({"id": [1, 2], "from": ["old", "old"]})
    DeltaTable.create(f"warehouse/tables/{kind}", rows.schema).append(rows)
    names = run_blocks("migration.md")
    with Lake.open("warehouse").session() as session:
        session.import_delta(f"tables/{kind}")
    assert dg.materialize(
        [names["merged"](kind)], resources={"io_manager": names["defs"].resources["io_manager"]}
    ).success
    result = Lake.open("warehouse").delta(f"tables/{kind}").to_arrow()
    assert dict(zip(result["id"].to_pylist(), result["from"].to_pylist(), strict=True)) == expected


def test_what_deltalake_users_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_blocks("how-to/from-deltalake.md")
    prices = deltalake.DeltaTable("orders").to_pyarrow_table().select(["id", "price"]).sort_by("id")
    assert prices.to_pydict() == {"id": [1, 2], "price": [1.0, 4.0]}


def test_the_names_of_both_packages_are_right() -> None:
    """Each row names calls of deltalake first, then those of this package."""
    lines = (DOCS / "how-to" / "from-deltalake.md").read_text().splitlines()
    cells = [line.strip("|").split(" | ") for line in lines if line.startswith("| `")]
    assert len(cells) >= 15
    theirs = {*dir(deltalake), *dir(deltalake.DeltaTable), "compact", "z_order"}
    theirs |= {*dir(deltalake.table.TableAlterer), "app_transactions"}
    for left, right in cells:
        called = re.findall(r"`(?:alter\.|optimize\.)?(\w+)\(", left) + re.findall(r"commit_properties=(\w+)\(", left)
        assert set(called) <= theirs, left
        assert set(re.findall(r"`(?:DeltaTable\.)?(?:\w+\(.*?\)\.)?(\w+)\(", right)) <= {*dir(DeltaTable)}, right
