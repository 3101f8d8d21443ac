"""Where a step's Spark session comes from, and that a step that needs none pays for none."""

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from lake_core.delta import DeltaTable
from lake_orch import InvalidDefinition, SparkResource
from lake_orch.spark.connect_server import stop_servers
from tests.orch import shared_spark_pipeline


def test_a_step_that_asks_for_no_session_does_not_import_spark() -> None:
    source = (
        "import sys, dagster as dg\n"
        "from lake_orch import SparkResource\n"
        "@dg.asset\n"
        "def bare(spark: SparkResource) -> None: ...\n"
        "assert dg.materialize([bare], resources={'spark': SparkResource(shared=True)}).success\n"
        "print('pyspark' in sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[-1] == "False"


def test_the_running_session_is_taken(spark: SparkSession) -> None:
    assert SparkResource().session is spark
    assert SparkResource(shared=True).session is spark
    assert SparkResource(config={"spark.sql.shuffle.partitions": "2"}).session is spark


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        (SparkResource(remote="sc://host", shared=True), "choose one"),
        (SparkResource(remote="sc://host", master="local"), "choose one"),
        (SparkResource(remote="spark://host:7077"), "URL of a Connect server"),
        (SparkResource(remote="sc://127.0.0.1:15002/;token=t"), "sc://localhost:port"),
        (SparkResource(remote="sc://[::1]/;token=t"), "sc://localhost:port"),
    ],
)
def test_settings_that_cannot_work_are_refused(resource: SparkResource, message: str) -> None:
    with pytest.raises(InvalidDefinition, match=message) as caught:
        _ = resource.session
    assert "token=" not in str(caught.value) + repr(resource)


@pytest.mark.extended
def test_shared_servers_belong_to_the_instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directories: list[Path] = []

    class Nested(dg.ConfigurableResource):  # type: ignore[type-arg]
        spark: SparkResource

    @dg.asset
    def one(spark: SparkResource, nested: Nested) -> None:
        directories.extend([spark.directory(), nested.spark.directory()])

    spark = SparkResource(shared=True)
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        dg.materialize([one], instance=instance, resources={"spark": spark, "nested": Nested(spark=spark)})
        assert directories == [Path(instance.storage_directory()) / "lake_spark_connect"] * 2
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    assert spark.directory() == tmp_path / "runtime" / "lake_spark_connect"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert spark.directory().name.startswith("lake_spark_connect-"), "one a user"


@pytest.mark.exhaustive
@pytest.mark.spark
def test_steps_in_processes_of_their_own_share_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_ROOT", str(tmp_path / "lake"))
    (tmp_path / "home").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "home")) as instance:
        try:
            result = dg.execute_job(dg.reconstructable(shared_spark_pipeline.job), instance, raise_on_error=True)
            assert result.success
            notes = []
            for name in ("even", "odd"):
                event = instance.get_latest_materialization_event(dg.AssetKey(name))
                assert event is not None
                assert event.asset_materialization is not None
                notes.append({key: value.value for key, value in event.asset_materialization.metadata.items()})
        finally:
            stopped = stop_servers(Path(instance.storage_directory()) / "lake_spark_connect")
    assert stopped == 1
    assert len({note["pid"] for note in notes}) == 2
    assert len({note["server"] for note in notes}) == 1
    assert {note["kind"] for note in notes} == {"pyspark.sql.connect.dataframe"}
    for name, remainder in (("even", 0), ("odd", 1)):
        numbers = DeltaTable.open(str(tmp_path / "lake" / "tables" / name)).to_arrow()["n"].to_pylist()
        assert sorted(numbers) == list(range(remainder, 10, 2))
