"""Definitions for test_sessions: five tables of one run, whose steps fail, and whose checks say no, as a file asks for.

Steps run in processes of their own: what a test wants stands in a file, and where that is comes with the job's
arguments.
"""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from lake_core import Lake
from lake_core.lake import SharedSession
from lake_orch import DeltaIOManager, LakeResource, lake_executor

TABLES = ("orders", "lines", "totals")


class KillableLake(LakeResource):
    """A lake whose publish ends the process, before or after it took place, if the file says so."""

    wish_file: str

    def open(self) -> Lake:
        lake, file = super().open(), Path(self.wish_file)
        seam = json.loads(file.read_text()).get("publish") if file.exists() else None
        if seam is not None:
            get_session = lake.get_session

            def mortal(id: str, *, epoch: int | None = None) -> SharedSession:
                session = get_session(id, epoch=epoch)
                publish = session.publish

                def dies(**options: Any) -> Any:
                    if seam == "die after":
                        publish(**options)
                    os.kill(os.getpid(), signal.SIGKILL)

                session.publish = dies  # type: ignore[method-assign]
                return session

            lake.get_session = mortal  # type: ignore[method-assign]
        return lake


def definitions(folder: str, in_process: bool = True) -> dg.Definitions:
    """Assets `orders` -> `lines` -> `totals`, and `stock` by itself; blocking and other checks on `lines`."""
    # The path is fixed when a process starts, so that an orphan and its successors can get different settings.
    wish_file = Path(folder) / os.environ.get("LAKE_TEST_WISHES", "wish.json")

    def wish() -> dict[str, Any]:
        return json.loads(wish_file.read_text()) if wish_file.exists() else {}

    def obey(step: str) -> None:
        instruction = wish().get(step)
        if instruction == "fail":
            raise RuntimeError(f"{step} was to fail")
        if instruction == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if instruction == "wait":
            (Path(folder) / f"{step}.waiting").touch()
            while wish().get(step) == "wait":
                time.sleep(0.05)

    def rows(step: str, **counts: int) -> Any:
        table = pa.table({"id": pa.array(range(3), pa.int64()), "of": [f"{step}{wish().get('round', 0)}"] * 3})
        for name, count in counts.items():
            table = table.append_column(name, pa.array([count] * 3, pa.int64()))
        if os.environ.get("LAKE_TEST_SPARK"):
            from lake_core.spark import session

            return session(master="local[2]").createDataFrame(table)
        return table

    append = {"lake/mode": "append"}

    @dg.asset(metadata=append)
    def orders() -> Any:
        obey("orders")
        return rows("orders")

    @dg.asset(metadata=append)
    def lines(orders: pa.Table) -> Any:
        obey("lines")
        return rows("lines", seen=len(orders))

    @dg.asset(metadata=append)
    def totals(context: dg.AssetExecutionContext, lines: pa.Table) -> Any:
        obey("totals")
        return rows("totals", seen=len(lines))

    @dg.asset
    def stock(context: dg.AssetExecutionContext, lake: LakeResource) -> dg.MaterializeResult:
        table = lake.table(context)
        table.append(rows("stock"))
        obey("stock")
        table.append(rows("stock"))
        return dg.MaterializeResult(metadata=table.metadata())

    @dg.asset_check(asset=lines, blocking=True)
    def lines_seen(lines: pa.Table) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=wish().get("lines_seen") != "fail", metadata={"rows": len(lines)})

    @dg.asset_check(asset=totals)
    def totals_fine(totals: pa.Table) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=wish().get("totals_fine") != "fail")

    lake = KillableLake(root=f"{folder}/lake", wish_file=str(wish_file))
    return dg.Definitions(
        assets=[orders, lines, totals, stock],
        asset_checks=[lines_seen, totals_fine],
        jobs=[dg.define_asset_job("all"), dg.define_asset_job("strict", tags={"lake/gate": "error"})],
        resources={"io_manager": DeltaIOManager(lake=lake), "lake": lake},
        executor=lake_executor.configured({"in_process": {}}, name="one_process") if in_process else lake_executor,
    )


def job(folder: str, name: str = "all", in_process: bool = True) -> dg.JobDefinition:
    return definitions(folder, in_process).resolve_job_def(name)
