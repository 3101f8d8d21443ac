"""An asset and a sensor that keep a catalog of tables up to date with main, or with all branches."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets and sensors as objects.

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from lake_core.catalog import Catalog, Synced, open_catalog, sync_branch, sync_branches
from lake_core.catalog.errors import FINAL
from lake_orch.errors import NotALake
from lake_orch.resources import LakeResource
from lake_orch.tags import SCOPE_TAG
from lake_pipes.metadata import BRANCH, COMMIT

RETRIES = dg.RetryPolicy(max_retries=5, delay=30, backoff=dg.Backoff.EXPONENTIAL)
"""How often a sync is tried while the catalog cannot be reached: for a quarter of an hour."""


def lake_catalog(
    catalog: str | Catalog,
    schema: str,
    *,
    options: Mapping[str, str] | None = None,
    names: Mapping[str, str] | None = None,
    location: str | None = None,
    all_branches: bool = False,
    key: str | Sequence[str] | dg.AssetKey | None = None,
    schedule: str | None = None,
    minimum_interval_seconds: int = 30,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING,
    retry_policy: dg.RetryPolicy | None = RETRIES,
    **asset_options: Any,
) -> dg.Definitions:
    """Make an asset that registers the tables of a lake with a catalog, and a sensor that runs it after each publish.

    A publish never waits for a catalog, and never fails with it: the sync is a run of its own. It is tried again while
    the catalog cannot be reached. It fails for good if the catalog refuses it, or if a table is refused, after the
    others are registered. Both need a resource `lake`. Where its branch is not main, as in a branch deployment, nothing
    is registered.

    Args:
        catalog: The name of a catalog: `glue`, `hive`, `unity`, or one that a package adds. Or the catalog itself.
        schema: The schema or database. It is created if it does not exist.
        options: The settings of the catalog, if it is named. Secrets come from the environment of the run.
        names: Names of tables in the catalog, by path, in place of those that follow from the paths.
        location: The lake's URL as the readers of the catalog open it, such as `s3a://bucket/lake`.
        all_branches: Whether each other branch is registered, too, in a schema of its own, `<schema>_<branch>`.
        key: The key of the asset. The default is `catalog/<catalog>/<schema>`.
        schedule: A cron schedule for syncs besides those of the sensor, for catalogs that were down for longer than
            the retries last.
        minimum_interval_seconds: The time between two looks of the sensor.
        default_status: Whether the sensor runs without being turned on.
        retry_policy: The retries of the asset.
        asset_options: Further options of `@dg.asset`.
    """
    kind = catalog if isinstance(catalog, str) else catalog.kind
    asset_key = dg.AssetKey(["catalog", kind, schema]) if key is None else dg.AssetKey.from_coercible(key)

    def sync(context: dg.AssetExecutionContext, lake: LakeResource) -> dg.MaterializeResult[Any]:
        if not lake.is_lake():
            raise NotALake(f"{lake.root} is a folder of plain tables, and only a lake is registered: run `lake init`")
        opened = lake.open()
        main = opened.repository.format.branch
        branch = lake.branch_of(context.run.tags, context.instance)
        if branch != main:
            context.log.warning(f"only {main} is registered, and this run is on {branch}: nothing is done")
            return dg.MaterializeResult(metadata={"lake/due": False})
        if lake.run_session(context.instance, context.run) is not None:
            context.log.warning("what this run writes is published at its end: the next sync registers it")
        metadata = {}
        try:
            target = open_catalog(catalog, options) if isinstance(catalog, str) else catalog
            if all_branches:
                results = sync_branches(opened, target, schema, names=names, location=location)
            else:
                results = [sync_branch(opened, target, schema, branch=main, names=names, location=location)]
            for synced in results:
                for table in synced.tables:
                    changed = ", ".join(table.changed)
                    context.log.info(f"{table.action} {synced.schema}.{table.name}: {table.path} {changed}".rstrip())
            for path in results[0].unused_names:
                context.log.warning(f"no table is at {path}: its name is not used")
            metadata = _metadata(results)
            for synced in results:
                synced.check()
        except FINAL as error:
            raise dg.Failure(str(error), metadata=metadata, allow_retries=False) from error
        return dg.MaterializeResult(metadata=metadata)

    asset: Any = dg.asset(
        key=asset_key,
        description=f"The tables of main in the schema {schema} of the catalog {kind}",
        retry_policy=retry_policy,
        **{"group_name": "catalog", "kinds": {kind}, **asset_options},
    )
    definition: dg.AssetsDefinition = asset(sync)
    job = dg.define_asset_job(
        f"{asset_key.to_python_identifier()}_job", selection=[definition], tags={SCOPE_TAG: "asset"}
    )
    schedules = [dg.ScheduleDefinition(job=job, cron_schedule=schedule)] if schedule else []
    return dg.Definitions(
        assets=[definition],
        jobs=[job],
        sensors=[_sensor(asset_key, job, all_branches, minimum_interval_seconds, default_status)],
        schedules=schedules,
    )


def _sensor(
    key: dg.AssetKey,
    job: Any,
    all_branches: bool,
    minimum_interval_seconds: int,
    default_status: dg.DefaultSensorStatus,
) -> dg.SensorDefinition:
    """Return a sensor that requests a sync for each new head of main, or of any branch."""

    def evaluate(context: dg.SensorEvaluationContext, lake: LakeResource) -> dg.SensorResult:
        if not lake.is_lake():
            return dg.SensorResult(skip_reason=f"{lake.root} is no lake")
        opened = lake.open()
        main = opened.repository.format.branch
        if lake.branch != main:
            return dg.SensorResult(skip_reason=f"only {main} is registered, and the resource is on {lake.branch}")
        refs = opened.repository.refs()
        head = run_key = refs.branch(main)
        if all_branches:
            head = hashlib.sha256(json.dumps(refs.branches(), sort_keys=True).encode()).hexdigest()
            run_key = f"{refs.number}-{head}"  # as a branch that is deleted again leaves the heads of before
        if context.cursor == head:
            return dg.SensorResult(skip_reason=f"{'all branches are' if all_branches else f'{main} is'} as before")
        return dg.SensorResult(run_requests=[dg.RunRequest(run_key=run_key)], cursor=head)

    sensor: Any = dg.sensor(
        name=f"{key.to_python_identifier()}_sensor",
        job=job,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        description="Registers tables with a catalog after each publish.",
    )
    definition: dg.SensorDefinition = sensor(evaluate)
    return definition


def _metadata(results: Sequence[Synced]) -> dict[str, Any]:
    """Return what a sync did. The first result is that of main."""
    counts = Counter(table.action for synced in results for table in synced.tables)
    return {
        COMMIT: results[0].commit,
        BRANCH: results[0].branch,
        "lake/created": counts["create"],
        "lake/updated": counts["update"],
        "lake/dropped": counts["drop"],
        "lake/unchanged": sum(synced.unchanged for synced in results),
        "lake/refused": sum(len(synced.refused) for synced in results),
    }
