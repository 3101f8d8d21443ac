"""The array settings in the metadata of an asset or an input, validated before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from numbers import Integral
from typing import Any, Literal, TypeAlias, get_args

from lake_orch.assets.metadata_names import OF_OUTPUTS, MetadataNames
from lake_orch.definition_metadata import (
    COLUMNS,
    MODE,
    PARTITION_EXPR,
    REF,
    TIMESTAMP,
    Ownership,
    read_choice,
    read_names,
    read_ownership,
    read_text,
)
from lake_orch.errors import InvalidDefinition
from lake_orch.location import table_path

ArrayWriteMode: TypeAlias = Literal["overwrite", "append", "error", "ignore"]

ENCODING = "lake/encoding"
DIMENSIONS = "lake/dims"
APPEND_DIM = "lake/append_dim"
COORDINATES = "lake/coordinates"
PREVIEW_IMAGE = "lake/preview_image"

_OF_ZARR = ("chunks", "shards", "compressors", "filters", "serializer", "fill_value")
ENCODINGS = (*_OF_ZARR, "dtype", "units", "calendar", "_FillValue", "missing_value", "scale_factor", "add_offset")
"""The names of encoding settings: those of Zarr, and those of the CF conventions."""

SELECTION = "lake/sel"
CHUNKS = "lake/chunks"
SNAPSHOT = "lake/snapshot"


NAMES = MetadataNames(
    "arrays",
    output=(MODE, *OF_OUTPUTS, ENCODING, DIMENSIONS, APPEND_DIM, COORDINATES, PREVIEW_IMAGE),
    input=(SELECTION, CHUNKS, REF, SNAPSHOT, TIMESTAMP),
    without_prefix=(COLUMNS,),
)


@dataclass(frozen=True, slots=True)
class ArraySettings:
    """The settings of one repository and its writes."""

    path: str
    mode: ArrayWriteMode = "overwrite"
    ownership: Ownership = "keep"
    partition_expr: Any = None
    encoding: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The encoding of each variable, in xarray's names."""
    dimensions: tuple[str, ...] = ()
    """Names of the dimensions of arrays that have none."""
    append_dim: str | None = None
    coordinates: Mapping[str, Any] = field(default_factory=dict)
    """All coordinates that a dimension will ever have, or the frequency of those of time partitions, by dimension.

    Arrays have that length from the start.
    """
    partition_chunks: Mapping[str, int] = field(default_factory=dict)
    """The length of chunks, by dimension, with which no two partitions share a chunk. Unknown lengths are left out."""
    preview_image: bool | str | None = None
    """True or False to show or hide a picture on the asset's page, or the variable to show."""

    @classmethod
    def parse(
        cls,
        asset_key: Sequence[str] | None,
        metadata: Mapping[str, Any],
        subject: str,
        *,
        mode: ArrayWriteMode = "overwrite",
    ) -> ArraySettings:
        """Read an output's definition metadata. `mode` is the default. Raises InvalidDefinition."""
        implied: ArrayWriteMode = "append" if APPEND_DIM in metadata else mode
        settings = cls(
            path=table_path(asset_key, metadata),
            mode=read_choice(metadata, MODE, implied, get_args(ArrayWriteMode), subject),
            ownership=read_ownership(metadata, subject),
            partition_expr=metadata.get(PARTITION_EXPR),
            encoding=_encoding(metadata.get(ENCODING, {}), subject),
            dimensions=read_names(metadata, DIMENSIONS, subject) or (),
            append_dim=metadata.get(APPEND_DIM),
            coordinates=_by_dimension(metadata, COORDINATES, subject),
            preview_image=metadata.get(PREVIEW_IMAGE),
        )
        settings._check(subject)
        return settings

    def _check(self, subject: str) -> None:
        if self.append_dim is not None and (not isinstance(self.append_dim, str) or self.mode != "append"):
            raise InvalidDefinition(
                f"{APPEND_DIM} of {subject} is {self.append_dim!r}: name a dimension, and use {MODE} 'append'"
            )
        if self.mode == "append" and self.append_dim is None and self.partition_expr is None:
            raise InvalidDefinition(f"{MODE} of {subject} is 'append': name the dimension that grows by {APPEND_DIM}")
        if not isinstance(self.preview_image, bool | str | None):
            raise InvalidDefinition(
                f"{PREVIEW_IMAGE} of {subject} is {self.preview_image!r}: use true, false or the name of a variable"
            )


