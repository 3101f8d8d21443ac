"""Which table is maintained, and how."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import dagster as dg
from pydantic import Field

from lake_orch.errors import InvalidDefinition
from lake_orch.location import checked_path, table_path
from lake_orch.maintenance.health import SMALL_FILE

Maintainable: TypeAlias = "str | dg.AssetKey | dg.AssetSpec | dg.AssetsDefinition | MaintenanceTarget"


class MaintenanceConfig(dg.Config):
    """How one run goes about it."""

    dry_run: bool = Field(default=False, description="Only tell what would be done.")
    where: str | None = Field(default=None, description="Rearrange only these partitions: Spark SQL on partition columns.")


@dataclass(frozen=True, slots=True)
class MaintenanceTarget:
    """A table, and what is good for it."""

    path: str
    asset_key: dg.AssetKey
    zorder_by: Sequence[str] = ()
    target_size: int | None = None
    """Bytes that a compacted file should have; by default the table's `delta.targetFileSize`, else 128 MiB."""
    small_file: int = SMALL_FILE
    """Bytes below which a file counts as small."""
    min_small_file_ratio: float = 0.2
    """Compaction is due from this part of small files on."""
    max_uncheckpointed_commits: int = 10
    """A checkpoint is due from this many commits on."""
    retention: str | None = None
    """How long removed files stay, such as `14 days`; by default the table's own."""
    txn_retention: str | None = None
    """How long transaction markers are kept, such as `30 days`; by default for ever."""
    spark_above: int = 8 << 30
    """Bytes from which on a table is rearranged by Spark, where there is a Spark resource."""


def targets_of(tables: Sequence[Maintainable], **settings: Any) -> list[MaintenanceTarget]:
    """Return the tables of a call, with settings that hold for all of them. Raises InvalidDefinition for none, and for one named twice."""
    targets = [target for table in tables for target in _targets(table, settings)]
    paths = [target.path for target in targets]
    if not targets:
        raise InvalidDefinition("maintenance needs tables: name paths, asset keys or assets")
    twice = sorted({path for path in paths if paths.count(path) > 1})
    if twice:
        raise InvalidDefinition(f"maintenance is asked for {', '.join(twice)} twice: name each table once")
    return targets


def _targets(table: Maintainable, settings: dict[str, Any]) -> list[MaintenanceTarget]:
    if isinstance(table, MaintenanceTarget):
        return [table]
    if isinstance(table, str):
        path = checked_path(table)
        return [MaintenanceTarget(path, dg.AssetKey(path.removeprefix("tables/").split("/")), **settings)]
    if isinstance(table, dg.AssetKey):
        return [MaintenanceTarget(table_path(table.path, {}), table, **settings)]
    specs = [table] if isinstance(table, dg.AssetSpec) else list(table.specs)
    return [MaintenanceTarget(table_path(spec.key.path, spec.metadata), spec.key, **settings) for spec in specs]
