"""Rows as a small Markdown table for metadata in the UI. Rows, columns and the width of a cell are limited."""

from __future__ import annotations

import pyarrow as pa

from lake_core.readable import count_of

ROWS, COLUMNS, WIDTH = 5, 12, 40
_ESCAPED = str.maketrans(
    {"\\": "\\\\", "|": "\\|", "`": "\\`", "*": "\\*", "_": "\\_", "<": "&lt;", ">": "&gt;", "[": "\\[", "]": "\\]"}
)


def markdown_table(rows: pa.Table, most: int = ROWS) -> str:
    """Render the first rows and columns. The last line names the columns that were left out."""
    names, head = rows.column_names[:COLUMNS], rows.slice(0, most)
    columns = [[_cell(value.as_py()) for value in head.column(index)] for index in range(len(names))]
    lines = [_line([_cell(name) for name in names]), _line(["---"] * len(names))]
    lines += [_line(list(cells)) for cells in zip(*columns, strict=True)]
    more = len(rows.column_names) - len(names)
    return "\n".join(lines) + (
        f"\n\nand {count_of(more, 'more column')}: {_cell(', '.join(rows.column_names[COLUMNS:]))}" if more else ""
    )


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return count_of(len(value), "byte")
    text = " ".join((value if isinstance(value, str) else str(value))[: 4 * WIDTH].split())
    return (text if len(text) <= WIDTH else text[: WIDTH - 1] + "…").translate(_ESCAPED)
