"""The log files of one version of a table: the newest usable checkpoint and every commit after it.

Protocol sections: Delta Log Entries, Checkpoints, Last Checkpoint File, Log Compaction Files. `_last_checkpoint` is a
hint: it may be missing, stale, cut or wrong without an error. A compaction file replaces the commits that it names; if
it is damaged, the commits are read instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lake_core.delta.errors import DeltaError, LogGap, TableNotFound, VersionNotFound
from lake_core.errors import NotFound
from lake_core.json_numbers import loads

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from lake_core.store import ObjectMeta, ObjectStore

LOG_FOLDER = "_delta_log"
LAST_CHECKPOINT = f"{LOG_FOLDER}/_last_checkpoint"
SIDECARS_FOLDER = f"{LOG_FOLDER}/_sidecars"

_COMMIT = re.compile(r"([0-9]{20})\.json$")
_COMPACTED = re.compile(r"([0-9]{20})\.([0-9]{20})\.compacted\.json$")
_CLASSIC = re.compile(r"([0-9]{20})\.checkpoint\.parquet$")
_PART = re.compile(r"([0-9]{20})\.checkpoint\.([0-9]{10})\.([0-9]{10})\.parquet$")
_UUID = re.compile(r"([0-9]{20})\.checkpoint\.[0-9a-fA-F-]{36}\.(?:json|parquet)$")


def commit_key(version: int) -> str:
    """Return the key of a version's commit in the log."""
    return f"{LOG_FOLDER}/{version:020d}.json"


def compaction_key(first: int, last: int) -> str:
    """Return the key of the file that compacts the commits `first` to `last` in the log."""
    return f"{LOG_FOLDER}/{first:020d}.{last:020d}.compacted.json"


def checkpoint_key(version: int) -> str:
    """Return the key of a version's classic single-file checkpoint in the log."""
    return f"{LOG_FOLDER}/{version:020d}.checkpoint.parquet"


def part_key(version: int, part: int, total: int) -> str:
    """Return the key of a part, from 1 on, of a version's classic checkpoint of several parts in the log."""
    return f"{LOG_FOLDER}/{version:020d}.checkpoint.{part:010d}.{total:010d}.parquet"


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """A complete checkpoint: one file, or all the parts of a multi-part one."""

    version: int
    keys: tuple[str, ...]
    sizes: tuple[int, ...] | None = field(default=None, compare=False)
    """The size of each file in bytes, if it was listed."""


@dataclass(frozen=True, slots=True)
class LogSegment:
    """The files from which `version` of a table is read."""

    version: int
    checkpoint: CheckpointFiles | None
    entries: tuple[tuple[int, int], ...]
    """The (first, last) versions of each log file to replay on the checkpoint.

    They are ascending, without gaps up to `version`. If the two are equal, the file is a commit, else a compaction of
    these commits.
    """

    @property
    def is_compacted(self) -> bool:
        """Return whether a compaction file is among the entries."""
        return any(first != last for first, last in self.entries)


def entry_key(first: int, last: int) -> str:
    """Return the key of the log file of an entry of a `LogSegment`."""
    return commit_key(last) if first == last else compaction_key(first, last)


@dataclass(slots=True)
class LogListing:
    """The listed files of a log folder."""

    commits: dict[int, datetime] = field(default_factory=dict)
    """The time at which each commit was put, by the store's clock."""
    compactions: dict[int, list[int]] = field(default_factory=dict)
    """The last versions of the compaction files, by their first ones."""
    checkpoints: list[CheckpointFiles] = field(default_factory=list)
    """The complete checkpoints, ascending by version. Several may have the same version."""

    def segments(self, version: int | None) -> Iterator[LogSegment | DeltaError]:
        """Yield every segment for `version` (None: the latest), from the newest checkpoint first, from version 0 last.

        If a commit is missing, an error is yielded instead of the segment.
        """
        latest = max([*self.commits, *(checkpoint.version for checkpoint in self.checkpoints)], default=-1)
        target = latest if version is None else version
        if target > latest or target < 0:
            yield VersionNotFound(f"version {target} does not exist: the latest is {latest}")
            return
        bases: list[CheckpointFiles | None] = [files for files in reversed(self.checkpoints) if files.version <= target]
        for base in [*bases, None]:
            yield from self._segments_from(base, target)

    def _segments_from(self, base: CheckpointFiles | None, target: int) -> Iterator[LogSegment | DeltaError]:
        first = base.version + 1 if base else 0
        compacted = self._path(first, target) if self.compactions else None
        if compacted is not None:
            segment = LogSegment(target, base, compacted)
            if segment.is_compacted:
                yield segment
        missing = next((number for number in range(first, target + 1) if number not in self.commits), None)
        if missing is None:
            yield LogSegment(target, base, tuple((number, number) for number in range(first, target + 1)))
        elif compacted is None and base is None and (oldest := self._cleaned_up_to(target)) is not None:
            yield VersionNotFound(
                f"version {target} is no longer in the log, which was cleaned up: "
                f"the oldest version that can be opened is {oldest}"
            )
        elif compacted is None:
            since = f"the checkpoint of version {base.version}" if base else "the start of the log"
            yield LogGap(
                f"commit {missing} is missing between {since} and version {target}. "
                f"Restore {commit_key(missing)} from a backup, or open a version outside the gap"
            )

    def _cleaned_up_to(self, target: int) -> int | None:
        """Return the version of the first checkpoint after `target`, if the log was cleaned up to it; else None.

        The log must begin after version 0, and have no gap up to this checkpoint.
        """
        first = min(self.commits, default=None)
        after = [checkpoint.version for checkpoint in self.checkpoints if checkpoint.version > target]
        if not after or first == 0:
            return None
        oldest = after[0]
        return oldest if first is None or all(number in self.commits for number in range(first, oldest)) else None

    def _path(self, first: int, target: int) -> tuple[tuple[int, int], ...] | None:
        """Return the fewest log files that hold the commits `first` to `target`, or None if there is a gap."""
        if first > target:
            return ()
        cost: dict[int, int] = {target + 1: 0}
        chosen: dict[int, int] = {}
        for number in range(target, first - 1, -1):
            ends = [last for last in self.compactions.get(number, ()) if number < last and last + 1 in cost]
            if number in self.commits and number + 1 in cost:
                ends.append(number)
            if ends:
                chosen[number] = min(ends, key=lambda last: cost[last + 1])
                cost[number] = 1 + cost[chosen[number] + 1]
        if first not in chosen:
            return None
        path = []
        while first <= target:
            path.append((first, chosen[first]))
            first = chosen[first] + 1
        return tuple(path)


