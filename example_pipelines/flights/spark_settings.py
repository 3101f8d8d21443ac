"""Spark's settings for the example, apart from the definitions: Spark can start before Dagster is imported."""

from __future__ import annotations

from lake_core.spark import session

APP_NAME = "flights"
MASTER = "local[2]"
CONFIG = {
    # The rows are few. Spark is done sooner when it sends them to tasks as they are, in plans made once.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    # Python workers answer sooner this way (from Spark 4.1 on).
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.log.level": "ERROR",
    # Many short jobs: a JVM that compiles less is sooner done with them.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def start() -> None:
    """Start the Spark session that `SparkResource` uses in this process."""
    session(app_name=APP_NAME, master=MASTER, config=CONFIG)
