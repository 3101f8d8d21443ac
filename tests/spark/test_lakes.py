"""Maintenance of a lake in Spark's executors: the same as in one process, though a worker is killed in the middle."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lake_core import Lake
from lake_core.errors import AccessDenied, LakeError
from lake_core.graveler import CorruptTable
from lake_core.lake.errors import ContentMissing, StaleEpoch
from lake_core.lake.gc.deletion import DeleteTask
from lake_core.spark import collect_lake, executor, export_lake, runner, verify_lake
from lake_core.spark.errors import SparkJobFailed
from lake_core.spark.executor import lake_error
from lake_core.store import LocalStore
from lake_core.testing.manual_clock import ManualClock
from tests.lake.lakes import SCHEMA, TOY_FORMATS, forget_formats, ids, rows
from tests.spark.hostile import DeadlyStore, without_the_package


@pytest.fixture(params=["few packages", pytest.param("all packages", marks=pytest.mark.extended)])
def packages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Let executors have all packages of this process, or only those that they need."""
    # Other tests make this process know formats that executors do not have.
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(TOY_FORMATS)])
    forget_formats()
    if request.param == "few packages":
        monkeypatch.setattr(runner, "batch_function", without_the_package(executor.batch_function))
    yield str(request.param)
    forget_formats()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with some commits on two branches."""
    lake = Lake.create(tmp_path / "lake")
    with lake.session() as s:
        s.create_delta("t/orders", SCHEMA, partition_by=["p"]).append(rows(range(10)))
        for number in range(12):
            s.put(f"files/{number}", b"%d" % number * 100)
    lake.create_branch("dev")
    for number, branch in enumerate(["main", "dev", "main"]):
        with lake.session(branch) as s:
            s.delta("t/orders").append(rows([100 + number]))
            s.put(f"files/{branch}", b"%d" % number * 1000)
            s.delete([f"files/{number}"])
    return lake


def test_verify_reports_the_same_problems(
    spark: SparkSession, lake: Lake, tmp_path: Path, packages: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lake_core.lake.gc.content_check._OBJECTS_A_GROUP", 7)
    folder, flag = tmp_path / "lake", tmp_path / "killed"
    contents = sorted(path for path in (folder / "_lake" / "objects").rglob("*") if path.is_file())
    contents[0].write_bytes(b"other bytes")
    contents[1].unlink()
    names = [lake.repository.graveler.names(commit.metarange_id) for commit in lake.log()]
    for name in names[1] - names[0]:
        (folder / "_lakefs" / name).write_bytes(b"damaged" + (folder / "_lakefs" / name).read_bytes()[7:])
    deadly = Lake.open(DeadlyStore(folder, flag))
    problems = verify_lake(spark, deadly, full=True)
    assert Path(f"{flag}-get").exists()
    assert problems == Lake.open(folder).maintenance.verify(full=True)
    assert {"missing", "corrupt"} <= {problem.kind for problem in problems}
    counts: list[dict[str, int]] = [{}, {}]
    assert verify_lake(spark, deadly, progress=counts[0].__setitem__) == problems
    assert lake.maintenance.verify(progress=counts[1].__setitem__) == problems
    assert counts[0] == counts[1]
    assert counts[0]["not read again"] > 10


def test_an_export_is_the_same_to_the_byte(
    spark: SparkSession, lake: Lake, tmp_path: Path, packages: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lake_core.graveler.object_copy._OBJECTS_A_TASK", 4)
    here, there, flag = LocalStore(tmp_path / "here"), LocalStore(tmp_path / "there"), tmp_path / "killed"
    expected = lake.maintenance.export(here)
    exported = export_lake(spark, lake, DeadlyStore(tmp_path / "there", flag))
    assert Path(f"{flag}-put").exists()
    assert exported == expected
    assert [(meta.key, there.get(meta.key)) for meta in there.list()] == [
        (meta.key, here.get(meta.key)) for meta in here.list()
    ]
    with lake.session() as s:
        s.put("files/new", b"new")
    assert export_lake(spark, lake, there).copied == 1


def test_a_collection_deletes_the_same_objects(
    spark: SparkSession, tmp_path: Path, packages: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lake_core.lake.gc.remainder_task._PAIRS_A_GROUP", 3)
    monkeypatch.setattr("lake_core.lake.gc.deletion._KEYS_A_BATCH", 4)
    time, folder, flag = ManualClock(), tmp_path / "lake", tmp_path / "killed"
    lake = Lake.create(folder, clock=time)
    with lake.session() as s:
        s.create_delta("t/orders", SCHEMA).append(rows(range(10)))
    for number in range(12):
        time.pass_days(5)
        with lake.session() as s:
            s.delta("t/orders").overwrite(rows([number]))
            s.put("file", b"%d" % number)
    for path in folder.rglob("*"):
        os.utime(path, (0, 0))
    shutil.copytree(folder, tmp_path / "copy")
    expected = Lake.open(tmp_path / "copy", clock=time).maintenance.gc()
    collected = collect_lake(spark, Lake.open(DeadlyStore(folder, flag), clock=time))
    assert Path(f"{flag}-delete").exists()
    assert Path(f"{flag}-get").exists() == (packages == "all packages"), "executors have compared states"
    assert len(collected.keys) > 10
    assert collected == expected
    left, expected_left = (
        {meta.key for meta in LocalStore(root).list() if not meta.key.startswith(("_lake/gc/", "_lake/refs"))}
        for root in (folder, tmp_path / "copy")
    )
    assert left == expected_left
    assert lake.maintenance.verify() == []
    assert ids(lake.delta("t/orders")) == [11]


def test_a_deletion_that_comes_late_deletes_nothing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("a", b"1")
    later, earlier = 2.0**40, 0.0
    assert not DeleteTask(store, [["a"]], earlier)(0)
    assert store.exists("a")
    assert DeleteTask(store, [["a"]], later)(0)
    assert not store.exists("a")


@pytest.mark.extended
def test_executors_with_other_releases_leave_the_comparison_to_the_driver(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "installed_releases", lambda: {"delta": "lake-orch 0.0.1"})
    assert verify_lake(spark, lake) == []


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        ("lake_core.errors.AccessDenied: no", AccessDenied),
        ("lake_core.lake.errors.ContentMissing: no", ContentMissing),
        ("lake_core.graveler.errors.CorruptTable: no", CorruptTable),
        ("lake_core.lake.errors.StaleEpoch: no", StaleEpoch),
        ("lake_core.lake.errors.Diverged: no", SparkJobFailed),  # takes more than a message
    ],
)
def test_an_error_of_a_task_keeps_its_class(raised: str, kind: type[LakeError]) -> None:
    error = lake_error(Exception(f"Traceback (most recent call last):\n  File ...\n{raised}\n"))
    assert type(error) is kind
    assert str(error).endswith("no")
