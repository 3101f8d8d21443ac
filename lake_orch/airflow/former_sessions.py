"""What a run has published with tasks or sessions that its DAG has under other names now, or has no longer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lake_core.lake.errors import BatchesGone
from lake_core.lake.refs.commit_record import changed_datasets
from lake_orch.airflow.session_group import SessionGroup, session_around
from lake_orch.errors import InvalidDefinition
from lake_orch.runs.run import is_lasting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow.sdk import DAG

    from lake_core.lake.refs.session_record import SessionRecord
    from lake_orch.runs.run import Run


def check_former_sessions(run: Run, dag: DAG, ti: Any, path: str) -> None:
    """Check that the run of a DAG has not published rows of a dataset under the name of what the DAG has no longer.

    Nobody would take these out: a session is found by the names of its run and its group, or of its task. So what the
    run writes now would be there beside them.

    Args:
        run: The run that writes, with its metadata.
        dag: The DAG.
        ti: The task instance that writes.
        path: The path of the dataset.

    Raises:
        InvalidDefinition: It has.
    """
    for record in _former(run, dag, ti):
        refs = run.lake.repository.refs()
        if record.commit is None or not refs.has_commit(record.commit) or not _stands(run, record):
            continue
        if path in changed_datasets(refs.commit(record.commit)):
            name = record.metadata["airflow/session"]
            raise InvalidDefinition(
                f"this run has published {path} with {name!r}, which the DAG {dag.dag_id} has no longer, or "
                "in another session: both would count. Give it its name and place back, or revert the commit "
                f"{record.commit[:12]} (lake revert) and clear the run again"
            )


def _former(run: Run, dag: DAG, ti: Any) -> Iterator[SessionRecord]:
    """Yield the published sessions of a run of a DAG that are of no task or session that the DAG has."""
    keys = ("airflow/dag", "airflow/run", "airflow/instance")
    own = [run.metadata.get(key) for key in keys]
    for record in run.lake.list_sessions(include_ended=True):
        if not record.is_published or record.branch != run.branch or [record.metadata.get(key) for key in keys] != own:
            continue
        name = record.metadata.get("airflow/session", "")
        if record.renews == run.lake.session_name(ti.dag_id, ti.run_id, "session", name):
            is_there = isinstance(dag.task_group_dict.get(name), SessionGroup)
        else:
            is_there = dag.has_task(name) and session_around(dag.get_task(name).task_group) is None
        if not is_there:
            yield record


def _stands(run: Run, record: SessionRecord) -> bool:
    """Return whether something of a publish would have to be taken out: it may have been reverted, or replaced."""
    try:
        batches = run.lake.published_batches(record.renews).get(record.commit or "", ())
        return any(not is_lasting(batch.task) for batch in batches)
    except BatchesGone:
        return True
