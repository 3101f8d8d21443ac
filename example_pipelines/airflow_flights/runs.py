"""Runs of the DAGs without a scheduler: their tasks run one after another in this process, as in `dag.test()`.

What people do to a run, such as to clear a task, goes through Airflow's own API, which stands in this process too.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import quote

from airflow import settings
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.sdk import timezone
from airflow.sdk.definitions.dag import _run_task
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.state import DagRunState, TaskInstanceState
from sqlalchemy import select


@cache
def api() -> Any:
    """Return a client of Airflow's API, as an administrator."""
    from airflow.api_fastapi.app import create_app
    from fastapi.testclient import TestClient

    client = TestClient(create_app(apps="core"), base_url="http://testserver")
    token = client.get("/auth/token").json()["access_token"]
    client.headers["Authorization"] = f"Bearer {token}"
    return client


@cache
def dags() -> Mapping[str, Any]:
    """Return the DAGs of the folder, which are also in the database."""
    manager = DagBundlesManager()
    with settings.Session() as session:
        manager.sync_bundles_to_db(session=session)
        session.commit()
    (bundle,) = manager.get_all_dag_bundles()
    bundle.initialize()
    bag = BundleDagBag(dag_folder=bundle.path, bundle_path=bundle.path, bundle_name=bundle.name)
    if bag.import_errors:
        raise ImportError(str(bag.import_errors))
    sync_bag_to_db(bag, bundle.name, bundle.version)
    return dict(bag.dags)


class Run:
    """One run of a DAG."""

    def __init__(self, dag_id: str, run_id: str) -> None:
        self.dag, self.run_id = dags()[dag_id], run_id
        self._scheduled = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(self.dag))
        self._path = f"/dags/{dag_id}/dagRuns/{quote(run_id)}"

    @classmethod
    def trigger(
        cls,
        dag_id: str,
        run_id: str,
        interval: tuple[datetime, datetime] | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> Run:
        """Make a run, for a data interval."""
        dags()
        body: dict[str, Any] = {"dag_run_id": run_id, "logical_date": None, "conf": dict(conf or {})}
        if interval is not None:
            start, end = (each.isoformat() for each in interval)
            body |= {"logical_date": start, "data_interval_start": start, "data_interval_end": end}
        _call("POST", f"/dags/{dag_id}/dagRuns", body)
        return cls(dag_id, run_id)

    # What people do

    def clear(self, *tasks: str, downstream: bool = False, only_failed: bool = False) -> None:
        """Clear tasks, or all."""
        body = {
            "dag_run_id": self.run_id,
            "dry_run": False,
            "only_failed": only_failed,
            "only_running": False,
            "include_downstream": downstream,
            "reset_dag_runs": True,
            **({"task_ids": list(tasks)} if tasks else {}),
        }
        _call("POST", f"/dags/{self.dag.dag_id}/clearTaskInstances", body)

    def mark_failed(self, task: str) -> None:
        """Mark a task as failed."""
        _call("PATCH", f"{self._path}/taskInstances/{task}", {"new_state": "failed"})

    # What the scheduler does

    def state_of(self, task: str) -> str | None:
        """Return the state of a task."""
        state: str | None = _call("GET", f"{self._path}/taskInstances/{task}")["state"]
        return state

    def finish(self) -> str:
        """Run the tasks that are ready, one after another, until the run has ended. Return its state."""
        with settings.Session() as session:
            of_dag = DagRun.run_id == self.run_id, DagRun.dag_id == self.dag.dag_id
            run = session.scalars(select(DagRun).where(*of_dag)).one()
            run.dag = self._scheduled
            if run.state == DagRunState.QUEUED:
                run.state = DagRunState.RUNNING
                session.commit()
            while run.state == DagRunState.RUNNING:
                session.expire_all()
                ready, _ = run.update_state(session=session)
                for each in ready:
                    each.try_number += 1
                    each.state = TaskInstanceState.SCHEDULED
                    each.scheduled_dttm = timezone.utcnow()
                session.commit()
                of_run = TaskInstance.run_id == self.run_id, TaskInstance.dag_id == self.dag.dag_id
                waiting = select(TaskInstance).where(*of_run, TaskInstance.state == TaskInstanceState.SCHEDULED)
                for each in sorted(session.scalars(waiting), key=lambda each: each.task_id):
                    _run_task(ti=each, task=self.dag.task_dict[each.task_id])
                    session.commit()
            return str(run.state)


def _call(method: str, path: str, body: Any = None) -> Any:
    response = api().request(method, f"/api/v2{path}", json=body)
    if not response.is_success:
        raise RuntimeError(f"{method} {path}: {response.status_code} {response.text}")
    return response.json()


if __name__ == "__main__":
    dag_id, run_id = sys.argv[1:]
    Run(dag_id, run_id).finish()
