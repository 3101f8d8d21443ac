"""Reads `zarr.json` documents, as nodes that are stored and as the layouts of arrays that were stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lake_core.icechunk.errors import InvalidArrayMetadata
from lake_core.icechunk.snapshot import ArrayNode, GroupNode, Node

_LARGEST_LENGTH = 2**64 - 1
_LARGEST_GRID = 2**32 - 1


@dataclass(frozen=True, slots=True)
class ArrayLayout:
    """The cells of an array and how they are cut into chunks."""

    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    """The shape of its chunks, or of its shards if it has shards."""
    dimension_names: tuple[str | None, ...] | None


def array_layout(path: str, document: bytes) -> ArrayLayout:
    """Return the layout of a stored array, as its `zarr.json` describes it.

    Zarr reads and writes chunks by this document. Snapshots repeat the layout, but other clients store other lengths of
    chunks there: icechunk 2 computes them from the number of chunks.

    Raises:
        InvalidArrayMetadata: The document is not one of an array with a regular grid.
    """
    return _layout(path, _metadata(path, document))


def parse_node(path: str, document: bytes, node_id: bytes) -> Node:
    """Return the node that a `zarr.json` document describes, without manifests.

    Raises:
        InvalidArrayMetadata: It is not a document of Zarr v3, or its array cannot be stored in a repository.
    """
    metadata = _metadata(path, document)
    kind = metadata.get("node_type")
    if kind == "group":
        return GroupNode(node_id, path, document)
    if kind != "array":
        raise InvalidArrayMetadata(
            f"the zarr.json of {path} describes neither an array nor a group: set its node_type to one of them"
        )
    layout = _layout(path, metadata)
    if 0 in layout.chunk_shape:
        raise InvalidArrayMetadata(
            f"the chunks of {path} have the length 0 along a dimension: make them at least 1 long"
        )
    _check_chunk_keys(path, metadata.get("chunk_key_encoding"))
    array = ArrayNode(node_id, path, document, layout.shape, layout.chunk_shape, layout.dimension_names)
    if any(count > _LARGEST_GRID for count in array.grid):
        raise InvalidArrayMetadata(
            f"the array {path} has more than {_LARGEST_GRID} chunks along a dimension: make its chunks larger"
        )
    return array


def _metadata(path: str, document: bytes) -> dict[str, Any]:
    try:
        metadata = json.loads(document)
    except (ValueError, RecursionError):
        raise InvalidArrayMetadata(f"the zarr.json of {path} is not JSON") from None
    if not isinstance(metadata, dict) or metadata.get("zarr_format") != 3:
        raise InvalidArrayMetadata(
            f"the zarr.json of {path} is not of Zarr format 3, the only format that a repository stores"
        )
    return metadata


def _layout(path: str, metadata: Mapping[str, Any]) -> ArrayLayout:
    shape = _lengths(path, "shape", metadata.get("shape"))
    chunk_shape = _chunk_shape(path, metadata.get("chunk_grid"))
    if len(shape) != len(chunk_shape):
        raise InvalidArrayMetadata(
            f"the zarr.json of {path} has a shape of {len(shape)} dimensions and chunks of {len(chunk_shape)}: "
            "give both the same number"
        )
    return ArrayLayout(shape, chunk_shape, _dimension_names(path, metadata.get("dimension_names"), len(shape)))


def _lengths(path: str, name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or any(
        not isinstance(length, int) or isinstance(length, bool) or not 0 <= length <= _LARGEST_LENGTH
        for length in value
    ):
        raise InvalidArrayMetadata(
            f"the {name} in the zarr.json of {path} must be a list of whole numbers, not {str(value)[:100]}"
        )
    return tuple(value)


def _chunk_shape(path: str, grid: Any) -> tuple[int, ...]:
    if (
        not isinstance(grid, Mapping)
        or grid.get("name") != "regular"
        or not isinstance(grid.get("configuration"), Mapping)
    ):
        raise InvalidArrayMetadata(
            f"the chunk grid of {path} is not regular, but a repository stores regular grids only"
        )
    return _lengths(path, "chunk_shape", grid["configuration"].get("chunk_shape"))


def _check_chunk_keys(path: str, encoding: Any) -> None:
    if encoding is None:
        return
    settings = (encoding.get("configuration") or {}) if isinstance(encoding, Mapping) else None
    if settings is None or encoding.get("name") != "default" or settings.get("separator", "/") != "/":
        raise InvalidArrayMetadata(
            f"the chunk keys of {path} do not have Zarr's default encoding: leave out chunk_key_encoding"
        )


def _dimension_names(path: str, names: Any, dimensions: int) -> tuple[str | None, ...] | None:
    if names is None:
        return None
    if (
        not isinstance(names, list)
        or len(names) != dimensions
        or any(not isinstance(name, str | None) for name in names)
    ):
        raise InvalidArrayMetadata(
            f"the dimension_names in the zarr.json of {path} must be a name or null for each of the "
            f"{dimensions} dimensions"
        )
    return tuple(names)
