"""HEAD and TAIL: a hint at where the journal ends, and the exact number at which it begins.

HEAD holds a decimal number, TAIL "<first entry> <base>", as in the journals of `zed` 1.7.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake_core import runtime
from lake_core.errors import AlreadyExists, NotFound, PreconditionFailed, StoreUnavailable
from lake_core.journal.errors import JournalDamaged

if TYPE_CHECKING:
    from collections.abc import Callable

    from lake_core.store import ObjectStore

_LONGEST = 64
_TORN_READS = 5


@dataclass(frozen=True, slots=True)
class Pointer:
    """A number that was read, and the object that it was read from."""

    value: int | None
    """None if there is no object, or its content is not valid."""
    etag: str | None
    """None if there is no object."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The start of the journal."""

    first: int = 1
    """The first retained entry. Earlier entries are purged, and objects at their places are ignored."""
    base: int = 0
    """The entry whose snapshot replaces the purged ones; always first - 1 if this package purged them."""
    etag: str | None = None
    """None if there is no TAIL, because nothing has been purged."""


def read_head(store: ObjectStore, key: str) -> Pointer:
    """Read the hint about the journal's end. Raises StoreError."""
    try:
        body = store.get(key, 0, _LONGEST)
    except NotFound:
        return Pointer(None, None)
    matched = re.fullmatch(rb"([0-9]{1,20})\n?", body)
    return Pointer(int(matched[1]) if matched else None, body.etag)


def read_tail(store: ObjectStore, key: str) -> Tail:
    """Read the start of the journal. Raises JournalDamaged for an invalid TAIL, StoreError."""
    for attempt in range(_TORN_READS):
        try:
            body = store.get(key, 0, _LONGEST)
        except NotFound:
            return Tail()
        matched = re.fullmatch(rb"([0-9]{1,20}) ([0-9]{1,20})\n?", body)
        if matched and int(matched[1]) > 0:
            return Tail(int(matched[1]), int(matched[2]), body.etag)
        # `zed` overwrites it in place, so it may be incomplete.
        if attempt + 1 < _TORN_READS:
            runtime.sleep(0.01)
    raise JournalDamaged(
        f'{key} does not contain "<first entry> <base>", so it is unknown where the journal begins: '
        "restore it from a backup"
    )


def raise_head(store: ObjectStore, key: str, number: int, has_entry: Callable[[int], bool]) -> None:
    """Raise HEAD to at least `number`, the number of an entry.

    A larger number in HEAD stays if `has_entry` says that there is such an entry.

    Raises StoreError.
    """
    for _ in range(3):
        head = read_head(store, key)
        if head.value is not None and (head.value == number or (head.value > number and has_entry(head.value))):
            return
        try:
            # A slow writer's number must not replace a later one, because `zed` reads only up to HEAD + 1.
            store.put(key, b"%d" % number, if_absent=head.etag is None, if_match=head.etag)
            return
        except (AlreadyExists, PreconditionFailed):
            continue


def raise_tail(store: ObjectStore, key: str, first: int) -> Tail:
    """Raise TAIL to at least `first`.

    Returns its current value, which may be higher. It never decreases. Raises StoreError, JournalDamaged.
    """
    failure: StoreUnavailable | None = None
    for _ in range(20):
        tail = read_tail(store, key)
        if tail.first >= first:
            return tail
        try:
            store.put(key, b"%d %d" % (first, first - 1), if_absent=tail.etag is None, if_match=tail.etag)
        except (AlreadyExists, PreconditionFailed):
            continue
        except StoreUnavailable as error:
            failure = error
    raise failure or StoreUnavailable(f"{key} changes too often to be read", key=key)
