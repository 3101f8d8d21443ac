"""A task that registers the tables of main with a catalog."""

from __future__ import annotations

from datetime import datetime

from airflow.sdk import DAG

from lake_orch.airflow import CatalogOperator

with DAG("catalogs", schedule=None, start_date=datetime(2026, 1, 1), catchup=False):
    # The server's URL is in LAKE_UNITY_URI.
    CatalogOperator(task_id="register", catalog="unity", schema="sales", options={"catalog": "lakes"})
