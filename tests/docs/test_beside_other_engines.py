"""Tables of a lake that another engine, deltalake, reads and writes, as docs/beside-other-engines.md says."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

from pathlib import Path

import dagster as dg
import deltalake
import pyarrow as pa
import pytest

from lake_core import Lake
from lake_orch import DeltaIOManager, LakeResource
from lake_orch.testing import materialize
from tests.docs.blocks import blocks
from tests.lake.lakes import SCHEMA, ids, rows


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The lake of the page's example.

    `shared/events` is created for other engines, `legacy/orders` is imported, and `tables/daily` is the lake's own.
    """
    monkeypatch.chdir(tmp_path)
    deltalake.write_deltalake("lake/legacy/orders", rows(range(3)))
    names = {"schema": SCHEMA, "rows": rows([0])}
    for block in blocks("beside-other-engines.md"):
        exec(compile(block.code, "beside-other-engines.md", "exec", dont_inherit=True), names)
    return str(tmp_path / "lake")


@pytest.fixture
def lake(root: str) -> Lake:
    return Lake.open(root)


def append(root: str, path: str, id: int) -> None:
    deltalake.write_deltalake(f"{root}/{path}", rows([id]), mode="append")


def read(root: str, path: str) -> list[int]:
    return ids(deltalake.DeltaTable(f"{root}/{path}").to_pyarrow_table())


@pytest.mark.parametrize("path", ["shared/events", "legacy/orders"])
def test_others_may_append_to_tables_that_are_not_the_lakes_alone(path: str, lake: Lake, root: str) -> None:
    before = ids(lake.delta(path))
    append(root, path, 50)
    assert read(root, path) == [*before, 50]


@pytest.mark.parametrize("path", ["shared/events", "legacy/orders"])
def test_readers_of_the_lake_see_it_once_it_is_adopted(path: str, lake: Lake, root: str) -> None:
    before, commits = ids(lake.delta(path)), len(lake.log())
    append(root, path, 50)
    assert ids(lake.delta(path)) == before
    lake.maintenance.adopt(path)
    assert ids(lake.delta(path)) == [*before, 50]
    assert len(lake.log()) == commits + 1


def test_an_asset_writes_a_shared_table_by_its_path_and_others_go_on(lake: Lake, root: str) -> None:
    @dg.asset(metadata={"lake/path": "shared/events", "lake/mode": "append"})
    def events() -> pa.Table:
        return rows([60])

    append(root, "shared/events", 50)
    assert materialize(
        [events], resources={"io_manager": DeltaIOManager(lake=LakeResource(root=root, scope="run"))}
    ).success
    append(root, "shared/events", 70)
    assert read(root, "shared/events") == [50, 60, 70]


def test_the_next_publish_of_the_table_adopts_by_itself(lake: Lake, root: str) -> None:
    append(root, "shared/events", 50)
    with lake.session() as session:
        session.delta("shared/events").append(rows([60]))
    assert ids(lake.delta("shared/events")) == read(root, "shared/events") == [50, 60]


def test_the_lakes_own_tables_are_read_but_not_written_by_others(lake: Lake, root: str) -> None:
    assert read(root, "tables/daily") == ids(lake.delta("tables/daily")) == [0]
    with pytest.raises(Exception, match="lakeManaged"):
        append(root, "tables/daily", 50)


def test_others_read_the_published_rows_of_a_session_only(lake: Lake, root: str) -> None:
    session = lake.session()
    session.delta("tables/daily").append(rows([70]))
    assert read(root, "tables/daily") == [0]
    session.publish()
    assert read(root, "tables/daily") == [0, 70]


def test_a_released_table_is_written_by_others(lake: Lake, root: str) -> None:
    lake.maintenance.release("tables/daily")
    append(root, "tables/daily", 50)
    assert read(root, "tables/daily") == [0, 50]


def test_a_released_table_is_no_more_in_the_lake_but_in_its_history(lake: Lake) -> None:
    before, commits = lake.list_branches()["main"], len(lake.log())
    lake.maintenance.release("tables/daily")
    assert len(lake.log()) == commits + 2
    assert "tables/daily" not in lake.list_datasets()
    assert ids(lake.delta("tables/daily", ref=before)) == [0]


def test_a_full_vacuum_of_another_engine_takes_the_files_of_branches(lake: Lake, root: str) -> None:
    lake.create_branch("dev")
    with lake.session("dev") as session:
        session.delta("shared/events").append(rows([80]))
    table = deltalake.DeltaTable(f"{root}/shared/events")
    assert len(table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=True, full=True)) == 1
