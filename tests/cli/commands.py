"""Running the command `lake` as a user types it, in this process."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner

from lake_core.cli import main


def run(root: str, *words: str, code: int = 0) -> str:
    """What a command prints, on both of its streams."""
    result = CliRunner().invoke(main, ["--lake", root, *words], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


def run_json(root: str, *words: str, code: int = 0) -> Any:
    """What a command prints with --json, read."""
    result = CliRunner().invoke(main, ["--lake", root, *words, "--json"], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)
