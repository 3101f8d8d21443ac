"""The program of `test_lean_executors`: every way in which this package works in Spark's executors."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.spark import (
    collect_lake,
    delete_delta,
    export_lake,
    merge_delta,
    optimize_delta,
    read_delta,
    register,
    session,
    update_delta,
    verify_lake,
    write_delta,
)
from tests.spark import array_job

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("x", pa.float64()), ("at", pa.timestamp("us", "UTC"))])


def rows(start: int, stop: int) -> pa.Table:
    numbers = range(start, stop)
    return pa.table(
        [
            [*numbers],
            [f"p{number % 3}" for number in numbers],
            [number / 2 for number in numbers],
            [number * 10**6 for number in numbers],
        ],
        names=SCHEMA.names,
    ).cast(SCHEMA)


def main(folder: str) -> None:
    spark = session(
        master="local[2,3]",
        config={
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.shuffle.partitions": "2",
        },
    )
    print(json.dumps(report_of(spark, folder)))
    spark.stop()


def report_of(spark: SparkSession, folder: str, storage_options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Do everything once, in a folder or below a prefix of a bucket, and return what came of it."""
    report: dict[str, Any] = {}

    def step(name: str, work: Callable[[], Any]) -> None:
        try:
            report[name] = work()
        except Exception as error:
            report[name] = f"{type(error).__name__}: {str(error)[-600:]}"

    def modules(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import importlib.util

        import pyarrow

        candidates = (
            "lake_core",
            "lake_orch",
            "numpy",
            "pandas",
            "sqlglot",
            "pyroaring",
            "dagster",
            "fsspec",
            "pyarrow",
        )
        installed = [name for name in candidates if importlib.util.find_spec(name)]
        for _ in batches:
            yield pyarrow.RecordBatch.from_arrays([pyarrow.array(installed)], names=["name"])

    step(
        "modules",
        lambda: sorted(row.name for row in spark.range(0, 1, 1, 1).mapInArrow(modules, "name string").collect()),
    )

    def ids(table: DeltaTable | str) -> list[int]:
        return sorted(read_delta(spark, table, storage_options=storage_options).toArrow()["id"].to_pylist())

    plain, vectors = f"{folder}/plain", f"{folder}/vectors"
    checks = {"delta.constraints.positive": "id >= 0", "delta.enableChangeDataFeed": "true"}
    DeltaTable.create(plain, SCHEMA, partition_by=["p"], properties=checks, storage_options=storage_options)
    DeltaTable.create(
        vectors, SCHEMA, properties={"delta.enableDeletionVectors": "true"}, storage_options=storage_options
    )
    for url in (plain, vectors):
        name = url.rpartition("/")[2]
        table = DeltaTable.open(url, storage_options=storage_options)
        step(f"write {name}", lambda table=table: write_delta(spark.createDataFrame(rows(0, 20)), table).rows)
        source = spark.createDataFrame(rows(15, 25))
        step(
            f"merge {name}",
            lambda table=table, source=source: (
                merge_delta(source, table, "t.id = s.id")
                .when_matched_update("*")
                .when_not_matched_insert("*")
                .execute(),
                ids(table),
            )[1],
        )
        step(
            f"update {name}",
            lambda table=table: (update_delta(spark, table, {"x": "x + 1"}, "id % 2 = 0"), ids(table))[1],
        )
        step(f"delete {name}", lambda table=table: (delete_delta(spark, table, "id < 3"), ids(table))[1])
        step(f"optimize {name}", lambda table=table: (optimize_delta(spark, table, zorder_by=["id"]), ids(table))[1])
        if url == vectors:
            continue  # overwrites and filters do not depend on deletion vectors
        step(
            f"overwrite {name}",
            lambda table=table: (
                write_delta(spark.createDataFrame(rows(3, 6)), table, mode="overwrite", where="id < 6"),
                ids(table),
            )[1],
        )
        step(
            f"filtered {name}", lambda table=table: read_delta(spark, table, where="id % 2 = 0 AND p LIKE 'p%'").count()
        )
        spark.conf.set("spark.sql.caseSensitive", "true")  # then Arrow reads, in the executors
        step(f"read {name}", lambda table=table: ids(table))
        spark.conf.set("spark.sql.caseSensitive", "false")

    register(spark, storage_options=storage_options)
    step("source", lambda: spark.read.format("lake").option("where", "id < 10").load(plain).count())
    step(
        "source write",
        lambda: (
            spark.createDataFrame(rows(90, 92)).write.format("lake").mode("append").save(vectors),
            ids(vectors)[-2:],
        )[1],
    )
    lake = Lake.create(f"{folder}/lake", storage_options=storage_options)

    def in_a_session() -> list[int]:
        with lake.session() as s:
            table = s.create_delta("t", SCHEMA, partition_by=["p"])
            write_delta(spark.createDataFrame(rows(0, 4)), table)
            merge_delta(spark.createDataFrame(rows(3, 5)), table, "t.id = s.id").when_not_matched_insert("*").execute()
        return sorted(read_delta(spark, lake.delta("t")).toArrow()["id"].to_pylist())

    step("session of a lake", in_a_session)
    step("maintenance of a lake", lambda: _maintenance(spark, lake, f"{folder}/exported", storage_options))
    step("arrays and pools", lambda: array_job.report_of(spark, f"{folder}/repository", storage_options))
    return report


def _maintenance(spark: SparkSession, lake: Lake, target: str, storage_options: Mapping[str, Any] | None) -> list[int]:
    """Return how many problems a lake has, how many objects of it can be collected, and how many are exported."""
    exported = export_lake(spark, lake, target, storage_options=storage_options)
    return [len(verify_lake(spark, lake)), len(collect_lake(spark, lake).keys), exported.copied]


if __name__ == "__main__":
    main(sys.argv[1])
