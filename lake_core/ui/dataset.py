"""The pages of a dataset: its rows, schema, history, partitions and health at a ref."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from starlette.responses import RedirectResponse, Response

from lake_core.errors import LakeError, StoreError
from lake_core.inspection import NotShown, RowRequest, TooMuchToShow
from lake_core.lake.refs.commit_record import changed_datasets
from lake_core.lake.refs.history import History
from lake_core.ui.arrays import arrays_tab
from lake_core.ui.data import address_of_files
from lake_core.ui.errors import InvalidRequest
from lake_core.ui.history import entry
from lake_core.ui.page import Page
from lake_core.ui.plots import line_plot, short_bytes
from lake_core.ui.row_condition import row_condition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.graveler import Commit
    from lake_core.inspection import Inspection, VersionInfo
    from lake_core.ui.visit import Revision, Visit

_PAGE = 50
_VERSIONS = 60
_COMMITS = 30
_PARTITIONS = 200
_MOST_LOOKED_AT = 1_000
"""Commits among which the last one that changed a dataset is looked for."""
_READ_SECONDS = 20.0
"""How long a page reads rows, and the states of one row."""
_SEARCH_SECONDS, _ROW_SECONDS = 0.5, 3.0
"""How long a page looks for commits that changed a dataset."""
_MOST_SELECTED = 5
"""Rows that the history of a row shows of each state, if its condition selects several."""
_MOST_COMPARED = 500
"""Rows that are compared of each state."""
_LOOKED_AT = 40
"""Commits of a row's history that are compared on one page."""

_ASSET = "lake.owner.asset"
"""The property of a dataset that names the asset which writes it."""

TABS = {
    "rows": "Rows",
    "arrays": "Arrays",
    "schema": "Schema",
    "shapes": "Shapes",
    "history": "History",
    "partitions": "Partitions",
    "health": "Health",
}


def dataset_page(visit: Visit) -> Page | Response:
    """Show a dataset at a ref. A plain file at the path has a page of its own."""
    revision = visit.at()
    path = visit.path["path"].strip("/")
    if path and path not in revision.state.datasets() and (address := address_of_files(revision, path)) is not None:
        as_json = "&format=json" if visit.get("format") == "json" else ""
        return RedirectResponse(address + as_json, 303)
    inspection = visit.inspect(revision, path)
    problem = ""
    try:
        summary = inspection.summary()
    except NotShown as error:
        summary, problem = None, str(error)
    tabs = [
        name
        for name in TABS
        if {
            "rows": inspection.has_rows,
            "arrays": inspection.has_nodes,
            "schema": summary is not None and bool(summary.columns),
            "shapes": inspection.has_shapes,
            "partitions": summary is not None and any("partition" in each.notes for each in summary.columns),
        }.get(name, True)
    ]
    tab = visit.get("tab") or tabs[0]
    if tab not in tabs:
        raise InvalidRequest(f"{path} has no page {tab!r}: it has {', '.join(tabs)}")
    values, body = _TAB_VALUES[tab](visit, revision, path, inspection)
    asset = "" if summary is None else summary.properties.get(_ASSET, "")
    last = visit.site.changes.get(
        ("last", revision.commit.id, path), lambda: _last_commit(visit, revision.commit, path)
    )
    return Page(
        f"dataset_{tab}.html",
        {
            "revision": revision,
            "path": path,
            "inspection": inspection,
            "summary": summary,
            "problem": problem,
            "tabs": [(name, TABS[name]) for name in tabs],
            "tab": tab,
            "last": None if last is None else entry(visit, last),
            "changed": _last_change(revision, last),
            "asset": asset,
            "asset_url": visit.settings.asset_url(asset) if asset else None,
        }
        | values,
        body,
        is_data=True,
    )


