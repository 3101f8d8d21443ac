"""Markers: the (application id, version) pair by which a repeated write is recognized.

Each commit carries those that still count, so that the tip of a branch shows whether a write has happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from lake_core.pool.metadata import nanoseconds_of, time_of
from lake_core.pool.types import INT64, STRING, TIME, Field, MapType, RecordType
from lake_core.pool.value import Value

if TYPE_CHECKING:
    from lake_core.txn import Txn

MARKERS: Final = MapType(STRING, RecordType((Field("version", INT64), Field("last_updated", TIME))))
"""The type of markers in a commit."""
TXN_RETENTION: Final = timedelta(days=30)
"""For how long a marker counts by default."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The last version that an application recorded, and when, in UTC."""

    version: int
    last_updated: datetime


Markers: TypeAlias = Mapping[str, Marker]
"""Markers by application id."""


def version_of(marker: Marker | None) -> int | None:
    """Return the version of a marker. Two branches may have recorded it at different times."""
    return None if marker is None else marker.version


def is_recorded(markers: Markers, txn: Txn | None) -> bool:
    """Return whether markers have this version of an application's write, or a later one."""
    return txn is not None and txn[0] in markers and markers[txn[0]].version >= txn[1]


def rising(before: Markers, after: Markers) -> Markers:
    """Return the markers that rose from one state to another."""
    return {
        application: marker
        for application, marker in after.items()
        if application not in before or marker.version > before[application].version
    }


def live_markers(markers: Markers, now: datetime, retention: timedelta | None) -> dict[str, Marker]:
    """Return the markers that still count; with a retention of None, all of them."""
    return {
        app_id: marker
        for app_id, marker in markers.items()
        if retention is None or marker.last_updated > now - retention
    }


def newest_markers(markers: Markers, others: Markers) -> dict[str, Marker]:
    """Return the markers of two branches together: for each application, the one with the higher version."""
    newest = dict(markers)
    for app_id, marker in others.items():
        if app_id not in newest or newest[app_id].version < marker.version:
            newest[app_id] = marker
    return newest


def markers_value(markers: Markers) -> Value:
    """Return markers as a value of metadata."""
    records = {
        app_id: {"version": marker.version, "last_updated": nanoseconds_of(marker.last_updated)}
        for app_id, marker in markers.items()
    }
    return Value.of(MARKERS, records)


def markers_from(value: Value) -> dict[str, Marker]:
    """Return the markers of a value of metadata. Raises InvalidZng."""
    return {
        app_id: Marker(record["version"], time_of(record["last_updated"])) for app_id, record in value.decode() or ()
    }
