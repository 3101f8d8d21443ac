"""What a run reads of a lake.

If each asset is published on its own, the whole run reads one commit of its branch. In a serializable lake, what a step
reads is recorded for the session that publishes it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary

from lake_core.lake.refs.commit_record import changed_datasets
from lake_core.lake.session.read_record import ReadRecord
from lake_core.lake.session.shared_session import SharedSession
from lake_orch.dagster.runs.lineage import time_made
from lake_orch.tags import RUN

if TYPE_CHECKING:
    from dagster import DagsterInstance, DagsterRun

    from lake_core.graveler import Commit
    from lake_core.lake import Lake
    from lake_orch._dagster import StepExecutionContext
    from lake_orch.dagster.runs.run_session import RunSession

StepReads: TypeAlias = ReadRecord | SharedSession
"""What records the reads of a step: the session of its run, or a record for the sessions that it opens."""

_reads: WeakKeyDictionary[object, dict[str, StepReads | None]] = WeakKeyDictionary()
"""What records the reads of each step, by the id of the lake."""


def pinned(lake: Lake, branch: str, path: str | None, instance: DagsterInstance, run: DagsterRun) -> str:
    """Return the ref at which a run reads a dataset: its branch when the run started, or a later commit of the run.

    `path` is None for plain files, which commits do not list. A branch that is younger than the run is read at its
    head.
    """
    record = instance.get_run_record_by_id(run.run_id)
    if record is None:
        return branch
    began = record.start_time or time_made(record).timestamp()
    for commit in lake.log(branch, first_parent=True, since=datetime.fromtimestamp(began - 1, UTC)):
        if _made_at(commit) <= began or (
            commit.metadata.get(RUN) == run.run_id and (path is None or path in changed_datasets(commit))
        ):
            return commit.id
    # All of these commits are later than the start. Take the last one before it, if the branch existed.
    older = next((commit for commit in lake.log(branch, first_parent=True) if _made_at(commit) <= began), None)
    return branch if older is None else older.id


def reads_of(step: StepExecutionContext, lake: Lake, find_session: Callable[[], RunSession | None]) -> StepReads | None:
    """Return what records the reads of a step, or None if the lake is not serializable.

    `find_session` returns the session of the step's run, or None if it has none.
    """
    records = _reads.setdefault(step, {})
    if lake.id not in records:
        session = find_session()
        if session is not None:
            handle = lake.get_session(session.id, epoch=session.epoch)
            records[lake.id] = handle if handle.record.isolation == "serializable" else None
        else:
            records[lake.id] = ReadRecord() if lake.settings.isolation == "serializable" else None
    return records[lake.id]


def recorder(reads: StepReads, ref: str | None, branch: str) -> Callable[[str, str], None] | None:
    """Return the function that records reads of a ref, or None for a ref whose changes the publish cannot meet.

    `ref` is None for the state of the run. `branch` is that of the run. What a step reads of another branch or of a
    tag, because its code says so, is not recorded.
    """
    if isinstance(reads, ReadRecord):
        return reads.add if ref in (None, branch) else None
    return reads.rely_on if ref in (None, reads.branch, reads.id) else None


def _made_at(commit: Commit) -> float:
    """Return the time of a commit, to the microsecond if it records that.

    A commit that came from lakeFS may have a field of this name with another meaning.
    """
    try:
        exact = datetime.fromisoformat(commit.metadata["at"])
    except (KeyError, ValueError):
        return commit.creation_date.timestamp()
    return (exact if exact.tzinfo else commit.creation_date).timestamp()
