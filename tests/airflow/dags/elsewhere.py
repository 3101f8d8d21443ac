"""A task whose rows another process writes, and files that land."""

from __future__ import annotations

import os
import sys
from datetime import datetime

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import dag

from lake_orch.airflow import LakePool, LakeTable, LandingOperator, lake_session

OWN, LANDED = LakeTable("tables/own"), LakeTable("tables/landed")
PROGRAM = """
import pyarrow as pa
from lake_pipes import open_workspace
with open_workspace() as work:
    work.append("tables/own", pa.table({"n": [1, 2]}))
"""


@dag(schedule=None, start_date=datetime(2026, 1, 1), catchup=False)
def elsewhere() -> None:
    with lake_session() as run:
        BashOperator(
            task_id="other_process",
            bash_command=f"\"{sys.executable}\" -c '{PROGRAM}'",
            env=run.handover(),
            append_env=True,
        )
        LandingOperator(
            task_id="land",
            name="rates",
            url=f"{os.environ.get('LAKE_TEST_HOME', '/nowhere')}/landing",
            into=LANDED,
        )


elsewhere()


@dag(schedule=None, start_date=datetime(2026, 1, 1), catchup=False)
def any_shape() -> None:
    with lake_session():
        LandingOperator(
            task_id="land",
            name="events",
            url=f"{os.environ.get('LAKE_TEST_HOME', '/nowhere')}/landing",
            into=LakePool("pools/landed", key="k", order="asc"),
        )


any_shape()
