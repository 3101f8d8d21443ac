"""The page of queries, and their results as files."""

from __future__ import annotations

import io
import itertools
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from starlette.responses import Response

from lake_core.dataset import dataset_format
from lake_core.errors import LakeError
from lake_core.python_rows import python_rows, python_values
from lake_core.report.query import run_query
from lake_core.ui.errors import InvalidRequest
from lake_core.ui.page import Page, value_text
from lake_core.ui.plots import line_plot, short_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.ui.visit import Revision, Visit

_SHOWN = 500
"""Rows of a result that the page shows."""
_MOST_TABLES = 200
_MOST_POINTS = 2_000
_LONGEST_QUERY = 20_000
_MEDIA = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}


def query_page(visit: Visit) -> Page:
    """Run a query over the tables of a ref, and show its rows."""
    revision = visit.at()
    text = visit.query.get("q", "")
    tables = sorted(
        path for path, record in revision.state.datasets().items() if dataset_format(record.format).is_tabular
    )
    values: dict[str, Any] = {
        "revision": revision,
        "text": text,
        "tables": tables[:_MOST_TABLES],
        "more_tables": max(0, len(tables) - _MOST_TABLES),
        "result": None,
        "rows": [],
        "is_cut": False,
        "query_problem": "",
        "seconds": 0.0,
        "plot": None,
        "numeric": [],
        "x": visit.get("x"),
        "y": visit.get("y"),
    }
    rows: Any = None
    if text.strip():
        started = time.monotonic()
        try:
            result, is_cut = _result(visit, revision, text)
        except LakeError as error:
            if visit.get("format") == "json":
                raise
            return Page("sql.html", values | {"query_problem": str(error)}, None, 400)
        if visit.get("format") == "json":
            rows = python_rows(result)
        values |= {
            "result": result,
            "rows": python_rows(result.slice(0, _SHOWN)),
            "is_cut": is_cut,
            "seconds": time.monotonic() - started,
            "numeric": [child.name for child in result.schema if _is_number(child.type)],
            "plot": _plot(result, visit.get("x"), visit.get("y")),
        }
    return Page("sql.html", values, rows, has_json=bool(text.strip()), is_data=True)


def _result(visit: Visit, revision: Revision, text: str) -> tuple[pa.Table, bool]:
    """Return the first rows of a result, and whether there are more. Raises InvalidQuery, QueryTimeout."""
    if len(text) > _LONGEST_QUERY:
        raise InvalidRequest(f"a query has at most {_LONGEST_QUERY:,} letters here")
    limits = visit.settings.query_limits
    busy = LakeError("other queries are running: try again when they have ended")
    # A query that waits holds a thread, which other pages need.
    if not visit.site.waiting.acquire(blocking=False):
        raise busy
    try:
        if not visit.site.queries.acquire(timeout=limits.seconds or 60.0):
            raise busy
        try:
            rows = run_query(revision.state, text, visit.settings.query_rows + 1, limits)
        finally:
            visit.site.queries.release()
    finally:
        visit.site.waiting.release()
    return rows.slice(0, visit.settings.query_rows), len(rows) > visit.settings.query_rows


def result_file(visit: Visit) -> Response:
    """Return the rows of a query as CSV or Parquet."""
    revision, kind = visit.at(), visit.path["kind"]
    result, _ = _result(visit, revision, visit.query.get("q", ""))
    if kind not in _MEDIA:
        raise InvalidRequest("a result is sent as csv or parquet")
    buffer = io.BytesIO()
    try:
        if kind == "parquet":
            import pyarrow.parquet as pq

            pq.write_table(result, buffer)
        else:
            from pyarrow import csv

            csv.write_csv(_flat(result), buffer)
    except pa.ArrowException as error:
        raise InvalidRequest(f"the result has a type that {kind} cannot hold: cast it to text ({error})") from None
    headers = {"Content-Disposition": f'attachment; filename="result.{kind}"'}
    return Response(buffer.getvalue(), media_type=_MEDIA[kind], headers=headers)


def _flat(table: pa.Table) -> pa.Table:
    """Return a table whose columns CSV can hold: nested and binary values become text."""
    columns = []
    for column in table.columns:
        if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
            texts = (None if value is None else value_text(value) for value in python_values(column))
            column = pa.chunked_array([pa.array(texts, pa.string())])
        columns.append(column)
    return pa.Table.from_arrays(columns, names=table.column_names)


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))
    )


def _plot(result: pa.Table, x: str, y: str) -> Any:
    """Draw one column over another, if both are named and hold numbers or times."""
    if not x or not y or not {x, y} <= set(result.column_names):
        return None
    sides = [_numbers(result[name].slice(0, _MOST_POINTS)) for name in (x, y)]
    if any(side is None for side in sides):
        return None
    across, down = sides
    assert across is not None
    assert down is not None
    points = [(left, right) for left, right in zip(across, down, strict=True) if left is not None]
    if not points:
        return None
    values = [row[x] for row in python_rows(result.select([x]).slice(0, _MOST_POINTS)) if row[x] is not None]
    labels = (value_text(min(values)), value_text(max(values)))
    is_sorted = all(first[0] <= second[0] for first, second in itertools.pairwise(points))
    return line_plot(f"{y} over {x}", points, labels, short_number, scattered=not is_sorted, from_zero=False)


def _numbers(column: pa.ChunkedArray) -> Sequence[float | None] | None:
    if not _is_number(column.type):
        return None
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    return [None if value is None else float(value) for value in column.to_pylist()]
