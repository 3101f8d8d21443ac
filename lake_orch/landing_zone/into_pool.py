"""Landing of a batch in a pool: the lines of its files become records of any shape."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from lake_core.pool import Pool
from lake_core.pool.errors import InvalidJson
from lake_core.pool.ndjson import lines_of_objects, read_ndjson
from lake_core.pool.value import Value
from lake_core.readable import count_of
from lake_orch.assets.landing.batch import LandedBatch
from lake_orch.assets.owner import Owner
from lake_orch.assets.pools.data import named_errors, rows_of
from lake_orch.assets.pools.metadata import PoolResult, pool_metadata
from lake_orch.assets.pools.owner import claim
from lake_orch.assets.pools.settings import PoolSettings
from lake_orch.assets.pools.times import with_times
from lake_orch.dagster.metadata import dagster_metadata
from lake_orch.dagster.page_links import page_links
from lake_orch.dagster.runs.attempt import Attempt, partition_keys
from lake_orch.errors import UnsupportedData
from lake_orch.resources import LakeResource, StepContext


def last_batch(lake: LakeResource, path: str, app_id: str, ref: str | None) -> int | None:
    """Return the number of the last batch that a pool records, or None. Raises NoSuchPool."""
    markers = lake.read_pool(path, None, ref=ref).markers()
    return markers[app_id].version if app_id in markers else None


def land_in_pool(
    context: StepContext, lake: LakeResource, batch: LandedBatch, rows: Any, settings: PoolSettings, owner: Owner
) -> dict[str, Any]:
    """Load a batch into its pool, once, and return the metadata of the materialization.

    Args:
        context: The context of the step.
        lake: The lake of the pool.
        batch: The batch to load.
        rows: The records to load, or None to read the files of the batch as lines of JSON.
        settings: The settings of the pool.
        owner: The asset that lands the batch.

    Raises:
        UnsupportedData: A line is not a JSON object, or a record cannot be stored in a pool. Nothing was written.
    """
    name = f"batch {batch.number} of landing zone {batch.zone.name!r}"
    attempt = Attempt.of_step(context, partition_keys(context), f"{settings.path}#{batch.number}")
    with lake.workspace(attempt) as workspace:
        pool: Pool = workspace.find(settings.path, "pool") or workspace.create(
            settings.path, "pool", **settings.options
        )
        result = PoolResult(pool.tip(), None)
        if not pool.has_marker(batch.txn):
            meta = claim(pool, owner, settings.ownership, replaces=False) or None
            with named_errors(name):
                values = (
                    with_times(_lines(batch), settings.times) if rows is None else rows_of(rows, name, settings.times)
                )
                objects = pool.write_objects(values, name=name)
            commit = pool.add_objects(objects, message=name, meta=meta, txn=batch.txn)
            result = PoolResult(pool.tip() if commit is None else commit.id, objects)
    after = workspace.after(settings.path, "pool")
    url = workspace.url(settings.path)
    context.log.info(
        f"{name} is already in {url}: nothing was written"
        if result.skipped
        else f"{name}: {count_of(result.records, 'record')} in {url}"
    )
    shown = 5 if settings.preview_rows is None else settings.preview_rows
    metadata = pool_metadata(
        result, after, url=url, path=settings.path, operation="append", receipt=workspace.receipt, preview_rows=shown
    )
    return dagster_metadata(metadata) | page_links(lake.ui_url, metadata)


def _lines(batch: LandedBatch) -> Iterator[Value]:
    """Yield the records of a batch's files. The extension of a file decides how it is decompressed.

    Raises UnsupportedData for a line that is not a JSON object.
    """
    for file, path in zip(batch.files, batch.paths, strict=True):
        with (
            batch.filesystem.open(path, "rb", compression="infer") as stream,
            io.TextIOWrapper(stream, encoding="utf-8-sig") as lines,
        ):
            try:
                yield from read_ndjson(lines_of_objects(lines))
            except (InvalidJson, UnicodeDecodeError) as error:
                raise UnsupportedData(
                    f"{file.key} of landing zone {batch.zone.name!r} does not have one JSON object in each line: "
                    f"{error}. Correct the file, or set read= of landing_zone_asset to a function that reads it. "
                    f"Nothing of batch {batch.number} was written"
                ) from None
