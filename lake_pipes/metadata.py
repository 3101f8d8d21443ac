"""What the UI shows of a write by whatever process: names of metadata, and what a receipt says under them."""

from __future__ import annotations

from lake_core.workspace import STAGED, Receipt

STATE = "lake/state"
"""`published`: readers of the branch see it. Never said of what a run has staged, which names its session instead."""
VISIBLE = "lake/visible"
"""When readers see what a run has staged, in words that stay true whatever becomes of the run."""
BRANCH = "lake/branch"
COMMIT = "lake/commit"
SESSION = "lake/session"
PATH = "lake/path"
ROWS_WRITTEN = "lake/rows_written"
SKIPPED = "lake/skipped"
"""Whether an earlier attempt had written it all."""


def receipt_metadata(receipt: Receipt) -> dict[str, str]:
    """Return where a write went: published in which commit, or staged in which session.

    What is staged becomes visible later or never, and a materialization is not changed then. So nothing here says that it is staged.
    """
    staged = receipt.state == STAGED
    metadata = {
        STATE: None if staged else receipt.state,
        VISIBLE: f"once session {receipt.session} is published: an observation of this asset then names the commit" if staged else None,
        BRANCH: receipt.branch,
        COMMIT: receipt.commit,
        SESSION: receipt.session,
    }
    return {name: value for name, value in metadata.items() if value is not None}
