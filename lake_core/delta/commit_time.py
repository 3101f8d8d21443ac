"""The time of each version's commit, and the latest version at an instant.

The time of a commit is the modification time of its file. As in Spark it is made monotonic: at least a millisecond
after the commit before, because the files of copied logs have their times in any order. If
`delta.enableInCommitTimestamps` is active, the time is in the commit itself, so it stays the same in copies of the log.
Times are in milliseconds since the epoch.
Protocol section: In-Commit Timestamps.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, TypeAlias

from lake_core.delta.commit_file import read_commit_info
from lake_core.delta.errors import CorruptCommit, VersionNotFound
from lake_core.delta.log_segment import commit_key, list_log
from lake_core.errors import NotFound
from lake_core.json_numbers import loads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lake_core.delta.snapshot import Snapshot

_ENABLED = "delta.enableInCommitTimestamps"
_ENABLED_AT = "delta.inCommitTimestampEnablementVersion"
_HEAD = 64 << 10
"""The number of bytes of a commit that contain its commitInfo. If this has the time, it is the first action."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

Instant: TypeAlias = "dt.datetime | str"
"""An aware datetime, or the ISO 8601 text of one."""


class CommitTimes:
    """The times of the commits up to a snapshot that the log still holds."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._store = snapshot.store
        self._latest = snapshot.version
        listing = list_log(snapshot.store, end=snapshot.version)
        self._times: dict[int, int] = {}
        last: int | None = None
        for version in sorted(listing.commits):
            put = _milliseconds(listing.commits[version])
            last = put if last is None else max(put, last + 1)
            self._times[version] = last
        first = snapshot.version
        while first - 1 in listing.commits:
            first -= 1
        bases = [checkpoint.version for checkpoint in listing.checkpoints if checkpoint.version >= first]
        self.earliest = first if not first else min(bases, default=snapshot.version)
        """The first version that can be read and has a time."""
        self._in_commit_from = _enabled_from(snapshot.metadata.configuration)
        self._in_commit_times: dict[int, int | None] = {}

    @property
    def versions(self) -> list[int]:
        """Return the versions whose commits the log still holds, newest first."""
        return sorted(self._times, reverse=True)

    def at(self, version: int, info: dict[str, Any] | None = None) -> int:
        """Return the time of a version's commit. Pass its commitInfo as `info` if it was read already.

        Raises VersionNotFound if its commit is no longer in the log.
        """
        if version not in self._times:
            raise VersionNotFound(
                f"the log no longer holds {commit_key(version)}, so it is unknown when version {version} was committed"
            )
        if self._in_commit_from is not None and version >= self._in_commit_from:
            timestamp = self._in_commit(version) if info is None else in_commit_time(info)
            if timestamp is not None:
                return timestamp
        return self._times[version]

    def text(self, version: int) -> str:
        """Return the time of a version's commit as text, for messages."""
        return instant_of(self.at(version)).isoformat(timespec="milliseconds")

    def version_at(self, when: Instant) -> int:
        """Return the latest version that was committed at or before an instant.

        Raises VersionNotFound for an instant before the first version that can be read, and for one after the last
        commit, because a later commit may still get a time before it.
        """
        asked = parse_instant(when)
        self._check_any()
        version = self.latest_until(asked)
        if version is None:
            raise VersionNotFound(
                f"the table had no version at {asked.isoformat()}: the first that can be rebuilt, version "
                f"{self.earliest}, was committed at {self.text(self.earliest)}. Use that timestamp or a later one"
            )
        if asked > instant_of(self.at(self._latest)):
            raise VersionNotFound(
                f"{asked.isoformat()} is after the last commit, version {self._latest} at "
                f"{self.text(self._latest)}, and later commits may still precede it: use that timestamp, or "
                "leave it out for the latest version"
            )
        return version

    def latest_until(self, when: dt.datetime) -> int | None:
        """Return the latest version committed at or before an instant, or None if there is none."""
        low, high = self.earliest, self._latest + 1
        self._check_any()
        # The times rise with the version, so that few commits have to be read.
        while low < high:
            middle = (low + high) // 2
            if instant_of(self.at(middle)) <= when:
                low = middle + 1
            else:
                high = middle
        return low - 1 if low > self.earliest else None

    def earliest_from(self, when: dt.datetime) -> int | None:
        """Return the first version committed at or after an instant, or None if there is none."""
        before = self.latest_until(when - dt.timedelta(microseconds=1))
        version = self.earliest if before is None else before + 1
        return version if version <= self._latest else None

    def _check_any(self) -> None:
        if self._latest not in self._times:
            raise VersionNotFound(
                f"the log no longer holds {commit_key(self._latest)}, so it is unknown when version "
                f"{self._latest} was committed: open the table by its version"
            )

    def _in_commit(self, version: int) -> int | None:
        if version not in self._in_commit_times:
            key = commit_key(version)
            try:
                head = self._store.get(key, 0, _HEAD)
                lines = bytes(head).split(b"\n")
                if head.size > len(head):
                    lines.pop()  # cut
                info = next(_infos(lines), None)
                if info is None and head.size > len(head):
                    info = read_commit_info(version, self._store.get(key))
            except NotFound:
                raise VersionNotFound(
                    f"{key} was deleted while it was read, because the log was cleaned up: open the table again"
                ) from None
            except ValueError as error:
                raise CorruptCommit(f"{key} holds a line that is not JSON: {error}") from None
            self._in_commit_times[version] = in_commit_time(info or {})
        return self._in_commit_times[version]


