"""The state of a branch that a run reads if each asset is published on its own: one commit for the whole run."""

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
    """Return the ref at which a run reads a dataset: its branch when the run started, or a later commit of the run.

    `path` is None for plain files, which commits do not list. A branch that is younger than the run is read at its
    head.
    """
    record = instance.get_run_record_by_id(run.run_id)
    if record is None:
        return branch
    began = (
        record.start_time or record.create_timestamp.replace(tzinfo=record.create_timestamp.tzinfo or UTC).timestamp()
    )
    for commit in lake.log(branch, first_parent=True, since=datetime.fromtimestamp(began - 1, UTC)):
        if _made_at(commit) <= began or (
            commit.metadata.get(RUN) == run.run_id and (path is None or path in changed_datasets(commit))
        ):
            return commit.id
    # All of these commits are later than the start. Take the last one before it, if the branch existed.
    older = next((commit for commit in lake.log(branch, first_parent=True) if _made_at(commit) <= began), None)
    return branch if older is None else older.id


def _made_at(commit: Commit) -> float:
    """Return the time of a commit, to the microsecond if it records that.

    A commit that came from lakeFS may have a field of this name with another meaning.
    """
    try:
        exact = datetime.fromisoformat(commit.metadata["at"])
    except (KeyError, ValueError):
        return commit.creation_date.timestamp()
    return (exact if exact.tzinfo else commit.creation_date).timestamp()
