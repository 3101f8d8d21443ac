"""The task `health`: one step that measures all tables, arrays and pools, with a separate asset and checks for each."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from lake_orch.assets.arrays.settings import SNAPSHOT
from lake_orch.assets.pools.settings import POOL_COMMIT
from lake_orch.maintenance.checks import HealthLimits, check_results, check_specs, measure
from lake_orch.maintenance.health import ArrayHealth, Health, PoolHealth, TableHealth
from lake_orch.maintenance.target import KIND, MaintenanceTarget, TargetFormat
from lake_orch.resources import LakeResource
from lake_orch.tags import VERSION
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
                description=_DESCRIPTION[target.format].format(path=target.path),
                metadata=_subject(target),
                kinds={KIND[target.format]},
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


_DESCRIPTION: Mapping[TargetFormat, str] = {
    "delta": "What the table {path} needs, measured only from its log.",
    "icechunk": "What the arrays {path} need, measured from their newest snapshot.",
    "pool": "What the pool {path} needs, measured only from its last commit.",
}


_SUBJECT: Mapping[TargetFormat, str] = {"delta": "lake/table", "icechunk": "lake/arrays", "pool": "lake/pool"}


def _subject(target: MaintenanceTarget) -> dict[str, Any]:
    """Return metadata that links to the measured target."""
    return {_SUBJECT[target.format]: dg.MetadataValue.asset(target.asset_key)}


def _metadata(target: MaintenanceTarget, health: Health) -> dict[str, Any]:
    if isinstance(health, PoolHealth):
        measured = _measured_pool(health)
    else:
        measured = _measured_arrays(health) if isinstance(health, ArrayHealth) else _measured_table(health)
    return {**_subject(target), PATH: target.path, **measured}


def _measured_arrays(health: ArrayHealth) -> dict[str, Any]:
    return {
        SNAPSHOT: health.snapshot,
        "lake/num_chunks": health.chunks,
        "lake/manifests": health.manifests,
        "lake/mergeable_manifests": health.mergeable_manifests,
        **({} if health.snapshots is None else {"lake/snapshots": health.snapshots}),
    }


def _measured_pool(health: PoolHealth) -> dict[str, Any]:
    return {
        POOL_COMMIT: health.commit,
        "dagster/row_count": health.records,
        "dagster/size_bytes": health.bytes,
        "lake/num_files": health.objects,
        "lake/mergeable_objects": health.mergeable_objects,
    }


def _measured_table(health: TableHealth) -> dict[str, Any]:
    return {
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
