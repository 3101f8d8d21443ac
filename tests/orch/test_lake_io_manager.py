"""One IO manager for every format: the value's type, the metadata, or what is stored decides."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import collections.abc
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xarray as xr

from lake_core import Lake
from lake_core.lake.errors import DatasetExists
from lake_orch import (
    DeltaIOManager,
    FileIOManager,
    InvalidDefinition,
    LakeIOManager,
    LakeResource,
    PoolIOManager,
    UnsupportedData,
    testing,
)
from lake_orch.maintenance import MaintenanceTarget, lake_maintenance
from tests.lake.lakes import TOY_FORMATS

sys.path.insert(0, str(TOY_FORMATS))
from toy_note import Note

ROWS = pa.table({"id": [1, 2]})


pytestmark = pytest.mark.usefixtures("toy_formats")


@pytest.fixture(params=["plain", "lake", "run"])
def resources(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """A folder of plain datasets, a lake, and a lake in which a run is one session."""
    if request.param != "plain":
        Lake.create(tmp_path)
    lake = LakeResource(root=str(tmp_path), scope="run" if request.param == "run" else "asset")
    return {"io_manager": LakeIOManager(lake=lake), "lake": lake}


def materialize(assets: list[Any], resources: dict[str, Any], **options: Any) -> dg.ExecuteInProcessResult:
    return dg.materialize(assets, resources=resources, **options)


def stored(resources: dict[str, Any], name: str) -> str | None:
    lake: LakeResource = resources["lake"]
    return lake.format_at(f"tables/{name}", None)


def value_asset(value: Any, **metadata: Any) -> dg.AssetsDefinition:
    @dg.asset(name="value", metadata=metadata)
    def produced() -> dg.Output[Any]:
        return dg.Output(value)

    return produced


@pytest.mark.parametrize(
    ("value", "metadata", "format"),
    [
        (ROWS, {}, "delta"),
        (pd.DataFrame({"id": [1]}), {}, "delta"),
        (ROWS.to_reader(), {}, "delta"),
        (xr.Dataset({"v": ("x", [1.0, 2.0])}), {}, "icechunk"),
        (np.arange(3), {}, "icechunk"),
        ([{"id": 1}, {"id": "two"}], {"lake/key": "id"}, "pool"),
        ((record for record in [{"id": 1}]), {"lake/key": "id"}, "pool"),
        (ROWS, {"lake/format": "pool", "lake/key": "id"}, "pool"),
        ("a text", {}, "note"),
        ({"rows": 1}, {}, None),
    ],
)
def test_the_type_of_a_value_decides(
    resources: dict[str, Any], value: Any, metadata: dict[str, Any], format: str | None
) -> None:
    assert materialize([value_asset(value, **metadata)], resources).success
    assert stored(resources, "value") == format


@pytest.mark.parametrize("value", [{"rows": 1}, b"bytes", [1, 2]])
def test_other_values_are_files(resources: dict[str, Any], value: Any) -> None:
    seen: list[Any] = []

    @dg.asset(ins={"value": dg.AssetIn(dagster_type=type(value))})
    def reader(value: Any) -> None:
        seen.append(value)

    assert materialize([value_asset(value), reader], resources).success
    assert seen == [value]
    assert stored(resources, "value") is None


def test_an_input_is_loaded_from_the_format_in_which_it_is_stored(resources: dict[str, Any]) -> None:
    seen: list[Any] = []

    @dg.asset
    def reader(value: pa.Table) -> None:
        seen.append(value)

    records = value_asset([{"id": 1}, {"id": 2}], **{"lake/key": "id", "lake/order": "asc"})
    assert materialize([records, reader], resources).success
    assert stored(resources, "value") == "pool"
    assert seen[0]["id"].to_pylist() == [1, 2]


def test_a_format_of_ones_own_is_stored_and_loaded(resources: dict[str, Any]) -> None:
    seen: list[Any] = []

    @dg.asset
    def reader(value: str) -> None:
        seen.append(value)

    @dg.asset
    def other_reader(value: Note) -> None:
        seen.append(value.text)

    assert materialize([value_asset("first"), reader, other_reader], resources).success
    assert seen == ["first", "first"]


def test_a_format_of_ones_own_reports_what_it_wrote(resources: dict[str, Any]) -> None:
    result = materialize([value_asset("first")], resources)
    metadata = result.asset_materializations_for_node("value")[0].metadata
    assert metadata["lake/path"].value == "tables/value"


def test_options_go_to_their_format(tmp_path: Path) -> None:
    lake = LakeResource(root=str(tmp_path))
    formats = {"note": {"signature": ", signed"}, "delta": {"mode": "append"}}
    resources = {"io_manager": LakeIOManager(lake=lake, formats=formats), "lake": lake}

    @dg.asset
    def table() -> pa.Table:
        return ROWS

    for _ in range(2):
        assert materialize([value_asset("text"), table], resources).success
    assert lake.read("tables/value", "note", None).text == "text, signed"
    assert lake.read_table("tables/table", None).to_arrow().num_rows == 4


def test_an_option_that_a_format_does_not_have_is_refused(tmp_path: Path) -> None:
    lake = LakeResource(root=str(tmp_path))
    manager = LakeIOManager(lake=lake, formats={"delta": {"preview_image": True}})
    with pytest.raises(InvalidDefinition, match="no option 'preview_image'"):
        materialize([value_asset(ROWS)], {"io_manager": manager, "lake": lake})


def test_a_value_that_no_format_stores_is_refused(resources: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedData, match="which no format stores by itself"):
        materialize([value_asset(object())], resources)
    assert stored(resources, "value") is None


def test_a_format_that_is_not_installed_is_refused(resources: dict[str, Any]) -> None:
    with pytest.raises(InvalidDefinition, match="use one of delta, files, icechunk, note, pool"):
        materialize([value_asset(ROWS, **{"lake/format": "iceberg"})], resources)


RECORDS = {"lake/key": "id"}
OTHERS = [
    (ROWS, {}, {"rows": 1}, {}),
    ({"rows": 1}, {}, ROWS, {}),
    (ROWS, {}, "a text", {}),
    (ROWS, {}, ROWS, {"lake/format": "pool", **RECORDS}),
    (ROWS, {}, [{"id": 1}], RECORDS),
    ([{"id": 1}], RECORDS, ROWS, {}),
    ("a text", {}, b"bytes", {}),
    (ROWS, {}, {"rows": 1}, {"lake/format": "files"}),
    (xr.Dataset({"v": ("x", [1.0])}), {}, ROWS, {}),
]


@pytest.mark.parametrize(("first", "metadata", "second", "other"), OTHERS)
@pytest.mark.sampled(2)
def test_another_format_than_what_is_stored_is_refused(
    resources: dict[str, Any], first: Any, metadata: dict[str, Any], second: Any, other: dict[str, Any]
) -> None:
    assert materialize([value_asset(first, **metadata)], resources).success
    with pytest.raises(InvalidDefinition, match="which readers would still get"):
        materialize([value_asset(second, **other)], resources)


def test_a_list_without_records_replaces_those_that_are_stored(resources: dict[str, Any]) -> None:
    for value in ([{"id": 1}], []):
        assert materialize([value_asset(value, **RECORDS)], resources).success
    pool = resources["lake"].read_pool("tables/value", None)
    assert list(pool.scan().records()) == []


def test_an_empty_list_says_nothing_of_its_format(resources: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedData, match="list without elements, which no format stores by itself"):
        materialize([value_asset([])], resources)


def test_an_empty_list_is_stored_in_the_format_that_is_named(resources: dict[str, Any]) -> None:
    assert materialize([value_asset([], **{"lake/format": "files"})], resources).success


def test_a_format_without_partitions_refuses_partitioned_assets(resources: dict[str, Any]) -> None:
    @dg.asset(partitions_def=dg.StaticPartitionsDefinition(["a", "b"]))
    def value() -> str:
        return "a text"

    with pytest.raises(InvalidDefinition, match="the format 'note' stores no partitions"):
        materialize([value], resources, partition_key="a")


def test_outputs_of_ops_do_not_replace_one_another_s_files(resources: dict[str, Any]) -> None:
    @dg.op(out=dg.Out(metadata={"lake/path": "reports/x"}))
    def first() -> dict[str, Any]:
        return {"number": 1}

    @dg.op(out=dg.Out(metadata={"lake/path": "reports/x.json"}))
    def second() -> dict[str, Any]:
        return {"number": 2}

    @dg.job(resource_defs={"io_manager": resources["io_manager"], "lake": resources["lake"]})
    def both() -> None:
        first()
        second()

    with pytest.raises(InvalidDefinition, match="would both be stored at"):
        both.execute_in_process()


def test_outputs_of_ops_append_to_one_table(tmp_path: Path) -> None:
    lake = LakeResource(root=str(tmp_path))

    @dg.op(out=dg.Out(metadata={"lake/path": "tables/both"}))
    def first() -> pa.Table:
        return ROWS

    @dg.op(out=dg.Out(metadata={"lake/path": "tables/both"}))
    def second() -> pa.Table:
        return ROWS

    @dg.job(resource_defs={"io_manager": LakeIOManager(lake=lake, formats={"delta": {"mode": "append"}})})
    def both() -> None:
        first()
        second()

    assert both.execute_in_process().success
    assert lake.read_table("tables/both", None).to_arrow().num_rows == 4


def test_a_file_whose_path_has_an_extension_is_loaded(resources: dict[str, Any]) -> None:
    seen: list[Any] = []

    @dg.asset
    def reader(value: dict[str, int]) -> None:
        seen.append(value)

    assert materialize([value_asset({"rows": 1}, **{"lake/path": "reports/x.json"}), reader], resources).success
    assert seen == [{"rows": 1}]


def test_a_file_is_read_though_another_format_takes_its_type(resources: dict[str, Any]) -> None:
    seen: list[Any] = []

    @dg.asset
    def reader(value: str) -> None:
        seen.append(value)

    files = resources | {"io_manager": FileIOManager(lake=resources["lake"])}
    written = value_asset("a text")
    assert materialize([written], files).success
    assert materialize([written.to_source_asset(), reader], resources).success
    assert seen == ["a text"]


def test_the_first_run_of_an_asset_that_depends_on_itself(resources: dict[str, Any]) -> None:
    days = dg.DailyPartitionsDefinition("2025-01-01", end_date="2025-01-10")
    earlier = dg.TimeWindowPartitionMapping(start_offset=-2, end_offset=-1)
    seen: list[Any] = []

    @dg.asset(
        partitions_def=days,
        metadata={"partition_expr": "day"},
        ins={"value": dg.AssetIn(partition_mapping=earlier)},
    )
    def value(context: dg.AssetExecutionContext, value: dict[str, pa.Table]) -> pa.Table:
        seen.append({key: rows.num_rows for key, rows in value.items()})
        return pa.table({"day": [context.partition_key]})

    assert materialize([value], resources, partition_key="2025-01-03").success
    assert seen == [{"2025-01-01": 0, "2025-01-02": 0}]


@pytest.mark.parametrize(
    ("formats", "message"),
    [
        ({"dleta": {"mode": "append"}}, "'dleta', which is no format"),
        ({"delta": {"preview_rows": "5"}}, "use a int"),
        ({"delta": {"preview_rows": 1000}}, "use a number from 0 to 50"),
        ({"files": {"allow_pickle": "false"}}, "use a bool"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, formats: dict[str, Any], message: str) -> None:
    lake = LakeResource(root=str(tmp_path))
    value = {"rows": 1} if "files" in formats else ROWS
    with pytest.raises(InvalidDefinition, match=message):
        materialize([value_asset(value)], {"io_manager": LakeIOManager(lake=lake, formats=formats), "lake": lake})


_WITHOUT_ARRAYS = """
import sys
for name in ("xarray", "zarr", "dask"):
    sys.modules[name] = None