def _rows(visit: Visit, revision: Revision, path: str, inspection: Inspection[Any]) -> tuple[dict[str, Any], Any]:
    columns = visit.get("columns")
    count = visit.number("n", _PAGE, 1, 1000)
    number = visit.number("page", 1, 1, 10_000_000)
    request = RowRequest(
        count,
        (number - 1) * count,
        [name.strip() for name in columns.split(",") if name.strip()] or None,
        visit.get("where") or None,
        (visit.get("sort") or None) if inspection.can_sort else None,
        visit.flag("desc"),
        _READ_SECONDS,
    )
    problem, page = "", None
    try:
        page = inspection.rows(request)
    except LakeError as error:
        if visit.get("format") == "json" or not (request.where or request.columns or request.order_by):
            raise
        problem = str(error)
    key = list(inspection.key()) if page is not None and page.rows else []
    conditions: Sequence[str | None] = []
    if page is not None and inspection.unit == "rows" and request.columns is None:
        conditions = [row_condition(row, key or page.names) for row in page.rows]
    values = {
        "page": page,
        "request": request,
        "number": number,
        "row_problem": problem,
        "conditions": conditions,
        "key": key,
        "as_text": visit.get("as") == "text" and page is not None and page.texts is not None,
        "columns": columns,
    }
    return values, None if page is None else page.rows


def _schema(visit: Visit, revision: Revision, path: str, inspection: Inspection[Any]) -> tuple[dict[str, Any], Any]:
    return {"key": list(inspection.key())}, None


def _history(visit: Visit, revision: Revision, path: str, inspection: Inspection[Any]) -> tuple[dict[str, Any], Any]:
    versions = inspection.versions(_VERSIONS)
    found, is_cut = _commits(visit, revision, path, _COMMITS, _SEARCH_SECONDS)
    commits = [entry(visit, commit) for commit in found]
    plots = [
        plot
        for name, write in (("rows", None), ("bytes", short_bytes), ("files", None))
        if (plot := _plot(name, versions, write))
    ]
    return {"versions": versions, "commits": commits, "plots": plots, "is_cut": is_cut}, None


def _plot(name: str, versions: Sequence[VersionInfo], write: Any) -> Any:
    points = [(float(place), getattr(each, name)) for place, each in enumerate(reversed(versions))]
    if len([y for _, y in points if y is not None]) < 2:
        return None
    labels = (f"version {versions[-1].version}", f"version {versions[0].version}")
    title = f"{name} after each version"
    return name, line_plot(title, points, labels, steps=True, **({} if write is None else {"write": write}))


def _shapes(visit: Visit, revision: Revision, path: str, inspection: Inspection[Any]) -> tuple[dict[str, Any], Any]:
    try:
        return {"shapes": inspection.shapes(), "shape_problem": ""}, None
    except TooMuchToShow as error:
        return {"shapes": (), "shape_problem": str(error)}, None


def _partitions(visit: Visit, revision: Revision, path: str, inspection: Inspection[Any]) -> tuple[dict[str, Any], Any]:
    partitions = inspection.partitions()
    number = visit.number("page", 1, 1, 1_000_000)
    first = (number - 1) * _PARTITIONS
    return {
        "partitions": partitions[first : first + _PARTITIONS],
        "partition_count": len(partitions),
        "number": number,
        "has_more": len(partitions) > first + _PARTITIONS,
    }, None


def _health(visit: Visit, revision: Revision, path: str, inspection: Inspection[Any]) -> tuple[dict[str, Any], Any]:
    return {}, None


_TAB_VALUES = {
    "rows": _rows,
    "arrays": arrays_tab,
    "schema": _schema,
    "history": _history,
    "shapes": _shapes,
    "partitions": _partitions,
    "health": _health,
}


def _commits(visit: Visit, revision: Revision, path: str, count: int, seconds: float) -> tuple[Sequence[Commit], bool]:
    """Return the newest commits that changed a dataset, and whether there may be older ones.

    The search ends after some seconds.
    """
    end = time.monotonic() + seconds
    commits: list[Commit] = []
    for commit in History(visit.refs, [revision.commit.id]):
        if path in changed_datasets(commit):
            if len(commits) == count:
                return commits, True
            commits.append(commit)
        if time.monotonic() > end:
            return commits, True
    return commits, False