@dataclass(frozen=True, slots=True)
class ArrayInputSettings:
    """The part of a repository to read, and the state to read it from."""

    variables: tuple[str, ...] | None = None
    selection: Mapping[str, Any] = field(default_factory=dict)
    """The indexers of `Dataset.sel`: values, lists or slices by dimension."""
    chunks: Any = None
    """The argument `chunks` of `xarray.open_zarr`. None means lazy arrays without dask."""
    snapshot: str | None = None
    timestamp: datetime | None = None

    @classmethod
    def parse(cls, metadata: Mapping[str, Any], subject: str) -> ArrayInputSettings:
        """Read an input's metadata. Raises InvalidDefinition."""
        timestamp = metadata.get(TIMESTAMP)
        if isinstance(timestamp, str):
            # The check below raises the error.
            with suppress(ValueError):
                timestamp = datetime.fromisoformat(timestamp)
        if timestamp is not None and (not isinstance(timestamp, datetime) or timestamp.tzinfo is None):
            raise InvalidDefinition(f"{TIMESTAMP} of {subject} is {timestamp!r}: use a time with its zone")
        if timestamp is not None and SNAPSHOT in metadata:
            raise InvalidDefinition(f"{subject} asks for a snapshot and a timestamp: leave one of them out")
        selection = _by_dimension(metadata, SELECTION, subject)
        return cls(
            variables=read_names(metadata, COLUMNS, subject),
            selection={dimension: _indexer(value) for dimension, value in selection.items()},
            chunks=metadata.get(CHUNKS),
            snapshot=read_text(metadata, SNAPSHOT, subject),
            timestamp=timestamp,
        )


def _indexer(value: Any) -> Any:
    """Return an indexer for `sel`. A mapping with `start` and `stop` means a slice, because YAML has no slices."""
    if isinstance(value, Mapping) and value and set(value) <= {"start", "stop", "step"}:
        return slice(value.get("start"), value.get("stop"), value.get("step"))
    return value


def _encoding(value: Any, subject: str) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(value, Mapping) or not all(isinstance(encoding, Mapping) for encoding in value.values()):
        raise InvalidDefinition(
            f"{ENCODING} of {subject} is {value!r}: use a dict of encodings by variable, "
            "such as {'t2m': {'chunks': …}}"
        )
    encodings = {str(name): dict(encoding) for name, encoding in value.items()}
    for variable, encoding in encodings.items():
        unknown = [name for name in encoding if name not in ENCODINGS]
        if unknown:
            raise InvalidDefinition(
                f"{ENCODING} of {subject} gives {variable!r} the encoding {unknown[0]!r}: use {', '.join(ENCODINGS)}"
            )
        for name in ("chunks", "shards"):
            if name in encoding:
                encoding[name] = _lengths(encoding[name], f"{name} of {variable!r} in {ENCODING} of {subject}")
    return encodings


def _lengths(value: Any, subject: str) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not all(
        isinstance(length, Integral) and int(length) > 0 for length in value
    ):
        raise InvalidDefinition(f"{subject} is {value!r}: use a list of whole numbers, one for each dimension")
    return tuple(int(length) for length in value)


def _by_dimension(metadata: Mapping[str, Any], name: str, subject: str) -> Mapping[str, Any]:
    value = metadata.get(name, {})
    if not isinstance(value, Mapping) or not all(isinstance(dimension, str) for dimension in value):
        raise InvalidDefinition(f"{name} of {subject} is {value!r}: use a dict by dimension")
    return dict(value)
