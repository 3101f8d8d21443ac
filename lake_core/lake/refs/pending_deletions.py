"""The objects that garbage collection may be deleting.

A publish that reuses stored content must not rely on an object that is about to be deleted. Each collection has an
entry in the refs journal, which stays there for longer than any session lives. It names a list of the objects to
delete. Once it is certain which of them are deleted, the entry names the final list instead. Publishes use none of the
listed objects: they put content again under another address, and ranges under another name. So publishes and
collections do not wait for each other. The id of the collection that began last stays for ever, so that a process that
was suspended for weeks does not take the refs for those that it knew.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lake_core.errors import NotFound
from lake_core.journal import Add
from lake_core.lake.errors import DamagedLake
from lake_core.lake.refs.refs_state import RefsState, put
from lake_core.lake.refs.values import text_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from lake_core.journal import Action
    from lake_core.store import ObjectStore

PREFIX = "collection/"
"""The prefix of collections in the refs journal."""
LAST = "last-collection"
"""The key of the collection that began last."""


@dataclass(frozen=True, slots=True)
class PendingDeletions:
    """The keys of a lake that a collector may be deleting."""

    keys: frozenset[str] = frozenset()

    def __call__(self, key: str) -> bool:
        """Return whether a collector may be deleting the object at this key."""
        return key in self.keys

    def range(self, id: str) -> bool:
        """Return whether a collector may be deleting the range or metarange with this id."""
        return f"_lakefs/{id}" in self.keys


class DeletionLists:
    """The lists of the collections in the refs journal. They never change, so each is read once. Shared by threads."""

    def __init__(self, root: ObjectStore) -> None:
        self._root = root
        self._keys_of_list: dict[str, frozenset[str]] = {}

    def pending(self, refs: RefsState) -> PendingDeletions:
        """Return the keys on all lists. Raises DamagedLake."""
        list_keys = set(collections(refs).lists.values())
        known = self._keys_of_list
        lists = {key: known[key] if key in known else read_list(self._root, key) for key in list_keys}
        # Replaced, not changed: another thread may be using it with older or newer refs.
        self._keys_of_list = lists
        return PendingDeletions(frozenset().union(*lists.values()))


@dataclass(frozen=True, slots=True)
class Collections:
    """The collections in the refs journal.

    An update of the refs is prepared with them, and must be prepared again if they have changed: a list may have been
    deleted before it was read, or one that was never read may be over.
    """

    last: str | None
    """The one that began last. It is known when its list has long been removed."""
    lists: Mapping[str, str]
    """The keys of their lists, by the ids of the collections."""


def collections(refs: RefsState) -> Collections:
    """Return the collections in the refs journal. Raises DamagedLake."""
    last = refs.state.get(LAST)
    lists = {id: text_of(f"{PREFIX}{id}", value, "list") for id, value in refs.under(PREFIX).items()}
    return Collections(None if last is None else text_of(LAST, last, "id"), lists)


def begun(refs: RefsState, id: str, list_key: str, now: datetime) -> Sequence[Action]:
    """Return the actions by which a collection begins."""
    return [Add(f"{PREFIX}{id}", {"list": list_key, "time": now.isoformat()}), put(refs, LAST, {"id": id})]


def unfinished(refs: RefsState, id: str) -> Mapping[str, Any] | None:
    """Return the entry of a collection in the refs journal, or None if its objects are deleted. Raises DamagedLake."""
    entry = refs.under(PREFIX).get(id)
    if entry is None or "done" in entry:
        return None
    return {**entry, "list": text_of(f"{PREFIX}{id}", entry, "list")}


def read_list(store: ObjectStore, key: str) -> frozenset[str]:
    """Read the keys on a collection's list. Raises DamagedLake.

    A list that does not exist is empty. The refs that name it are then out of date, and `collections` shows it.
    """
    try:
        return frozenset(zlib.decompress(store.get(key)).decode().split("\n"))
    except NotFound:
        return frozenset()
    except (zlib.error, UnicodeDecodeError):
        raise DamagedLake(f"{key} is not a list of objects to delete: restore it from a backup") from None


def encode_list(keys: list[str]) -> bytes:
    """Encode a collection's list for `read_list`."""
    return zlib.compress("\n".join(keys).encode())
