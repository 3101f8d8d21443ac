"""A lake in S3, over HTTP: the same promises where each operation is a request."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep

import pytest

from lake_core import Lake
from lake_core.graveler import AddressType, Entry
from lake_core.lake.gc import candidates
from lake_core.lake.state.content import OBJECTS, address_of, new_item
from lake_core.pool import PoolLake
from lake_core.store import FolderStore, ObjectStore, open_store
from lake_core.testing.fault_store import FaultMode
from lake_core.testing.manual_clock import ManualClock
from tests.lake.in_a_bucket import TABLES, Options, race, theirs, work_on_sessions_branches_and_merges
from tests.lake.lakefs_repository import RepositoryOfLakeFS
from tests.lake.lakes import create_tables, ids, rows
from tests.lake.test_crash import before, sweep, work, work_shared
from tests.processes import run_together
from tests.store.s3_server import S3Server


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep cached ranges apart from the user's own cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.extended
def test_pools_are_published_and_checked_out(s3_url: str, s3_options: Options) -> None:
    lake = Lake.create(s3_url, storage_options=s3_options)
    with lake.session() as session:
        session.create_pool("events/raw", key="k", order="asc").load([{"k": 1}])
    sessions = [lake.session() for _ in range(2)]
    for number, session in enumerate(sessions):
        session.pool("events/raw").load([{"k": 2 + number}])
    for session in sessions:
        session.publish()
    plain_pool = PoolLake.open(f"{s3_url}/events/raw", storage_options=s3_options).pool("raw")
    assert [record["k"] for record in plain_pool.scan().records()] == [1, 2, 3]


def test_sessions_branches_and_merges(s3_url: str, s3_options: Options) -> None:
    work_on_sessions_branches_and_merges(s3_url, s3_options)


def _part(url: str, options: Options, session: str, worker: int) -> None:
    lake = Lake.open(url, storage_options=options)
    with lake.get_session(session).join(task=f"output-{worker}") as part:
        part.delta(TABLES[worker]).append(rows([1000 + worker]), txn=("shared", worker))
        part.delta("t/common").append(rows([2000 + worker]))
        part.put(f"parts/{worker}", b"%d" % worker)


@pytest.mark.extended
def test_a_session_that_processes_share(s3_url: str, s3_options: Options) -> None:
    lake = Lake.create(s3_url, storage_options=s3_options)
    create_tables(lake, *TABLES, "t/common")
    shared = lake.open_session(message="shared")
    run_together(_part, [(s3_url, s3_options, shared.id, worker) for worker in range(2)])
    assert ids(lake.delta("t/common", ref=shared.id)) == [*range(10), 2000, 2001]
    assert ids(lake.delta("t/common")) == list(range(10)) == theirs(s3_url, "t/common", s3_options)
    first = shared.publish()
    again = shared.publish()
    assert (
        (again.commit, again.versions)
        == (first.commit, first.versions)
        == (lake.log()[0].id, dict.fromkeys(("t/a", "t/b", "t/common"), 1))
    )
    for worker, path in enumerate(TABLES[:2]):
        assert ids(lake.delta(path)) == theirs(s3_url, path, s3_options) == [*range(10), 1000 + worker]
    assert theirs(s3_url, "t/common", s3_options) == [*range(10), 2000, 2001]
    assert [bytes(data) for data in lake.at().get_many([f"parts/{worker}" for worker in range(2)])] == [b"0", b"1"]
    assert lake.maintenance.verify() == []


@pytest.mark.extended
def test_garbage_goes_by_the_lakes_clock(s3_url: str, s3_options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    # The store's own clock cannot be moved: what was written just now is old to a lake whose clock is two months ahead.
    monkeypatch.setattr(candidates, "_UNDER_WAY", dt.timedelta(0))
    time = ManualClock(dt.datetime.now(dt.UTC))
    lake = Lake.create(s3_url, storage_options=s3_options, clock=time)
    create_tables(lake, "t/a")
    with lake.session() as s:
        s.put("file", b"old content")
    with lake.session() as s:
        s.put("file", b"new content")
        s.delta("t/a").overwrite(rows([1]))
    lost = lake.session()
    lost.delta("t/a").append(rows([99]))
    lost.abandon()
    store = lake.repository.root
    content, files = _keys(store, f"{OBJECTS}/"), _keys(store, "t/a/p=") | _keys(store, "t/a/part-")
    assert lake.maintenance.gc().keys == ()
    time.pass_days(60)
    sleep(1.1)  # S3 tells times in seconds
    planned = lake.maintenance.gc(dry_run=True)
    collected = lake.maintenance.gc()
    assert set(collected.keys) == set(planned.keys)
    assert collected.commits == planned.commits > 0
    assert address_of(new_item(b"old content", time()).entry.etag) in content - _keys(store, f"{OBJECTS}/")
    assert len(files & set(collected.keys)) >= 2
    assert not set(collected.keys) & _keys(store)
    assert ids(lake.delta("t/a")) == theirs(s3_url, "t/a", s3_options) == [1]
    assert bytes(lake.at().get("file")) == b"new content"
    assert lake.maintenance.verify() == []
    with lake.session() as s:
        s.put("again", b"old content")
    lake.maintenance.gc()  # an unreferenced copy of an object that was put again may be left
    assert bytes(lake.at().get("again")) == b"old content"
    assert lake.maintenance.verify() == []


def _keys(store: ObjectStore, prefix: str = "") -> set[str]:
    return {meta.key for meta in store.list(prefix)}


@pytest.mark.extended
def test_processes_that_publish_on_one_branch(s3_url: str, s3_options: Options) -> None:
    race(s3_url, s3_options, workers=3, count=3)


@pytest.mark.stress
@pytest.mark.timeout(900)
def test_eight_processes_publish_ten_times_each(s3_url: str, s3_options: Options) -> None:
    race(s3_url, s3_options, workers=8, count=10)


def _lake_copier(url: str, options: Options) -> Callable[[ManualClock], ObjectStore]:
    """Return a function that copies the initial lake of a sweep, over one connection."""
    time = ManualClock()
    first, connected, numbers = before(time), open_store(url, storage_options=options), itertools.count()
    objects = {meta.key: first.get(meta.key) for meta in first.list()}

    def make(clock: ManualClock) -> ObjectStore:
        clock.now = time.now
        folder = FolderStore(connected, f"{next(numbers)}")
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: folder.put(key, objects[key]), objects))
        return folder

    return make


@pytest.mark.exhaustive
def test_death_at_operations_of_a_publish(s3_url: str, s3_options: Options) -> None:
    operations, outcomes = sweep(work, "before", sampled=14, late=0, make=_lake_copier(s3_url, s3_options))
    assert operations > 60
    assert outcomes == sorted(outcomes), "the state went back"
    assert not outcomes[0]
    assert outcomes[-1]


@pytest.mark.stress
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", ["before", "after"])
@pytest.mark.parametrize("doing", [work, work_shared])
def test_death_at_each_operation_of_a_publish(
    doing: Callable[[Lake], None], mode: FaultMode, s3_url: str, s3_options: Options
) -> None:
    _, outcomes = sweep(doing, mode, make=_lake_copier(s3_url, s3_options), late=0)
    assert outcomes == sorted(outcomes)


def test_answers_that_get_lost_while_publishing(s3_url: str, s3_options: Options, s3_endpoint: S3Server) -> None:
    """Every kind of put of a publish in turn is done, and its answer lost: nothing is doubled."""
    lake = Lake.create(s3_url, storage_options=s3_options)
    create_tables(lake, "t/a")
    kinds = ("/_lake/objects/", "/_lakefs/", "/_lake/refs/", "/_delta_log/", ".parquet", "/_lake/leases/")
    for number, key in enumerate(kinds):
        s3_endpoint.fault("drop_after", key=key)
        with lake.session(message=key) as s:
            s.delta("t/a").append(rows([100 + number]), txn=("job", number))
            s.put("file", b"%d" % number)
    assert [commit.message for commit in lake.log()[:-2]] == [*reversed(kinds)]
    assert ids(lake.delta("t/a")) == theirs(s3_url, "t/a", s3_options) == [*range(10), *range(100, 106)]
    assert bytes(lake.at().get("file")) == b"5"
    assert lake.maintenance.verify() == []


def test_a_lakefs_repository_in_a_bucket_becomes_a_lake(s3_url: str, s3_options: Options) -> None:
    namespace, raw = (open_store(f"{s3_url}/{name}", storage_options=s3_options) for name in ("namespace", "raw"))
    raw.put("landing/1.csv", b"a,b")
    repository = RepositoryOfLakeFS(namespace)
    imported = Entry(f"{s3_url}/raw/landing/1.csv", 3, "md5", address_type=AddressType.FULL)
    commit = repository.commit("main", {"1.csv": imported, "2.csv": repository.put("2", b"c,d")})
    repository.dump()
    lake = Lake.import_lakefs(f"{s3_url}/namespace", external=[f"{s3_url}/raw"], storage_options=s3_options)
    assert lake.list_branches() == {"main": commit.id}
    assert [bytes(lake.at().get(key)) for key in ("1.csv", "2.csv")] == [b"a,b", b"c,d"]
    assert lake.maintenance.verify() == []
    target = open_store(f"{s3_url}/exported", storage_options=s3_options)
    assert lake.maintenance.export(target).copied == 2
    assert lake.maintenance.export(f"{s3_url}/exported", storage_options=s3_options).copied == 0
