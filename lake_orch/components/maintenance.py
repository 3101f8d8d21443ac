"""The component for maintenance of chosen datasets."""

# No `from __future__ import annotations` here: components' fields are read as objects.

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import dagster as dg
from pydantic import Field

from lake_orch.components.references import described, load_function
from lake_orch.components.scaffolding import scaffolds
from lake_orch.errors import InvalidDefinition
from lake_orch.location import TABLES
from lake_orch.maintenance import HealthLimits, MaintenanceTarget, lake_maintenance
from lake_orch.maintenance.definitions import POOL, SPARK_ABOVE_COMMITS
from lake_orch.maintenance.target import check_common, settings_of


class MaintenanceSettings(dg.Model, dg.Resolvable):
    """The settings for a dataset. The defaults are the table's properties, then Delta's defaults."""

    zorder_by: Annotated[list[str] | None, described("The columns by which the task zorder sorts rows.")] = None
    target_size: Annotated[int | None, Field(gt=0), described("The size of a compacted file in bytes.")] = None
    small_file: Annotated[
        int | None, Field(gt=0), described("The size in bytes below which a file counts as small.")
    ] = None
    min_small_file_ratio: Annotated[
        float | None, Field(ge=0, le=1), described("The part of small files from which compaction is due.")
    ] = None
    max_uncheckpointed_commits: Annotated[
        int | None, Field(gt=0), described("The number of commits from which a checkpoint is due.")
    ] = None
    retention: Annotated[
        str | None, described("How long removed files, or snapshots of arrays, are kept, such as 14 days.")
    ] = None
    txn_retention: Annotated[str | None, described("How long transaction identifiers are kept, such as 30 days.")] = (
        None
    )
    spark_above: Annotated[
        int | None, Field(ge=0), described("The size of a table in bytes from which Spark rearranges it.")
    ] = None
    spark_above_files: Annotated[
        int | None,
        Field(ge=0),
        described("The number of a table's files, removed ones included, from which Spark vacuums and checkpoints it."),
    ] = None
    max_mergeable_manifests: Annotated[
        int | None, Field(gt=0), described("The number of mergeable manifests of arrays from which a rewrite is due.")
    ] = None

    max_mergeable_objects: Annotated[
        int | None,
        Field(gt=1),
        described("The number of mergeable data objects of a pool from which compaction is due."),
    ] = None

    options: Annotated[
        dict[str, Any] | None, described("Settings of a format that another package installs, by name.")
    ] = None

    def given(self) -> dict[str, Any]:
        """Return the settings that have a value."""
        return {name: value for name, value in self if value is not None}


_Targets: TypeAlias = dict[str, MaintenanceSettings | None]


def _resolve_targets(context: dg.ResolutionContext, value: Any) -> _Targets:
    """Read the settings by key. A list stands for keys without settings."""
    if not isinstance(value, Mapping):
        return dict.fromkeys(value)
    return {
        key: None if settings is None else MaintenanceSettings.resolve_from_model(context.at_path(key), settings)
        for key, settings in value.items()
    }


def _resolve_others(context: dg.ResolutionContext, value: Any) -> dict[str, _Targets]:
    """Read the settings by format and key."""
    return {format: _resolve_targets(context.at_path(format), targets) for format, targets in value.items()}


_settings: Any = MaintenanceSettings.model()
_targets_model: Any = dict[str, _settings | None] | list[str]


def _targets(description: str) -> dg.Resolver:
    return dg.Resolver(_resolve_targets, model_field_type=_targets_model, description=description)


class CheckLimits(dg.Model, dg.Resolvable):
    """The limits from which the health checks warn."""

    small_file_ratio: Annotated[float | None, described("The part of small files.")] = None
    small_files: Annotated[int | None, described("The number of small files below which there is no warning.")] = None
    tombstones: Annotated[int | None, described("Removed files that the log still lists.")] = None
    log_length: Annotated[int | None, described("Files of the log.")] = None
    uncheckpointed_commits: Annotated[int | None, described("Commits since the last checkpoint.")] = None
    statistics_coverage: Annotated[float | None, described("The least part of files that have statistics.")] = None
    mergeable_manifests: Annotated[int | None, described("Mergeable manifests of arrays.")] = None
    mergeable_objects: Annotated[int | None, described("Mergeable data objects of a pool.")] = None
    snapshots: Annotated[int | None, described("Snapshots that a repository outside of a lake stores.")] = None

    def limits(self) -> HealthLimits:
        """Return the limits for the checks."""
        return HealthLimits(**{name: value for name, value in self if value is not None})


