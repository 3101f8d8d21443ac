"""Lakes: transactions over the datasets and files of a bucket, with no database and no server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from lake_core.lake.lake import Lake, Status
    from lake_core.lake.publish.comparison import ChangedKey
    from lake_core.lake.publish.published import Published
    from lake_core.lake.session.private_session import Session
    from lake_core.lake.session.session_writer import SessionWriter
    from lake_core.lake.session.shared_session import SharedSession

__all__ = ["ChangedKey", "Lake", "Published", "Session", "SessionWriter", "SharedSession", "Status"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "ChangedKey": ".publish.comparison",
        "Lake": ".lake",
        "Published": ".publish.published",
        "Session": ".session.private_session",
        "SessionWriter": ".session.session_writer",
        "SharedSession": ".session.shared_session",
        "Status": ".lake",
    },
)
