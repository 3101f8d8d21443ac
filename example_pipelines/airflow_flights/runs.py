"""Runs of DAGs without a scheduler: their tasks run one after another in this process, as in `dag.test()`.

What people do to a run, such as to clear a task, goes through Airflow's own API, which stands in this process too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import quote

from airflow import settings
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.providers.standard.version_compat import AIRFLOW_V_3_2_PLUS
from airflow.sdk import timezone
from airflow.sdk.definitions.dag import _run_task
from airflow.utils.state import DagRunState, TaskInstanceState
from sqlalchemy import select

from example_pipelines.airflow_flights.clear_request import clear_request

if AIRFLOW_V_3_2_PLUS:
    from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
    from airflow.serialization.serialized_objects import DagSerialization as Serialization
else:
    from airflow.models.dagbag import BundleDagBag, sync_bag_to_db
    from airflow.serialization.serialized_objects import SerializedDAG as Serialization

_MOST_STEPS = 500
"""More steps than a run takes that ends."""


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
    """Return the DAGs of all folders, which are also in the database."""
    manager = DagBundlesManager()
    with settings.Session() as session:
        manager.sync_bundles_to_db(session=session)
        session.commit()
    loaded: dict[str, Any] = {}
    for bundle in manager.get_all_dag_bundles():
        bundle.initialize()
        named = {"bundle_name": bundle.name} if AIRFLOW_V_3_2_PLUS else {}
        bag = BundleDagBag(dag_folder=bundle.path, bundle_path=bundle.path, **named)
        if bag.import_errors:
            raise ImportError(str(bag.import_errors))
        sync_bag_to_db(bag, bundle.name, bundle.version)
        loaded |= bag.dags
    return loaded


class Run:
    """One run of a DAG."""

    def __init__(self, dag_id: str, run_id: str) -> None:
        self.dag, self.run_id = dags()[dag_id], run_id
        self._scheduled = Serialization.deserialize_dag(Serialization.serialize_dag(self.dag))
        self.path = f"/dags/{dag_id}/dagRuns/{quote(run_id)}"

    @classmethod
    def trigger(
        cls,
        dag_id: str,
        run_id: str | None = None,
        interval: tuple[datetime, datetime] | None = None,
        conf: Mapping[str, Any] | None = None,
        *,
        logical_date: datetime | None = None,
    ) -> Run:
        """Make a run: by hand, of a date, or of a data interval."""
        dags()
        body: dict[str, Any] = {"logical_date": None, "conf": dict(conf or {})}
        if run_id is not None:
            body["dag_run_id"] = run_id
        if logical_date is not None:
            body["logical_date"] = logical_date.isoformat()
        if interval is not None:
            start, end = (each.isoformat() for each in interval)
            body |= {"logical_date": start, "data_interval_start": start, "data_interval_end": end}
        return cls(dag_id, call("POST", f"/dags/{dag_id}/dagRuns", body)["dag_run_id"])

    # What people do

    def clear(self, *tasks: str | tuple[str, int], downstream: bool = False, only_failed: bool = False) -> None:
        """Clear tasks, some of their indexes, or all."""
        body = clear_request(self.run_id, *tasks, downstream=downstream, only_failed=only_failed)
        call("POST", f"/dags/{self.dag.dag_id}/clearTaskInstances", body)

    def mark(self, task: str, state: str) -> None:
        """Mark a task as successful or failed, as its button does."""
        call("PATCH", f"{self.path}/taskInstances/{task}", {"new_state": state})

    # What the scheduler does

    @property
    def state(self) -> str:
        """Return the state of the run."""
        return str(call("GET", self.path)["state"])

    def state_of(self, task: str) -> str | None:
        """Return the state of a task."""
        state: str | None = call("GET", f"{self.path}/taskInstances/{task}")["state"]
        return state

    def go(
        self,
        until: Callable[[str], bool] | None = None,
        choose: Callable[[Sequence[Any]], Any] = lambda ready: ready[0],
    ) -> str:
        """Run the tasks that are ready, one after another, until the run has ended, or a task that `until` names.

        Returns:
            The state of the run.
        """
        with settings.Session() as session:
            run = session.scalars(
                select(DagRun).where(DagRun.run_id == self.run_id, DagRun.dag_id == self.dag.dag_id)
            ).one()
            run.dag = self._scheduled
            if run.state == DagRunState.QUEUED:
                run.state = DagRunState.RUNNING
                session.commit()
            for _ in range(_MOST_STEPS):
                if run.state != DagRunState.RUNNING:
                    break
                session.expire_all()
                ready, _ = run.update_state(session=session)
                for each in ready:
                    if each.state != TaskInstanceState.UP_FOR_RESCHEDULE:
                        each.try_number += 1
                    each.state = TaskInstanceState.SCHEDULED
                    each.scheduled_dttm = timezone.utcnow()
                session.commit()
                of_run = TaskInstance.run_id == self.run_id, TaskInstance.dag_id == self.dag.dag_id
                scheduled = select(TaskInstance).where(*of_run, TaskInstance.state == TaskInstanceState.SCHEDULED)
                waiting = sorted(session.scalars(scheduled), key=lambda each: (each.task_id, each.map_index))
                if not waiting:
                    continue
                chosen = choose(waiting)
                if until is not None and until(chosen.task_id):
                    break
                _run_task(ti=chosen, task=self.dag.task_dict[chosen.task_id], run_triggerer=True)
                session.commit()
            return str(run.state)


def call(method: str, path: str, body: Any = None) -> Any:
    """Call Airflow's API, and return its answer. Raises RuntimeError."""
    response = api().request(method, f"/api/v2{path}", json=body)
    if not response.is_success:
        raise RuntimeError(f"{method} {path}: {response.status_code} {response.text}")
    return response.json() if response.content else None


if __name__ == "__main__":
    dag_id, run_id = sys.argv[1:]
    Run(dag_id, run_id).go()
