"""Up to which commit of a pool an asset has read it: what `lake/since` starts from.

Each read is an observation of the pool's asset in the log of the run, which names its bounds. The run of the asset's last materialization
tells where the next one goes on; an attempt that repeats an earlier one reads what that has read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dagster import AssetKey, DagsterEventType, DagsterInstance, DagsterRun, InputContext

from lake_orch.errors import InvalidDefinition
from lake_orch.pools.settings import LAST_RUN, POOL_COMMIT, SINCE
from lake_orch.runs.lineage import step_lineage

READER, SINCE_COMMIT = "lake/read_by", "lake/since_commit"
_BEGINNING = "the beginning"
_MATERIALIZATIONS = 100
"""How many of the asset's last materializations are searched for one whose run has read the pool."""


@dataclass(frozen=True, slots=True)
class ReadBounds:
    """What a run reads of a pool: what was added after a commit, up to another one."""

    since: str | None
    """None for everything."""
    until: str

    def metadata(self, reader: AssetKey) -> dict[str, Any]:
        """Return what the observation of the read says."""
        return {READER: reader.to_user_string(), SINCE_COMMIT: self.since or _BEGINNING, POOL_COMMIT: self.until}


def reader_of(context: InputContext, subject: str) -> AssetKey:
    """Return the asset that reads an input. Raises InvalidDefinition where there is none, or it is partitioned."""
    step = context.step_context
    for output in step.step.step_outputs:
        if output.properties.asset_key is not None and not step.has_partition_key:
            return output.properties.asset_key
    raise InvalidDefinition(f"{SINCE} of {subject} is {LAST_RUN!r}: only assets without partitions know of their last run")


def bounds_of_read(
    context: InputContext, reader: AssetKey, latest: Callable[[], str], is_published: Callable[[DagsterRun], bool]
) -> ReadBounds:
    """Return what is new to an asset in a pool.

    Args:
        context: The input.
        reader: The asset that reads it.
        latest: Returns the id of the pool's last commit.
        is_published: Tells whether what a run has written is published.
    """
    instance, run = context.step_context.instance, context.step_context.dagster_run
    for run_id in _attempts(instance, run, context.step_context.step.key):
        earlier = _read_in(instance, run_id, context.asset_key, reader)
        if earlier is not None:
            return earlier
    return ReadBounds(_read_before(instance, run, context.asset_key, reader, is_published), latest())


def _attempts(instance: DagsterInstance, run: DagsterRun, step_key: str) -> Iterator[str]:
    """Yield the run, and those whose attempt at the step it repeats."""
    first = step_lineage(instance, run, step_key)
    current: DagsterRun | None = run
    while current is not None:
        yield current.run_id
        if current.run_id == first or current.parent_run_id is None:
            return
        current = instance.get_run_by_id(current.parent_run_id)


def _read_in(instance: DagsterInstance, run_id: str, pool: AssetKey, reader: AssetKey) -> ReadBounds | None:
    for entry in instance.all_logs(run_id, of_type=DagsterEventType.ASSET_OBSERVATION):
        event = entry.dagster_event
        if event is None or event.asset_key != pool:
            continue
        metadata = {name: str(value.value) for name, value in event.asset_observation_data.asset_observation.metadata.items()}
        if metadata.get(READER) == reader.to_user_string() and SINCE_COMMIT in metadata:
            since = metadata[SINCE_COMMIT]
            return ReadBounds(None if since == _BEGINNING else since, metadata[POOL_COMMIT])
    return None


def _read_before(
    instance: DagsterInstance, run: DagsterRun, pool: AssetKey, reader: AssetKey, is_published: Callable[[DagsterRun], bool]
) -> str | None:
    """Return the commit up to which earlier runs have read a pool; None where none has."""
    for record in instance.fetch_materializations(reader, limit=_MATERIALIZATIONS).records:
        run_id = record.event_log_entry.run_id
        earlier = _read_in(instance, run_id, pool, reader)
        made_by = instance.get_run_by_id(run_id)
        if earlier is not None and run_id != run.run_id and made_by is not None and is_published(made_by):
            return earlier.until
    return None
