"""An instance and a lake for the tests of sessions, and an IO manager on plain tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lake_orch import DeltaIOManager, LakeResource
from tests.orch.session_bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    with dg.DagsterInstance.from_config(str(tmp_path / "home")) as instance:
        yield Bench(tmp_path, instance)


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


@pytest.fixture
def resources(root: str) -> dict[str, Any]:
    lake = LakeResource(root=root)
    return {"lake": lake, "io_manager": DeltaIOManager(lake=lake)}
