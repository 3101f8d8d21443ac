"""Rows that commands load into pools: files and standard input, in the formats that pools read."""

from __future__ import annotations

from contextlib import contextmanager
from io import TextIOBase, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, get_args

import click
import pyarrow as pa

from lake_core.parquet_rows import stream_parquet
from lake_core.pool.errors import InvalidJson, InvalidType, InvalidValue, InvalidZng, InvalidZson
from lake_core.pool.ndjson import lines_of_objects
from lake_core.pool.zson.reader import parse_values

if TYPE_CHECKING:
    from collections.abc import Iterator

RowFormat = Literal["ndjson", "zson", "zng", "parquet"]
FORMATS: tuple[RowFormat, ...] = get_args(RowFormat)

_BY_SUFFIX: dict[str, RowFormat] = {
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "ndjson",
    ".zson": "zson",
    ".zng": "zng",
    ".parquet": "parquet",
}


_UNREADABLE = (InvalidJson, InvalidType, InvalidValue, InvalidZng, InvalidZson, UnicodeDecodeError, pa.ArrowInvalid)


def format_of(name: str, format: RowFormat | None) -> RowFormat:
    """Return the format of a file: the one that the caller names, else that of its name. Raises UsageError."""
    known = format or _BY_SUFFIX.get(Path(name).suffix)
    if known is None:
        raise click.UsageError(
            f"the name {name!r} does not show the file's format: pass --format with one of {', '.join(FORMATS)}"
        )
    return known


def read_rows(file: BinaryIO, format: RowFormat) -> Any:
    """Return the rows of an open file, as `Pool.load` takes them."""
    if format == "parquet":
        return stream_parquet(file)
    if format == "zng":
        return file
    text = TextIOWrapper(file, encoding="utf-8-sig")
    return _Objects(text) if format == "ndjson" else parse_values(text.read())


class _Objects(TextIOBase):
    """Lines of JSON. Raises InvalidJson for a line that is not an object."""

    def __init__(self, lines: TextIOWrapper) -> None:
        self._lines = lines_of_objects(lines)

    def __next__(self) -> str:  # type: ignore[override]
        return next(self._lines)


@contextmanager
def named_errors(name: str, note: str = "") -> Iterator[None]:
    """Raise InvalidValue, with the name of the file, for a file that cannot be read.

    `note` is the end of the message.
    """
    try:
        yield
    except _UNREADABLE as error:
        raise InvalidValue(f"{'standard input' if name == '-' else name}: {error}{note}") from None
