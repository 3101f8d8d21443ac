"""Which state of a branch a run reads, where each asset is published by itself: one commit, however long the run takes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lake_core.lake.refs.commit_record import changed_datasets
from lake_orch.tags import RUN

if TYPE_CHECKING:
    from dagster import DagsterInstance, DagsterRun

    from lake_core.graveler import Commit
    from lake_core.lake import Lake


def pinned(lake: Lake, branch: str, path: str | None, instance: DagsterInstance, run: DagsterRun) -> str:
    """Find the ref at which a run reads a dataset: the branch when the run began; what the run itself has published goes before.

    `path` None: what is read are plain files, of which commits do not tell one by one. A branch that is younger than the run is read
    as it is.
    """
    record = instance.get_run_record_by_id(run.run_id)
    if record is None:
        return branch
    began = record.start_time or record.create_timestamp.replace(tzinfo=record.create_timestamp.tzinfo or UTC).timestamp()
    for commit in lake.log(branch, first_parent=True, since=datetime.fromtimestamp(began - 1, UTC)):
        if _made_at(commit) <= began or (commit.metadata.get(RUN) == run.run_id and (path is None or path in changed_datasets(commit))):
            return commit.id
    # All commits since then came later: the one before them, if the branch was there.
    older = next((commit for commit in lake.log(branch, first_parent=True) if _made_at(commit) <= began), None)
    return branch if older is None else older.id


def _made_at(commit: Commit) -> float:
    """Return when a commit was made: to the microsecond, if it records that."""
    exact = commit.metadata.get("at")
    return (commit.creation_date if exact is None else datetime.fromisoformat(exact)).timestamp()
