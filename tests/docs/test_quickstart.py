"""The quickstart and the page of components: their files are written and loaded.

`tests/browser` follows the quickstart by hand.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import dagster as dg
import pyarrow.csv as csv
import pytest
import yaml

from lake_core import Lake
from lake_orch import components
from lake_orch.testing import execute_in_process
from tests.conftest import ROOT
from tests.docs.typed import blocks, write_files


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path / "project"


def load(folder: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> dg.Definitions:
    """Load the files below `defs` as a project of `dg` has them."""
    (folder / package).mkdir()
    (folder / "defs").rename(folder / package / "defs")
    return load_project(folder, monkeypatch, package, folder)


def load_project(folder: Path, monkeypatch: pytest.MonkeyPatch, package: str, source: Path) -> dg.Definitions:
    """Load a project of `dg` whose package lies in the folder `source`."""
    for part in ("", "defs"):
        (source / package / part / "__init__.py").touch()
    (folder / "pyproject.toml").write_text(
        f'[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "{package}"\n'
    )
    monkeypatch.syspath_prepend(str(source))
    importlib.invalidate_caches()
    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)  # of another test's folder
    return dg.load_from_defs_folder(path_within_project=source / package)


def test_what_the_quickstart_schedules(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Python and as components: the same tables, schedules, checks and jobs."""
    write_files("quickstart.md", folder)
    monkeypatch.syspath_prepend(str(folder))
    names: dict[str, object] = {}
    exec(compile((folder / "definitions.py").read_text(), "definitions.py", "exec", dont_inherit=True), names)
    plain = names["defs"]
    assert isinstance(plain, dg.Definitions)
    composed = load_project(folder, monkeypatch, "shop", folder / "src")
    for defs in (plain, composed):
        dg.Definitions.validate_loadable(defs)
        graph = defs.resolve_asset_graph()
        assert {"orders", "revenue", "maintenance/compaction"} <= {
            key.to_user_string() for key in graph.get_all_asset_keys()
        }
        checked = {key.asset_key.to_user_string() for key in graph.asset_check_keys}
        assert checked == {"orders", "maintenance/health/orders", "maintenance/health/revenue"}
        crons = {schedule.name: schedule.cron_schedule for schedule in defs.get_repository_def().schedule_defs}
        assert crons.pop("daily_schedule") == "0 2 * * *"
        assert crons["maintenance_vacuum_schedule"] == "0 4 * * *"


def test_the_components_of_the_quickstart_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files("quickstart.md", folder)
    (folder / "landing").mkdir()
    lake = Lake.create(folder / "lake")
    defs = load_project(folder, monkeypatch, "shop", folder / "src")
    job = defs.resolve_job_def("daily")
    with dg.DagsterInstance.ephemeral() as instance:
        for amount, good in ((-99.0, False), (99.0, True)):
            (folder / "landing/2025-01-02.csv").write_text(
                f"day,customer,amount\n2025-01-02,ann,{amount}\n2025-01-02,bob,6.0\n"
            )
            result = execute_in_process(job, instance=instance, partition_key="2025-01-02", raise_on_error=False)
            assert result.success is good
            assert bool(lake.list_datasets()) is good
    assert lake.delta("tables/revenue").to_arrow().to_pylist() == [{"day": date(2025, 1, 2), "amount": 105.0}]
    assert csv.read_csv(folder / "landing/2025-01-02.csv").num_rows == lake.delta("tables/orders").to_arrow().num_rows


def test_the_project_of_the_components_page(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it loads, and its tables are made: from landed files to the report, and by a process outside."""
    write_files("components.md", folder)
    types = {
        part["type"].rpartition(".")[2] for code in blocks("components.md", "yaml") for part in yaml.safe_load_all(code)
    }
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
        result = execute_in_process(whole, instance=instance, tags=tags)
        checks = {
            evaluation.check_name: evaluation.passed
            for evaluation in result.get_asset_check_evaluations()
            # What is published is looked at again after the run.
            if not evaluation.check_name.startswith("published")
        }
        assert checks == {"bought_something": True, "named": True}, (
            "health is measured by maintenance, not by a run of the tables"
        )
    assert {row["customer"]: str(row["total"]) for row in lake.delta("tables/customers").to_arrow().to_pylist()} == {
        "ann": "101.00",
        "bo": "4.00",
    }
    assert lake.delta("tables/big_spenders").to_arrow().to_pylist() == [{"customer": "ann"}]
    assert lake.delta("tables/outside").to_arrow().num_rows == 2
    assert lake.at().get("files/outside.txt") == b"done"
    assert len(lake.log()) == 2, "one run, one commit"
