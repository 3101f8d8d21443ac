"""The same run by other ways to write tables from Airflow, each as its documentation shows it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from airflow.sdk import dag, get_current_context, task

from lake_orch.airflow import LakeTable, lake_session
from tests.airflow.behaviour import act, home, planned


def rows(part: int) -> pa.Table:
    """Return the rows of a part of a run."""
    day = get_current_context()["ds"]
    return pa.table({"day": [day, day], "part": [part, part]})


def parts() -> list[int]:
    return list(range(planned().get("files", 2)))


def die_once(where: str) -> None:
    """Fail the first try after what it wrote, as a process does that is killed before it can say that it has ended."""
    marker = home() / f"died-{where}"
    if planned().get("dies") == where and not marker.exists():
        marker.touch()
        raise RuntimeError(f"{where} dies as planned")


def delta_append(name: str, data: pa.Table) -> None:
    import deltalake

    deltalake.write_deltalake(str(home() / "delta" / name), data, mode="append")


def delta_overwrite(name: str, data: pa.Table) -> None:
    import deltalake

    path = str(home() / "delta" / name)
    day, part = data["day"][0].as_py(), data["part"][0].as_py()
    there = {"predicate": f"day = '{day}' AND part = {part}"} if deltalake.DeltaTable.is_deltatable(path) else {}
    deltalake.write_deltalake(path, data, mode="overwrite", **there)


def iceberg_table(name: str, schema: pa.Schema) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("peers", uri=f"sqlite:///{home()}/iceberg.db", warehouse=f"file://{home()}/iceberg")
    catalog.create_namespace_if_not_exists("peers")
    return catalog.create_table_if_not_exists(f"peers.{name}", schema)


def iceberg_append(name: str, data: pa.Table) -> None:
    iceberg_table(name, data.schema).append(data)


def iceberg_overwrite(name: str, data: pa.Table) -> None:
    from pyiceberg.expressions import And, EqualTo

    day, part = data["day"][0].as_py(), data["part"][0].as_py()
    iceberg_table(name, data.schema).overwrite(data, overwrite_filter=And(EqualTo("day", day), EqualTo("part", part)))


def peer(write: Callable[[str, pa.Table], None]) -> None:
    """Make the run: a mapped task writes a table, and the task after it another one."""

    @dag(dag_id=f"peer_{write.__name__}", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False)
    def run() -> None:
        @task
        def files() -> list[int]:
            return parts()

        @task(retries=1, retry_delay=0)
        def lines(part: int) -> None:
            write("lines", rows(part))
            die_once("lines")

        @task
        def totals() -> None:
            act("totals")
            write("totals", rows(0))

        lines.expand(part=files()) >> totals()

    run()


for each in (delta_append, delta_overwrite, iceberg_append, iceberg_overwrite):
    peer(each)


@dag(dag_id="peer_lake", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False)
def in_a_session() -> None:
    with lake_session():

        @task
        def files() -> list[int]:
            return parts()

        @task.lake(into=LakeTable("lines"), mode="append", retries=1, retry_delay=0)
        def lines(part: int) -> pa.Table:
            die_once("lines")
            return rows(part)

        @task.lake(into=LakeTable("totals"), mode="append")
        def totals() -> pa.Table:
            act("totals")
            return rows(0)

        lines.expand(part=files()) >> totals()


in_a_session()
