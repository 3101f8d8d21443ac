"""The sensor that makes batches and requests runs, and the asset that appends a batch to its dataset."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets and sensors as objects.

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, TypeAlias

import dagster as dg
import pyarrow as pa

from lake_core.lake.errors import DatasetNotFound, RefNotFound
from lake_core.readable import count_of
from lake_core.store import open_store
from lake_orch.assets.asset_format import FORMAT, AssetOutput, asset_format
from lake_orch.assets.landing.batch import LandedBatch
from lake_orch.assets.landing.ledger import BatchRecord, Destination, Landed, LandingDiff, Ledger
from lake_orch.assets.landing.zone import LandingZone
from lake_orch.dagster.metadata import dagster_metadata, plain_metadata
from lake_orch.dagster.owner import owner_of_asset
from lake_orch.dagster.page_links import page_links
from lake_orch.dagster.runs.attempt import Attempt, partition_keys
from lake_orch.dagster.step.type_handlers import handlers_of_step
from lake_orch.errors import BatchOutOfTurn, InvalidDefinition
from lake_orch.location import checked_path, table_path
from lake_orch.resources import LakeResource

ZONE_TAG, BATCH_TAG = "lake/landing_zone", "lake/landing_batch"
LEDGER_TAG = ".dagster/lake_landing_ledger"
"""The ledger of a run's batch.

A lake that is created again counts batches from 1, while Dagster still has the earlier runs.
"""
DESTINATION_TAG = ".dagster/lake_landing_destination"
"""The dataset and the branch of a run's batch: several may take the files of a zone."""
_MOST_RUNS = 1000

Read: TypeAlias = Callable[[LandedBatch], Any]
"""Reads the rows of a batch, as any type that can be written to the dataset."""


def ledger_of(zone: LandingZone, lake: LakeResource) -> Ledger:
    """Open the ledger of a zone beside a lake."""
    return Ledger.of(zone, open_store(lake.root, storage_options=lake.options() or None))


def landed(zone: LandingZone, lake: LakeResource, path: str, ledger: Ledger, branch: str, *, into: str) -> Landed:
    """Return what has landed in the dataset at a path on a branch. Raises LandingForgotten."""
    format = asset_format(format_of(into), {})
    landing = format.landing(AssetOutput(producer=_subject(zone), asset_key=None, metadata={"lake/path": path}))
    # A branch that does not exist yet will begin at this one.
    for ref in (branch, lake.branch_from or branch) if lake.is_lake() else (None,):
        try:
            dataset = lake.read(path, format.format, None, ref=ref)
        except RefNotFound:
            continue
        except DatasetNotFound:
            break
        return ledger.landed_in(landing, dataset, ref or "")
    return Landed()


def format_of(into: str) -> str:
    """Return the format in which a landing zone lands. `table` is another word for `delta`."""
    return "delta" if into == "table" else into


def _subject(zone: LandingZone) -> str:
    return f"landing zone {zone.name!r}"


def batch_of(
    context: dg.AssetExecutionContext | dg.OpExecutionContext, zone: LandingZone, lake: LakeResource
) -> LandedBatch:
    """Start landing the batch of a run. Raises InvalidDefinition for a run without a batch in its tags, FilesGone."""
    return LandedBatch.begin(ledger_of(zone, lake), _number_of_batch(context, zone))


def _number_of_batch(context: dg.AssetExecutionContext | dg.OpExecutionContext, zone: LandingZone) -> int:
    tags = context.run.tags
    if tags.get(ZONE_TAG) != zone.name or not tags.get(BATCH_TAG, "").isdecimal():
        raise InvalidDefinition(
            f"this run has no batch of landing zone {zone.name!r}: its sensor requests runs with the tags {ZONE_TAG} "
            f"and {BATCH_TAG}; to land a batch by hand, launch a run with these tags"
        )
    return int(tags[BATCH_TAG])


