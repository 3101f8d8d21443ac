"""Lakes: transactions over a bucket with no database and no server, over many datasets that publish together."""

from __future__ import annotations

from lake_core.lake.lake import Difference, Lake, Status
from lake_core.lake.session import Part, Published, Session, SessionHandle

__all__ = ["Difference", "Lake", "Part", "Published", "Session", "SessionHandle", "Status"]
