"""Column lineage of a step's Spark output, as Dagster's `dagster/column_lineage` metadata.

    frame = tracked(read_delta(spark, table), asset_key)            # where an input is loaded
    metadata |= lineage_metadata(output, upstream_asset_keys)       # where an output is stored

An edge means that a column's values are computed from another column's values. A column that only selects, groups or
orders rows has no edge. If Spark's plan does not explain a column (Python functions over whole tables, fields of
assembled structs), it has no edges: declare them in the asset's metadata.
"""

import hashlib
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dagster import AssetKey, MetadataValue, TableColumn, TableColumnDep, TableColumnLineage, TableRecord, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG = logging.getLogger(__name__)
_SCHEMA = TableSchema(columns=[TableColumn("column"), TableColumn("from asset"), TableColumn("from column")])


def tracked(df: "DataFrame", asset_key: AssetKey) -> "DataFrame":
    """Return the same rows, labeled with an asset's key for the lineage of columns that are computed from them.

    The label does not make reading slower.
    """
    from lake_core.spark.column_origins import marked

    return marked(df, _mark(asset_key))


def column_lineage(df: "DataFrame", upstream: Iterable[AssetKey]) -> TableColumnLineage | None:
    """Find the columns of upstream assets, loaded by way of `tracked`, from which the DataFrame's columns are computed.

    Return None if no lineage is known. Spark analyzes the DataFrame and runs no job. Errors are ignored: a step must
    not fail here.
    """
    from lake_core.spark.column_origins import column_origins

    keys = {_mark(key): key for key in upstream}
    if not keys:
        return None
    try:
        origins = column_origins(df)
    except Exception as error:
        # Spark raises many types of errors for a plan that it cannot explain.
        _LOG.debug("no column lineage: %s", error)
        return None
    deps = {
        column: [TableColumnDep(asset_key=keys[mark], column_name=name) for mark, name in sorted(sources)]
        for column, sources in (origins or {}).items()
        if sources and all(mark in keys for mark, _ in sources)
    }
    return TableColumnLineage(deps_by_column=deps) if deps else None


def lineage_metadata(df: "DataFrame", upstream: Iterable[AssetKey]) -> dict[str, Any]:
    """Return `column_lineage` as output metadata, and as a table, which every UI shows. Empty if nothing is known."""
    return described(column_lineage(df, upstream))


def described(lineage: TableColumnLineage | None) -> dict[str, Any]:
    """Describe lineage as output metadata, and as a table, which every UI shows. Empty if there is none."""
    if lineage is None or not lineage.deps_by_column:
        return {}
    records = [
        TableRecord({"column": column, "from asset": dep.asset_key.to_user_string(), "from column": dep.column_name})
        for column, deps in lineage.deps_by_column.items()
        for dep in deps
    ]
    return {"dagster/column_lineage": lineage, "lake/column_lineage": MetadataValue.table(records, _SCHEMA)}


def _mark(key: AssetKey) -> str:
    return f"asset_{hashlib.sha256(key.to_string().encode()).hexdigest()[:24]}"
