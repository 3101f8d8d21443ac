"""Column lineage of a step's Spark output.

    frame = tracked(read_delta(spark, table), path)                 # where an input is loaded
    metadata |= described(column_lineage(output, upstream_paths))   # where an output is stored

An edge means that a column's values are computed from another column's values. A column that only selects, groups or
orders rows has no edge. If Spark's plan does not explain a column (Python functions over whole tables, fields of
assembled structs), it has no edges: declare them in the asset's metadata.
"""

import hashlib
import json
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from lake_orch.assets.description import AssetPath, ColumnLineage, Records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG = logging.getLogger(__name__)
_COLUMNS = ("column", "from asset", "from column")


def tracked(df: "DataFrame", asset: AssetPath) -> "DataFrame":
    """Return the same rows, labeled with an asset's path for the lineage of columns that are computed from them.

    The label does not make reading slower.
    """
    from lake_core.spark.column_origins import marked

    return marked(df, _mark(asset))


def column_lineage(df: "DataFrame", upstream: Iterable[AssetPath]) -> ColumnLineage | None:
    """Find the columns of upstream assets, loaded by way of `tracked`, from which the DataFrame's columns are computed.

    Return None if no lineage is known. Spark analyzes the DataFrame and runs no job. Errors are ignored: a step must
    not fail here.
    """
    from lake_core.spark.column_origins import column_origins

    assets = {_mark(asset): asset for asset in upstream}
    if not assets:
        return None
    try:
        origins = column_origins(df)
    except Exception as error:
        # Spark raises many types of errors for a plan that it cannot explain.
        _LOG.debug("no column lineage: %s", error)
        return None
    deps = {
        column: [(assets[mark], name) for mark, name in sorted(sources)]
        for column, sources in (origins or {}).items()
        if sources and all(mark in assets for mark, _ in sources)
    }
    return ColumnLineage(deps) if deps else None


def described(lineage: ColumnLineage | None) -> dict[str, Any]:
    """Describe lineage as output metadata, and as a table, which every UI shows. Empty if there is none."""
    if lineage is None or not lineage.sources:
        return {}
    records = [
        {"column": column, "from asset": "/".join(key), "from column": name}
        for column, sources in lineage.sources.items()
        for key, name in sources
    ]
    return {"dagster/column_lineage": lineage, "lake/column_lineage": Records(_COLUMNS, records)}


def _mark(asset: AssetPath) -> str:
    return f"asset_{hashlib.sha256(json.dumps(asset).encode()).hexdigest()[:24]}"
