"""Comparisons of two refs: what differs, row by row, chunk by chunk and line by line."""

from __future__ import annotations

import difflib
from itertools import islice
from typing import TYPE_CHECKING, Any

from starlette.responses import RedirectResponse, Response

from lake_core.errors import LakeError, NotFound
from lake_core.inspection import NotShown, RowChanges, TooMuchToShow
from lake_core.lake.errors import DatasetNotFound
from lake_core.python_rows import python_rows
from lake_core.report.comparison import comparison_rows
from lake_core.ui.arrays import chunk_map_svg
from lake_core.ui.changes import changed_between, revisions_change
from lake_core.ui.commit import changes_of
from lake_core.ui.errors import InvalidRequest
from lake_core.ui.page import Page, differs, url

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lake_core.inspection import ColumnInfo, Inspection, Summary
    from lake_core.ui.visit import Revision, Visit

_ROWS = 50
_MOST_MAPS = 12
_MOST_KEPT = 64 << 20
"""The most bytes of rows that differ that are kept for the next page of them."""
_LARGEST_TEXT = 2 << 20
_MOST_LINES = 4_000
_KINDS = ("all", "added", "removed", "changed")


def compare_page(visit: Visit) -> Page:
    """Compare two refs by dataset and file; without them, ask which."""
    if not visit.get("from"):
        names = [name for name in visit.refs.branches() if name != "main"]
        return Page("compare_form.html", {"branches": sorted(names)[:30], "tags": sorted(visit.refs.tags())[:30]}, None)
    old, new = visit.at("from"), visit.at("to")
    if visit.get("format") == "json":
        comparison = visit.lake.compare(old.pin, new.pin)
        return Page("compare.html", {}, comparison_rows(comparison))
    number = visit.number("page", 1, 1, 100_000)
    return Page(
        "compare.html",
        changes_of(visit, old, new, number) | {"old": old, "new": new, "number": number},
        None,
    )


def compare_dataset_page(visit: Visit) -> Page | Response:
    """Compare a dataset in two refs. A plain file at the path has a page of its own."""
    old, new = visit.at("from"), visit.at("to")
    path = visit.get("path").strip("/")
    sides = (old, new)
    if path and not any(path in side.state.datasets() for side in sides):
        _, files = changed_between(visit, old, new)
        file_keys = [each.key for each in files if each.key == path or each.key.startswith((f"{path}/", f"{path}."))]
        if file_keys or any(side.state.exists(path) for side in sides):
            refs = {"from_": visit.get("from"), "to": visit.get("to")}
            if len(file_keys) > 1:
                return RedirectResponse(url("/compare", **refs), 303)
            return RedirectResponse(url("/compare/file", path=file_keys[0] if file_keys else path, **refs), 303)
        raise DatasetNotFound(f"neither {old.label} nor {new.label} has a dataset or file at {path!r}")
    change = revisions_change(visit, old, new, path, visit.settings.compared_rows)
    if change is None:
        raise DatasetNotFound(f"neither {old.label} nor {new.label} has a dataset at {path!r}")
    before, after = _inspected(visit, old, path), _inspected(visit, new, path)
    newest = after or before
    assert newest is not None
    key = [name for name in visit.query.get("key", "").split(",") if name] or list(newest.key())
    if visit.get("key") == "-":
        key = []
    values: dict[str, Any] = {
        "old": old,
        "new": new,
        "path": path,
        "change": change,
        "columns": _columns(_summary(before), _summary(after)),
        "key": key,
        "unit": newest.unit,
        "rows": None,
        "row_problem": "",
        "maps": [],
        "number": visit.number("page", 1, 1, 10_000_000),
        "kind": visit.get("kind") or "all",
    }
    if values["kind"] not in _KINDS:
        raise InvalidRequest(f"kind must be one of {', '.join(_KINDS)}")
    if newest.has_rows:
        values |= _row_values(visit, old, new, path, before, after, key, values["kind"], values["number"])
    if newest.has_nodes:
        values["maps"] = list(islice(_maps(change.comparison.nodes, before, after), _MOST_MAPS))
    return Page("compare_dataset.html", values, None)


def _inspected(visit: Visit, revision: Revision, path: str) -> Inspection[Any] | None:
    return visit.inspect(revision, path) if path in revision.state.datasets() else None


def _summary(inspection: Inspection[Any] | None) -> Summary | None:
    try:
        return None if inspection is None else inspection.summary()
    except NotShown:
        return None


def _columns(old: Summary | None, new: Summary | None) -> Sequence[Mapping[str, Any]]:
    """Return the columns of two sides, side by side."""
    left: Mapping[str, ColumnInfo] = {} if old is None else {each.name: each for each in old.columns}
    right: Mapping[str, ColumnInfo] = {} if new is None else {each.name: each for each in new.columns}
    rows = []
    for name in dict.fromkeys([*left, *right]):
        before, after = left.get(name), right.get(name)
        kind = "added" if before is None else "removed" if after is None else "" if before == after else "changed"
        rows.append({"name": name, "before": before, "after": after, "kind": kind})
    return rows