def list_log(store: ObjectStore, *, start: int = 0, end: int | None = None) -> LogListing:
    """List the log from version `start` on, up to and including version `end` if given."""
    listing = LogListing()
    parts: dict[tuple[int, int], dict[int, ObjectMeta]] = {}
    folder = f"{LOG_FOLDER}/"
    for meta in store.list(folder, start_after=f"{folder}{start:020d}" if start else ""):
        name = meta.key[len(folder) :]
        if end is not None and name[:20].isdigit() and int(name[:20]) > end:
            break
        if match := _COMMIT.fullmatch(name):
            listing.commits[int(match[1])] = meta.last_modified
        elif match := _COMPACTED.fullmatch(name):
            listing.compactions.setdefault(int(match[1]), []).append(int(match[2]))
        elif match := (_CLASSIC.fullmatch(name) or _UUID.fullmatch(name)):
            listing.checkpoints.append(CheckpointFiles(int(match[1]), (meta.key,), (meta.size,)))
        elif match := _PART.fullmatch(name):
            number, part, total = int(match[1]), int(match[2]), int(match[3])
            parts.setdefault((number, total), {})[part] = meta
    for (number, total), metas_by_part in parts.items():
        if total and sorted(metas_by_part) == list(range(1, total + 1)):
            metas = [metas_by_part[part] for part in sorted(metas_by_part)]
            keys, sizes = tuple(meta.key for meta in metas), tuple(meta.size for meta in metas)
            listing.checkpoints.append(CheckpointFiles(number, keys, sizes))
    listing.checkpoints.sort(key=lambda checkpoint: (checkpoint.version, -len(checkpoint.keys)))
    return listing


def log_exists(store: ObjectStore) -> bool:
    """Return whether a log exists here: a commit or a complete checkpoint.

    A log folder with only other files is not a table.
    """
    parts: dict[tuple[int, int], set[int]] = {}
    folder = f"{LOG_FOLDER}/"
    for meta in store.list(folder):
        name = meta.key[len(folder) :]
        if _COMMIT.fullmatch(name) or _CLASSIC.fullmatch(name) or _UUID.fullmatch(name):
            return True
        if match := _PART.fullmatch(name):
            total = int(match[3])
            numbers = parts.setdefault((int(match[1]), total), set())
            numbers.add(int(match[2]))
            if total and numbers == set(range(1, total + 1)):
                return True
    return False


def read_last_checkpoint(store: ObjectStore) -> int | None:
    """Return the version that `_last_checkpoint` names, or None if the file is missing or invalid."""
    try:
        body = loads(store.get(LAST_CHECKPOINT))
        version = body["version"]
    except (NotFound, ValueError, KeyError, TypeError, RecursionError):
        return None
    return version if isinstance(version, int) and version >= 0 else None


def find_segments(store: ObjectStore, version: int | None) -> Iterator[LogSegment]:
    """Yield every segment for a version, the best first.

    The caller uses the next one if a checkpoint is damaged.

    Raises TableNotFound, VersionNotFound or LogGap once no way is left and none was yielded.
    """
    hint = read_last_checkpoint(store)
    tried: set[tuple[CheckpointFiles | None, bool]] = set()
    first_error: DeltaError | None = None
    if hint is not None and (version is None or hint <= version):
        listing = list_log(store, start=hint, end=version)
        for segment in listing.segments(version):
            if isinstance(segment, LogSegment) and segment.checkpoint is not None:
                tried.add((segment.checkpoint, segment.is_compacted))
                yield segment
    listing = list_log(store)
    if not listing.commits and not listing.checkpoints:
        raise TableNotFound(
            f"there is no Delta table at {store.url()}, as {LOG_FOLDER}/ holds no commits: "
            "create one with DeltaTable.create"
        )
    for segment in listing.segments(version):
        if isinstance(segment, DeltaError):
            first_error = first_error or segment
        elif (segment.checkpoint, segment.is_compacted) not in tried:
            tried.add((segment.checkpoint, segment.is_compacted))
            yield segment
    if not tried and first_error is not None:
        raise first_error


def newer_versions(store: ObjectStore, version: int) -> list[int] | None:
    """Return the commits after `version`, ascending.

    None if the log no longer continues from there: it was cleaned up or replaced.
    """
    listing = list_log(store, start=version)
    if version not in listing.commits and all(checkpoint.version != version for checkpoint in listing.checkpoints):
        return None
    commits = sorted(number for number in listing.commits if number > version)
    return commits if commits == list(range(version + 1, version + 1 + len(commits))) else None
