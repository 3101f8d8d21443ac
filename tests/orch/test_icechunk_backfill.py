"""Backfills of arrays: several processes write regions of one repository at once, and no value is lost."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

from pathlib import Path
from typing import Any

import dagster as dg
import icechunk
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xarray as xr

from lake_core import Lake
from lake_orch import DeltaIOManager, IcechunkIOManager, LakeResource
from tests.processes import run_together

START = "2024-01-01"


def hourly(day: str) -> xr.Dataset:
    time = pd.date_range(day, periods=24, freq="h")
    hours = (time.to_numpy().astype("datetime64[h]") - np.datetime64(START, "h")).astype(np.float32)
    return xr.Dataset(
        {"t2m": (("time", "station"), hours[:, None] + np.array([0.25, 0.5], np.float32))}, {"time": time}
    )


def source(days: int) -> xr.Dataset:
    return xr.concat([hourly(str(day.date())) for day in pd.date_range(START, periods=days)], "time")


def run_partitions(root: str, scope: str, days: int, keys: list[str]) -> None:
    """Run an array asset and a table asset for partitions, one after another."""
    # A session that is published at the end of a run is not written again. So its coordinates and chunks must be its
    # own.
    layout = {"lake/coordinates": {"time": "h"}} if scope == "run" else {"lake/encoding": {"t2m": {"chunks": [36, 2]}}}

    partitions = dg.DailyPartitionsDefinition(
        START, end_date=str((pd.Timestamp(START) + pd.Timedelta(days=days)).date())
    )

    @dg.asset(
        partitions_def=partitions,
        metadata={"partition_expr": "time", **layout},
        io_manager_key="arrays",
    )
    def weather(context: dg.AssetExecutionContext) -> xr.Dataset:
        return hourly(context.partition_key)

    @dg.asset(partitions_def=partitions, metadata={"partition_expr": "day"})
    def days_seen(context: dg.AssetExecutionContext, weather: xr.Dataset) -> pa.Table:
        return pa.table({"day": [context.partition_key], "hours": [weather.sizes["time"]]})

    lake: Any = LakeResource(root=root, scope=scope)
    resources = {"lake": lake, "arrays": IcechunkIOManager(lake=lake), "io_manager": DeltaIOManager(lake=lake)}
    for key in keys:
        assert dg.materialize([weather, days_seen], partition_key=key, resources=resources).success


def check(root: Path, days: int) -> None:
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(f"{root}/tables/weather"))
    stored = xr.open_zarr(repository.readonly_session("main").store, consolidated=False).load()
    expected = source(days)
    assert stored.time.to_numpy().tolist() == expected.time.to_numpy().tolist()
    assert (stored.t2m.to_numpy() == expected.t2m.to_numpy()).all()


def run_scopes(roots: dict[str, str], days: int, keys: list[str]) -> None:
    """Run the partitions on a root of each scope. One process serves them all, because its imports take longest."""
    for scope, root in roots.items():
        run_partitions(root, "asset" if scope == "plain root" else scope, days, keys)


@pytest.mark.parametrize(
    ("days", "processes"), [(4, 2), pytest.param(366, 6, marks=[pytest.mark.stress, pytest.mark.timeout(1800)])]
)
@pytest.mark.parametrize("scopes", [("plain root", "run"), pytest.param(("asset",), marks=pytest.mark.exhaustive)])
def test_regions_that_processes_write_at_once_are_all_there(
    tmp_path: Path, scopes: tuple[str, ...], days: int, processes: int
) -> None:
    keys = [str(day.date()) for day in pd.date_range(START, periods=days)]
    roots = {scope: str(tmp_path / scope) for scope in scopes}
    for scope, root in roots.items():
        if scope != "plain root":
            Lake.create(root)
            run_partitions(root, scope, days, keys[:1])
    run_together(run_scopes, [(roots, days, keys[number::processes]) for number in range(processes)])
    for root in roots.values():
        check(Path(root), days)
    if "run" in roots:
        table = Lake.open(roots["run"]).delta("tables/days_seen").to_arrow()
        assert sorted(table.to_pylist(), key=str) == [{"day": key, "hours": 24} for key in keys]
