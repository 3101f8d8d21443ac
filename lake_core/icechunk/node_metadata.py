"""Reads `zarr.json` documents, as nodes that are stored and as the layouts of arrays that were stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lake_core.icechunk.chunk_grid import ChunkRuns, grid_of
from lake_core.icechunk.errors import InvalidArrayMetadata
from lake_core.icechunk.snapshot import ArrayNode, GroupNode, Node

_LARGEST_LENGTH = 2**64 - 1
_LARGEST_GRID = 2**32 - 1


@dataclass(frozen=True, slots=True)
class ArrayLayout:
    """The cells of an array and how they are cut into chunks."""

    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    """The shape of its chunks, or of its shards if it has shards; empty for a rectilinear grid."""
    dimension_names: tuple[str | None, ...] | None
    chunk_runs: tuple[ChunkRuns, ...] | None = None
    """The lengths of the chunks of a rectilinear grid, for each dimension; None for a regular grid."""


def array_layout(path: str, document: bytes) -> ArrayLayout:
    """Return the layout of a stored array, as its `zarr.json` describes it.

    Zarr reads and writes chunks by this document. Snapshots repeat the layout, but other clients store other lengths of
    chunks there: icechunk 2 computes them from the number of chunks.

    Raises:
        InvalidArrayMetadata: The document is not one of an array with a regular or rectilinear grid.
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
    if 0 in layout.chunk_shape or any(size == 0 for runs in layout.chunk_runs or () for size, _ in runs):
        raise InvalidArrayMetadata(
            f"the chunks of {path} have the length 0 along a dimension: make them at least 1 long"
        )
    _check_chunk_keys(path, metadata.get("chunk_key_encoding"))
    array = ArrayNode(
        node_id, path, document, layout.shape, layout.chunk_shape, layout.dimension_names, chunk_runs=layout.chunk_runs
    )
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
    grid = metadata.get("chunk_grid")
    is_rectilinear = isinstance(grid, Mapping) and grid.get("name") == "rectilinear"
    runs = _chunk_runs(path, grid or {}, shape) if is_rectilinear else None
    chunk_shape = _chunk_shape(path, grid) if runs is None else ()
    dimensions = len(chunk_shape if runs is None else runs)
    if len(shape) != dimensions:
        raise InvalidArrayMetadata(
            f"the zarr.json of {path} has a shape of {len(shape)} dimensions and chunks of {dimensions}: "
            "give both the same number"
        )
    names = _dimension_names(path, metadata.get("dimension_names"), len(shape))
    return ArrayLayout(shape, chunk_shape, names, runs)


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
            f"the chunk grid of {path} is neither regular nor rectilinear, but a repository stores these grids only"
        )
    return _lengths(path, "chunk_shape", grid["configuration"].get("chunk_shape"))


def _chunk_runs(path: str, grid: Mapping[str, Any], shape: tuple[int, ...]) -> tuple[ChunkRuns, ...]:
    """Return the lengths of chunks along each dimension: a number for all, or a list of lengths and of runs of them."""
    settings = grid.get("configuration")
    axes = settings.get("chunk_shapes") if isinstance(settings, Mapping) else None
    if not isinstance(settings, Mapping) or settings.get("kind", "inline") != "inline" or not isinstance(axes, list):
        raise InvalidArrayMetadata(f"the rectilinear chunk grid of {path} does not list the shapes of chunks inline")
    runs: list[ChunkRuns] = []
    for number, axis in enumerate(axes):
        if isinstance(axis, list):
            pairs = [each if isinstance(each, list) else [each, 1] for each in axis]
            if any(len(pair) != 2 for pair in pairs):
                raise InvalidArrayMetadata(f"a run of chunks in the zarr.json of {path} is not a length and a count")
            runs.append(tuple((*_lengths(path, "chunk_shapes", pair),) for pair in pairs))  # type: ignore[misc]
        else:
            (size,) = _lengths(path, "chunk_shapes", [axis])
            length = shape[number] if number < len(shape) else 0
            runs.append(((size, grid_of([length], [size])[0]),))
    return tuple(runs)


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
