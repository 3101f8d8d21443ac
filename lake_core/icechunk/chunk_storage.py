"""How many bytes the chunks of a repository take."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lake_core.icechunk import refs
from lake_core.icechunk.ancestry import reachable
from lake_core.icechunk.asset_manager import AssetManager
from lake_core.icechunk.manifest_file import NativeChunks
from lake_core.icechunk.read_limits import ReadLimits, batches

_RANGE = np.dtype("S28")
"""A range of an object as one sortable value: 12 bytes of its id, 8 each of its offset and length."""
_PENDING = 100_000
"""How many ranges are gathered at least before those that occur twice are dropped."""


def native_chunk_bytes(assets: AssetManager, limits: ReadLimits) -> int:
    """Return the bytes of the native chunks that branches and tags reach, each once. Raises DamagedObject."""
    tips = [tip.snapshot_id for tip in refs.list_refs(assets.store)]
    sizes = {
        manifest_id: info.size_bytes
        for snapshot in reachable(assets, tips, read_ahead=limits.snapshots)
        for manifest_id, info in snapshot.manifest_files.items()
    }
    ranges, pending = np.empty(0, _RANGE), list[npt.NDArray[np.bytes_]]()
    count = 0
    for batch in batches(sizes, limits):
        for manifest in assets.read_manifests(batch):
            for chunks in manifest.native_chunks():
                pending.append(_ranges(chunks))
                count += len(pending[-1])
            if count > max(_PENDING, len(ranges)):
                ranges, pending, count = np.unique(np.concatenate([ranges, *pending])), [], 0
    ranges = np.unique(np.concatenate([ranges, *pending]))
    return int(ranges.view(np.uint8).reshape(-1, 28)[:, 20:].copy().view("<u8").sum())


def _ranges(chunks: NativeChunks) -> npt.NDArray[np.bytes_]:
    rows = np.empty((len(chunks.chunk_id), 28), np.uint8)
    rows[:, :12] = chunks.chunk_id
    rows[:, 12:] = np.stack([chunks.offset, chunks.length], axis=1).astype("<u8").view(np.uint8)
    return rows.view(_RANGE).reshape(-1)
