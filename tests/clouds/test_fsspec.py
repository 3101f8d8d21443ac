"""s3fs, gcsfs and adlfs, by which engines read the same objects: they get the store's URL and its options."""

from __future__ import annotations

import uuid

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.store import open_store
from tests.clouds.servers import CloudServer

pytestmark = pytest.mark.clouds

ROWS = pa.table({"id": range(1000), "name": [f"name {number}" for number in range(1000)]})


@pytest.fixture
def url(cloud_server: CloudServer) -> str:
    return cloud_server.url(uuid.uuid4().hex)


def test_they_read_a_whole_object_and_a_part_of_it(url: str, cloud_server: CloudServer) -> None:
    store = open_store(url, storage_options=cloud_server.storage_options)
    store.put("a/b", b"0123456789")
    with fsspec.open(store.url("a/b"), **store.storage_options) as file:
        assert file.read() == b"0123456789"
        file.seek(4)
        assert file.read(3) == b"456"


def test_they_list_what_the_store_lists(url: str, cloud_server: CloudServer) -> None:
    store = open_store(url, storage_options=cloud_server.storage_options)
    for key in ("a", "b/c", "b/d"):
        store.put(key, b"1")
    filesystem, path = fsspec.url_to_fs(store.url(), **store.storage_options)
    names = sorted(name.rpartition(path)[2].strip("/") for name in filesystem.find(path))
    assert names == [meta.key for meta in store.list()]


def test_they_read_the_files_of_a_table(url: str, cloud_server: CloudServer) -> None:
    table = DeltaTable.create(url, ROWS.schema, storage_options=cloud_server.storage_options)
    table.append(ROWS)
    for path in table.files()["path"].to_pylist():
        with fsspec.open(table.store.url(path), **table.store.storage_options) as file:
            assert pq.read_table(file).num_rows == 1000


def test_a_commit_of_a_lake_is_read_by_its_url(url: str, cloud_server: CloudServer) -> None:
    options = cloud_server.storage_options
    lake = Lake.create(url, storage_options=options)
    with lake.session() as session:
        session.put("notes/a", b"of the first commit")
    commit = lake.log(limit=1)[0].id
    with lake.session() as session:
        session.put("notes/a", b"of the second")
    with fsspec.open(f"lake://shop/{commit}/notes/a", lakes={"shop": url}, target_options=options) as file:
        assert file.read() == b"of the first commit"
