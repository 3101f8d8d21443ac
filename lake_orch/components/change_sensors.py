"""Components that watch tables and branches for changes."""

# No `from __future__ import annotations` here: components' fields are read as objects.

from typing import Annotated, Any

import dagster as dg
from pydantic import Field

from lake_orch.change_sensors import branch_sensor, external_table, table_change_sensor
from lake_orch.components.references import SensorStatus, described, load_function
from lake_orch.components.scaffolding import scaffolds


def _target(selection: str | None) -> Any:
    return None if selection is None else dg.AssetSelection.from_string(selection)


@dg.scaffold_with(
    scaffolds(
        """
        name: NAME
        assets: [orders]      # their tables are watched
        external: true        # define assets for tables that other systems write
        # target: key:revenue # what to run when one has changed
        """
    )
)
class TableChangeSensorComponent(dg.Component, dg.Model, dg.Resolvable):
    """A sensor for new versions of tables, by any writer.

    It reports observations of their assets, and can request runs.
    """

    name: Annotated[str, described("The sensor's name.")] = "table_changes"
    assets: Annotated[list[dg.ResolvedAssetKey], described("Assets whose tables are at tables/<key>.")] = Field(
        default_factory=list
    )
    tables: Annotated[dict[str, str], described("The paths below the root of tables elsewhere, by asset key.")] = Field(
        default_factory=dict
    )
    external: Annotated[bool, described("Define external assets for the tables in this code location.")] = False
    target: Annotated[
        str | None, described("Asset selection to run for each change, such as key:revenue or group:daily.")
    ] = None
    request: Annotated[
        str | None, described("module:function that returns a RunRequest or None for a TableChange.")
    ] = None
    interval_seconds: Annotated[int, Field(ge=1), described("Seconds between two evaluations of the sensor.")] = 30
    sensor: SensorStatus = "RUNNING"

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the definitions. Raises InvalidDefinition if no table is named or the function does not exist."""
        specs = [external_table(key) for key in self.assets]
        specs += [external_table(dg.AssetKey.from_user_string(key), path) for key, path in self.tables.items()]
        sensor = table_change_sensor(
            specs,
            name=self.name,
            target=_target(self.target),
            request=None if self.request is None else load_function(self.request, context),
            minimum_interval_seconds=self.interval_seconds,
            default_status=dg.DefaultSensorStatus(self.sensor),
        )
        return dg.Definitions(assets=specs if self.external else [], sensors=[sensor])


@dg.scaffold_with(
    scaffolds(
        """
        name: NAME
        prefix: pr-           # which branches are watched
        target: "*"           # what to run on a branch that is new, or has moved
        """
    )
)
class BranchSensorComponent(dg.Component, dg.Model, dg.Resolvable):
    """A sensor for branches that are created, moved or deleted. It can request runs on them."""

    name: Annotated[str, described("The sensor's name.")] = "lake_branches"
    prefix: Annotated[str, described("The prefix of the names of branches to watch.")] = ""
    target: Annotated[str | None, described("Asset selection to run on a branch that is new, or has moved.")] = None
    request: Annotated[
        str | None, described("module:function that returns a RunRequest or None for a BranchChange.")
    ] = None
    interval_seconds: Annotated[int, Field(ge=1), described("Seconds between two evaluations of the sensor.")] = 30
    sensor: SensorStatus = "RUNNING"

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the definitions.

        Raises InvalidDefinition if the sensor would do nothing or the function does not exist.
        """
        sensor = branch_sensor(
            name=self.name,
            target=_target(self.target),
            prefix=self.prefix,
            request=None if self.request is None else load_function(self.request, context),
            minimum_interval_seconds=self.interval_seconds,
            default_status=dg.DefaultSensorStatus(self.sensor),
        )
        return dg.Definitions(sensors=[sensor])
