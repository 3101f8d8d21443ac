"""How many bytes the chunks of a repository take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lake_core.icechunk.ancestry import reachable
from lake_core.icechunk.read_limits import ReadLimits, batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake_core.icechunk.asset_manager import AssetManager
    from lake_core.icechunk.manifest_file import ArrayManifest, NativeChunks, VirtualChunks

_RANGE = np.dtype("S28")
"""A range of an object as one sortable value: 12 bytes that name the object, 8 each of its offset and length."""
_PENDING = 100_000
"""How many ranges are collected at least before duplicates are dropped."""


@dataclass(frozen=True, slots=True)
class ChunkStorageStats:
    """The bytes of the chunks that branches and tags reach, by kind of storage."""

    native_bytes: int
    """Bytes in objects of the repository, counting each range once."""
    virtual_bytes: int
    """Bytes in objects outside of the repository, counting each range once."""
    inlined_bytes: int
    """Bytes in manifests, counting every manifest that has them."""

    @property
    def non_virtual_bytes(self) -> int:
        """Return the bytes in the repository itself."""
        return self.native_bytes + self.inlined_bytes

    @property
    def total_bytes(self) -> int:
        """Return the bytes of all chunks."""
        return self.non_virtual_bytes + self.virtual_bytes


def chunk_storage_stats(assets: AssetManager, limits: ReadLimits) -> ChunkStorageStats:
    """Return the bytes of the chunks that branches and tags reach. Raises DamagedObject."""
    native, virtual, inlined = _Ranges(), _Ranges(), 0
    numbers: dict[str, int] = {}
    for array in _reachable_arrays(assets, limits):
        native.add(_native(array.native_chunks()))
        virtual.add(_virtual(array.virtual_chunks(), numbers))
        inlined += array.inline_bytes()
    return ChunkStorageStats(native.bytes(), virtual.bytes(), inlined)


def native_chunk_bytes(assets: AssetManager, limits: ReadLimits) -> int:
    """Return the bytes of the native chunks that branches and tags reach, each range once. Raises DamagedObject."""
    native = _Ranges()
    for array in _reachable_arrays(assets, limits):
        native.add(_native(array.native_chunks()))
    return native.bytes()


def _reachable_arrays(assets: AssetManager, limits: ReadLimits) -> Iterator[ArrayManifest]:
    """Yield the references of each array in each manifest that branches and tags reach."""
    tips = [tip.snapshot_id for tip in assets.layout.list_refs()]
    sizes = {
        manifest_id: info.size_bytes
        for snapshot in reachable(assets, tips, read_ahead=limits.snapshots)
        for manifest_id, info in snapshot.manifest_files.items()
    }
    for batch in batches(sizes, limits):
        for manifest in assets.read_manifests(batch):
            yield from manifest.arrays()


class _Ranges:
    """A set of ranges of objects."""

    def __init__(self) -> None:
        self._ranges = np.empty(0, _RANGE)
        self._pending: list[npt.NDArray[np.bytes_]] = []
        self._count = 0

    def add(self, ranges: npt.NDArray[np.bytes_]) -> None:
        self._pending.append(ranges)
        self._count += len(ranges)
        if self._count > max(_PENDING, len(self._ranges)):
            self._merge()

    def bytes(self) -> int:
        """Return the sum of their lengths."""
        self._merge()
        return int(self._ranges.view(np.uint8).reshape(-1, 28)[:, 20:].copy().view("<u8").sum())

    def _merge(self) -> None:
        self._ranges = np.unique(np.concatenate([self._ranges, *self._pending]))
        self._pending, self._count = [], 0


def _native(chunks: NativeChunks) -> npt.NDArray[np.bytes_]:
    return _ranges(chunks.chunk_id, chunks.offset, chunks.length)


def _virtual(chunks: VirtualChunks, numbers: dict[str, int]) -> npt.NDArray[np.bytes_]:
    """Return ranges in which numbers stand for locations. New locations are given the next numbers."""
    location_numbers = np.array([numbers.setdefault(location, len(numbers)) for location in chunks.locations], "<i8")
    names = np.zeros((len(chunks.location), 12), np.uint8)
    names[:, :8] = location_numbers[chunks.location].view(np.uint8).reshape(-1, 8)
    return _ranges(names, chunks.offset, chunks.length)


def _ranges(
    names: npt.NDArray[np.uint8], offset: npt.NDArray[np.uint64], length: npt.NDArray[np.uint64]
) -> npt.NDArray[np.bytes_]:
    rows = np.empty((len(names), 28), np.uint8)
    rows[:, :12] = names
    rows[:, 12:] = np.stack([offset, length], axis=1).astype("<u8").view(np.uint8)
    return rows.view(_RANGE).reshape(-1)
