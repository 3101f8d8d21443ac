"""Column lineage of a Spark DataFrame, as Dagster's `dagster/column_lineage` metadata.

    frame = tracked(read_delta(spark, table), asset_key)            # where an input is loaded
    metadata |= lineage_metadata(output, upstream_asset_keys)       # where an output is stored

The IO managers do both for what they load and store.
`lake_orch.assets.tables.rows.column_lineage` says what counts as an edge.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dagster import AssetKey, TableColumnLineage

from lake_orch.assets.tables.rows import column_lineage as lane
from lake_orch.dagster.metadata import dagster_metadata

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def tracked(df: "DataFrame", asset_key: AssetKey) -> "DataFrame":
    """Return the same rows, labeled with an asset's key for the lineage of columns that are computed from them.

    The label does not make reading slower.
    """
    return lane.tracked(df, tuple(asset_key.path))


def column_lineage(df: "DataFrame", upstream: Iterable[AssetKey]) -> TableColumnLineage | None:
    """Find the columns of upstream assets, loaded by way of `tracked`, from which the DataFrame's columns are computed.

    Return None if no lineage is known. Spark analyzes the DataFrame and runs no job. Errors are ignored: a step must
    not fail here.
    """
    lineage: TableColumnLineage | None = lineage_metadata(df, upstream).get("dagster/column_lineage")
    return lineage


def lineage_metadata(df: "DataFrame", upstream: Iterable[AssetKey]) -> dict[str, Any]:
    """Return `column_lineage` as output metadata, and as a table, which every UI shows. Empty if nothing is known."""
    lineage = lane.column_lineage(df, [tuple(key.path) for key in upstream])
    return dagster_metadata(lane.described(lineage))