def _row_values(
    visit: Visit,
    old: Revision,
    new: Revision,
    path: str,
    before: Inspection[Any] | None,
    after: Inspection[Any] | None,
    key: Sequence[str],
    kind: str,
    number: int,
) -> dict[str, Any]:
    try:
        changes = visit.site.rows.get(
            ("rows", old.tree, new.tree, path, tuple(key)),
            lambda: row_changes(before, after, key, visit.settings.compared_rows),
            keep=lambda changes: changes.nbytes <= _MOST_KEPT,
        )
    except (TooMuchToShow, NotShown) as error:
        return {"row_problem": str(error)}
    unknown = [name for name in key if name not in changes.names]
    if unknown:
        raise InvalidRequest(f"{path} has no column {unknown[0]!r}, by which its rows could be matched")
    counts = {"added": len(changes.added), "removed": len(changes.removed), "changed": len(changes.after)}
    rows = list(_page_of(changes, kind, (number - 1) * _ROWS, _ROWS))
    total = sum(counts.values()) if kind == "all" else counts[kind]
    return {
        "rows": rows,
        "counts": counts,
        "names": _ordered(changes.names, changes.key),
        "is_unique": changes.is_unique,
        "total": total,
        "pages": max(1, -(-total // _ROWS)),
    }


def _ordered(names: Sequence[str], key: Sequence[str]) -> Sequence[str]:
    return [*key, *(name for name in names if name not in key)]


def row_changes(
    before: Inspection[Any] | None, after: Inspection[Any] | None, key: Sequence[str], most_rows: int
) -> RowChanges:
    """Return the rows that differ between two sides, of which one may not exist."""
    if before is not None and after is not None and before.format != after.format:
        raise NotShown(f"the dataset was of the format {before.format}, and is of the format {after.format}")
    if after is not None:
        return after.row_changes(before, key, most_rows)
    assert before is not None
    gone = before.row_changes(None, key, most_rows)
    return RowChanges(gone.names, gone.key, gone.removed, gone.added, gone.before, gone.after, gone.is_unique)


def _page_of(changes: RowChanges, kind: str, offset: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield a page of rows: changed ones first, each with its two sides and the names of the cells that differ."""
    for each, table in (("changed", changes.after), ("removed", changes.removed), ("added", changes.added)):
        if kind not in ("all", each):
            continue
        part = table.slice(offset, count)
        news = python_rows(part)
        olds: list[Any] = python_rows(changes.before.slice(offset, count)) if each == "changed" else [None] * len(news)
        for old, new in zip(olds, news, strict=True):
            if each == "changed":
                yield {
                    "kind": each,
                    "before": old,
                    "after": new,
                    "cells": {name for name in changes.names if differs(old.get(name), new.get(name))},
                }
            else:
                row = {"before": new, "after": None} if each == "removed" else {"before": None, "after": new}
                yield {"kind": each, "cells": set(), **row}
        count -= len(part)
        offset = max(0, offset - len(table))
        if count <= 0:
            return


def _maps(nodes: Sequence[Any], before: Inspection[Any] | None, after: Inspection[Any] | None) -> Iterator[Any]:
    for node in nodes:
        if after is None or node.node != "array" or not (node.chunks_written or node.chunks_erased):
            continue
        try:
            chunks = after.chunk_map(before, node.path)
        except LakeError:
            continue
        title = (
            f"{node.path}: {node.chunks_written} chunks written and {node.chunks_erased} erased of a grid of "
            f"{' × '.join(map(str, chunks.grid))}"
        )
        svg, undrawn = chunk_map_svg(chunks, title)
        yield {"node": node, "grid": chunks.grid, "svg": svg, "undrawn": undrawn, "title": title}


def compare_file_page(visit: Visit) -> Page:
    """Compare a plain file in two refs, line by line if it is a text."""
    old, new = visit.at("from"), visit.at("to")
    key = visit.get("path")
    sides = [_text(revision, key) for revision in (old, new)]
    if sides == [None, None]:
        raise NotFound(f"neither {old.label} nor {new.label} has the file {key!r}", key=key)
    lines: list[Mapping[str, Any]] = []
    is_text = all(side is None or isinstance(side, str) for side in sides)
    if is_text:
        before, after = (_as_lines(side) if isinstance(side, str) else [] for side in sides)
        lines = list(islice(_lines(before, after), _MOST_LINES))
    return Page(
        "compare_file.html",
        {
            "old": old,
            "new": new,
            "key": key,
            "lines": lines,
            "is_text": is_text,
            "is_cut": len(lines) >= _MOST_LINES,
            "sizes": [_size(revision, key) for revision in (old, new)],
        },
        None,
    )


def _size(revision: Revision, key: str) -> int | None:
    try:
        return revision.state.head(key).size
    except NotFound:
        return None


def _text(revision: Revision, key: str) -> str | bytes | None:
    """Return a file as text, as bytes if it is none or too large, None if it does not exist."""
    size = _size(revision, key)
    if size is None:
        return None
    if size > _LARGEST_TEXT:
        return b""
    data = bytes(revision.state.get(key))
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _as_lines(text: str) -> Sequence[str]:
    """Return the lines of a text: what ends one differently, or not at all, is another line."""
    lines = text.split("\n")
    lines = [f"{line[:-1]}␍" if line.endswith("\r") else line for line in lines]
    return [*lines[:-1], f"{lines[-1]} (no newline at the end)"] if lines[-1] else lines[:-1]


def _lines(before: Sequence[str], after: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=len(before) + len(after) > 2000)
    for number, group in enumerate(matcher.get_grouped_opcodes(3)):
        if number:
            yield {"kind": "gap", "old": "", "new": "", "text": "…"}
        for tag, old, old_end, new, new_end in group:
            if tag == "equal":
                for place in range(old_end - old):
                    yield {"kind": "", "old": old + place + 1, "new": new + place + 1, "text": before[old + place]}
                continue
            for place in range(old, old_end):
                yield {"kind": "removed", "old": place + 1, "new": "", "text": before[place]}
            for place in range(new, new_end):
                yield {"kind": "added", "old": "", "new": place + 1, "text": after[place]}
