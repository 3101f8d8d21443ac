"""What is said of writes, in the log and in metadata."""

from __future__ import annotations

from typing import Any

from lake_core.workspace import STAGED, Receipt
from lake_orch.assets.description import Markdown
from lake_orch.tags import READ_WITH


def read_with(commit: str | None, path: str, code: str) -> dict[str, Any]:
    """Return Python code that reads a dataset as of a commit, as metadata. Empty if nothing is published."""
    return {} if commit is None else {READ_WITH: Markdown(f"`{code.format(commit=commit[:12], path=path)}`")}


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
