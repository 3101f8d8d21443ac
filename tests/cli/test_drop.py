"""`lake drop`: datasets of every format, on any branch, undone by a revert, and deleted by a collection."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import zarr

from lake_core import Lake
from tests.cli.commands import run, run_json
from tests.lake.lakes import SCHEMA, ids, rows


@pytest.fixture
def root(tmp_path: Path) -> str:
    with Lake.create(tmp_path).session() as s:
        s.create_delta("t", SCHEMA).append(rows([1]))
        s.create_pool("p").load(pa.table({"ts": [1]}))
        zarr.create_array(s.create_icechunk("a").store, name="x", shape=(2,), dtype="int64")[:] = 1
    return str(tmp_path)


@pytest.mark.parametrize("path", ["t", "p", "a"])
def test_a_dataset_is_dropped(root: str, path: str) -> None:
    text = run(root, "drop", path)
    assert f"dropped {path}" in text
    assert "lake revert" in text
    assert path not in {record.path for record in Lake.open(root).list_datasets()}
    assert Lake.open(root).log()[0].message == f"Drop {path}"


def test_a_revert_brings_it_back(root: str) -> None:
    commit = run_json(root, "drop", "t", "-m", "no longer needed")["commit"]
    assert Lake.open(root).log()[0].message == "no longer needed"
    run(root, "revert", commit)
    assert ids(Lake.open(root).delta("t")) == [1]


def test_other_branches_keep_it(root: str) -> None:
    run(root, "branch", "dev")
    run(root, "drop", "t", "--branch", "dev")
    lake = Lake.open(root)
    assert "t" in {record.path for record in lake.list_datasets()}
    assert "t" not in {record.path for record in lake.list_datasets("dev")}


def test_what_is_not_there_is_named(root: str) -> None:
    assert "t/x" in run(root, "drop", "t/x", code=1)
    assert len(Lake.open(root).log()) == 2
