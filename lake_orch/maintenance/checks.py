"""Asset checks that say what a table needs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from lake_orch.maintenance.health import TableHealth, table_health
from lake_orch.maintenance.target import MaintenanceTarget
from lake_orch.resources import LakeResource


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """Where checks begin to warn."""

    small_file_ratio: float = 0.5
    small_files: int = 10
    """Fewer than these are not worth a warning, whatever the ratio."""
    tombstones: int = 10_000
    log_length: int = 1_000
    uncheckpointed_commits: int = 100
    statistics_coverage: float = 0.95


@dataclass(frozen=True, slots=True)
class _Finding:
    name: str
    passed: bool
    value: float
    limit: float
    advice: str


def _findings(health: TableHealth, limits: HealthLimits) -> Iterator[_Finding]:
    crowded = health.small_files >= limits.small_files and health.small_file_ratio > limits.small_file_ratio
    yield _Finding("small_files", not crowded, round(health.small_file_ratio, 4), limits.small_file_ratio, "run compaction")
    yield _Finding(
        "tombstones", health.tombstones <= limits.tombstones, health.tombstones, limits.tombstones, "shorten the retention of removed files"
    )
    yield _Finding("log_length", health.log_length <= limits.log_length, health.log_length, limits.log_length, "run log_cleanup")
    behind = health.uncheckpointed_commits
    yield _Finding(
        "uncheckpointed_commits", behind <= limits.uncheckpointed_commits, behind, limits.uncheckpointed_commits, "run checkpoint"
    )
    coverage = round(health.statistics_coverage, 4)
    yield _Finding("statistics_coverage", coverage >= limits.statistics_coverage, coverage, limits.statistics_coverage, "run compaction")


NAMES = ("small_files", "tombstones", "log_length", "uncheckpointed_commits", "statistics_coverage")


def lake_table_checks(targets: Sequence[MaintenanceTarget], *, limits: HealthLimits | None = None) -> list[dg.AssetChecksDefinition]:
    """Checks on each table's asset, which warn where something needs doing. They read the log alone."""
    return [_table_checks(target, limits or HealthLimits()) for target in targets]


def _table_checks(target: MaintenanceTarget, limits: HealthLimits) -> dg.AssetChecksDefinition:
    name = "_".join(target.asset_key.path)
    specs = [dg.AssetCheckSpec(check, asset=target.asset_key, description=f"Health of {target.path}") for check in NAMES]

    def check(context: dg.AssetCheckExecutionContext, lake: LakeResource) -> Any:
        # As the run stands: what it has written into its session is not on the branch yet.
        table = lake.read_table(target.path, (context.instance, context.run))
        for found in _findings(table_health(table, small_file=target.small_file), limits):
            yield dg.AssetCheckResult(
                asset_key=target.asset_key,
                check_name=found.name,
                passed=found.passed,
                severity=dg.AssetCheckSeverity.WARN,
                description=None if found.passed else f"{found.value:g} (limit {found.limit:g}): {found.advice}",
                metadata={"value": found.value, "limit": found.limit},
            )

    made: Any = dg.multi_asset_check(specs=specs, name=f"health_of_{name}", can_subset=False)
    checks: dg.AssetChecksDefinition = made(check)
    return checks


def lake_session_check(key: dg.AssetKey, *, most: int = 0) -> dg.AssetChecksDefinition:
    """A check that warns of sessions whose runs failed and that nobody has taken up yet."""

    def stale_sessions(lake: LakeResource) -> dg.AssetCheckResult:
        failed = [record.id for record in lake.open().sessions() if record.state == "failed"]
        return dg.AssetCheckResult(
            passed=len(failed) <= most,
            severity=dg.AssetCheckSeverity.WARN,
            description=f"{', '.join(failed[:10])}: re-execute their runs from failure, or publish them with lake_recover"
            if failed
            else None,
            metadata={"failed_sessions": len(failed)},
        )

    made: Any = dg.asset_check(asset=key, name="stale_sessions")
    check: dg.AssetChecksDefinition = made(stale_sessions)
    return check
