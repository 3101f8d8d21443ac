"""A Python data source for files that Spark's JVM cannot reach, such as S3 without Hadoop's jars.

Executors open the files with fsspec. Its options are pickled with the source's class, and never appear in Spark's
configuration or in a query plan.
"""

from __future__ import annotations

import pickle
import uuid
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from lake_core.delta.scan import Scan, open_data_files
from lake_core.spark.executor import by_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.delta.data_file_reader import DataFiles
    from lake_core.expression import Predicate

_FILES_PER_TASK = 32
_BYTES_PER_TASK = 128 << 20


def read_with_source(spark: SparkSession, scan: Scan, schema: T.StructType) -> DataFrame:
    """Read the rows of a scan's files with Arrow in the executors. `schema` is `scan.read_schema` as Spark's type."""
    payloads = file_payloads(scan)
    source = _source_class(f"lake_{uuid.uuid4().hex}", payloads, schema)
    spark.dataSource.register(source)
    return spark.read.format(source.name()).load()


def file_payloads(scan: Scan, predicate: Predicate | None = None) -> list[bytes]:
    """Return one compressed payload for each task of a scan.

    It is the task's `DataFiles`, with everything that is needed to read them.
    """
    tasks = _tasks(scan.files["size"].to_pylist())
    # Batches must match the source's schema exactly, and Spark treats every column of a source as nullable.
    relaxed = pa.schema([pa.field(child.name, child.type) for child in scan.read_schema])
    # Compression pays off, because most of a payload is code.
    return [
        zlib.compress(by_value(replace(open_data_files(scan, rows, predicate), schema=relaxed)), 1) for rows in tasks
    ]


def _source_class(name_: str, payloads: Sequence[bytes], schema_: T.StructType) -> type[DataSource]:
    relaxed = T.StructType([T.StructField(child.name, child.dataType, True, child.metadata) for child in schema_])

    class FilesReader(DataSourceReader):
        def partitions(self) -> Sequence[InputPartition]:
            return [InputPartition(payload) for payload in payloads]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            files: DataFiles = pickle.loads(zlib.decompress(partition.value))
            for index in range(len(files.keys)):
                for rows in files.batches(index):
                    yield from rows.to_batches()

    class FilesSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return name_

        def schema(self) -> T.StructType:
            return relaxed

        def reader(self, schema: T.StructType) -> DataSourceReader:
            return FilesReader()

    for kind in (FilesReader, FilesSource):
        # Classes of this module are pickled by value.
        kind.__module__ = "__main__"
    return FilesSource


def _tasks(sizes: Sequence[int | None]) -> list[list[int]]:
    """Distribute the files, by their row numbers in the scan, to tasks of limited size."""
    tasks: list[list[int]] = []
    current: list[int] = []
    size = 0
    for row, bytes_ in enumerate(sizes):
        if current and (len(current) >= _FILES_PER_TASK or size + (bytes_ or 0) > _BYTES_PER_TASK):
            tasks.append(current)
            current, size = [], 0
        current.append(row)
        size += bytes_ or 0
    return [*tasks, current] if current else tasks
