"""Compressed files that others wrote."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

PACKINGS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
"""The compressions that the extension of a file says."""


@contextmanager
def telling_damage(name: str) -> Iterator[None]:
    """Raise ArrowInvalid, which names the file, for a compressed file that cannot be decompressed."""
    try:
        yield
    except (EOFError, lzma.LZMAError, zlib.error, OSError) as error:
        if getattr(error, "errno", None) is not None:
            raise  # of the system or the network
        raise pa.ArrowInvalid(f"{name} is cut, or is not compressed as its name says ({error})") from None
