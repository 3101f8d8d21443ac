"""Purges old entries: first write a snapshot that replaces them, then raise TAIL, and only then delete the entries."""

from __future__ import annotations

from itertools import islice, takewhile
from typing import TYPE_CHECKING

from lake_core.errors import NotFound
from lake_core.journal.clock import NEVER_YOUNGER
from lake_core.journal.errors import HistoryPurged, JournalDamaged, PurgeUnsupported
from lake_core.journal.pointer import Tail, raise_tail
from lake_core.journal.snapshot_files import write_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from lake_core.journal.reader import Reader
    from lake_core.journal.state import State

_BATCH = 1000


def purge(reader: Reader, newest: State, before: datetime, now: datetime) -> int:
    """Delete the entries that were made before a time, except for young ones and the newest one.

    Returns how many were deleted.

    An entry is young by its own time, or by the store's clock. Raises PurgeUnsupported, JournalDamaged, StoreError.
    """
    if reader.naming.fixed_snapshot is not None:
        raise PurgeUnsupported(
            f"the journal {reader.prefix} cannot be purged: it keeps its only snapshot as "
            f"{reader.naming.fixed_snapshot}, which every writer overwrites"
        )
    tail = reader.tail()
    written = None
    if newest.number > 1:
        # The put returns the store's own time, and the snapshot makes later reads cheap.
        written = write_snapshot(reader, newest)
        if written is not None:
            try:
                first = _first_retained(
                    reader, newest, tail, min(before, now - NEVER_YOUNGER), written.last_modified - NEVER_YOUNGER
                )
                if first > tail.first:
                    _write_base(reader, first - 1)
                    tail = raise_tail(reader.store, reader.prefix + reader.naming.tail, first)
            except (NotFound, HistoryPurged, JournalDamaged):
                newer = reader.tail()
                if newer.first == tail.first:
                    raise
                tail = newer  # another process is purging, and has deleted entries that were to be read
    deleted = _sweep(reader, tail)
    if newest.archive and written is not None:
        _delete_unnamed_segments(reader, written.last_modified - NEVER_YOUNGER)
    return deleted


def _first_retained(reader: Reader, newest: State, tail: Tail, before: datetime, put_before: datetime) -> int:
    """Return the number of the first entry that must be kept."""
    low = high = tail.first
    for number, last_modified in _entries(reader):
        if number < tail.first:
            continue
        if number != high or number >= newest.number or last_modified >= put_before:
            break
        high = number + 1
    # Times rise with numbers.
    while low < high:
        middle = (low + high) // 2
        if reader.decode(middle, reader.data(middle)).time < before:
            low = middle + 1
        else:
            high = middle
    return low


def _entries(reader: Reader) -> Iterator[tuple[int, datetime]]:
    """Yield the existing entries in order, and when they were put."""
    naming, prefix = reader.naming, reader.prefix
    entries = (
        (number, meta.last_modified)
        for meta in reader.store.list(prefix)
        if (number := naming.number(meta.key[len(prefix) :])) is not None
    )
    return entries if naming.ordered else iter(sorted(entries))


def _write_base(reader: Reader, number: int) -> None:
    """Put the snapshot that replaces the entries up to this one, and read it back before they are deleted."""
    state = reader.load(number).state
    key = reader.prefix + reader.naming.base(number)
    data = reader.codec.encode_snapshot(state)
    reader.store.put(key, data)
    base = reader.snapshot(key)
    if base is None or not base.is_same(state):
        raise JournalDamaged(
            f"{key} does not read back as it was written, so nothing was purged: check the store and max_snapshot_bytes"
        )


def _sweep(reader: Reader, tail: Tail) -> int:
    """Delete all entries before TAIL, including those that an interrupted purge or a suspended writer left."""
    if tail.first == 1:
        return 0
    for folder in (reader.naming.snapshots, reader.naming.bases):
        if old := [key for number, key in reader.numbered(folder) if number < tail.first - 1]:
            reader.store.delete(old)
    passed = (
        reader.entry_key(number) for number, _ in takewhile(lambda entry: entry[0] < tail.first, _entries(reader))
    )
    deleted = 0
    while batch := list(islice(passed, _BATCH)):
        reader.store.delete(batch)
        deleted += len(batch)
    return deleted


def _delete_unnamed_segments(reader: Reader, before: datetime) -> None:
    """Delete the segments that were written before a time, and that no snapshot names any longer."""
    listed = reader.store.list(reader.prefix + reader.naming.segments)
    segments = {meta.key for meta in listed if meta.last_modified < before}
    if not segments:
        return
    for folder in (reader.naming.snapshots, reader.naming.bases):
        for _, key in reader.numbered(folder):
            state = reader.snapshot(key)
            if state is None:  # nobody knows what it names
                return
            segments.difference_update(reader.prefix + segment.name for segment in state.archive.segments)
    reader.store.delete(sorted(segments))
