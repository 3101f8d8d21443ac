"""The common form of snapshots, manifests and transaction logs: a header of 39 bytes, then a zstd frame.

Specification section: File Formats.
"""

from __future__ import annotations

from enum import IntEnum

import zstandard

from lake_core.icechunk.errors import DamagedObject, UnsupportedSpecVersion

MAGIC = "ICE🧊CHUNK".encode()
HEADER_LENGTH = 39
_VERSION_AT = 36
SPEC_VERSIONS = (1, 2)
"""The versions of the specification that are read and written. Each file names its own."""
DEFAULT_COMPRESSION_LEVEL = 3
_LEAST_BODY_IN_THREADS = 2**22
"""Bytes from which on all cores compress a body. Smaller ones would become larger files, and take no less time."""

_WRITER = b"lake_core".ljust(24)
_NO_COMPRESSION, _ZSTD = 0, 1
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_LARGEST_BODY = 2**31 - 1
"""Bytes that a flatbuffer can address."""
_LARGEST_SMALL_BODY = 2**26
_LARGEST_RATIO = 4096
"""How many bytes one compressed byte of a larger body may stand for, at most.

It bounds the memory that a small, hostile file can take.
"""


class FileType(IntEnum):
    """The kind of a file, as its header names it."""

    SNAPSHOT = 1
    MANIFEST = 2
    TRANSACTION_LOG = 4
    REPO_INFO = 6


def encode_file(
    file_type: FileType,
    body: bytes | bytearray | memoryview,
    level: int = DEFAULT_COMPRESSION_LEVEL,
    spec_version: int = 1,
) -> bytes:
    """Return a file of this type that holds the flatbuffer `body`. `level` is that of zstd."""
    header = MAGIC + _WRITER + bytes((spec_version, file_type, _ZSTD))
    threads = -1 if len(body) >= _LEAST_BODY_IN_THREADS else 0
    # Any reader of zstd compares the checksum.
    return header + zstandard.ZstdCompressor(level, write_checksum=True, threads=threads).compress(body)


def spec_version_of(data: bytes) -> int:
    """Return the version of the specification that a decoded file follows."""
    return data[_VERSION_AT]


def is_foreign(data: bytes) -> bool:
    """Return whether the header of a file names another writer than this package."""
    return data[len(MAGIC) : len(MAGIC) + len(_WRITER)] != _WRITER


def decode_file(data: bytes, file_type: FileType, path: str) -> bytes:
    """Return the flatbuffer inside a file.

    Args:
        data: The whole file.
        file_type: What the file must be.
        path: The path of the file in the repository, for errors.

    Raises:
        DamagedObject: The file is not of this type, or does not decompress.
        UnsupportedSpecVersion: The file follows another version of the specification.
    """
    if data[: len(MAGIC)] != MAGIC:
        raise DamagedObject(path, "it does not begin with Icechunk's magic bytes")
    if len(data) < HEADER_LENGTH:
        raise DamagedObject(path, "it ends within its header")
    version, kind, compression = data[_VERSION_AT:HEADER_LENGTH]
    if version not in SPEC_VERSIONS:
        raise UnsupportedSpecVersion(
            f"{path} follows version {version} of the Icechunk specification, not 1 or 2: open it with a newer icechunk"
        )
    if kind != file_type:
        raise DamagedObject(
            path,
            f"its header says file type {kind}, but a {file_type.name.lower().replace('_', ' ')} has {file_type.value}",
        )
    # Other readers ignore the header here: a file is uncompressed only if it is marked so and does not look compressed.
    if compression == _NO_COMPRESSION and data[HEADER_LENGTH : HEADER_LENGTH + 4] != _ZSTD_MAGIC:
        return data[HEADER_LENGTH:]
    return _decompress(data, path)


def _decompress(data: bytes, path: str) -> bytes:
    body = memoryview(data)[HEADER_LENGTH:]
    limit = min(_LARGEST_BODY, max(_LARGEST_SMALL_BODY, len(body) * _LARGEST_RATIO))
    try:
        declared = zstandard.frame_content_size(body)
        if declared > limit:
            raise DamagedObject(path, f"it claims to hold {declared} bytes, but files of its size hold at most {limit}")
        if declared >= 0:
            return zstandard.ZstdDecompressor().decompress(body, max_output_size=limit)
        with zstandard.ZstdDecompressor().stream_reader(body) as reader:
            text = reader.read(limit + 1)
    except (zstandard.ZstdError, MemoryError) as error:
        raise DamagedObject(path, f"it does not decompress ({error})") from None
    if len(text) > limit:
        raise DamagedObject(path, f"it decompresses to more than {limit} bytes")
    return text


def zstd_problem(data: bytes) -> str | None:
    """Return what is wrong with data that begins with a zstd frame. Return None for other data."""
    if data[: len(_ZSTD_MAGIC)] != _ZSTD_MAGIC:
        return None
    frame = zstandard.ZstdDecompressor().decompressobj()
    try:
        frame.decompress(data)
    except (zstandard.ZstdError, MemoryError) as error:
        return f"it does not decompress ({error})"
    return None if frame.eof else "it ends inside its zstd frame"
