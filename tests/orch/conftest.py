"""An instance and a lake for the tests of sessions, an IO manager on plain tables, and instances made quickly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from lake_orch import DeltaIOManager, LakeResource
from tests.orch.session_bench import Bench


@pytest.fixture(scope="session", autouse=True)
def _read_migrations_once() -> Iterator[None]:
    """Read Dagster's migration scripts once.

    Each instance and each run would load all of them to stamp the newest revision.
    """
    folders: dict[str | None, ScriptDirectory] = {}
    read = ScriptDirectory.from_config

    def read_once(config: Config) -> ScriptDirectory:
        folder = config.get_main_option("script_location")
        if folder not in folders:
            folders[folder] = read(config)
        return folders[folder]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", staticmethod(read_once))
        yield


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A lake and an instance in memory, for runs in this process."""
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        yield Bench(tmp_path, instance)


@pytest.fixture
def bench_on_disk(tmp_path: Path) -> Iterator[Bench]:
    """A lake and an instance on disk, for what other processes read."""
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
