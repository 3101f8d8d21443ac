"""Virtual chunks of Icechunk repositories in each cloud."""

from __future__ import annotations

import uuid
from pathlib import Path

import numpy as np
import pytest
import zarr

from lake_core.icechunk import (
    ObjectStoreConfig,
    Repository,
    RepositoryConfig,
    VirtualChunkContainer,
    azure_storage,
    gcs_storage,
    gcs_store,
    s3_storage,
    s3_store,
)
from lake_core.icechunk.errors import VirtualChunkError, VirtualChunkNotAuthorized
from lake_core.store import ObjectStore, open_store
from tests.clouds.servers import CloudServer

pytestmark = pytest.mark.clouds

CELLS = np.arange(8, dtype="<i4")


@pytest.fixture
def prefix(cloud_server: CloudServer) -> str:
    """The prefix of an archive with one object, `data`."""
    prefix = cloud_server.url(uuid.uuid4().hex)
    open_store(prefix, storage_options=cloud_server.storage_options).put("data", b"head" + CELLS.tobytes())
    return f"{prefix}/"


def config_of(prefix: str) -> RepositoryConfig:
    config = RepositoryConfig()
    stores = {"gs": gcs_store(), "az": ObjectStoreConfig("azure", {}), "s3": s3_store(s3_compatible=True)}
    store = stores[prefix.partition("://")[0]]
    config.set_virtual_chunk_container(VirtualChunkContainer(prefix, store))
    return config


def create_array(repository: Repository, location: str, checksum: str | None = None) -> None:
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(8,), chunks=(8,), dtype="i4", compressors=None)
    session.store.set_virtual_ref("a/c/0", location, offset=4, length=32, checksum=checksum)
    session.commit("virtual")


def values(repository: Repository) -> list[int]:
    array = zarr.open_array(repository.readonly_session("main").store, path="a", mode="r")
    cells: list[int] = np.asarray(array[...]).tolist()
    return cells


def test_they_are_read_until_their_object_changes(prefix: str, cloud_server: CloudServer, tmp_path: Path) -> None:
    archive = open_store(prefix, storage_options=cloud_server.storage_options)
    access = {prefix: cloud_server.storage_options}
    repository = Repository.create(tmp_path / "r", config=config_of(prefix), authorize_virtual_chunk_access=access)
    create_array(repository, f"{prefix}data", archive.head("data").etag)
    assert values(repository) == CELLS.tolist()
    archive.put("data", b"tail" + CELLS.tobytes())
    with pytest.raises(VirtualChunkError, match="has changed"):
        values(repository)


def test_a_container_has_to_be_authorized(prefix: str, tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "r", config=config_of(prefix))
    create_array(repository, f"{prefix}data")
    with pytest.raises(VirtualChunkNotAuthorized):
        values(repository)


def storage_of(server: CloudServer, prefix: str) -> ObjectStore:
    """Return the store that icechunk's function for this cloud makes."""
    options = {name: str(value) for name, value in server.storage_options.items()}
    if server.scheme == "gs":
        return gcs_storage(bucket="lake", prefix=prefix, anonymous=True)
    if server.scheme == "s3":
        return s3_storage(
            bucket="lake",
            prefix=prefix,
            endpoint_url=options["endpoint_url"],
            access_key_id=options["key"],
            secret_access_key=options["secret"],
            force_path_style=True,
        )
    return azure_storage(
        account=options["account_name"], container="lake", prefix=prefix, access_key=options["account_key"]
    )


def test_the_storages_of_icechunk_open_repositories(cloud_server: CloudServer, monkeypatch: pytest.MonkeyPatch) -> None:
    url = cloud_server.url(uuid.uuid4().hex)
    Repository.create(url, storage_options=cloud_server.storage_options)
    for name, value in cloud_server.environment.items():
        monkeypatch.setenv(name, value)
    assert Repository.exists(storage_of(cloud_server, url.rpartition("/")[2]))