def landing_zone_asset(
    zone: LandingZone,
    *,
    key: str | Sequence[str] | dg.AssetKey | None = None,
    read: Read | None = None,
    schema: pa.Schema | None = None,
    partition_by: Sequence[str] = (),
    into: str = "table",
    **options: Any,
) -> dg.AssetsDefinition:
    """Make an asset that appends the files of a landing zone to its dataset, one batch in each run, each file once.

    Args:
        zone: The landing zone.
        key: The key of the asset. The default is the name of the zone.
        read: Returns the rows of a batch. By default, the extension of the files decides how they are read.
        schema: The schema of the table and of the rows.
        partition_by: The partition columns of the table.
        into: The format, such as `"pool"`, which loads lines of JSON of any shape, or that of another package.
        options: The options of `@dg.asset`. The metadata is that of the format's IO manager.

    Raises:
        InvalidDefinition: A setting is invalid, or has no effect in the format, or batches do not land in it.
    """
    asset_key = dg.AssetKey.from_coercible(key if key is not None else zone.name)
    format, subject = asset_format(format_of(into), {}), _subject(zone)
    arguments = {"schema": schema, "partition_by": tuple(partition_by) or None}
    declared = {f"lake/{name}": value for name, value in arguments.items() if value is not None}
    if unknown := [name.removeprefix("lake/") for name in declared if name not in format.names.output]:
        raise InvalidDefinition(
            f"{subject} lands in {format.names.datasets}, which have no {' and no '.join(unknown)}: "
            f"leave {' and '.join(unknown)} out"
        )
    metadata = {**plain_metadata(options.get("metadata") or {}), **declared}
    if metadata.get(FORMAT, format.format) != format.format:
        raise InvalidDefinition(f"{subject} lands in {format.names.datasets}: leave {FORMAT} out, and choose by into=")
    output = AssetOutput(producer=subject, asset_key=asset_key.path, metadata=metadata)
    format.check(output)
    format.landing(output)  # so that mistakes appear before the first run

    def land(context: dg.AssetExecutionContext, lake: LakeResource) -> dg.MaterializeResult[Any]:
        own = asset_format(format.format, {}, {"handlers": handlers_of_step(context)})
        landing = own.landing(replace(output, owner=owner_of_asset(asset_key, context.run)))
        batch, is_forgotten = _batch_in_turn(context, zone, lake, landing.path, into)
        if is_forgotten:
            context.log.info(f"{batch.name} is in {landing.path} already: nothing was written")
            return dg.MaterializeResult(metadata={"lake/skipped": True, **_batch_metadata(batch)})
        write = landing.write(batch, None if read is None else read(batch))
        attempt = Attempt.of_step(context, partition_keys(context), f"{landing.path}#{batch.number}")
        with lake.workspace(attempt) as workspace:
            result = write.to(workspace)
        written = write.written(result, workspace)
        context.log.info(f"{batch.name}: {written.summary}")
        described = dagster_metadata(written.metadata) | page_links(lake.ui_url, written.metadata)
        return dg.MaterializeResult(
            metadata={**described, **_batch_metadata(batch)}, data_version=dg.DataVersion(written.data_version)
        )

    kinds = options.pop("kinds", {format.kind or format.format})
    asset: Any = dg.asset(key=asset_key, kinds=kinds, **options)
    definition: dg.AssetsDefinition = asset(land)
    return definition


def _batch_in_turn(
    context: dg.AssetExecutionContext, zone: LandingZone, lake: LakeResource, path: str, into: str
) -> tuple[LandedBatch, bool]:
    """Start landing the batch of a run.

    Return it, and whether it has landed in a dataset that may have forgotten it, so that a write would not notice.
    Raises BatchOutOfTurn if an earlier batch has not landed.
    """
    ledger, number = ledger_of(zone, lake), _number_of_batch(context, zone)
    branch = lake.branch_of(context.run.tags, context.instance)
    before = landed(zone, lake, path, ledger, branch, into=into)
    batch = LandedBatch.begin(ledger, number)
    if before.may_forget is not None and before.last < number:
        ledger.note_begun(before.may_forget, number)
    if before.last < number - 1:
        raise BatchOutOfTurn(
            f"batch {number} of landing zone {zone.name!r} cannot land before batch {before.last + 1}: "
            "re-execute that one first"
        )
    return batch, before.may_forget is not None and number <= before.last


