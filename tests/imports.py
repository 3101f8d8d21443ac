"""What a program imports."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("pandas", "polars", "sqlglot", "duckdb", "zarr", "xarray", "obstore", "fsspec", "dagster", "pyspark", "rich")
"""Packages that take long to import."""


def imported(program: str, modules: tuple[str, ...]) -> list[str]:
    """Return those of the modules that a program imports."""
    check = f"{program}\nimport sys\nprint(*[name for name in {modules!r} if name in sys.modules], file=sys.stderr)"
    process = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    return process.stderr.splitlines()[-1].split()  # Dagster logs above it
