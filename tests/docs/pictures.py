"""The pictures of the README and the docs, as SVG: `python -m tests.docs.pictures` draws them into docs/pictures.

Each picture is laid out by hand, and drawn for light and for dark pages. It needs neither a browser nor the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from xml.sax.saxutils import escape

from tests.docs.blocks import DOCS

FOLDER = DOCS / "pictures"

Theme: TypeAlias = Literal["light", "dark"]
Color: TypeAlias = Literal["plain", "session", "main", "failed"]

THEMES: Sequence[Theme] = ("light", "dark")
_PAGE: Mapping[Theme, tuple[str, str, str, str]] = {
    "light": ("#ffffff", "#d0d7de", "#1f2328", "#57606a"),
    "dark": ("#0d1117", "#30363d", "#e6edf3", "#9198a1"),
}
"""The background, the frame, the text and the lines."""
_FILLS: Mapping[Theme, Mapping[Color, tuple[str, str]]] = {
    "light": {
        "plain": ("#f6f8fa", "#8c959f"),
        "session": ("#fff8c5", "#bf8700"),
        "main": ("#dafbe1", "#1a7f37"),
        "failed": ("#ffebe9", "#cf222e"),
    },
    "dark": {
        "plain": ("#161b22", "#6e7681"),
        "session": ("#2e2408", "#d29922"),
        "main": ("#0f2a17", "#3fb950"),
        "failed": ("#341217", "#f85149"),
    },
}
"""The fill and the outline of boxes."""

_SIZE, _LINE = 14, 18
_LETTER = 7.3
"""About how wide a letter is."""

Point: TypeAlias = tuple[float, float]


@dataclass
class Drawing:
    """An SVG in the making."""

    width: int
    height: int
    theme: Theme
    shapes: list[str] = field(default_factory=list)

    def text(
        self, x: float, y: float, *lines: str, anchor: str = "middle", muted: bool = False, covers: bool = False
    ) -> None:
        """Write lines, of which the middle is at a point. With `covers`, they interrupt what is drawn below them."""
        background, _, ink, line = _PAGE[self.theme]
        halo = f' stroke="{background}" stroke-width="5" paint-order="stroke"' if covers else ""
        first = y - (len(lines) - 1) * _LINE / 2 + _SIZE * 0.35
        for number, text in enumerate(lines):
            self.shapes.append(
                f'<text x="{x:g}" y="{first + number * _LINE:g}" text-anchor="{anchor}" '
                f'fill="{line if muted else ink}"{halo}>{escape(text)}</text>'
            )

    def box(self, x: float, y: float, width: float, height: float, *lines: str, color: Color = "plain") -> None:
        """Draw a box with lines in its middle. The point is its upper left corner."""
        self.shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" {self._outline(color)}/>'
        )
        self.text(x + width / 2, y + height / 2, *lines)

    def store(self, x: float, y: float, width: float, height: float, *lines: str, color: Color = "plain") -> None:
        """Draw a cylinder with lines in its middle."""
        half, lid = width / 2, 8
        self.shapes.append(
            f'<path d="M{x:g} {y + lid:g} a{half:g} {lid} 0 0 1 {width:g} 0 v{height - 2 * lid:g} '
            f'a{half:g} {lid} 0 0 1 {-width:g} 0 z" {self._outline(color)}/>'
            f'<path d="M{x:g} {y + lid:g} a{half:g} {lid} 0 0 0 {width:g} 0" {self._outline(color, filled=False)}/>'
        )
        self.text(x + half, y + height / 2 + lid / 2, *lines)

    def group(self, x: float, y: float, width: float, height: float, title: str) -> None:
        """Draw a dashed frame with a title at its top."""
        line = _PAGE[self.theme][3]
        self.shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" fill="none" stroke="{line}" '
            'stroke-dasharray="2 3"/>'
        )
        self.text(x + width / 2, y + 16, title, muted=True)

    def line(self, *points: Point, dashed: bool = False, headless: bool = False, color: Color | None = None) -> None:
        """Draw a line through points, with an arrowhead at its end."""
        stroke = _PAGE[self.theme][3] if color is None else _FILLS[self.theme][color][1]
        path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self.shapes.append(f'<path d="{path}" fill="none" stroke="{stroke}" stroke-width="1.5"{dashes}/>')
        if not headless:
            self._head(points[-2], points[-1], stroke)

    def _head(self, start: Point, end: Point, color: str) -> None:
        (x, y), length = end, 9
        across, down = x - start[0], y - start[1]
        distance = (across**2 + down**2) ** 0.5
        across, down = across / distance * length, down / distance * length
        left, right = (x - across - down / 2, y - down + across / 2), (x - across + down / 2, y - down - across / 2)
        self.shapes.append(
            f'<path d="M{x:g} {y:g} L{left[0]:.4g} {left[1]:.4g} L{right[0]:.4g} {right[1]:.4g} z" fill="{color}"/>'
        )

    def dot(self, x: float, y: float, text: str, *, color: Color = "plain") -> None:
        """Draw a circle with a short text."""
        self.shapes.append(f'<circle cx="{x:g}" cy="{y:g}" r="18" {self._outline(color)}/>')
        self.text(x, y, text)

    def _outline(self, color: Color, *, filled: bool = True) -> str:
        fill, stroke = _FILLS[self.theme][color]
        return f'fill="{fill if filled else "none"}" stroke="{stroke}" stroke-width="1.5"'

    def svg(self) -> str:
        """Return the SVG."""
        background, frame, _, _ = _PAGE[self.theme]
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                f'width="{self.width}" height="{self.height}" font-family="system-ui, sans-serif" font-size="{_SIZE}">',
                f'<rect x="0.5" y="0.5" width="{self.width - 1}" height="{self.height - 1}" rx="8" '
                f'fill="{background}" stroke="{frame}"/>',
                *self.shapes,
                "</svg>\n",
            ]
        )


# Sequences


@dataclass(frozen=True)
class Message:
    """An arrow from one lane to another, by their numbers."""

    start: int
    end: int
    text: str
    color: Color | None = None


@dataclass(frozen=True)
class Note:
    """A text over a lane."""

    lane: int
    text: str


@dataclass(frozen=True)
class Case:
    """The heading of what happens in one of two cases, down to the next one."""

    text: str


Event: TypeAlias = Message | Note | Case
_ROW, _TOP = 40, 70


def sequence(
    theme: Theme, lanes: Sequence[tuple[str, Color]], places: Sequence[int], width: int, events: Sequence[Event]
) -> Drawing:
    """Draw events between lanes, from top to bottom."""
    height = _TOP + _ROW * len(events) + 16
    drawing = Drawing(width, height, theme)
    for (name, color), x in zip(lanes, places, strict=True):
        wide = len(name) * _LETTER + 28
        drawing.line((x, 48), (x, height - 14), dashed=True, headless=True)
        drawing.box(x - wide / 2, 14, wide, 34, name, color=color)
    for number, event in enumerate(events):
        y = _TOP + _ROW * number + 16
        if isinstance(event, Message):
            start, end = places[event.start], places[event.end]
            if start == end:
                drawing.line((start, y - 8), (start + 26, y - 8), (start + 26, y + 8), (start, y + 8))
                drawing.text(start + 34, y, event.text, anchor="start", covers=True)
            else:
                drawing.line((start, y + 6), (end, y + 6), color=event.color)
                drawing.text(min(start, end) + 12, y - 7, event.text, anchor="start", covers=True)
        elif isinstance(event, Note):
            wide = len(event.text) * _LETTER + 20
            middle = min(max(places[event.lane], wide / 2 + 12), width - wide / 2 - 12)
            drawing.box(middle - wide / 2, y - 13, wide, 28, event.text)
        else:
            drawing.line((12, y - 12), (width - 12, y - 12), dashed=True, headless=True)
            drawing.text(20, y + 4, event.text, anchor="start", muted=True)
    return drawing


# Chains


def chain(drawing: Drawing, *boxes: Sequence[str], corner: Point, size: tuple[float, float], gap: float = 22) -> None:
    """Draw boxes of one size from left to right, with an arrow from each to the next. The corner is the first one's."""
    (x, y), (width, height) = corner, size
    for number, lines in enumerate(boxes):
        left = x + number * (width + gap)
        drawing.box(left, y, width, height, *lines)
        if number:
            drawing.line((left - gap, y + height / 2), (left - 2, y + height / 2))


