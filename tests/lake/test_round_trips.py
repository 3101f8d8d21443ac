"""How many requests wait for one another, in a process that opened nothing before: what a distant bucket costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.store import FolderStore, MemoryStore, ObjectStore, open_store
from tests.lake.lakes import SCHEMA, rows
from tests.store.round_trips import RoundTripStore
from tests.store.s3_server import S3Server

TABLES = ("t/a", "t/b", "t/c")

OPEN_LAKE, READ_VERSION, APPEND, FIRST_PUBLISH, LATER_PUBLISH = 2, 4, 7, 18, 10
"""Round trips at most. The last one of an append writes the checksum of its version, which needs the commit."""
READ_VERSION_ANEW = 8
"""The same where neither this process nor this machine has read the lake's tree or the table."""


@pytest.fixture
def store() -> RoundTripStore:
    """A lake with three tables, and a history that is longer than a snapshot of the refs is apart from the next."""
    store = RoundTripStore(MemoryStore())
    lake = Lake.create(store)
    with lake.session() as s:
        for path in TABLES:
            s.create_delta(path, SCHEMA)
    for number in range(70):
        with lake.session() as s:
            s.delta("t/a").append(rows([number]))
    return store


def test_opening_a_lake_at_a_branch(store: RoundTripStore) -> None:
    assert store.measure(lambda: Lake.open(store).at("main")) <= OPEN_LAKE


@pytest.mark.extended
def test_opening_a_lake_and_reading_the_version_of_a_table(store: RoundTripStore) -> None:
    assert store.measure(lambda: Lake.open(store).delta("t/a").version) <= READ_VERSION


@pytest.mark.extended
def test_reading_the_version_of_a_table_of_which_nothing_was_read(store: RoundTripStore) -> None:
    copy = RoundTripStore(MemoryStore())
    _copy(store.inner, copy.inner)
    assert copy.measure(lambda: Lake.open(copy).delta("t/a").version) <= READ_VERSION_ANEW


def _copy(source: ObjectStore, target: ObjectStore) -> None:
    for meta in source.list():
        target.put(meta.key, source.get(meta.key))


def test_opening_a_table_with_a_checkpoint_and_ten_commits() -> None:
    store = RoundTripStore(MemoryStore())
    table = DeltaTable.create(store, SCHEMA)
    for number in range(20):
        table.append(rows([number]))
    assert store.measure(lambda: DeltaTable.open(store).files) <= 3


def test_appending_to_a_table() -> None:
    store = RoundTripStore(MemoryStore())
    DeltaTable.create(store, SCHEMA)
    assert store.measure(lambda: DeltaTable.open(store).append(rows([1]))) <= APPEND


@pytest.mark.parametrize(
    ("before", "most"), [(0, FIRST_PUBLISH), (1, LATER_PUBLISH)], ids=["the first of a process", "a later one"]
)
@pytest.mark.extended
def test_publishing_a_session_of_three_tables(store: RoundTripStore, before: int, most: int) -> None:
    lake = Lake.open(store)
    for number in range(before + 1):
        session = lake.session()
        for path in TABLES:
            session.delta(path).append(rows([100 + number]))
        round_trips = store.measure(session.publish)
    assert round_trips <= most


@pytest.mark.extended
def test_merging_two_branches(store: RoundTripStore) -> None:
    lake = Lake.open(store)
    lake.create_branch("dev")
    with lake.session("dev") as s:
        s.delta("t/a").append(rows([100]))
    with lake.session() as s:
        s.delta("t/b").append(rows([100]))
    assert store.measure(lambda: lake.merge("dev")) <= 14


@pytest.mark.extended
def test_a_sensors_look_at_what_was_published(store: RoundTripStore) -> None:
    lake = Lake.open(store)
    lake.log(limit=1)
    with Lake.open(store).session() as s:
        s.delta("t/b").append(rows([100]))
    assert store.measure(lambda: lake.log(limit=10)) <= 2


@pytest.mark.extended
def test_publishing_after_a_publisher_that_died_before_the_checkout(store: RoundTripStore) -> None:
    lake = Lake.open(store)
    with lake.session() as s:
        s.delta("t/a").append(rows([100]))
    session = Lake.open(store).session()
    for path in TABLES:
        session.delta(path).append(rows([101]))
    session.publish()
    for path in TABLES:
        newest = max(meta.key for meta in store.inner.list(f"{path}/_delta_log/") if meta.key.endswith(".json"))
        store.inner.delete([newest])
    session = lake.session()
    session.delta("t/a").append(rows([102]))
    assert store.measure(session.publish) <= 14
    assert all(lake.delta(path).version == DeltaTable.open(FolderStore(store.inner, path)).version for path in TABLES)


class DistantBucket:
    """A bucket whose answers take a tenth of a second each, so that requests which wait for one another are seen."""

    seconds = 0.1

    def __init__(self, server: S3Server, url: str, options: dict[str, object]) -> None:
        self.url = url
        self._server = server
        self._options = options

    def open(self, path: str = "") -> ObjectStore:
        """Open a location that nothing was read of, with connections and conditions that are known to work."""
        store = open_store(f"{self.url}/{path}", storage_options=self._options)
        store.put("_warm", b"")
        return store

    def measure(self, work: Callable[[], object]) -> int:
        """Return the round trips of a piece of work, as the server saw its requests overlap."""
        self._server.clear()
        self._server.delay(self.seconds)
        begin = time.monotonic()
        work()
        elapsed = time.monotonic() - begin
        round_trips = self._server.round_trips()
        self._server.clear()
        assert elapsed >= round_trips * self.seconds
        assert elapsed <= 3 * round_trips * self.seconds + 5, f"{round_trips} round trips took {elapsed:.1f} s"
        return round_trips


@pytest.fixture
def bucket(
    s3_endpoint: S3Server,
    s3_url: str,
    s3_options: dict[str, object],
    store: RoundTripStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> DistantBucket:
    """The same lake in a bucket, on a machine whose cache is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    bucket = DistantBucket(s3_endpoint, s3_url, s3_options)
    _copy(store.inner, bucket.open())
    return bucket


@pytest.mark.stress
def test_requests_to_a_distant_bucket_wait_no_more_often(bucket: DistantBucket) -> None:
    """What a server sees of requests that overlap agrees with what a store counts. A busy machine delays some."""
    spare = 1.5
    lake = bucket.open()
    assert bucket.measure(lambda: Lake.open(lake).at("main")) <= spare * OPEN_LAKE
    assert bucket.measure(lambda: Lake.open(lake).delta("t/a").version) <= spare * READ_VERSION_ANEW
    DeltaTable.create(bucket.open("table"), SCHEMA)
    table = bucket.open("table")
    assert bucket.measure(lambda: DeltaTable.open(table).append(rows([1]))) <= spare * APPEND
    writer = Lake.open(bucket.open())
    for most in (FIRST_PUBLISH, LATER_PUBLISH):
        session = writer.session()
        for path in TABLES:
            session.delta(path).append(rows([most]))
        assert bucket.measure(session.publish) <= spare * most
