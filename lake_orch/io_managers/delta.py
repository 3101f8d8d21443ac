"""The IO manager for tables: it writes what an asset returns to a Delta table, and reads inputs from Delta tables."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from lake_orch.assets.asset_format import AssetFormat
from lake_orch.dagster.step.type_handlers import HasTypeHandlers
from lake_orch.io_managers.asset import AssetIOManager
from lake_orch.resources import SparkResource

if TYPE_CHECKING:
    from lake_orch.assets.tables.asset_format import TableFormat


class DeltaIOManager(HasTypeHandlers, AssetIOManager):
    """An IO manager that stores DataFrames and Arrow data in Delta tables, each write exactly once.

    Inputs are loaded as the type that the parameter is annotated with.

    Example:
        .. code-block:: python

            lake = LakeResource(root="s3://bucket/lake")
            defs = dg.Definitions(
                assets=[orders, orders_by_day],
                resources={"io_manager": DeltaIOManager(lake=lake, spark=SparkResource()), "lake": lake},
            )

            @dg.asset(
                partitions_def=dg.DailyPartitionsDefinition("2025-01-01"),
                metadata={"partition_expr": "day"},     # the column that the partitions stand for
                kinds={"deltalake", "pyspark"},
            )
            def orders_by_day(orders: DataFrame) -> DataFrame: ...

    An asset's table is at `<root>/tables/<asset key>`. It returns a PySpark, pandas or polars DataFrame, a polars
    LazyFrame, or a `pyarrow` Table, RecordBatchReader or Dataset. A parameter annotated with one of these, or with
    `DeltaTable`, gets that type, and one annotated with `dict[str, T]` gets one value for each partition.

    Definition metadata of an asset, or of an op's output:
        partition_expr: the column that the partitions stand for, or a dict from dimension to column. Required if
            partitioned.
        lake/mode: `overwrite` (default; of a partitioned asset exactly the run's partitions), `append`, `merge`,
            `replace_where`, `overwrite_partitions` (those of the table that get rows), `error` or `ignore` (only where
            there are no rows yet).
        lake/merge: the keys (`["id"]`), or a dict of `keys` or `on`, and clauses.
        lake/replace_where: the SQL that selects the rows to replace.
        lake/schema_mode: `none` (default: new and missing columns are an error), `fill` (missing ones are null),
            `merge` (new ones are added, too), `overwrite`.
        lake/naive_timestamps: `refuse` (default: timestamps without a zone are an error), `utc` (they are UTC), `ntz`
            (clock times of no zone).
        lake/owner: `take` takes over a table that another asset wrote, `shared` also lets other assets overwrite it.
        lake/path: the table's path below the root, instead of the asset's key.
        lake/preview_rows: the number of rows that the asset's page shows. Dagster keeps them in its database: use 0 for
            data that must not be there.
        lake/partition_by: the columns that partition the table, if they differ from those of `partition_expr`. A later
            change is an error that says how to repartition.
        lake/cluster_by: the columns by which rows in memory are sorted, and by which maintenance Z-orders the table
            (its property `lake.clusterBy`). Kept up to date. With the property `delta.feature.clustering` of
            `supported`, the table itself is clustered by them when it is created (liquid clustering), and each
            compaction sorts what is new.
        lake/properties: a dict of the table's properties, such as `delta.enableChangeDataFeed`. They are set if they
            differ.
        lake/constraints: a dict from the names of CHECK constraints to their SQL. New ones are added if all rows
            satisfy them. Other SQL under the same name is an error.
        lake/generated: a dict from generated columns to their SQL. A later change is an error.
        lake/schema: the `pyarrow.Schema` of the table. Rows are cast to it if the cast is exact. Other columns are an
            error.
        dagster/column_schema: a `dagster.TableSchema` of types, comments and NOT NULL. Rows are checked against it.
            Comments are kept up to date. A later NOT NULL is an error that says how to add it.
        dagster/column_lineage: the lineage of columns to report, a `dagster.TableColumnLineage`.

    Metadata of an input (`dg.AssetIn(metadata=...)`):
        columns: a list of the columns to load.
        lake/where: the SQL that selects the rows to load, among those of the partitions.
        lake/ref: the branch, tag or commit of the lake to load from.
        lake/version, lake/timestamp: the earlier version of the table to load.

    A step that is retried, or re-executed from failure, after its rows were committed writes nothing and reports
    `lake/skipped`. Rows outside the run's partitions fail the step before anything is visible.
    """

    spark: SparkResource | None = Field(
        default=None, description="The Spark of DataFrames of PySpark. Without it, an active session is used."
    )
    mode: Literal["overwrite", "append", "overwrite_partitions", "error", "ignore"] = Field(
        default="overwrite", description="How outputs are written if their metadata names no lake/mode."
    )
    schema_mode: Literal["none", "fill", "merge", "overwrite"] = Field(
        default="none", description="How new and missing columns are handled if metadata names no lake/schema_mode."
    )
    naive_timestamps: Literal["refuse", "utc", "ntz"] = Field(
        default="refuse",
        description="How timestamps without a zone are read if metadata names no lake/naive_timestamps.",
    )

    preview_rows: int = Field(
        default=5, ge=0, le=50, description="Rows in lake/preview if metadata names no lake/preview_rows. 0 shows none."
    )
    with_column_lineage: bool = Field(
        default=True,
        description="Whether Spark's plans are read for column lineage. Declared lineage is kept.",
    )

    @classmethod
    def format_class(cls, metadata: Mapping[str, Any]) -> "type[TableFormat]":
        """Return the class of the format."""
        from lake_orch.assets.tables.asset_format import TableFormat  # here, as code locations store nothing

        return TableFormat

    def _only_format(self, **options: Any) -> AssetFormat:
        return super()._only_format(handlers=self.type_handlers(), **options)
