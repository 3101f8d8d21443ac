"""Asset checks of the health of tables, arrays and pools."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from lake_core.delta.errors import TableNotFound
from lake_core.pool.errors import NoSuchPool
from lake_core.readable import readable_bytes
from lake_orch.dagster.runs.attempt import RunOfStep
from lake_orch.maintenance.health import (
    ArrayHealth,
    Health,
    PoolHealth,
    TableHealth,
    array_health,
    pool_health,
    table_health,
)
from lake_orch.maintenance.target import SMALL_FILE, MaintenanceTarget, TargetFormat
from lake_orch.resources import LakeResource


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """The limits from which checks warn."""

    small_file_ratio: float = 0.5
    small_files: int = 10
    """The number of small files below which there is no warning, whatever their ratio."""
    tombstones: int = 10_000
    log_length: int = 1_000
    uncheckpointed_commits: int = 100
    statistics_coverage: float = 0.95
    mergeable_manifests: int = 50
    snapshots: int = 10_000
    mergeable_objects: int = 100


@dataclass(frozen=True, slots=True)
class _Finding:
    name: str
    passed: bool
    value: float
    limit: float


_REMEDY = {
    "small_files": "run compaction",
    "tombstones": "set a shorter retention of removed files",
    "log_length": "run log_cleanup",
    "uncheckpointed_commits": "run checkpoint",
    "statistics_coverage": "run compaction",
    "mergeable_manifests": "run manifest_rewrite",
    "mergeable_objects": "run pool_compaction",
    "snapshots": "run snapshot_expiry, then garbage_collection",
}
NAMES: Mapping[TargetFormat, Sequence[str]] = {
    "delta": ("small_files", "tombstones", "log_length", "uncheckpointed_commits", "statistics_coverage"),
    "icechunk": ("mergeable_manifests", "snapshots"),
    "pool": ("mergeable_objects",),
}


def description_of(name: str, limits: HealthLimits, small_file: int = SMALL_FILE) -> str:
    """Return the description of a check: what it measures, its limit, and the remedy."""
    measure = {
        "small_files": f"The share of data files below {readable_bytes(small_file)} that could be merged. "
        f"Warns above {limits.small_file_ratio:.0%} of at least {limits.small_files} files",
        "tombstones": f"Removed files that the log still lists. Warns above {limits.tombstones:,}",
        "log_length": f"Commits in the log. Warns above {limits.log_length:,}",
        "uncheckpointed_commits": "Commits since the last checkpoint, which every reader replays. "
        f"Warns above {limits.uncheckpointed_commits:,}",
        "statistics_coverage": "The share of data files with statistics, by which filters skip files. "
        f"Warns below {limits.statistics_coverage:.0%}",
        "mergeable_manifests": "Manifests that could be merged with others. "
        f"Warns above {limits.mergeable_manifests:,}",
        "mergeable_objects": "Data objects that overlap, or small neighbors, which could be merged. "
        f"Warns above {limits.mergeable_objects:,}",
        "snapshots": "Snapshots that are stored; none are counted in a lake, which keeps its history. "
        f"Warns above {limits.snapshots:,}",
    }[name]
    return f"{measure}; {_REMEDY[name]}."


def _findings(health: Health, limits: HealthLimits) -> Iterator[_Finding]:
    if isinstance(health, PoolHealth):
        mergeable = health.mergeable_objects
        return iter(
            [_Finding("mergeable_objects", mergeable <= limits.mergeable_objects, mergeable, limits.mergeable_objects)]
        )
    return (
        _findings_of_arrays(health, limits) if isinstance(health, ArrayHealth) else _findings_of_table(health, limits)
    )


def _findings_of_arrays(health: ArrayHealth, limits: HealthLimits) -> Iterator[_Finding]:
    mergeable, snapshots = health.mergeable_manifests, health.snapshots or 0
    yield _Finding(
        "mergeable_manifests", mergeable <= limits.mergeable_manifests, mergeable, limits.mergeable_manifests
    )
    yield _Finding("snapshots", snapshots <= limits.snapshots, snapshots, limits.snapshots)


def _findings_of_table(health: TableHealth, limits: HealthLimits) -> Iterator[_Finding]:
    crowded = health.small_files >= limits.small_files and health.small_file_ratio > limits.small_file_ratio
    yield _Finding("small_files", not crowded, round(health.small_file_ratio, 4), limits.small_file_ratio)
    yield _Finding("tombstones", health.tombstones <= limits.tombstones, health.tombstones, limits.tombstones)
    yield _Finding("log_length", health.log_length <= limits.log_length, health.log_length, limits.log_length)
    behind = health.uncheckpointed_commits
    yield _Finding(
        "uncheckpointed_commits", behind <= limits.uncheckpointed_commits, behind, limits.uncheckpointed_commits
    )
    coverage = round(health.statistics_coverage, 4)
    yield _Finding("statistics_coverage", coverage >= limits.statistics_coverage, coverage, limits.statistics_coverage)


def check_specs(key: dg.AssetKey, target: MaintenanceTarget, limits: HealthLimits) -> list[dg.AssetCheckSpec]:
    """Declare the health checks of a table or of arrays on an asset."""
    return [
        dg.AssetCheckSpec(name, asset=key, description=description_of(name, limits, target.small_file))
        for name in NAMES[target.format]
    ]


def measure(target: MaintenanceTarget, lake: LakeResource, run: RunOfStep) -> Health | None:
    """Measure a table, arrays or a pool as the run sees them, including writes in its session.

    Return None if they do not exist yet.
    """
    if target.format == "delta":
        try:
            return table_health(lake.read_table(target.path, run), small_file=target.small_file)
        except TableNotFound:
            return None
    if target.format == "pool":
        try:
            return pool_health(lake.read_pool(target.path, run))
        except NoSuchPool:
            return None
    from lake_core.icechunk.errors import RepositoryNotFound  # needs the extra `arrays`

    try:
        return array_health(lake.read_repository(target.path, run))
    except RepositoryNotFound:
        return None


def check_results(key: dg.AssetKey, health: Health, limits: HealthLimits) -> list[dg.AssetCheckResult]:
    """Return check results for the health of a target. A failed check is a warning, and does not prevent publishing."""
    return [
        dg.AssetCheckResult(
            asset_key=key,
            check_name=finding.name,
            passed=finding.passed,
            severity=dg.AssetCheckSeverity.WARN,
            description=None
            if finding.passed
            else f"{finding.value:g} (limit {finding.limit:g}): {_REMEDY[finding.name]}",
            metadata={"value": finding.value, "limit": finding.limit},
        )
        for finding in _findings(health, limits)
    ]


def lake_table_checks(
    targets: Sequence[MaintenanceTarget], *, limits: HealthLimits | None = None
) -> list[dg.AssetChecksDefinition]:
    """Make health checks on the assets of the targets. They read no data, and warn if maintenance is due.

    Dagster runs an asset's checks with every run of the asset, each table's in a step of their own. The task `health`
    of `lake_maintenance` measures all tables in one step, on its own schedule.
    """
    return [_table_checks(target, limits or HealthLimits()) for target in targets]


def _table_checks(target: MaintenanceTarget, limits: HealthLimits) -> dg.AssetChecksDefinition:
    name = "_".join(target.asset_key.path)

    def check(context: dg.AssetCheckExecutionContext, lake: LakeResource) -> Any:
        health = measure(target, lake, (context.instance, context.run))
        if health is None:
            raise dg.Failure(f"there is nothing to measure at {target.path} yet: materialize the asset first")
        yield from check_results(target.asset_key, health, limits)

    specs = check_specs(target.asset_key, target, limits)
    decorator: Any = dg.multi_asset_check(specs=specs, name=f"health_of_{name}", can_subset=False)
    checks: dg.AssetChecksDefinition = decorator(check)
    return checks


def lake_session_check(key: dg.AssetKey, *, most: int = 0) -> dg.AssetChecksDefinition:
    """Make a check that warns of sessions of failed runs that no run has resumed."""

    def stale_sessions(lake: LakeResource) -> dg.AssetCheckResult:
        sessions = lake.open().list_sessions() if lake.is_lake() else ()
        failed = [record.id for record in sessions if record.state == "failed"]
        return dg.AssetCheckResult(
            passed=len(failed) <= most,
            severity=dg.AssetCheckSeverity.WARN,
            description=f"{', '.join(failed[:10])}: re-execute their runs from failure, "
            "or publish them with lake_recover"
            if failed
            else None,
            metadata={"failed_sessions": len(failed)},
        )

    description = f"Sessions of failed runs that no run has resumed. Warns above {most}; re-execute their runs."
    decorator: Any = dg.asset_check(asset=key, name="stale_sessions", description=description)
    check: dg.AssetChecksDefinition = decorator(stale_sessions)
    return check
