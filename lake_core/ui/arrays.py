"""Arrays: the tree of groups, one array with a picture of a slice, and maps of chunks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from starlette.responses import Response

from lake_core.errors import LakeError
from lake_core.inspection import NotShown, PlaneRequest
from lake_core.ui.errors import InvalidRequest
from lake_core.ui.plots import colored, png

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.inspection import ChunkMap, Inspection, NodeInfo, Plane
    from lake_core.ui.visit import Revision, Visit

_MOST_CELLS = 64_000_000
"""The most cells of the chunks that are read for a picture."""
_MOST_MAPPED = 160
"""The most cells of a map along a side. Of larger grids, several chunks share a cell."""


def arrays_tab(visit: Visit, revision: Revision, path: str, inspection: Inspection[Any]) -> tuple[dict[str, Any], Any]:
    """Show the tree, and the chosen array."""
    nodes = inspection.nodes()
    arrays = [node for node in nodes if node.kind == "array"]
    chosen = visit.get("node")
    node = next((each for each in nodes if each.path == chosen), None)
    if chosen and node is None:
        raise NotShown(f"there is no array or group at {chosen!r}")
    if node is None:
        node = next(iter(sorted(arrays, key=lambda each: -len(each.shape))), nodes[0] if nodes else None)
    values: dict[str, Any] = {"nodes": nodes, "node": node, "plane": None, "plane_problem": "", "statistics": {}}
    if node is not None and node.kind == "array" and node.shape:
        request = plane_request(visit, node)
        values["plane_request"] = request
        try:
            plane = _plane(visit, revision, path, inspection, request)
            values |= {"plane": plane, "statistics": statistics(plane)}
        except LakeError as error:
            values["plane_problem"] = str(error)
        except ImportError:
            values["plane_problem"] = "pictures need Zarr: install it with `pip install 'lake-orch[arrays]'`"
    return values, None


def plane_request(visit: Visit, node: NodeInfo) -> PlaneRequest:
    """Return the slice that the address names. By default, the last two dimensions at the first index."""
    dimensions = len(node.shape)
    columns = visit.number("across", dimensions - 1, 0, max(dimensions - 1, 0))
    rows = visit.number("down", max(dimensions - 2, 0), 0, max(dimensions - 1, 0))
    index = [visit.number(f"i{place}", 0, 0, max(size - 1, 0)) for place, size in enumerate(node.shape)]
    return PlaneRequest(node.path, rows, columns, index)


def _plane(visit: Visit, revision: Revision, path: str, inspection: Inspection[Any], request: PlaneRequest) -> Plane:
    return visit.site.rows.get(
        ("plane", revision.tree, path, request.path, request.rows, request.columns, tuple(request.index)),
        lambda: inspection.plane(request, _MOST_CELLS),
    )


def picture(visit: Visit) -> Response:
    """Return the picture of a slice."""
    revision = visit.at()
    path = visit.path["path"].strip("/")
    inspection = visit.inspect(revision, path)
    node = next((each for each in inspection.nodes() if each.path == visit.get("node")), None)
    if node is None or node.kind != "array" or not node.shape:
        raise InvalidRequest("name an array of the dataset by node=")
    values = _plane(visit, revision, path, inspection, plane_request(visit, node)).values
    if not values.size:
        raise NotShown("the slice has no cells")
    # Few cells are drawn large, so that each can be seen.
    scale = max(1, min(16, 480 // max(values.shape)))
    return Response(png(np.kron(colored(values), np.ones((scale, scale, 1), np.uint8))), media_type="image/png")


def statistics(plane: Plane) -> dict[str, Any]:
    """Return numbers about the cells of a slice that were read."""
    values = plane.values[np.isfinite(plane.values)]
    facts: dict[str, Any] = {"cells": plane.values.size, "without a number": int(plane.values.size - values.size)}
    if values.size:
        facts |= {
            "least": f"{values.min():.6g}",
            "greatest": f"{values.max():.6g}",
            "mean": f"{values.mean():.6g}",
            "standard deviation": f"{values.std():.6g}",
        }
    return facts


def chunk_map_svg(chunks: ChunkMap, title: str) -> Markup:
    """Draw which chunks changed. Grids of more than two dimensions are laid out as planes beside one another."""
    grid = [max(1, size) for size in chunks.grid] or [1]
    height = 1 if len(grid) < 2 else grid[-2]
    width, planes = grid[-1], math.prod(grid[:-2])
    across = min(planes, max(1, _MOST_MAPPED // (width + 1)))
    if planes > 200:
        planes = 200
    cells: dict[tuple[int, int], str] = {}
    shrink = max(1, math.ceil(max(height, width) / _MOST_MAPPED))

    def place(index: Sequence[int]) -> tuple[int, int] | None:
        number = 0
        for coordinate, size in zip(index[:-2], grid[:-2], strict=False):
            number = number * size + coordinate
        if number >= planes:
            return None
        row = index[-2] if len(index) > 1 else 0
        column = index[-1] if index else 0
        top, left = divmod(number, across)
        return (
            left * (math.ceil(width / shrink) + 1) + column // shrink,
            top * (math.ceil(height / shrink) + 1) + row // shrink,
        )

    for kind, coordinates in (("written", chunks.written), ("erased", chunks.erased)):
        for index in coordinates[:50_000].tolist():
            spot = place(index)
            if spot is not None:
                cells[spot] = kind
    columns = across * (math.ceil(width / shrink) + 1) - 1
    rows = math.ceil(planes / across) * (math.ceil(height / shrink) + 1) - 1
    size = max(3, min(16, 640 // max(columns, 1)))
    frames = "".join(
        f'<rect class="plane" x="{(plane % across) * (math.ceil(width / shrink) + 1) * size}" '
        f'y="{(plane // across) * (math.ceil(height / shrink) + 1) * size}" '
        f'width="{math.ceil(width / shrink) * size}" height="{math.ceil(height / shrink) * size}"/>'
        for plane in range(planes)
    )
    marks = "".join(
        f'<rect class="{kind}" x="{x * size}" y="{y * size}" width="{size - 1}" height="{size - 1}"/>'
        for (x, y), kind in cells.items()
    )
    return Markup(
        '<svg class="chunks" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img" aria-label="{t}">'
        "<title>{t}</title>{f}{m}</svg>"
    ).format(w=columns * size, h=rows * size, t=title, f=Markup(frames), m=Markup(marks))
