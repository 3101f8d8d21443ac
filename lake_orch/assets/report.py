"""Lines for the log about writes."""

from __future__ import annotations

from lake_core.workspace import STAGED, Receipt


def describe_write(size: str, url: str, version: str, receipt: Receipt | None, *, skipped: bool) -> str:
    """Describe a write for the log.

    Args:
        size: What was written, such as `3 records (120 B)`.
        url: Where it was written.
        version: The state that contains it, such as `commit …`.
        receipt: The receipt of a write to a lake.
        skipped: An earlier attempt wrote it.
    """
    if skipped:
        return f"an earlier attempt committed it to {url}: nothing written"
    if receipt is not None and receipt.state == STAGED:
        return f"{size} staged for {url}, to be published with session {receipt.session}"
    return f"{size} to {url}, {version}"
