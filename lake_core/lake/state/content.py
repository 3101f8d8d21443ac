"""The content store: objects of fixed names, stored by content.

Each content is stored once, under the SHA-256 of its bytes (Arraylake: content-addressable storage). An entry of the
tree has the address of its object. If a collector may be deleting an object, its content is put again under another
address, so that publishes and collections do not wait for each other (see `refs.pending_deletions`).
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING

from lake_core.errors import AlreadyExists, NotFound
from lake_core.graveler import Entry, Record
from lake_core.lake.errors import Collected, ContentChanged, ContentMissing
from lake_core.lake.state.addresses import Addresses
from lake_core.store import ObjectBytes, ObjectMeta, ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lake_core.store.object_store import Bytes

OBJECTS = "_lake/objects"
_ADDRESS = re.compile(rf"{OBJECTS}/[0-9a-f]{{2}}/[0-9a-f]{{2}}/([0-9a-f]{{64}})(?:-[0-9]+)?")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OLD = 86_400 * 10**9
_RECENT_BYTES, _RECENT_COUNT = 256 << 10, 256
_OFFSET, _LENGTH = "lake.offset", "lake.length"


@dataclass(frozen=True, slots=True)
class Item:
    """An object of a fixed name: its entry, and its bytes if they are not stored yet."""

    entry: Entry
    data: bytes | None = None

    @property
    def identity(self) -> bytes:
        """Return the identity of the content. Objects with equal identities have the same content."""
        return self.entry.identity

    def record(self, key: str) -> Record:
        """Return the record of the item in a tree."""
        return self.entry.record(key.encode())

    def meta(self, key: str) -> ObjectMeta:
        """Return the object's metadata under a key of the lake."""
        modified = EPOCH + timedelta(microseconds=self.entry.last_modified // 1000)
        return ObjectMeta(key, self.entry.size, self.entry.etag, modified)


def item_of(record: Record) -> Item:
    """Return the item of a tree's record."""
    return _item(record.value)


@lru_cache(maxsize=1 << 13)
def _item(value: bytes) -> Item:
    # States share most of their records, and a state is listed many times.
    return Item(Entry.decode(value))


def is_same(left: Item | None, right: Item | None) -> bool:
    """Return whether two items have the same content, or both are None."""
    if left is None or right is None:
        return left is right
    return left.identity == right.identity


def nanoseconds(moment: datetime) -> int:
    """Return an instant in nanoseconds since the Unix epoch, as in entries."""
    return (moment - EPOCH) // timedelta(microseconds=1) * 1000


def address_of(digest: str, generation: int = 0) -> str:
    """Return the address of content by its SHA-256 (hex). A later generation is used if earlier ones may be deleted."""
    return f"{OBJECTS}/{digest[:2]}/{digest[2:4]}/{digest}" + (f"-{generation}" if generation else "")


def digest_of(address: str) -> str | None:
    """Return the SHA-256 in an address, or None if it is not that of a content-addressed object."""
    match = _ADDRESS.fullmatch(address)
    return None if match is None else match[1]


def new_item(data: Bytes, now: datetime, *, content_type: str = "") -> Item:
    """Return an item for bytes that are not stored yet."""
    body = bytes(data)
    digest = sha256(body).hexdigest()
    return Item(Entry(address_of(digest), len(body), digest, nanoseconds(now), content_type=content_type), body)


def reference(address: str, size: int, etag: str, now: datetime, *, offset: int | None = None) -> Item:
    """Return an item for an existing object, or for a part of it from `offset` on. Nothing is copied."""
    metadata = {} if offset is None else {_OFFSET: str(offset), _LENGTH: str(size)}
    return Item(Entry(address, size, etag, nanoseconds(now), metadata))


def part_of(entry: Entry) -> tuple[int, int] | None:
    """Return the first byte of an entry's content in its object and the byte after the last; None if it is all."""
    if _OFFSET not in entry.metadata:
        return None
    start = int(entry.metadata[_OFFSET])
    return start, start + int(entry.metadata[_LENGTH])


class RecentContent:
    """Small content that running publishes have stored, so that they need not read it back.

    A context manager, entered for each publish. Shared by threads.
    """

    def __init__(self) -> None:
        self._data: dict[str, bytes] = {}
        self._publishes = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self._publishes += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._publishes -= 1
            if not self._publishes:
                self._data = {}

    def add(self, address: str, data: bytes) -> None:
        """Keep the bytes at an address that is never overwritten."""
        with self._lock:
            if self._publishes and len(data) <= _RECENT_BYTES and len(self._data) < _RECENT_COUNT:
                self._data[address] = data

    def get(self, entry: Entry) -> bytes | None:
        """Return the bytes of an entry, or None if they are not kept."""
        return None if entry.metadata else self._data.get(entry.address)

    def __reduce__(self) -> tuple[type[RecentContent], tuple[()]]:
        return RecentContent, ()


class ContentStore:
    """The content-addressed objects of a lake, and the objects elsewhere that entries refer to."""

    def __init__(
        self, root: ObjectStore, addresses: Addresses | None = None, recent: RecentContent | None = None
    ) -> None:
        self._root = root
        self.addresses = addresses or Addresses(root)
        self._recent = recent or RecentContent()

    def detached(self) -> ContentStore:
        """Return the same objects without the lake's configuration, for other processes to read them."""
        return ContentStore(self._root, self.addresses.detached())

    def assign_address(self, item: Item, is_pending: Callable[[str], bool]) -> Item:
        """Return an item with an address that no collection deletes, and with its bytes if they are to be stored.

        Stored content is stored again only if a collection may delete it. Raises Collected, ContentMissing.
        """
        address = item.entry.address
        if not address:
            return item  # the tree contains all of it
        data = item.data
        if data is None:
            if not is_pending(address):
                return item
            try:
                data = self.get(item)
            except ContentMissing:
                raise Collected(
                    f"{address}, which existed when it was written, was garbage-collected in the meantime: "
                    "write it again"
                ) from None
        digest, generation = digest_of(address), 0
        if digest is None:
            raise ContentMissing(
                f"{address} is being garbage-collected, and lies outside of {OBJECTS}: it cannot be written again"
            )
        while is_pending(address):
            generation += 1
            address = address_of(digest, generation)
        return Item(item.entry if address == item.entry.address else replace(item.entry, address=address), data)

    def store(self, item: Item) -> Item:
        """Store the bytes of an item at its address, and return the item without them."""
        if item.data is None or not item.entry.address:
            return item
        address = item.entry.address
        try:
            self._root.put(address, item.data, if_absent=True)
        except AlreadyExists:
            # An old object may be garbage that is about to be deleted. Putting it again makes it young.
            if self._is_old(address, item.entry.last_modified):
                self._root.put(address, item.data)
        self._recent.add(address, item.data)
        return Item(item.entry)

    def _is_old(self, address: str, now: int) -> bool:
        """Return whether an object is too old to be used again without being put again, or has just been deleted."""
        try:
            return now - nanoseconds(self._root.head(address).last_modified) > _OLD
        except NotFound:
            return True

    def get(self, item: Item, start: int | None = None, end: int | None = None) -> bytes:
        """Read an item's bytes, or a range of them as for `ObjectStore.get`."""
        if item.data is not None:
            return item.data[start:end]
        return self.get_many([(item, start, end)])[0]

    def get_many(self, requests: Sequence[tuple[Item, int | None, int | None]]) -> list[bytes]:
        """Read each as `get` does. Raises ContentMissing, ContentChanged, ExternalAddress."""
        bodies: list[bytes | None] = []
        for item, start, end in requests:
            data = self._recent.get(item.entry) if item.data is None else item.data
            bodies.append(None if data is None else data[start:end])
        remote = [index for index, data in enumerate(bodies) if data is None]
        located = {index: self.addresses.locate(requests[index][0].entry) for index in remote}
        # Nearly all of them are in the lake's own store.
        for store in {id(store): store for store, _ in located.values()}.values():
            indexes = [index for index in remote if located[index][0] is store]
            try:
                answers = store.get_many([(located[index][1], *_span(*requests[index])) for index in indexes])
            except NotFound as error:
                raise ContentMissing(
                    f"{error.key} is missing, though a commit refers to it: restore it from a backup, and run `lake "
                    "verify` to find what else is missing"
                ) from None
            for index, data in zip(indexes, answers, strict=True):
                _check_unchanged(requests[index][0].entry, data.meta)
                bodies[index] = data
        return [data for data in bodies if data is not None]


def _span(item: Item, start: int | None, end: int | None) -> tuple[int | None, int | None]:
    """Return the range in an object of a range of an item's bytes."""
    entry = item.entry
    offset = entry.metadata.get(_OFFSET)
    if offset is None:
        return start, end
    first = int(offset)
    if start is not None and start < 0:
        start = max(0, entry.size + start)
    last = entry.size if end is None else min(end, entry.size)
    return first + min(start or 0, last), first + last


def _check_unchanged(entry: Entry, meta: ObjectMeta) -> None:
    """Raise ContentChanged if the size of an imported object has changed.

    Its etag is not compared, because a copied store has other etags. `lake verify` compares them.
    """
    if entry.size != meta.size and _OFFSET not in entry.metadata and digest_of(entry.address) is None:
        raise ContentChanged(
            f"{meta.key} has {meta.size} bytes, but had {entry.size} when it was imported: it was replaced "
            "in place. Restore the old file, or import the new one under another name"
        )


def as_object(data: bytes, item: Item, key: str) -> ObjectBytes:
    """Return bytes with the metadata that they have in a tree."""
    return ObjectBytes(data, item.meta(key))
