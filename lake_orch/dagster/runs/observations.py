"""Observations of the assets in a published session.

Dagster records a materialization when a step ends, and never changes it. The session is published later, if at all, so
the materialization cannot say whether readers see the rows. An observation of the same asset and partition, in the log
of the run that publishes, says so.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dagster import (
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    DagsterEvent,
    DagsterEventType,
    MetadataValue,
)

from lake_core.workspace import PUBLISHED
from lake_orch._dagster import AssetObservationData, DagsterEventBatchMetadata
from lake_orch.assets.asset_format import asset_format_class, asset_formats
from lake_orch.assets.report import read_with
from lake_orch.dagster.metadata import dagster_metadata
from lake_orch.dagster.page_links import page_links, ui_url_of
from lake_orch.dagster.runs.gate import runs_of
from lake_orch.tags import PARTITION_ROWS, SESSION_TAG, VERSION
from lake_pipes.metadata import BRANCH, COMMIT, PATH, ROWS_WRITTEN, STATE

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from lake_core.lake import Lake
    from lake_core.lake.publish.published import Published
    from lake_orch.dagster.runs.run_session import RunSession


@dataclass(frozen=True, slots=True)
class Materialized:
    """An asset, or a partition of it, that a run materialized in a session."""

    key: AssetKey
    partition: str | None
    metadata: Mapping[str, MetadataValue[Any]]

    def observation(
        self, session: str, branch: str, published: Published, formats: Mapping[str, str]
    ) -> AssetObservation:
        """Return an observation that it is published. There is no new materialization.

        Args:
            session: The id of the session.
            branch: The branch that it was published on.
            published: The result of the publish.
            formats: The format of each dataset of the commit, by path.
        """
        path = value_of(self.metadata, PATH)
        metadata: dict[str, Any] = {STATE: PUBLISHED}
        if isinstance(path, str):
            metadata |= {VERSION: published.versions[path]} if path in published.versions else {}
            metadata |= _read_with(published.commit, path, formats.get(path))
        metadata |= {name: self.metadata[name] for name in (ROWS_WRITTEN, PARTITION_ROWS) if name in self.metadata}
        metadata |= {BRANCH: branch, COMMIT: published.commit, SESSION_TAG: session} | (
            {} if path is None else {PATH: path}
        )
        metadata |= page_links(ui_url_of(self.metadata), {COMMIT: published.commit, PATH: path})
        return AssetObservation(self.key, partition=self.partition, metadata=metadata)


def _read_with(commit: str, path: str, format: str | None) -> dict[str, Any]:
    """Return code that reads a dataset as of a commit. Empty for a format that assets are not stored in."""
    if format is None or format not in asset_formats():
        return {}
    return dagster_metadata(read_with(commit, path, asset_format_class(format).reading_code))


def report_published(instance: DagsterInstance, lake: Lake, session: RunSession, published: Published) -> None:
    """Report each asset and partition of a published session as published.

    A repeated call reports only the missing ones.
    """
    runs = runs_of(instance, session.id)
    if not runs:
        return
    branch = lake.get_session(session.id).record.branch
    formats = {path: record.format for path, record in lake.at(published.commit).datasets().items()}
    observed = {asset for run in runs for asset in _observed(instance, run.run_id, published.commit)}
    observations = [
        output.observation(session.id, branch, published, formats)
        for output in materialized(instance, session.id)
        if (output.key, output.partition) not in observed
    ]
    batch = str(uuid.uuid4())
    for number, observation in enumerate(observations, start=1):
        event = DagsterEvent(
            event_type_value=DagsterEventType.ASSET_OBSERVATION.value,
            job_name=runs[-1].job_name,
            event_specific_data=AssetObservationData(observation),
            message=f"Published as commit {published.commit[:12]} of {branch}",
        )
        end = DagsterEventBatchMetadata(batch, is_end=number == len(observations))
        instance.report_dagster_event(event, runs[-1].run_id, batch_metadata=end)


def materialized(instance: DagsterInstance, session: str) -> list[Materialized]:
    """List the last materialization of each asset and partition by the runs of a session."""
    latest = {
        (event.asset_key, event.partition): event
        for run in runs_of(instance, session)
        for event in _materializations(instance, run.run_id)
        if value_of(event.metadata, SESSION_TAG) == session or lacks_publish_state(event)
    }
    return [Materialized(key, partition, event.metadata) for (key, partition), event in latest.items()]


def lacks_publish_state(event: AssetMaterialization) -> bool:
    """Return whether a materialization has no record of publishing, as for an asset that its own code writes."""
    return not event.metadata.keys() & {STATE, COMMIT, SESSION_TAG}


def awaited_session(event: AssetMaterialization) -> str | None:
    """Return the session that a materialization is published with, or None if it was visible at once."""
    session = value_of(event.metadata, SESSION_TAG)
    return session if isinstance(session, str) and COMMIT not in event.metadata else None


def value_of(metadata: Mapping[str, MetadataValue[Any]], name: str) -> object:
    """Return a value of an event's metadata by name, or None."""
    value = metadata.get(name)
    return None if value is None else value.value


def _materializations(instance: DagsterInstance, run_id: str) -> Iterator[AssetMaterialization]:
    for entry in instance.all_logs(run_id, of_type=DagsterEventType.ASSET_MATERIALIZATION):
        if entry.asset_materialization is not None:
            yield entry.asset_materialization


def _observed(instance: DagsterInstance, run_id: str, commit: str) -> Iterator[tuple[AssetKey, str | None]]:
    """Yield the assets and partitions that a run's log reports as published with a commit."""
    for entry in instance.all_logs(run_id, of_type=DagsterEventType.ASSET_OBSERVATION):
        event = entry.asset_observation
        if event is not None and value_of(event.metadata, COMMIT) == commit:
            yield event.asset_key, event.partition
