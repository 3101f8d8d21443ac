"""Declarative automation conditions that wait for published data, not for staged data.

In a run with one session, an asset is materialized when its step ends, and published when the run ends, if at all.
Dagster's conditions evaluate materializations. They would start a run that reads the old state of the branch, and count
the update as handled.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast
from weakref import WeakKeyDictionary

import dagster as dg

from lake_core.errors import LakeError
from lake_orch._dagster import AssetGraphView, AssetKeyPartitionKey, EntitySubset, resources_of_asset
from lake_orch.dagster.runs.visibility import LakeBranch, Publish, Unseen, awaited, last_made, publishes_after
from lake_orch.errors import InvalidDefinition
from lake_orch.jobs.resource_of_run import find_lake, key_of_lake

_branches: WeakKeyDictionary[AssetGraphView, dict[int, LakeBranch]] = WeakKeyDictionary()
"""The branches that an evaluation has looked up, by the definition of the resource."""

_unseen: WeakKeyDictionary[
    AssetGraphView, dict[tuple[dg.AssetKey, dg.AssetKey], tuple[LakeBranch, dict[str | None, Unseen]]]
] = WeakKeyDictionary()
"""What an evaluation has found by `_waiting`, by the asset and the one with the condition: each condition asks anew."""


class LakeUnpublished(dg.AutomationCondition[dg.AssetKey]):
    """True for an asset, or for its partitions, if readers do not see the last materialization yet.

    It is staged in a session that is not published, or it is published on a branch other than that of the asset's
    `LakeResource`, and has not reached it by a merge, a squash or a cherry-pick. A branch that was deleted without any
    of these is not waited for.

    Conditions written in Python are evaluated where the code is:
    `dg.AutomationConditionSensorDefinition("automation", target="*", use_user_code_server=True)`.
    """

    @property
    def description(self) -> str:
        """Return the text that the UI shows for the condition."""
        return "Materialized in a session of the lake that is not published, or on another branch"

    def evaluate(self, context: dg.AutomationContext[dg.AssetKey]) -> dg.AutomationResult[dg.AssetKey]:
        """Select the candidates whose last materialization readers do not see yet."""
        _, waiting = _waiting(context)
        return dg.AutomationResult(context, true_subset=_subset(context, waiting))


class LakePublished(dg.AutomationCondition[dg.AssetKey]):
    """True for an asset, or for its partitions, if readers see since the last evaluation what was staged before.

    What the asset with the condition was materialized after does not count, and neither does a publish of a session in
    which that was materialized too. Like `LakeUnpublished`, it is evaluated where the code is.
    """

    @property
    def description(self) -> str:
        """Return the text that the UI shows for the condition."""
        return "Published in the lake since the last evaluation"

    def evaluate(self, context: dg.AutomationContext[dg.AssetKey]) -> dg.AutomationResult[dg.AssetKey]:
        """Select the candidates whose last materialization readers see now."""
        key, instance = context.candidate_subset.key, context.asset_graph_view.instance
        branch, waiting = _waiting(context)
        before = _Looked.parse(context.cursor)
        publishes, seen = publishes_after(instance, key, before.seen)
        new = [each for each in publishes if branch.shows(each)] if before.seen is not None else []
        # What was merged, for which there is no event. It may have been at any time since the last evaluation.
        observed = {(each.partition, each.session) for each in new}
        now = context.evaluation_time.timestamp()
        new += [
            Publish(partition, now, session)
            for partition, session in before.waiting.items() - observed
            if partition not in waiting and not branch.has_discarded(session)
        ]
        last_of_root = last_made(instance, context.root_context.key) if new else {}
        own = {session for session, _ in last_of_root.values() if session}
        shown = {
            each.partition
            for each in new
            if each.session not in own
            and any(
                each.timestamp > last_of_root.get(partition, (None, 0.0))[1]
                for partition in _dependent_partitions(context, each.partition)
            )
        }
        looked = _Looked(seen, {partition: each.session for partition, each in waiting.items()})
        return dg.AutomationResult(context, true_subset=_subset(context, shown), cursor=looked.text())


@dataclass(frozen=True)
class _Looked:
    """What an evaluation has seen, for the next one."""

    seen: int | None = None
    """The number of the last event that observed a publish, 0 without any; None before the first evaluation."""
    waiting: Mapping[str | None, str | None] = field(default_factory=dict)
    """The sessions of what readers did not see, by partition."""

    @classmethod
    def parse(cls, text: str | None) -> "_Looked":
        if text is None:
            return cls()
        seen, waiting = json.loads(text)
        return cls(seen, dict(waiting))

    def text(self) -> str:
        return json.dumps([self.seen, list(self.waiting.items())])


def _waiting(context: dg.AutomationContext[dg.AssetKey]) -> tuple[LakeBranch, dict[str | None, Unseen]]:
    """Return the branch that readers of the candidates see, and what they do not see of them yet."""
    known = _unseen.setdefault(context.asset_graph_view, {})
    keys = (context.candidate_subset.key, context.root_context.key)
    if keys not in known:
        known[keys] = _look(context)
    return known[keys]


def _look(context: dg.AutomationContext[dg.AssetKey]) -> tuple[LakeBranch, dict[str | None, Unseen]]:
    key, instance = context.candidate_subset.key, context.asset_graph_view.instance
    branch, reason = _branch_of(context)
    try:
        waiting = awaited(instance, key, branch)
    except LakeError as error:
        branch, reason = LakeBranch(branch.name), str(error)
        waiting = awaited(instance, key, branch)
    elsewhere = {each.publish.branch for each in waiting.values() if each.publish is not None}
    if elsewhere and branch.open is None:
        context.log.warning(
            f"{key.to_user_string()} was published on {', '.join(sorted(map(str, elsewhere)))}, and its lake, which "
            f"knows whether {branch.name} has that, cannot be asked: it counts as unpublished. Give the assets a "
            f"LakeResource that this process can open ({reason})"
        )
    return branch, waiting


def _dependent_partitions(context: dg.AutomationContext[dg.AssetKey], partition: str | None) -> Collection[str | None]:
    """Return the partitions of the asset with the condition that are made from one of the candidates' asset."""
    view, key, root = context.asset_graph_view, context.candidate_subset.key, context.root_context.key
    if view.asset_graph.get(root).partitions_def is None:
        return (None,)
    if partition is not None and root not in view.asset_graph.get(key).child_entity_keys:
        return (partition,)  # Dagster maps partitions only where an asset names the other one as its dependency
    candidates = AssetKeyPartitionKey(key, partition)
    subset = view.get_asset_subset_from_asset_partitions(key, {candidates})
    return view.compute_child_subset(root, subset).expensively_compute_partition_keys()


