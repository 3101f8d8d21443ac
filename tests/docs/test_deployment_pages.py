"""The pages about clusters: their files parse and agree with one another, and what can run here runs."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import pytest
import yaml

import lake_orch.testing
from lake_core import Lake
from tests.conftest import ROOT
from tests.docs import typed
from tests.docs.blocks import DOCS, blocks
from tests.docs.page_job import execute

KUBERNETES = "how-to/kubernetes.md"
EMR = "how-to/emr-serverless.md"
DATABRICKS = "how-to/databricks.md"
CONNECT = "how-to/connect-server.md"
PAGES = [KUBERNETES, EMR, DATABRICKS, CONNECT]
_JSON = re.compile(r"^```json\n(.*?)^```", re.MULTILINE | re.DOTALL)
_OF_OTHERS = ("dagster_aws", "dagster_databricks", "databricks")
"""Packages that are not installed here."""


def documents(page: str) -> list[Any]:
    return [document for block in typed.blocks(page, "yaml") for document in yaml.safe_load_all(block)]


@pytest.mark.parametrize("page", PAGES)
def test_the_names_that_examples_import_exist(page: str) -> None:
    modules = [ast.parse(block.code) for block in blocks(page)]
    assert modules
    imports = [node for module in modules for node in ast.walk(module) if isinstance(node, ast.ImportFrom)]
    for node in imports:
        assert node.module is not None
        if node.module.split(".")[0] not in _OF_OTHERS:
            module = importlib.import_module(node.module)
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_what_was_not_tried(page: str) -> None:
    assert "## What was tried" in (DOCS / page).read_text()
    assert "**Not" in (DOCS / page).read_text()


def test_the_files_for_kubernetes_agree() -> None:
    values, account, role, binding = documents(KUBERNETES)
    (definitions,) = (block.code for block in blocks(KUBERNETES))
    text = (DOCS / KUBERNETES).read_text()
    launcher = values["runLauncher"]["config"]["k8sRunLauncher"]
    pod = launcher["runK8sConfig"]
    variables = {variable["name"] for variable in pod["containerConfig"]["env"]}
    assert pod["podSpecConfig"]["serviceAccountName"] == account["metadata"]["name"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"][0]["name"] == account["metadata"]["name"]
    assert variables == set(re.findall(r'environ\.get\("(POD_\w+)"', definitions))
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    for image in (f"{deployment['image']['repository']}:{deployment['image']['tag']}", "lake-executor:1"):
        assert f"{image} ." in text, "an image that is built"
    assert "lake-executor:1" in definitions
    assert deployment["dagsterApiGrpcArgs"][-1] in text.split("values.yaml")[0]
    assert deployment["envSecrets"] == launcher["envSecrets"] == [{"name": "lake"}]


def test_the_definitions_for_kubernetes_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lake = Lake.create("lake")
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        assert execute(instance, KUBERNETES, "nightly").is_success
    assert len(lake.delta("tables/orders").to_arrow()) == 2


@pytest.mark.parametrize("page", [CONNECT, DATABRICKS])
def test_definitions_with_a_remote_session_load(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    block = next(block for block in blocks(page) if "SparkResource" in block.code)
    names: dict[str, Any] = {}
    exec(compile(block.code, page, "exec", dont_inherit=True), names)
    dg.Definitions.validate_loadable(names["defs"])


@pytest.mark.parametrize(
    ("page", "program"), [(EMR, "jobDriver.sparkSubmit.entryPoint"), (DATABRICKS, "spark_python_task.python_file")]
)
def test_a_job_runs_the_program_of_its_page(page: str, program: str, tmp_path: Path) -> None:
    (text,) = _JSON.findall((DOCS / page).read_text())
    value = json.loads(text)
    for key in program.split("."):
        value = value[key]
    assert Path(value).name in typed.write_files(page, tmp_path)


class SubmittedHere(dg.PipesClient):
    """Stands in for EMR's client: runs the program of the page by spark-submit, and kills its first attempt."""

    attempts = 0

    def run(  # type: ignore[override]
        self, *, context: Any, start_job_run_params: dict[str, Any], extras: dict[str, Any]
    ) -> dg.PipesClientCompletedInvocation:
        program = Path(start_job_run_params["jobDriver"]["sparkSubmit"]["entryPoint"]).name
        self.attempts += 1
        if self.attempts == 1:
            # After the last write, before the report.
            text = Path(program).read_text().replace("    pipes.report", "    raise SystemExit(1)\n    pipes.report")
            program = "dying.py"
            Path(program).write_text(text)
        with dg.open_pipes_session(
            context=context,
            context_injector=dg.PipesEnvContextInjector(),
            message_reader=dg.PipesTempFileMessageReader(),
            extras=extras,
        ) as session:
            conf = {
                "spark.ui.enabled": "false",
                "spark.sql.shuffle.partitions": "1",
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            }
            pyspark = importlib.import_module("pyspark").__file__
            assert pyspark is not None
            words = [Path(pyspark).parent / "bin" / "spark-submit", "--master", "local[2]"]
            settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
            environment = {
                "PYTHONPATH": str(ROOT),
                "PYSPARK_PYTHON": sys.executable,
                **session.get_bootstrap_env_vars(),
            }
            subprocess.run([*words, *settings, program], env={**os.environ, **environment}, check=True)
        return dg.PipesClientCompletedInvocation(session)


@pytest.mark.spark
@pytest.mark.exhaustive
@pytest.mark.timeout(180)
def test_the_application_for_emr_is_published_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lake = Lake.create("lake")
    module = ModuleType("dagster_aws.pipes")
    module.PipesEMRServerlessClient = SubmittedHere  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dagster_aws", ModuleType("dagster_aws"))
    monkeypatch.setitem(sys.modules, "dagster_aws.pipes", module)
    typed.write_files(EMR, tmp_path)
    (tmp_path / "job.json").write_text(*_JSON.findall((DOCS / EMR).read_text()))
    names: dict[str, Any] = {}
    exec((tmp_path / "definitions.py").read_text(), names)
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        resources = names["defs"].resources
        assert lake_orch.testing.materialize([names["orders"]], resources=resources, instance=instance).success
    assert resources["emr"].attempts == 2
    assert len(lake.delta("tables/orders").to_arrow()) == 1000
    assert sum(lake.delta("tables/totals").to_arrow()["count"].to_pylist()) == 1000
    assert len(lake.log()) == 2
