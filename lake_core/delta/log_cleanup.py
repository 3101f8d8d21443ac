"""Log clean-up: commits and checkpoints that no version within the retention needs are deleted.

Rules: the cutoff is midnight (UTC) before now less `delta.logRetentionDuration`. The newest checkpoint whose version was committed
at or before it stays, with its commit and everything after; without such a checkpoint nothing goes. Sidecars that no checkpoint
names go a day after they were written. Protocol section: Metadata Cleanup.
"""

from __future__ import annotations

import datetime as dt
import re

from lake_core.delta.checkpoint import Checkpoint
from lake_core.delta.commit_time import CommitTimes, instant_of
from lake_core.delta.errors import DeltaError
from lake_core.delta.log_segment import LOG_FOLDER, SIDECARS_FOLDER, CheckpointFiles, LogListing, list_log
from lake_core.delta.properties import log_retention_ms
from lake_core.delta.snapshot import Snapshot
from lake_core.store import ObjectMeta

_OF_VERSION = re.compile(r"([0-9]{20})\.(?:(?:([0-9]{20})\.compacted\.)?json|crc|checkpoint\..*)")
_SIDECAR_AGE = dt.timedelta(days=1)


def clean_log(snapshot: Snapshot, now: int) -> list[str]:
    """Delete the log files that are past the retention; returns their keys. `now`: milliseconds since the epoch."""
    retention = log_retention_ms(snapshot.metadata.configuration)
    if retention is None:
        return []
    cutoff = instant_of(now - retention).replace(hour=0, minute=0, second=0, microsecond=0)
    listing = list_log(snapshot.store, end=snapshot.version)
    if not listing.commits or min(listing.commits.values()) > cutoff:
        return []
    newest = CommitTimes(snapshot).latest_until(cutoff)
    kept = None if newest is None else _sound_checkpoint(snapshot, listing, newest)
    if kept is None or kept.version == 0:
        return []
    expired = [meta.key for meta in snapshot.store.list(f"{LOG_FOLDER}/") if _last_version(meta) < kept.version]
    # Oldest first: after a crash in between, what is left is a log that begins later.
    snapshot.store.delete(sorted(expired))
    return expired + _clean_sidecars(snapshot, now)


def _sound_checkpoint(snapshot: Snapshot, listing: LogListing, until: int) -> CheckpointFiles | None:
    """The newest checkpoint up to a version, if it can be read: it is what the table will rest on."""
    found = [files for files in listing.checkpoints if files.version <= until]
    if not found:
        return None
    try:
        checkpoint = Checkpoint(snapshot.store, found[-1])
        sound = checkpoint.protocol() is not None and checkpoint.metadata() is not None
        checkpoint.adds(["path"])
        checkpoint.removes()
    except DeltaError:
        return None
    return found[-1] if sound else None


def _last_version(meta: ObjectMeta) -> int:
    """The last version that a file of the log tells of; beyond all for files that are none."""
    match = _OF_VERSION.fullmatch(meta.key[len(LOG_FOLDER) + 1 :])
    return 1 << 63 if match is None else int(match[2] or match[1])


def _clean_sidecars(snapshot: Snapshot, now: int) -> list[str]:
    sidecars = list(snapshot.store.list(f"{SIDECARS_FOLDER}/"))
    if not sidecars:
        return []
    needed: set[str] = set()
    for files in list_log(snapshot.store).checkpoints:
        needed |= set(Checkpoint(snapshot.store, files).sidecars())
    old = instant_of(now) - _SIDECAR_AGE
    expired = [meta.key for meta in sidecars if meta.key not in needed and meta.last_modified < old]
    snapshot.store.delete(expired)
    return expired
