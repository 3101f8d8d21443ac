"""The branch on which the runs of a backfill gather, and those of its re-executions from failure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dagster import RunsFilter

from lake_orch.dagster.runs.lineage import MAX_ANCESTORS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagster import DagsterInstance, DagsterRun

    from lake_orch._dagster import PartitionBackfill

BACKFILL_TAG = "dagster/backfill"
_PARENT_TAG, _ROOT_TAG = "dagster/parent_backfill_id", "dagster/root_backfill_id"
_BRANCH = re.compile(r"backfill-(?P<backfill>[^-]+)-into-(?P<into>.+)")


def gathering_branch(instance: DagsterInstance, tags: Mapping[str, str], into: str) -> str:
    """Return the branch on which a run of a backfill gathers, by the tags of the run.

    A backfill that is re-executed from failure is a new backfill for what the first one lacks: its runs gather on the
    branch of the first. One that is re-executed as a whole starts over.

    Args:
        instance: Dagster's instance.
        tags: The tags of the run.
        into: The branch that it begins at, and into which it is merged: deployments on several branches of a lake may
            share the instance.
    """
    return f"backfill-{_gathered_as(instance, tags)}-into-{into}"


def gathered(branch: str) -> tuple[str, str] | None:
    """Return the backfill that gathers on a branch, and the branch to merge it into; None for other branches."""
    match = _BRANCH.fullmatch(branch)
    return None if match is None else (match["backfill"], match["into"])


def is_backfilled_again(instance: DagsterInstance, run: DagsterRun, earlier: DagsterRun) -> bool:
    """Return whether a run is of a backfill that re-executes that of an earlier run from failure."""
    ids = [each.tags.get(BACKFILL_TAG) for each in (run, earlier)]
    if None in ids or ids[0] == ids[1]:
        return False
    return _gathered_as(instance, run.tags) == _gathered_as(instance, earlier.tags)


def _gathered_as(instance: DagsterInstance, tags: Mapping[str, str]) -> str:
    """Return the id of the first backfill that a run's backfill continues."""
    backfill = instance.get_backfill(tags[BACKFILL_TAG]) if _PARENT_TAG in tags else None
    return tags[BACKFILL_TAG] if backfill is None else _first(instance, backfill)


def last_of(instance: DagsterInstance, first: PartitionBackfill) -> PartitionBackfill:
    """Return the last of the backfills that gather on the branch of the first one."""
    root = first.tags.get(_ROOT_TAG, first.backfill_id)
    ids = {run.tags.get(BACKFILL_TAG, "") for run in instance.get_runs(RunsFilter(tags={_ROOT_TAG: root}))}
    later = [backfill for id in sorted(ids) if (backfill := instance.get_backfill(id)) is not None]
    return max(
        (first, *(each for each in later if _first(instance, each) == first.backfill_id)),
        key=lambda backfill: backfill.backfill_timestamp,
    )


def _first(instance: DagsterInstance, backfill: PartitionBackfill) -> str:
    """Return the first backfill of those that a backfill continues."""
    for _ in range(MAX_ANCESTORS):
        parent = instance.get_backfill(backfill.tags.get(_PARENT_TAG, ""))
        if parent is None or not _continues(backfill, parent):
            break
        backfill = parent
    return backfill.backfill_id


def _continues(backfill: PartitionBackfill, parent: PartitionBackfill) -> bool:
    """Return whether a backfill re-executes its parent from failure. Backfills of assets do not record that."""
    again, before = backfill.asset_backfill_data, parent.asset_backfill_data
    if again is None or before is None:
        return backfill.from_failure
    target, materialized = again.target_subset, before.materialized_subset
    # The intersection of two such subsets would keep assets that only one of them has.
    shared = target.asset_keys & materialized.asset_keys
    both = target.filter_asset_keys(shared) & materialized.filter_asset_keys(shared)
    return both.num_partitions_and_non_partitioned_assets == 0
