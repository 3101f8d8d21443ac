"""The locations of the objects of entries: below the lake's root, or at full URLs that the lake allows.

Entries that a lakeFS server wrote may have full URLs, of objects that were imported there. Such URLs are not trusted:
they are read only below the locations that the lake's settings list.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from lake_core.errors import InvalidUrl, LakeError
from lake_core.graveler import AddressType, Entry
from lake_core.lake.errors import ExternalAddress
from lake_core.store import ObjectStore, store_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lake_core.journal import Journal

EXTERNAL = "external"
"""The key of the lake's configuration that lists the locations of external objects."""


class Addresses:
    """The addresses of a lake's entries: below its root, and below locations whose stores are open.

    Picklable if the stores are.
    """

    def __init__(self, root: ObjectStore, stores: Mapping[str, ObjectStore] | None = None) -> None:
        self._root = root
        self._stores = dict(stores or {})

    def key(self, entry: Entry) -> str | None:
        """Return the key of an entry's object below the lake's root; None if it is outside."""
        if not is_full(entry):
            return entry.address
        inside = f"{self._root.url().rstrip('/')}/"
        return entry.address[len(inside) :] if entry.address.startswith(inside) else None

    def locate(self, entry: Entry) -> tuple[ObjectStore, str]:
        """Return the store and the key of an entry's object. Raises ExternalAddress."""
        key = self.key(entry)
        if key is not None:
            return self._root, key
        for location in self._locations():
            if entry.address.startswith(f"{location}/"):
                return self._store(location), entry.address[len(location) + 1 :]
        raise ExternalAddress(
            f"an entry names {entry.address!r}, which is outside of the lake: if that is right, allow the location "
            "that it is in, such as with lake.settings.update(external=['s3://bucket/folder'])"
        )

    def detached(self) -> Addresses:
        """Return the same addresses for other processes, as they are now."""
        return Addresses(self._root, self._stores)

    def _locations(self) -> Sequence[str]:
        return tuple(self._stores)

    def _store(self, location: str) -> ObjectStore:
        return self._stores[location]


class ConfiguredAddresses(Addresses):
    """Addresses below the locations that the lake's configuration lists at the moment. They are opened when needed."""

    def __init__(self, root: ObjectStore, settings: Journal) -> None:
        super().__init__(root)
        self._settings = settings

    def detached(self) -> Addresses:
        """Return the addresses that are allowed now, without the configuration."""
        stores = {}
        for location in self._locations():
            with suppress(LakeError):  # it may not be needed
                stores[location] = self._store(location)
        return Addresses(self._root, stores)

    def _locations(self) -> Sequence[str]:
        return self._settings.state(refresh=False).get(EXTERNAL) or ()

    def _store(self, location: str) -> ObjectStore:
        if location not in self._stores:
            is_alike = location.partition("://")[0] == self._root.url().partition("://")[0]
            options = self._root.storage_options if is_alike else None
            self._stores[location] = store_at(location, options, read_only=True)
        return self._stores[location]


def external_location(url: str) -> str:
    """Return the URL of a location of external objects in its normal form. Raises InvalidUrl."""
    if isinstance(url, str) and re.fullmatch(r"[a-z][a-z0-9+.-]*://[^@?#]+", url) and not url.endswith("://"):
        return url.rstrip("/")
    raise InvalidUrl(f"{url!r} is not the location of external objects: write a URL, such as s3://bucket/folder")


def is_full(entry: Entry) -> bool:
    """Return whether an entry's address is a URL."""
    if entry.address_type is AddressType.BY_PREFIX:
        return "://" in entry.address
    return entry.address_type is AddressType.FULL
