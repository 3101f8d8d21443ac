"""Columns of Spark's VARIANT: read, written and changed in executors."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from lake_core.delta import DeltaTable, variant
from lake_core.spark import merge_delta, read_delta, update_delta, write_delta

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        pa.field("v", variant.VARIANT),
        ("s", pa.struct([pa.field("x", variant.VARIANT), ("n", pa.int32())])),
    ]
)


def test_variants_of_both(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path), SCHEMA)
    inner = pa.StructArray.from_arrays(
        [variant.from_python([1, None]), pa.array([1, 2], pa.int32())], fields=list(SCHEMA.field("s").type)
    )
    table.append(pa.table({"id": [1, 2], "v": variant.from_json(['{"k":[1,{"q":1.25}]}', None]), "s": inner}))
    frame = read_delta(spark, str(tmp_path))
    assert frame.schema["v"].dataType.simpleString() == "variant"
    found = frame.selectExpr("id", "to_json(v) v", "variant_get(s.x, '$', 'int') x", "s.n").orderBy("id").collect()
    assert [tuple(row) for row in found] == [(1, '{"k":[1,{"q":1.25}]}', 1, 1), (2, None, None, 2)]

    rows = "SELECT 3L id, parse_json('[1, null, \"t\"]') v, named_struct('x', parse_json('{}'), 'n', 5) s"
    write_delta(spark.sql(rows), str(tmp_path), mode="append")
    update_delta(spark, str(tmp_path), {"id": "id + 10"}, "id = 1")
    source = spark.sql("SELECT 2L id, parse_json('7') v, named_struct('x', parse_json('8'), 'n', 9) s")
    merge_delta(source, str(tmp_path), "t.id = s.id").when_matched_update("*").execute()
    after = table.refresh().to_arrow().sort_by("id")
    assert after["id"].to_pylist() == [2, 3, 11]
    assert variant.to_python(after["v"]) == [7, [1, None, "t"], {"k": [1, {"q": 1.25}]}]
    assert variant.to_python(pa.chunked_array(after["s"].combine_chunks().field("x"))) == [8, {}, 1]


def test_executors_shred_variants(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), pa.field("v", variant.VARIANT)])
    table = DeltaTable.create(str(tmp_path), schema, properties={"delta.enableVariantShredding": "true"})
    rows = "SELECT id, parse_json(concat('{\"b\":', id, ',\"a\":[', id, ']}')) v FROM range(20)"
    write_delta(spark.sql(rows), str(tmp_path), mode="append")
    update_delta(spark, str(tmp_path), {"id": "id + 100"}, "variant_get(v, '$.b', 'int') > 15")
    for path in table.refresh().files(["path"])["path"].to_pylist():
        assert pq.read_schema(tmp_path / path).field("v").type.field("typed_value").type.names == ["a", "b"]
    found = read_delta(spark, str(tmp_path)).selectExpr("id", "to_json(v) v").collect()
    expected = {number + 100 * (number > 15): f'{{"a":[{number}],"b":{number}}}' for number in range(20)}
    assert {row["id"]: row["v"] for row in found} == expected
