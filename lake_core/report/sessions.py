"""Shared sessions as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lake_core.report.values import plain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lake_core.lake.refs.session_record import SessionRecord


def session_rows(records: Iterable[SessionRecord]) -> list[dict[str, Any]]:
    """Return sessions as rows, with the number of their batches."""
    return [
        plain(record)
        | {"session": record.id, "opened": record.opened, "expires": record.expires, "batches": len(record.batches)}
        for record in records
    ]
