"""Names of the metadata of writes, for the UI, and the metadata of a receipt."""

from __future__ import annotations

from lake_core.workspace import STAGED, Receipt

STATE = "lake/state"
"""`published` if readers of the branch see the write. Absent for a staged write, which names its session instead."""
VISIBLE = "lake/visible"
"""When readers see a staged write, in words that stay true after the session is published or abandoned."""
BRANCH = "lake/branch"
COMMIT = "lake/commit"
SESSION = "lake/session"
PATH = "lake/path"
ROWS_WRITTEN = "lake/rows_written"
SKIPPED = "lake/skipped"
"""Whether an earlier attempt had written everything."""


def receipt_metadata(receipt: Receipt) -> dict[str, str | bool]:
    """Return the commit that published a write, or the session that it is staged in.

    Staged data becomes visible later or never, and its materialization is not changed then. So the metadata does not
    say that it is staged.
    """
    staged = receipt.state == STAGED
    metadata = {
        STATE: None if staged else receipt.state,
        VISIBLE: f"once session {receipt.session} is published: an observation of this asset then names the commit"
        if staged
        else None,
        BRANCH: receipt.branch,
        COMMIT: receipt.commit,
        SESSION: receipt.session,
        SKIPPED: True if receipt.skipped else None,
    }
    return {name: value for name, value in metadata.items() if value is not None}
