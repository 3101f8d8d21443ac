"""Other readers and writers: imported tables, adoption, divergence, release; checkpoints; what others read."""

from __future__ import annotations

import shutil
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.delta.errors import ConvertFailed
from lake_core.errors import NotFound
from lake_core.lake.errors import Conflict, ContentChanged, DatasetExists, DatasetNotFound, Diverged, NothingToApply
from tests.lake.lakes import create_tables, ids, plain, rows
from tests.skip_rule import NO_CASES

CASES = Path(__file__).parents[3] / "shared" / "cases" / "delta"


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


@pytest.fixture
def local(root: str) -> Lake:
    lake = Lake.create(root)
    create_tables(lake, "t/orders")
    return lake


def foreign(root: str, path: str) -> deltalake.DeltaTable:
    return deltalake.DeltaTable(f"{root}/{path}")


def test_deltalake_reads_main_and_refuses_to_write_it(local: Lake, root: str) -> None:
    for id in range(20, 35):
        with local.session() as s:
            s.delta("t/orders").append(rows([id]))
            s.delta("t/orders").delete(f"id = {id - 20}")
    table = foreign(root, "t/orders")
    assert table.version() == 15
    assert ids(table.to_pyarrow_table()) == ids(local.delta("t/orders")) == list(range(20, 35))
    assert ids(deltalake.DeltaTable(f"{root}/t/orders", version=3).to_pyarrow_table()) == sorted(
        [*range(3, 10), 20, 21, 22]
    )
    assert Path(root, "t/orders/_delta_log/00000000000000000010.checkpoint.parquet").exists()
    before = sorted(path.name for path in Path(root, "t/orders").rglob("*"))
    with pytest.raises(Exception, match="lakeManaged"):
        deltalake.write_deltalake(table, rows([1]), mode="append")
    with pytest.raises(Exception, match="lakeManaged"):
        table.optimize.compact()
    with pytest.raises(Exception, match="lakeManaged"):
        table.delete("id = 20")
    assert sorted(path.name for path in Path(root, "t/orders").rglob("*")) == before


def test_a_checkpoint_in_the_folder_serves_the_states_that_it_belongs_to(local: Lake, root: str) -> None:
    local.create_branch("early")
    for id in range(20, 32):
        with local.session() as s:
            s.delta("t/orders").append(rows([id]))
    local.create_branch("late")
    with local.session("early") as s:
        for id in range(100, 112):
            s.delta("t/orders").append(rows([id]))
    fresh = Lake.open(root)
    key = "_delta_log/00000000000000000010.checkpoint.parquet"
    assert fresh.at("main").dataset("t/orders").exists(key)
    assert fresh.at("late").dataset("t/orders").exists(key)
    assert not fresh.at("early").dataset("t/orders").exists(key)
    assert not fresh.at("main~3").dataset("t/orders").exists(key)
    with pytest.raises(NotFound):
        fresh.at("early").dataset("t/orders").get(key)
    # The log before the checkpoint is not even read: it could be damaged.
    state = fresh.at("main")
    entry = state.view.get("t/orders/_delta_log/00000000000000000003.json")
    assert entry is not None
    Path(root, entry.entry.address).unlink()
    script = f"from lake_core import Lake; print(len(Lake.open({root!r}).delta('t/orders').to_arrow()))"
    import subprocess
    import sys

    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "22\n"


def test_imported_tables_stay_open_to_others_and_what_they_write_is_adopted(local: Lake, root: str) -> None:
    deltalake.write_deltalake(f"{root}/legacy/events", rows(range(3)), partition_by=["p"])
    deltalake.write_deltalake(f"{root}/legacy/events", rows([3]), mode="append")
    data = set(Path(root, "legacy").rglob("*.parquet"))
    with local.session(message="import") as s:
        table = s.import_delta("legacy/events")
        assert table.version == 1
        assert ids(table) == [0, 1, 2, 3]
        with pytest.raises(DatasetExists):
            s.import_delta("legacy/events")
        with pytest.raises(DatasetNotFound):
            s.import_delta("legacy/none")
    assert set(Path(root, "legacy").rglob("*.parquet")) == data, "nothing is copied"
    assert local.log()[0].message == "import"
    assert ids(local.delta("legacy/events", version=0)) == [0, 1, 2]
    # Both write. The lake adopts the other's commits before it publishes.
    for id in range(10, 14):
        deltalake.write_deltalake(f"{root}/legacy/events", rows([id]), mode="append")
        with local.session() as s:
            s.delta("legacy/events").append(rows([id + 100]))
            s.put(f"note-{id}", b"1")
    expected = sorted([0, 1, 2, 3, *range(10, 14), *range(110, 114)])
    assert ids(local.delta("legacy/events")) == ids(foreign(root, "legacy/events").to_pyarrow_table()) == expected
    assert [commit.message for commit in local.log(limit=4)] == ["", "Adopt legacy/events", "", "Adopt legacy/events"]
    with pytest.raises(NothingToApply):
        local.maintenance.adopt("legacy/events")
    assert local.maintenance.verify() == []


