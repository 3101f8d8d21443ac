"""Runs in a serializable lake: what they read must be the same when they publish."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import dagster as dg
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr
from pyspark.sql import DataFrame, SparkSession

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.delta.errors import TableNotFound
from lake_core.lake.errors import Conflict
from lake_core.store import ObjectStore
from lake_orch import DeltaIOManager, FileIOManager, IcechunkIOManager, LakeResource, PoolIOManager
from lake_orch.pipes import LakePipesSubprocessClient
from lake_orch.testing import materialize
from tests.orch.meanwhile import MEANWHILE, LakeOfOthers


def write_arrays(store: Any, value: int) -> None:
    xr.Dataset({"v": ("x", [value])}).to_zarr(store, mode="w", zarr_format=3, consolidated=False)


Scope = Literal["asset", "run"]


class Rates:
    """A serializable lake with rates as a table, a pool, arrays and a file, and one more table."""

    def __init__(self, folder: Path, scope: Scope) -> None:
        self.scope = scope
        self.lake = Lake.create(folder / "lake")
        self.lake.settings.update(isolation="serializable")
        with self.lake.session() as s:
            s.create_delta("tables/rates", pa.schema([("n", pa.int64())])).append(pa.table({"n": [1]}))
            s.create_delta("tables/other", pa.schema([("n", pa.int64())])).append(pa.table({"n": [1]}))
            s.create_pool("tables/records", key="n").load([{"n": 1}])
            write_arrays(s.create_icechunk("tables/grid").store, 1)
            s.put("files/limit.json", b"1")
        lake = LakeOfOthers(root=str(folder / "lake"))
        self.resources = {
            "lake": lake,
            "io_manager": DeltaIOManager(lake=lake, preview_rows=0),
            "pools": PoolIOManager(lake=lake),
            "arrays": IcechunkIOManager(lake=lake),
            "files": FileIOManager(lake=lake),
        }

    def change(self, what: str) -> None:
        with self.lake.session(isolation="snapshot") as s:
            if what == "tables/records":
                s.pool(what).load([{"n": 2}])
            elif what == "tables/grid":
                write_arrays(s.icechunk(what).store, 2)
            elif what.startswith("tables/"):
                s.delta(what).append(pa.table({"n": [2]}))
            else:
                s.put(what, b"2")

    def run(self, *assets: Any, **options: Any) -> dg.ExecuteInProcessResult:
        run = materialize if self.scope == "run" else dg.materialize
        return run(list(assets), resources=self.resources, **options)

    def published(self, table: str = "tables/prices") -> bool:
        return table in self.lake.at().datasets()


@pytest.fixture(params=["asset", "run"])
def rates(request: pytest.FixtureRequest, tmp_path: Path) -> Rates:
    MEANWHILE.clear()
    return Rates(tmp_path, request.param)


def spec(name: str, key: str) -> dg.SourceAsset:
    return dg.SourceAsset(name, io_manager_key=key)


def reader(kind: str, then: Callable[[], None]) -> list[Any]:
    """An asset that reads rates in one way, and then does something else before its output is written."""

    def returned(value: Any) -> pa.Table:
        then()
        return pa.table({"n": [1 if value is None else 2]})

    if kind in ("table", "stream", "handle", "lazy"):
        annotation = {
            "table": pa.Table,
            "stream": pa.RecordBatchReader,
            "handle": DeltaTable,
            "lazy": pl.LazyFrame,
        }[kind]

        @dg.asset
        def prices(rates: annotation) -> Any:  # type: ignore[valid-type]
            value: Any = rates
            if kind in ("handle", "lazy"):
                value = value.to_arrow() if kind == "handle" else value.collect()
            if kind != "stream":
                return returned(value)
            then()
            return pa.RecordBatchReader.from_batches(value.schema, iter(value))  # read while it is written

        return [spec("rates", "io_manager"), prices]
    if kind == "pool":

        @dg.asset(name="prices")
        def of_pool(records: pa.Table) -> pa.Table:
            return returned(records)

        return [spec("records", "pools"), of_pool]
    if kind == "arrays":

        @dg.asset(name="prices")
        def of_arrays(grid: xr.Dataset) -> pa.Table:
            return returned(grid)

        return [spec("grid", "arrays"), of_arrays]
    if kind == "file":

        @dg.asset(name="prices")
        def of_file(limit: int) -> pa.Table:
            return returned(limit)

        return [spec("limit", "files"), of_file]

    @dg.asset(name="prices")
    def by_hand(context: dg.AssetExecutionContext, lake: LakeResource) -> pa.Table:
        run = (context.instance, context.run)
        if kind == "read_table":
            return returned(lake.read_table("tables/rates", run).to_arrow())
        if kind == "read_table of the branch":
            return returned(lake.read_table("tables/rates", None).to_arrow())
        if kind == "read_pool":
            return returned(list(lake.read_pool("tables/records", run).scan().values()))
        if kind == "lake.table":
            return returned(lake.table(context, "tables/rates").to_arrow())
        files: ObjectStore = lake.read_files(run)
        return returned(files.get("files/limit.json"))

    return [by_hand]


KINDS = {
    "table": "tables/rates",
    "stream": "tables/rates",
    "handle": "tables/rates",
    "lazy": "tables/rates",
    "pool": "tables/records",
    "arrays": "tables/grid",
    "file": "files/limit.json",
    "read_table": "tables/rates",
    "read_table of the branch": "tables/rates",
    "read_pool": "tables/records",
    "lake.table": "tables/rates",
    "read_files": "files/limit.json",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sampled(2)
def test_a_run_that_read_what_was_changed_does_not_publish(rates: Rates, kind: str) -> None:
    what = KINDS[kind]
    with pytest.raises(Conflict, match="it was read here, and changed there") as caught:
        rates.run(*reader(kind, lambda: rates.change(what)))
    assert caught.value.is_stale
    assert not rates.published()
    rates.run(*reader(kind, lambda: rates.change("tables/other")))
    assert rates.published(), "another run reads what is there now, and what others change elsewhere does not matter"


@pytest.mark.parametrize("kind", ["table", "file"])
def test_a_change_while_the_output_is_written_counts_too(rates: Rates, kind: str) -> None:
    MEANWHILE.append(lambda: rates.change(KINDS[kind]))
    with pytest.raises(Conflict, match="it was read here, and changed there"):
        rates.run(*reader(kind, lambda: None))
    assert not rates.published()


def test_a_stale_output_is_not_written_again_and_says_what_to_do(tmp_path: Path) -> None:
    rates = Rates(tmp_path, "asset")
    rates.run(*reader("table", lambda: None))
    tries: list[int] = []

    def both() -> None:
        tries.append(1)
        rates.change("tables/rates")
        rates.change("tables/prices")

    MEANWHILE.append(both)
    with pytest.raises(Conflict, match="re-execute it in a new run, which reads what the branch has now"):
        rates.run(*reader("table", lambda: None))
    assert len(tries) == 1
    assert len(rates.lake.delta("tables/prices").to_arrow()) == 2, "what the other run has added is still there"


WRITER = """
import pyarrow as pa
from dagster_pipes import open_dagster_pipes
from lake_pipes import open_workspace

