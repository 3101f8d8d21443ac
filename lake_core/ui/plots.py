"""Plots as SVG, and pictures as PNG."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from lake_core.readable import readable_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 380, 140, 66, 22, 8
_STOPS = (
    (68, 1, 84),
    (71, 44, 122),
    (59, 81, 139),
    (44, 113, 142),
    (33, 144, 141),
    (39, 173, 129),
    (92, 200, 99),
    (170, 220, 50),
    (253, 231, 37),
)
"""Colors from the least to the greatest value, of equal steps in lightness (viridis)."""


def short_number(value: float) -> str:
    """Write a number in at most some five letters."""
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.4g}"


def short_bytes(value: float) -> str:
    """Write a size."""
    return readable_bytes(int(value))


def line_plot(
    title: str,
    points: Sequence[tuple[float, float | None]],
    labels: tuple[str, str],
    write: Callable[[float], str] = short_number,
    *,
    steps: bool = False,
    scattered: bool = False,
    from_zero: bool = True,
) -> Markup:
    """Draw numbers over a horizontal axis.

    Args:
        title: What the plot shows, also for those who cannot see it.
        points: Its points. Where a number is missing, the line is interrupted.
        labels: The texts at the beginning and the end of the axis.
        write: Writes a number.
        steps: Whether a number holds until the next point.
        scattered: Whether there are only points.
        from_zero: Whether the vertical axis begins at 0.
    """
    known = [(x, y) for x, y in points if y is not None and np.isfinite(y) and np.isfinite(x)]
    if not known:
        return Markup("")
    least, most = min(y for _, y in known), max(y for _, y in known)
    if from_zero:
        least, most = min(0.0, least), max(0.0, most)
    if least == most:
        most = least + 1
    first, last = min(x for x, _ in known), max(x for x, _ in known)
    span = (last - first) or 1.0

    def at(x: float, y: float) -> tuple[float, float]:
        across = _LEFT + (x - first) / span * (_WIDTH - _LEFT - 8) if last > first else (_LEFT + _WIDTH) / 2
        return across, _TOP + (most - y) / (most - least) * (_HEIGHT - _TOP - _BOTTOM)

    path, dots, before = [], [], None
    for x, y in points:
        if y is None or not np.isfinite(y):
            before = None
            continue
        across, down = at(x, y)
        path.append(
            f"{'M' if before is None else 'L'}{across:.1f} {down:.1f}"
            if not steps or before is None
            else f"H{across:.1f}V{down:.1f}"
        )
        before = y
        if len(known) <= 2000:
            text = Markup("<title>{}</title>").format(write(y))
            dots.append(f'<circle class="point" cx="{across:.1f}" cy="{down:.1f}" r="2.2">{text}</circle>')
    lines = "" if scattered else f'<path class="line" d="{"".join(path)}"/>'
    ticks = "".join(
        f'<path class="axis" d="M{_LEFT} {at(first, y)[1]:.1f}H{_WIDTH - 4}"/>'
        + Markup('<text class="tick" x="{}" y="{}" text-anchor="end">{}</text>').format(
            _LEFT - 6, f"{at(first, y)[1] + 3.5:.1f}", write(y)
        )
        for y in (least, (least + most) / 2, most)
    )
    foot = Markup(
        '<text class="tick" x="{}" y="{}">{}</text><text class="tick" x="{}" y="{}" text-anchor="end">{}</text>'
    ).format(_LEFT, _HEIGHT - 4, labels[0], _WIDTH - 4, _HEIGHT - 4, labels[1])
    return Markup(
        '<svg class="plot" viewBox="0 0 {} {}" role="img" aria-label="{}"><title>{}</title>{}{}{}{}</svg>'
    ).format(_WIDTH, _HEIGHT, title, title, Markup(ticks), Markup(lines), Markup("".join(dots)), foot)


def colored(values: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    """Return the colors of numbers: shape (rows, columns, 4). What is no number is transparent."""
    is_number = np.isfinite(values)
    least = values[is_number].min() if is_number.any() else 0.0
    most = values[is_number].max() if is_number.any() else 1.0
    scaled = np.where(is_number, (values - least) / ((most - least) or 1.0), 0.0) * (len(_STOPS) - 1)
    stops = np.array(_STOPS, np.float64)
    below = np.clip(scaled.astype(np.int64), 0, len(_STOPS) - 2)
    part = (scaled - below)[..., None]
    colors = stops[below] * (1 - part) + stops[below + 1] * part
    return np.dstack([colors.round().astype(np.uint8), np.where(is_number, 255, 0).astype(np.uint8)])


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Encode pixels, of shape (rows, columns, 4), as a PNG file (PNG specification, sections 5 and 11)."""
    height, width = pixels.shape[:2]

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    # Each line begins with the number of its filter: 0 for none.
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, width * 4)], axis=1)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)),
            chunk(b"IDAT", zlib.compress(lines.tobytes(), 6)),
            chunk(b"IEND", b""),
        )
    )
