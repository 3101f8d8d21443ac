"""The quickstart and the page of components: their files are written and loaded, their commands typed."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pyarrow.csv as csv
import pytest
import yaml

from lake_core import Lake
from lake_orch import components
from lake_orch.testing import execute_in_process
from tests.conftest import ROOT
from tests.docs.blocks import DOCS

_BLOCK = re.compile(r"^```(python|yaml|sql|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"(?:#|--) (\S+\.(?:py|yaml|sql))\n")
_NOT_TYPED = ("pip install", "dagster dev")


def blocks(page: str, kind: str) -> list[str]:
    return [code for found, code in _BLOCK.findall((DOCS / page).read_text()) if found == kind]


def write_files(page: str, folder: Path) -> list[str]:
    """Write every block that names its file."""
    names = []
    for kind in ("python", "yaml", "sql"):
        for code in blocks(page, kind):
            match = _NAMED.match(code)
            assert match, f"a block of {page} names no file: {code[:80]}"
            file = folder / match[1]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(code)
            names.append(match[1])
    assert len(names) == len(set(names))
    return names


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    yield tmp_path / "project"


def load(folder: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> dg.Definitions:
    """The files below `defs` as a project of `dg` has them."""
    (folder / package).mkdir()
    (folder / "defs").rename(folder / package / "defs")
    for part in ("", "defs"):
        (folder / package / part / "__init__.py").touch()
    (folder / "pyproject.toml").write_text(f'[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "{package}"\n')
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()
    return dg.load_from_defs_folder(path_within_project=folder / package)


@pytest.mark.timeout(200)
def test_the_quickstart_as_typed(folder: Path) -> None:
    """In Python, by the commands of the page, in a shell and an instance of their own."""
    write_files("quickstart.md", folder)
    code = (folder / "definitions.py").read_text()
    in_one_process = 'lake_executor.configured({"in_process": {}}, name="lake_executor")'  # steps in processes of their own take a minute
    (folder / "definitions.py").write_text(code.replace("executor=lake_executor,", f"executor={in_one_process},"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DAGSTER")}
    environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "DAGSTER_DISABLE_TELEMETRY": "1"}
    shown = []
    state = "cd .; "
    for line in "".join(blocks("quickstart.md", "console")).splitlines():
        if line.startswith(_NOT_TYPED):
            continue
        if line.startswith("mkdir quickstart"):
            continue  # this folder is it
        if line.startswith("export "):
            state += f"{line} -p; "
            continue
        done = subprocess.run(["bash", "-c", state + line], cwd=folder, env=environment, capture_output=True, text=True, timeout=100)
        assert (done.returncode == 0) is ("# fails" not in line), f"{line}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        shown.append((line, done.stdout))
    lake = Lake.open(folder / "lake")
    assert lake.delta("tables/orders").to_arrow().num_rows == 4
    found = lake.delta("tables/revenue").to_arrow().sort_by("day")["amount"].to_pylist()
    assert found == [14.5, 105.0], "the broken day was never published"
    before, after = (out for line, out in shown if line.endswith("lake log"))
    assert before == after and len(before.splitlines()) == 3
    (sessions,) = (out for line, out in shown if line.startswith("lake-orch"))
    (table,) = (out for line, out in shown if line.startswith("python -c"))
    assert "failed" in sessions and "orders_amounts_are_positive" in sessions and "105.0" in table
    with dg.DagsterInstance.from_config(str(folder / ".dagster")) as instance:
        assert instance.get_latest_materialization_event(dg.AssetKey(["maintenance", "compaction"])) is not None


def test_what_the_quickstart_schedules(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Python and as components: the same tables, schedules, checks and jobs."""
    write_files("quickstart.md", folder)
    monkeypatch.syspath_prepend(str(folder))
    names: dict[str, object] = {}
    exec(compile((folder / "definitions.py").read_text(), "definitions.py", "exec", dont_inherit=True), names)
    plain = names["defs"]
    assert isinstance(plain, dg.Definitions)
    composed = load(folder, monkeypatch, "quickstart_as_components")
    for defs in (plain, composed):
        dg.Definitions.validate_loadable(defs)
        graph = defs.resolve_asset_graph()
        assert {"orders", "revenue", "maintenance/compaction"} <= {key.to_user_string() for key in graph.get_all_asset_keys()}
        checked = {key.asset_key.to_user_string() for key in graph.asset_check_keys}
        assert checked == {"orders", "maintenance/health/orders", "maintenance/health/revenue"}
        crons = {schedule.name: schedule.cron_schedule for schedule in defs.get_repository_def().schedule_defs}
        assert crons.pop("daily_schedule") == "0 2 * * *" and crons["maintenance_vacuum_schedule"] == "0 4 * * *"


