"""`lake://`: commits, branches and sessions as an fsspec file system, through the libraries that use one."""

from __future__ import annotations

import datetime as dt
import gc
import pickle
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
import fsspec
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)
from fsspec.tests.abstract import AbstractFixtures as Fixtures

from lake_core import Lake
from lake_core.errors import LakeError, NotFound
from lake_core.lake.errors import Conflict, ContentMissing, ReadOnly, StaleEpoch
from lake_core.lake.filesystem import FileChanged, LakeFileSystem, RefMissing, WriteRefused
from tests.lake.lakes import ids, rows
from tests.processes import run_together


@pytest.fixture
def disk(tmp_path: Path) -> Lake:
    """Create a lake with a table and a file, and a tag on its first commit.

    The partitioned table `t/orders` has the ids 0 to 9. `notes.txt` has two states.
    """
    lake = Lake.create(tmp_path / "data" / "lake")
    with lake.session(message="first") as s:
        table = s.create_delta("t/orders", rows([]).schema, partition_by=["p"])
        table.append(rows(range(5)))
        table.append(rows(range(5, 10)))
        s.put("notes.txt", b"one")
        s.put("d/e/deep.txt", b"deep")
    lake.create_tag("v1")
    with lake.session(message="second") as s:
        s.put("notes.txt", b"second")
        s.delta("t/orders").delete("id >= 8")
    return lake


def opened(lake: Lake, **options: Any) -> LakeFileSystem:
    return LakeFileSystem(lakes={"prod": lake.url}, **options)


# Where a path leads