def _subset(context: dg.AutomationContext[dg.AssetKey], partitions: Iterable[str | None]) -> EntitySubset[dg.AssetKey]:
    """Return the candidates with these partitions. The key is None without any."""
    candidates = context.candidate_subset
    if not candidates.is_partitioned:
        return candidates if None in partitions else context.get_empty_subset()
    keys = {key for key in partitions if key is not None} & candidates.expensively_compute_partition_keys()
    return context.asset_graph_view.get_asset_subset_from_asset_partitions(
        candidates.key, {AssetKeyPartitionKey(candidates.key, key) for key in keys}
    )


def _branch_of(context: dg.AutomationContext[dg.AssetKey]) -> tuple[LakeBranch, str]:
    """Return the branch that the readers of an asset read, and why its lake is not known.

    That is the branch of the asset's own lake or, if it has none, of the lake of the asset that has the condition.
    """
    view, reason = context.asset_graph_view, "no resource is a lake"
    known = _branches.setdefault(view, {})
    for key in dict.fromkeys([context.key, context.root_context.key]):
        resources = resources_of_asset(view, key)
        try:
            definition = id(resources[key_of_lake(key.to_user_string(), resources)])
            if definition not in known:
                with find_lake(resources, key.to_user_string(), view.instance) as lake:
                    known[definition] = LakeBranch(lake.branch, lake.open)
            return known[definition], ""
        except (InvalidDefinition, dg.DagsterError) as error:
            # A process that evaluates conditions may lack what the resource needs, such as a secret.
            reason = str(error)
    return LakeBranch(), reason


def lake_eager() -> dg.AutomationCondition[dg.AssetKey]:
    """Return `AutomationCondition.eager()` that waits until upstream data is published, and starts when it is."""
    conditions = dg.AutomationCondition
    published = conditions.any_deps_match(LakePublished())
    # What is published later than the asset was requested or made is still to be handled.
    handled = (conditions.newly_requested() | conditions.newly_updated()) & ~published
    updated = (conditions.newly_missing() | conditions.any_deps_updated()).since_last_handled()
    eager = conditions.eager().replace(updated, updated | published.since(handled | conditions.initial_evaluation()))
    return cast("dg.AutomationCondition[dg.AssetKey]", eager & ~conditions.any_deps_match(LakeUnpublished()))
