"""Transaction identifiers: the application id and version of a write, by which a repeated write is recognized.

Protocol section: Transaction Identifiers.

They are checked by `DeltaTable` before it writes, by `conflict` if another writer committed first, and by
`apply_difference` when a lake publishes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.delta.action import Metadata, SetTransaction
from lake_core.delta.errors import InvalidTransaction
from lake_core.delta.properties import transaction_retention_ms
from lake_core.txn import Txn, check_txn

if TYPE_CHECKING:
    from lake_core.delta.snapshot import Snapshot

NEVER = -1
"""The version of a txn action that was set back to the state before its first write."""


def set_transaction(txn: Txn, now: int | None) -> SetTransaction:
    """Return the txn action of a `txn`. `now`: milliseconds since the epoch. Raises InvalidTransaction."""
    check_txn(txn, InvalidTransaction)
    app_id, version = txn
    return SetTransaction(app_id, version, now)


def recorded_version(snapshot: Snapshot, app_id: str, now: int) -> int | None:
    """Return the version that an application recorded last, or None if it has expired or there is none.

    `now` is in milliseconds since the epoch.
    """
    marker = snapshot.transaction(app_id)
    return None if marker is None or is_expired(marker.last_updated, snapshot.metadata, now) else marker.version


def is_expired(last_updated: int | None, metadata: Metadata, now: int) -> bool:
    """Return whether a txn action of this time (ms since the epoch) has expired.

    `delta.setTransactionRetentionDuration` sets when it does.
    """
    retention = transaction_retention_ms(metadata.configuration)
    return retention is not None and last_updated is not None and last_updated <= now - retention
