"""The check that what a run reads is published: Dagster counts an asset as materialized before its run is over."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from dagster import AssetRecordsFilter, DagsterEventType

from lake_core.lake.errors import SessionNotFound
from lake_core.lake.refs.session_record import FAILED, OPEN
from lake_core.readable import listed
from lake_orch.errors import UpstreamUnpublished
from lake_orch.location import table_path
from lake_orch.runs.gate import runs_of
from lake_orch.runs.visibility import observed_publishes, staged_in, visible_at_once

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagster import AssetKey, DagsterInstance, EventLogRecord

    from lake_core.lake import Lake
    from lake_core.lake.refs.session_record import SessionRecord
    from lake_orch._dagster import StepExecutionContext

_RECORDS = 500
"""The number of events in one query."""


@dataclass(frozen=True, slots=True)
class RunPlace:
    """Where a run reads and writes."""

    branch: str
    session: str | None = None
    """The session of the run, if it has one."""


def newest_materializations(
    instance: DagsterInstance, key: AssetKey, partitions: Sequence[str] | None
) -> Mapping[str | None, EventLogRecord]:
    """Return the event of the newest materialization of each of some partitions that have one.

    For an asset without partitions, the key is None.
    """
    if partitions is None:
        records = instance.fetch_materializations(key, limit=1).records
        return {None: records[0]} if records else {}
    few = set(partitions) if len(partitions) <= _RECORDS else None
    ids = instance.get_latest_storage_id_by_partition(key, DagsterEventType.ASSET_MATERIALIZATION, few)
    newest = [ids[partition] for partition in partitions if partition in ids]
    return {
        record.partition_key: record
        for first in range(0, len(newest), _RECORDS)
        for record in instance.fetch_materializations(
            AssetRecordsFilter(asset_key=key, storage_ids=newest[first : first + _RECORDS]), limit=_RECORDS
        ).records
    }


def check_published(
    instance: DagsterInstance,
    lake: Lake,
    key: AssetKey,
    partitions: Sequence[str] | None,
    place: RunPlace,
) -> str | None:
    """Check that a run may read an asset, and return a warning if it has newer rows that are not published.

    Args:
        instance: The Dagster instance.
        lake: The lake.
        key: The asset.
        partitions: The partitions to read; None for an asset without partitions.
        place: Where the run reads and writes.

    Raises:
        UpstreamUnpublished: Newer rows are kept in the session of a run that has ended, or the asset has no rows that
            were ever published.
    """
    waiting: dict[str, list[str | None]] = {}
    for partition, newest in newest_materializations(instance, key, partitions).items():
        session = staged_in(instance, newest)
        if session is not None and session != place.session:
            waiting.setdefault(session, []).append(partition)
    warnings = []
    for session, staged in waiting.items():
        record = _record(lake, session)
        if record is None:
            staged = [partition for partition in staged if not _was_published(instance, key, partition, session)]
        elif record.is_published or record.branch != place.branch:
            continue
        if not staged:
            continue
        name = key.to_user_string() + ("" if partitions is None else f" ({listed(sorted(map(str, staged)))})")
        rows = f"The newest rows of {name} are only staged in session {session}"
        runs = runs_of(instance, session)
        if record is not None and record.state in (OPEN, FAILED) and all(run.is_finished for run in runs):
            raise UpstreamUnpublished(
                f"{rows}, whose run {runs[-1].run_id if runs else ''} did not publish them. Re-execute that run from "
                "failure, materialize the asset again, or go on with what is published by abandoning the session, "
                f"`lake session abandon {session}`"
            )
        ended = record is None or record.state not in (OPEN, FAILED)
        why = "which has ended unpublished" if ended else "whose run has not published them yet"
        if not all(_was_published(instance, key, partition) for partition in staged):
            remedy = "Materialize the asset again" if ended else "Run this again when it has"
            raise UpstreamUnpublished(f"{rows}, {why}, and there are no older rows. {remedy}")
        warnings.append(f"{rows}, {why}: older rows are read")
    return "; ".join(warnings) or None


def check_dependency_published(step: StepExecutionContext, lake: Lake, path: str, place: RunPlace) -> str | None:
    """Check that the code of a step may read the table of one of its asset's dependencies, as `check_published` does.

    Nothing is checked for a path that is not that of a dependency.
    """
    layer = step.job_def.asset_layer
    assets = layer.get_assets_def_for_node(step.node_handle)
    for name, key in (assets.node_keys_by_input_name if assets else {}).items():
        node = layer.get(key)
        if table_path(key.path, node.metadata) == path:
            subset = step.asset_partitions_subset_for_input(name) if node.partitions_def else None
            partitions = None if subset is None else [str(partition) for partition in subset.get_partition_keys()]
            return check_published(step.instance, lake, key, partitions, place)
    return None


def _was_published(instance: DagsterInstance, key: AssetKey, partition: str | None, session: str | None = None) -> bool:
    """Return whether an asset, or a partition of it, was ever published, or published from a session."""
    wanted = AssetRecordsFilter(asset_key=key, asset_partitions=None if partition is None else [partition])
    if session is not None:
        return any(publish.session == session for publish in observed_publishes(instance, wanted))
    publishes = chain(observed_publishes(instance, wanted), visible_at_once(instance, wanted))
    return next(publishes, None) is not None


def _record(lake: Lake, session: str) -> SessionRecord | None:
    try:
        return lake.get_session(session).record
    except SessionNotFound:
        return None
