"""A scheduler in this process, which runs one task after another, so that a test decides what happens between them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow import settings
from airflow.models.dagrun import DagRun
from sqlalchemy import select

from example_pipelines.airflow_flights.runs import Run, api, call

__all__ = ["Life", "api", "call"]


class Life(Run):
    """One run of a DAG, with all that may happen to it."""

    def __init__(self, dag_id: str, logical_date: datetime, run_id: str | None = None) -> None:
        run = Run.trigger(dag_id, run_id, logical_date=logical_date)
        super().__init__(dag_id, run.run_id)

    def mark_run(self, state: str) -> None:
        """Mark the run as successful or failed."""
        call("PATCH", self.path, {"state": state})

    def delete(self) -> None:
        """Delete the run."""
        call("DELETE", self.path)

    def end(self, state: str = "failed") -> None:
        """Let the run end as it is, as a scheduler does that times it out: its teardown does not run."""
        with settings.Session() as session:
            run = session.scalar(select(DagRun).where(DagRun.run_id == self.run_id, DagRun.dag_id == self.dag.dag_id))
            run.state = state
            session.commit()

    def states(self) -> dict[tuple[str, int], str | None]:
        """Return the states of the task instances."""
        instances = call("GET", f"{self.path}/taskInstances?limit=500")["task_instances"]
        return {(each["task_id"], each["map_index"]): each["state"] for each in instances}

    def xcom(self, task: str) -> Any:
        """Return what a task returned."""
        return call("GET", f"{self.path}/taskInstances/{task}/xcomEntries/return_value?deserialize=true")["value"]

    def links(self, task: str, map_index: int = -1) -> dict[str, str | None]:
        """Return where the links of a task instance lead, by their names."""
        links: dict[str, str | None] = call("GET", f"{self.path}/taskInstances/{task}/links?map_index={map_index}")[
            "extra_links"
        ]
        return links
