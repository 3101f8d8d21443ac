"""`lake import`: what lies in the lake's folder is brought in as what it is."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from lake_core import Lake
from lake_core.cli import main
from tests.cli.commands import run, run_json
from tests.lake.lakes import ids, rows


def test_a_delta_table_is_brought_in_with_its_history(root: str, lake: Lake) -> None:
    for id in (1, 2):
        deltalake.write_deltalake(f"{root}/tables/e", rows([id]), mode="append")
    assert "brought in tables/e: a Delta table" in run(root, "import", "tables/e")
    assert ids(lake.delta("tables/e")) == [1, 2]
    assert lake.delta("tables/e").version == 1


def test_a_folder_of_parquet_files_becomes_a_table(root: str, lake: Lake) -> None:
    for day in ("2026-01-01", "2026-01-02"):
        folder = Path(root, "raw/events", f"day={day}")
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"id": [1]}), folder / "a.parquet")
    assert "a folder of Parquet files, as a Delta table (2 objects, " in run(root, "import", "raw/events")
    assert len(lake.delta("raw/events").to_arrow(where="day = '2026-01-02'")) == 1


def test_partition_columns_of_parquet_files_can_be_named(root: str, lake: Lake) -> None:
    folder = Path(root, "raw/events/day=1")
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), folder / "a.parquet")
    run(root, "import", "raw/events", "--partition-by", "day")
    assert lake.delta("raw/events").metadata.partition_columns == ("day",)


def test_other_files_become_files(root: str, lake: Lake) -> None:
    Path(root, "docs").mkdir()
    Path(root, "docs/a.txt").write_text("hello")
    assert "brought in docs: plain files (1 object, 5 bytes)" in run(root, "import", "docs")
    assert bytes(lake.at().get("docs/a.txt")) == b"hello"


def test_files_can_get_another_prefix_on_another_branch(root: str, lake: Lake) -> None:
    Path(root, "docs").mkdir()
    Path(root, "docs/a.txt").write_text("hello")
    lake.branch("dev")
    run(root, "import", "docs", "--to", "papers", "--branch", "dev", "-m", "papers")
    assert lake.at("dev").exists("papers/a.txt")
    assert lake.log("dev", limit=1)[0].message == "papers"


def test_a_dry_run_says_what_it_is_and_writes_nothing(root: str, lake: Lake) -> None:
    deltalake.write_deltalake(f"{root}/tables/e", rows([1]))
    before = sorted(Path(root).rglob("*"))
    assert run_json(root, "import", "tables/e", "--dry-run")["import"]["kind"] == "delta"
    assert sorted(Path(root).rglob("*")) == before


def test_a_path_may_begin_at_the_working_directory(root: str, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    deltalake.write_deltalake(f"{root}/tables/e", rows([1]))
    monkeypatch.chdir(Path(root, "tables"))
    assert CliRunner().invoke(main, ["import", "e"]).exit_code == 0
    assert "tables/e" in lake.at().datasets()


@pytest.mark.parametrize("inside", ["../elsewhere", "/elsewhere"])
def test_a_path_outside_of_the_lake_is_refused(root: str, inside: str) -> None:
    assert "lies outside of the lake's folder" in run(root, "import", inside, code=1)


def test_a_path_with_nothing_there_is_refused(root: str) -> None:
    assert "nothing lies at 'nope'" in run(root, "import", "nope", code=1)


def test_a_delta_table_is_not_taken_for_its_files(root: str) -> None:
    deltalake.write_deltalake(f"{root}/tables/e", rows([1]))
    assert "is a Delta table" in run(root, "import", "tables/e", "--as", "parquet", code=1)


def test_what_is_a_table_of_the_lake_already_is_refused(root: str) -> None:
    assert "a dataset of the lake already" in run(root, "import", "t/orders", code=1)
