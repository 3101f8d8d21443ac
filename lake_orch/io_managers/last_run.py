"""The commit up to which an asset has read a pool, for the setting `lake/since`.

Each read is reported as an observation of the pool's asset, with the bounds of the read. A read starts where that of
the asset's last materialization ended. An attempt that repeats an earlier one reads the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dagster import (
    AssetKey,
    AssetObservation,
    DagsterEvent,
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    InputContext,
)

from lake_orch.assets.pools.settings import LAST_RUN, POOL_COMMIT, SINCE
from lake_orch.dagster.runs.lineage import step_lineage
from lake_orch.errors import InvalidDefinition

READER, SINCE_COMMIT = "lake/read_by", "lake/since_commit"
_BEGINNING = "the beginning"
_MATERIALIZATIONS = 100
"""The number of the asset's last materializations to search for one whose run read the pool."""


@dataclass(frozen=True, slots=True)
class ReadBounds:
    """The bounds of a read: what was added to a pool after one commit, up to another."""

    since: str | None
    """None means from the beginning."""
    until: str

    def metadata(self, reader: AssetKey) -> dict[str, Any]:
        """Return the metadata of the observation that reports the read."""
        return {READER: reader.to_user_string(), SINCE_COMMIT: self.since or _BEGINNING, POOL_COMMIT: self.until}


def reader_of(context: InputContext, subject: str) -> AssetKey:
    """Return the asset that reads an input. Raises InvalidDefinition if there is none, or if it is partitioned."""
    step = context.step_context
    for output in step.step.step_outputs:
        if output.properties.asset_key is not None and not step.has_partition_key:
            return output.properties.asset_key
    raise InvalidDefinition(
        f"{SINCE} of {subject} is {LAST_RUN!r}: "
        "only an asset without partitions can read what is new since its last run"
    )


def bounds_of_read(
    context: InputContext, reader: AssetKey, latest: Callable[[], str], is_published: Callable[[DagsterRun], bool]
) -> ReadBounds:
    """Return the bounds of what an asset has not read of a pool yet.

    Args:
        context: The input.
        reader: The asset that reads it.
        latest: Returns the id of the pool's last commit.
        is_published: Returns whether the writes of a run are published.
    """
    instance, run = context.step_context.instance, context.step_context.dagster_run
    for run_id in _attempts(instance, run, context.step_context.step.key):
        earlier = _read_in(instance, run_id, context.asset_key, reader)
        if earlier is not None:
            return earlier
    return ReadBounds(_read_before(instance, run, context.asset_key, reader, is_published), latest())


def report_read(context: InputContext, bounds: ReadBounds, reader: AssetKey) -> None:
    """Report a read as an observation of the pool's asset, for the reader's next run to find."""
    metadata, description = bounds.metadata(reader), f"Read by {reader.to_user_string()}"
    if not context.has_asset_partitions:
        context.add_input_metadata(metadata, description=description)
        return
    # Dagster's method works for one partition, and a read of what is new is one of all partitions.
    DagsterEvent.asset_observation(
        context.step_context, AssetObservation(context.asset_key, description=description, metadata=metadata)
    )


def _attempts(instance: DagsterInstance, run: DagsterRun, step_key: str) -> Iterator[str]:
    """Yield the ids of the run, and of the runs whose attempt at the step it repeats."""
    first = step_lineage(instance, run, step_key)
    current: DagsterRun | None = run
    while current is not None:
        yield current.run_id
        if current.run_id == first or current.parent_run_id is None:
            return
        current = instance.get_run_by_id(current.parent_run_id)


def _read_in(instance: DagsterInstance, run_id: str, pool: AssetKey, reader: AssetKey) -> ReadBounds | None:
    """Return the bounds of a reader's read of a pool in a run, or None."""
    for entry in instance.all_logs(run_id, of_type=DagsterEventType.ASSET_OBSERVATION):
        event = entry.dagster_event
        if event is None or event.asset_key != pool:
            continue
        metadata = {
            name: str(value.value) for name, value in event.asset_observation_data.asset_observation.metadata.items()
        }
        if metadata.get(READER) == reader.to_user_string() and SINCE_COMMIT in metadata:
            since = metadata[SINCE_COMMIT]
            return ReadBounds(None if since == _BEGINNING else since, metadata[POOL_COMMIT])
    return None


def _read_before(
    instance: DagsterInstance,
    run: DagsterRun,
    pool: AssetKey,
    reader: AssetKey,
    is_published: Callable[[DagsterRun], bool],
) -> str | None:
    """Return the commit up to which earlier runs have read a pool, or None."""
    for record in instance.fetch_materializations(reader, limit=_MATERIALIZATIONS).records:
        run_id = record.event_log_entry.run_id
        earlier = _read_in(instance, run_id, pool, reader)
        earlier_run = instance.get_run_by_id(run_id)
        if earlier is not None and run_id != run.run_id and earlier_run is not None and is_published(earlier_run):
            return earlier.until
    return None
