"""How the Parquet files of a table are written, by its properties."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lake_core.delta.errors import InvalidProperty

if TYPE_CHECKING:
    from collections.abc import Mapping

CODEC: Final = "delta.parquet.compression.codec"
LEVEL: Final = "lake.parquet.compressionLevel"
DICTIONARY: Final = "lake.parquet.dictionary"
GROUP_ROWS: Final = "lake.parquet.rowGroupRows"

_CODECS: Final = {
    "zstd": "zstd",
    "snappy": "snappy",
    "gzip": "gzip",
    "brotli": "brotli",
    "lz4": "lz4",
    "lz4_raw": "lz4",
    "uncompressed": "none",
    "none": "none",
}
"""PyArrow's codecs by the property's values. PyArrow's lz4 is Parquet's LZ4_RAW."""
_LEVELS: Final = {"zstd": (1, 22), "gzip": (1, 9), "brotli": (0, 11)}
_DEFAULT_LEVELS: Final = {"zstd": 3}
_SUFFIXES: Final = {"none": "", "gzip": ".gz", "lz4": ".lz4raw", "brotli": ".br"}
_DEFAULT_GROUP_ROWS: Final = 1 << 20
_MOST_GROUP_ROWS: Final = 1 << 26


@dataclass(frozen=True, slots=True)
class WriterProperties:
    """How the files of one operation are written. What is None is as the table's properties say.

    The names are those of the same class of deltalake.
    """

    compression: str | None = None
    """One of the values of `delta.parquet.compression.codec`, such as `zstd`, in any case."""
    compression_level: int | None = None
    dictionary_enabled: bool | None = None
    """Whether each column gets a dictionary, or none."""
    max_row_group_size: int | None = None
    """The most rows of a row group."""

    def options(self, properties: Mapping[str, str]) -> ParquetOptions:
        """Return the options of files of a table with these properties. Raises InvalidProperty."""
        own: dict[str, object] = {
            CODEC: self.compression,
            LEVEL: self.compression_level,
            DICTIONARY: None if self.dictionary_enabled is None else str(self.dictionary_enabled).lower(),
            GROUP_ROWS: self.max_row_group_size,
        }
        invalid = {*ParquetOptions.invalid(properties), *([LEVEL] if self.compression is not None else [])}
        kept = {name: value for name, value in properties.items() if name not in invalid}
        return ParquetOptions.of(kept | {name: str(value) for name, value in own.items() if value is not None})


@dataclass(frozen=True, slots=True)
class ParquetOptions:
    """The options of a table's data files."""

    codec: str = "zstd"
    """PyArrow's name of the compression."""
    level: int | None = _DEFAULT_LEVELS["zstd"]
    """The compression's level. None is the codec's own."""
    dictionary: bool | None = None
    """Whether columns get dictionaries. None leaves that to a sample of each column."""
    group_rows: int = _DEFAULT_GROUP_ROWS
    """The most rows of a row group."""

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> ParquetOptions:
        """Read the options from a table's properties. Raises InvalidProperty."""
        codec = _codec(properties)
        text = properties.get(DICTIONARY, "auto").lower()
        if text not in ("auto", "true", "false"):
            raise InvalidProperty(f"{DICTIONARY} is {properties[DICTIONARY]!r}: use 'auto', 'true' or 'false'")
        return cls(codec, _level(properties, codec), None if text == "auto" else text == "true", _rows(properties))

    @classmethod
    def tolerant(cls, properties: Mapping[str, str]) -> ParquetOptions:
        """Read the options from properties that another writer may have set: an invalid one counts as absent."""
        invalid = cls.invalid(properties)
        return cls.of({name: value for name, value in properties.items() if name not in invalid})

    @classmethod
    def invalid(cls, properties: Mapping[str, str]) -> dict[str, str]:
        """Return what is wrong with each property that `tolerant` takes as absent, by its name."""
        problems: dict[str, str] = {}
        for name in (CODEC, LEVEL, DICTIONARY, GROUP_ROWS):
            try:
                cls.of({key: properties[key] for key in (CODEC, name) if key in properties and key not in problems})
            except InvalidProperty as error:
                problems[name] = str(error)
        return problems

    @property
    def suffix(self) -> str:
        """Return the part of a file's name that says how the file is compressed."""
        return _SUFFIXES.get(self.codec, f".{self.codec}")


def _codec(properties: Mapping[str, str]) -> str:
    text = properties.get(CODEC, "zstd")
    codec = _CODECS.get(text.lower())
    if codec is None:
        raise InvalidProperty(f"{CODEC} is {text!r}: use one of {', '.join(_CODECS)}")
    return codec


def _level(properties: Mapping[str, str], codec: str) -> int | None:
    text = properties.get(LEVEL)
    if text is None:
        return _DEFAULT_LEVELS.get(codec)
    bounds = _LEVELS.get(codec)
    if bounds is None:
        raise InvalidProperty(f"{LEVEL} is {text!r}, but {codec} has no levels: unset it, or set {CODEC} to zstd")
    if not re.fullmatch(r"\d{1,2}", text) or not bounds[0] <= int(text) <= bounds[1]:
        raise InvalidProperty(f"{LEVEL} is {text!r}: use a whole number from {bounds[0]} to {bounds[1]} for {codec}")
    return int(text)


def _rows(properties: Mapping[str, str]) -> int:
    text = properties.get(GROUP_ROWS, str(_DEFAULT_GROUP_ROWS))
    if not re.fullmatch(r"[1-9]\d{0,8}", text) or int(text) > _MOST_GROUP_ROWS:
        raise InvalidProperty(f"{GROUP_ROWS} is {text!r}: use a whole number from 1 to {_MOST_GROUP_ROWS}")
    return int(text)
