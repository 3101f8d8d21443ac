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
from lake_core.ui.page import url
from lake_core.ui.plots import colored, png

if TYPE_CHECKING:
    from lake_core.inspection import ChunkMap, Inspection, NodeInfo, Plane
    from lake_core.ui.visit import Revision, Visit

_MOST_CELLS = 64_000_000
"""The most cells of the chunks that are read for a picture."""
_MOST_MAPPED = 160
"""The most cells of a map along a side. Of larger grids, several chunks share a cell."""
_MOST_PLANES, _MOST_MARKS = 200, 50_000
"""The most planes of a map, and the most cells of them together."""


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
        values |= {"plane_request": request, "picture_url": _picture_url(revision, path, request)}
        try:
            plane = _plane(visit, revision, path, inspection, request)
            values |= {"plane": plane, "statistics": statistics(plane)}
        except LakeError as error:
            values["plane_problem"] = str(error)
        except ImportError:
            values["plane_problem"] = "pictures need Zarr: install it with `pip install 'lake-orch[arrays]'`"
    return values, None


def _picture_url(revision: Revision, path: str, request: PlaneRequest) -> str:
    index = {f"i{place}": str(number) for place, number in enumerate(request.index)}
    sides = {"down": str(request.rows), "across": str(request.columns)}
    return url(f"/picture/{path}", node=request.path, at=revision.pin, **sides, **index)


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
        lambda: _read(inspection, request),
    )


def _read(inspection: Inspection[Any], request: PlaneRequest) -> Plane:
    try:
        return inspection.plane(request, _MOST_CELLS)
    except (ValueError, RuntimeError) as error:
        raise NotShown(f"the slice cannot be read, as a chunk may be damaged: {error}") from None


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
    """Return numbers about the cells of a slice that are drawn."""
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


def chunk_map_svg(chunks: ChunkMap, title: str) -> tuple[Markup, int]:
    """Draw which chunks changed, and return how many of them are not drawn.

    Grids of more than two dimensions are laid out as planes beside one another, of which the first ones are drawn.
    """
    grid = [max(1, size) for size in chunks.grid] or [1]
    height = 1 if len(grid) < 2 else grid[-2]
    width = grid[-1]
    shrink = max(1, math.ceil(max(height, width) / _MOST_MAPPED))
    wide, high = math.ceil(width / shrink), math.ceil(height / shrink)
    planes = min(math.prod(grid[:-2]), _MOST_PLANES, max(1, _MOST_MARKS // (wide * high)))
    across = min(planes, max(1, _MOST_MAPPED // (wide + 1)))
    columns = across * (wide + 1) - 1
    rows = math.ceil(planes / across) * (high + 1) - 1
    size = max(3, min(16, 640 // max(columns, 1)))
    frames = "".join(
        f'<rect class="plane" x="{(plane % across) * (wide + 1) * size}" '
        f'y="{(plane // across) * (high + 1) * size}" width="{wide * size}" height="{high * size}"/>'
        for plane in range(planes)
    )
    cells: dict[tuple[int, int], str] = {}
    undrawn = 0
    for kind, index in (("written", chunks.written), ("erased", chunks.erased)):
        if not index.size:
            continue
        index = index.astype(np.int64)
        plane = np.zeros(len(index), np.int64)
        for dimension, count in enumerate(grid[:-2]):
            plane = plane * count + index[:, dimension]
        is_drawn = plane < planes
        undrawn += int((~is_drawn).sum())
        index, plane = index[is_drawn], plane[is_drawn]
        down = index[:, -2] if len(grid) > 1 else np.zeros(len(index), np.int64)
        x = plane % across * (wide + 1) + index[:, -1] // shrink
        y = plane // across * (high + 1) + down // shrink
        cells |= dict.fromkeys(zip(x.tolist(), y.tolist(), strict=True), kind)
    marks = "".join(
        f'<rect class="{kind}" x="{x * size}" y="{y * size}" width="{size - 1}" height="{size - 1}"/>'
        for (x, y), kind in cells.items()
    )
    svg = Markup(
        '<svg class="chunks" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img" aria-label="{t}">'
        "<title>{t}</title>{f}{m}</svg>"
    ).format(w=columns * size, h=rows * size, t=title, f=Markup(frames), m=Markup(marks))
    return svg, undrawn
