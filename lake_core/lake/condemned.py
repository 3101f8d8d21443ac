"""What a collector may be deleting: content that was found stored already may vanish before the commit that reuses it is made.

Each collection is an entry of the refs journal, and stays on record for longer than any session lives. All that is on the lists of those
on record is avoided: content is put again under another address, ranges under another name. Nobody waits for anybody.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from lake_core.errors import NotFound
from lake_core.lake.errors import DamagedLake
from lake_core.lake.refs import RefsState, text_of
from lake_core.lake.repository import Repository
from lake_core.store import ObjectStore

PREFIX = "collection/"


@dataclass(frozen=True, slots=True)
class Condemned:
    """The keys of a lake that must not be relied on."""

    keys: frozenset[str] = frozenset()

    def __call__(self, key: str) -> bool:
        return key in self.keys

    def range(self, id: str) -> bool:
        """Whether a range or metarange of this id is among them."""
        return f"_lakefs/{id}" in self.keys

    @classmethod
    def of(cls, repository: Repository, refs: RefsState) -> Condemned:
        """What is on the lists on record."""
        known = repository.lists
        wanted = {text_of(f"{PREFIX}{id}", value, "list") for id, value in refs.under(PREFIX).items()}
        for place in wanted.difference(known):
            known[place] = read_list(repository.root, place)
        for place in set(known).difference(wanted):
            del known[place]
        return cls(frozenset().union(*known.values()))


def collections(refs: RefsState) -> frozenset[str]:
    """The collections on record."""
    return frozenset(refs.under(PREFIX))


def read_list(store: ObjectStore, key: str) -> frozenset[str]:
    """The keys on a collection's list."""
    try:
        return frozenset(zlib.decompress(store.get(key)).decode().split("\n"))
    except NotFound:
        return frozenset()
    except (zlib.error, UnicodeDecodeError):
        raise DamagedLake(f"{key} is no list of a collection: restore it from a backup") from None


def encode_list(keys: list[str]) -> bytes:
    """A collection's list, as `read_list` takes it."""
    return zlib.compress("\n".join(keys).encode())
