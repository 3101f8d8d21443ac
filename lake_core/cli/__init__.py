"""The command `lake`: what a lake is and was, its tables and files, merges, and its upkeep, from a shell.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 conflict, 4 something was found wrong (`verify`, `doctor`).
"""

from __future__ import annotations

from lake_core.cli.main import main

__all__ = ["main"]
