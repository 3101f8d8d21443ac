"""What a user is told who has not installed the extra `arrays`."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT_XARRAY = """
import importlib.util, sys
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *package: None if name == "xarray" else find_spec(name, *package)
sys.modules["xarray"] = None
try:
    {code}
except ModuleNotFoundError as error:
    print(error)
"""


@pytest.mark.parametrize(
    "code",
    [
        "from lake_core.icechunk import Repository",
        pytest.param("from lake_orch import IcechunkIOManager", marks=pytest.mark.extended),
        "from lake_core.spark import read_array",
    ],
)
def test_the_error_names_what_to_install(code: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", WITHOUT_XARRAY.format(code=code)], capture_output=True, text=True, timeout=120
    )
    message = (
        "arrays need the package xarray, which is not installed: install it with `pip install 'lake-orch[arrays]'`\n"
    )
    assert process.stdout == message, process.stderr