# The pictures


def run(theme: Theme) -> Drawing:
    """Draw how a run is published."""
    drawing = Drawing(860, 216, theme)
    drawing.group(18, 22, 270, 92, "a Dagster run")
    for number, name in enumerate(("orders", "lines", "totals")):
        drawing.box(32 + 86 * number, 54, 70, 40, name)
    for number in range(2):
        drawing.line((102 + 86 * number, 74), (118 + 86 * number, 74))
    drawing.line((288, 74), (364, 74))
    drawing.text(325, 60, "writes")
    drawing.store(366, 42, 88, 64, "session", color="session")
    drawing.line((454, 74), (590, 74), color="main")
    drawing.text(521, 50, "all checks pass:", "one commit")
    drawing.store(592, 42, 88, 64, "main", color="main")
    drawing.line((680, 74), (716, 74))
    drawing.box(718, 38, 126, 72, "Spark, DuckDB,", "pandas, every", "Delta reader")
    drawing.line((410, 106), (410, 158), dashed=True, color="failed")
    drawing.text(424, 132, "a step or a check fails: main is as it was", anchor="start")
    drawing.box(318, 160, 184, 38, "kept, to be resumed", color="failed")
    return drawing


def session(theme: Theme) -> Drawing:
    """Draw what a session does, and who sees it."""
    lanes: Sequence[tuple[str, Color]] = [("a process", "plain"), ("session", "session"), ("main", "main")]
    events: Sequence[Event] = [
        Message(0, 1, "begins at commit 7"),
        Message(0, 1, "appends to orders"),
        Message(0, 1, "replaces a day of totals"),
        Message(0, 1, "reads totals: sees its own rows"),
        Note(2, "still commit 7 for everybody else"),
        Message(0, 2, "publishes: commit 8", "main"),
    ]
    return sequence(theme, lanes, [80, 360, 610], 760, events)


