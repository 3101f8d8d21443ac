"""Records, models and plain-dict oracles that the tests of trees share."""

from __future__ import annotations

from collections.abc import Mapping

from lake_core.graveler import Entry, Graveler, Profile, RangeCache, Record
from lake_core.store import MemoryStore

TINY = Profile(150, 900, 5)
"""A few records a range, so that small trees have many, ended by hash, by size, and kept open by too little of it."""

Model = dict[bytes, Record]


def graveler(profile: Profile = TINY, cache: RangeCache | None = None) -> Graveler:
    return Graveler(MemoryStore(), profile=profile, cache=cache)


def record(key: bytes, content: object, address: str = "") -> Record:
    """Return a record of a key. The same content has the same identity."""
    return Entry(address=address or f"data/{content}", size=10, etag=str(content)).record(key)


def applied(model: Mapping[bytes, Record], changes: Mapping[bytes, Record | None]) -> Model:
    """Return a plain dict after changes. A record of equal identity is no change."""
    out = dict(model)
    for key, new in changes.items():
        if new is None:
            out.pop(key, None)
        elif key not in out or out[key].identity != new.identity:
            out[key] = new
    return out


def differing(
    before: Mapping[bytes, Record], after: Mapping[bytes, Record]
) -> list[tuple[bytes, Record | None, Record | None]]:
    """Return the differences of two plain dicts."""
    triples = [(key, before.get(key), after.get(key)) for key in sorted(before.keys() | after.keys())]
    return [(key, old, new) for key, old, new in triples if (old and old.identity) != (new and new.identity)]


def tree_of(graveler: Graveler, model: Mapping[bytes, Record]) -> str:
    return graveler.build("", sorted(model.items())).tree
