"""What other packages add to tables by their entry points alone: types of Python, and tasks of maintenance."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path

import dagster as dg
import pytest

from lake_core import Lake
from lake_core.dataset import dataset_format
from lake_core.errors import RegisteredTwice
from lake_orch import DeltaIOManager, LakeIOManager, LakeResource
from lake_orch.assets.asset_format import asset_format
from lake_orch.assets.maintenance import TASKS, maintenance_of
from lake_orch.errors import InvalidDefinition
from lake_orch.maintenance import lake_maintenance
from tests.lake.lakes import TOY_FORMATS, forget_formats

sys.path.insert(0, str(TOY_FORMATS))
from toy_readings import Readings

pytestmark = pytest.mark.usefixtures("toy_formats")


@dg.asset
def readings() -> object:
    return Readings([-1.0, 2.5])


def total(readings: object) -> float:
    assert isinstance(readings, Readings)
    return sum(readings.values)


total.__annotations__ = {"readings": Readings, "return": float}


@pytest.mark.parametrize("manager", [LakeIOManager, DeltaIOManager])
def test_a_type_is_stored_in_a_table_and_loaded(tmp_path: Path, manager: type[DeltaIOManager]) -> None:
    Lake.create(tmp_path)
    lake = LakeResource(root=str(tmp_path))
    resources = {"io_manager": manager(lake=lake), "lake": lake, "files": LakeIOManager(lake=lake)}
    result = dg.materialize([readings, dg.asset(total, io_manager_key="files")], resources=resources)
    assert result.output_for_node("total") == 1.5
    assert lake.read_table("tables/readings", None).to_arrow()["value"].to_pylist() == [-1.0, 2.5]


def test_a_type_is_known_without_an_io_manager() -> None:
    tables = asset_format("delta", {})
    assert tables.accepts(Readings([]))
    assert tables.loads(Readings)


def test_a_task_of_a_format_of_others_runs_where_it_is_named(tmp_path: Path) -> None:
    lake = LakeResource(root=str(tmp_path))
    Lake.create(tmp_path)
    resources = {"io_manager": DeltaIOManager(lake=lake), "lake": lake}
    assert dg.materialize([readings], resources=resources).success
    tasks = lake_maintenance([readings], tasks=["drop_negative"], checks=False)
    assert dg.materialize(list(tasks.assets or ()), resources=resources).success  # type: ignore[arg-type]
    assert lake.read_table("tables/readings", None).to_arrow()["value"].to_pylist() == [2.5]


def test_a_task_of_others_does_not_run_by_default() -> None:
    maintenance = maintenance_of("delta")
    assert ("drop_negative" in maintenance.tasks, "drop_negative" in maintenance.regular_tasks()) == (True, False)


@pytest.fixture
def install(tmp_path: Path) -> Iterator[Callable[[str, str], None]]:
    """Put the metadata of packages with such entry points on the path, for one test."""
    with pytest.MonkeyPatch.context() as patch:

        def put(name: str, entry_points: str) -> None:
            package = tmp_path / f"{name}-1.0.dist-info"
            package.mkdir()
            (package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            (package / "entry_points.txt").write_text(entry_points)
            patch.syspath_prepend(tmp_path)
            _forget()

        yield put
    _forget()


def _forget() -> None:
    forget_formats()
    maintenance_of.cache_clear()


def test_a_format_that_two_packages_register_is_refused(install: Callable[[str, str], None]) -> None:
    install("other", "[lake_core.formats]\ndelta = other:Format\n")
    with pytest.raises(RegisteredTwice, match="'lake-orch' and the package 'other' both register 'delta'"):
        dataset_format("delta")


def test_a_package_whose_metadata_is_found_twice_is_one(install: Callable[[str, str], None]) -> None:
    own = entry_points(group="lake_core.formats", name="delta")
    text = "".join(f"{point.name} = {point.value}\n" for point in own)
    install("copy", f"[lake_core.formats]\n{text}")
    assert dataset_format("delta") is dataset_format("delta")


def test_a_task_whose_name_is_taken_is_refused(install: Callable[[str, str], None]) -> None:
    install("other", f"[{TASKS}]\ndelta.vacuum = toy_readings:drop_negative\n")
    with pytest.raises(InvalidDefinition, match="'vacuum' of the format 'delta', which has one of this name"):
        maintenance_of("delta")