def test_a_log_that_another_writer_continued_behind_the_lakes_back(local: Lake, root: str) -> None:
    """The other one took the version that the lake had published, but not yet checked out."""
    deltalake.write_deltalake(f"{root}/legacy/events", rows(range(3)))
    with local.session() as s:
        s.import_delta("legacy/events")
    with local.session() as s:
        s.delta("legacy/events").append(rows([50]))
    Path(root, "legacy/events/_delta_log/00000000000000000001.json").unlink()
    deltalake.write_deltalake(f"{root}/legacy/events", rows([60, 61]), mode="append")
    with pytest.raises(Diverged, match="lake adopt legacy/events"):
        local.maintenance.checkout()
    adopted = local.maintenance.adopt("legacy/events")
    assert adopted.versions == {"legacy/events": 2}
    assert (
        ids(local.delta("legacy/events"))
        == ids(foreign(root, "legacy/events").to_pyarrow_table())
        == [0, 1, 2, 50, 60, 61]
    )
    assert local.maintenance.verify() == []
    assert local.status().pending_checkout == []


def test_a_log_is_adopted_whose_first_entries_were_cleaned_up(local: Lake, root: str) -> None:
    """Only one version is in both logs: those before it are gone in the folder, those after it are others."""
    deltalake.write_deltalake(f"{root}/legacy/events", rows(range(3)))
    with local.session() as s:
        s.import_delta("legacy/events")
    for id in range(10, 15):
        with local.session() as s:
            s.delta("legacy/events").append(rows([id]))
    log = Path(root, "legacy/events/_delta_log")
    for version in range(2, 6):
        (log / f"{version:020d}.json").unlink()
    for id in range(20, 26):
        deltalake.write_deltalake(f"{root}/legacy/events", rows([id]), mode="append")
    foreign(root, "legacy/events").create_checkpoint()
    (log / f"{0:020d}.json").unlink()
    local.maintenance.adopt("legacy/events")
    assert ids(local.delta("legacy/events")) == [0, 1, 2, *range(10, 15), *range(20, 26)]


def test_a_divergence_that_contradicts_is_refused(local: Lake, root: str) -> None:
    deltalake.write_deltalake(f"{root}/legacy/events", rows(range(3)))
    with local.session() as s:
        s.import_delta("legacy/events")
    with local.session() as s:
        s.delta("legacy/events").delete("id = 1")
    Path(root, "legacy/events/_delta_log/00000000000000000001.json").unlink()
    foreign(root, "legacy/events").delete("id = 2")
    with pytest.raises(Conflict) as caught:
        local.maintenance.adopt("legacy/events")
    assert caught.value.datasets == ("legacy/events",)


def test_a_foreign_version_of_the_lakes_own_table_is_refused_by_name(local: Lake, root: str) -> None:
    log = Path(root, "t/orders/_delta_log")
    shutil.copy(log / "00000000000000000000.json", log / "00000000000000000001.json")
    session = local.session()
    session.delta("t/orders").append(rows([50]))
    with pytest.raises(Diverged, match="t/orders"):
        session.publish()
    with local.session() as s:
        s.put("other", b"1")  # nothing else is held up
    assert local.at().exists("other")


def test_release_and_import_again(local: Lake, root: str) -> None:
    local.maintenance.release("t/orders")
    assert local.list_datasets() == []
    deltalake.write_deltalake(f"{root}/t/orders", rows([77]), mode="append")
    DeltaTable.open(f"{root}/t/orders").append(rows([78]))
    local.maintenance.gc()
    with local.session() as s:
        s.import_delta("t/orders")
    assert ids(local.delta("t/orders")) == [*range(10), 77, 78]
    assert local.maintenance.verify() == []


def test_a_folder_of_parquet_files_becomes_a_table_where_it_lies(local: Lake, root: str) -> None:
    for part in ("p0", "p1"):
        Path(root, f"raw/p={part}").mkdir(parents=True)
        pq.write_table(pa.table({"id": [1, 2], "v": [0, 0]}), Path(root, f"raw/p={part}/a.parquet"))
    with local.session() as s:
        table = s.import_parquet("raw", partition_by=["p"])
        assert sorted(table.to_arrow()["p"].to_pylist()) == ["p0", "p0", "p1", "p1"]
        with pytest.raises(ConvertFailed):
            s.import_parquet("nothing-there")
    assert len(local.delta("raw").to_arrow()) == 4
    assert len(list(Path(root, "raw").rglob("*.parquet"))) == 2
    assert foreign(root, "raw").to_pyarrow_table().num_rows == 4
    local.maintenance.gc()
    assert len(list(Path(root, "raw").rglob("*.parquet"))) == 2


