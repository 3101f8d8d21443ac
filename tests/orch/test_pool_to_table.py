"""Batches of a pool that are appended to a table: a column holds one kind of values, whatever else is in a batch."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from lake_core import Lake
from lake_core.delta.errors import SchemaMismatch
from lake_core.pool.zson.reader import parse_values
from lake_orch import DeltaIOManager, LakeResource, PoolIOManager, SparkResource

APPEND = {"lake/mode": "append", "lake/schema_mode": "merge"}


class Pipeline:
    """A pool of lines of JSON, and a table to which the new ones are appended."""

    def __init__(self, root: Path, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        Lake.create(str(root))
        self.lake = LakeResource(root=str(root))
        self.spark: SparkResource | None = None

    def run(self, records: Any, annotation: Any = pa.Table, metadata: dict[str, Any] = APPEND) -> None:
        """Load records into the pool, and append the new records to the table."""

        @dg.asset(name="events", io_manager_key="pools", metadata={"lake/key": "k", "lake/mode": "append"})
        def events() -> Any:
            return records

        @dg.asset(
            name="table",
            ins={"events": dg.AssetIn(input_manager_key="pools", metadata={"lake/since": "last run"})},
            metadata=metadata,
        )
        def table(events: annotation) -> Any:
            return events

        resources = {
            "pools": PoolIOManager(lake=self.lake, spark=self.spark),
            "io_manager": DeltaIOManager(lake=self.lake, spark=self.spark),
        }
        for asset in (events, table):
            dg.materialize([events, table], selection=[asset], resources=resources, instance=self.instance)

    def column(self, name: str = "v") -> list[Any]:
        """Return a column of the table, in the order of the key."""
        return self.lake.read_table("tables/table", None).to_arrow().sort_by("k")[name].to_pylist()


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        yield Pipeline(tmp_path / "lake", instance)


TEXT, MIXED = '{"k":1,"v":"x"}', '{"k":2,"v":"x"}\n{"k":3,"v":5}'


@pytest.mark.parametrize("annotation", [pa.Table, pa.RecordBatchReader])
def test_json_text_is_not_mixed_with_text(pipeline: Pipeline, annotation: Any) -> None:
    pipeline.run(TEXT, annotation)
    with pytest.raises(SchemaMismatch, match="column 'v' is text in the table, but JSON text in the output of asset"):
        pipeline.run(MIXED, annotation)
    assert pipeline.column() == ["x"]


@pytest.mark.parametrize("annotation", [pa.Table, pa.RecordBatchReader])
def test_a_column_of_json_text_stays_one_whatever_a_batch_has(pipeline: Pipeline, annotation: Any) -> None:
    pipeline.run('{"k":1,"v":"x"}\n{"k":2,"v":5}', annotation)
    for line in ('{"k":3,"v":"x"}', '{"k":4,"v":5}', '{"k":5,"v":{"a":[1]}}', '{"k":6}', '{"k":7,"v":null}'):
        pipeline.run(line, annotation)
    assert pipeline.column() == ['"x"', "5", '"x"', "5", '{"a":[1]}', None, None]


@pytest.mark.parametrize(
    ("wrap", "read"),
    [
        (lambda value: f'{{"a":{value}}}', lambda column: column["a"]),
        (lambda value: f"[{value}]", lambda column: column[0]),
        (lambda value: f'[{{"a":{value}}}]', lambda column: column[0]["a"]),
    ],
    ids=["record", "list", "list of records"],
)
def test_text_inside_of_columns_is_not_mixed_either(
    pipeline: Pipeline, wrap: Callable[[str], str], read: Callable[[Any], Any]
) -> None:
    pipeline.run(f'{{"k":1,"v":{wrap("5")},"w":{wrap(json.dumps("x"))}}}\n{{"k":2,"v":{wrap(json.dumps("x"))}}}')
    pipeline.run(f'{{"k":3,"v":{wrap(json.dumps("y"))}}}')
    assert [read(value) for value in pipeline.column()] == ["5", '"x"', '"y"']
    with pytest.raises(SchemaMismatch, match=r"column 'w.*' is text in the table"):
        pipeline.run(f'{{"k":4,"w":{wrap("5")}}}\n{{"k":5,"w":{wrap(json.dumps("x"))}}}')


def test_errors_hold_json_text_inside(pipeline: Pipeline) -> None:
    pipeline.run(list(parse_values('{k:1,v:error({a:"x"})} {k:2,v:error({a:5})}')))
    pipeline.run(list(parse_values('{k:3,v:error({a:"y"})}')))
    assert pipeline.column() == [{"a": '"x"'}, {"a": "5"}, {"a": '"y"'}]


def test_a_map_is_no_list_of_json_text(pipeline: Pipeline) -> None:
    pipeline.run('{"k":1,"v":["x",5]}')
    with pytest.raises(SchemaMismatch, match=r"column 'v.element' is string in the table"):
        pipeline.run(list(parse_values('{k:2,v:|{"a":"b"}|}')))


def test_a_column_that_is_added_later_holds_what_its_first_batch_has(pipeline: Pipeline) -> None:
    pipeline.run('{"k":1}')
    pipeline.run(MIXED)
    pipeline.run('{"k":4,"v":"x"}')
    assert pipeline.column() == [None, '"x"', "5", '"x"']


def test_an_overwrite_of_the_whole_table_takes_any_batch(pipeline: Pipeline) -> None:
    pipeline.run(TEXT, metadata={})
    pipeline.run(MIXED, metadata={})
    assert pipeline.column() == ['"x"', "5"]


def test_a_declared_column_of_text_takes_no_json_text(pipeline: Pipeline) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    with pytest.raises(SchemaMismatch, match="column 'v' is text in the table"):
        pipeline.run(MIXED, metadata={"lake/mode": "append", "lake/schema": schema})


def test_what_spark_reads_is_not_mixed_with_text(pipeline: Pipeline, spark: SparkSession) -> None:
    pipeline.spark = SparkResource()
    pipeline.run(TEXT, DataFrame)
    with pytest.raises(SchemaMismatch, match="column 'v' is text in the table"):
        pipeline.run(MIXED, DataFrame)


def test_text_that_spark_reads_is_not_mixed_with_json_text(pipeline: Pipeline, spark: SparkSession) -> None:
    pipeline.spark = SparkResource()
    pipeline.run(MIXED, DataFrame)
    with pytest.raises(SchemaMismatch, match="column 'v' holds JSON text in the table, and other values in the output"):
        pipeline.run(TEXT, DataFrame)
    assert sorted(pipeline.column()) == ['"x"', "5"]


def test_whole_numbers_go_into_a_column_of_doubles(pipeline: Pipeline) -> None:
    pipeline.run('{"k":1,"v":10.5,"n":{"w":[1.5]}}')
    pipeline.run('{"k":2,"v":10,"n":{"w":[2]}}')
    assert (pipeline.column(), pipeline.column("n")) == ([10.5, 10.0], [{"w": [1.5]}, {"w": [2.0]}])


def test_a_whole_number_that_a_double_would_round_is_refused(pipeline: Pipeline) -> None:
    pipeline.run('{"k":1,"v":10.5}')
    with pytest.raises(SchemaMismatch, match=r"column 'v' is double in the table, and .* a double would round"):
        pipeline.run('{"k":2,"v":9007199254740993}')
