"""A scheduler in this process, which runs one task after another, so that a test decides what happens between them.

It does what `dag.test()` does. Clears and marks go through Airflow's own API, which stands in this process too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

try:
    from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
except ImportError:
    from airflow.models.dagbag import BundleDagBag, sync_bag_to_db

MOST_TASKS = 200


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
def dags() -> dict[str, Any]:
    """Return the DAGs of the tests, which are also in the database."""
    manager = DagBundlesManager()
    with settings.Session() as session:
        manager.sync_bundles_to_db(session=session)
        session.commit()
    loaded: dict[str, Any] = {}
    for bundle in manager.get_all_dag_bundles():
        bundle.initialize()
        named = {"bundle_name": bundle.name} if AIRFLOW_V_3_2_PLUS else {}
        bag = BundleDagBag(dag_folder=bundle.path, bundle_path=bundle.path, **named)
        assert not bag.import_errors, bag.import_errors
        sync_bag_to_db(bag, bundle.name, bundle.version)
        loaded |= bag.dags
    return loaded


def scheduler_dag(dag: Any) -> Any:
    """Return a DAG as the scheduler has it."""
    try:
        from airflow.serialization.serialized_objects import DagSerialization

        return DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
    except ImportError:
        from airflow.serialization.serialized_objects import SerializedDAG

        return SerializedDAG.deserialize_dag(SerializedDAG.serialize_dag(dag))


class Life:
    """One run of a DAG."""

    def __init__(self, dag_id: str, logical_date: datetime, run_id: str | None = None) -> None:
        self.dag = dags()[dag_id]
        self._scheduled = scheduler_dag(self.dag)
        body = {"logical_date": logical_date.isoformat(), **({"dag_run_id": run_id} if run_id else {})}
        self._call("PATCH", f"/dags/{dag_id}", {"is_paused": False})
        self.run_id: str = self._call("POST", f"/dags/{dag_id}/dagRuns", body)["dag_run_id"]

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        response = api().request(method, f"/api/v2{path}", json=body)
        assert response.is_success, f"{response.status_code}: {response.text}"
        return response.json() if response.content else None

    @property
    def _path(self) -> str:
        return f"/dags/{self.dag.dag_id}/dagRuns/{quote(self.run_id)}"

    # What people do

    def clear(self, *tasks: str | tuple[str, int], downstream: bool = False, only_failed: bool = False) -> None:
        """Clear tasks, or all."""
        body = {
            "dag_run_id": self.run_id,
            "dry_run": False,
            "only_failed": only_failed,
            "only_running": False,
            "include_downstream": downstream,
            "reset_dag_runs": True,
            **({"task_ids": [list(task) if isinstance(task, tuple) else task for task in tasks]} if tasks else {}),
        }
        self._call("POST", f"/dags/{self.dag.dag_id}/clearTaskInstances", body)

    def mark(self, task: str, state: str) -> None:
        """Mark a task as successful or failed, as its button does."""
        self._call("PATCH", f"{self._path}/taskInstances/{task}", {"new_state": state})

    def mark_run(self, state: str) -> None:
        """Mark the run as successful or failed."""
        self._call("PATCH", self._path, {"state": state})

    def delete(self) -> None:
        """Delete the run."""
        self._call("DELETE", self._path)

    # What the scheduler does

    def end(self, state: str = "failed") -> None:
        """Let the run end as it is, as a scheduler does that times it out: its teardown does not run."""
        with settings.Session() as session:
            run = session.scalar(select(DagRun).where(DagRun.run_id == self.run_id, DagRun.dag_id == self.dag.dag_id))
            run.state = state
            session.commit()

    @property
    def state(self) -> str:
        """Return the state of the run."""
        return str(self._call("GET", self._path)["state"])

    def states(self) -> dict[tuple[str, int], str | None]:
        """Return the states of the task instances."""
        found = self._call("GET", f"{self._path}/taskInstances?limit=500")["task_instances"]
        return {(each["task_id"], each["map_index"]): each["state"] for each in found}

    def xcom(self, task: str) -> Any:
        """Return what a task returned."""
        return self._call("GET", f"{self._path}/taskInstances/{task}/xcomEntries/return_value?deserialize=true")[
            "value"
        ]

    def links(self, task: str, map_index: int = -1) -> dict[str, str | None]:
        """Return where the links of a task instance lead, by their names."""
        path = f"{self._path}/taskInstances/{task}/links?map_index={map_index}"
        links: dict[str, str | None] = self._call("GET", path)["extra_links"]
        return links

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
            run = session.scalar(select(DagRun).where(DagRun.run_id == self.run_id, DagRun.dag_id == self.dag.dag_id))
            run.dag = self._scheduled
            if run.state == DagRunState.QUEUED:
                run.state = DagRunState.RUNNING
                session.commit()
            for _ in range(MOST_TASKS):
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
                waiting = list(session.scalars(self._of_run().where(TaskInstance.state == "scheduled")))
                if not waiting:
                    continue
                chosen = choose(sorted(waiting, key=lambda ti: (ti.task_id, ti.map_index)))
                task_id = chosen.task_id
                if until is not None and until(task_id):
                    break
                _run_task(ti=chosen, task=self.dag.task_dict[task_id], run_triggerer=True)
                session.commit()
            return str(run.state)

    def _of_run(self) -> Any:
        return select(TaskInstance).where(TaskInstance.run_id == self.run_id, TaskInstance.dag_id == self.dag.dag_id)
