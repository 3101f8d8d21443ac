"""The targets of maintenance, and their settings."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

import dagster as dg
from pydantic import Field

from lake_orch.assets.maintenance import all_maintenance, maintenance_of
from lake_orch.assets.tables.health import SMALL_FILE
from lake_orch.errors import InvalidDefinition
from lake_orch.location import checked_path, table_path

Maintainable: TypeAlias = "str | dg.AssetKey | dg.AssetSpec | dg.AssetsDefinition | MaintenanceTarget"

_OF_ALL = ("path", "asset_key", "format")


class MaintenanceConfig(dg.Config):
    """The configuration of one maintenance run."""

    dry_run: bool = Field(default=False, description="Report what would be done, and change nothing.")
    where: str | None = Field(
        default=None, description="Rearrange only these partitions: Spark SQL on partition columns."
    )


@dataclass(frozen=True, slots=True)
class MaintenanceTarget:
    """A table, arrays or a pool to maintain, with settings of its format."""

    path: str
    asset_key: dg.AssetKey
    zorder_by: Sequence[str] = ()
    target_size: int | None = None
    """The size of a compacted file in bytes. The default is the table's `delta.targetFileSize`, or else 128 MiB."""
    small_file: int = SMALL_FILE
    """The size in bytes below which a file counts as small."""
    min_small_file_ratio: float = 0.2
    """The part of small files from which compaction is due."""
    max_uncheckpointed_commits: int = 10
    """The number of commits from which a checkpoint is due."""
    retention: str | None = None
    """How long outdated data is kept, such as `14 days`.

    By default, a table's properties decide how long its removed files are kept. Snapshots of arrays are kept for 30
    days, and data objects that a pool no longer needs for 8 days.
    """
    txn_retention: str | None = None
    """How long transaction identifiers are kept, such as `30 days`. By default, they are kept forever."""
    spark_above: int = 8 << 30
    """The size of a table in bytes from which Spark rewrites it, if there is a Spark resource."""
    spark_above_files: int = 1_000_000
    """The number of files, removed ones included, from which Spark vacuums a table and writes its checkpoints.

    This needs a Spark resource.
    """
    max_mergeable_manifests: int = 10
    """The number of mergeable manifests from which they are rewritten."""
    max_mergeable_objects: int = 10
    """The number of mergeable data objects of a pool from which they are compacted."""
    format: str = "delta"
    """`delta` for a table, `icechunk` for arrays, `pool` for a pool, or a format that another package installs."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Settings of a format that another package installs."""

    def check(self) -> None:
        """Raise InvalidDefinition for invalid settings, and for those of another format."""
        maintenance = maintenance_of(self.format)
        for setting in fields(self):
            is_own = setting.name in _OF_ALL or setting.name in maintenance.settings
            if not is_own and getattr(self, setting.name) != (setting.default if setting.name != "options" else {}):
                raise InvalidDefinition(
                    f"{setting.name} has no effect on {self.path}, which is of the format {self.format}: leave it out. "
                    f"Its settings are {', '.join(sorted(maintenance.settings)) or 'none'}"
                )
        maintenance.check(self)


def targets_of(
    tables: Sequence[Maintainable],
    arrays: Sequence[Maintainable] = (),
    pools: Sequence[Maintainable] = (),
    **settings: Any,
) -> list[MaintenanceTarget]:
    """Return the tables, arrays and pools of a call, with settings that hold for all of them.

    Raises InvalidDefinition without targets, for a repeated target, and for a retention of arrays that is not an
    interval.
    """
    # A target in `tables` may say itself that it is of another format.
    targets = [target for table in tables for target in _targets(table, settings_of("delta", settings))]
    named: Mapping[str, Sequence[Maintainable]] = {"icechunk": arrays, "pool": pools}
    for format, datasets in named.items():
        own = settings_of(format, settings)
        targets += [replace(target, format=format) for dataset in datasets for target in _targets(dataset, own)]
    check_common(settings, sorted({target.format for target in targets}))
    paths = [target.path for target in targets]
    if not targets:
        raise InvalidDefinition("maintenance needs tables, arrays or pools: name paths, asset keys or assets")
    twice = sorted({path for path in paths if paths.count(path) > 1})
    if twice:
        raise InvalidDefinition(
            f"maintenance has {', '.join(twice)} twice: name each table and pool, and all arrays at a path, once"
        )
    for target in targets:
        target.check()
    return targets


def check_common(settings: Collection[str], formats: Sequence[str]) -> None:
    """Raise InvalidDefinition for a setting of all targets that none of their formats has."""
    for name in settings:
        if formats and name in _setting_names() and not any(name in maintenance_of(each).settings for each in formats):
            raise InvalidDefinition(
                f"{name} has no effect on targets of the format {' or '.join(formats)}: leave it out"
            )


def settings_of(format: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a format, and those that no format has, which are an error of the call."""
    own, known = maintenance_of(format).settings, _setting_names()
    return {name: value for name, value in settings.items() if name in own or name not in known}


def _setting_names() -> frozenset[str]:
    """Return the names of the settings of all formats."""
    return frozenset(name for _, maintenance in all_maintenance() for name in maintenance.settings)


def _targets(dataset: Maintainable, settings: dict[str, Any]) -> list[MaintenanceTarget]:
    if isinstance(dataset, MaintenanceTarget):
        return [dataset]
    if isinstance(dataset, str):
        path = checked_path(dataset)
        return [MaintenanceTarget(path, dg.AssetKey(path.removeprefix("tables/").split("/")), **settings)]
    if isinstance(dataset, dg.AssetKey):
        return [MaintenanceTarget(table_path(dataset.path, {}), dataset, **settings)]
    specs = [dataset] if isinstance(dataset, dg.AssetSpec) else list(dataset.specs)
    return [MaintenanceTarget(table_path(spec.key.path, spec.metadata), spec.key, **settings) for spec in specs]
