"""The component of an Icechunk repository: the function that returns its arrays, and the storage settings."""

# No `from __future__ import annotations` here: components' fields are read as objects.

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import Field

from lake_orch.assets.arrays.partitioning import with_partitions
from lake_orch.assets.arrays.settings import NAMES, ArraySettings
from lake_orch.components.dataset import DatasetComponent
from lake_orch.components.references import described, load_function
from lake_orch.components.scaffolding import scaffolds
from lake_orch.dagster.metadata import plain_metadata
from lake_orch.dagster.partitions import partitions_of


@dg.scaffold_with(
    scaffolds(
        """
        asset:
          key: NAME
          description: What the arrays hold.
          group_name: arrays
        function: .NAME:NAME               # in NAME.py, beside this file
        # partition_expr: time            # the dimension that the asset's partitions stand for
        # coordinates: {time: h}          # one an hour, in all of the partitions
        # encoding:
        #   temperature: {chunks: [24, 100], dtype: float32}
        """,
        """
        import numpy as np
        import xarray as xr


        def NAME() -> xr.Dataset:
            return xr.Dataset({"temperature": (("time", "station"), np.zeros((24, 100), np.float32))})
        """,
    )
)
class IcechunkRepositoryComponent(DatasetComponent):
    """An asset whose arrays are written to an Icechunk repository exactly once. A Python function returns them."""

    function: Annotated[
        str,
        described(
            "module:function that returns arrays, such as an xarray.Dataset; "
            "its parameters are assets that it reads, and resources."
        ),
    ]
    mode: Annotated[
        Literal["overwrite", "append", "error", "ignore"] | None,
        described("How arrays are written; by default append if append_dim is given, else the mode of the IO manager."),
    ] = None
    append_dim: Annotated[str | None, described("The dimension along which append adds.")] = None
    coordinates: Annotated[
        dict[str, str | list[Any]] | None,
        described(
            "All coordinates that a dimension of partitions will ever have: "
            "a list, or a frequency such as h, 15min or D."
        ),
    ] = None
    encoding: Annotated[
        dict[str, dict[str, Any]] | None,
        described("How variables are stored: chunks, shards, compressors, dtype, units, …"),
    ] = None
    dims: Annotated[list[str] | None, described("The names of the dimensions of numpy and dask arrays.")] = None
    preview_image: Annotated[
        bool | str | None, described("Whether the asset's page shows a picture, or of which variable.")
    ] = None
    io_manager_key: Annotated[str, described("The IO manager that stores the arrays.")] = Field(
        default="array_io_manager"
    )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the definitions. Raises InvalidDefinition for invalid settings, or if the function does not exist."""
        return dg.Definitions(assets=[self._of_function(load_function(self.function, context), "icechunk", "python")])

    def _metadata(self) -> dict[str, Any]:
        names = ("mode", "append_dim", "coordinates", "encoding", "dims", "preview_image")
        return {f"lake/{name}": getattr(self, name) for name in names}

    def _check(self, metadata: Mapping[str, Any]) -> None:
        NAMES.check(metadata, "output", self._subject)
        settings = ArraySettings.parse(self.asset.key.path, plain_metadata(metadata), self._subject)
        definition = self.asset.partitions_def
        with_partitions(settings, None if definition is None else partitions_of(definition), self._subject)