def _last_commit(visit: Visit, commit: Commit, path: str) -> Commit | None:
    """Return the commit that changed the dataset last, None if many have come since."""
    newest = islice(History(visit.refs, [commit.id]), _MOST_LOOKED_AT)
    return next((each for each in newest if path in changed_datasets(each)), None)


def _last_change(revision: Revision, last: Commit | None) -> tuple[str, str] | None:
    """Return the two refs between which a dataset changed last: a session's base and the session, or two commits."""
    if revision.session is not None:
        return revision.commit.id, revision.pin
    return None if last is None or not last.parents else (last.parents[0], last.id)


def row_page(visit: Visit) -> Page:
    """Show how a row came to be: the commits that changed what a condition selects, newest first."""
    revision = visit.at()
    path = visit.path["path"].strip("/")
    where = visit.get("where")
    if not where:
        raise InvalidRequest("name a row by a condition: open this page from a row of a table")
    commits, is_cut = _commits(visit, revision, path, _LOOKED_AT, _ROW_SECONDS)
    steps: list[dict[str, Any]] = []
    names: dict[str, None] = {}
    end, looked_at = time.monotonic() + _READ_SECONDS, 0
    is_partial = False
    is_condition_valid, ends_at, ends_because = False, None, ""
    for commit in commits:
        if time.monotonic() > end:
            is_cut = True
            break
        looked_at += 1
        # Each is compared with its own parent: in a history with merges, the one before it in the list is another's.
        parent = commit.parents[0] if commit.parents else None
        is_known = parent is None or visit.refs.has_commit(parent)
        before: Sequence[Mapping[str, Any]] = []
        has_more_after = has_more_before = False
        try:
            after, has_more_after = _selected(visit, commit.id, path, where, names)
            is_condition_valid = True
            if parent is not None and is_known:
                before, has_more_before = _selected(visit, parent, path, where, names)
        except LakeError as error:
            if not is_condition_valid or isinstance(error, StoreError):
                raise
            # The columns were others before, or their values.
            ends_at, ends_because = commit, str(error).rstrip(".")
            break
        is_partial = is_partial or has_more_before or has_more_after
        gone, come = _without(before, after), _without(after, before)
        if gone or come:
            steps.append(
                entry(visit, commit)
                | {"before": gone[:_MOST_SELECTED], "after": come[:_MOST_SELECTED], "is_known": is_known}
                | {"more": max(len(gone), len(come)) - _MOST_SELECTED}
            )
    return Page(
        "row.html",
        {
            "revision": revision,
            "path": path,
            "where": where,
            "steps": steps,
            "names": list(names),
            "looked_at": looked_at,
            "is_cut": is_cut,
            "most_compared": _MOST_COMPARED if is_partial else None,
            "ends_at": ends_at,
            "ends_because": ends_because,
            "older": commits[min(looked_at, len(commits) - 1)] if is_cut and looked_at > 1 else None,
        },
        None,
    )


def _selected(
    visit: Visit, id: str, path: str, where: str, names: dict[str, None]
) -> tuple[Sequence[Mapping[str, Any]], bool]:
    """Return the rows that a condition selects at a commit, and whether there are more; add their columns' names."""
    revision = visit.revision(id)
    if path not in revision.state.datasets():
        return [], False
    page = visit.inspect(revision, path).rows(RowRequest(_MOST_COMPARED, where=where, seconds=_READ_SECONDS))
    names.update(dict.fromkeys(page.names))
    return page.rows, page.has_more


def _without(rows: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows that others do not have, or not as often. Their texts are compared: NaN does not equal NaN.

    A null is the same as a column or a field that a row lacks: to add one changes no row.
    """
    left = Counter(map(_text_of, others))
    left.subtract(map(_text_of, rows))
    kept = []
    for row in reversed(rows):
        if left[text := _text_of(row)] < 0:
            left[text] += 1
            kept.append(row)
    return kept[::-1]


def _text_of(value: Any) -> str:
    """Return the text of a value, without the nulls of its fields."""
    if isinstance(value, Mapping):
        fields = sorted((str(name), _text_of(each)) for name, each in value.items() if each is not None)
        return repr(fields)
    return repr([_text_of(each) for each in value]) if isinstance(value, list) else repr(value)
