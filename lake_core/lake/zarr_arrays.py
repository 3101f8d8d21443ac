"""Plain Zarr v3 arrays in the tree: a chunk means nothing without the `zarr.json` above it.

Who writes a chunk relies on the array's shape, chunk grid, data type and codecs. If another session changed one of these meanwhile
(made the array smaller, say), the chunk would be lost or misread, though no key was written twice; and the other way round. The same
goes for what is put into a group that is gone. An array that has only grown keeps its chunks: appending goes along with writing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

from lake_core.lake.state_store import StateStore

METADATA = "zarr.json"
_GRID = ("zarr_format", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs", "storage_transformers")
"""What chunks mean depends on these; on the fill value, because chunks that hold nothing else are not stored."""


def reshaped_arrays(changed: Collection[str], base: StateStore, theirs: StateStore, target: StateStore) -> Iterator[str]:
    """The `zarr.json` of arrays of which one side changed chunks and the other what the chunks mean, and of groups that one side took
    away and the other put something into. `changed`: keys of `theirs`.
    """
    above: dict[str, str | None] = {}
    nodes = {found for key in changed if (found := _node_above(key, base, above)) is not None}
    for node in sorted(nodes.difference(changed)):
        if target.view.get(node) is None or not _keeps_chunks(_grid(base, node), _grid(target, node)):
            yield node
    if base.view.tree == target.view.tree:
        return
    for node in sorted(key for key in changed if _is_metadata(key) and base.view.get(key) is not None):
        if theirs.view.get(node) is not None and _keeps_chunks(_grid(base, node), _grid(theirs, node)):
            continue
        others = target.view.graveler.diff(base.view.tree, target.view.tree, node.removesuffix(METADATA).encode())
        if any(difference.key.decode() not in changed for difference in others):
            yield node


def grid_differs(key: str, *states: StateStore) -> bool:
    """Whether a key is the `zarr.json` of an array whose chunks do not mean the same in all of these states."""
    if not _is_metadata(key):
        return False
    first, *others = (_grid(state, key) for state in states)
    return any(other != first for other in others)


def _is_metadata(key: str) -> bool:
    return key == METADATA or key.endswith(f"/{METADATA}")


def _node_above(key: str, state: StateStore, known: dict[str, str | None]) -> str | None:
    """The nearest `zarr.json` above a key."""
    folder, slash, _ = key.rpartition("/")
    if not slash:
        return None
    if folder not in known:
        metadata = f"{folder}/{METADATA}"
        known[folder] = metadata if state.view.get(metadata) is not None else _node_above(folder, state, known)
    return known[folder]


def _keeps_chunks(before: Any, after: Any) -> bool:
    """Whether every chunk of an array stays one, and means the same: nothing but the shape differs, and that has not shrunk."""
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
        return False  # no lengths at all: somebody else's idea of a shape


def _grid(state: StateStore, key: str) -> Any:
    """What the chunks of an array mean; None where no array stands."""
    item = state.view.get(key)
    if item is None:
        return None
    try:
        body = json.loads(state.content.get(item))
    except ValueError:
        return item.identity
    if not isinstance(body, dict) or body.get("node_type") != "array":
        return None
    return {name: body.get(name) for name in _GRID}
