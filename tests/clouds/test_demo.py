"""`make demo LAKE_ROOT=…` in a bucket of each cloud, with nothing but environment variables."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from lake_core import Lake
from tests.clouds.servers import CloudServer
from tests.conftest import DEMO_SECONDS, ROOT

pytestmark = [pytest.mark.clouds, pytest.mark.spark, pytest.mark.timeout(4 * DEMO_SECONDS)]


def test_it_tells_its_story_in_a_bucket(cloud_server: CloudServer, tmp_path: Path) -> None:
    root = cloud_server.url(f"demo-{uuid.uuid4().hex}")
    (tmp_path / "home").mkdir()
    shutil.copy(ROOT / ".dagster" / "dagster.yaml", tmp_path / "home")
    environment = {
        **os.environ,
        **cloud_server.environment,
        "LAKE_ROOT": root,
        "LAKE_LANDING": str(tmp_path / "landing"),
        "DAGSTER_HOME": str(tmp_path / "home"),
    }
    demo = subprocess.run(
        [sys.executable, "-m", "example_pipelines.flights.demo"],
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert demo.returncode == 0, demo.stdout
    assert "every flight that left, once" in demo.stdout
    lake = Lake.open(root, storage_options=cloud_server.storage_options)
    assert lake.delta("tables/flights").txn_version("landing/flights") == 12
