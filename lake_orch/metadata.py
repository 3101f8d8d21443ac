"""What the UI shows of a write: Dagster's own metadata keys where it has them, `lake/…` for the rest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from dagster import TableColumn, TableColumnConstraints, TableSchema

from lake_core.delta import DeltaTable, WriteResult
from lake_orch.location import table_name
from lake_orch.tags import BRANCH, COMMIT, EPOCH_TAG, PATH, SESSION_TAG, STATE, VERSION
from lake_orch.type_name import spark_type_name
from lake_orch.workspace import Receipt

_COMMENT_KEY = b"SPARK::metadata::json"


def write_metadata(
    results: Sequence[WriteResult], table: DeltaTable, *, url: str, path: str, one_partition: bool, receipt: Receipt | None = None
) -> dict[str, Any]:
    """The output metadata of one or more writes to one table.

    Numbers are ints, so that the UI plots them over time. A skipped write counts with what its committed version wrote.
    A number that the table's log no longer knows is left out.
    """
    metadata: dict[str, Any] = {
        "dagster/column_schema": column_schema(table.schema),
        "dagster/table_name": table_name(path),
        "dagster/uri": url,
        PATH: path,
        VERSION: max((result.version for result in results), default=table.version),
        "lake/skipped": bool(results) and all(result.skipped for result in results),
    }
    if receipt is not None:
        metadata |= receipt_metadata(receipt)
    counted = {
        "dagster/row_count": [result.rows for result in results],
        "lake/files_added": [result.files for result in results],
        "lake/bytes_written": [result.bytes for result in results],
    }
    for name, numbers in counted.items():
        if None not in numbers:
            metadata[name] = sum(number for number in numbers if number is not None)
    if one_partition and "dagster/row_count" in metadata:
        metadata["dagster/partition_row_count"] = metadata["dagster/row_count"]
    return metadata


def receipt_metadata(receipt: Receipt) -> dict[str, Any]:
    """What became of a write: published or staged, where, and in which commit."""
    told = {
        STATE: receipt.state,
        BRANCH: receipt.branch,
        COMMIT: receipt.commit,
        SESSION_TAG: receipt.session,
        EPOCH_TAG: receipt.epoch,
    }
    return {name: value for name, value in told.items() if value is not None}


def column_schema(schema: pa.Schema) -> TableSchema:
    """The schema as the UI's table of columns, with Spark SQL type names and comments."""
    return TableSchema(
        columns=[
            TableColumn(
                name=field.name,
                type=spark_type_name(field.type),
                description=_comment(field),
                constraints=TableColumnConstraints(nullable=field.nullable),
            )
            for field in schema
        ]
    )


def _comment(field: pa.Field) -> str | None:
    raw = field.metadata or {}
    if _COMMENT_KEY in raw:
        comment = json.loads(raw[_COMMENT_KEY]).get("comment")
        return comment if isinstance(comment, str) else None
    return raw[b"comment"].decode() if b"comment" in raw else None