def scope(theme: Theme) -> Drawing:
    """Draw a run of Dagster that is one session."""
    lanes: Sequence[tuple[str, Color]] = [
        ("executor (run worker)", "plain"),
        ("steps", "plain"),
        ("session in the lake", "session"),
        ("main", "main"),
    ]
    events: Sequence[Event] = [
        Message(0, 2, "opens it, or resumes it: epoch n"),
        Note(0, "the run's tag lake/session"),
        Message(1, 2, "orders, lines, totals: staged"),
        Message(1, 2, "a retried step replaces what it staged"),
        Message(0, 0, "steps succeeded? gate open? run not canceled?"),
        Case("if so"),
        Message(0, 3, "publishes: one commit, all tables", "main"),
        Note(3, "an observation per asset and partition: published, commit, version"),
        Case("if not"),
        Message(0, 2, "fails it: readable, resumable for 24 hours", "failed"),
        Note(3, "as before"),
    ]
    return sequence(theme, lanes, [120, 300, 610, 800], 860, events)


def history(theme: Theme) -> Drawing:
    """Draw a branch that is merged."""
    drawing = Drawing(560, 168, theme)
    drawing.line((110, 50), (472, 50), headless=True, color="main")
    drawing.line((200, 50), (260, 120), (340, 120), (470, 50), headless=True, color="session")
    drawing.text(50, 50, "main")
    drawing.text(200, 120, "dev")
    for x, text in ((110, "1"), (200, "2"), (340, "3"), (472, "4")):
        drawing.dot(x, 50, text, color="main")
    drawing.dot(300, 120, "try", color="session")
    drawing.text(472, 86, "the merge", muted=True)
    return drawing


