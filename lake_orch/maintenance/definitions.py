"""Assets, schedules and checks that maintain tables, arrays and pools, from one call."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import dagster as dg

from lake_core.lake.errors import DatasetNotFound
from lake_orch.assets.arrays.maintenance import ARRAYS
from lake_orch.assets.maintenance import TaskContext, all_maintenance, maintenance_of
from lake_orch.assets.pools.maintenance import POOLS
from lake_orch.assets.tables.maintenance import TABLES
from lake_orch.dagster.page_links import page_links
from lake_orch.dagster.spark_resource import SparkResource
from lake_orch.errors import InvalidDefinition
from lake_orch.jobs.session_sensors import Alert, lake_session_reaper
from lake_orch.maintenance.checks import HealthLimits, lake_session_check
from lake_orch.maintenance.garbage_collection import SparkCollector, garbage_collection
from lake_orch.maintenance.health_assets import HEALTH, health_assets
from lake_orch.maintenance.target import Maintainable, MaintenanceConfig, MaintenanceTarget, targets_of
from lake_orch.resources import LakeResource
from lake_pipes.metadata import PATH

__all__ = ["TASKS", "MaintenanceConfig", "MaintenanceTarget", "lake_maintenance"]

LAKE_TASKS = ("garbage_collection", "session_reaper")
TASKS = (*TABLES.tasks, *ARRAYS.tasks, *POOLS.tasks, HEALTH, *LAKE_TASKS)
"""The tasks of this package. Formats of other packages have more."""

SPARK_ABOVE_COMMITS = 10_000
"""The number of retained commits from which Spark collects the garbage of a lake, if there is a Spark resource."""
POOL = "lake_maintenance"
"""The concurrency pool of assets that rewrite data. Limit it so that they leave resources to writers."""


def lake_maintenance(
    tables: Sequence[Maintainable] = (),
    *,
    arrays: Sequence[Maintainable] = (),
    pools: Sequence[Maintainable] = (),
    others: Mapping[str, Sequence[Maintainable]] | None = None,
    tasks: Sequence[str] | Mapping[str, str | None] | None = None,
    schedule: str | None = None,
    automation: bool = False,
    timezone: str = "UTC",
    key_prefix: str | Sequence[str] = "maintenance",
    group_name: str = "maintenance",
    checks: bool | HealthLimits = True,
    spark: bool = False,
    spark_above_commits: int = SPARK_ABOVE_COMMITS,
    pool: str | None = POOL,
    alert: Alert | None = None,
    **settings: Any,
) -> dg.Definitions:
    """Make assets that maintain datasets of the resource `lake`, one for each task.

    An asset is partitioned by path if it has several targets. The result of a task on a target is reported as an
    observation of the target's asset.

    Args:
        tables: Paths below the lake's root, asset keys, assets, or `MaintenanceTarget`s with settings of their own.
        arrays: Icechunk repositories, named in the same ways.
        pools: Pools, named in the same ways.
        others: Datasets of formats that other packages install, by format, such as `{"note": ["notes/today"]}`.
        tasks: Some of `TASKS`. Each is for datasets of a format, or for the lake. A mapping gives each its own
            cron schedule. The default is compaction, checkpoint and vacuum for tables, manifest_rewrite and
            snapshot_expiry for arrays, pool_compaction and pool_vacuum for pools, and garbage_collection and
            session_reaper for the lake. The last two do nothing if the root turns out to be no lake.
        schedule: The cron schedule of tasks that have none of their own. Without a schedule, a task only runs if it is
            materialized by hand.
        automation: Let automation conditions follow the schedules, instead of schedules of the code location.
        timezone: The time zone of the schedules.
        key_prefix: The first parts of the assets' keys. The task is the last part.
        group_name: The group of the assets.
        checks: Add the task `health`: assets `<key_prefix>/health/<key>`, whose checks say what each target needs, all
            measured in one step. It follows its own schedule, or else `schedule`, or else that of the first task that
            has one. `HealthLimits` sets the limits above which checks warn.
        spark: Rearrange tables above `spark_above` bytes, write the checkpoints of those above `spark_above_files`
            files and vacuum the plain ones of these, with the resource `spark`, and collect the garbage of a lake with
            at least `spark_above_commits` commits.
        spark_above_commits: The number of retained commits from which Spark collects.
        pool: The concurrency pool of assets that rewrite data, or None for no limit.
        alert: A function that the task `session_reaper` calls for each session that needs attention.
        settings: For all tables, arrays and pools, the fields of `MaintenanceTarget`, such as
            `min_small_file_ratio=0.3`.

    Raises:
        InvalidDefinition: A task is unknown, a task is for datasets of which none are named, or the task `zorder` has
            no columns.
    """
    targets = targets_of(tables, arrays, pools, others, **settings)
    crons = _crons(_default_tasks(targets) if tasks is None else tasks, schedule, with_health=checks is not False)
    _check_tasks(crons, targets)
    prefix = [key_prefix] if isinstance(key_prefix, str) else list(key_prefix)
    assets: list[dg.AssetsDefinition] = []
    schedules = []
    for task, cron in crons.items():
        condition = dg.AutomationCondition.on_cron(cron, timezone) if automation and cron else None
        common: dict[str, Any] = {"group_name": group_name, "automation_condition": condition}
        key = dg.AssetKey([*prefix, task])
        maintained = _maintained_by(task, targets)
        partitions = (
            dg.StaticPartitionsDefinition([target.path for target in maintained]) if len(maintained) > 1 else None
        )
        if task == HEALTH:
            limits = checks if isinstance(checks, HealthLimits) else HealthLimits()
            assets.append(health_assets(targets, prefix, limits, **common))
            if cron and not automation:
                schedules.append(_health_schedule(assets[-1], prefix, cron, timezone))
            continue
        if task == "session_reaper":
            asset = lake_session_reaper(key, alert=alert, needs_lake=tasks is not None, **common)
        elif task == "garbage_collection":
            asset = _garbage_collection_asset(
                key,
                [target for target in targets if maintenance_of(target.format).collect is not None],
                spark_above_commits if spark else None,
                {**common, "pool": pool},
                needs_lake=tasks is not None,
            )
        else:
            asset = _dataset_asset(key, task, maintained, partitions, spark, {**common, "pool": pool})
        assets.append(asset)
        if cron and not automation:
            schedules.append(_schedule(key, cron, timezone, partitions))
    reaper = (
        [lake_session_check(dg.AssetKey([*prefix, "session_reaper"]))]
        if tasks is not None and "session_reaper" in tasks and checks is not False  # in a folder it has nothing to say
        else []
    )
    return dg.Definitions(assets=assets, asset_checks=reaper, schedules=schedules)


def _crons(
    tasks: Sequence[str] | Mapping[str, str | None], schedule: str | None, *, with_health: bool
) -> dict[str, str | None]:
    """Return the cron schedule of each task, or None for a task without a schedule."""
    own_crons = tasks if isinstance(tasks, Mapping) else dict.fromkeys(tasks)
    crons: dict[str, str | None] = {task: cron or schedule for task, cron in own_crons.items()}
    if with_health and HEALTH not in crons:
        crons[HEALTH] = schedule or next((cron for cron in crons.values() if cron), None)
    return crons


def _default_tasks(targets: Sequence[MaintenanceTarget]) -> Sequence[str]:
    formats = dict.fromkeys(target.format for target in targets)
    return [*(task for format in formats for task in maintenance_of(format).regular_tasks()), *LAKE_TASKS]


def _maintained_by(task: str, targets: Sequence[MaintenanceTarget]) -> list[MaintenanceTarget]:
    """Return the targets of a task. Empty for a task of the whole lake."""
    return [target for target in targets if task in maintenance_of(target.format).tasks]


def _check_tasks(tasks: Collection[str], targets: Sequence[MaintenanceTarget]) -> None:
    """Raise InvalidDefinition for unknown tasks, tasks of a format without targets, and a Z-order without columns."""
    of_formats = dict(all_maintenance())
    known = list(dict.fromkeys([*TASKS, *(task for each in of_formats.values() for task in each.tasks)]))
    unknown = sorted(set(tasks) - set(known))
    if unknown:
        raise InvalidDefinition(f"no maintenance task is called {', '.join(unknown)}: the tasks are {', '.join(known)}")
    for format, maintenance in of_formats.items():
        chosen_tasks = sorted(set(tasks) & maintenance.tasks.keys())
        if chosen_tasks and all(target.format != format for target in targets):
            datasets = maintenance.datasets
            raise InvalidDefinition(
                f"the task {chosen_tasks[0]} is for {datasets}, and no {datasets} are named: name them, or leave it out"
            )
    if "zorder" in tasks and not all(target.zorder_by for target in _maintained_by("zorder", targets)):
        raise InvalidDefinition("the task zorder needs columns: give zorder_by, or MaintenanceTargets with their own")


def _dataset_asset(
    key: dg.AssetKey,
    task: str,
    targets: Sequence[MaintenanceTarget],
    partitions: dg.PartitionsDefinition[str] | None,
    spark: bool,
    options: dict[str, Any],
) -> dg.AssetsDefinition:
    by_path = {target.path: target for target in targets}
    format = targets[0].format
    maintenance = maintenance_of(format)
    function = maintenance.tasks[task]

    def run(
        context: dg.AssetExecutionContext, config: MaintenanceConfig, lake: LakeResource, engine: SparkResource | None
    ) -> Any:
        paths = list(context.partition_keys) if partitions is not None else list(by_path)
        branch = lake.branch_of(context.run.tags, context.instance)
        for path in paths:
            _check_not_staged(context, lake, path)
            task_metadata = function(TaskContext(lake, by_path[path], config, branch, engine))
            context.log.info(_result_text(task, path, task_metadata, dry_run=config.dry_run))
            metadata = {**task_metadata, "lake/path": path, **_dry(config)}
            if not config.dry_run and task_metadata.get("lake/due", True):
                links = page_links(lake.ui_url, {**task_metadata, PATH: path})
                _observe(context, key, by_path[path], function.__doc__, {**task_metadata, **links})
            if partitions is None:
                return dg.MaterializeResult(metadata=metadata)
            context.add_asset_metadata(metadata, asset_key=key, partition_key=path)
        return dg.MaterializeResult()

    asset: Any = dg.asset(
        key=key,
        partitions_def=partitions,
        description=function.__doc__,
        kinds={maintenance.kind},
        **options,
    )
    definition: dg.AssetsDefinition = asset(_given_spark(run, spark and maintenance.spark))
    return definition


def _observe(
    context: dg.AssetExecutionContext,
    key: dg.AssetKey,
    target: MaintenanceTarget,
    description: str | None,
    metadata: Mapping[str, Any],
) -> None:
    """Report the result of a task as an observation of the target's asset. `key` is the asset of the task."""
    by: dict[str, Any] = {"lake/maintenance": key.path[-1], "lake/maintained_by": dg.MetadataValue.asset(key)}
    context.log_event(dg.AssetObservation(target.asset_key, description=description, metadata={**by, **metadata}))


