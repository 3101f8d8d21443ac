"""The same work in Spark, by this implementation and by delta-spark, each in its own environment.

`make interop` makes the environment of delta-spark.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.measure import Program, compare

PYTHON = Path(__file__).parents[1] / ".venv-interop" / "bin" / "python"

_ROWS = """
import tempfile
folder = tempfile.mkdtemp(dir={folder!r}) + "/table"
def rows(start, stop, step=1):
    columns = "id", "cast(id % 8 as int) part", "id / 2 x", "concat('name-', id % 1000) s"
    return spark.range(start, stop, step).selectExpr(*columns)
"""
_CONF = """
builder = builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.sql.shuffle.partitions", "4")
builder = builder.config("spark.driver.memory", "2g")
"""
_OURS = (
    """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
builder = SparkSession.builder
"""
    + _CONF
    + """
spark = builder.config("spark.sql.execution.arrow.pyspark.enabled", "true").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
from lake_core.delta import DeltaTable
from lake_core.spark import delete_delta, merge_delta, optimize_delta, read_delta, write_delta
"""
    + _ROWS
)
_THEIRS = (
    """
from delta import DeltaTable, configure_spark_with_delta_pip
from pyspark.sql import SparkSession
builder = SparkSession.builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
"""
    + _CONF
    + """
spark = configure_spark_with_delta_pip(builder).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
"""
    + _ROWS
)
_WARM_OURS = (
    "write_delta(rows(0, 1000), folder + '-warm', partition_by=['part']); read_delta(spark, folder + '-warm').count()\n"
)
_WARM_THEIRS = (
    "rows(0, 1000).write.format('delta').partitionBy('part').save(folder + '-warm')\n"
    "spark.read.format('delta').load(folder + '-warm').count()\n"
)
_OURS_FILLED = _OURS + _WARM_OURS + "write_delta(rows(0, {count}), folder{partitioned_ours})\n"
_THEIRS_FILLED = _THEIRS + _WARM_THEIRS + "rows(0, {count}).write.format('delta'){partitioned_theirs}.save(folder)\n"


def _pair(
    folder: str,
    count: int,
    ours: str,
    theirs: str,
    *,
    filled: bool,
    partitioned: bool = False,
    vectors: bool = False,
) -> tuple[Program, Program]:
    names = {
        "folder": folder,
        "count": count,
        "partitioned_ours": ", partition_by=['part']" if partitioned else "",
        "partitioned_theirs": ".partitionBy('part')" if partitioned else "",
    }
    mine = (_OURS_FILLED if filled else _OURS + _WARM_OURS).format(**names)
    other = (_THEIRS_FILLED if filled else _THEIRS + _WARM_THEIRS).format(**names)
    if vectors:
        mine += "DeltaTable.open(folder).set_properties({'delta.enableDeletionVectors': 'true'})\n"
        other += (
            "spark.sql(f\"ALTER TABLE delta.`{folder}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')\")\n"
        )
    return Program(mine, ours.format(**names)), Program(other, theirs.format(**names), str(PYTHON))


def measure(folder: str, rounds: int, count: int) -> None:
    """Append (plain and partitioned), scan with a filter, delete, merge and optimize of a table of `count` rows."""
    appends(folder, rounds, count)
    scan(folder, rounds, count)
    for vectors in (False, True):
        delete(folder, rounds, count, vectors=vectors)
        merge(folder, rounds, count, vectors=vectors)
    optimize(folder, rounds, count)


def appends(folder: str, rounds: int, count: int) -> None:
    for title, partitioned in (("append", False), ("append into 8 partitions", True)):
        ours, theirs = _pair(
            folder,
            count,
            "result = write_delta(rows(0, {count}), folder{partitioned_ours}).rows",
            "rows(0, {count}).write.format('delta'){partitioned_theirs}.save(folder); result = {count}",
            filled=False,
            partitioned=partitioned,
        )
        compare(f"Spark: {title}, {count} rows", ours, theirs, rounds=rounds, peer="delta-spark", memory=False)


def scan(folder: str, rounds: int, count: int) -> None:
    ours, theirs = _pair(
        folder,
        count,
        "result = read_delta(spark, folder, where='part = 3 AND id < 1000000').selectExpr('sum(x)').first()[0]",
        "result = spark.read.format('delta').load(folder).where('part = 3 AND id < 1000000')"
        ".selectExpr('sum(x)').first()[0]",
        filled=True,
        partitioned=True,
    )
    compare(f"Spark: scan with filter, {count} rows", ours, theirs, rounds=rounds, peer="delta-spark", memory=False)


def _title(title: str, *, vectors: bool) -> str:
    return f"Spark: {title}" + (", with deletion vectors" if vectors else "")


def delete(folder: str, rounds: int, count: int, *, vectors: bool) -> None:
    ours, theirs = _pair(
        folder,
        count,
        "result = delete_delta(spark, folder, 'id % 100 = 7').metrics['numDeletedRows']",
        "DeltaTable.forPath(spark, folder).delete('id % 100 = 7'); result = {count} // 100",
        filled=True,
        vectors=vectors,
    )
    title = _title(f"delete of 1 % of {count} rows", vectors=vectors)
    compare(title, ours, theirs, rounds=rounds, peer="delta-spark", memory=False)


def merge(folder: str, rounds: int, count: int, *, vectors: bool) -> None:
    ours, theirs = _pair(
        folder,
        count,
        "m = merge_delta(rows(0, {count} // 10 * 11, 11), folder, 't.id = s.id')\n"
        "m = m.when_matched_update('*').when_not_matched_insert('*')\n"
        "result = m.execute().metrics['numTargetRowsUpdated']",
        "t = DeltaTable.forPath(spark, folder).alias('t')\n"
        "m = t.merge(rows(0, {count} // 10 * 11, 11).alias('s'), 't.id = s.id')\n"
        "m = m.whenMatchedUpdateAll().whenNotMatchedInsertAll()\n"
        "result = m.execute().first()['num_updated_rows']",
        filled=True,
        vectors=vectors,
    )
    title = _title(f"merge of {count // 10} rows into {count}", vectors=vectors)
    compare(title, ours, theirs, rounds=rounds, peer="delta-spark", memory=False)


def optimize(folder: str, rounds: int, count: int) -> None:
    many_ours = f"\nfor n in range(20): write_delta(rows(n, n + {count} // 20), folder)\n"
    many_theirs = (
        f"\nfor n in range(20): rows(n, n + {count} // 20).write.format('delta').mode('append').save(folder)\n"
    )
    ours = Program(_OURS.format(folder=folder) + _WARM_OURS + many_ours, "optimize_delta(spark, folder); result = 0")
    theirs = Program(
        _THEIRS.format(folder=folder) + _WARM_THEIRS + many_theirs,
        "DeltaTable.forPath(spark, folder).optimize().executeCompaction(); result = 0",
        str(PYTHON),
    )
    compare(
        f"Spark: optimize of {count} rows in 40 files", ours, theirs, rounds=rounds, peer="delta-spark", memory=False
    )
