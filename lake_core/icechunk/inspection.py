"""What a person can look at in one state of an Icechunk repository."""

from __future__ import annotations

import json
import math
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from lake_core.icechunk.ancestry import ancestry
from lake_core.icechunk.difference import difference
from lake_core.icechunk.identifier import INITIAL_SNAPSHOT, encode_id
from lake_core.icechunk.node_metadata import array_layout
from lake_core.icechunk.snapshot import ArrayNode, Snapshot
from lake_core.inspection import (
    ChunkMap,
    Fact,
    Inspection,
    NodeInfo,
    NotShown,
    Plane,
    PlaneRequest,
    Summary,
    TooMuchToShow,
    VersionInfo,
)
from lake_core.store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lake_core.icechunk.asset_manager import AssetManager
    from lake_core.icechunk.repo_info import HistoryEntry
    from lake_core.icechunk.store import IcechunkStore

_WIDEST = 512
"""The most numbers along a side of a picture."""


class IcechunkInspection(Inspection[ObjectStore]):
    """A repository at the newest snapshot of main."""

    format = "icechunk"
    has_nodes = True

    def __init__(
        self,
        store: ObjectStore,
        assets: AssetManager,
        snapshot: Snapshot,
        open_arrays: Callable[[], IcechunkStore],
    ) -> None:
        super().__init__(store)
        self._assets, self.snapshot, self._open = assets, snapshot, open_arrays

    def summary(self) -> Summary:
        """Return the number of nodes, and of manifests with their chunks."""
        nodes = self.snapshot.nodes.values()
        arrays = [node for node in nodes if isinstance(node, ArrayNode)]
        manifests = self.snapshot.manifest_files.values()
        return Summary(
            kind="Arrays",
            version=None,
            rows=None,
            files=len(manifests),
            bytes=None,
            facts=[
                Fact("snapshot", encode_id(self.snapshot.snapshot_id)),
                Fact("arrays", len(arrays)),
                Fact("groups", len(self.snapshot.nodes) - len(arrays)),
                Fact("chunks that were written", sum(each.num_chunk_refs for each in manifests)),
                Fact("manifests", len(manifests)),
                Fact("size of the manifests", sum(each.size_bytes for each in manifests), "bytes"),
            ],
        )

    def versions(self, count: int) -> Sequence[VersionInfo]:
        """Return the snapshots, newest first."""
        return [
            VersionInfo(encode_id(each.snapshot_id), each.written_at, each.message, files=self._manifests(each))
            for each in islice(ancestry(self._assets, self.snapshot.snapshot_id), count)
        ]

    def _manifests(self, entry: HistoryEntry) -> int:
        snapshot = entry if isinstance(entry, Snapshot) else self._assets.snapshot(entry.snapshot_id)
        return len(snapshot.manifest_files)

    def nodes(self) -> Sequence[NodeInfo]:
        """Return the arrays and groups in the order of a tree."""
        return [self._node(path) for path in sorted(self.snapshot.nodes, key=lambda path: path.split("/"))]

    def _node(self, path: str) -> NodeInfo:
        node = self.snapshot.nodes[path]
        document = _document(node.user_data)
        attributes = document.get("attributes")
        attributes = attributes if isinstance(attributes, dict) else {}
        if not isinstance(node, ArrayNode):
            return NodeInfo(path, "group", attributes)
        layout = array_layout(path, node.user_data)
        grid = list(node.grid)
        codecs = document.get("codecs")
        names = [each.get("name") for each in codecs if isinstance(each, dict)] if isinstance(codecs, list) else []
        kind = document.get("data_type")
        return NodeInfo(
            path,
            "array",
            attributes,
            layout.shape,
            layout.chunk_shape,
            grid,
            [name or "" for name in layout.dimension_names or [""] * len(layout.shape)],
            kind if isinstance(kind, str) else json.dumps(kind),
            ", ".join(str(name) for name in names),
        )

    def plane(self, request: PlaneRequest, most_cells: int) -> Plane:
        """Return a slice of an array. Every so many cells are taken if it is wide, and only their chunks are read."""
        import zarr

        node = self.snapshot.nodes.get(request.path)
        if not isinstance(node, ArrayNode):
            raise NotShown(f"there is no array at {request.path!r}")
        array = zarr.open_array(self._open(), path=request.path.strip("/"), mode="r")
        if array.dtype.kind not in "iufb":
            raise NotShown(f"the array {request.path} holds {array.dtype}, not numbers, so there is no picture of it")
        if array.ndim == 0:
            return Plane(np.full((1, 1), float(np.asarray(array[...]))), (1, 1), (1, 1))
        across = request.columns % array.ndim
        down = None if array.ndim == 1 else request.rows % array.ndim
        if down == across:
            raise NotShown("a picture has two different dimensions: choose another one for its rows")
        sides = (1 if down is None else array.shape[down], array.shape[across])
        step = (max(1, math.ceil(sides[0] / _WIDEST)), max(1, math.ceil(sides[1] / _WIDEST)))
        chosen: list[int | slice] = []
        cells = 1
        for dimension, size in enumerate(array.shape):
            if dimension in (down, across):
                chosen.append(slice(0, size, step[0 if dimension == down else 1]))
                cells *= size
            else:
                index = request.index[dimension] if dimension < len(request.index) else 0
                chosen.append(min(max(index, 0), max(size - 1, 0)))
                cells *= min(array.chunks[dimension], size)
        if cells > most_cells:
            raise TooMuchToShow(
                f"the chunks of this slice hold {cells:,} cells, and at most {most_cells:,} are read for a picture: "
                "choose another slice, or read it from Python"
            )
        values = np.asarray(array[tuple(chosen)], np.float64)
        if down is None:
            values = values.reshape(1, -1)
        elif down > across:
            values = values.T
        return Plane(values, step, sides)

    def chunk_map(self, before: Inspection[ObjectStore] | None, path: str) -> ChunkMap:
        """Return the chunks of an array that differ from an earlier snapshot."""
        node = self.snapshot.nodes.get(path)
        if not isinstance(node, ArrayNode):
            raise NotShown(f"there is no array at {path!r}")
        old = before.snapshot if isinstance(before, IcechunkInspection) else self._assets.snapshot(INITIAL_SNAPSHOT)
        chunks = difference(self._assets, old, self.snapshot).chunks.get(node.node_id)
        grid = self._node(path).grid
        nothing = np.empty((0, len(grid)), np.uint32)
        if chunks is None:
            return ChunkMap(grid, nothing, nothing)
        # The array may have shrunk: chunks that were erased lie outside of its grid.
        written = chunks.written.index.T
        reached = (index.max(axis=0, initial=0) + 1 for index in (written, chunks.erased) if len(index))
        both = np.max([grid, *reached], axis=0) if len(grid) else grid
        return ChunkMap([int(size) for size in both], written, chunks.erased)


def _document(data: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