@dg.scaffold_with(
    scaffolds(
        """
        tables:               # by asset key; null for settings that hold for all
          orders:
        tasks:                # each with a cron schedule, or null to materialize it by hand
          compaction: "0 3 * * *"
          checkpoint: "0 * * * *"
          vacuum: "0 4 * * 0"
          garbage_collection: "0 5 * * 0"   # deletes in a lake, where vacuum only ends retention; leave out without one
          session_reaper: "*/30 * * * *"
        """
    )
)
class MaintenanceComponent(dg.Component, dg.Model, dg.Resolvable):
    """Assets that maintain datasets, one for each task, with schedules and health checks."""

    tables: Annotated[
        dict[str, MaintenanceSettings | None],
        _targets("Assets whose tables are maintained, by key: a list, or a mapping to settings of their own."),
    ] = Field(default_factory=dict)
    arrays: Annotated[
        dict[str, MaintenanceSettings | None],
        _targets("Assets whose arrays are maintained, by key: a list, or a mapping to settings of their own."),
    ] = Field(default_factory=dict)
    pools: Annotated[
        dict[str, MaintenanceSettings | None],
        _targets("Assets whose pools are maintained, by key: a list, or a mapping to settings of their own."),
    ] = Field(default_factory=dict)
    others: Annotated[
        dict[str, dict[str, MaintenanceSettings | None]],
        dg.Resolver(
            _resolve_others,
            model_field_type=dict[str, _targets_model],
            description="Assets of formats that other packages install, by format, then by key as above.",
        ),
    ] = Field(default_factory=dict)
    paths: Annotated[dict[str, str], described("The paths of datasets that are not at tables/<key>, by asset key.")] = (
        Field(default_factory=dict)
    )
    tasks: Annotated[
        dict[str, str | None] | list[str] | None,
        described(
            "Of compaction, zorder, checkpoint, vacuum, log_cleanup, txn_expiry for tables, manifest_rewrite, "
            "snapshot_expiry for arrays, pool_compaction, pool_vacuum for pools, health, garbage_collection, "
            "session_reaper; as a mapping each with its own cron schedule."
        ),
    ] = None
    schedule: Annotated[str | None, described("The cron schedule of tasks that have none of their own.")] = None
    automation: Annotated[bool, described("Let automation conditions follow the schedules.")] = False
    timezone: Annotated[str, described("The schedules' time zone.")] = "UTC"
    settings: Annotated[MaintenanceSettings | None, described("Settings for all tables, arrays and pools.")] = None
    checks: Annotated[bool, described("Add the task health, whose checks say what tables and arrays need.")] = True
    limits: Annotated[CheckLimits | None, described("The limits from which checks warn.")] = None
    key_prefix: Annotated[str, described("The assets' keys are <prefix>/<task>.")] = "maintenance"
    group_name: Annotated[str, described("The assets' group.")] = "maintenance"
    spark: Annotated[
        bool, described("Rearrange and vacuum large tables, and collect large lakes, with the resource spark.")
    ] = False
    spark_above_commits: Annotated[
        int, Field(ge=0), described("The number of retained commits of a lake from which Spark collects garbage.")
    ] = SPARK_ABOVE_COMMITS
    pool: Annotated[str | None, described("The pool of the assets that rearrange tables and arrays.")] = POOL
    alert: Annotated[
        str | None, described("module:function, called with a SessionAlert by the task session_reaper.")
    ] = None

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the definitions.

        Raises InvalidDefinition if there is nothing to maintain, a task is unknown, or the function does not exist.
        """
        named = {"delta": self.tables, "icechunk": self.arrays, "pool": self.pools, **self.others}
        unknown = sorted(self.paths.keys() - {key for datasets in named.values() for key in datasets})
        if unknown:
            raise InvalidDefinition(
                f"paths has {unknown[0]!r}, which is not among the tables, arrays and pools, nor the others: add it "
                "to one of them"
            )
        common = self.settings.given() if self.settings else {}
        check_common(common, [format for format, datasets in named.items() if datasets])
        checks: bool | HealthLimits = self.checks
        if self.checks and self.limits is not None:
            checks = self.limits.limits()
        return lake_maintenance(
            others={format: self._targets_of(format, datasets, common) for format, datasets in named.items()},
            tasks=self.tasks,
            schedule=self.schedule,
            automation=self.automation,
            timezone=self.timezone,
            key_prefix=self.key_prefix.split("/"),
            group_name=self.group_name,
            checks=checks,
            spark=self.spark,
            spark_above_commits=self.spark_above_commits,
            pool=self.pool,
            alert=None if self.alert is None else load_function(self.alert, context),
        )

    def _targets_of(self, format: str, datasets: _Targets, common: Mapping[str, Any]) -> list[MaintenanceTarget]:
        return [
            MaintenanceTarget(
                self.paths.get(key, f"{TABLES}/{key}"),
                dg.AssetKey.from_user_string(key),
                **{**settings_of(format, common), **(settings.given() if settings else {})},
            )
            for key, settings in datasets.items()
        ]