with open_dagster_pipes() as pipes, open_workspace(pipes) as work:
    work.append("tables/prices", pa.table({"n": [1]}))
"""


def test_a_process_that_writes_for_a_step_relies_on_what_the_step_read(rates: Rates) -> None:
    client = LakePipesSubprocessClient(lake=rates.resources["lake"], env={"PYTHONPATH": str(Path(__file__).parents[2])})
    rates.resources["external"] = client

    def prices(changed: str) -> dg.AssetsDefinition:
        @dg.asset
        def prices(context: dg.AssetExecutionContext, rates: pa.Table, external: LakePipesSubprocessClient) -> Any:
            change(changed)
            return external.run(context=context, command=[sys.executable, "-c", WRITER]).get_materialize_result()

        return prices

    change = rates.change
    result = None
    with suppress(Conflict):
        result = rates.run(spec("rates", "io_manager"), prices("tables/rates"), raise_on_error=False)
    assert result is None or not result.success
    assert not rates.published()
    assert rates.run(spec("rates", "io_manager"), prices("tables/other")).success
    assert rates.published()


@pytest.mark.spark
def test_dataframes_of_spark_count_as_read(rates: Rates, spark: SparkSession) -> None:
    @dg.asset
    def prices(rates: DataFrame) -> DataFrame:
        change()
        return rates

    def change() -> None:
        rates.change("tables/rates")

    with pytest.raises(Conflict, match="it was read here, and changed there"):
        rates.run(spec("rates", "io_manager"), prices)
    assert not rates.published()


def test_a_step_may_change_what_it_has_read_itself(rates: Rates) -> None:
    """Under scope asset, each of these writes is a publish of its own."""

    @dg.multi_asset(
        ins={"rates": dg.AssetIn()},
        outs={"first": dg.AssetOut(metadata={"lake/path": "tables/rates"}), "prices": dg.AssetOut()},
    )
    def two(context: dg.AssetExecutionContext, rates: pa.Table, lake: LakeResource) -> tuple[pa.Table, pa.Table]:
        table = lake.table(context, "tables/log")
        table.append(rates)
        assert len(table.to_arrow()) == 1
        table.append(rates)
        assert len(table.to_arrow()) == 2
        table.append(rates)
        return pa.table({"n": [5]}), rates

    rates.run(spec("rates", "io_manager"), two)
    assert rates.published()
    assert rates.lake.delta("tables/rates").to_arrow()["n"].to_pylist() == [5]
    assert len(rates.lake.delta("tables/log").to_arrow()) == 3


def test_other_branches_and_tags_may_change(rates: Rates) -> None:
    rates.lake.create_branch("dev")

    @dg.asset(ins={"rates": dg.AssetIn(metadata={"lake/ref": "dev"})})
    def prices(rates: pa.Table) -> pa.Table:
        change()
        return rates

    def change() -> None:
        with rates.lake.session("dev", isolation="snapshot") as s:
            s.delta("tables/rates").append(pa.table({"n": [2]}))
        rates.change("tables/rates")

    rates.run(spec("rates", "io_manager"), prices)
    assert rates.published()


def test_a_table_that_was_missing_counts_as_read(rates: Rates) -> None:
    @dg.asset
    def prices(context: dg.AssetExecutionContext, lake: LakeResource) -> pa.Table:
        with pytest.raises(TableNotFound):
            lake.read_table("tables/late", (context.instance, context.run))
        with rates.lake.session(isolation="snapshot") as s:
            s.create_delta("tables/late", pa.schema([("n", pa.int64())]))
        return pa.table({"n": [1]})

    with pytest.raises(Conflict):
        rates.run(prices)
    assert not rates.published()


def test_a_lake_with_snapshot_isolation_records_nothing(rates: Rates) -> None:
    rates.lake.settings.update(isolation="snapshot")
    rates.run(*reader("table", lambda: rates.change("tables/rates")))
    assert rates.published()


def test_runs_in_threads_keep_their_reads_apart(tmp_path: Path) -> None:
    rates = Rates(tmp_path, "asset")
    both_have_read, changed = threading.Barrier(3, timeout=60), threading.Event()

    def wait() -> None:
        both_have_read.wait()
        assert changed.wait(60)

    results: dict[str, bool] = {}

    def run(name: str, kind: str) -> None:
        results[name] = rates.run(*reader(kind, wait), raise_on_error=False).success

    threads = [threading.Thread(target=run, args=(kind, kind)) for kind in ("table", "pool")]
    for thread in threads:
        thread.start()
    both_have_read.wait()
    rates.change("tables/rates")
    changed.set()
    for thread in threads:
        thread.join()
    assert results == {"table": False, "pool": True}
