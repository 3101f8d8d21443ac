"""The command `lake`: look at a lake and its history, publish, merge and maintain it from a shell.

Exit codes: 0 success, 1 refused or failed, 2 wrong usage, 3 conflict, 4 problems found (`verify`, `doctor`).
"""

from __future__ import annotations

from lake_core.cli.main import main

__all__ = ["main"]