def test_every_way_to_name_a_lake(disk: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_URL_MY_LAKE", disk.url)
    path = str(tmp_path / "data" / "lake")
    for name in ("prod", "my-lake", quote(path, safe=""), quote(disk.url, safe=""), path, disk.url):
        with fsspec.open(f"lake://{name}/main/notes.txt", lakes={"prod": disk.url}) as file:
            assert file.read() == b"second", name
    assert disk.uri("main", "/notes.txt") == f"lake://{quote(disk.url, safe='')}/main/notes.txt"
    with fsspec.open(disk.uri("v1", "notes.txt"), "rt") as file:
        assert file.read() == "one"
    relative = LakeFileSystem()
    monkeypatch.chdir(tmp_path)
    assert relative.cat_file("lake://data/lake/main/notes.txt") == b"second"


def test_every_kind_of_ref(disk: Lake) -> None:
    fs = opened(disk)
    commit = disk.list_branches()["main"]
    disk.create_branch("dev", at="v1")
    session = disk.open_session("dev")
    contents = {
        ref: fs.cat_file(f"prod/{ref}/notes.txt")
        for ref in ("main", "main~1", "v1", commit, commit[:12], "dev", session.id)
    }
    assert contents.pop("main") == contents.pop(commit) == contents.pop(commit[:12]) == b"second"
    assert set(contents.values()) == {b"one"}
    now = dt.datetime.now(dt.UTC).isoformat()
    assert fs.cat_file(f"prod/main@{{{now}}}/notes.txt") == b"second"
    assert fs.ls("prod", detail=False) == sorted(f"prod/{name}" for name in ("main", "dev", "v1", session.id))
    assert fs.ls("", detail=False) == ["prod"]
    assert fs.isdir("prod")
    assert fs.isdir("prod/main")
    assert not fs.exists("prod/nothing")


def test_what_is_not_there_is_a_missing_file_to_everyone(disk: Lake, tmp_path: Path) -> None:
    fs = opened(disk)
    for path in (
        "prod/main/nothing",
        "prod/nothing/x",
        "nowhere/main/x",
        str(tmp_path / "x"),
        "prod/a b/x",
        "prod/main/_lake/format.json",
    ):
        assert not fs.exists(path)
        with pytest.raises(FileNotFoundError) as caught:
            fs.cat_file(path)
        assert isinstance(caught.value, LakeError)
    with pytest.raises(NotFound, match="nothing"):
        fs.open("prod/main/nothing")
    with pytest.raises(RefMissing, match="branches are main"):
        fs.ls("prod/nothing")
    with pytest.raises(IsADirectoryError):
        fs.open("prod/main/d")


def test_a_branch_is_pinned_at_its_first_use(disk: Lake) -> None:
    fs = opened(disk)
    assert fs.cat_file("prod/main/notes.txt") == b"second"
    with disk.session() as s:
        s.put("notes.txt", b"third")
        s.put("new.txt", b"")
    assert fs.cat_file("prod/main/notes.txt") == b"second"
    assert not fs.exists("prod/main/new.txt")
    copy = pickle.loads(pickle.dumps(fs))
    assert copy.cat_file("prod/main/notes.txt") == b"second"
    assert copy == fs
    assert opened(disk).cat_file("prod/main/notes.txt") == b"third"
    fs.invalidate_cache()
    assert fs.cat_file("prod/main/notes.txt") == b"third"
    assert fs.exists("prod/main/new.txt")
    assert copy.cat_file("prod/main/notes.txt") == b"second"


# Reading


def test_listing(disk: Lake) -> None:
    fs = opened(disk)
    assert fs.ls("prod/main", detail=False) == ["prod/main/d", "prod/main/notes.txt", "prod/main/t"]
    assert fs.ls("prod/main/d/", detail=False) == ["prod/main/d/e"]
    assert fs.find("prod/main/d") == ["prod/main/d/e/deep.txt"]
    assert fs.find("prod/main", maxdepth=1) == ["prod/main/notes.txt"]
    assert list(fs.find("prod/main/d", withdirs=True)) == ["prod/main/d", "prod/main/d/e", "prod/main/d/e/deep.txt"]
    assert fs.find("prod/main/notes.txt") == fs.ls("prod/main/notes.txt", detail=False) == ["prod/main/notes.txt"]
    assert fs.glob("prod/main/**/*.txt") == ["prod/main/d/e/deep.txt", "prod/main/notes.txt"]
    assert fs.glob("prod/main/*.txt") == ["prod/main/notes.txt"]
    walked = [(folder, sorted(folders), sorted(files)) for folder, folders, files in fs.walk("prod/main/d")]
    assert walked == [("prod/main/d", ["e"], []), ("prod/main/d/e", [], ["deep.txt"])]
    info = fs.info("prod/main/notes.txt")
    assert (info["size"], info["type"]) == (6, "file")
    assert fs.modified("prod/main/notes.txt") == fs.created("prod/main/notes.txt") == info["modified"]
    assert info["modified"].tzinfo
    assert fs.info("prod/main/d")["type"] == "directory"


def test_a_state_has_its_keys_as_paths(disk: Lake) -> None:
    fs = disk.at("v1").filesystem()
    assert fs.cat_file("notes.txt") == fs.cat_file("/notes.txt") == fs.cat_file("lake://notes.txt") == b"one"
    assert fs.ls("", detail=False) == ["d", "notes.txt", "t"]
    assert fs.ls("/d", detail=False) == ["/d/e"]
    assert fs.find("/d") == ["/d/e/deep.txt"]
    with pytest.raises(TypeError, match=r"Lake\.uri"):
        pickle.dumps(fs)
    assert fs != disk.at("v1").filesystem()


def test_large_folders_are_passed_over(disk: Lake) -> None:
    with disk.session() as s:
        for number in range(250):
            s.put(f"x/many/{number:03}", b"")
        s.put("x/zero", b"")
    fs = disk.at("main").filesystem()
    assert fs.ls("x", detail=False) == ["x/many", "x/zero"]
    assert len(fs.ls("x/many")) == 250


@pytest.mark.parametrize("start", [None, 0, 2, -2, 9])
@pytest.mark.parametrize("end", [None, 0, 1, 3, -1, 9])
def test_ranges_are_slices(disk: Lake, start: int | None, end: int | None) -> None:
    fs = opened(disk)
    assert fs.cat_file("prod/main/notes.txt", start, end) == b"second"[start:end]
    assert fs.cat_ranges(["prod/main/notes.txt"], [start], [end]) == [b"second"[start:end]]


def test_many_ranges_with_some_missing(disk: Lake) -> None:
    fs = opened(disk)
    paths = ["prod/main/notes.txt", "prod/main/nothing", "prod/v1/notes.txt"]
    results = fs.cat_ranges(paths, 0, 2)
    assert (results[0], results[2]) == (b"se", b"on")
    assert isinstance(results[1], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(paths, 0, 2, on_error="raise")


def test_an_open_file_seeks_and_stays_of_its_commit(disk: Lake) -> None:
    fs = opened(disk)
    with fs.open("prod/main/notes.txt", block_size=2) as file:
        assert file.read(1) == b"s"
        with disk.session() as s:
            s.put("notes.txt", b"THIRD!")
        fs.invalidate_cache()
        file.seek(-2, 2)
        assert file.read() == b"nd"
        file.seek(1)
        assert file.read(3) == b"eco"


def test_a_file_that_changes_while_it_is_read_is_refused(disk: Lake) -> None:
    with disk.session() as s:
        fs = s.filesystem()
        with fs.open("notes.txt", block_size=1, cache_type="none") as file:
            assert file.read(1) == b"s"
            s.put("notes.txt", b"other!")
            with pytest.raises(FileChanged, match="open it again"):
                file.read(1)


# The live files of datasets


def test_libraries_find_exactly_the_live_rows(disk: Lake) -> None:
    options = {"lakes": {"prod": disk.url}}
    for ref, expected in (("main", list(range(8))), ("v1", list(range(10)))):
        fs = opened(disk)
        folder = f"prod/{ref}/t/orders"
        partitioning = ds.partitioning(pa.schema([("p", pa.string())]), flavor="hive")
        table = ds.dataset(folder, filesystem=fs, format="parquet", partitioning=partitioning).to_table()
        assert ids(table) == expected
        assert set(table["p"].to_pylist()) == {"p0", "p1"}
        result = ds.dataset(folder, filesystem=fs, partitioning=partitioning).to_table(filter=ds.field("p") == "p1")
        assert ids(result) == [id for id in expected if id % 2]
        assert sorted(pd.read_parquet(f"lake://{folder}", storage_options=options)["id"]) == expected
        files = fs.glob(f"{folder}/**/*.parquet")
        assert sorted(pl.read_parquet([fs.open(file) for file in files])["id"].to_list()) == expected
        lazy = pl.scan_pyarrow_dataset(ds.dataset(folder, filesystem=fs, partitioning=partitioning))
        assert sorted(lazy.filter(pl.col("id") < 3).collect()["id"].to_list()) == [0, 1, 2]
        connection = duckdb.connect()
        connection.register_filesystem(fs)
        query = (
            f"SELECT id FROM read_parquet('lake://{folder}/**/*.parquet', hive_partitioning = true) "
            "WHERE p IN ('p0', 'p1') ORDER BY id"
        )
        assert [id for (id,) in connection.execute(query).fetchall()] == expected


def test_a_folder_of_a_dataset(disk: Lake) -> None:
    fs = opened(disk)
    assert fs.ls("prod/main/t/orders", detail=False) == [
        f"prod/main/t/orders/{name}" for name in ("_delta_log", "p=p0", "p=p1")
    ]
    assert fs.isdir("prod/main/t/orders/p=p0")
    assert not fs.exists("prod/main/t/orders/p=p2")
    [file] = fs.glob("prod/v1/t/orders/p=p0/*.parquet")[:1]
    assert fs.info(file)["size"] == len(fs.cat_file(file)) > 0
    assert set(fs.find("prod/main/t")) == set(fs.find("prod/main/t/orders")) < set(fs.find("prod/main"))
    assert fs.cat_file("prod/main/t/orders/_delta_log/00000000000000000000.json").startswith(b"{")


def test_files_of_other_states_are_not_listed(disk: Lake) -> None:
    with disk.session("main") as s:
        s.delta("t/orders").append(rows(range(100, 120)))
        in_session = s.filesystem().glob("t/orders/**/*.parquet")
        fs = opened(disk)
        before = fs.glob("prod/main/t/orders/**/*.parquet")
        assert len(in_session) > len(before)
        s.abandon()
    assert opened(disk).glob("prod/main/t/orders/**/*.parquet") == before


def test_a_live_file_that_is_gone_is_not_passed_over(disk: Lake) -> None:
    fs = opened(disk)
    lost = fs.glob("prod/main/t/orders/**/*.parquet")[0]
    disk.repository.root.delete([lost.removeprefix("prod/main/")])
    with pytest.raises(ContentMissing, match="lake verify"):
        ds.dataset("prod/main/t/orders", filesystem=opened(disk), partitioning="hive")


def test_many_files_are_looked_up_in_one_listing(disk: Lake) -> None:
    with disk.session() as s:
        table = s.create_delta("t/many", rows([]).schema)
        for number in range(20):
            table.append(rows([number]))
    fs = disk.at("main").filesystem()
    listing = fs.find("t/many", detail=True)
    files = [info for name, info in listing.items() if name.endswith(".parquet")]
    assert len(files) == 20
    assert all(info["size"] > 0 for info in files)
    assert ids(ds.dataset("t/many", filesystem=fs).to_table()) == list(range(20))


# Writing


def test_what_is_not_a_session_is_only_read(disk: Lake) -> None:
    fs = opened(disk)
    for path in ("prod/main/x", "prod/v1/x", f"prod/{disk.list_branches()['main']}/x"):
        for write in (
            lambda path=path: fs.pipe_file(path, b""),
            lambda path=path: fs.open(path, "wb"),
            lambda path=path: fs.touch(path),
        ):
            with pytest.raises(PermissionError, match="session") as caught:
                write()
            assert isinstance(caught.value, ReadOnly)
    with pytest.raises(WriteRefused):
        fs.rm("prod/main/notes.txt")
    with pytest.raises(WriteRefused):
        disk.at("main").filesystem().pipe_file("x", b"")


def test_a_parquet_dataset_is_written_into_a_session_and_published(disk: Lake) -> None:
    frame = pd.DataFrame({"id": range(6), "day": ["a", "b", "c"] * 2})
    with disk.session(message="exports") as s:
        fs = s.filesystem()
        frame.to_parquet("exports/pandas", partition_cols=["day"], filesystem=fs)
        ds.write_dataset(pa.table(frame), "exports/arrow", format="parquet", filesystem=fs, partitioning=["day"])
        pq.write_table(pa.table(frame), "exports/one.parquet", filesystem=fs)
        with fs.open("exports/polars.parquet", "wb") as file:
            pl.from_pandas(frame).write_parquet(file)
        connection = duckdb.connect()
        connection.register_filesystem(fs)
        connection.execute(
            "COPY (SELECT * FROM frame) TO 'lake://exports/duck' "
            "(FORMAT parquet, PARTITION_BY (day), OVERWRITE_OR_IGNORE)"
        )
        assert not opened(disk).exists("prod/main/exports")
        assert sorted(pd.read_parquet("exports/pandas", filesystem=fs)["id"]) == list(range(6))
    fs = opened(disk)
    assert sorted(pd.read_parquet("prod/main/exports/pandas", filesystem=fs)["id"]) == list(range(6))
    assert sorted(ds.dataset("prod/main/exports/arrow", filesystem=fs).to_table()["id"].to_pylist()) == list(range(6))
    assert pq.read_table("prod/main/exports/one.parquet", filesystem=fs).num_rows == 6
    assert pl.read_parquet(fs.open("prod/main/exports/polars.parquet")).height == 6
    assert sorted(pd.read_parquet("prod/main/exports/duck", filesystem=fs)["id"]) == list(range(6))


def test_modes_of_writing(disk: Lake) -> None:
    with disk.session() as s:
        fs = s.filesystem()
        with fs.open("notes.txt", "ab") as file:
            file.write(b"+")
        assert fs.cat_file("notes.txt") == b"second+"
        with fs.open("text.txt", "wt", newline="") as text:
            text.write("ä\n")
        assert fs.read_text("text.txt") == "ä\n"
        with pytest.raises(FileExistsError):
            fs.open("notes.txt", "xb")
        with pytest.raises(FileExistsError):
            fs.pipe_file("notes.txt", b"", mode="create")
        with fs.open("made.txt", "xb") as file:
            file.write(b"x")
        with pytest.raises(ValueError, match="write them whole"):
            fs.open("notes.txt", "r+b")
        fs.cp_file("made.txt", "copied.txt")
        fs.mv("made.txt", "moved.txt")
        fs.rm("d", recursive=True)
        with pytest.raises(IsADirectoryError):
            fs.rm("t")
        with pytest.raises(FileNotFoundError):
            fs.rm("nothing")
    fs = opened(disk)
    assert fs.find("prod/main", maxdepth=1) == [
        f"prod/main/{name}.txt" for name in ("copied", "moved", "notes", "text")
    ]
    assert not fs.exists("prod/main/d")


def test_a_file_that_is_not_closed_was_never_written(disk: Lake) -> None:
    with disk.session() as s:
        fs = s.filesystem()
        with pytest.raises(RuntimeError), fs.open("half.txt", "wb") as file:
            file.write(b"half")
            raise RuntimeError
        file = fs.open("left.txt", "wb")
        with pytest.warns(RuntimeWarning, match="not closed"):
            del file
            gc.collect()
        deferred = fs.open("deferred.txt", "wb", autocommit=False)
        deferred.close()
        assert not any(fs.exists(name) for name in ("half.txt", "left.txt", "deferred.txt"))
        deferred.commit()
        assert fs.exists("deferred.txt")


def test_a_dataset_is_changed_by_its_format_only(disk: Lake) -> None:
    with disk.session() as s:
        fs = s.filesystem()
        file = fs.glob("t/orders/**/*.parquet")[0]
        content = fs.cat_file(file)
        with pytest.raises(FileExistsError):
            fs.pipe_file(file, b"other")
        for path, recursive in (
            (file, False),
            ("t/orders", True),
            ("t/orders/_delta_log/00000000000000000000.json", False),
        ):
            with pytest.raises(PermissionError, match=r"dataset 't/orders'"):
                fs.rm(path, recursive=recursive)
        with pytest.raises(PermissionError):
            fs.pipe_file("t/orders/_delta_log/00000000000000000000.crc", b"")
        assert fs.cat_file(file) == content
        fs.pipe_file("t/orders/part-new.parquet", b"not of the table until its log says so")
        assert "t/orders/part-new.parquet" not in fs.find("t/orders")
    assert ids(disk.delta("t/orders")) == list(range(8))


def flushed(lake: Lake, session: str) -> int:
    return len(next(record for record in lake.list_sessions() if record.id == session).batches)


def test_a_shared_session_takes_each_closed_file(disk: Lake) -> None:
    session = disk.open_session("main")
    fs = opened(disk)
    folder = f"prod/{session.id}"
    with fs.open(f"{folder}/one", "wb") as file:
        file.write(b"1")
        assert not disk.at(session.id).exists("one")
    assert disk.at(session.id).get("one") == b"1"
    assert flushed(disk, session.id) == 1
    fs.pipe({f"{folder}/many/{number}": b"%d" % number for number in range(5)})
    assert flushed(disk, session.id) == 2
    fs.cp(f"{folder}/many/", f"{folder}/copy/", recursive=True)
    fs.rm([f"{folder}/many/1", f"{folder}/many/2"])
    assert flushed(disk, session.id) == 4
    assert fs.find(f"{folder}/many") == [f"{folder}/many/{number}" for number in (0, 3, 4)]
    assert not opened(disk).exists("prod/main/one")
    disk.get_session(session.id).publish()
    assert opened(disk).cat_file("prod/main/copy/4") == b"4"
    with pytest.raises(LakeError, match="published"):
        fs.pipe_file(f"{folder}/late", b"")
    assert not fs.exists(f"{folder}/late")


def test_a_transaction_is_one_batch(disk: Lake) -> None:
    session = disk.open_session("main")
    fs = opened(disk)
    folder = f"prod/{session.id}"
    with fs.transaction:
        for number in range(5):
            fs.pipe_file(f"{folder}/{number}", b"")
        with fs.open(f"{folder}/open", "wb") as file:
            file.write(b"x")
        fs.rm(f"{folder}/0")
        assert fs.cat_file(f"{folder}/open") == b"x", "what is written is seen within"
        assert flushed(disk, session.id) == 0
    assert flushed(disk, session.id) == 1
    assert fs.find(folder, maxdepth=1) == [f"{folder}/{name}" for name in (*"1234", "notes.txt", "open")]
    with pytest.raises(RuntimeError), fs.transaction:
        fs.pipe_file(f"{folder}/1", b"changed")
        fs.pipe_file(f"{folder}/6", b"")
        fs.rm(f"{folder}/2")
        raise RuntimeError
    assert fs.find(folder, maxdepth=1) == [f"{folder}/{name}" for name in (*"1234", "notes.txt", "open")]
    assert fs.cat_file(f"{folder}/1") == b""
    assert flushed(disk, session.id) == 1
    fs.pipe_file(f"{folder}/7", b"")
    assert disk.at(session.id).get("1") == b""
    assert not disk.at(session.id).exists("6")


def test_a_failed_transaction_leaves_a_private_session_as_it_was(disk: Lake) -> None:
    with disk.session() as s:
        fs = s.filesystem()
        fs.pipe_file("before", b"1")
        with pytest.raises(RuntimeError), fs.transaction:
            fs.pipe_file("before", b"2")
            fs.rm("notes.txt")
            fs.open("open", "wb").write(b"never closed")
            raise RuntimeError
        with fs.transaction:
            fs.pipe_file("within", b"")
    at = disk.at("main")
    assert (at.get("before"), at.get("notes.txt"), at.exists("within"), at.exists("open")) == (
        b"1",
        b"second",
        True,
        False,
    )


def test_a_bulk_write_that_fails_leaves_nothing(disk: Lake) -> None:
    session = disk.open_session("main")
    fs = opened(disk)
    with pytest.raises(LakeError):
        fs.pipe({f"prod/{session.id}/good": b"", f"prod/{session.id}/_lake/bad": b""})
    fs.pipe_file(f"prod/{session.id}/after", b"")
    assert not disk.at(session.id).exists("good")
    assert disk.at(session.id).exists("after")


def test_writers_of_one_file_in_a_shared_session_conflict(disk: Lake) -> None:
    session = disk.open_session("main")
    first, other = opened(disk), opened(disk)
    for fs in (first, other):
        fs.pipe_file(f"prod/{session.id}/{id(fs)}", b"")
    first.pipe_file(f"prod/{session.id}/same", b"one")
    with pytest.raises(Conflict) as caught:
        other.pipe_file(f"prod/{session.id}/same", b"other")
    assert caught.value.keys == ("same",)
    other.pipe_file(f"prod/{session.id}/elsewhere", b"")  # what was refused is not tried again
    assert other.cat_file(f"prod/{session.id}/same") == b"one"


def test_threads_share_their_flushes(disk: Lake) -> None:
    session = disk.open_session("main")
    fs = opened(disk)
    barrier = threading.Barrier(8)

    def write(worker: int) -> None:
        barrier.wait()
        for number in range(5):
            fs.pipe_file(f"prod/{session.id}/x/{worker}-{number}", b"%d" % worker)

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(1 for _ in disk.at(session.id).list("x/")) == 40
    assert flushed(disk, session.id) <= 40


def test_a_copy_of_a_stale_process_is_refused(disk: Lake) -> None:
    session = disk.open_session("main")
    fs = opened(disk)
    assert fs.exists(f"prod/{session.id}/notes.txt")
    copy = pickle.loads(pickle.dumps(fs))
    disk.open_session(id=session.id)
    with pytest.raises(StaleEpoch):
        copy.pipe_file(f"prod/{session.id}/x", b"")
    opened(disk).pipe_file(f"prod/{session.id}/x", b"")


def _exporter(uri: str, day: str) -> None:
    pd.DataFrame({"id": [1, 2], "day": [day, day]}).to_parquet(f"{uri}/exports/{day}.parquet")


def test_processes_write_into_a_shared_session_by_its_url(disk: Lake) -> None:
    session = disk.open_session("main", message="exports")
    run_together(_exporter, [(disk.uri(session.id), day) for day in "abc"])
    assert not opened(disk).exists("prod/main/exports")
    published = disk.get_session(session.id).publish()
    frame = pd.read_parquet(disk.uri(published.commit, "exports"))
    assert sorted(zip(frame["id"], frame["day"], strict=True)) == sorted((id, day) for id in (1, 2) for day in "abc")


def test_names_that_look_like_patterns(disk: Lake) -> None:
    with disk.session() as s:
        fs = s.filesystem()
        for name in ("a[1].txt", "a1.txt", "50%.txt", "ä ö.txt"):
            fs.pipe_file(name, name.encode())
        assert fs.cat_file("a[1].txt") == b"a[1].txt"
        fs.rm_file("a[1].txt")
    fs = opened(disk)
    assert [fs.exists(f"prod/main/{name}") for name in ("a[1].txt", "a1.txt", "50%.txt", "ä ö.txt")] == [
        False,
        True,
        True,
        True,
    ]
    assert fs.cat_file("prod/main/50%.txt") == b"50%.txt"


@pytest.mark.extended
def test_a_lake_on_s3(s3_url: str, s3_options: dict[str, Any]) -> None:
    lake = Lake.create(s3_url, storage_options=s3_options)
    with lake.session() as s:
        s.create_delta("t/orders", rows([]).schema, partition_by=["p"]).append(rows(range(10)))
    session = lake.open_session("main")
    pd.DataFrame({"id": [1, 2]}).to_parquet(
        f"lake://{s3_url}/{session.id}/x.parquet", storage_options={"target_options": s3_options}
    )
    lake.get_session(session.id).publish()
    options = {"lakes": {"prod": s3_url}, "target_options": s3_options}
    for url in (f"lake://{s3_url}/main", lake.uri("main"), "lake://prod/main"):
        assert list(pd.read_parquet(f"{url}/x.parquet", storage_options=options)["id"]) == [1, 2]
        assert sorted(pd.read_parquet(f"{url}/t/orders", storage_options=options)["id"]) == list(range(10))
    copy = pickle.loads(pickle.dumps(LakeFileSystem(**options)))
    assert copy.find("prod/main/t")
    assert "secret" not in repr(copy).lower()


# What fsspec asks of every file system


class LakeFixtures(Fixtures):
    @pytest.fixture
    def fs(self, lake: Lake) -> LakeFileSystem:
        return lake.session().filesystem()

    @pytest.fixture
    def fs_path(self) -> str:
        return "work"

    @pytest.fixture
    def fs_join(self) -> Any:
        return lambda *parts: "/".join(parts)

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False


class TestCopy(AbstractCopyTests, LakeFixtures):
    pass


class TestGet(AbstractGetTests, LakeFixtures):
    pass


class TestPut(AbstractPutTests, LakeFixtures):
    pass


class TestOpen(AbstractOpenTests, LakeFixtures):
    pass


class TestPipe(AbstractPipeTests, LakeFixtures):
    pass
