"""Encodes and decodes the chunks of an array in Spark's executors.

The codecs `bytes`, `transpose`, `zstd` and `gzip` need only pyarrow and numpy. Arrays with other codecs need the
package zarr in the executors.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake_core.spark.errors import UnsupportedArray

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ZSTD_LEVEL = 3
"""The level that zstd uses for level 0."""


class ChunkCodec(Protocol):
    """Encodes and decodes the chunks of one array."""

    @property
    def needs_zarr(self) -> bool:
        """Return whether executors need the package zarr."""

    def decode(self, data: bytes) -> npt.NDArray[Any]:
        """Return the cells of a chunk. Raises ValueError for bytes that are not a chunk of the array."""

    def encode(self, cells: npt.NDArray[Any]) -> bytes:
        """Return the bytes of a chunk."""


def chunk_codec(document: bytes, dtype: np.dtype[Any], chunk_shape: tuple[int, ...]) -> ChunkCodec:
    """Return the codec of an array.

    Args:
        document: The array's `zarr.json`.
        dtype: The type of its cells.
        chunk_shape: The shape of its chunks, or of its shards if it has shards.
    """
    metadata = json.loads(document)
    return _plain_codec(metadata["codecs"], dtype, chunk_shape) or ZarrCodec(_of_one_chunk(metadata, chunk_shape))


@dataclass(frozen=True, slots=True)
class PlainCodec:
    """Codecs that need no package beyond those that executors have."""

    dtype: np.dtype[Any]
    """The type of the stored cells, including their byte order."""
    chunk_shape: tuple[int, ...]
    order: tuple[int, ...]
    """The order in which the dimensions are stored."""
    compression: str | None
    """`zstd` or `gzip`."""
    level: int

    @property
    def needs_zarr(self) -> bool:
        """Return False: Arrow, gzip and NumPy are enough."""
        return False

    def decode(self, data: bytes) -> npt.NDArray[Any]:
        """Return the cells of a chunk, in the shape that the reader expects. Raises ValueError."""
        size = self.dtype.itemsize * math.prod(self.chunk_shape)
        try:
            if self.compression == "zstd":
                data = pa.Codec("zstd").decompress(data, size, asbytes=True)
            elif self.compression == "gzip":
                data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"it is not compressed with {self.compression} ({error})") from None
        if len(data) != size:
            raise ValueError(f"it has {len(data)} bytes of cells instead of {size}")
        stored_shape = tuple(self.chunk_shape[axis] for axis in self.order)
        cells = np.frombuffer(data, self.dtype).reshape(stored_shape).transpose(np.argsort(self.order).tolist())
        return cells.astype(self.dtype.newbyteorder("="), copy=False)

    def encode(self, cells: npt.NDArray[Any]) -> bytes:
        """Return the bytes of a chunk, the same for the same cells."""
        data = np.ascontiguousarray(cells.astype(self.dtype, copy=False).transpose(self.order)).tobytes()
        if self.compression == "zstd":
            compressed: bytes = pa.Codec("zstd", compression_level=self.level).compress(data, asbytes=True)
            return compressed
        return gzip.compress(data, self.level, mtime=0) if self.compression == "gzip" else data


@dataclass(frozen=True, slots=True)
class ZarrCodec:
    """Encodes and decodes with Zarr, through an array in memory that has one chunk. Supports all codecs and shards."""

    document: bytes
    """The `zarr.json` of an array like the one that is read, of a single chunk."""

    @property
    def needs_zarr(self) -> bool:
        """Return True: Zarr's own codecs encode and decode."""
        return True

    def decode(self, data: bytes) -> npt.NDArray[Any]:
        """Return the cells of a chunk. Raises ValueError for any error of the codecs."""
        try:
            cells: npt.NDArray[Any] = np.asarray(self._array(data)[1][...])
        except Exception as error:  # each codec has errors of its own
            raise ValueError(f"Zarr cannot decode it ({type(error).__name__}: {error})") from None
        return cells

    def encode(self, cells: npt.NDArray[Any]) -> bytes:
        """Return the bytes of a chunk, as Zarr writes them into an array of this one chunk."""
        values, array = self._array(None)
        array[...] = cells
        return values[self._key(cells.ndim)].to_bytes()  # type: ignore[no-any-return]

    def _array(self, data: bytes | None) -> tuple[dict[str, Any], Any]:
        import zarr
        from zarr.core.buffer import default_buffer_prototype

        buffer = default_buffer_prototype().buffer
        values: dict[str, Any] = {"zarr.json": buffer.from_bytes(self.document)}
        if data is not None:
            values[self._key(len(json.loads(self.document)["shape"]))] = buffer.from_bytes(data)
        store = zarr.storage.MemoryStore(values)
        return values, zarr.open_array(store, mode="r+").with_config({"write_empty_chunks": True})

    @staticmethod
    def _key(dimensions: int) -> str:
        return "/".join(("c", *["0"] * dimensions))


def _plain_codec(
    codecs: Sequence[Mapping[str, Any]], dtype: np.dtype[Any], chunk_shape: tuple[int, ...]
) -> PlainCodec | None:
    """Return a codec that does not need Zarr, or None if the array has other codecs."""
    remaining = [(codec["name"], codec.get("configuration") or {}) for codec in codecs]
    order = tuple(range(len(chunk_shape)))
    if remaining and remaining[0][0] == "transpose" and isinstance(remaining[0][1].get("order"), list):
        order = tuple(remaining.pop(0)[1]["order"])
    if not remaining or remaining[0][0] != "bytes" or dtype.kind not in "biuf":
        return None
    stored = dtype.newbyteorder(">" if remaining.pop(0)[1].get("endian") == "big" else "<")
    if not remaining:
        return PlainCodec(stored, chunk_shape, order, None, 0)
    (name, settings), *more = remaining
    # Arrow writes no checksums.
    if more or name not in ("zstd", "gzip") or settings.get("checksum"):
        return None
    level = int(settings.get("level", _ZSTD_LEVEL))
    return PlainCodec(stored, chunk_shape, order, name, level or _ZSTD_LEVEL if name == "zstd" else level)


def _of_one_chunk(metadata: Mapping[str, Any], chunk_shape: tuple[int, ...]) -> bytes:
    return json.dumps({**metadata, "shape": chunk_shape, "attributes": {}}).encode()


def check_zarr() -> str | None:
    """Return the reason why an executor cannot use Zarr, or None if it can."""
    try:
        import zarr

        major = int(zarr.__version__.split(".")[0])
    except ModuleNotFoundError as error:
        return f"the package {error.name} is missing"
    return None if major >= 3 else f"its version of zarr is {zarr.__version__}"


def unsupported(path: str, reason: str) -> UnsupportedArray:
    """Return the error for an array that cannot become rows."""
    return UnsupportedArray(f"Spark cannot use the array {path}: {reason}")
