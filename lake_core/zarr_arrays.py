"""The `KeyRule` of plain Zarr v3 arrays: a chunk is valid only with the `zarr.json` above it.

A chunk depends on the array's shape, chunk grid, data type and codecs. If another session changes one of these, such as
by making the array smaller, the chunk would be lost or misread, although no key was written twice. The same is true for
nodes in a group that was deleted. If an array only grows, its chunks stay valid: appends do not conflict with writes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake_core.key_rules import PlainChange, PlainKeys

METADATA = "zarr.json"
_GRID = (
    "zarr_format",
    "shape",
    "data_type",
    "chunk_grid",
    "chunk_key_encoding",
    "fill_value",
    "codecs",
    "storage_transformers",
)
"""What chunks mean depends on these; on the fill value, because chunks that hold nothing else are not stored."""


class ZarrArrays:
    """Keeps the chunks of an array with the metadata that they were written by: a `KeyRule`."""

    kind = "ArrayReshaped"
    explanation = "the array was reshaped or taken away on one side, and written on the other"

    def contradicted(self, change: PlainChange) -> Iterator[str]:
        """List the `zarr.json` of arrays and groups that the two sides changed in contradictory ways.

        For an array, one side changed chunks and the other one metadata that they depend on. For a group, one side
        deleted it and the other one added a node to it.
        """
        keys, base, incoming, target = change.keys, change.base, change.incoming, change.target
        above: dict[str, str | None] = {}
        nodes = {node for key in keys if (node := _node_above(key, base, above)) is not None}
        for node in sorted(nodes.difference(keys)):
            if target.identity(node) is None or not _keeps_chunks(_grid(base, node), _grid(target, node)):
                yield node
        for node in sorted(key for key in keys if _is_metadata(key) and base.identity(key) is not None):
            if all(key in keys for key in change.changed_there(node.removesuffix(METADATA))):
                continue
            if incoming.identity(node) is None or not _keeps_chunks(_grid(base, node), _grid(incoming, node)):
                yield node

    def is_mixed(self, key: str, change: PlainChange) -> bool:
        """Return whether a key is the `zarr.json` of an array with chunks that do not mean the same on all sides.

        One side's shape and the other side's chunks make no array.
        """
        if not _is_metadata(key):
            return False
        first, *others = (_grid(side, key) for side in (change.base, change.incoming, change.target))
        return any(other != first for other in others)


def _is_metadata(key: str) -> bool:
    return key == METADATA or key.endswith(f"/{METADATA}")


def _node_above(key: str, state: PlainKeys, cache: dict[str, str | None]) -> str | None:
    """Find the nearest `zarr.json` above a key."""
    folder, slash, _ = key.rpartition("/")
    if not slash:
        return None
    if folder not in cache:
        metadata = f"{folder}/{METADATA}"
        cache[folder] = metadata if state.identity(metadata) is not None else _node_above(folder, state, cache)
    return cache[folder]


def _keeps_chunks(before: Any, after: Any) -> bool:
    """Return whether an array's chunks all stay and mean the same: only the shape differs, and has not shrunk."""
    if before == after:
        return True
    if not isinstance(before, dict) or not isinstance(after, dict):
        return False
    old, new = before["shape"], after["shape"]
    if before | {"shape": None} != after | {"shape": None} or not (isinstance(old, list) and isinstance(new, list)):
        return False
    try:
        return len(old) == len(new) and all(length <= longer for length, longer in zip(old, new, strict=True))
    except TypeError:
        return False  # no lengths at all: another process's idea of a shape


def _grid(state: PlainKeys, key: str) -> Any:
    """Read the meaning of an array's chunks; None if there is no array."""
    data = state.read(key)
    if data is None:
        return None
    try:
        body = json.loads(data)
    except ValueError:
        return state.identity(key)
    if not isinstance(body, dict) or body.get("node_type") != "array":
        return None
    return {name: body.get(name) for name in _GRID}
