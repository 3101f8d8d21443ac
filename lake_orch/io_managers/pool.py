"""The IO manager for records of any shape: it writes what an asset returns to a pool, and reads inputs from pools."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from lake_orch.assets.pools.asset_format import PoolFormat
from lake_orch.io_managers.asset import AssetIOManager
from lake_orch.resources import SparkResource


class PoolIOManager(AssetIOManager):
    """An IO manager that stores records of any shape in pools, sorted by a key, each write exactly once.

    Inputs are loaded as the type that the parameter is annotated with.

    Example:
        .. code-block:: python

            lake = LakeResource(root="s3://bucket/lake")
            defs = dg.Definitions(assets=[events], resources={"pools": PoolIOManager(lake=lake), "lake": lake})

            @dg.asset(
                io_manager_key="pools",
                partitions_def=dg.DailyPartitionsDefinition("2025-01-01"),
                metadata={"partition_expr": "ts"},      # the key that the pool is sorted by
                kinds={"zed"},
            )
            def events(context: dg.AssetExecutionContext) -> Iterator[dict[str, Any]]: ...

    An asset's pool is at `<root>/tables/<asset key>`, a Zed lake whose one pool has the folder's name. It returns an
    iterable of dicts, Arrow data, a pandas, polars or PySpark DataFrame, or lines of JSON as one text. Wrap a generator
    in `dg.Output`. Otherwise Dagster treats what it yields as events. A parameter annotated with `pyarrow.Table`,
    `pyarrow.RecordBatchReader`, a DataFrame, `Iterator` of `collections.abc` (of dicts; Dagster allows no
    `Iterator[…]`), or `Scan` or `Pool` of `lake_core.pool` gets that type, and one annotated with `dict[str, T]` gets
    one value for each partition. Tables have one schema: fields that a record lacks are null, and fields of several
    types get a common type, or become JSON text.

    Definition metadata of an asset, or of an op's output:
        partition_expr: the key that the pool is sorted by, and the partitions stand for. Required if partitioned.
        lake/mode: `overwrite` (default; of a partitioned asset exactly the run's range of keys), `append`, `error` or
            `ignore` (only where there is nothing yet).
        lake/key, lake/order: the key that a new pool is sorted by (default: `ts`), and `asc` or `desc` (default).
        lake/threshold: the size in bytes of the data objects of a new pool (default: 500 MB).
        lake/times: fields whose texts, such as `2025-01-01T12:00:00Z` in JSON, are stored as times.
        lake/owner: `take` takes over a pool that another asset wrote, `shared` also lets other assets overwrite it.
        lake/path: the pool's path below the root, instead of the asset's key.
        lake/preview_rows: the number of records that the asset's page shows. Dagster keeps them in its database: use 0
            for data that must not be there.

    Metadata of an input (`dg.AssetIn(metadata=...)`):
        columns: the fields to load.
        lake/shape: the name or the text of the one type of records to load, such as `{ts:time,level:string}`.
        lake/start, lake/stop: the range of keys to load, without the stop.
        lake/since: `last run` loads what was added since the asset's last load on the branch.
        lake/ref: the branch, tag or commit of the lake to load from.
        lake/pool_commit: the commit of the pool to load.

    A step that is retried, or re-executed from failure, after its records were committed writes nothing and reports
    `lake/skipped`. Records outside the run's partitions fail the step before anything is visible.
    """

    spark: SparkResource | None = Field(
        default=None, description="The Spark of DataFrames of PySpark. Without it, an active session is used."
    )
    mode: Literal["overwrite", "append", "error", "ignore"] = Field(
        default="overwrite", description="How outputs are written if their metadata names no lake/mode."
    )
    preview_rows: int = Field(
        default=5,
        ge=0,
        le=50,
        description="Records in lake/preview if metadata names no lake/preview_rows. 0 shows none.",
    )

    @classmethod
    def format_class(cls, metadata: Mapping[str, Any]) -> type[PoolFormat]:
        """Return the class of the format."""
        return PoolFormat
