"""What the server loads: the first page takes little memory, and nothing is taken away from other code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

_VISIT = """
import sys
import pyarrow as pa
from starlette.testclient import TestClient
from lake_core import Lake
from lake_core.ui.app import create_app
from lake_core.ui.server import leave_pandas_out
from lake_core.ui.settings import PageSettings

if sys.argv[2] == "without":
    leave_pandas_out()
client = TestClient(create_app(Lake.open(sys.argv[1]), PageSettings()), base_url="http://127.0.0.1")
for address in ("/", "/history?ref=*", "/dataset/tables/orders", "/commit/main"):
    assert client.get(address).status_code == 200
print("pandas" in sys.modules)
print(pa.table({"a": [1]}).to_pandas().shape, "pandas" in sys.modules)
"""


@pytest.mark.parametrize("server", ["without", "with"])
def test_pages_do_not_load_pandas_and_others_still_can(built: Path, server: str) -> None:
    command = [sys.executable, "-c", _VISIT, str(built), server]
    visit = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    # Without the measure, pyarrow loads it: else the measure is not needed any more.
    assert visit.stdout.splitlines() == [str(server == "with"), "(1, 1) True"]
