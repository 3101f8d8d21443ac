"""The page on what things cost: its executors run steps in one session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lake_core import Lake
from tests.docs.blocks import blocks

_ASSETS = """
import os
import dagster as dg
import pyarrow as pa
from lake_orch import DeltaIOManager, LakeResource

@dg.asset
def orders() -> pa.Table:
    return pa.table({"id": [1, 2]})

@dg.asset
def cleaned(orders: pa.Table) -> pa.Table:
    return orders

lake = LakeResource(root=os.environ["ROOT"])
resources = {"lake": lake, "io_manager": DeltaIOManager(lake=lake)}
"""


@pytest.mark.parametrize("executor", ["small_assets", pytest.param("forked_steps", marks=pytest.mark.extended)])
def test_executors_for_small_assets_publish_one_session(tmp_path: Path, executor: str) -> None:
    lake = Lake.create(tmp_path / "lake")
    (example,) = blocks("performance.md")
    definitions = f"defs = dg.Definitions(assets=[orders, cleaned], resources=resources, executor={executor})\n"
    (tmp_path / "definitions.py").write_text(_ASSETS + example.code + definitions)
    dagster = Path(sys.executable).with_name("dagster")
    command = [dagster, "asset", "materialize", "-f", tmp_path / "definitions.py", "--select", "*"]
    environment = {**os.environ, "DAGSTER_HOME": str(tmp_path), "ROOT": str(tmp_path / "lake")}
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert finished.returncode == 0, finished.stderr
    assert lake.delta("tables/cleaned").to_arrow()["id"].to_pylist() == [1, 2]
    assert len(lake.log()) == 2, "the lake's first commit, and that of the session"