def bucket(theme: Theme) -> Drawing:
    """Draw what a bucket holds, and what refers to what."""
    drawing = Drawing(800, 340, theme)
    drawing.group(18, 14, 580, 312, "the bucket")
    drawing.box(40, 44, 284, 40, "_lake/refs: branches, tags, commits")
    drawing.line((182, 84), (182, 118))
    drawing.box(40, 120, 284, 40, "_lakefs: one tree for each commit")
    drawing.line((182, 160), (182, 194))
    drawing.box(40, 196, 284, 48, "_lake/objects: logs and files,", "by their content")
    drawing.line((324, 220), (376, 220), dashed=True)
    drawing.text(350, 206, "main")
    drawing.box(378, 200, 204, 40, "tables/orders/_delta_log", color="main")
    drawing.line((480, 240), (480, 262))
    drawing.line((182, 244), (182, 288), (318, 288))
    drawing.box(320, 264, 262, 48, "tables/orders/part-….parquet:", "the data of all commits", color="main")
    for number, name in enumerate(("Spark", "DuckDB", "Polars")):
        y = 150 + 50 * number
        drawing.box(680, y, 100, 40, name)
        drawing.line((680, y + 20), (584, 220))
    return drawing


def layers(theme: Theme) -> Drawing:
    """Draw the order of the layers inside the lake."""
    drawing = Drawing(860, 104, theme)
    chain(
        drawing,
        ("state", "a tree, and", "changes on it"),
        ("refs", "branches,", "commits, leases"),
        ("publish", "apply changes", "to a head"),
        ("session", "private", "and shared"),
        ("gc", "mark", "and delete"),
        ("Lake",),
        corner=(18, 18),
        size=(124, 68),
        gap=16,
    )
    return drawing


def publish(theme: Theme) -> Drawing:
    """Draw how a publish flows."""
    drawing = Drawing(860, 318, theme)
    drawing.box(18, 106, 144, 48, "source: a session,", "a merge, a revert", color="session")
    drawing.line((162, 130), (184, 130))
    drawing.box(186, 106, 150, 48, "prepare: difference", "of base and result")
    drawing.line((336, 130), (358, 130))
    drawing.box(360, 106, 112, 48, "apply to the", "branch's head")
    for y, lines in ((70, ("plain files:", "key by key")), (142, ("datasets: the", "format's own rules"))):
        drawing.line((472, 130), (502, y + 24))
        drawing.box(504, y, 146, 48, *lines)
        drawing.line((650, y + 24), (688, 130))
    drawing.box(690, 106, 152, 48, "conflict?")
    drawing.line((766, 106), (766, 74), color="failed")
    drawing.text(778, 92, "yes", anchor="start")
    drawing.box(690, 24, 152, 48, "Conflict: nothing", "has changed", color="failed")
    drawing.line((766, 154), (766, 248))
    drawing.text(778, 202, "no", anchor="start")
    drawing.box(690, 250, 152, 48, "write ranges,", "metarange, content")
    drawing.line((690, 274), (652, 274))
    drawing.box(402, 250, 248, 48, "append one entry to _lake/refs,", "if the branch has not moved")
    drawing.line((460, 250), (460, 222), (261, 222), (261, 156), dashed=True)
    drawing.text(360, 208, "the branch moved")
    drawing.line((402, 274), (318, 274), color="main")
    drawing.text(360, 260, "appended")
    drawing.box(160, 250, 156, 48, "write main's logs", "to their folders", color="main")
    return drawing


def collection(theme: Theme) -> Drawing:
    """Draw how garbage collection goes on."""
    drawing = Drawing(660, 194, theme)
    size = (138, 60)
    chain(
        drawing,
        ("retention:", "states to keep"),
        ("mark:", "what they reach"),
        ("entry 1: the rest,", "and the commits", "that go"),
        ("mark again,", "as of entry 1"),
        corner=(18, 18),
        size=size,
    )
    drawing.line((573, 78), (573, 97), (87, 97), (87, 114))
    chain(drawing, ("entry 2:", "the final list"), ("delete",), ("entry 3: done",), corner=(18, 116), size=size)
    return drawing


PICTURES: Mapping[str, Callable[[Theme], Drawing]] = {
    "run": run,
    "session": session,
    "scope": scope,
    "history": history,
    "bucket": bucket,
    "layers": layers,
    "publish": publish,
    "collection": collection,
}


def files() -> dict[str, str]:
    """Return the SVGs, by the names of their files."""
    return {f"{name}-{theme}.svg": draw(theme).svg() for name, draw in PICTURES.items() for theme in THEMES}


def main() -> None:
    """Draw all pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name, svg in files().items():
        (FOLDER / name).write_text(svg)


if __name__ == "__main__":
    main()
