"""delta-spark behind a pipe, in an environment of its own: takes SQL as lines of JSON, returns rows or an error.

An argument is JSON, too: more of Spark's configuration.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    answers, sys.stdout = sys.stdout, sys.stderr
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
    )
    for name, value in json.loads(sys.argv[1]).items() if len(sys.argv) > 1 else ():
        builder = builder.config(name, value)
    spark = configure_spark_with_delta_pip(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    print(json.dumps({"ready": spark.version}), file=answers, flush=True)
    for line in sys.stdin:
        try:
            rows = [row.asDict(recursive=True) for row in spark.sql(json.loads(line)["sql"]).collect()]
            answer = {"rows": rows}
        except Exception as error:  # whatever Spark raises is the answer
            answer = {"error": str(error)[:2000]}
        print(json.dumps(answer, default=str), file=answers, flush=True)


if __name__ == "__main__":
    main()
