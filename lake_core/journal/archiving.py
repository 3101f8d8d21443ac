"""Moves old records of a journal into segments, merges segments, and deletes those that no snapshot names."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from lake_core import runtime
from lake_core.errors import NotFound
from lake_core.journal.archive import Segment
from lake_core.journal.segment import encode_segment, merge_tables, table_of

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    import pyarrow as pa

    from lake_core.journal.archive import Archive
    from lake_core.journal.reader import Reader
    from lake_core.journal.state import State

_GROWTH = 4
"""A segment is merged with the one after it unless it is so many times larger: there are few, and merges are rare."""
_MOST_REMOVED = 0.25
"""All segments are rewritten when this share of their records was deleted."""
_MOST_REMOVED_KEYS = 16_384
"""All segments are rewritten also when so many of their records were deleted: snapshots list the keys of these."""


def archive_records(reader: Reader, state: State, prefix: str, keys: Set[str]) -> State:
    """Write records of a state into a segment, all of whose keys start with `prefix`.

    Returns the state without them. Raises JournalDamaged, StoreError.
    """
    segment = _write(reader, state.number, table_of(pair for pair in state.loaded_records() if pair[0] in keys))
    # A key that was archived, deleted and added again is in an old segment too, with the same value.
    removed = state.current_archive.removed - keys
    archive = replace(
        state.archive,
        prefix=prefix,
        segments=(*state.archive.segments, segment),
        removed=removed,
        source=state.archive.source or reader.segments(),
    )
    return state.archived(keys, _merged(reader, state.number, archive))


def _merged(reader: Reader, number: int, archive: Archive) -> Archive:
    """Merge the newest segments while they are of similar size, and all of them when many records were removed."""
    segments = archive.segments
    total = sum(segment.count for segment in segments)
    if len(archive.removed) > min(_MOST_REMOVED * total, _MOST_REMOVED_KEYS):
        return replace(archive, segments=_one(reader, number, archive, segments), removed=frozenset())
    first = len(segments) - 1
    count = segments[first].count
    while first and segments[first - 1].count < _GROWTH * count:
        first -= 1
        count += segments[first].count
    if first == len(segments) - 1:
        return archive
    merged = _one(reader, number, archive, segments[first:])
    older = replace(archive, segments=segments[:first])
    removed = frozenset(key for key in archive.removed if older.names(key))
    return replace(archive, segments=(*older.segments, *merged), removed=removed)


def _one(reader: Reader, number: int, archive: Archive, segments: Sequence[Segment]) -> tuple[Segment, ...]:
    table = merge_tables([_table(archive, segment) for segment in segments], archive.removed)
    return (_write(reader, number, table),) if len(table) else ()


def _table(archive: Archive, segment: Segment) -> pa.Table:
    assert archive.source is not None
    try:
        return archive.source.open(segment).table()
    except NotFound as error:
        raise archive.source.missing(error) from None


def _write(reader: Reader, number: int, table: pa.Table) -> Segment:
    # A name of its own, so that no other process can be deleting an older object of the same name.
    name = f"{reader.naming.segments}{number:020d}-{runtime.uuid4().hex}.parquet"
    data = encode_segment(table)
    reader.store.put(reader.prefix + name, data, unique=True)
    return Segment(name, len(table), hashlib.sha256(data).hexdigest())
