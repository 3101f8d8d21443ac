"""Markers: what a commit's meta says of the writes that happened, so that none of them happens twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from lake_core.pool.commit import Commit
from lake_core.pool.errors import InvalidZng
from lake_core.pool.metadata import named_record
from lake_core.pool.types import INT64, STRING, MapType
from lake_core.pool.value import Value

_TXN: Final = "txn"
_META: Final = "meta"
_MARKERS: Final = MapType(STRING, INT64)


def markers_of(log: Iterable[Commit]) -> dict[str, int]:
    """Return the last version of each application that wrote with a marker.

    Each commit that has markers carries those before it, so that the newest such commit says it all. Others make none.

    Args:
        log: The commits of a branch, the newest first.
    """
    for commit in log:
        markers = commit.meta.field(_TXN)
        if markers is not None and markers.type == _MARKERS:
            try:
                return dict(markers.decode() or ())
            except InvalidZng:
                continue
    return {}


def with_markers(meta: Value, markers: Mapping[str, int]) -> Value:
    """Return a commit's meta with markers beside what its author keeps."""
    return named_record("", {_TXN: Value.of(_MARKERS, dict(markers)), _META: meta})


def own_meta(meta: Value) -> Value:
    """Return what the author of a commit keeps in its meta, without markers."""
    markers, own = meta.field(_TXN), meta.field(_META)
    return meta if markers is None or own is None or markers.type != _MARKERS else own