def _result_text(task: str, path: str, metadata: Mapping[str, Any], *, dry_run: bool) -> str:
    """Return the log line of a task: whether it changed the dataset, and the numbers of its result."""
    numbers = ", ".join(f"{name} {value}" for name, value in metadata.items() if name != "lake/due")
    outcome = "dry run, nothing is changed" if dry_run else ""
    if not metadata.get("lake/due", True):
        outcome = "not due, nothing is changed"
    return f"{task} of {path}: {outcome} ({numbers})" if outcome else f"{task} of {path}: {numbers}"


def _dry(config: MaintenanceConfig) -> dict[str, Any]:
    return {"lake/dry_run": True} if config.dry_run else {}


def _check_not_staged(context: dg.AssetExecutionContext, lake: LakeResource, path: str) -> None:
    """Raise InvalidDefinition if the same run has staged changes to a dataset: maintenance would conflict with them."""
    if lake.is_staged(path, context.instance, context.run):
        raise InvalidDefinition(
            f"this run has written to {path}, and publishes at its end: maintain it in a separate run, "
            "such as that of a schedule"
        )


def _garbage_collection_asset(
    key: dg.AssetKey,
    collected_apart: Sequence[MaintenanceTarget],
    spark_above: int | None,
    options: dict[str, Any],
    *,
    needs_lake: bool,
) -> dg.AssetsDefinition:
    def collect(
        context: dg.AssetExecutionContext,
        config: MaintenanceConfig,
        lake: LakeResource,
        spark: SparkResource | None,
    ) -> Any:
        if not (needs_lake or collected_apart or lake.is_lake()):
            context.log.info(f"{lake.root} is a folder of plain tables, where vacuum deletes files: nothing to collect")
            return dg.MaterializeResult(metadata={"lake/due": False})
        if lake.is_lake() or not collected_apart:
            collector = None if spark is None or spark_above is None else SparkCollector(spark, spark_above)
            collected = garbage_collection(lake, dry_run=config.dry_run, collector=collector)
            return dg.MaterializeResult(metadata=collected | _dry(config))
        total: Counter[str] = Counter()
        for target in collected_apart:
            task = maintenance_of(target.format).collect
            assert task is not None
            try:
                metadata = task(TaskContext(lake, target, config, lake.branch_of(context.run.tags, context.instance)))
            except DatasetNotFound:
                context.log.warning(f"there is nothing at {target.path} yet: nothing is collected")
                continue
            context.log.info(_result_text("garbage_collection", target.path, metadata, dry_run=config.dry_run))
            if metadata["lake/reclaimed_files"] and not config.dry_run:
                _observe(context, key, target, task.__doc__, metadata)
            total.update(metadata)
        return dg.MaterializeResult(metadata={**total, **_dry(config)})

    asset: Any = dg.asset(key=key, description=garbage_collection.__doc__, **options)
    definition: dg.AssetsDefinition = asset(_given_spark(collect, spark_above is not None))
    return definition


