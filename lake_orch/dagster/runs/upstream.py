"""The check that what a run reads is published: Dagster counts an asset as materialized before its run is over."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dagster import AssetRecordsFilter, DagsterEventType

from lake_core.lake.refs.session_record import FAILED, OPEN
from lake_core.readable import listed
from lake_orch.dagster.runs.gate import runs_of
from lake_orch.dagster.runs.run_session import find_record
from lake_orch.dagster.runs.visibility import (
    LakeBranch,
    Publish,
    last_shown,
    observed_publishes,
    staged_in,
    visible_publish,
)
from lake_orch.errors import UpstreamUnpublished
from lake_orch.location import table_path

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from dagster import AssetKey, DagsterInstance, EventLogRecord

    from lake_core.lake import Lake
    from lake_orch._dagster import StepExecutionContext
    from lake_orch.dagster.runs.observations import Materialized

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


def made_elsewhere(
    instance: DagsterInstance, outputs: Iterable[Materialized], runs: Collection[str]
) -> Iterator[tuple[AssetKey, str]]:
    """Yield the assets that other runs than these have made since, each with the run of its newest materialization."""
    for output in outputs:
        partitions = None if output.partition is None else [output.partition]
        for newest in newest_materializations(instance, output.key, partitions).values():
            if newest.run_id not in runs:
                yield output.key, newest.run_id


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
    shown = LakeBranch(place.branch, lambda: lake)
    newest = newest_materializations(instance, key, partitions)
    sessions = {partition: staged_in(instance, record) for partition, record in newest.items()}
    publishes = _publishes(instance, lake, key, newest, sessions)
    waiting: dict[tuple[str | None, str | None], list[str | None]] = {}
    for partition, session in sessions.items():
        publish = publishes.get(partition)
        is_own = session is not None and session == place.session
        if not is_own and (session is not None if publish is None else not shown.shows(publish)):
            waiting.setdefault((session, publish.branch if publish else None), []).append(partition)
    warnings = []
    for (session, branch), unseen in waiting.items():
        name = key.to_user_string() + ("" if partitions is None else f" ({listed(sorted(map(str, unseen)))})")
        record = None if session is None else find_record(lake, session)
        if branch == place.branch:
            why = f"The newest rows of {name} were on an earlier branch {branch}, which was deleted"
            remedy = "Materialize the asset again"
        elif branch is not None:
            why, remedy = f"The newest rows of {name} are on branch {branch}", f"Merge it into {place.branch}"
        else:
            is_kept = record is not None and record.state in (OPEN, FAILED)
            is_here = record is not None and record.branch == place.branch
            runs = runs_of(instance, session) if session is not None else ()
            rows = f"The newest rows of {name} are only staged in session {session}"
            if is_kept and is_here and all(run.is_finished for run in runs):
                raise UpstreamUnpublished(
                    f"{rows}, whose run {runs[-1].run_id if runs else ''} did not publish them. Re-execute that run "
                    "from failure, materialize the asset again, or go on with what is published by abandoning the "
                    f"session, `lake session abandon {session}`"
                )
            why = f"{rows}, " + ("whose run has not published them yet" if is_kept else "which has ended unpublished")
            remedy = "Run this again when it has" if is_kept else "Materialize the asset again"
        if not all(last_shown(instance, _filter(key, partition), shown) for partition in unseen):
            raise UpstreamUnpublished(f"{why}, and there are no older rows on branch {place.branch}. {remedy}")
        warnings.append(f"{why}: older rows are read")
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


def _publishes(
    instance: DagsterInstance,
    lake: Lake,
    key: AssetKey,
    newest: Mapping[str | None, EventLogRecord],
    sessions: Mapping[str | None, str | None],
) -> Mapping[str | None, Publish]:
    """Return the publishes of the newest materializations that have one, by partition.

    The lake knows those of the last weeks, also if nobody has observed them, and observations those before.
    """
    publishes: dict[str | None, Publish] = {}
    unknown: dict[str | None, str] = {}
    for partition, session in sessions.items():
        if session is None:
            if (publish := visible_publish(newest[partition])) is not None:
                publishes[partition] = publish
        elif (record := find_record(lake, session)) is None:
            unknown[partition] = session
        elif record.is_published:
            publishes[partition] = Publish(partition, 0.0, session, record.branch, record.commit)
    for partition, session in unknown.items():
        observed = observed_publishes(instance, _filter(key, partition))
        publish = next((each for each in observed if each.session == session), None)
        publish = publish or _publish_in_history(lake, session, newest[partition])
        if publish is not None:
            publishes[partition] = publish
    return publishes


def _publish_in_history(lake: Lake, session: str, newest: EventLogRecord) -> Publish | None:
    """Return the publish of a session that the lake has forgotten: a shell that published it is observed by nobody."""
    since = datetime.fromtimestamp(newest.timestamp, UTC)
    for branch in lake.list_branches():
        for commit in lake.log(branch, first_parent=True, since=since):
            if commit.metadata.get("session") == session:
                return Publish(None, 0.0, session, branch, commit.id)
    return None


def _filter(key: AssetKey, partition: str | None) -> AssetRecordsFilter:
    return AssetRecordsFilter(asset_key=key, asset_partitions=None if partition is None else [partition])
