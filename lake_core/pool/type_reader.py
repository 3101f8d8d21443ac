"""Reads numbers and names from the binary forms of types: type values, and the definitions of a stream."""

from __future__ import annotations

from dataclasses import dataclass

from lake_core.pool.errors import InvalidZng
from lake_core.varint import InvalidVarint, read_uvarint, uvarint


@dataclass(slots=True)
class TypeReader:
    """A reader of bytes, with its position. Each method raises InvalidZng for bytes that are cut short."""

    body: bytes
    subject: str
    """The name of the bytes in error messages."""
    at: int = 0

    def number(self) -> int:
        """Read a number."""
        try:
            number, self.at = read_uvarint(self.body, self.at)
        except InvalidVarint as error:
            raise InvalidZng(f"{self.subject} is cut short: {error}") from None
        return number

    def count(self) -> int:
        """Read a number of items, each of which takes at least one byte."""
        count = self.number()
        if count > len(self.body) - self.at:
            raise InvalidZng(f"{self.subject} declares {count} items, more than there are bytes")
        return count

    def name(self) -> str:
        """Read a name, which follows its length."""
        size = self.count()
        name = self.body[self.at : self.at + size]
        self.at += size
        try:
            return name.decode()
        except UnicodeDecodeError:
            raise InvalidZng(f"a name in {self.subject} is not UTF-8: {name[:40]!r}") from None


def encode_name(name: str) -> bytes:
    """Return a name, preceded by its length."""
    encoded = name.encode()
    return uvarint(len(encoded)) + encoded
