"""The IO manager for arrays: it writes what an asset returns to an Icechunk repository, and reads inputs from one."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from lake_orch.assets.arrays.asset_format import ArrayFormat
from lake_orch.io_managers.asset import AssetIOManager


class IcechunkIOManager(AssetIOManager):
    """An IO manager that stores arrays in Icechunk repositories, each write exactly once, and loads them lazily.

    Needs the extra `arrays`.

    Example:
        .. code-block:: python

            lake = LakeResource(root="s3://bucket/lake")
            defs = dg.Definitions(assets=[temperature], resources={"arrays": IcechunkIOManager(lake=lake), "lake":
            lake})

            @dg.asset(
                io_manager_key="arrays",
                partitions_def=dg.DailyPartitionsDefinition("2024-01-01"),
                metadata={"partition_expr": "time"},    # the dimension that the partitions stand for
                kinds={"icechunk", "xarray"},
            )
            def temperature(context: dg.AssetExecutionContext) -> xr.Dataset: ...

    An asset's repository is at `<root>/tables/<asset key>`. It returns an `xarray.Dataset` or `DataArray`, a
    `zarr.Group` or `Array`, or an array of numpy or dask. A parameter annotated with one of these, or with
    `lake_core.icechunk.Session`, gets that type, and one annotated with `dict[str, T]` gets one value for each
    partition.

    Definition metadata of an asset, or of an op's output:
        partition_expr: the dimension that the partitions stand for, or a dict from the partitions' dimensions to the
            arrays'. Required if partitioned.
        lake/mode: `overwrite` (default; of a partitioned asset exactly the run's region), `append`, `error` or `ignore`
            (only where there is nothing yet).
        lake/append_dim: the dimension along which `append` adds.
        lake/coordinates: all coordinates that a dimension will ever have, by dimension, or the frequency of those of
            time partitions, such as `{"time": "h"}`. Then each partition has its position from the start, and chunks of
            its own.
        lake/encoding: chunks, shards, compressors, dtype, fill_value, units, …, by variable.
        lake/dims: names of the dimensions of numpy and dask arrays.
        lake/owner: `take` takes over arrays that another asset wrote, `shared` also lets other assets overwrite them.
        lake/path: the repository's path below the root, instead of the asset's key.
        lake/preview_image: whether the asset's page shows a picture, or the variable that it shows. Dagster keeps it in
            its database.

    Metadata of an input (`dg.AssetIn(metadata=...)`):
        columns: the variables to load.
        lake/sel: the selection, as for `Dataset.sel`. A dict of `start` and `stop` is a slice.
        lake/chunks: the chunks of dask arrays. Without it, arrays are lazy and do not need dask.
        lake/ref: the branch, tag or commit of the lake to load from.
        lake/snapshot, lake/timestamp: the earlier state of the repository to load.

    A step that is retried, or re-executed from failure, after its arrays were committed writes nothing and reports
    `lake/skipped`. Coordinates outside the run's partitions fail the step before anything is visible.
    """

    mode: Literal["overwrite", "error", "ignore"] = Field(
        default="overwrite", description="How outputs are written if their metadata names no lake/mode."
    )
    preview_image: bool = Field(
        default=True, description="Whether lake/preview shows a picture if metadata names no lake/preview_image."
    )

    spec_version: int = Field(
        default=1,
        ge=1,
        le=2,
        description="The version of the Icechunk specification that new repositories follow; others keep theirs.",
    )

    @classmethod
    def format_class(cls, metadata: Mapping[str, Any]) -> type[ArrayFormat]:
        """Return the class of the format."""
        return ArrayFormat