def _given_spark(run: Callable[..., Any], is_given: bool) -> Callable[..., Any]:
    """Return the function of an asset that calls `run` with the resource `spark`, or with None."""

    def with_spark(
        context: dg.AssetExecutionContext, config: MaintenanceConfig, lake: LakeResource, spark: SparkResource
    ) -> Any:
        return run(context, config, lake, spark)

    def without_spark(context: dg.AssetExecutionContext, config: MaintenanceConfig, lake: LakeResource) -> Any:
        return run(context, config, lake, None)

    return with_spark if is_given else without_spark


def _health_schedule(
    assets: dg.AssetsDefinition, prefix: Sequence[str], cron: str, timezone: str
) -> dg.ScheduleDefinition:
    name = f"{'_'.join([*prefix, HEALTH])}_schedule"
    return dg.ScheduleDefinition(
        name=name, target=dg.AssetSelection.assets(assets), cron_schedule=cron, execution_timezone=timezone
    )


def _schedule(
    key: dg.AssetKey, cron: str, timezone: str, partitions: dg.PartitionsDefinition[str] | None
) -> dg.ScheduleDefinition:
    name = f"{'_'.join(key.path)}_schedule"
    target = dg.AssetSelection.assets(key)
    if partitions is None:
        return dg.ScheduleDefinition(name=name, target=target, cron_schedule=cron, execution_timezone=timezone)

    def one_run_a_table(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest]:
        at = context.scheduled_execution_time.isoformat()
        return [dg.RunRequest(run_key=f"{path}@{at}", partition_key=path) for path in partitions.get_partition_keys()]

    decorator: Any = dg.schedule(name=name, target=target, cron_schedule=cron, execution_timezone=timezone)
    schedule: dg.ScheduleDefinition = decorator(one_run_a_table)
    return schedule
