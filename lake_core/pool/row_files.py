"""Files of rows: lines of JSON, ZNG, ZSON and Parquet."""

from __future__ import annotations

import codecs
import io
import os
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

import pyarrow as pa

from lake_core.parquet_rows import stream_parquet
from lake_core.pool.errors import InvalidJson, InvalidValue, InvalidZng
from lake_core.pool.ndjson_batches import read_ndjson_batches
from lake_core.pool.value_batch import ValueBatch, batches_of_arrow, batches_of_values, read_batches
from lake_core.pool.zson.reader import parse_values

if TYPE_CHECKING:
    from collections.abc import Iterator

_JSON: Final = (".ndjson", ".jsonl", ".json")
_BUFFER: Final = 1 << 20
_TEXT: Final = (b"{", codecs.BOM_UTF8[:1])
"""First bytes that no ZNG begins with."""
_PERHAPS_TEXT: Final = (b"[", b" ", b"\t", b"\r", b"\n")
_PARQUET_ROWS: Final = 1 << 16


def batches_of_path(path: str | os.PathLike[str]) -> Iterator[ValueBatch]:
    """Yield the values of JSON lines (.ndjson, .jsonl, .json), ZNG (.zng), ZSON (.zson) or Parquet (.parquet).

    A file of ZSON is held in memory.

    Raises:
        InvalidValue: There is no such file, its name has another ending, or it is not Parquet.
        InvalidJson: A line is not JSON.
        InvalidZng: It is not ZNG.
        InvalidZson: It is not ZSON.
    """
    ending = os.path.splitext(os.fspath(path))[1].lower()
    try:
        if ending == ".parquet":
            for batch in stream_parquet(path, _PARQUET_ROWS):
                yield from batches_of_arrow(batch)
        elif ending == ".zng":
            with open(path, "rb", _BUFFER) as binary:
                yield from read_batches(binary)
        elif ending == ".zson":
            with open(path, encoding="utf-8-sig") as text:
                yield from batches_of_values(parse_values(text.read()))
        elif ending in _JSON:
            with open(path, encoding="utf-8-sig") as text:
                yield from _lines(text)
        else:
            endings = ", ".join((*_JSON, ".zng", ".zson", ".parquet"))
            raise InvalidValue(
                f"the format of {os.fspath(path)!r} is unknown: its name must end in one of {endings}; "
                "rename it, or open it and pass the open file"
            )
    except (OSError, UnicodeDecodeError, pa.ArrowInvalid) as error:
        raise InvalidValue(f"{os.fspath(path)!r} cannot be read: {error}") from None


def batches_of_stream(stream: Any) -> Iterator[ValueBatch]:
    """Yield the values of an open file.

    Text, and bytes that begin with `{` or the mark of UTF-8, are read as lines of JSON, and other bytes as ZNG.

    Raises:
        InvalidJson: A line is not JSON.
        InvalidZng: It is not ZNG.
    """
    if isinstance(stream, io.TextIOBase):
        yield from _lines(stream)
        return
    binary = (
        stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(cast("io.RawIOBase", stream), _BUFFER)
    )
    first = binary.peek(1)[:1]
    if first in _TEXT:
        yield from _lines(io.TextIOWrapper(binary, encoding="utf-8-sig"))
        return
    try:
        yield from read_batches(cast("BinaryIO", binary))
    except InvalidZng as error:
        if first not in _PERHAPS_TEXT:
            raise
        raise InvalidZng(
            f"{error}; if it is JSON, write one object a line, without an array around them, and begin with the first"
        ) from None


def _lines(text: Any) -> Iterator[ValueBatch]:
    try:
        yield from read_ndjson_batches(text)
    except UnicodeDecodeError as error:
        raise InvalidJson(f"the lines are not UTF-8: {error}; convert the file to UTF-8") from None
