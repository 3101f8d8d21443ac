"""Logs of large tables, without their data files: what opening and planning are measured on."""

from __future__ import annotations

import json
import tarfile
import uuid
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import zstandard

from lake_core.delta.action_fields import METADATA, PROTOCOL
from lake_core.delta.commit_file import partition_map

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "value", "type": "double", "nullable": True, "metadata": {}},
        {"name": "day", "type": "string", "nullable": True, "metadata": {}},
    ],
}
PROTOCOL_BODY = {"minReaderVersion": 1, "minWriterVersion": 2}
_FILES_AT_ONCE = 1_000_000
METADATA_BODY = {
    "id": str(uuid.UUID(int=1)),
    "format": {"provider": "parquet", "options": {}},
    "schemaString": json.dumps(SCHEMA),
    "partitionColumns": ["day"],
    "configuration": {},
    "createdTime": 0,
}


def make_table(folder: Path, files: int, commits: int) -> None:
    """Write a log: a checkpoint at version 10, and `commits` commits of 10 adds and 2 removes.

    The checkpoint has `files` adds over 1,000 partitions.
    """
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    metadata = {**METADATA_BODY, "format": {"provider": "parquet", "options": []}, "configuration": []}
    protocol, meta = pa.array([PROTOCOL_BODY], PROTOCOL), pa.array([metadata], METADATA)
    schema = pa.schema([("protocol", PROTOCOL), ("metaData", METADATA), ("add", _adds(0, 0).type)])
    with pq.ParquetWriter(log / f"{10:020d}.checkpoint.parquet", schema) as writer:
        for start in range(0, files, _FILES_AT_ONCE):
            add = _adds(start, min(start + _FILES_AT_ONCE, files))
            columns: list[list[pa.Array]] = [[pa.nulls(len(add), PROTOCOL)], [pa.nulls(len(add), METADATA)], [add]]
            if not start:
                columns[0][:0] = [protocol, pa.nulls(1, PROTOCOL)]
                columns[1][:0] = [pa.nulls(1, METADATA), meta]
                columns[2][:0] = [pa.nulls(2, add.type)]
            writer.write_table(pa.table([pa.chunked_array(column) for column in columns], schema=schema))
    (log / "_last_checkpoint").write_text(json.dumps({"version": 10, "size": files + 2}))
    paths = pc.struct_field(_adds(0, min(files, 2 * commits)), ["path"]).to_pylist()
    for commit in range(commits):
        lines = [{"commitInfo": {"timestamp": 0, "operation": "WRITE"}}]
        for number in range(10):
            path = f"day=2020-{number:04d}/new-{commit}-{number}.parquet"
            lines.append(
                {
                    "add": {
                        "path": path,
                        "partitionValues": {"day": f"2020-{number:04d}"},
                        "size": 1 << 20,
                        "modificationTime": 0,
                        "dataChange": True,
                        "stats": '{"numRecords":1000,"minValues":{"id":1},"maxValues":{"id":9},"nullCount":{"id":0}}',
                    }
                }
            )
        for number in range(2):
            removed = paths[commit * 2 + number]
            lines.append({"remove": {"path": removed, "deletionTimestamp": 0, "dataChange": True}})
        (log / f"{11 + commit:020d}.json").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def _adds(start: int, stop: int) -> pa.StructArray:
    """Return the add actions of files by their numbers."""
    numbers = np.arange(start, stop)
    days = np.char.mod("2020-%04d", numbers % 1000)
    paths = np.char.add(np.char.add("day=", days), np.char.mod("/part-%08d-", numbers))
    begins = _text(
        np.char.mod('{"numRecords":1000,"minValues":{"id":%d,"value":0.5},"maxValues":{"id":', numbers * 1000)
    )
    ends = _text(np.char.mod('%d,"value":99.5},"nullCount":{"id":0,"value":0}}', numbers * 1000 + 999))
    count = len(numbers)
    return pa.StructArray.from_arrays(
        [
            _text(np.char.add(paths, f"{uuid.UUID(int=2)}.parquet")),
            partition_map(pa.StructArray.from_arrays([_text(days)], ["day"]), ["day"]),
            pa.array(np.full(count, 1 << 20)),
            pa.array(np.full(count, 1_600_000_000_000)),
            pa.array(np.zeros(count, dtype=bool)),
            pc.binary_join_element_wise(begins, ends, ""),
        ],
        ["path", "partitionValues", "size", "modificationTime", "dataChange", "stats"],
    )


def _text(values: Any) -> pa.Array:
    array = pa.array(values, pa.string())
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a table that is a tar packed with zstd; returns the table's root."""
    with (
        archive.open("rb") as packed,
        zstandard.ZstdDecompressor().stream_reader(packed) as stream,
        tarfile.open(fileobj=stream, mode="r|") as tar,
    ):
        tar.extractall(folder, filter="data")
    return next(path.parent for path in folder.rglob("_delta_log"))
