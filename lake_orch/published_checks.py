"""Asset checks of the published state: is the last materialization published, and is the last publish recent?

Dagster's own freshness checks, freshness policies and asset health follow materializations. In a run with a session, an
asset is materialized before the run is published, and even if it never is.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

import dagster as dg

from lake_orch._dagster import is_valid_cron_string
from lake_orch.dagster.runs.published_state import (
    FRESHNESS_CHECK,
    FRESHNESS_PARAMS,
    PUBLISHED_CHECK,
    Freshness,
    PublishedCheck,
)
from lake_orch.dagster.runs.run_session import session_of
from lake_orch.dagster.runs.visibility import LakeBranch
from lake_orch.errors import InvalidDefinition
from lake_orch.resources import LakeResource

CheckedAsset: TypeAlias = dg.AssetsDefinition | dg.SourceAsset | dg.AssetSpec | dg.AssetKey | str | Sequence[str]


def lake_published_checks(
    assets: Sequence[CheckedAsset], *, severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN
) -> Sequence[dg.AssetChecksDefinition]:
    """Make checks `published`, which fail while the last materialization of an asset is not published.

    It is staged in a session of a run that failed, or is published on a branch other than that of the resource `lake`,
    and has not reached it. Of a partitioned asset, the last materialization of each partition counts. The result names
    the session and how to go on.

    A check runs with its asset, before the run is published, and then warns. It is evaluated again when the session is
    published, and when it fails. After a merge, run the checks.

    Args:
        assets: The assets.
        severity: The severity of failed checks.

    Returns:
        One definition for all checks. It needs a resource `lake`.

    Raises:
        InvalidDefinition: An asset is named twice.
    """
    description = "Whether the last materialization is published on the lake's branch."
    return [_checks(assets, PUBLISHED_CHECK, description, severity, None)]


def lake_freshness_checks(
    assets: Sequence[CheckedAsset],
    *,
    lower_bound_delta: timedelta,
    deadline_cron: str | None = None,
    timezone: str = "UTC",
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN,
) -> Sequence[dg.AssetChecksDefinition]:
    """Make checks `published_freshness`, which fail if the last publish of an asset is too old.

    They are what `dg.build_last_update_freshness_checks` makes, but a materialization that is only staged, or published
    on another branch than that of the resource `lake`, does not count. The result has the time and the commit of the
    last publish. If newer rows are only staged, it names the session and how to go on. Of a partitioned asset, the last
    publish of any partition counts, as it does there. `dg.build_sensor_for_freshness_checks` takes these checks.

    Args:
        assets: The assets.
        lower_bound_delta: How long before the deadline the last publish may be.
        deadline_cron: The deadlines, of which the last one counts. Without it, the deadline is now.
        timezone: The time zone of `deadline_cron`.
        severity: The severity of failed checks. While the check's own run holds newer rows, they only warn.

    Returns:
        One definition for all checks. It needs a resource `lake`.

    Raises:
        InvalidDefinition: An asset is named twice, or the cron schedule or the time zone is invalid.
    """
    if deadline_cron is not None and not is_valid_cron_string(deadline_cron):
        raise InvalidDefinition(f"deadline_cron={deadline_cron!r} is no cron schedule: write one as '0 9 * * *'")
    try:
        ZoneInfo(timezone)
    except (KeyError, ValueError):
        raise InvalidDefinition(f"timezone={timezone!r} is no time zone: write one as 'Europe/Berlin'") from None
    freshness = Freshness(lower_bound_delta, deadline_cron, timezone)
    description = "Whether the last publish on the lake's branch is recent enough."
    return [_checks(assets, FRESHNESS_CHECK, description, severity, freshness)]


def _checks(
    assets: Sequence[CheckedAsset],
    name: str,
    description: str,
    severity: dg.AssetCheckSeverity,
    freshness: Freshness | None,
) -> dg.AssetChecksDefinition:
    keys = [key for asset in assets for key in _keys(asset)]
    if repeated := sorted({key.to_user_string() for key in keys if keys.count(key) > 1}):
        raise InvalidDefinition(f"assets are named twice: {', '.join(repeated)}. Name each once")

    def evaluate(context: dg.AssetCheckExecutionContext, lake: LakeResource) -> Iterator[dg.AssetCheckResult]:
        session = session_of(context.instance, context.run.run_id)
        branch = LakeBranch(lake.branch, lake.open)
        for key in sorted(check.asset_key for check in context.selected_asset_check_keys):
            check = PublishedCheck(context.instance, key, branch, severity, freshness)
            evaluation = check.evaluate(None if session is None else session.id)
            yield dg.AssetCheckResult(
                asset_key=key,
                check_name=name,
                passed=evaluation.passed,
                severity=evaluation.severity,
                description=evaluation.description,
                metadata=evaluation.metadata,
            )

    params = {} if freshness is None else {FRESHNESS_PARAMS: dg.MetadataValue.json(freshness.params())}
    decorator: Any = dg.multi_asset_check(
        name=f"{name}_{sha256(repr(sorted(keys)).encode()).hexdigest()[:8]}",
        specs=[dg.AssetCheckSpec(name, asset=key, description=description, metadata=params) for key in keys],
        can_subset=True,
    )
    checks: dg.AssetChecksDefinition = decorator(evaluate)
    return checks


def _keys(asset: CheckedAsset) -> Sequence[dg.AssetKey]:
    if isinstance(asset, dg.AssetsDefinition):
        return sorted(asset.keys)
    if isinstance(asset, dg.SourceAsset | dg.AssetSpec):
        return [asset.key]
    return [dg.AssetKey.from_coercible(asset)]
