"""Metadata of version 2, of commits and of repositories: named FlexBuffers, decoded on demand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lake_core.icechunk.errors import DamagedObject
from lake_core.icechunk.flatbuffer import check_total
from lake_core.icechunk.flatbuffer_writer import FlatbufferWriter, table_layout
from lake_core.icechunk.flexbuffer import FlexbufferError, decode_flexbuffer, encode_flexbuffer

if TYPE_CHECKING:
    from lake_core.icechunk.flatbuffer import Table

_ITEM_LAYOUT = table_layout(12, (4, 8))


class StoredMetadata(Mapping[str, Any]):
    """Metadata as it is stored."""

    __slots__ = ("_path", "size", "stored")

    def __init__(self, stored: Mapping[str, bytes], path: str, size: int) -> None:
        self.stored = stored
        """A FlexBuffer each."""
        self._path = path
        self.size = size
        """The bytes of the names and values."""

    def __getitem__(self, name: str) -> Any:
        try:
            return decode_flexbuffer(self.stored[name])
        except FlexbufferError as error:
            raise DamagedObject(self._path, f"the metadata {name[:80]!r} in it is no FlexBuffer ({error})") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]


NO_METADATA = StoredMetadata({}, "", 0)


def read_metadata(table: Table, slot: int, path: str) -> StoredMetadata:
    """Return the metadata in a field of a table.

    Raises FlatbufferError; looking up values raises DamagedObject for the object at `path`.
    """
    start, count = table.vector(slot, 4, required=False)
    stored: dict[str, bytes] = {}
    total = 0
    for number in range(count):
        item = table.nth(start, number)
        name, value = item.string(0), item.blob(1)
        total += len(name) + len(value)
        check_total(total, table.buffer)
        stored[name] = value
    return StoredMetadata(stored, path, total)


def write_metadata(writer: FlatbufferWriter, field: int, metadata: Mapping[str, Any]) -> None:
    """Write metadata that a field refers to."""
    if isinstance(metadata, StoredMetadata):
        stored = metadata.stored
    else:
        stored = {name: encode_flexbuffer(value) for name, value in metadata.items()}
    items = writer.offsets(field, len(stored))
    for number, name in enumerate(sorted(stored, key=str.encode)):
        item = writer.table(_ITEM_LAYOUT)
        writer.link(items + 4 * number, item)
        writer.blob(item + 4, name.encode())
        writer.blob(item + 8, stored[name])
