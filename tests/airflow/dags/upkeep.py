"""Maintenance of the lake, and DAGs that tables schedule."""

from __future__ import annotations

from datetime import datetime

from airflow.sdk import dag, task

from lake_orch.airflow import LakeTable, lake_watcher, maintenance_dag

OWN = LakeTable("tables/own")
outside = LakeTable("tables/outside").asset_with(lake_watcher(poll_seconds=0.05))
upkeep = maintenance_dag(schedule=None, dag_id="upkeep")
upkeep_of_what_is_missing = maintenance_dag(schedule=None, dag_id="upkeep_of_what_is_missing", paths=["tables/missing"])


@dag(schedule=[OWN.asset, outside], start_date=datetime(2026, 1, 1), catchup=False)
def after_own() -> None:
    @task
    def use() -> None:
        """Do nothing: it is only scheduled."""

    use()


after_own()


@dag(schedule=None, start_date=datetime(2026, 1, 1), catchup=False)
def alone() -> None:
    @task.lake(into=OWN, mode="append")
    def one() -> pa.Table:  # noqa: F821  # as in DAG files that import nothing heavy
        import pyarrow as pa
        from airflow.sdk import get_current_context

        from tests.airflow.behaviour import note

        return pa.table({"n": [note(get_current_context()["ti"])] * 2})

    one()


alone()
