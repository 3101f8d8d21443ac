"""The IO manager with DataFrames of Spark Connect.

In a process of its own: one has either kind of session, not both.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

SCRIPT = """
import sys
from pathlib import Path

import dagster as dg
from pyspark.sql import DataFrame

from lake_orch import SparkResource
from lake_orch.spark.connect_server import stop_servers
from tests.orch.test_io_matrix import check

config = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", "spark.sql.shuffle.partitions": "2"
}
resource = SparkResource(shared=True, master="local[2,3]", config=config)
with dg.DagsterInstance.get() as instance:
    seen = []

    @dg.asset
    def inside(spark: SparkResource) -> None:
        session = spark.session
        seen.append(type(session).__module__)
        rows = lambda frame: [row.asDict() for row in frame.collect()]
        check(Path(sys.argv[1]), "session", DataFrame, session.createDataFrame, rows, spark)

    try:
        assert dg.materialize([inside], resources={"spark": resource}, instance=instance).success
    finally:
        assert stop_servers(Path(instance.storage_directory()) / "lake_spark_connect") == 1
print(seen)
"""


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_every_mode_over_connect(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    environment = {**os.environ, "DAGSTER_HOME": str(home)}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    process = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=580, cwd=Path(__file__).parents[2]
    )
    assert process.returncode == 0, process.stderr[-4000:]
    assert process.stdout.splitlines()[-1] == "['pyspark.sql.connect.session']"
