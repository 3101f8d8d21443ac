"""An entry: several actions on keys that take effect together."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""The time of a journal's state before its first entry."""


@dataclass(frozen=True, slots=True)
class Add:
    """Sets the value of a new key."""

    key: str
    value: Any


@dataclass(frozen=True, slots=True)
class Update:
    """Replaces the value of an existing key."""

    key: str
    value: Any


@dataclass(frozen=True, slots=True)
class Delete:
    """Take a key and its value away."""

    key: str


Action: TypeAlias = Add | Update | Delete
"""The change of one key in an entry.

The actions of an entry apply in order, so it may delete a key and add it again.
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One atomic change, as it is in the journal for good (zed-lake-format, Transaction Journal)."""

    number: int
    """Its place, from 1; there are no gaps."""
    time: datetime
    """When it was made, in UTC with microseconds; later than that of every entry before it."""
    writer: str
    """The unique id of the append that wrote it; empty where the codec stores none."""
    actions: tuple[Action, ...]
