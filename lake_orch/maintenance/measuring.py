"""The task `health`: one step that measures all tables, and judges each on an asset of its own."""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from lake_core.delta.errors import TableNotFound
from lake_orch.maintenance.checks import HealthLimits, check_results, check_specs
from lake_orch.maintenance.health import TableHealth, table_health
from lake_orch.maintenance.target import MaintenanceTarget
from lake_orch.resources import LakeResource
from lake_orch.tags import VERSION
from lake_pipes.metadata import PATH

HEALTH = "health"


def health_assets(targets: Sequence[MaintenanceTarget], prefix: Sequence[str], limits: HealthLimits, **options: Any) -> dg.AssetsDefinition:
    """Make an asset `<prefix>/health/<table>` for each table, with checks that say what the table needs. `options`: of each asset's spec.

    They are no checks of the tables' own assets: Dagster would run those with every run of a table.
    """
    by_key = {dg.AssetKey([*prefix, HEALTH, *target.asset_key.path]): target for target in targets}

    def measure(context: dg.AssetExecutionContext, lake: LakeResource) -> Iterator[Any]:
        # The UI can run a check without its asset.
        for key in sorted({*context.selected_asset_keys, *(check.asset_key for check in context.selected_asset_check_keys)}):
            target = by_key[key]
            try:
                table = lake.read_table(target.path, (context.instance, context.run))
            except TableNotFound:
                context.log.warning(f"there is no table at {target.path} yet: nothing is measured")
                continue
            health = table_health(table, small_file=target.small_file)
            selected = {check.name for check in context.selected_asset_check_keys if check.asset_key == key}
            results = [result for result in check_results(key, health, limits) if result.check_name in selected]
            if key in context.selected_asset_keys:
                yield dg.MaterializeResult(asset_key=key, metadata=_metadata(target, health), check_results=results)
            else:
                yield from results

    asset: Any = dg.multi_asset(
        name="_".join([*prefix, HEALTH]),
        specs=[
            dg.AssetSpec(
                key,
                description=f"What the table {target.path} needs, measured from its log alone.",
                metadata={"lake/table": dg.MetadataValue.asset(target.asset_key)},
                kinds={"deltalake"},
                skippable=True,
                **options,
            )
            for key, target in by_key.items()
        ],
        check_specs=[spec for key, target in by_key.items() for spec in check_specs(key, target, limits)],
        can_subset=True,
    )
    definition: dg.AssetsDefinition = asset(measure)
    return definition


def _metadata(target: MaintenanceTarget, health: TableHealth) -> dict[str, Any]:
    return {
        "lake/table": dg.MetadataValue.asset(target.asset_key),
        PATH: target.path,
        VERSION: health.version,
        "dagster/size_bytes": health.bytes,
        "lake/num_files": health.files,
        "lake/small_files": health.small_files,
        "lake/small_file_ratio": health.small_file_ratio,
        "lake/tombstones": health.tombstones,
        "lake/log_length": health.log_length,
        "lake/uncheckpointed_commits": health.uncheckpointed_commits,
        "lake/statistics_coverage": health.statistics_coverage,
    }
