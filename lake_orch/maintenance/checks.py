"""Asset checks of the health of tables, arrays and pools."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from lake_core.lake.errors import DatasetNotFound
from lake_orch.assets.maintenance import maintenance_of
from lake_orch.dagster.runs.attempt import RunOfStep
from lake_orch.maintenance.target import MaintenanceTarget
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


def check_specs(key: dg.AssetKey, target: MaintenanceTarget, limits: HealthLimits) -> list[dg.AssetCheckSpec]:
    """Declare the health checks of a table or of arrays on an asset."""
    return [
        dg.AssetCheckSpec(check.name, asset=key, description=check.description(limits, target))
        for check in maintenance_of(target.format).checks
    ]


def measure(target: MaintenanceTarget, lake: LakeResource, run: RunOfStep) -> Any | None:
    """Measure a dataset as the run sees it, including writes in its session. Return None if it does not exist yet."""
    try:
        dataset = lake.read(target.path, target.format, run)
    except DatasetNotFound:
        return None
    return maintenance_of(target.format).measure(dataset, target)


def check_results(
    key: dg.AssetKey, target: MaintenanceTarget, health: object, limits: HealthLimits
) -> list[dg.AssetCheckResult]:
    """Return check results for the health of a target. A failed check is a warning, and does not prevent publishing."""
    return [
        dg.AssetCheckResult(
            asset_key=key,
            check_name=check.name,
            passed=finding.passed,
            severity=dg.AssetCheckSeverity.WARN,
            description=None if finding.passed else f"{finding.value:g} (limit {finding.limit:g}): {check.remedy}",
            metadata={"value": finding.value, "limit": finding.limit},
        )
        for check in maintenance_of(target.format).checks
        for finding in [check.find(health, limits)]
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
        yield from check_results(target.asset_key, target, health, limits)

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
