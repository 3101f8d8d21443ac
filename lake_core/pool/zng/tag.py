"""Tagged values: a length and a body, or null. Containers hold their elements in this form."""

from __future__ import annotations

from lake_core.pool.errors import InvalidZng
from lake_core.varint import InvalidVarint, read_uvarint, uvarint

NULL = b"\0"
"""The tag of null. Every other tag is the length of the body, plus one."""


def tagged(body: bytes | None) -> bytes:
    """Return a body with its tag."""
    if body is None:
        return NULL
    size = len(body) + 1
    return (bytes((size,)) if size < 0x80 else uvarint(size)) + body


def split(container: bytes) -> list[bytes | None]:
    """Return the bodies of the tagged values that a container consists of.

    Raises InvalidZng if the last one is cut short.
    """
    bodies: list[bytes | None] = []
    at, end = 0, len(container)
    while at < end:
        body, at = read_tagged(container, at)
        bodies.append(body)
    return bodies


def read_tagged(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Return the body of the tagged value at a position, and the position after it.

    Raises InvalidZng if it is cut short.
    """
    tag = data[at] if at < len(data) else 0x80
    if tag < 0x80:
        at += 1
    else:
        try:
            tag, at = read_uvarint(data, at)
        except InvalidVarint as error:
            raise InvalidZng(f"a value does not have a valid tag: {error}") from None
    if not tag:
        return None, at
    end = at + tag - 1
    if end > len(data):
        raise InvalidZng(
            f"a value of {tag - 1} bytes extends past the end of its container: {len(data) - at} bytes are left"
        )
    return data[at:end], end


def normalized_set(elements: list[bytes]) -> bytes:
    """Return the body of a set of tagged elements: without duplicates, in the order of their bytes."""
    return b"".join(sorted(set(elements)))


def normalized_map(entries: list[tuple[bytes, bytes]]) -> bytes:
    """Return the body of a map of tagged keys and values, in the order of the keys' bytes.

    Of several values of a key, the first is kept.
    """
    first: dict[bytes, bytes] = {}
    for key, value in entries:
        first.setdefault(key, value)
    return b"".join(key + first[key] for key in sorted(first))
