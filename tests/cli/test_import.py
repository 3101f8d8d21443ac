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
from tests.lake.lakes import SCHEMA, ids, rows


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
    lake.create_branch("dev")
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
    assert "is outside the lake's folder" in run(root, "import", inside, code=1)


def test_a_path_with_nothing_there_is_refused(root: str) -> None:
    assert "there is nothing at 'nope'" in run(root, "import", "nope", code=1)


def test_a_delta_table_is_not_taken_for_its_files(root: str) -> None:
    deltalake.write_deltalake(f"{root}/tables/e", rows([1]))
    assert "is a Delta table" in run(root, "import", "tables/e", "--as", "parquet", code=1)


def test_what_is_a_table_of_the_lake_already_is_refused(root: str) -> None:
    assert "already a dataset of the lake" in run(root, "import", "t/orders", code=1)


def test_tables_in_a_folder_are_not_taken_for_plain_files(root: str) -> None:
    for name in ("x", "y"):
        deltalake.write_deltalake(f"{root}/n/{name}", rows([1]))
    output = run(root, "import", "n", code=1)
    assert "holds Delta tables: 'n/x', 'n/y'" in output
    assert "`lake import n/x`" in output


def test_the_same_files_a_second_time_change_nothing(root: str, lake: Lake) -> None:
    _write(root, "docs/a.txt", "one")
    run(root, "import", "docs")
    commit = lake.log(limit=1)[0].id
    assert "nothing changed: main has docs: plain files" in run(root, "import", "docs")
    assert lake.log(limit=1)[0].id == commit


def test_new_files_come_beside_those_that_are_there(root: str, lake: Lake) -> None:
    _write(root, "docs/a.txt", "one")
    run(root, "import", "docs")
    _write(root, "docs/b.txt", "two")
    run(root, "import", "docs")
    assert bytes(lake.at().get("docs/b.txt")) == b"two"


@pytest.mark.parametrize("words", [(), ("--dry-run",)])
def test_files_of_the_lake_are_not_replaced(root: str, lake: Lake, words: tuple[str, ...]) -> None:
    _write(root, "reports/today.txt", "another")
    assert "main has another file at 'reports/today.txt'" in run(root, "import", "reports", *words, code=1)
    assert bytes(lake.at().get("reports/today.txt")) == "grün\n".encode()


def test_a_table_that_the_lake_dropped_is_brought_back_by_a_revert(root: str, lake: Lake) -> None:
    with lake.session() as s:
        s.drop("t/orders")
    commit = lake.log(limit=1)[0].id[:12]
    assert f"`lake revert {commit}`" in run(root, "import", "t/orders", code=1)
    run(root, "revert", commit)
    assert len(ids(lake.delta("t/orders"))) == 10


def test_a_table_whose_creation_was_reverted_is_brought_back_by_a_revert(root: str, lake: Lake) -> None:
    run(root, "revert", "main~1")
    commit = lake.log(limit=1)[0].id[:12]
    assert f"`lake revert {commit}`" in run(root, "import", "t/orders", code=1)


def test_a_table_of_another_branch_is_not_imported(root: str, lake: Lake) -> None:
    lake.create_branch("dev")
    with lake.session("dev") as s:
        s.create_delta("t/new", SCHEMA).append(rows([1]))
    assert "bring it here with `lake merge`" in run(root, "import", "t/new", code=1)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("t/orders", "already a dataset of the lake"),
        ("t/orders/x", "'t/orders' is already a dataset of the lake"),
        ("t", "'t' holds datasets of the lake: 't/orders'"),
        (".", "the lake's folder as a whole cannot be imported"),
        ("", "the lake's folder as a whole cannot be imported"),
        ("_lake", "'_lake' belongs to the lake itself"),
        ("_lake/format", "belongs to the lake itself"),
        ("broken", "a.parquet is not a Parquet file"),
        ("reports/files", "holds plain files"),
        ("cut", "it is not a complete table"),
    ],
)
@pytest.mark.parametrize("words", [(), ("--dry-run",)])
def test_what_cannot_be_brought_in_is_refused_by_a_dry_run_too(
    root: str, lake: Lake, path: str, message: str, words: tuple[str, ...]
) -> None:
    _write(root, "t/orders/x", "x")
    _write(root, "broken/a.parquet", "no Parquet")
    _write(root, "cut/_delta_log/00000000000000000000.json", "{")
    Path(root, "reports/files").mkdir(parents=True)
    pq.write_table(rows([1]), f"{root}/reports/files/a.parquet")
    with lake.session() as s:
        s.put("reports/files/b.txt", b"x")
    assert message in run(root, "import", path, *words, code=1)


def test_a_dry_run_of_parquet_files_writes_nothing(root: str) -> None:
    Path(root, "raw").mkdir()
    pq.write_table(rows([1]), f"{root}/raw/a.parquet")
    before = sorted(Path(root).rglob("*"))
    run(root, "import", "raw", "--dry-run")
    assert sorted(Path(root).rglob("*")) == before


def _write(root: str, key: str, text: str) -> None:
    path = Path(root, key)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
