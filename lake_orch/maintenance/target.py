"""The targets of maintenance, and their settings."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import dagster as dg
from pydantic import Field

from lake_orch.assets.maintenance import MaintainedDataset, all_maintenance, maintenance_of
from lake_orch.errors import InvalidDefinition
from lake_orch.location import checked_path, table_path

Maintainable: TypeAlias = "str | dg.AssetKey | dg.AssetSpec | dg.AssetsDefinition | MaintenanceTarget"


class MaintenanceConfig(dg.Config):
    """The configuration of one maintenance run."""

    dry_run: bool = Field(default=False, description="Report what would be done, and change nothing.")
    where: str | None = Field(
        default=None, description="Rearrange only these partitions: Spark SQL on partition columns."
    )


@dataclass(frozen=True, slots=True)
class MaintenanceTarget(MaintainedDataset):
    """A dataset to maintain, with settings of its format."""

    asset_key: dg.AssetKey


def targets_of(
    tables: Sequence[Maintainable],
    arrays: Sequence[Maintainable] = (),
    pools: Sequence[Maintainable] = (),
    others: Mapping[str, Sequence[Maintainable]] | None = None,
    **settings: Any,
) -> list[MaintenanceTarget]:
    """Return the datasets of a call, those of other formats by their format, with settings that hold for all of them.

    Raises InvalidDefinition without targets, for a repeated target, and for a retention of arrays that is not an
    interval.
    """
    # A target in `tables` may say itself that it is of another format.
    targets = [target for table in tables for target in _targets(table, settings_of("delta", settings))]
    for format, datasets in [("icechunk", arrays), ("pool", pools), *(others or {}).items()]:
        own = settings_of(format, settings)
        targets += [replace(target, format=format) for dataset in datasets for target in _targets(dataset, own)]
    check_common(settings, sorted({target.format for target in targets}))
    paths = [target.path for target in targets]
    if not targets:
        raise InvalidDefinition("maintenance needs tables, arrays, pools or others: name paths, asset keys or assets")
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