def in_commit_time(info: dict[str, Any]) -> int | None:
    """Return the commit time in a commitInfo, or None if it has none."""
    timestamp = info.get("inCommitTimestamp")
    return timestamp if type(timestamp) is int and abs(timestamp) < 2**53 else None


def instant_of(milliseconds: int) -> dt.datetime:
    """Convert milliseconds since the epoch to a datetime, within the range of Python's calendar."""
    try:
        return _EPOCH + dt.timedelta(milliseconds=milliseconds)
    except OverflowError:
        return (dt.datetime.max if milliseconds > 0 else dt.datetime.min).replace(tzinfo=dt.UTC)


def parse_instant(when: Instant) -> dt.datetime:
    """Parse an instant from a caller.

    Raises ValueError for text that is not a timestamp, and for one without a time zone.
    """
    instant = when
    if isinstance(instant, str):
        try:
            instant = dt.datetime.fromisoformat(instant)
        except ValueError:
            raise ValueError(f"{when!r} is not a timestamp: use ISO 8601, such as 2024-01-31T12:00:00Z") from None
    if not isinstance(instant, dt.datetime):
        raise ValueError(f"a timestamp must be an aware datetime or text in ISO 8601, not {when!r}")
    if instant.tzinfo is None or instant.utcoffset() is None:
        cure = (
            f"{when}Z"
            if isinstance(when, str) and ("T" in when or " " in when)
            else "….replace(tzinfo=datetime.UTC), or end the text in Z"
        )
        raise ValueError(
            f"the timestamp {when!s} has no time zone, so its instant is unknown. If it is UTC, use {cure}"
        )
    return instant


def _infos(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        if b'"commitInfo"' in line:
            body = loads(line)
            if isinstance(body, dict) and isinstance(body.get("commitInfo"), dict):
                yield body["commitInfo"]


def _enabled_from(properties: Mapping[str, str]) -> int | None:
    """Return the first version whose commit contains its time, or None if commits do not contain it."""
    if properties.get(_ENABLED, "false").lower() != "true":
        return None
    text = properties.get(_ENABLED_AT, "0")
    return int(text) if text.isascii() and text.isdigit() else 0


def _milliseconds(when: dt.datetime) -> int:
    return (when - _EPOCH) // dt.timedelta(milliseconds=1)