import dagster as dg
from lake_orch import LakeIOManager, LakeResource

@dg.asset
def report() -> dict[str, int]:
    return {{"rows": 1}}

@dg.asset
def reader(report: dict[str, int]) -> None:
    assert report == {{"rows": 1}}

lake = LakeResource(root={root!r})
assert dg.materialize([report, reader], resources={{"io_manager": LakeIOManager(lake=lake), "lake": lake}}).success
"""


def test_other_formats_work_without_the_packages_of_arrays(tmp_path: Path) -> None:
    code = _WITHOUT_ARRAYS.format(root=str(tmp_path))
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_pool_is_not_made_in_the_folder_of_a_table(tmp_path: Path) -> None:
    lake = LakeResource(root=str(tmp_path))
    tables, pools = ({"io_manager": manager(lake=lake), "lake": lake} for manager in (DeltaIOManager, PoolIOManager))
    assert materialize([value_asset(ROWS)], tables).success
    with pytest.raises(DatasetExists, match="holds a dataset of the format delta"):
        materialize([value_asset(ROWS, **RECORDS)], pools)


def test_values_of_all_formats_are_one_session(tmp_path: Path) -> None:
    Lake.create(tmp_path)
    lake = LakeResource(root=str(tmp_path))
    resources = {"io_manager": LakeIOManager(lake=lake), "lake": lake}

    @dg.asset
    def table() -> pa.Table:
        return ROWS

    @dg.asset
    def cube() -> xr.Dataset:
        return xr.Dataset({"v": ("x", [1.0, 2.0])})

    @dg.asset(metadata={"lake/key": "id"})
    def records(table: pa.Table) -> dg.Output[collections.abc.Iterator]:  # type: ignore[type-arg]
        return dg.Output(iter(table.to_pylist()))

    @dg.asset
    def note(table: pa.Table) -> str:
        return f"{table.num_rows} rows"

    before = len(list(lake.open().log()))
    assert testing.materialize([table, cube, records, note], resources=resources).success
    assert len(list(lake.open().log())) == before + 1
    formats = {path: record.format for path, record in lake.open().at().datasets().items()}
    assert formats == {
        "tables/cube": "icechunk",
        "tables/note": "note",
        "tables/records": "pool",
        "tables/table": "delta",
    }


def test_a_format_of_ones_own_is_maintained(resources: dict[str, Any]) -> None:
    lake: LakeResource = resources["lake"]
    assert materialize([value_asset("a   b"), dg.asset(name="other")(lambda: "c")], resources).success
    tasks = lake_maintenance(others={"note": [dg.AssetKey("value")]}, tasks=["squeeze"])
    with dg.DagsterInstance.ephemeral() as instance:
        health = dg.materialize(list(tasks.assets or ()), selection="maintenance/health/value", resources=resources)  # type: ignore[arg-type]
        (check,) = health.get_asset_check_evaluations()
        assert (check.passed, check.metadata["value"].value) == (False, 2)
        done = dg.materialize(
            list(tasks.assets or ()),  # type: ignore[arg-type]
            selection="maintenance/squeeze",
            resources=resources,
            instance=instance,
        )
    assert done.success
    assert lake.read("tables/value", "note", None).text == "a b"


def test_a_setting_that_a_format_of_ones_own_does_not_have_is_refused() -> None:
    target = MaintenanceTarget("tables/value", dg.AssetKey("value"), format="note", retention="7 days")
    with pytest.raises(InvalidDefinition, match="retention has no effect on tables/value"):
        lake_maintenance([target])
