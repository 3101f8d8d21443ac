"""Two outputs of one job that have one path are refused before anything is written, if one replaces the other."""

# No `from __future__ import annotations` here: Dagster reads the annotations of ops as objects.

from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa
import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_orch import DeltaIOManager, FileIOManager, IcechunkIOManager, InvalidDefinition, LakeResource, PoolIOManager

MANAGERS: dict[str, tuple[type, Any]] = {
    "tables": (DeltaIOManager, pa.table({"n": [1]})),
    "files": (FileIOManager, "text"),
    "pools": (PoolIOManager, [{"ts": 1}]),
    "arrays": (IcechunkIOManager, np.zeros(2)),
}


def resources(root: str, **more: Any) -> dict[str, Any]:
    lake = LakeResource(root=root)
    managers = {name: kind(lake=lake) for name, (kind, _) in MANAGERS.items()}
    defined = {"lake": lake, **managers, "io_manager": managers["tables"], **more}
    return {name: each.get_resource_definition() for name, each in defined.items()}


def an_op(name: str, path: str = "work/made", value: Any = MANAGERS["tables"][1], key: str = "io_manager", **more: Any):
    @dg.op(name=name, out=dg.Out(io_manager_key=key, metadata={"lake/path": path, **more}))
    def made() -> Any:
        return value

    return made


def job_of(root: str, *ops: Any, **more: Any) -> dg.JobDefinition:
    @dg.job(resource_defs=resources(root, **more))
    def both() -> None:
        for op in ops:
            op()

    return both


def is_empty(root: str) -> bool:
    if Lake.exists(root):
        return not list(Lake.open(root).at("main").list(""))
    return not any(path.is_file() for path in Path(root).rglob("*"))


@pytest.mark.parametrize("scope", ["asset", "run"])
@pytest.mark.parametrize("manager", MANAGERS)
def test_an_op_that_is_used_twice_is_refused(tmp_path: Path, manager: str, scope: str) -> None:
    root = str(tmp_path / "lake")
    Lake.create(root)
    kind, value = MANAGERS[manager]
    make = an_op("make", value=value, key=manager)
    used = {manager: kind(lake=LakeResource(root=root, scope=scope))}
    job = job_of(root, make.alias("left"), make.alias("right"), **used)
    with pytest.raises(
        InvalidDefinition, match=r"of op (left|right) and .* of op (left|right) would both be stored at work/made"
    ):
        job.execute_in_process()
    assert is_empty(root)
    with pytest.raises(InvalidDefinition, match="lake/path"):
        job.execute_in_process(op_selection=["left"])
    assert is_empty(root)


@pytest.mark.parametrize("manager", MANAGERS)
def test_it_is_refused_in_a_plain_folder(tmp_path: Path, manager: str) -> None:
    root = str(tmp_path / "folder")
    make = an_op("make", value=MANAGERS[manager][1], key=manager)
    with pytest.raises(InvalidDefinition, match="left"):
        job_of(root, make.alias("left"), make.alias("right")).execute_in_process()
    assert is_empty(root)


def test_an_op_within_two_graph_assets_is_refused(root: str) -> None:
    make = an_op("make")

    @dg.op
    def count(rows: pa.Table) -> pa.Table:
        return pa.table({"rows": [len(rows)]})

    @dg.graph_asset
    def first():
        return count(make())

    @dg.graph_asset
    def second():
        return count(make())

    @dg.graph_asset
    def third():
        return make()

    for assets in ([first, second], [first, third]):
        with pytest.raises(InvalidDefinition, match=r"first\.make.*lake/owner"):
            dg.materialize(assets, resources=resources(root))
        assert is_empty(root)
    assert dg.materialize([first, second], selection=[first], resources=resources(root)).success


def test_one_op_as_two_assets_is_refused(root: str) -> None:
    make = an_op("make")

    @dg.graph_asset
    def first():
        return make()

    @dg.graph_asset
    def second():
        return make()

    with pytest.raises(InvalidDefinition, match=r"asset (first|second), and .* asset (first|second), would both"):
        dg.materialize([first, second], resources=resources(root))
    assert is_empty(root)