def _batch_metadata(batch: LandedBatch) -> dict[str, Any]:
    files = dg.MetadataValue.md("\n".join(f"- `{file.key}` ({file.size} bytes)" for file in batch.files[:100]))
    return {
        "lake/landing_batch": batch.number,
        "lake/files_landed": len(batch.files),
        "lake/bytes_landed": batch.size,
        "files": files,
    }


def landing_zone_sensor(
    zone: LandingZone,
    *,
    target: Any,
    table: str,
    name: str | None = None,
    asset_key: str | Sequence[str] | dg.AssetKey | None = None,
    request: Callable[[BatchRecord], Mapping[str, Any]] | None = None,
    max_retries: int = 3,
    minimum_interval_seconds: int = 30,
    into: str = "table",
    **options: Any,
) -> dg.SensorDefinition:
    """Make a sensor that groups new files into batches and requests one run for each.

    The runs are in order: a batch is requested after the one before it has landed. A failed run is requested again, up
    to `max_retries` times. After that, it must be re-executed by hand.

    Args:
        zone: The landing zone.
        target: The job or assets to run.
        table: The path of the dataset that the batches land in.
        name: The name of the sensor.
        asset_key: The asset on which late and rewritten files are reported.
        request: Returns more arguments of a run request, such as a partition key.
        max_retries: The most times that a failed run is requested again.
        minimum_interval_seconds: The interval between evaluations.
        into: The format of the dataset, as of `landing_zone_asset`.
        options: The options of `@dg.sensor`.
    """
    path = checked_path(table)
    report_key = None if asset_key is None else dg.AssetKey.from_coercible(asset_key)

    def evaluate(context: dg.SensorEvaluationContext, lake: LakeResource) -> dg.SensorResult | dg.SkipReason:
        ledger = ledger_of(zone, lake)
        last_landed = landed(zone, lake, path, ledger, lake.branch, into=into).last
        diff = ledger.diff(zone.files(), last_landed)
        _report(context, zone, ledger, diff, report_key)
        waiting = ledger.batches(last_landed)
        if not waiting and diff.new:
            created = ledger.make_batch(diff.new)
            waiting = [created] if created else ledger.batches(last_landed)
            _report_late(context, zone, created, report_key)
        context.update_cursor(
            json.dumps({"landed": last_landed, "batch": waiting[-1].number if waiting else last_landed})
        )
        if not waiting:
            return dg.SkipReason(f"no new files in {zone.url}")
        own = {
            LEDGER_TAG: ledger.id,
            DESTINATION_TAG: Destination(path, lake.branch if lake.is_lake() else "").key,
        }
        return _request_run(context, zone, lake, own, waiting[0], request, max_retries)

    sensor: Any = dg.sensor(
        name=name or f"{zone.name}_landing_zone",
        target=target,
        minimum_interval_seconds=minimum_interval_seconds,
        description=f"Lands the files of {zone.url}, each exactly once.",
        **options,
    )
    result: dg.SensorDefinition = sensor(evaluate)
    return result


