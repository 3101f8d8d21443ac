"""A record of a journal's state: a value, and the entry that set it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime


class StateRecord(NamedTuple):
    """A key's value and its last change."""

    value: Any
    number: int
    """The entry that set the value; that of the snapshot, if the codec's snapshots do not record it."""
    time: datetime
    """The time of that entry."""
