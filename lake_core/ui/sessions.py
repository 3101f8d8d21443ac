"""The pages of shared sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lake_core.errors import LakeError
from lake_core.report.commits import run_of
from lake_core.report.sessions import session_rows
from lake_core.ui.commit import changes_of
from lake_core.ui.home import session_entry, state_of
from lake_core.ui.page import Page

if TYPE_CHECKING:
    from lake_core.ui.visit import Visit

_PAGE = 50


def sessions_page(visit: Visit) -> Page:
    """List the sessions that are open or failed, or all of them."""
    everything = visit.flag("all")
    records = visit.lake.list_sessions(include_ended=everything)
    number = visit.number("page", 1, 1, 100_000)
    newest = records[::-1]
    shown = newest[(number - 1) * _PAGE : number * _PAGE]
    return Page(
        "sessions.html",
        {
            "entries": [session_entry(visit, record) for record in shown],
            "everything": everything,
            "number": number,
            "has_more": len(newest) > number * _PAGE,
        },
        session_rows(records),
    )


def session_page(visit: Visit) -> Page:
    """Show a session: what it holds, who wrote it, and until when it is kept."""
    record = visit.refs.session(visit.path["id"])
    values: dict[str, Any] = {"paths": [], "files": [], "changes": [], "pages": 1, "problem": "", "base": None}
    number = visit.number("page", 1, 1, 100_000)
    try:
        base = visit.revision(record.base)
        values |= changes_of(visit, base, visit.revision(record.id), number) | {"base": base}
    except LakeError as error:
        values["problem"] = str(error)
    head = visit.refs.branches().get(record.branch)
    return Page(
        "session.html",
        values
        | {
            "record": record,
            "state": state_of(visit, record),
            "batches": visit.refs.batches(record),
            "run": run_of(record.metadata),
            "run_url": visit.settings.run_url(record.metadata),
            "head": head,
            "number": number,
        },
        None,
    )
