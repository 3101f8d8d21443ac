"""Processes outside of Dagster that write into the lake: killed, tried again, overtaken."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyspark
import pytest

import lake_orch.testing
from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_orch import LakeResource
from lake_orch.errors import InvalidDefinition, NotALake
from lake_orch.pipes import LakePipesSubprocessClient, LakeSparkSubmitClient

SCRIPT = str(Path(__file__).with_name("external_writer.py"))
ROOT = Path(__file__).parents[2]


class Outside:
    """A folder, a lake, an instance, and what the script is to do."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance) -> None:
        self.folder, self.instance = folder, instance
        self.root = str(folder / "lake")

    def wish(self, *wishes: str) -> None:
        (self.folder / "wishes.json").write_text(json.dumps(wishes))

    def reports(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "reports.jsonl").read_text().splitlines()]

    def asset(self, retries: int = 1) -> dg.AssetsDefinition:
        wishes = str(self.folder / "wishes.json")

        @dg.asset(retry_policy=dg.RetryPolicy(max_retries=retries) if retries else None)
        def outside(
            context: dg.AssetExecutionContext, external: LakePipesSubprocessClient
        ) -> dg.MaterializeResult[Any]:
            return external.run(context=context, command=[sys.executable, SCRIPT, wishes]).get_materialize_result()

        return outside

    def resources(self, **options: Any) -> dict[str, Any]:
        lake = LakeResource(root=self.root, **options)
        client = LakePipesSubprocessClient(lake=lake, env={"PYTHONPATH": str(ROOT)})
        return {"lake": lake, "external": client}

    def ids(self, table: str) -> list[int]:
        return sorted(DeltaTable.open(f"{self.root}/tables/{table}").to_arrow()["id"].to_pylist())

    def check_written_once(self) -> None:
        assert self.ids("first") == [1, 2, 3]
        assert self.ids("second") == [1, 2, 2, 3, 3]


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        yield Outside(tmp_path, instance)


def metadata(outside: Outside) -> dict[str, Any]:
    event = outside.instance.get_latest_materialization_event(dg.AssetKey("outside"))
    assert event is not None
    assert event.asset_materialization is not None
    return {name: value.value for name, value in event.asset_materialization.metadata.items()}


@pytest.mark.parametrize("death", [pytest.param("die between", marks=pytest.mark.exhaustive), "die after"])
def test_without_a_session_it_publishes_by_itself_once(outside: Outside, death: str) -> None:
    """Killed before it published, or after and before it could say so."""
    lake = Lake.create(outside.root)
    outside.wish(death)
    result = dg.materialize([outside.asset()], resources=outside.resources(), instance=outside.instance)
    assert result.success
    assert len(outside.reports()) == 2
    outside.check_written_once()
    assert len(lake.log()) == 2, "one commit, and the one that made the lake"
    entries = metadata(outside)
    assert entries["lake/state"] == "published"
    assert entries["lake/commit"] == lake.list_branches()["main"]
    assert entries.get("lake/skipped", False) is (death == "die after")
    assert lake.at().get("files/note.txt") == b"3"


def test_its_materialization_links_to_the_pages(outside: Outside) -> None:
    lake = Lake.create(outside.root)
    outside.wish("")
    resources = outside.resources(ui_url="http://lake.example:7117")
    assert dg.materialize([outside.asset()], resources=resources, instance=outside.instance).success
    head = lake.list_branches()["main"]
    assert metadata(outside)["lake/commit_page"] == f"http://lake.example:7117/commit/{head}"


@pytest.mark.parametrize("death", ["die between", pytest.param("die after", marks=pytest.mark.exhaustive)])
def test_in_a_run_with_one_session_it_is_staged(outside: Outside, death: str) -> None:
    lake = Lake.create(outside.root)
    outside.wish(death)
    dataset_counts: list[int] = []

    @dg.asset(deps=["outside"])
    def afterwards(lake: LakeResource) -> None:
        dataset_counts.append(len(lake.open().list_datasets()))

    result = lake_orch.testing.materialize(
        [outside.asset(), afterwards], resources=outside.resources(), instance=outside.instance
    )
    assert result.success
    assert dataset_counts == [0], "main has nothing until the run publishes"
    outside.check_written_once()
    entries = metadata(outside)
    session = lake.get_session(entries["lake/session"]).record
    assert "lake/state" not in entries
    assert session.state == "published"
    assert len(lake.log()) == 2
    first, second = outside.reports()
    assert first["extras"]["lake"]["task"] == second["extras"]["lake"]["task"]
    assert first["extras"]["lake"]["attempt"] < second["extras"]["lake"]["attempt"]


@pytest.mark.extended
def test_one_that_was_overtaken_writes_nothing(outside: Outside) -> None:
    """Another run has resumed the session meanwhile: its epoch is higher."""
    lake = Lake.create(outside.root)
    outside.wish("be overtaken")
    result = lake_orch.testing.materialize(
        [outside.asset(retries=0)], resources=outside.resources(), instance=outside.instance, raise_on_error=False
    )
    assert not result.success
    assert lake.list_datasets() == []
    (session,) = lake.list_sessions()
    assert session.epoch > outside.reports()[0]["extras"]["lake"]["epoch"]
    assert not session.batches
    assert lake.at(session.id).datasets() == {}


@pytest.mark.extended
@pytest.mark.parametrize("death", [pytest.param("die between", marks=pytest.mark.exhaustive), "die after"])
def test_in_a_folder_of_plain_tables_each_write_is_there_once(outside: Outside, death: str) -> None:
    outside.wish(death)
    result = dg.materialize([outside.asset()], resources=outside.resources(), instance=outside.instance)
    assert result.success
    assert len(outside.reports()) == 2
    outside.check_written_once()
    assert metadata(outside).get("lake/skipped", False) is (death == "die after")


