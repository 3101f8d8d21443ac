"""Declarative automation conditions that wait for published data, not for staged data.

In a run with one session, an asset is materialized when its step ends, and published when the run ends, if at all.
Dagster's conditions evaluate materializations. They would start a run that reads the old state of the branch, and count
the update as handled.
"""

from typing import cast
from weakref import WeakKeyDictionary

import dagster as dg

from lake_core.errors import LakeError
from lake_orch._dagster import AssetGraphView, AssetKeyPartitionKey, resources_of_asset
from lake_orch.dagster.runs.visibility import LakeBranch, awaited
from lake_orch.errors import InvalidDefinition
from lake_orch.jobs.resource_of_run import find_lake, key_of_lake

_branches: WeakKeyDictionary[AssetGraphView, dict[int, LakeBranch]] = WeakKeyDictionary()
"""The branches that an evaluation has looked up, by the definition of the resource."""


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
        candidates = context.candidate_subset
        branch, reason = _branch_of(context)
        instance: dg.DagsterInstance = context.asset_graph_view.instance
        try:
            waiting = awaited(instance, candidates.key, branch)
        except LakeError as error:
            branch, reason = LakeBranch(branch.name), str(error)
            waiting = awaited(instance, candidates.key, branch)
        elsewhere = {each.publish.branch for each in waiting.values() if each.publish is not None}
        if elsewhere and branch.open is None:
            context.log.warning(
                f"{candidates.key.to_user_string()} was published on {', '.join(sorted(map(str, elsewhere)))}, and its "
                f"lake, which knows whether {branch.name} has that, cannot be asked: it counts as unpublished. Give "
                f"the assets a LakeResource that this process can open ({reason})"
            )
        if not candidates.is_partitioned:
            return dg.AutomationResult(
                context, true_subset=candidates if None in waiting else context.get_empty_subset()
            )
        keys = {key for key in waiting if key is not None} & candidates.expensively_compute_partition_keys()
        subset = context.asset_graph_view.get_asset_subset_from_asset_partitions(
            candidates.key, {AssetKeyPartitionKey(candidates.key, key) for key in keys}
        )
        return dg.AutomationResult(context, true_subset=subset)


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
    """Return `AutomationCondition.eager()` that waits until upstream data is published."""
    waiting = dg.AutomationCondition.any_deps_match(LakeUnpublished())
    return cast("dg.AutomationCondition[dg.AssetKey]", dg.AutomationCondition.eager() & ~waiting)
