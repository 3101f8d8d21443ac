"""Declarative automation conditions that wait for published data, not for staged data.

In a run with one session, an asset is materialized when its step ends, and published when the run ends, if at all.
Dagster's conditions evaluate materializations. They would start a run that reads the old state of the branch, and count
the update as handled.
"""

from typing import cast

import dagster as dg

from lake_core.workspace import PUBLISHED
from lake_orch._dagster import AssetKeyPartitionKey
from lake_orch.runs.observations import awaited_session, lacks_publish_state, value_of
from lake_orch.runs.run_session import session_of
from lake_orch.tags import SESSION_TAG
from lake_pipes.metadata import STATE

_RECORDS = 1000
"""The number of an asset's last materializations to read. Earlier ones are already published, or never will be."""


class LakeUnpublished(dg.AutomationCondition[dg.AssetKey]):
    """True for an asset, or for its partitions, if the last materialization is staged in an unpublished session.

    Conditions written in Python are evaluated where the code is:
    `dg.AutomationConditionSensorDefinition("automation", target="*", use_user_code_server=True)`.
    """

    @property
    def description(self) -> str:
        """Return the text that the UI shows for the condition."""
        return "Materialized in a session of the lake that is not published"

    def evaluate(self, context: dg.AutomationContext[dg.AssetKey]) -> dg.AutomationResult[dg.AssetKey]:
        """Select the candidates whose last materialization is staged in an unpublished session."""
        candidates = context.candidate_subset
        instance: dg.DagsterInstance = context.asset_graph_view.instance
        staged = _staged(instance, candidates.key)
        waiting = {
            partition
            for partition, session in staged.items()
            if not is_published(instance, candidates.key, session, partition)
        }
        if not candidates.is_partitioned:
            return dg.AutomationResult(
                context, true_subset=candidates if None in waiting else context.get_empty_subset()
            )
        keys = {key for key in waiting if key is not None} & candidates.expensively_compute_partition_keys()
        subset = context.asset_graph_view.get_asset_subset_from_asset_partitions(
            candidates.key, {AssetKeyPartitionKey(candidates.key, key) for key in keys}
        )
        return dg.AutomationResult(context, true_subset=subset)


def is_published(instance: dg.DagsterInstance, key: dg.AssetKey, session: str, partition: str | None) -> bool:
    """Return whether an asset, or a partition of it, was observed as published from a session."""
    records_filter = key if partition is None else dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition])
    records = instance.fetch_observations(records_filter, limit=_RECORDS).records
    entries = (record.event_log_entry.asset_observation for record in records)
    return any(
        entry is not None
        and value_of(entry.metadata, SESSION_TAG) == session
        and value_of(entry.metadata, STATE) == PUBLISHED
        for entry in entries
    )


def _staged(instance: dg.DagsterInstance, key: dg.AssetKey) -> dict[str | None, str]:
    """Map each partition whose last materialization is staged to its session.

    For an asset without partitions, the key is None.
    """
    newest: dict[str | None, str | None] = {}
    for record in instance.fetch_materializations(key, limit=_RECORDS).records:
        event = record.event_log_entry.asset_materialization
        if event is None or event.partition in newest:
            continue
        if lacks_publish_state(event):
            session = session_of(instance, record.run_id)
            newest[event.partition] = None if session is None else session.id
            continue
        newest[event.partition] = awaited_session(event)
    return {partition: session for partition, session in newest.items() if session is not None}


def lake_eager() -> dg.AutomationCondition[dg.AssetKey]:
    """Return `AutomationCondition.eager()` that waits until upstream data is published."""
    waiting = dg.AutomationCondition.any_deps_match(LakeUnpublished())
    return cast("dg.AutomationCondition[dg.AssetKey]", dg.AutomationCondition.eager() & ~waiting)
