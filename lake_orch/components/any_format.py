"""The component of a dataset of any installed format: the function that returns its value, and its settings."""

# No `from __future__ import annotations` here: components' fields are read as objects.

from collections.abc import Mapping
from typing import Annotated, Any

import dagster as dg
from pydantic import Field

from lake_orch.assets.asset_format import FORMAT, AssetOutput, asset_format
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
          description: What it is.
          group_name: datasets
        function: .NAME:NAME               # in NAME.py, beside this file
        format: pool                       # or one that another package installs
        settings: {key: ts}                # of the format
        """,
        """
        from datetime import datetime, timezone
        from typing import Any


        def NAME() -> list[dict[str, Any]]:
            return [{"ts": datetime(2025, 1, 1, tzinfo=timezone.utc), "level": "info"}]
        """,
    )
)
class FormatComponent(DatasetComponent):
    """An asset in any installed format, such as that of another package. A Python function returns its value."""

    format: Annotated[str, described("The name of the format.")]
    function: Annotated[
        str,
        described("module:function that returns the value; its parameters are assets that it reads, and resources."),
    ]
    settings: Annotated[dict[str, Any], described("Settings of the format, by name, without the prefix lake/.")] = (
        Field(default_factory=dict)
    )
    io_manager_key: Annotated[str, described("The IO manager that stores it, a LakeIOManager.")] = Field(
        default="lake_io_manager"
    )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the definitions.

        Raises InvalidDefinition for invalid settings, or if the function does not exist; UnknownFormat.
        """
        kind = asset_format(self.format, {}).kind or self.format
        return dg.Definitions(assets=[self._of_function(load_function(self.function, context), kind, "python")])

    def _metadata(self) -> dict[str, Any]:
        return {FORMAT: self.format, **{f"lake/{name}": value for name, value in self.settings.items()}}

    def _check(self, metadata: Mapping[str, Any]) -> None:
        definition = self.asset.partitions_def
        output = AssetOutput(
            producer=self._subject,
            asset_key=self.asset.key.path,
            metadata=plain_metadata(metadata),
            partitions=None if definition is None else partitions_of(definition),
        )
        asset_format(self.format, {}).check(output)
