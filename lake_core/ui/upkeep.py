"""What maintenance would do. The pages themselves delete and repair nothing.

The first page shows what the refs say, and what was found when somebody or it looked last, with its time. It looks at
some more datasets at each visit, until all are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lake_core.errors import NotFound
from lake_core.lake.gc.verified import RECORD
from lake_core.lake.refs.pending_deletions import PREFIX, unfinished
from lake_core.lake.refs.session_record import FAILED, OPEN
from lake_core.ui.errors import InvalidRequest
from lake_core.ui.page import Page
from lake_core.ui.upkeep_memory import Found

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lake_core.ui.visit import Visit

_MOST_SHOWN = 200
FIRST_PAGE_SECONDS = 0.1
"""How long the first page looks at datasets."""
_LOOK_SECONDS = 20.0
"""How long the page of upkeep does, if it is asked to."""
CHECKS = ("gc", "verify", "datasets")


def upkeep_of(visit: Visit, pending: Sequence[str], seconds: float | None = None) -> dict[str, Any]:
    """Return what is known cheaply of the maintenance of a lake, and what was found last.

    It looks at datasets for some seconds, by default as long as the first page does.
    """
    now, refs = visit.lake.repository.clock(), visit.refs
    over = [record for record in refs.sessions() if record.state in (OPEN, FAILED) and record.expires <= now]
    head = refs.branch(visit.lake.repository.format.branch)
    seconds = FIRST_PAGE_SECONDS if seconds is None else seconds
    return {
        "pending": pending,
        "look": visit.site.upkeep.look(refs, head, visit.revision(head).state, now, seconds),
        "over": [record.id for record in over],
        "collecting": [id for id in refs.under(PREFIX) if unfinished(refs, id) is not None],
        "garbage": visit.site.upkeep.garbage,
        "damage": visit.site.upkeep.damage,
    }


def upkeep_page(visit: Visit) -> Page:
    """Show the settings of the lake, and on request what a collection would delete, or what is damaged or due."""
    check, memory, clock = visit.get("check"), visit.site.upkeep, visit.lake.repository.clock
    if check and check not in CHECKS:
        raise InvalidRequest(f"check must be one of {', '.join(CHECKS)}")
    collected = visit.lake.maintenance.gc(dry_run=True) if check == "gc" else None
    if collected is not None:
        memory.garbage = Found(clock(), len(collected.keys), collected.bytes, collected.commits)
    problems = visit.lake.maintenance.verify(hashes=False) if check == "verify" else None
    if problems is not None:
        memory.damage = Found(clock(), len(problems))
    settings = visit.lake.settings
    seconds = _LOOK_SECONDS if check == "datasets" else None
    values: dict[str, Any] = {
        "check": check,
        "collected": collected,
        "problems": problems,
        "most_shown": _MOST_SHOWN,
        "upkeep": upkeep_of(visit, visit.lake.status().pending_checkout, seconds),
        "verified": _verified(visit),
        "history_days": settings.history.total_seconds() / 86_400,
        "isolation": settings.isolation,
        "protected": sorted(visit.refs.under("protect/")),
        "lake_format": visit.lake.repository.format,
        "entries": visit.refs.number,
    }
    return Page("upkeep.html", values, problems if collected is None else collected)


def _verified(visit: Visit) -> datetime | None:
    """Return when `lake verify` read content last, if it has left its record."""
    try:
        return visit.lake.repository.root.head(RECORD).last_modified
    except NotFound:
        return None