def test_the_components_of_the_quickstart_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files("quickstart.md", folder)
    (folder / "landing").mkdir()
    lake = Lake.create(folder / "lake")
    defs = load(folder, monkeypatch, "quickstart_that_runs")
    job = defs.resolve_job_def("daily")
    with dg.DagsterInstance.ephemeral() as instance:
        for amount, good in ((-99.0, False), (99.0, True)):
            (folder / "landing/2025-01-02.csv").write_text(f"day,customer,amount\n2025-01-02,ann,{amount}\n2025-01-02,bob,6.0\n")
            done = execute_in_process(job, instance=instance, partition_key="2025-01-02", raise_on_error=False)
            assert done.success is good and bool(lake.datasets()) is good
    assert lake.delta("tables/revenue").to_arrow().to_pylist() == [{"day": "2025-01-02", "amount": 105.0}]
    assert csv.read_csv(folder / "landing/2025-01-02.csv").num_rows == lake.delta("tables/orders").to_arrow().num_rows


def test_the_project_of_the_components_page(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it loads, and its tables are made: from landed files to the report, and by a process outside."""
    monkeypatch.delenv("LAKE_ROOT", raising=False)  # the page means its own folder
    write_files("components.md", folder)
    types = {part["type"].rpartition(".")[2] for code in blocks("components.md", "yaml") for part in yaml.safe_load_all(code)}
    assert types == set(components.__all__), "every component is shown"
    lake = Lake.create(folder / "lake")
    defs = load(folder, monkeypatch, "components_page")
    dg.Definitions.validate_loadable(defs)
    (folder / "landing/orders").mkdir(parents=True)
    (folder / "landing/orders/1.csv").write_text("id,customer,amount\n1,ann,99.5\n2,ann,1.5\n3,bo,4\n")
    repository = defs.get_repository_def()
    with dg.DagsterInstance.ephemeral() as instance:
        resources = {"lake": repository.get_top_level_resources()["lake"]}
        with dg.build_sensor_context(instance, repository_def=repository, resources=resources) as context:
            asked = repository.get_sensor_def("orders_landing_zone").evaluate_tick(context)
        assert asked.run_requests is not None
        tags = asked.run_requests[0].tags
        job = dg.define_asset_job("whole", "key:raw/orders or key:customers or key:big_spenders or key:outside")
        whole = dg.Definitions.merge(defs, dg.Definitions(jobs=[job])).resolve_job_def("whole")
        done = execute_in_process(whole, instance=instance, tags=tags)
        checks = {found.check_name: found.passed for found in done.get_asset_check_evaluations()}
        assert checks == {"bought_something": True, "named": True}, "health is measured by maintenance, not by a run of the tables"
    assert {row["customer"]: str(row["total"]) for row in lake.delta("tables/customers").to_arrow().to_pylist()} == {
        "ann": "101.00",
        "bo": "4.00",
    }
    assert lake.delta("tables/big_spenders").to_arrow().to_pylist() == [{"customer": "ann"}]
    assert lake.delta("tables/outside").to_arrow().num_rows == 2 and lake.at().get("files/outside.txt") == b"done"
    assert len(lake.log()) == 2, "one run, one commit"
