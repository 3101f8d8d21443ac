"""The component of checks on what is published: whether it is, and whether it is recent."""

# No `from __future__ import annotations` here: components' fields are read as objects.

from datetime import timedelta
from typing import Annotated, Literal

import dagster as dg
from pydantic import Field, model_validator

from lake_core.delta.errors import InvalidProperty
from lake_core.delta.properties import duration_ms
from lake_orch.components.references import described
from lake_orch.components.scaffolding import scaffolds
from lake_orch.errors import InvalidDefinition
from lake_orch.published_checks import lake_freshness_checks, lake_published_checks


@dg.scaffold_with(
    scaffolds(
        """
        assets: [orders]
        freshness: 2h                 # how old the last publish may be
        # deadline_cron: "0 9 * * *"  # by when; without it, now
        """
    )
)
class PublishedChecksComponent(dg.Component, dg.Model, dg.Resolvable):
    """Asset checks of the published state. What a failed run has only staged does not count."""

    assets: Annotated[list[dg.ResolvedAssetKey], Field(min_length=1), described("The assets.")]
    published: Annotated[bool, described("Whether the last materialization must be published.")] = True
    freshness: Annotated[
        str | None, described("How long before the deadline the last publish may be, such as 2h or '7 days'.")
    ] = None
    deadline_cron: Annotated[str | None, described("The deadlines as a cron schedule; without it, now.")] = None
    timezone: Annotated[str, described("The time zone of deadline_cron.")] = "UTC"
    severity: Annotated[Literal["WARN", "ERROR"], described("The severity of failed checks.")] = "WARN"

    @model_validator(mode="after")
    def _check_deadline(self) -> "PublishedChecksComponent":
        if self.freshness is None and self.deadline_cron is not None:
            raise ValueError("deadline_cron has no effect without freshness: say how old the last publish may be")
        if self.freshness is None and not self.published:
            raise ValueError("this has no checks: give it published or freshness")
        return self

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the definitions. Raises InvalidDefinition for an invalid length of time, cron schedule or zone."""
        severity = dg.AssetCheckSeverity(self.severity)
        checks = list(lake_published_checks(self.assets, severity=severity)) if self.published else []
        if self.freshness is not None:
            try:
                bound = timedelta(milliseconds=duration_ms(self.freshness, "freshness"))
            except InvalidProperty as error:
                raise InvalidDefinition(str(error)) from None
            checks += lake_freshness_checks(
                self.assets,
                lower_bound_delta=bound,
                deadline_cron=self.deadline_cron,
                timezone=self.timezone,
                severity=severity,
            )
        return dg.Definitions(asset_checks=checks)
