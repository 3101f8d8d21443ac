"""What the tests of arrays in lakes share: one array of ten chunks, and what is in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import zarr

CHUNK = 200
"""Values of a chunk: more bytes than a manifest takes in."""
CHUNKS = 10
PATH = "arrays/weather"


def create_array(store: Any, name: str = "values") -> None:
    """Create an array of `CHUNKS` chunks that were never written."""
    group = zarr.open_group(store, mode="a")
    group.create_array(name, shape=(CHUNKS * CHUNK,), chunks=(CHUNK,), dtype="i4", fill_value=-1, compressors=None)


def set_chunk(store: Any, chunk: int, value: int, name: str = "values") -> None:
    """Fill a chunk with one value."""
    array = zarr.open_array(store, path=name, mode="r+")
    array[chunk * CHUNK : (chunk + 1) * CHUNK] = np.full(CHUNK, value, "i4")


def chunk_values(store: Any, name: str = "values") -> list[int]:
    """Return the value of each chunk."""
    values: Any = zarr.open_array(store, path=name, mode="r")[:]
    assert all(len(set(chunk.tolist())) == 1 for chunk in values.reshape(-1, CHUNK)), "a chunk is torn"
    return list(map(int, values[::CHUNK]))


def filled(**chunks: int) -> list[int]:
    """Return what an array reads as of which some chunks were written: `c3=7` for 7 in the chunk 3."""
    return [chunks.get(f"c{number}", -1) for number in range(CHUNKS)]


def outside(root: Path, path: str = PATH) -> icechunk.Repository:
    """Open the folder of a repository by icechunk, which knows nothing of the lake."""
    return icechunk.Repository.open(icechunk.local_filesystem_storage(str(root / path)))


def outside_values(root: Path, path: str = PATH, name: str = "values") -> list[int]:
    """Return the value of each chunk as icechunk reads it in the folder."""
    return chunk_values(outside(root, path).readonly_session("main").store, name)
