"""The command `lake-orch`: manages the sessions of a Dagster instance's runs from a shell, without a daemon or UI.

Exit codes are those of the command `lake`: 0 success, 1 refused or failed, 2 wrong usage, 3 conflict.
"""

from __future__ import annotations

from lake_orch.cli.main import main

__all__ = ["main"]
