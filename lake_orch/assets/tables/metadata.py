"""Output metadata of a write: Dagster's metadata keys where they exist, else keys `lake/…`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lake_core.delta import DeltaTable, OperationResult
from lake_core.expression import InvalidExpression, columns, parse_predicate
from lake_core.readable import count_of, readable_bytes
from lake_core.workspace import STAGED, Receipt
from lake_orch.assets.description import Column, ColumnSchema
from lake_orch.assets.report import read_with
from lake_orch.assets.tables.definition import comment_of, generation_of
from lake_orch.assets.tables.settings import TableSettings
from lake_orch.assets.tables.state import TableState, table_state
from lake_orch.assets.tables.write_mode import LEAVES_ONLY_ITS_ROWS
from lake_orch.location import table_name
from lake_orch.spark.type_name import spark_type_name
from lake_orch.tags import PARTITION_ROWS, VERSION
from lake_pipes.metadata import PATH, ROWS_WRITTEN, SKIPPED, receipt_metadata

READING_CODE = "lake.at('{commit}').delta('{path}').to_arrow()"
"""Python code that reads a dataset as of a commit."""

SIZE = "dagster/size_bytes"
"""The size of the table. Dagster shows it as the asset's storage, in a readable unit."""
_REMOVED = ("numRemovedFiles", "numTargetFilesRemoved")


def write_metadata(
    results: Sequence[OperationResult],
    table: DeltaTable,
    *,
    url: str,
    path: str,
    one_partition: bool,
    receipt: Receipt | None = None,
    operation: str | None = None,
    settings: TableSettings | None = None,
    state: TableState | None = None,
    preview: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Describe one or more writes to one table, as output metadata.

    `dagster/row_count` counts the whole table, `dagster/partition_row_count` the one partition that was written.
    Numbers are ints, so that the UI plots them over time. A skipped write has the numbers of its committed version.
    Numbers that are not in the table's log are left out. The version of staged data is left out, too, because
    publishing changes it.
    """
    state = state or table_state(table)
    staged = receipt is not None and receipt.state == STAGED
    written = _sum(result.rows for result in results)
    counts = {
        "dagster/row_count": state.rows,
        PARTITION_ROWS: _partition_rows(state, written, operation) if one_partition else None,
        ROWS_WRITTEN: written,
        "lake/bytes_written": _sum(result.bytes for result in results),
        "lake/files_added": _sum(result.files for result in results),
        "lake/files_removed": _sum(_removed(result) for result in results),
        "lake/num_files": state.files,
        SIZE: state.bytes,
        "lake/operation": operation,
    }
    # The UI shows them in this order.
    return {
        **(receipt_metadata(receipt) if receipt is not None else {}),
        **({} if staged else {VERSION: max((result.version for result in results), default=table.version)}),
        **read_with(None if receipt is None else receipt.commit, path, READING_CODE),
        **({SKIPPED: True} if results and all(result.skipped for result in results) else {}),
        **(preview or {}),
        **{name: count for name, count in counts.items() if count is not None},
        "dagster/column_schema": column_schema(table, settings),
        "dagster/table_name": table_name(path),
        "dagster/uri": url,
        PATH: path,
    }


def _partition_rows(state: TableState, written: int | None, operation: str | None) -> int | None:
    """Return the number of rows of the partition after the write, if it is known."""
    return written if state.slice_rows is None and operation in LEAVES_ONLY_ITS_ROWS else state.slice_rows


def outcome(result: OperationResult, url: str, receipt: Receipt | None) -> str:
    """Describe the result of a write for a log. It names only versions that readers will see."""
    staged = receipt is not None and receipt.state == STAGED
    if result.skipped:
        target = url if staged else f"{url} in version {result.version}"
        return f"an earlier attempt committed it to {target}: nothing written"
    size = "" if result.bytes is None else f" ({readable_bytes(result.bytes)})"
    rows = "rows" if result.rows is None else count_of(result.rows, "row")
    if receipt is None:
        return f"{rows}{size} for {url}, to be published with the step's other writes"
    if staged:
        return f"{rows}{size} staged for {url}, to be published with session {receipt.session}"
    return f"{rows}{size} to {url}, version {result.version}"


def column_schema(table: DeltaTable, settings: TableSettings | None = None) -> ColumnSchema:
    """Describe a table's columns for the UI: Spark SQL types, comments, constraints, declared tags and uniqueness."""
    declared = {column.name.lower(): column for column in settings.columns} if settings else {}
    of_column, of_table = _checks(table)
    table_columns = []
    for child in table.schema:
        declaration = declared.get(child.name.lower())
        other = [*of_column.get(child.name, ()), *(declaration.other if declaration else ())]
        generation = generation_of(child)
        if generation is not None:
            other.append(f"generated as {generation}")
        if child.name in table.metadata.partition_columns:
            other.append("partitions the table")
        table_columns.append(
            Column(
                name=child.name,
                type=spark_type_name(child.type),
                description=comment_of(child),
                nullable=child.nullable,
                unique=bool(declaration and declaration.unique),
                other=list(dict.fromkeys(other)),
                tags=dict(declaration.tags) if declaration else {},
            )
        )
    return ColumnSchema(table_columns, of_table)


def _checks(table: DeltaTable) -> tuple[dict[str, list[str]], list[str]]:
    """Return the CHECK constraints on one column, by column, and those on several columns."""
    of_column: dict[str, list[str]] = {}
    of_table = []
    for sql in table.constraints.values():
        try:
            names = {column.path[0] for column in columns(parse_predicate(sql, table.schema))}
        except InvalidExpression:
            # It is a constraint of another writer, in SQL that this package does not support.
            names = set()
        if len(names) == 1:
            of_column.setdefault(names.pop(), []).append(sql)
        else:
            of_table.append(sql)
    return of_column, of_table


def _removed(result: OperationResult) -> int | None:
    metrics: Mapping[str, int] = result.metrics
    return next((metrics[name] for name in _REMOVED if name in metrics), None if result.skipped and not metrics else 0)


def _sum(numbers: Any) -> int | None:
    counts = list(numbers)
    return None if None in counts else sum(counts)
