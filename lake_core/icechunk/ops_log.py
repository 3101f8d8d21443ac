"""The operations log: how an update extends it, and which backups of the object `repo` stay.

Each update copies `repo` before it replaces it. The copies are as large as `repo`, which grows by each commit. So only
some are kept: the last ones, some of those that the log in `repo` names, and those in which the log goes on. Entries
whose copy is deleted name none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from lake_core.errors import NotFound
from lake_core.icechunk.errors import DamagedObject, MissingObject
from lake_core.icechunk.identifier import encode_id, new_object_id
from lake_core.icechunk.repo_info_file import decode_repo_info
from lake_core.icechunk.update import RecordedUpdate, UpdateType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake_core.icechunk.repo_info import RepoInfo
    from lake_core.store import ObjectStore

OVERWRITTEN = "overwritten/"
"""The folder of the backups."""

_LAST_TIME = 32_503_680_000_000
"""The year 3000 in milliseconds since the epoch. Names count down from it, so that listings begin with the newest."""
_LAST_BACKUPS = 10
"""How many of the last backups are kept."""


@dataclass(frozen=True, slots=True)
class ExtendedLog:
    """The operations log with a new entry."""

    updates: list[RecordedUpdate]
    """The entries that `repo` holds, newest first."""
    before_updates: str | None
    """The backup with the earlier ones."""
    unnamed_backups: list[str]
    """The backups that only the log before the new entry named."""


def backup_name(now: int) -> str:
    """Return the name of a new backup. `now`: microseconds since the epoch."""
    return f"repo.{_LAST_TIME - now // 1000}.{encode_id(new_object_id())}"


def extended(before: RepoInfo, kind: UpdateType, now: int, backup: str | None, most: int) -> ExtendedLog:
    """Return the log with a new entry.

    Args:
        before: The state before the update.
        kind: What the update does.
        now: Microseconds since the epoch. Later entries must have later times, so a clock that is behind is corrected.
        backup: The name of the copy of that state; None if none is made.
        most: How many entries `repo` holds at most, if there is a backup that the log can go on in.
    """
    earlier = list(before.updates)
    time = max([now, *(update.time + 1 for update in earlier[:1])])
    if earlier:
        earlier[0] = replace(earlier[0], backup=backup)
    updates, before_updates = _cut([RecordedUpdate(kind, time), *earlier], before.before_updates, most)
    updates = _thinned(updates, max(1, most // 10))
    named = {update.backup for update in updates} | {before_updates}
    unnamed = [update.backup for update in earlier if update.backup is not None and update.backup not in named]
    return ExtendedLog(updates, before_updates, unnamed)


def recorded_updates(info: RepoInfo, store: ObjectStore) -> Iterator[RecordedUpdate]:
    """Yield the whole log of a state, newest first, from `repo` and from the backups that it goes on in.

    `store`: the folder with the backups.

    Raises MissingObject, DamagedObject.
    """
    yield from info.updates
    name = info.before_updates
    walked: set[str] = set()
    while name is not None:
        path = OVERWRITTEN + name
        if name in walked:
            raise DamagedObject(path, "the operations log that goes on in it leads back to it")
        walked.add(name)
        try:
            earlier = decode_repo_info(store.get(path), path)
        except NotFound:
            raise MissingObject(path, "the operations log goes on in it, but it does not exist") from None
        for number, update in enumerate(earlier.updates):
            yield update if number else replace(update, backup=name)
        name = earlier.before_updates


def holds(log: Iterator[RecordedUpdate], entry: RecordedUpdate, backup: str | None) -> bool:
    """Return whether a log holds an entry of a writer, and not an equal one of another.

    Args:
        log: The log, newest first.
        entry: The entry.
        backup: The name of the copy of the state before it, which only this writer uses.
    """
    for update, earlier in pairwise(log):
        if without_backup(update) == entry:
            return backup is None or earlier.backup in (backup, None)
        if update.time < entry.time:
            return False
    return False


def without_backup(update: RecordedUpdate) -> RecordedUpdate:
    """Return an entry as it is while it is the newest."""
    return replace(update, backup=None)


def _cut(
    updates: list[RecordedUpdate], before_updates: str | None, most: int
) -> tuple[list[RecordedUpdate], str | None]:
    """Move the older half of a log that is too long to the backup that holds it.

    It is half of the log, and not one entry, so that the next updates go on in the same backup.
    """
    if len(updates) > most:
        for number in range(max(1, most // 2), len(updates)):
            if updates[number].backup is not None:
                return updates[:number], updates[number].backup
    return updates, before_updates


def _thinned(updates: list[RecordedUpdate], distance: int) -> list[RecordedUpdate]:
    """Return a log that names the last backups, and of the others only one in so many entries.

    It counts from the oldest entry, so that the next update chooses the same ones.
    """
    kept_at = len(updates)
    thinned = list(updates)
    for number in range(len(updates) - 1, _LAST_BACKUPS, -1):
        if updates[number].backup is not None:
            if kept_at - number >= distance:
                kept_at = number
            else:
                thinned[number] = without_backup(updates[number])
    return thinned
