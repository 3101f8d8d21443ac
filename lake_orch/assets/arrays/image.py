"""A small picture of an array, for the asset's page.

A PNG with palette colors is a header and one zlib stream. The standard library can write that, so no imaging library is
needed.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

_LONGEST = 320
"""The most pixels along a side. Where there are more values, some are left out."""
_SHORTEST = 96
"""The fewest pixels along a side, rounded down to whole pixels for each value. Otherwise a few rows would be a line."""
_MOST_BYTES = 64 << 20
"""The most bytes of values that are read for a picture."""
_COLORS = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
"""From the lowest value to the highest, in even steps. They differ for color-blind readers and in gray, too."""
_MISSING = (255, 255, 255)


def picture(dataset: xr.Dataset, variable: str | None = None) -> tuple[str, str] | None:
    """Draw a variable by its last two dimensions, at the last index of the others.

    Args:
        dataset: The arrays.
        variable: The variable. The default is the first one that can be drawn.

    Returns:
        The picture as Markdown, and its caption, or None if no variable can be drawn.
    """
    for name, array in (dataset if variable is None else dataset[[variable]]).data_vars.items():
        if array.ndim < 2 or array.dtype.kind not in "fiub" or 0 in array.shape:
            continue
        plane = array.isel(dict.fromkeys(array.dims[:-2], -1))
        rows, columns = (max(1, -(-length // _LONGEST)) for length in plane.shape)
        if plane.nbytes > _MOST_BYTES:
            return None
        values = plane.values[::rows, ::columns].astype(np.float64)
        rising = (
            plane.dims[0] in plane.coords and plane[plane.dims[0]].ndim == 1 and _rises(plane[plane.dims[0]].values)
        )
        png = encode_png(_enlarged(_indexes(values[::-1] if rising else values)))
        image = f"![{name}](data:image/png;base64,{base64.b64encode(png).decode()})"
        return image, _caption(str(name), array, values)
    return None


def encode_png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Encode palette indexes, shape (height, width), as a PNG. Index 255 is a missing value."""
    height, width = pixels.shape
    # Each line begins with the type of its filter. 0 means no filter.
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"PLTE", _palette()), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _palette() -> bytes:
    steps = np.linspace(0, len(_COLORS) - 1, 255)
    colors = [np.interp(steps, range(len(_COLORS)), [color[part] for color in _COLORS]) for part in range(3)]
    return np.stack(colors, axis=1).round().astype(np.uint8).tobytes() + bytes(_MISSING)


def _indexes(values: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    finite = np.isfinite(values)
    if not finite.any():
        return np.full(values.shape, 255, np.uint8)
    low, high = values[finite].min(), values[finite].max()
    scaled = np.zeros(values.shape) if high == low else (values - low) / (high - low)
    return np.where(finite, np.nan_to_num(scaled) * 254, 255).astype(np.uint8)


def _enlarged(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Repeat the pixels along a side that has few of them."""
    for axis, length in enumerate(pixels.shape):
        pixels = np.repeat(pixels, max(1, _SHORTEST // length), axis=axis)
    return pixels


def _rises(values: npt.NDArray[Any]) -> bool:
    return values.dtype.kind in "fiu" and len(values) > 1 and bool(values[-1] > values[0])


def _caption(name: str, array: xr.DataArray, values: npt.NDArray[np.float64]) -> str:
    finite = values[np.isfinite(values)]
    extent = f", {finite.min():g} to {finite.max():g}" if len(finite) else ", all missing"
    moment = ", ".join(
        f"{dimension} {array[dimension].values[-1]}" for dimension in array.dims[:-2] if dimension in array.coords
    )
    return f"{name}{f' at {moment}' if moment else ''}{extent}"
