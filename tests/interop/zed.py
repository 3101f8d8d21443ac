"""The command `zed`, versions 1.18 and 1.6, and the marks of the tests that run it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

VERSIONS = {version: os.environ.get(variable, "") for version, variable in (("1.18", "ZED_1_18"), ("1.6", "ZED_1_6"))}

needs_zed = [
    pytest.mark.interop,
    pytest.mark.skipif(
        not all(VERSIONS.values()),
        reason="ZED_1_18 and ZED_1_6 name no commands `zed` of these versions: run `make interop`",
    ),
    pytest.mark.parametrize("zed", VERSIONS.values(), ids=VERSIONS.keys()),
]


def run(zed: str, lake: Path, *arguments: str, text: str = "") -> list[str]:
    """Return the lines that a command of `zed` prints."""
    environment = {**os.environ, "ZED_LAKE": str(lake)}
    finished = subprocess.run(
        [zed, *arguments], input=text, env=environment, capture_output=True, check=True, timeout=60, text=True
    )
    return finished.stdout.splitlines()


def query(zed: str, lake: Path, text: str) -> list[str]:
    """Return the values that a query finds, as ZSON."""
    return run(zed, lake, "query", "-z", text)
