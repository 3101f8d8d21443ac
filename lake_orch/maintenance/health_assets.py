"""The task `health`: one step that measures all tables, arrays and pools, with a separate asset and checks for each."""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from lake_orch.assets.maintenance import maintenance_of
from lake_orch.maintenance.checks import HealthLimits, check_results, check_specs, measure
from lake_orch.maintenance.target import MaintenanceTarget
from lake_orch.resources import LakeResource
from lake_pipes.metadata import PATH

HEALTH = "health"


def health_assets(
    targets: Sequence[MaintenanceTarget], prefix: Sequence[str], limits: HealthLimits, **options: Any
) -> dg.AssetsDefinition:
    """Make an asset `<prefix>/health/<key>` for each table, arrays or pool, with checks that say what is due.

    The checks are not on the targets' assets, because Dagster would run them with every run of those. `options` are
    those of each asset's spec.
    """
    by_key = {dg.AssetKey([*prefix, HEALTH, *target.asset_key.path]): target for target in targets}

    def measure_all(context: dg.AssetExecutionContext, lake: LakeResource) -> Iterator[Any]:
        # The UI can run a check without its asset, too.
        for key in sorted(
            {*context.selected_asset_keys, *(check.asset_key for check in context.selected_asset_check_keys)}
        ):
            target = by_key[key]
            health = measure(target, lake, (context.instance, context.run))
            if health is None:
                context.log.warning(f"there is nothing at {target.path} yet: nothing is measured")
                continue
            selected = {check.name for check in context.selected_asset_check_keys if check.asset_key == key}
            results = [result for result in check_results(key, target, health, limits) if result.check_name in selected]
            if key in context.selected_asset_keys:
                yield dg.MaterializeResult(asset_key=key, metadata=_metadata(target, health), check_results=results)
            else:
                yield from results

    asset: Any = dg.multi_asset(
        name="_".join([*prefix, HEALTH]),
        specs=[
            dg.AssetSpec(
                key,
                description=maintenance_of(target.format).description.format(path=target.path),
                metadata=_link(target),
                kinds={maintenance_of(target.format).kind},
                skippable=True,
                **options,
            )
            for key, target in by_key.items()
        ],
        check_specs=[spec for key, target in by_key.items() for spec in check_specs(key, target, limits)],
        can_subset=True,
    )
    definition: dg.AssetsDefinition = asset(measure_all)
    return definition


def _link(target: MaintenanceTarget) -> dict[str, Any]:
    """Return metadata that links to the measured target."""
    return {maintenance_of(target.format).link: dg.MetadataValue.asset(target.asset_key)}


def _metadata(target: MaintenanceTarget, health: object) -> dict[str, Any]:
    return {**_link(target), PATH: target.path, **maintenance_of(target.format).metadata(health)}
