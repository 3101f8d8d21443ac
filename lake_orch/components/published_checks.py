"""The component of checks of the published state: health, and freshness."""

# No `from __future__ import annotations` here: components' fields are read as objects.

from datetime import timedelta
from typing import Annotated, Literal

import dagster as dg
from pydantic import Field

from lake_orch.components.references import described
from lake_orch.components.scaffolding import scaffolds
from lake_orch.published_checks import lake_freshness_checks, lake_published_checks


@dg.scaffold_with(
    scaffolds(
        """
        assets: [NAME]
        published: true        # fails while the last materialization is not published
        # hours: 26            # fails if the last publish is older
        # deadline_cron: "0 9 * * *"
        """
    )
)
class PublishedChecksComponent(dg.Component, dg.Model, dg.Resolvable):
    """Asset checks of what is published, unlike Dagster's own, which follow materializations."""

    assets: Annotated[list[dg.ResolvedAssetKey], described("The assets.")]
    published: Annotated[bool, described("Check that the last materialization is published on the lake's branch.")] = (
        True
    )
    hours: Annotated[
        float | None,
        Field(gt=0),
        described("Check that the last publish is at most so many hours old."),
    ] = None
    deadline_cron: Annotated[
        str | None, described("The deadlines, of which the last one counts; without it, the deadline is now.")
    ] = None
    timezone: Annotated[str, described("The time zone of deadline_cron.")] = "UTC"
    severity: Annotated[Literal["ERROR", "WARN"], described("The severity of failures.")] = "WARN"
    sensor: Annotated[
        Literal["RUNNING", "STOPPED"] | None,
        described("Define a sensor that evaluates the check of freshness when it is due, with this default status."),
    ] = None

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the definitions. Raises InvalidDefinition for invalid settings."""
        severity = dg.AssetCheckSeverity(self.severity)
        checks = list(lake_published_checks(self.assets, severity=severity)) if self.published else []
        if self.hours is None:
            return dg.Definitions(asset_checks=checks)
        freshness = lake_freshness_checks(
            self.assets,
            lower_bound_delta=timedelta(hours=self.hours),
            deadline_cron=self.deadline_cron,
            timezone=self.timezone,
            severity=severity,
        )
        sensors = []
        if self.sensor is not None:
            sensors.append(
                dg.build_sensor_for_freshness_checks(
                    freshness_checks=freshness, default_status=dg.DefaultSensorStatus(self.sensor)
                )
            )
        return dg.Definitions(asset_checks=[*checks, *freshness], sensors=sensors)