def test_objects_are_named_where_they_stand(local: Lake, root: str) -> None:
    for name in ("a", "b/c"):
        Path(root, "landing", name).parent.mkdir(parents=True, exist_ok=True)
        Path(root, "landing", name).write_bytes(name.encode())
    with local.session() as s:
        summary = s.import_objects("landing/", to="in/")
        assert (summary.objects, summary.bytes) == (2, 4)
        assert bytes(s.get("in/b/c")) == b"b/c"
        s.put("in/own", b"1")
    assert [meta.key for meta in local.at().list("in/")] == ["in/a", "in/b/c", "in/own"]
    assert bytes(local.at().get("in/b/c", 1, 3)) == b"/c"
    objects = list(Path(root, "_lake/objects").rglob("*"))
    assert not any(path.read_bytes() == b"b/c" for path in objects if path.is_file()), "nothing is copied"
    local.maintenance.gc()
    assert bytes(local.at().get("in/a")) == b"a"
    assert local.maintenance.verify() == []


@pytest.fixture
def imported(local: Lake, root: str) -> Path:
    """Put a plain file into the lake's folder and import it into main."""
    path = Path(root, "landing/a.csv")
    path.parent.mkdir()
    path.write_bytes(b"id\n1\n")
    with local.session() as s:
        s.import_objects("landing/")
    return path


@pytest.mark.parametrize("requested", [(None, None), (0, 2), (-2, None)])
def test_a_file_that_was_brought_in_and_replaced_is_not_served(
    local: Lake, imported: Path, requested: tuple[int | None, int | None]
) -> None:
    imported.write_bytes(b"id\n1\n2\n")
    with pytest.raises(ContentChanged, match=r"landing/a\.csv has 7 bytes, but had 5"):
        local.at().get("landing/a.csv", *requested)


@pytest.mark.parametrize("body", [b"id\n1\n2\n", b"id\n2\n"])
def test_verify_names_a_file_that_was_brought_in_and_replaced(local: Lake, imported: Path, body: bytes) -> None:
    imported.write_bytes(body)
    assert [(problem.kind, problem.key) for problem in local.maintenance.verify(hashes=False)] == [
        ("changed", "landing/a.csv")
    ]


def test_verify_passes_what_was_brought_in_by_a_lake_that_was_copied(local: Lake, imported: Path, root: str) -> None:
    shutil.copytree(root, f"{root}-copy")
    assert Lake.open(f"{root}-copy").maintenance.verify() == []


@pytest.mark.skipif(not CASES.exists(), reason=NO_CASES)
@pytest.mark.parametrize(
    "name",
    [
        "golden-basic-with-inserts-deletes-checkpoint",
        "golden-dv-with-columnmapping",
        "golden-only-checkpoint-files",
        "golden-v2-checkpoint-parquet",
        "kerneljava-basic-dv-no-checkpoint",
        "krs-cdf-table",
    ],
)
def test_reference_tables_are_imported_whole(name: str, local: Lake, root: str) -> None:
    source = CASES / name
    shutil.copytree(source, Path(root, "ref", name))
    expected = DeltaTable.open(source)
    with local.session() as s:
        s.import_delta(f"ref/{name}")
    table = local.delta(f"ref/{name}")
    assert table.version == expected.version
    assert table.to_arrow().equals(expected.to_arrow())
    assert local.maintenance.verify() == []


def test_plain_readers_never_see_a_gap(local: Lake, root: str) -> None:
    """A table that was published several times before it is checked out appears in the order of its versions."""
    log = Path(root, "t/orders/_delta_log")
    for id in range(20, 24):
        with local.session() as s:
            s.delta("t/orders").append(rows([id]))
    for version in (1, 2, 3, 4):
        (log / f"{version:020d}.json").unlink()
    local.maintenance.checkout()
    assert ids(plain(local.repository.root, "t/orders")) == [*range(10), 20, 21, 22, 23]


def test_collection_spares_what_another_writer_has_committed_and_nobody_adopted(local: Lake, root: str) -> None:
    import datetime as dt
    import os

    deltalake.write_deltalake(f"{root}/legacy/events", rows(range(3)))
    with local.session() as s:
        s.import_delta("legacy/events")
    deltalake.write_deltalake(f"{root}/legacy/events", rows([50]), mode="append")
    for path in Path(root).rglob("*.parquet"):
        os.utime(path, (0, 0))
    later = Lake.open(root, clock=lambda: dt.datetime.now(dt.UTC) + dt.timedelta(days=90))
    later.maintenance.gc()
    assert ids(foreign(root, "legacy/events").to_pyarrow_table()) == [0, 1, 2, 50]
    local.maintenance.adopt("legacy/events")
    assert ids(local.delta("legacy/events")) == [0, 1, 2, 50]
    assert local.maintenance.verify() == []
