"""The page of maintenance: what it would do. The page itself deletes and repairs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lake_core.ui.errors import InvalidRequest
from lake_core.ui.page import Page

if TYPE_CHECKING:
    from lake_core.ui.visit import Visit

_MOST_SHOWN = 200


def upkeep_page(visit: Visit) -> Page:
    """Show the settings of the lake, and on request what a collection would delete, or what is damaged."""
    check = visit.get("check")
    collected = visit.lake.maintenance.gc(dry_run=True) if check == "gc" else None
    problems = visit.lake.maintenance.verify(hashes=False) if check == "verify" else None
    if check not in ("", "gc", "verify"):
        raise InvalidRequest("check must be gc or verify")
    settings = visit.lake.settings
    values: dict[str, Any] = {
        "check": check,
        "collected": collected,
        "problems": problems,
        "most_shown": _MOST_SHOWN,
        "pending": visit.lake.status().pending_checkout,
        "history_days": settings.history.total_seconds() / 86_400,
        "isolation": settings.isolation,
        "protected": sorted(visit.refs.under("protect/")),
        "lake_format": visit.lake.repository.format,
        "entries": visit.refs.number,
    }
    return Page("upkeep.html", values, problems if collected is None else collected)
