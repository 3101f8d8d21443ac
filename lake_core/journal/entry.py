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
    """Removes a key and its value."""

    key: str


Action: TypeAlias = Add | Update | Delete
"""The change of one key in an entry.

The actions of an entry apply in order, so it may delete a key and add it again.
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One atomic change, as the journal stores it permanently (zed-lake-format, Transaction Journal)."""

    number: int
    """Its number, from 1, without gaps."""
    time: datetime
    """When it was created, in UTC with microseconds; later than all entries before it."""
    writer: str
    """The unique id of the append that wrote it; empty if the codec does not store one."""
    actions: tuple[Action, ...]
