"""Entries: the description of an object in a value record (lakeFS's `catalog.Entry`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from lake_core.graveler import wire
from lake_core.graveler.errors import CorruptTable
from lake_core.graveler.identity import entry_identity
from lake_core.graveler.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping


class AddressType(IntEnum):
    """The meaning of an entry's address."""

    BY_PREFIX = 0
    """The type in entries of old writers: full if the address has a scheme, else relative."""
    RELATIVE = 1
    """A key below the repository's root."""
    FULL = 2
    """A URL."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An object: the address of its bytes, and the properties of its content.

    Size, etag, metadata and content type make its identity. Address and time do not.
    """

    address: str
    size: int
    """Bytes."""
    etag: str = ""
    last_modified: int = 0
    """Nanoseconds since the epoch, or 0 if unknown."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""
    address_type: AddressType = AddressType.RELATIVE

    @property
    def identity(self) -> bytes:
        """Return the identity of this entry's record."""
        return entry_identity(self.size, self.etag, self.metadata, self.content_type)

    def record(self, key: bytes) -> Record:
        """Return this entry as the value record of a key."""
        return Record(key, self.identity, self.encode())

    def encode(self) -> bytes:
        """Encode the message. Equal entries give equal bytes."""
        return b"".join(
            (
                wire.put_text(1, self.address),
                wire.put_timestamp(2, self.last_modified),
                wire.put_number(3, self.size),
                wire.put_text(4, self.etag),
                wire.put_text_map(5, self.metadata),
                wire.put_number(6, self.address_type),
                wire.put_text(7, self.content_type),
            )
        )

    @classmethod
    def decode(cls, data: bytes) -> Entry:
        """Decode the entry of a record's value. Raises CorruptTable."""
        fields = wire.read_message(data)
        kind = wire.number(fields, 6)
        if not 0 <= kind <= AddressType.FULL:
            raise CorruptTable(f"an entry has the unknown address type {kind}")
        return cls(
            address=wire.text(fields, 1),
            size=wire.number(fields, 3),
            etag=wire.text(fields, 4),
            last_modified=wire.timestamp(fields, 2),
            metadata=wire.text_map(fields, 5),
            content_type=wire.text(fields, 7),
            address_type=AddressType(kind),
        )
