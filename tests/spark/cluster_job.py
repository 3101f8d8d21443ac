"""The program of `test_cluster`: everything that this package does in executors, on a cluster, over S3.

It prints a report as JSON. In its last steps executors are killed in the middle of each kind of work.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import s3fs
import xarray as xr
from pyspark.sql import DataFrame, SparkSession

from lake_core.delta import DeltaTable
from lake_core.delta.operations import listing
from lake_core.errors import LakeError
from lake_core.icechunk import Repository, RepositoryConfig
from lake_core.pool import PoolLake
from lake_core.spark import (
    delete_delta,
    load_pool,
    merge_delta,
    optimize_delta,
    read_array,
    read_delta,
    read_pool,
    register,
    session,
    update_delta,
    vacuum_delta,
    write_array,
    write_delta,
)
from tests.processes import until
from tests.spark import lean_job
from tests.spark.cluster import SPARK_HOME, Cluster, process_of_port
from tests.store.s3_server import S3Server

BUCKET = "s3://lake"
ESSENTIALS = ("write", "Z-order", "read", "write_array", "load_pool")
_HELD_SECONDS = 60
"""How long a request is held whose client is about to be killed."""
_ATTEMPT_SECONDS = 120


def main(kind: str, folder: str, *steps: str) -> None:
    """Print the report of these steps in a session of this kind, `classic` or `connect`."""
    with S3Server() as s3, Cluster(Path(folder)) as cluster:
        s3.create_bucket("lake")
        with _session(kind, cluster) as spark:
            job = ClusterJob(spark, cluster, s3, Path(folder))
            report = {step: getattr(job, step)() for step in steps}
    print(json.dumps(report))


@contextmanager
def _session(kind: str, cluster: Cluster) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = str(cluster.python)
    if kind == "connect":
        with cluster.connect_server() as url:
            spark = session(remote=url)
            yield spark
            spark.stop()  # while there is a server: a client asks a dead one for ten minutes
        return
    spark = session(master=cluster.url, config=cluster.config)
    yield spark
    spark.stop()


@dataclass(frozen=True, slots=True)
class Attempt:
    """Work in whose middle an executor is killed."""

    work: Callable[[], Any]
    key: str
    """A part of the keys of objects that executors write or read."""
    state: Callable[[], Any]
    """Reads what the work changes, without Spark; for work that reads, what it returned last."""
    after: Any
    """The state after the work."""
    method: str = "PUT"


class ClusterJob:
    """The steps, each of which returns a report."""

    def __init__(self, spark: SparkSession, cluster: Cluster, s3: S3Server, folder: Path) -> None:
        self.spark, self.cluster, self.s3, self.folder = spark, cluster, s3, folder
        self.options = s3.storage_options()

    def everything(self) -> dict[str, Any]:
        """Do everything that lean executors must be able to do."""
        return lean_job.report_of(self.spark, f"{BUCKET}/everything", self.options)

    def executors(self) -> int:
        """Return how many executors work side by side."""
        return len(self._working_executors())

    def submitted(self) -> list[str]:
        """Return the master of a session in a program that spark-submit starts, and the Python of its executors."""
        program = self.folder / "program.py"
        program.write_text(
            "import os\n"
            "from lake_core.spark import session\n"
            "print('session', session().conf.get('spark.master'), os.environ['PYSPARK_PYTHON'])\n"
        )
        conf = {"spark.pyspark.python": str(self.cluster.python), "spark.pyspark.driver.python": sys.executable}
        settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
        output = subprocess.run(
            [SPARK_HOME / "bin" / "spark-submit", "--master", self.cluster.url, *settings, program],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
        (line,) = [line for line in output.splitlines() if line.startswith("session ")]
        return line.split()[1:]

    def landing(self) -> list[list[int]]:
        """Land two batches of files by Spark, the first twice."""
        import dagster as dg

        from lake_orch import LakeResource
        from lake_orch.landing_zone import LandingZone, landing_zone_definitions

        root = f"{BUCKET}/landing"
        lake = LakeResource(root=f"{root}/lake", storage_options=self.options)
        zone = LandingZone("events", f"{root}/zone", storage_options=self.options, settle=timedelta(0))
        definitions = landing_zone_definitions(zone, read=lambda batch: self.spark.createDataFrame(batch.to_arrow()))
        (asset,), (sensor,) = definitions.assets or (), definitions.sensors or ()
        states = []
        with dg.DagsterInstance.ephemeral() as instance:
            cursor = None
            for number in range(2):
                with s3fs.S3FileSystem(**self.options).open(f"{root}/zone/{number}.parquet", "wb") as file:
                    pq.write_table(pa.table({"id": [2 * number, 2 * number + 1]}), file)
                with dg.build_sensor_context(instance=instance, cursor=cursor, resources={"lake": lake}) as context:
                    (request,) = sensor(context).run_requests
                    cursor = context.cursor
                for _ in range(2 - number):
                    dg.materialize([asset], resources={"lake": lake}, instance=instance, tags=dict(request.tags))
                states.append(sorted(lake.read_table("tables/events", None).to_arrow()["id"].to_pylist()))
        return states

    def essentials(self) -> dict[str, Any]:
        """Do some of each kind of work, and kill an executor in the middle of the merge."""
        report: dict[str, Any] = {}
        for name, attempt in self._attempts("essentials"):
            if name == "merge":
                report[name] = self._killed(attempt, worker=False)
            elif name in ESSENTIALS:
                attempt.work()
                report[name] = attempt.state() == attempt.after
        return report

    def killed_executors(self) -> dict[str, Any]:
        """Kill an executor in the middle of each kind of work."""
        return {name: self._killed(attempt, worker=False) for name, attempt in self._attempts("executor")}

    def killed_workers(self) -> dict[str, Any]:
        """Kill a worker, with its executor, in the middle of each kind of work."""
        return {name: self._killed(attempt, worker=True) for name, attempt in self._attempts("worker")}

    def killed_each_time(self) -> dict[str, Any]:
        """Write rows whose making kills their executor, each time that it is tried."""
        table = self._table("each-time")

        def kill_executor(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import os
            import signal

            # A worker is a child of Spark's daemon, which is a child of the executor.
            with open(f"/proc/{os.getppid()}/stat") as file:
                os.kill(int(file.read().rpartition(")")[2].split()[1]), signal.SIGKILL)
            yield from batches

        rows = self.spark.range(1).mapInArrow(kill_executor, "id bigint").selectExpr("id", "0D AS x")
        try:
            write_delta(rows, table, txn=("app", 1))
        except LakeError as error:
            failure = [type(error).__name__, str(error)]
        again = write_delta(_rows(self.spark, 20, 22), table, txn=("app", 1))
        return {"failure": failure, "skipped": again.skipped, "rows": _values(table)}

    def _killed(self, attempt: Attempt, *, worker: bool) -> dict[str, Any]:
        self._working_executors()
        before = attempt.state()
        self.s3.fault("hang_after", method=attempt.method, key=attempt.key, seconds=_HELD_SECONDS)
        start = time.monotonic()
        with ThreadPoolExecutor(1) as pool:
            killing = pool.submit(self._kill, attempt, worker)
            try:
                attempt.work()
                report = {"outcome": "finished"}
            except LakeError as error:
                report = {"outcome": f"{type(error).__name__}: {error}", "unseen after": attempt.state() == before}
            report["unseen"] = killing.result() == before
        report["seconds"] = round(time.monotonic() - start, 1)
        self.s3.clear()
        if report["outcome"] != "finished":
            attempt.work()
        state = attempt.state()
        report["after"] = True if state == attempt.after else state
        attempt.work()
        state = attempt.state()
        report["again"] = True if state == attempt.after else state
        return report

    def _kill(self, attempt: Attempt, worker: bool) -> Any:
        """Kill the executor whose request is held, or its worker, and return the state before that."""
        (port,) = until(self.s3.held, "a request", _ATTEMPT_SECONDS)
        state = attempt.state()
        executor = self.cluster.executor_of(process_of_port(port))
        if worker:
            self.cluster.kill_worker_of(executor)
        else:
            os.kill(executor, signal.SIGKILL)
        return state

    def _attempts(self, name: str) -> Iterator[tuple[str, Attempt]]:
        """Yield the kinds of work. Each has a transaction, or is of such a kind that it can be repeated."""
        yield from self._table_attempts(name)
        yield from self._array_attempts(name)
        yield from self._pool_attempts(name)

    def _table_attempts(self, name: str) -> Iterator[tuple[str, Attempt]]:
        spark, original = self.spark, _expected(range(20))

        def attempt(work: Callable[[DeltaTable], Any], after: Any, **properties: str) -> Attempt:
            table = functools.cache(lambda: self._table(name, **properties))
            return Attempt(lambda: work(table()), ".parquet", lambda: _values(table()), after)

        added = _rows(spark, 20, 24)
        yield "write", attempt(lambda table: write_delta(added, table, txn=("a", 1)), _expected(range(24)))
        overwritten = _rows(spark, 20, 24)
        yield (
            "overwrite",
            attempt(
                lambda table: write_delta(overwritten, table, mode="overwrite", txn=("a", 1)), _expected(range(20, 24))
            ),
        )
        # Its rows are others each time that they are made: a merge must use one version of them.
        source = _rows(spark, 15, 25).selectExpr("id", "x + floor(rand() * 2) * 0 + 100 AS x")

        def merge(table: DeltaTable) -> Any:
            merging = merge_delta(source, table, "t.id = s.id").when_matched_update("*").when_not_matched_insert("*")
            return merging.execute(txn=("a", 1))

        merged = sorted([*_expected(range(15)), *([float(number), number / 2 + 100] for number in range(15, 25))])
        yield "merge", attempt(merge, merged)
        yield "merge by vectors", attempt(merge, merged, **{"delta.enableDeletionVectors": "true"})
        updated = [[key, value + 1 if key < 10 else value] for key, value in original]
        yield (
            "update",
            attempt(lambda table: update_delta(spark, table, {"x": "x + 1"}, "id < 10", txn=("a", 1)), updated),
        )
        yield (
            "delete",
            attempt(lambda table: delete_delta(spark, table, "id % 2 = 0", txn=("a", 1)), _expected(range(1, 20, 2))),
        )
        yield "optimize", attempt(lambda table: optimize_delta(spark, table), original)
        yield "Z-order", attempt(lambda table: optimize_delta(spark, table, zorder_by=["x"]), original)
        yield "vacuum", self._vacuum(name)
        yield from self._source_attempts(name)

    def _vacuum(self, name: str) -> Attempt:
        """Return a vacuum of removed files, one at a time: the table's rows are the same all along."""
        everything: dict[str, Any] = {"retention": timedelta(), "allow_unsafe": True}

        @functools.cache
        def table() -> DeltaTable:
            table = self._table(name)
            table.overwrite(pa.table({"id": [7], "x": [0.5]}))
            return table

        def work() -> None:
            with patch.object(listing, "_DELETED_AT_ONCE", 1):
                vacuum_delta(self.spark, table(), **everything)
            assert len(table().vacuum(**everything, dry_run=True).files) == 0

        return Attempt(work, ".parquet", lambda: _values(table()), [[7.0, 0.5]], "DELETE")

    def _source_attempts(self, name: str) -> Iterator[tuple[str, Attempt]]:
        register(self.spark, storage_options=self.options)
        table = self._table(name)

        def write() -> None:
            frame = _rows(self.spark, 20, 24).write.format("lake").mode("append")
            frame.option("txnAppId", "a").option("txnVersion", "1").save(table.store.url())

        yield "format, writing", Attempt(write, ".parquet", lambda: _values(table), _expected(range(24)))
        other = self._table(name)
        expected = _expected(range(20))
        yield "read", _reading(lambda: read_delta(self.spark, other), ".parquet", expected)
        load = self.spark.read.format("lake").load
        yield "format, reading", _reading(lambda: load(other.store.url()), ".parquet", expected)

    def _array_attempts(self, name: str) -> Iterator[tuple[str, Attempt]]:
        config = RepositoryConfig(inline_chunk_threshold_bytes=0)
        repository = Repository.create(
            f"{BUCKET}/{name}/repository", config=config, storage_options=self.options, exist_ok=True
        )
        first = repository.writable_session("main")
        dataset = xr.Dataset({"v": ("x", np.zeros(8))}, {"x": np.arange(8)})
        dataset.v.encoding = {"chunks": (2,)}
        dataset.to_zarr(first.store, consolidated=False)
        first.commit("zeros")
        rows = self.spark.range(0, 8, 1, 2).selectExpr("id AS x", "id * 1.5D AS v")
        expected = [number * 1.5 for number in range(8)]

        def write() -> None:
            writing = repository.writable_session("main")
            write_array(rows, writing, "v")
            if writing.has_uncommitted_changes:
                writing.commit("rows")

        def values() -> list[float]:
            store = repository.readonly_session("main").store
            values: list[float] = xr.open_zarr(store, consolidated=False).v.values.tolist()
            return values

        yield "write_array", Attempt(write, "/chunks/", values, expected)
        cells = [[float(number), value] for number, value in enumerate(expected)]
        frame = read_array(self.spark, repository, variables=["v"])  # coordinates are chunks that the driver reads
        yield "read_array", _reading(lambda: frame, "/chunks/", cells)

    def _pool_attempts(self, name: str) -> Iterator[tuple[str, Attempt]]:
        pool = PoolLake.create(f"{BUCKET}/{name}/pools", storage_options=self.options).create_pool("events", key="k")
        rows = self.spark.range(0, 8, 1, 2).selectExpr("id AS k", "id * 1.5D AS x")
        after = [f"{{k:{number},x:{number * 1.5}}}".replace(".0}", ".}") for number in reversed(range(8))]

        yield (
            "load_pool",
            Attempt(
                lambda: load_pool(rows, pool, txn=("a", 1)), "/data/", lambda: pool.scan().to_zson().split(), after
            ),
        )
        expected = [[float(number), number * 1.5] for number in range(8)]
        yield "read_pool", _reading(lambda: read_pool(self.spark, pool), "/data/", expected)

    def _table(self, name: str, **properties: str) -> DeltaTable:
        """Make a table of two files, with the rows 0 to 19."""
        url = f"{BUCKET}/{name}/{time.monotonic_ns()}"
        table = DeltaTable.create(
            url,
            pa.schema([("id", pa.int64()), ("x", pa.float64())]),
            properties=properties,
            storage_options=self.options,
        )
        for start in (0, 10):
            table.append(pa.table({"id": [*range(start, start + 10)], "x": [n / 2 for n in range(start, start + 10)]}))
        return table

    def _working_executors(self) -> set[int]:
        """Wait until two executors work side by side, and return their processes."""

        def working() -> set[int]:
            def executors(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                import os
                import time

                import pyarrow

                for _ in batches:
                    time.sleep(0.3)
                    with open(f"/proc/{os.getppid()}/stat") as file:
                        parent = int(file.read().rpartition(")")[2].split()[1])
                    yield pyarrow.RecordBatch.from_arrays([pyarrow.array([parent])], names=["process"])

            rows = self.spark.range(0, 2, 1, 2).mapInArrow(executors, "process bigint").toArrow()
            return set(rows["process"].to_pylist())

        return set(until(lambda: len(both := working()) == 2 and both, "two executors", 60))


def _rows(spark: SparkSession, start: int, stop: int) -> DataFrame:
    return spark.range(start, stop, 1, 2).selectExpr("id", "id / 2D AS x")


def _expected(numbers: Sequence[int]) -> list[list[float]]:
    return [[float(number), number / 2] for number in numbers]


def _values(table: DeltaTable) -> list[list[float]]:
    """Return the rows that a reader of the table sees now."""
    rows = DeltaTable.open(table.store).to_arrow()
    return sorted([float(row["id"]), row["x"]] for row in rows.to_pylist())


def _sorted(frame: DataFrame) -> list[list[float]]:
    return sorted([float(value) for value in row.values()] for row in frame.toArrow().to_pylist())


def _reading(frame: Callable[[], DataFrame], key: str, expected: Any) -> Attempt:
    """Return work that reads: its state is what it read last."""
    rows: list[Any] = []

    def read() -> None:
        rows[:] = _sorted(frame())

    return Attempt(read, key, lambda: list(rows), expected, "GET")


if __name__ == "__main__":
    main(*sys.argv[1:])
