"""A lake as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lake_core.lake import Lake


def status_report(lake: Lake) -> dict[str, Any]:
    """Return the summary of a lake, and the datasets of main."""
    return {"status": lake.status(), "datasets": lake.list_datasets()}
