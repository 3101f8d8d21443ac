"""The component that lists the tables of a lake as external assets, from a state that is refreshed."""

# No `from __future__ import annotations` here: components' fields are read as objects.

import json
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
from dagster.components.utils.defs_state import DefsStateConfig, DefsStateConfigArgs, ResolvedDefsStateConfig
from pydantic import Field

from lake_orch.change_sensors import external_table
from lake_orch.components.references import StorageOptions, described
from lake_orch.components.scaffolding import scaffolds
from lake_orch.location import TABLES
from lake_orch.resources import LakeResource


@dg.scaffold_with(
    scaffolds(
        """
        root: "{{ env('LAKE_ROOT', 'lake') }}"
        prefix: shared/       # the tables that other systems, or other code locations, write
        """
    )
)
class LakeTablesComponent(dg.StateBackedComponent, dg.Model, dg.Resolvable):
    """External assets for the tables of a lake, without naming each.

    The list is read from the lake when the state is refreshed: by `dg dev`, and with `dg utils refresh-defs-state`.
    """

    root: Annotated[str, described("URL or local path of the lake's root folder.")]
    storage_options: StorageOptions = Field(default_factory=dict)
    branch: Annotated[str, described("The branch whose tables are listed.")] = "main"
    prefix: Annotated[str, described("What the paths of the tables begin with, such as shared/.")] = ""
    key_prefix: Annotated[list[str], described("The first parts of the assets' keys.")] = Field(default_factory=list)
    group_name: Annotated[str | None, described("The group of the assets.")] = None
    defs_state: ResolvedDefsStateConfig = Field(default_factory=DefsStateConfigArgs.local_filesystem)

    @property
    def defs_state_config(self) -> DefsStateConfig:
        """Return where the state is kept."""
        default = f"LakeTablesComponent[{self.root},{self.branch},{self.prefix}]"
        return DefsStateConfig.from_args(self.defs_state, default_key=default)

    def write_state_to_path(self, state_path: Path) -> None:
        """Write the paths of the tables. Raises NotALake, RefNotFound."""
        lake = LakeResource(root=self.root, storage_options=self.storage_options).open()
        records = lake.list_datasets(self.branch)
        paths = [each.path for each in records if each.format == "delta" and each.path.startswith(self.prefix)]
        state_path.write_text(json.dumps(sorted(paths)))

    def build_defs_from_state(self, context: dg.ComponentLoadContext, state_path: Path | None) -> dg.Definitions:
        """Build an asset for each table. Without a state there are none yet."""
        paths: list[str] = [] if state_path is None else json.loads(state_path.read_text())
        options: dict[str, Any] = {} if self.group_name is None else {"group_name": self.group_name}
        return dg.Definitions(
            assets=[
                external_table([*self.key_prefix, *path.removeprefix(f"{TABLES}/").split("/")], path, **options)
                for path in paths
            ]
        )
