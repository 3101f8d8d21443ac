"""What a code location and its steps import: each step of a run is a process that waits for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.imports import HEAVY, imported

_UNUSED = (
    *(name for name in HEAVY if name not in ("dagster", "rich")),  # Dagster itself imports rich
    "lake_core.icechunk",
    "lake_core.pool.types",
    "lake_core.delta.operations.merge",
    "lake_core.delta.operations.vacuum",
    "dagster._core.execution.backfill",
)


@pytest.mark.parametrize(
    ("names", "also_unused"),
    [
        ("DeltaIOManager, LakeResource, lake_executor", ("pyarrow", "numpy", "lake_core.delta.table")),
        ("LakeResource", ("lake_orch.io_managers.delta", "lake_orch.jobs.executor")),
        ("FileIOManager", ("pyarrow", "numpy", "lake_core.delta.table")),
        ("lake_session_sensors, lake_eager", ("lake_orch.io_managers.delta",)),
        ("LakeOrchError", ("pyarrow", "lake_core.delta.table", "lake_core.lake.lake")),
    ],
)
def test_a_code_location_imports_what_it_uses(names: str, also_unused: tuple[str, ...]) -> None:
    assert imported(f"from lake_orch import {names}", (*_UNUSED, *also_unused)) == []


_STEPS = """
import dagster as dg
import pyarrow as pa
from lake_core import Lake
from lake_orch import DeltaIOManager, LakeResource, testing

ROWS = pa.Table.from_arrays([pa.nulls(3, pa.int64())], ["id"])

@dg.asset
def orders() -> pa.Table:
    return ROWS

@dg.asset
def cleaned(orders: pa.Table) -> pa.Table:
    return orders

if {lake}:
    Lake.create({root!r})
lake = LakeResource(root={root!r})
resources = {{"io_manager": DeltaIOManager(lake=lake), "lake": lake}}
materialize = testing.materialize if {lake} else dg.materialize
with dg.DagsterInstance.ephemeral() as instance:
    for _ in range(2):
        assert materialize([orders, cleaned], instance=instance, resources=resources).success
"""


@pytest.mark.parametrize("lake", [True, False])
def test_a_step_that_writes_and_reads_a_table_imports_no_pandas(tmp_path: Path, lake: bool) -> None:
    # PyArrow imports it at the first `pa.array`, `pa.scalar` or `Schema.empty_table`: 0.2 s in each step.
    unused = tuple(name for name in _UNUSED if not name.startswith("dagster"))
    assert imported(_STEPS.format(root=str(tmp_path / "lake"), lake=lake), unused) == []


@pytest.mark.parametrize("module", ["assets.tables", "assets.arrays", "assets.pools"])
def test_the_lane_of_a_format_imports_no_orchestrator(module: str) -> None:
    assert imported(f"import lake_orch.{module}.asset_format", ("dagster", "dagster_shared")) == []


def test_runs_import_no_orchestrator() -> None:
    assert imported("import lake_orch.runs.run", ("dagster", "dagster_shared")) == []
