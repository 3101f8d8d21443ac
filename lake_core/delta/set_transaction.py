"""Markers: the (application id, version) pair by which a repeated write is recognised. Protocol section: Transaction Identifiers.

Who asks: `DeltaTable` before it writes, `conflict` when another writer's commit came first, `apply_difference` when a lake publishes.
"""

from __future__ import annotations

from typing import TypeAlias

from lake_core.delta.action import Metadata, SetTransaction
from lake_core.delta.errors import InvalidTransaction
from lake_core.delta.properties import transaction_retention_ms
from lake_core.delta.snapshot import Snapshot

Txn: TypeAlias = tuple[str, int]
"""(application id, version): a write that finds this version or a later one recorded does nothing."""

NEVER = -1
"""The version of a marker that was taken back to before it was set."""


def check_transaction(txn: Txn | None) -> None:
    """Raise InvalidTransaction unless `txn` is None or a pair of an application id and a version."""
    if txn is not None:
        set_transaction(txn, None)


def set_transaction(txn: Txn, now: int | None) -> SetTransaction:
    """Return a marker as an action. `now`: milliseconds since the epoch. Raises InvalidTransaction."""
    try:
        app_id, version = txn
    except (TypeError, ValueError):
        raise InvalidTransaction(f"txn is an (application id, version) pair, not {txn!r}") from None
    if not isinstance(app_id, str) or not app_id or not _is_unicode(app_id):
        raise InvalidTransaction(f"the application id of a txn is non-empty text, not {app_id!r}")
    if not isinstance(version, int) or isinstance(version, bool) or not 0 <= version < 2**63:
        raise InvalidTransaction(f"the version of a txn is a whole number from 0 up, not {version!r}")
    return SetTransaction(app_id, version, now)


def recorded_version(snapshot: Snapshot, app_id: str, now: int) -> int | None:
    """Return the version that an application recorded last, None if it has expired. `now`: milliseconds since the epoch."""
    marker = snapshot.transaction(app_id)
    return None if marker is None or is_expired(marker.last_updated, snapshot.metadata, now) else marker.version


def is_expired(last_updated: int | None, metadata: Metadata, now: int) -> bool:
    """Return whether a marker set at this time (milliseconds since the epoch) has expired, by `delta.setTransactionRetentionDuration`."""
    retention = transaction_retention_ms(metadata.configuration)
    return retention is not None and last_updated is not None and last_updated <= now - retention


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True
