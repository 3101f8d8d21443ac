"""A preview of the rows that a step wrote, for the asset's page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta import DeltaTable
from lake_core.delta.scan import open_data_files, plan_scan
from lake_orch.assets.description import Markdown
from lake_orch.assets.tables.markdown import markdown_table
from lake_orch.assets.tables.rows import Rows

PREVIEW = "lake/preview"
_LARGEST_FILE = 64 << 20
"""The size in bytes of the largest file that is read for a preview."""


def preview_metadata(rows: Rows, table: DeltaTable, where: str | None, most: int) -> dict[str, Any]:
    """Return the first rows as a Markdown table. Empty if there are no rows, or the preview is off.

    Rows in memory are shown directly. For a stream, which can be read once, and a Spark DataFrame, which would be
    computed again, the rows come from the smallest data file that was written.
    """
    if most <= 0:
        return {}
    try:
        head = rows.head(most)
        if head is None:
            head = _head_of_file(table, where)
        return {PREVIEW: Markdown(markdown_table(head, most))} if head is not None and len(head) else {}
    except Exception as error:
        # The rows are committed, so a failed preview must not fail the step.
        return {PREVIEW: f"these rows cannot be shown: {error}"[:300]}


def _head_of_file(table: DeltaTable, where: str | None) -> pa.Table | None:
    scan = plan_scan(table.snapshot, None, where)
    files = scan.files
    if not len(files):
        return None
    smallest = files.sort_by("size").slice(0, 1)
    if pc.max(smallest["size"]).as_py() > _LARGEST_FILE:
        return None
    return next(open_data_files(replace(scan, files=smallest), predicate=scan.predicate).batches(0), None)