def _request_run(
    context: dg.SensorEvaluationContext,
    zone: LandingZone,
    lake: LakeResource,
    own: Mapping[str, str],
    batch: BatchRecord,
    request: Callable[[BatchRecord], Mapping[str, Any]] | None,
    max_retries: int,
) -> dg.SensorResult | dg.SkipReason:
    """Request a run of a batch, unless one is in progress or too many have failed.

    The tags `own` tell its runs from those of other datasets. A run that somebody launched by hand may lack them.
    """
    batch_tags = {ZONE_TAG: zone.name, BATCH_TAG: str(batch.number)}
    batch_runs = context.instance.get_runs(dg.RunsFilter(tags=batch_tags), limit=_MOST_RUNS)
    runs = [run for run in batch_runs if all(run.tags.get(tag, value) == value for tag, value in own.items())]
    unfinished = [run for run in runs if not run.is_finished]
    if unfinished:
        return dg.SkipReason(f"batch {batch.number} is landing in run {unfinished[0].run_id}")
    # A batch of which a run has published may have been reverted since, or dropped with its dataset.
    failed = [run for run in runs if not (run.is_success and lake.has_published(run))]
    if len(failed) > max_retries:
        return dg.SkipReason(
            f"batch {batch.number} of landing zone {zone.name!r} failed {count_of(len(failed), 'time')}, and later "
            f"ones wait for it: correct the cause and re-execute run {failed[0].run_id}"
        )
    extra = dict(request(batch)) if request else {}
    tags = {**extra.pop("tags", {}), **batch_tags, **own}
    # After runs were deleted, the count could repeat the key of an existing run, for which Dagster does not start a new
    # run.
    used_keys = {run.tags.get("dagster/run_key") for run in batch_runs}
    keys = (f"{zone.name}:{batch.number}:{number}" for number in count(len(batch_runs)))
    return dg.SensorResult(
        run_requests=[dg.RunRequest(run_key=next(key for key in keys if key not in used_keys), tags=tags, **extra)]
    )


def _report(
    context: dg.SensorEvaluationContext,
    zone: LandingZone,
    ledger: Ledger,
    diff: LandingDiff,
    asset_key: dg.AssetKey | None,
) -> None:
    if diff.gone:
        context.log.warning(
            f"{count_of(len(diff.gone), 'file')} disappeared before the batch landed: {', '.join(diff.gone[:10])}. Put "
            "them back"
        )
    if not diff.rewritten:
        return
    keys = [file.key for file in diff.rewritten]
    context.log.warning(
        f"{count_of(len(keys), 'file')} changed after landing. The new content is not read: {', '.join(keys[:10])}"
    )
    if asset_key is not None:
        _observe_files(
            context,
            asset_key,
            "lake/rewritten_files",
            keys,
            f"Files of {zone.url} were rewritten after they had landed",
        )
    ledger.note_reported(diff.rewritten)


def _report_late(
    context: dg.SensorEvaluationContext, zone: LandingZone, batch: BatchRecord | None, asset_key: dg.AssetKey | None
) -> None:
    late = [file.key for file in batch.files if file.late] if batch else []
    if not late or batch is None:
        return
    context.log.info(f"{count_of(len(late), 'late file')} will land in batch {batch.number}: {', '.join(late[:10])}")
    if asset_key is not None:
        _observe_files(
            context,
            asset_key,
            "lake/late_files",
            late,
            f"Files of {zone.url} came later than files whose names sort after theirs",
        )


def _observe_files(
    context: dg.SensorEvaluationContext, asset_key: dg.AssetKey, count_name: str, keys: Sequence[str], description: str
) -> None:
    """Report an observation of the asset that counts files, under `count_name`, and lists the first of them."""
    metadata: dict[str, Any] = {
        count_name: len(keys),
        "files": dg.MetadataValue.md("\n".join(f"- `{key}`" for key in keys[:100])),
    }
    context.instance.report_runless_asset_event(
        dg.AssetObservation(asset_key, metadata=metadata, description=description)
    )


def landing_zone_definitions(
    zone: LandingZone,
    *,
    key: str | Sequence[str] | dg.AssetKey | None = None,
    sensor: Mapping[str, Any] | None = None,
    **options: Any,
) -> dg.Definitions:
    """Return the asset, with the options of `landing_zone_asset`, and the sensor that runs it.

    `sensor` has the options of `landing_zone_sensor`.
    """
    into = options.get("into", "table")
    asset = landing_zone_asset(zone, key=key, **options)
    path = table_path(asset.key.path, options.get("metadata") or {})
    watcher = landing_zone_sensor(zone, target=[asset], table=path, asset_key=asset.key, into=into, **(sensor or {}))
    return dg.Definitions(assets=[asset], sensors=[watcher])
