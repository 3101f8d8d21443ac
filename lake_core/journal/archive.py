"""The archive of a journal: old records that its snapshots leave to segments, which are read when they are needed.

A snapshot with an archive names its segments. So the cost of opening a journal depends on the records that are in use,
not on the length of its history.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lake_core.errors import NotFound
from lake_core.journal.errors import JournalDamaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from lake_core.journal.record import StateRecord
    from lake_core.journal.segment import OpenSegment
    from lake_core.store import ObjectStore


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment, as snapshots name it."""

    name: str
    """Its name below the journal's folder."""
    count: int
    """How many records it has, removed ones included."""
    sha256: str


class SegmentSource:
    """The segments of a journal, each read once."""

    def __init__(
        self, store: ObjectStore, prefix: str, newest: Callable[[str, str], Mapping[str, StateRecord] | None]
    ) -> None:
        """Make the source of a journal.

        `newest` returns the newest records whose keys have a prefix, None if the newest state needs a missing object.
        """
        self._store = store
        self._prefix = prefix
        self._newest = newest
        self._open: dict[str, OpenSegment] = {}

    def __reduce__(self) -> tuple[type[SegmentSource], tuple[object, ...]]:
        return SegmentSource, (self._store, self._prefix, self._newest)

    def open(self, segment: Segment) -> OpenSegment:
        """Read a segment. Raises NotFound, JournalDamaged, StoreError."""
        opened = self._open.get(segment.name)
        if opened is None:
            from lake_core.journal.segment import OpenSegment  # most readers never need pyarrow for a journal

            key = self._prefix + segment.name
            data = self._store.get(key)
            if hashlib.sha256(data).hexdigest() != segment.sha256:
                raise JournalDamaged(f"{key} is damaged: its checksum does not match. Restore it from a backup")
            opened = self._open[segment.name] = OpenSegment(key, data)
        return opened

    def newest(self, prefix: str, error: NotFound) -> Mapping[str, StateRecord]:
        """Return the newest records, to use in place of those of a segment that was merged and deleted.

        Raises JournalDamaged where the newest state needs the missing segment too.
        """
        records = self._newest(prefix, str(error.key))
        if records is None:
            raise self.missing(error) from None
        return records

    @staticmethod
    def missing(error: NotFound) -> JournalDamaged:
        """Return the error for a segment that a snapshot names, but that does not exist."""
        return JournalDamaged(f"{error.key} is missing: restore it from a backup")


@dataclass(frozen=True, slots=True)
class Archive:
    """The archived records of a state: immutable, and shared by states."""

    prefix: str = ""
    """The beginning of archived keys; empty if nothing is archived."""
    segments: tuple[Segment, ...] = ()
    """Oldest first. Of a key that two have, the newer one counts."""
    removed: frozenset[str] = frozenset()
    """Keys that were deleted since their segment was written."""
    source: SegmentSource | None = None
    snapshot: int = 0
    """The number of the snapshot that it was read from or written into; 0 for none."""
    etag: str = ""
    """The etag of that snapshot. Empty if it is not known."""

    def __bool__(self) -> bool:
        return bool(self.segments)

    def overlaps(self, prefix: str) -> bool:
        """Return whether archived keys may start with a prefix."""
        return bool(self.segments) and (prefix.startswith(self.prefix) or self.prefix.startswith(prefix))

    def record(self, key: str) -> StateRecord | None:
        """Return the record of a key. Raises JournalDamaged, StoreError."""
        if not self.segments or not key.startswith(self.prefix) or key in self.removed:
            return None
        assert self.source is not None
        try:
            for segment in reversed(self.segments):
                record = self.source.open(segment).record(key)
                if record is not None:
                    return record
        except NotFound as error:
            return self.source.newest(self.prefix, error).get(key)
        return None

    def has(self, key: str) -> bool:
        """Return whether a record has a key. Decodes no record. Raises JournalDamaged, StoreError."""
        return key not in self.removed and self.names(key)

    def names(self, key: str) -> bool:
        """Return whether a segment has a key, removed or not. Raises JournalDamaged, StoreError."""
        if not self.segments or not key.startswith(self.prefix):
            return False
        assert self.source is not None
        try:
            return any(self.source.open(segment).has(key) for segment in self.segments)
        except NotFound as error:
            return key in self.source.newest(self.prefix, error)

    def keys(self, prefix: str) -> set[str]:
        """List the keys that start with a prefix. Raises JournalDamaged, StoreError."""
        if not self.overlaps(prefix):
            return set()
        assert self.source is not None
        try:
            keys = {key for segment in self.segments for key in self.source.open(segment).keys(prefix)}
        except NotFound as error:
            keys = {key for key, _ in self._older(self.source.newest(self.prefix, error)) if key.startswith(prefix)}
        return keys - self.removed

    def records(self, prefix: str) -> Iterator[tuple[str, StateRecord]]:
        """Walk the records whose keys start with a prefix, in no particular order, each key once.

        Raises JournalDamaged, StoreError.
        """
        if not self.overlaps(prefix):
            return
        assert self.source is not None
        try:
            opened = [self.source.open(segment) for segment in self.segments]
        except NotFound as error:
            older = self._older(self.source.newest(self.prefix, error))
            yield from ((key, record) for key, record in older if key.startswith(prefix))
            return
        walked: set[str] = set()
        for segment in reversed(opened):
            for key, record in segment.records(prefix):
                if key not in self.removed and key not in walked:
                    if len(opened) > 1:
                        walked.add(key)
                    yield key, record

    def _older(self, records: Mapping[str, StateRecord]) -> Iterator[tuple[str, StateRecord]]:
        """Walk those of the newest records that the archive can have had."""
        for key, record in records.items():
            if key not in self.removed and record.number <= self.snapshot:
                yield key, record

    def without(self, keys: Iterable[str]) -> Archive:
        """Return the archive after these keys were deleted."""
        removed = {key for key in keys if self.segments and key.startswith(self.prefix)}
        return replace(self, removed=self.removed | removed) if removed else self


NO_ARCHIVE = Archive()
