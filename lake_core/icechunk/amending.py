"""Amending: a new snapshot that takes the place of the newest one of its branch, in repositories of version 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.icechunk.errors import InvalidAmend
from lake_core.icechunk.identifier import encode_id

if TYPE_CHECKING:
    from lake_core.icechunk.asset_manager import AssetManager
    from lake_core.icechunk.transaction_log import TransactionLog


def amended_log(assets: AssetManager, snapshot_id: bytes) -> TransactionLog:
    """Return the transaction log of a snapshot that is to be replaced.

    Raises:
        UnsupportedSpecVersion: The repository is of version 1.
        InvalidAmend: The snapshot is the first one of the repository, or the repository is in a lake.
    """
    is_first = assets.layout.info().snapshot(snapshot_id).parent_id is None
    if is_first or assets.store.versioned:
        why = "the repository is in a lake" if assets.store.versioned else "it is the first snapshot"
        raise InvalidAmend(f"the commit {encode_id(snapshot_id)} cannot be replaced, because {why}: commit the changes")
    return assets.transaction_log(snapshot_id)