def test_two_io_managers_of_one_lake_have_the_same_paths(root: str) -> None:
    other = DeltaIOManager(lake=LakeResource(root=root), preview_rows=0)
    ops = an_op("one"), an_op("two", path="/work/made/", key="other")
    with pytest.raises(InvalidDefinition, match="stored at work/made"):
        job_of(root, *ops, other=other).execute_in_process()
    elsewhere = DeltaIOManager(lake=LakeResource(root=f"{root}-2"))
    assert job_of(root, *ops, other=elsewhere).execute_in_process().success
    assert DeltaTable.exists(f"{root}/work/made")
    assert DeltaTable.exists(f"{root}-2/work/made")


@pytest.mark.parametrize(
    ("of_one", "of_two", "is_refused"),
    [
        ({"lake/mode": "append"}, {"lake/mode": "append"}, False),
        ({"lake/merge": ["n"]}, {"lake/mode": "append"}, False),
        ({"lake/replace_where": "n = 1"}, {"lake/merge": ["n"]}, False),
        ({"lake/owner": "shared"}, {}, False),
        ({}, {"lake/owner": dg.MetadataValue.text("shared")}, False),
        ({"lake/mode": "append"}, {}, True),
        ({"lake/mode": "overwrite_partitions", "lake/partition_by": ["n"]}, {"lake/mode": "append"}, True),
    ],
)
def test_outputs_that_add_to_one_table_may_share_it(
    root: str, of_one: dict[str, Any], of_two: dict[str, Any], is_refused: bool
) -> None:
    job = job_of(root, an_op("one", **of_one), an_op("two", **of_two))
    if is_refused:
        with pytest.raises(InvalidDefinition, match="takes the place of the other"):
            job.execute_in_process()
        assert is_empty(root)
    else:
        assert job.execute_in_process().success


def test_the_mode_of_the_io_manager_counts(root: str) -> None:
    appends = DeltaIOManager(lake=LakeResource(root=root), mode="append")
    one, two = an_op("one"), an_op("two", key="appends")
    with pytest.raises(InvalidDefinition):
        job_of(root, one, two, appends=appends).execute_in_process()
    assert job_of(root, an_op("one", key="appends"), two, appends=appends).execute_in_process().success


@pytest.mark.parametrize(("first", "second", "is_refused"), [("x", "x.json", True), ("x.html", "x.json", False)])
def test_files_with_other_extensions_are_other_files(root: str, first: str, second: str, is_refused: bool) -> None:
    ops = an_op("one", path=first, value="1", key="files"), an_op("two", path=second, value={"a": 2}, key="files")
    if is_refused:
        with pytest.raises(InvalidDefinition):
            job_of(root, *ops).execute_in_process()
    else:
        assert job_of(root, *ops).execute_in_process().success
        assert sorted(path.name for path in Path(root).iterdir()) == ["x.html", "x.json"]


@dg.op(out=dg.DynamicOut(str, io_manager_key="files", metadata={"lake/path": "out/parts"}))
def parts():
    for key in ("a", "b"):
        yield dg.DynamicOutput(key, mapping_key=key)


@dg.op(out=dg.Out(str, io_manager_key="files", metadata={"lake/path": "out/upper"}))
def upper(part: str) -> str:
    return part.upper()


def test_values_of_one_dynamic_output_are_one_output(root: str) -> None:
    collected = an_op("collected", path="out/upper", value="all", key="files")

    @dg.graph
    def within(part):
        return upper(part)

    @dg.job(resource_defs=resources(root))
    def job():
        parts().map(within)
        collected()

    assert job.execute_in_process().success
    assert sorted(path.name for path in (Path(root) / "out/upper").iterdir()) == ["a.txt", "b.txt"]


def test_mapped_outputs_are_refused_where_another_output_is(root: str) -> None:
    @dg.job(resource_defs=resources(root))
    def twice():
        found = parts()
        found.map(upper.alias("one"))
        found.map(upper.alias("two"))

    with pytest.raises(InvalidDefinition, match="stored at out/upper"):
        twice.execute_in_process()
    assert not (Path(root) / "out/upper").exists()

    at_a = an_op("at_a", path="out/upper/a", value="all", key="files")

    @dg.job(resource_defs=resources(root))
    def with_key():
        parts().map(upper)
        at_a()

    with pytest.raises(InvalidDefinition, match="stored at out/upper/a"):
        with_key.execute_in_process()
