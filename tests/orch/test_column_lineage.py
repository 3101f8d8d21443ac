"""Edges between columns, read from Spark's plans: the right ones, and none where the plan does not tell."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as F

from lake_core.delta import DeltaTable
from lake_core.spark import read_delta, register
from lake_core.spark.column_origins import marked
from lake_orch.spark.column_lineage import column_lineage, lineage_metadata, tracked

A, B = dg.AssetKey(["silver", "orders"]), dg.AssetKey("items")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lineage")
    rows = pa.table({"id": list(range(10)), "p": ["a", "b"] * 5, "x": [float(number) for number in range(10)]})
    DeltaTable.create(str(path / "a"), rows.schema, partition_by=["p"]).append(rows)
    DeltaTable.create(str(path / "b"), rows.schema).append(rows)
    return path


@pytest.fixture
def a(spark: SparkSession, folder: Path) -> DataFrame:
    frame = tracked(read_delta(spark, str(folder / "a")), A)
    frame.createOrReplaceTempView("va")
    return frame


@pytest.fixture
def b(spark: SparkSession, folder: Path) -> DataFrame:
    frame = tracked(read_delta(spark, str(folder / "b"), columns=["id", "x"]), B)
    frame.createOrReplaceTempView("vb")
    return frame


def edges(df: DataFrame) -> dict[str, set[str]] | None:
    """Return the edges, written as a.x."""
    lineage = column_lineage(df, [A, B])
    if lineage is None:
        return None
    short = {A: "a", B: "b"}
    return {
        column: {f"{short[dep.asset_key]}.{dep.column_name}" for dep in deps}
        for column, deps in lineage.deps_by_column.items()
    }


def over() -> WindowSpec:
    return Window.partitionBy("p").orderBy("id")


SELF = {"id": {"a.id"}, "p": {"a.p"}, "x": {"a.x"}}

FRAMES: dict[str, tuple[Callable[[DataFrame, DataFrame], DataFrame], dict[str, set[str]]]] = {
    "as it is": (lambda a, b: a, SELF),
    "renamed, dropped, spelled otherwise": (
        lambda a, b: a.drop("p").withColumnRenamed("x", "y").select("ID", "y"),
        {"ID": {"a.id"}, "y": {"a.x"}},
    ),
    "rows chosen, ordered, redistributed": (
        lambda a, b: (
            a.where("x > 1")
            .dropDuplicates(["p"])
            .orderBy("x")
            .limit(3)
            .repartition(3, "id")
            .hint("broadcast")
            .sample(0.5)
        ),
        SELF,
    ),
    "expressions": (
        lambda a, b: a.select(
            (F.col("id") + F.col("x")).alias("sum"), F.concat("p", F.lit("!")).alias("text"), F.lit(1).alias("one")
        ),
        {"sum": {"a.id", "a.x"}, "text": {"a.p"}},
    ),
    "a condition in an expression counts": (
        lambda a, b: a.select(F.when(F.col("p") == "a", F.col("x")).otherwise(0).alias("v")),
        {"v": {"a.p", "a.x"}},
    ),
    "join": (
        lambda a, b: a.join(b, "id", "left").select("id", b["x"].alias("y"), (a["x"] - b["x"]).alias("d")),
        {"id": {"a.id"}, "y": {"b.x"}, "d": {"a.x", "b.x"}},
    ),
    "outer join by a common column": (
        lambda a, b: a.select("id").join(b, "id", "full"),
        {"id": {"a.id", "b.id"}, "x": {"b.x"}},
    ),
    "semi join": (lambda a, b: a.join(b, "id", "left_semi"), SELF),
    "self-join": (
        lambda a, b: a.alias("l").join(a.alias("r"), F.col("l.id") == F.col("r.id")).selectExpr("l.p", "r.x AS y"),
        {"p": {"a.p"}, "y": {"a.x"}},
    ),
    "union": (
        lambda a, b: a.select("id", "x").unionByName(b).distinct(),
        {"id": {"a.id", "b.id"}, "x": {"a.x", "b.x"}},
    ),
    "union by position": (lambda a, b: a.select("id").union(b.select("x")), {"id": {"a.id", "b.x"}}),
    "except": (lambda a, b: a.select("id").exceptAll(b.select("id")), {"id": {"a.id"}}),
    "aggregates": (
        lambda a, b: a.groupBy("p").agg(
            F.sum("x").alias("s"), F.count("*").alias("n"), F.max_by("x", "id").alias("last")
        ),
        {"p": {"a.p"}, "s": {"a.x"}, "last": {"a.x", "a.id"}},
    ),
    "aggregates over grouping sets": (
        lambda a, b: a.rollup("p", "id").agg(F.sum("x").alias("s")),
        {"p": {"a.p"}, "id": {"a.id"}, "s": {"a.x"}},
    ),
    "pivot": (
        lambda a, b: a.groupBy("id").pivot("p", ["a", "b"]).agg(F.sum("x")),
        {"id": {"a.id"}, "a": {"a.x"}, "b": {"a.x"}},
    ),
    "unpivot": (lambda a, b: b.unpivot(["id"], ["x"], "name", "value"), {"id": {"b.id"}, "value": {"b.x"}}),
    "windows": (
        lambda a, b: a.select("id", F.row_number().over(over()).alias("n"), (F.sum("x").over(over()) / 2).alias("s")),
        {"id": {"a.id"}, "s": {"a.x"}},
    ),
    "explode": (
        lambda a, b: a.select("p", F.explode(F.array("id", "x")).alias("e")),
        {"p": {"a.p"}, "e": {"a.id", "a.x"}},
    ),
    "lambda": (
        lambda a, b: a.select(F.transform(F.array("id"), lambda item: item + F.col("x")).alias("z")),
        {"z": {"a.id", "a.x"}},
    ),
    "python function": (
        lambda a, b: a.select("id", F.udf(lambda value: value, "double")("x").alias("u")),
        {"id": {"a.id"}, "u": {"a.x"}},
    ),
    "names that look like expressions": (
        lambda a, b: a.select(F.col("x").alias("sum(id)")).select(F.col("sum(id)").alias("a b#1 AS c"), "`sum(id)`"),
        {"sum(id)": {"a.x"}},
    ),
    "data from elsewhere": (
        lambda a, b: (
            a.join(a.sparkSession.range(3), "id")
            .join(a.sparkSession.createDataFrame([(1, "q")], ["id", "q"]), "id")
            .drop("p")
        ),
        {"id": {"a.id"}, "x": {"a.x"}},
    ),
    # Known edges are still reported.
    "struct put together": (
        lambda a, b: a.select(F.struct("id", "x").alias("s"), "p").select("s", F.col("s.x").alias("part"), "p"),
        {"s": {"a.id", "a.x"}, "p": {"a.p"}},
    ),
    "several columns of one function": (
        lambda a, b: a.selectExpr("p", "stack(2, 'i', id, 'j', cast(x AS BIGINT))"),
        {"p": {"a.p"}},
    ),
    "beside rows of a python function": (
        lambda a, b: a.join(b.mapInArrow(lambda rows: rows, "id long, x double").toDF("id", "m"), "id"),
        SELF,
    ),
}


@pytest.mark.parametrize("name", FRAMES)
def test_edges(name: str, a: DataFrame, b: DataFrame) -> None:
    make, expected = FRAMES[name]
    actual = edges(make(a, b))
    # A name with ` AS ` in it hides its own edges and those of its neighbors.
    if name == "names that look like expressions":
        assert actual in (None, expected)
        return
    assert actual == expected


def test_sql_with_common_table_expressions_and_subqueries(spark: SparkSession, a: DataFrame, b: DataFrame) -> None:
    frame = spark.sql(
        "WITH q AS (SELECT id, x * 2 AS d FROM va), r AS (SELECT q.id, q.d, vb.x FROM q JOIN vb ON q.id = vb.id) "
        "SELECT r.*, q.d AS e, (SELECT max(x) FROM vb) AS m FROM r JOIN q USING (id) WHERE r.id IN (SELECT id FROM vb)"
    )
    assert edges(frame) == {"id": {"a.id"}, "d": {"a.x"}, "x": {"b.x"}, "e": {"a.x"}}


@pytest.mark.extended
def test_however_a_table_is_read(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"id": list(range(40)), "p": list(range(40))})
    many = DeltaTable.create(str(tmp_path / "many"), rows.schema, partition_by=["p"])
    many.append(rows)
    expected = {"id": {"a.id"}, "p": {"a.p"}}
    assert edges(tracked(read_delta(spark, many), A)) == expected, "partition values by a join on the file's name"
    assert edges(tracked(read_delta(spark, many, where="id + p > 3"), A)) == expected, "rows filtered by Arrow"
    register(spark)
    assert edges(tracked(spark.read.format("lake").load(str(tmp_path / "many")), A)) == expected, "a Python data source"


@pytest.mark.parametrize(
    "make",
    [
        lambda a: a.mapInArrow(lambda rows: rows, "id long"),
        lambda a: a.groupBy("p").applyInPandas(lambda rows: rows, "id long"),
        lambda a: a.select(F.lit("foo, (bar AS x#1").alias("k"), "id"),
        lambda a: a.select(F.lit("a\n+- Project [id#0L]").alias("k"), "id"),
        lambda a: a.select("id", F.col("x").alias("id")),
        lambda a: a.sparkSession.range(3),
        lambda a: a.localCheckpoint(),
    ],
    ids=[
        "mapInArrow",
        "applyInPandas",
        "brackets in a literal",
        "lines in a literal",
        "a name twice",
        "other data",
        "checkpoint",
    ],
)
def test_where_nothing_is_known_nothing_is_told(make: Callable[[DataFrame], DataFrame], a: DataFrame) -> None:
    assert edges(make(a)) is None


def test_a_literal_makes_no_edge(a: DataFrame) -> None:
    frame = a.select("id", F.lit("x#1").alias("k"), F.lit("p, x AS y#2").alias("m"))
    actual = edges(frame)
    assert actual is None or actual == {"id": {"a.id"}}


@pytest.mark.extended
def test_wide_tables_are_read_whole(a: DataFrame) -> None:
    wide = a.select("id", *((F.col("x") + number).alias(f"c{number}") for number in range(300)))
    lineage = edges(wide)
    assert lineage is not None
    assert len(lineage) == 301
    assert lineage["c299"] == {"a.x"}


def test_settings_and_output_are_as_before(spark: SparkSession, a: DataFrame) -> None:
    before = spark.conf.get("spark.sql.debug.maxToStringFields")
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        outputs: set[object] = set()
        has_ended = threading.Event()

        def look() -> None:
            while not has_ended.wait(0.001):
                outputs.add(sys.stdout)

        thread = threading.Thread(target=look)
        thread.start()
        assert edges(a) is not None
        has_ended.set()
        thread.join()
    assert shown.getvalue() == ""
    assert outputs == {shown}, "the output of other threads is not replaced"
    assert spark.conf.get("spark.sql.debug.maxToStringFields") == before


def test_only_assets_that_are_asked_for(spark: SparkSession, a: DataFrame, b: DataFrame) -> None:
    both = a.select("id").unionByName(b.select("id")).withColumn("k", F.lit(1))
    assert column_lineage(both, [A]) is None
    assert column_lineage(a, []) is None
    assert column_lineage(a.join(b.withColumnRenamed("x", "y"), "id"), [B]) == dg.TableColumnLineage(
        {"y": [dg.TableColumnDep(asset_key=B, column_name="x")]}
    )
    with pytest.raises(ValueError, match="letters"):
        marked(a, "a'b")


def test_as_metadata(a: DataFrame, b: DataFrame) -> None:
    metadata = lineage_metadata(a.join(b, "id").select("id", (a["x"] + b["x"]).alias("total")), [A, B])
    assert set(metadata) == {"dagster/column_lineage", "lake/column_lineage"}
    records = [record.data for record in metadata["lake/column_lineage"].records]
    assert records[0] == {"column": "id", "from asset": "silver/orders", "from column": "id"}
    assert {(record["column"], record["from asset"]) for record in records[1:]} == {
        ("total", "items"),
        ("total", "silver/orders"),
    }
    dg.AssetMaterialization("out", metadata=metadata)
    assert lineage_metadata(a.mapInArrow(lambda rows: rows, "id long"), [A]) == {}
