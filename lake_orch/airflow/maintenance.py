"""`maintenance_dag`: compaction, checkpoints, vacuum, collection and the sessions that nobody closed, as a DAG."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf
from airflow.sdk import DAG, get_current_context, task

from lake_orch.airflow.hook import DEFAULT_BRANCH, DEFAULT_CONNECTION, LakeHook

if TYPE_CHECKING:
    from lake_core.lake.refs.session_record import SessionRecord
    from lake_orch.airflow.hook import LakePlace

_log = logging.getLogger(__name__)
_OVER = ("success", "failed")
"""The states of a run in which none of its tasks will write."""


def maintenance_dag(
    connection: str = DEFAULT_CONNECTION,
    *,
    schedule: Any = "0 3 * * *",
    dag_id: str | None = None,
    paths: Sequence[str] | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    dry_run: bool = False,
    keep_failed_for: timedelta = timedelta(hours=24),
    **options: Any,
) -> DAG:
    """Make a DAG that maintains a lake: the same tasks that Dagster's maintenance assets have.

    It settles the sessions of runs that have ended and never closed them, maintains each dataset in a task of its own,
    and then collects what no branch, tag, session or kept commit reaches.

    Args:
        connection: The id of a connection of the type `lake`.
        schedule: When it runs.
        dag_id: The id of the DAG. The default names the connection.
        paths: The datasets to maintain. The default is all of the branch.
        settings: Settings of single datasets by path, such as `{"tables/orders": {"zorder_by": ["customer"]}}`.
        dry_run: Whether it only reports what it would do.
        keep_failed_for: How long a session stays readable that is settled.
        options: Further options of the `DAG`.
    """
    chosen = {path: dict(each) for path, each in (settings or {}).items()}
    dag_options = {
        "start_date": datetime(2026, 1, 1),
        "catchup": False,
        "max_active_runs": 1,
        "tags": ["lake"],
        **options,
    }
    dag: DAG = DAG(dag_id=dag_id or f"lake_maintenance_{connection}", schedule=schedule, **dag_options)
    with dag:

        @task
        def settle() -> list[str]:
            """Fail the sessions of runs that have ended and never closed them."""
            return settle_sessions(connection, keep_failed_for)

        @task
        def datasets() -> list[dict[str, str]]:
            """List the datasets to maintain."""
            return list_datasets(connection, paths)

        @task(map_index_template="{{ task.op_kwargs['dataset']['path'] }}")
        def maintain(dataset: dict[str, str]) -> dict[str, Any]:
            """Do what a dataset needs: compact, write checkpoints, vacuum."""
            return maintain_dataset(
                connection, dataset["path"], dataset["format"], chosen.get(dataset["path"], {}), dry_run=dry_run
            )

        @task(trigger_rule="all_done")
        def collect() -> dict[str, int]:
            """Delete what nothing reaches."""
            result = LakeHook(connection).open().maintenance.gc(dry_run=dry_run)
            return {"files": len(result.keys), "bytes": result.bytes, "commits": result.commits}

        @task
        def end() -> None:
            """Fail the run if one of its tasks has failed: `collect` runs nevertheless."""

        settled, maintained, collected = settle(), maintain.expand(dataset=datasets()), collect()
        settled >> maintained >> collected
        [settled, maintained, collected] >> end()
    return dag


def settle_sessions(connection: str, keep: timedelta) -> list[str]:
    """Fail the open sessions of runs of this Airflow that have ended, and return their ids. What they hold is kept."""
    hook = LakeHook(connection)
    lake, ti = hook.open(), get_current_context()["ti"]
    settled = []
    for record in lake.list_sessions():
        if record.state != "open" or record.metadata.get("airflow/instance") != hook.instance():
            continue
        state = _state_of_run(ti, record)
        if state is None and not conf.get("api", "base_url", fallback=""):
            _log.warning(
                "session %s may be of another Airflow, as this one knows no run %s: set [api] base_url, by which they "
                "are told apart",
                record.id,
                record.metadata["airflow/run"],
            )
            continue
        if state is None or state in _OVER:
            reason = f"run {record.metadata['airflow/run']} is {state or 'gone'}, and never closed its session"
            lake.get_session(record.id).fail(reason, keep=keep)
            settled.append(record.id)
            _log.warning("session %s is failed: %s. It is kept for %s", record.id, reason, keep)
    return settled


def _state_of_run(ti: Any, record: SessionRecord) -> str | None:
    """Return the state of the run of a session, or None if there is no such run any longer."""
    from airflow.sdk.exceptions import AirflowRuntimeError

    try:
        state = ti.get_dagrun_state(record.metadata["airflow/dag"], record.metadata["airflow/run"])
    except AirflowRuntimeError as error:
        if (error.error.detail or {}).get("status_code") != HTTPStatus.NOT_FOUND:
            raise
        return None
    return str(getattr(state, "value", state))


def list_datasets(connection: str, paths: Sequence[str] | None) -> list[dict[str, str]]:
    """List the datasets of a lake's branch that have maintenance, or some of them."""
    from lake_orch.assets.maintenance import maintained_formats
    from lake_orch.errors import InvalidDefinition

    place = LakeHook(connection).place()
    known = maintained_formats()
    datasets = {
        record.path: {"path": record.path, "format": record.format}
        for record in place.open().list_datasets(DEFAULT_BRANCH)
        if record.format in known
    }
    missing = sorted(set(paths or ()) - datasets.keys())
    if missing:
        raise InvalidDefinition(f"the lake has no dataset {missing[0]!r} to maintain: see `lake ls`")
    return [each for path, each in sorted(datasets.items()) if paths is None or path in paths]


def maintain_dataset(
    connection: str, path: str, format: str, settings: Mapping[str, Any], *, dry_run: bool
) -> dict[str, Any]:
    """Do the default tasks of a dataset's format, and return what they did, by task.

    Raises:
        InvalidDefinition: The format has no such setting.
    """
    from lake_orch.assets.maintenance import MaintainedDataset, TaskContext, maintenance_of

    place = LakeHook(connection).place()
    maintenance = maintenance_of(format)
    target = MaintainedDataset(path, format=format, **settings)
    target.check()
    context = TaskContext(_Opened(place), target, _Config(dry_run), DEFAULT_BRANCH)
    results = {name: maintenance.tasks[name](context) for name in maintenance.regular_tasks()}
    return {
        task: {name: value for name, value in metadata.items() if isinstance(value, (bool, int, float, str))}
        for task, metadata in results.items()
    }


class _Config:
    """The configuration of the tasks of a run."""

    where = None

    def __init__(self, dry_run: bool) -> None:
        self.dry_run = dry_run


class _Opened:
    """The lake that is maintained."""

    def __init__(self, place: LakePlace) -> None:
        self._place = place
        self._lake: Any = None

    def is_lake(self) -> bool:
        """Return True: a connection names a lake."""
        return True

    def open(self) -> Any:
        """Open the lake."""
        if self._lake is None:
            self._lake = self._place.open()
        return self._lake

    def read(self, path: str, format: str, run: None, *, ref: str | None = None) -> Any:
        """Open a dataset. Raises DatasetNotFound."""
        lake = self.open()
        return lake.at(ref).open(path, format) if ref is not None else lake.open(path, format)
