"""Errors as the JSON that commands and pages show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lake_core.lake.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Mapping


def refusal_row(error: Exception, remedy: str = "") -> Mapping[str, Any]:
    """Return an error with its kind; a conflict with what conflicts, and with `remedy` in the place of its own."""
    kind = type(error).__name__
    if not isinstance(error, Conflict):
        return {"error": str(error), "kind": kind}
    return {
        "error": error.explanation,
        "kind": kind,
        "remedy": remedy or error.remedy,
        "kinds": error.kinds,
        "commit": error.commit,
        "session": error.session,
        "contradictions": error.contradictions,
    }
