"""The component that lists the datasets of a lake as external assets."""

# No `from __future__ import annotations` here: components' fields are read as objects.

import json
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
from dagster.components import DefsStateConfig, DefsStateConfigArgs, ResolvedDefsStateConfig
from pydantic import Field

from lake_orch.assets.maintenance import maintained_formats, maintenance_of
from lake_orch.components.references import StorageOptions, described
from lake_orch.components.scaffolding import scaffolds
from lake_orch.resources import LakeResource
from lake_pipes.metadata import PATH


@dg.scaffold_with(
    scaffolds(
        """
        root: "{{ env('LAKE_ROOT', 'lake') }}"
        prefix: tables/        # which datasets are listed
        """
    )
)
class LakeDatasetsComponent(dg.StateBackedComponent, dg.Model, dg.Resolvable):
    """External assets for the tables, arrays and pools of a lake, such as one that another team writes.

    The list is state: it is read from the lake by `dg utils refresh-defs-state`, or when the code location is loaded
    in development, and kept until the next refresh.
    """

    root: Annotated[str, described("URL or local path of the lake's root folder.")]
    storage_options: StorageOptions = Field(default_factory=dict)
    branch: Annotated[str, described("The branch whose datasets are listed.")] = "main"
    prefix: Annotated[str, described("The prefix of the paths to list. Keys of assets do not have it.")] = "tables/"
    key_prefix: Annotated[list[str], described("The first parts of the assets' keys.")] = Field(default_factory=list)
    group_name: Annotated[str | None, described("The group of the assets.")] = None
    exclude: Annotated[list[dg.ResolvedAssetKey], described("Assets to leave out, such as those defined here.")] = (
        Field(default_factory=list)
    )
    defs_state: ResolvedDefsStateConfig = DefsStateConfigArgs.local_filesystem()

    @property
    def defs_state_config(self) -> DefsStateConfig:
        """Return where Dagster keeps the list."""
        return DefsStateConfig.from_args(
            self.defs_state, default_key=f"LakeDatasetsComponent[{self.root}@{self.branch}]"
        )

    def write_state_to_path(self, state_path: Path) -> None:
        """Write the paths and formats of the lake's datasets."""
        lake = LakeResource(root=self.root, storage_options=self.storage_options).open()
        datasets = lake.at(self.branch).datasets()
        state_path.write_text(json.dumps({path: record.format for path, record in sorted(datasets.items())}))

    def build_defs_from_state(self, context: dg.ComponentLoadContext, state_path: Path | None) -> dg.Definitions:
        """Build an asset for each dataset."""
        if state_path is None:
            return dg.Definitions()
        datasets: dict[str, str] = json.loads(state_path.read_text())
        specs = [self._spec(path, format) for path, format in datasets.items() if path.startswith(self.prefix)]
        return dg.Definitions(assets=[spec for spec in specs if spec.key not in self.exclude])

    def _spec(self, path: str, format: str) -> dg.AssetSpec:
        metadata: dict[str, Any] = {PATH: path}
        return dg.AssetSpec(
            dg.AssetKey([*self.key_prefix, *path.removeprefix(self.prefix).split("/")]),
            metadata=metadata,
            kinds={maintenance_of(format).kind if format in maintained_formats() else format},
            group_name=self.group_name,
        )
