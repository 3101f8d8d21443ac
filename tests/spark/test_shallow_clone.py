"""A table that borrows another's files, read by Spark: natively, and by the Python source that the executors run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lake_core.delta import DeltaTable
from lake_core.delta.commit_time import instant_of
from lake_core.delta.errors import PathOutsideTable
from lake_core.delta.log_segment import commit_key
from lake_core.spark import read_delta
from tests.delta.tables import SCHEMA, inline_vector, rows

DELETIONS = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors"],
}


def test_borrowed_files_are_read_where_they_are_allowed(spark: SparkSession, tmp_path: Path) -> None:
    source, target = tmp_path / "so urce", tmp_path / "clone"
    original = DeltaTable.create(str(source), SCHEMA, partition_by=["p"])
    original.append(rows(0, 6))
    table = DeltaTable.create(str(target), SCHEMA, partition_by=["p"])
    table.append(rows(6, 7))
    adds = [json.loads(line)["add"] for line in original.store.get(commit_key(1)).splitlines() if b'"add"' in line]
    borrowed = [add | {"path": f"file://{str(source).replace(' ', '%20')}/{add['path']}"} for add in adds]
    table.store.put(commit_key(2), "\n".join(json.dumps({"add": add}) for add in borrowed).encode())

    def ids(**options: object) -> list[int]:
        frame = read_delta(spark, str(target), allowed_roots=[source], **options)  # type: ignore[arg-type]
        return sorted(row["id"] for row in frame.collect())

    assert ids() == list(range(7))
    assert ids(where="p = 'p1'") == [1, 4]
    with pytest.raises(PathOutsideTable, match="allowed_roots"):
        read_delta(spark, str(target))
    opened = DeltaTable.open(str(target), allowed_roots=[source])
    first = instant_of(opened.history()[1]["timestamp"])
    assert [row["id"] for row in read_delta(spark, opened, timestamp=first).collect()] == [6]
    assert read_delta(spark, opened).count() == 7
    # A deletion vector takes the way of the Python source.
    lines = [{"protocol": DELETIONS}, {"remove": {"path": borrowed[0]["path"], "dataChange": True}}]
    lines.append({"add": borrowed[0] | {"deletionVector": inline_vector([0])}})
    table.store.put(commit_key(3), "\n".join(map(json.dumps, lines)).encode())
    assert len(ids()) == 6
