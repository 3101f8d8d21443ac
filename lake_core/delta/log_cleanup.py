"""Metadata cleanup: delete commits and checkpoints that no version within the retention needs.

The cutoff is the last midnight (UTC) before now less `delta.logRetentionDuration`. The newest checkpoint whose version
was committed at or before the cutoff stays, with its commit and all later files. Without such a checkpoint nothing is
deleted. Nor is it where a feature was dropped, unless all versions before that go at once. Sidecars that no checkpoint
names are deleted a day after they were written. Protocol sections: Metadata Cleanup, Checkpoint Protection.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING

from lake_core.delta.action_fields import ADD_FIELDS
from lake_core.delta.checkpoint import Checkpoint
from lake_core.delta.commit_time import CommitTimes, instant_of
from lake_core.delta.errors import DeltaError, VersionNotFound
from lake_core.delta.features import CHECKPOINT_PROTECTION, PROTECTED_BEFORE, supported_features
from lake_core.delta.log_segment import LOG_FOLDER, SIDECARS_FOLDER, CheckpointFiles, list_log
from lake_core.delta.properties import log_retention_ms

if TYPE_CHECKING:
    from lake_core.delta.snapshot import Snapshot
    from lake_core.store import ObjectMeta

_OF_VERSION = re.compile(r"([0-9]{20})\.(?:(?:([0-9]{20})\.compacted\.)?json|crc|checkpoint\..*)")
_SIDECAR_AGE = dt.timedelta(days=1)


def clean_log(snapshot: Snapshot, now: int) -> list[str]:
    """Delete the log files that are past the retention, and return their keys. `now`: milliseconds since the epoch."""
    retention = log_retention_ms(snapshot.metadata.configuration)
    if retention is None:
        return []
    cutoff = instant_of(now - retention).replace(hour=0, minute=0, second=0, microsecond=0)
    listing = list_log(snapshot.store, end=snapshot.version)
    # The time of the last version is unknown without its commit.
    if snapshot.version not in listing.commits or min(listing.commits.values()) > cutoff:
        return []
    try:
        newest = CommitTimes(snapshot).latest_until(cutoff)
    except VersionNotFound:
        return []  # another clean-up deletes these files right now
    bases = [checkpoint for checkpoint in listing.checkpoints if newest is not None and checkpoint.version <= newest]
    if not bases:
        return []
    protected = protected_before(snapshot)
    if min(listing.commits) < protected and bases[-1].version < protected:
        return []
    expired = [meta.key for meta in snapshot.store.list(f"{LOG_FOLDER}/") if _last_version(meta) < bases[-1].version]
    if expired:
        if not _is_sound(snapshot, bases[-1]):
            return []
        # Delete the oldest first, so that a crash in between leaves a log that begins later.
        snapshot.store.delete(sorted(expired))
    return expired + _clean_sidecars(snapshot, now)


def protected_before(snapshot: Snapshot) -> int:
    """Return the version before which all log files must go at once."""
    if CHECKPOINT_PROTECTION not in supported_features(snapshot.protocol):
        return 0
    text = snapshot.metadata.configuration.get(PROTECTED_BEFORE, "0")
    return int(text) if text.isdecimal() else snapshot.version + 1


def _is_sound(snapshot: Snapshot, files: CheckpointFiles) -> bool:
    """Return whether all of a checkpoint can be read, because the table will depend on it."""
    checkpoint = Checkpoint(snapshot.store, files)
    try:
        for name, _ in ADD_FIELDS:  # one at a time, which takes less memory
            checkpoint.adds([name])
        for read in (checkpoint.removes, checkpoint.transactions, checkpoint.domains):
            read()
        return checkpoint.protocol() is not None and checkpoint.metadata() is not None
    except DeltaError:
        return False


def _last_version(meta: ObjectMeta) -> int:
    """Return the last version that a log file belongs to. Other files get a number above all versions."""
    match = _OF_VERSION.fullmatch(meta.key[len(LOG_FOLDER) + 1 :])
    return 1 << 63 if match is None else int(match[2] or match[1])


def _clean_sidecars(snapshot: Snapshot, now: int) -> list[str]:
    sidecars = list(snapshot.store.list(f"{SIDECARS_FOLDER}/"))
    if not sidecars:
        return []
    needed: set[str] = set()
    try:
        for files in list_log(snapshot.store).checkpoints:
            needed |= set(Checkpoint(snapshot.store, files).sidecars())
    except DeltaError:
        return []  # one that cannot be read does not say which it needs
    old = instant_of(now) - _SIDECAR_AGE
    expired = [meta.key for meta in sidecars if meta.key not in needed and meta.last_modified < old]
    snapshot.store.delete(expired)
    return expired
