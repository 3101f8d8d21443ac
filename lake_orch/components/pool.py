"""The component of a pool: the function that returns its records, and the storage settings."""

# No `from __future__ import annotations` here: components' fields are read as objects.

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import Field

from lake_orch.assets.pools.key_ranges import only_dimension
from lake_orch.assets.pools.settings import NAMES, PoolSettings
from lake_orch.components.dataset import DatasetComponent
from lake_orch.components.references import described, load_function
from lake_orch.components.scaffolding import scaffolds
from lake_orch.dagster.metadata import plain_metadata
from lake_orch.dagster.partitions import partitions_of
from lake_orch.definition_metadata import missing_partition_expr


@dg.scaffold_with(
    scaffolds(
        """
        asset:
          key: NAME
          description: What the records are.
          group_name: pools
        function: .NAME:NAME               # in NAME.py, beside this file
        key: ts                            # what the pool is sorted by
        # partition_expr: ts               # the same key, where the asset is partitioned
        # times: [ts]                      # texts that are times, as JSON has them
        """,
        """
        from datetime import datetime, timezone
        from typing import Any


        def NAME() -> list[dict[str, Any]]:
            return [{"ts": datetime(2025, 1, 1, tzinfo=timezone.utc), "level": "info"}]
        """,
    )
)
class PoolComponent(DatasetComponent):
    """An asset whose records are stored in a pool exactly once. A Python function returns them, in any shapes."""

    function: Annotated[
        str,
        described(
            "module:function that returns records, such as a list of dicts; "
            "its parameters are assets that it reads, and resources."
        ),
    ]
    mode: Annotated[
        Literal["overwrite", "append", "error", "ignore"] | None,
        described("How records are written; by default the mode of the IO manager."),
    ] = None
    key: Annotated[str | None, described("The field that the pool is sorted by, such as ts or a.b.")] = None
    order: Annotated[Literal["asc", "desc"] | None, described("The direction of the order; by default desc.")] = None
    threshold: Annotated[
        int | None, Field(gt=0), described("Bytes of records that a data object holds; by default 500 MB.")
    ] = None
    times: Annotated[list[str] | None, described("Fields whose texts are stored as times.")] = None
    preview_rows: Annotated[int | None, Field(ge=0, le=50), described("How many records the asset's page shows.")] = (
        None
    )
    io_manager_key: Annotated[str, described("The IO manager that stores the records.")] = Field(
        default="pool_io_manager"
    )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the definitions.

        Raises InvalidDefinition for invalid settings, or if the function does not exist.
        """
        return dg.Definitions(assets=[self._of_function(load_function(self.function, context), "zed", "python")])

    def _metadata(self) -> dict[str, Any]:
        names = ("mode", "key", "order", "threshold", "times", "preview_rows")
        return {f"lake/{name}": getattr(self, name) for name in names}

    def _check(self, metadata: Mapping[str, Any]) -> None:
        NAMES.check(metadata, "output", self._subject)
        settings = PoolSettings.parse(self.asset.key.path, plain_metadata(metadata), self._subject)
        if self.asset.partitions_def is None:
            return
        if settings.partition_expr is None:
            raise missing_partition_expr(self._subject, "column")
        only_dimension(partitions_of(self.asset.partitions_def), self._subject)