def test_a_branch_needs_a_lake(outside: Outside) -> None:
    with pytest.raises(NotALake, match="branch 'dev'"):
        dg.materialize([outside.asset(retries=0)], resources=outside.resources(branch="dev"), instance=outside.instance)
    assert not (outside.folder / "reports.jsonl").exists(), "nothing was started"


@pytest.mark.extended
def test_it_writes_to_the_runs_branch(outside: Outside) -> None:
    lake = Lake.create(outside.root)
    resources = outside.resources(branch="dev", branch_from="main")
    assert dg.materialize([outside.asset()], resources=resources, instance=outside.instance).success
    assert lake.list_datasets() == []
    assert len(lake.list_datasets("dev")) == 2


@pytest.mark.extended
def test_a_run_that_starts_over_writes_again(outside: Outside) -> None:
    Lake.create(outside.root)
    for _ in range(2):
        assert dg.materialize([outside.asset()], resources=outside.resources(), instance=outside.instance).success
    assert outside.ids("first") == [1, 1, 2, 2, 3, 3]


def test_secrets_go_by_the_environment_alone(outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    Lake.create(outside.root)
    monkeypatch.setenv("PIPES_TEST_SECRET", "hunter2")
    # Local files accept any option. This one represents a secret key.
    resources = outside.resources(storage_options={"asynchronous_secret": dg.EnvVar("PIPES_TEST_SECRET")})
    script = outside.folder / "look.py"
    script.write_text(
        "import json, os, sys\nfrom dagster_pipes import open_dagster_pipes\n"
        "with open_dagster_pipes() as pipes:\n"
        "    found = {'argv': sys.argv, 'extras': pipes.extras, 'options': os.environ['LAKE_PIPES_STORAGE_OPTIONS']}\n"
        "    pipes.report_custom_message(found)\n"
    )
    messages: list[Any] = []

    @dg.asset
    def look(context: dg.AssetExecutionContext, external: LakePipesSubprocessClient) -> dg.MaterializeResult[Any]:
        result = external.run(context=context, command=[sys.executable, str(script)], extras={"own": 1})
        messages.extend(result.get_custom_messages())
        return result.get_materialize_result()

    result = dg.materialize([look], resources=resources, instance=outside.instance)
    assert json.loads(messages[0]["options"]) == {"asynchronous_secret": "hunter2"}
    assert messages[0]["extras"]["own"] == 1
    assert "hunter2" not in json.dumps([messages[0]["argv"], messages[0]["extras"]])
    assert "hunter2" not in repr(resources)
    assert not [entry for entry in outside.instance.all_logs(result.run_id) if "hunter2" in str(entry)]


def test_the_other_side_needs_no_dagster() -> None:
    code = "import lake_pipes, sys; sys.exit(any(name in sys.modules for name in ('dagster', 'lake_orch', 'pyspark')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60).returncode == 0
    by_hand = (
        "from dagster_pipes import open_dagster_pipes\nfrom lake_pipes import open_workspace\n"
        "with open_dagster_pipes() as p, open_workspace(p): pass"
    )
    alone = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", by_hand], cwd=ROOT, timeout=60, capture_output=True, text=True
    )
    assert alone.returncode == 1
    assert "NotHandedOver" in alone.stderr


def test_the_command_line_of_spark_submit() -> None:
    client = LakeSparkSubmitClient(
        lake=LakeResource(root="s3://bucket/lake", storage_options={"secret": "hunter2"}),
        master="yarn",
        deploy_mode="cluster",
        conf={"spark.executor.memory": "4g"},
        py_files=["a.zip", "b.py"],
    )
    words = client.command("job.py", ["--day", "1"], conf={"spark.x": "y"}, name="orders")
    assert words[:7] == ["spark-submit", "--master", "yarn", "--deploy-mode", "cluster", "--name", "orders"]
    assert words[7:11] == ["--conf", "spark.executor.memory=4g", "--conf", "spark.x=y"]
    assert words[11:] == ["--py-files", "a.zip,b.py", "job.py", "--day", "1"]
    with pytest.raises(InvalidDefinition, match=r"fs\.s3a\.secret\.key"):
        client.command("job.py", conf={"spark.hadoop.fs.s3a.secret.key": "hunter2"})
    with pytest.raises(InvalidDefinition, match="context_injector"), dg.build_asset_context() as context:
        client.run(context=context, application="job.py")


@pytest.mark.extended
@pytest.mark.spark
@pytest.mark.timeout(120)
@pytest.mark.parametrize("deaths", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_spark_submit_for_real(outside: Outside, deaths: int) -> None:
    """The driver is a process of its own, which may be killed once."""
    lake = Lake.create(outside.root)
    outside.wish(*["die between"] * deaths)
    resource = LakeResource(root=outside.root)
    client = LakeSparkSubmitClient(
        lake=resource,
        spark_submit=str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        master="local[1]",
        conf={
            "spark.ui.enabled": "false",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
        env={"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
    )

    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=1))
    def submitted(context: dg.AssetExecutionContext, submit: LakeSparkSubmitClient) -> dg.MaterializeResult[Any]:
        return submit.run(
            context=context, application=SCRIPT, arguments=[str(outside.folder / "wishes.json")]
        ).get_materialize_result()

    result = lake_orch.testing.materialize(
        [submitted], resources={"submit": client, "lake": resource}, instance=outside.instance
    )
    assert result.success
    assert len(outside.reports()) == 1 + deaths
    outside.check_written_once()
    assert len(lake.log()) == 2
