"""Virtual chunks in buckets and on web servers: who may read them, and what is refused."""

from __future__ import annotations

import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import zarr

from lake_core.errors import StoreUnavailable
from lake_core.icechunk import Repository, RepositoryConfig, VirtualChunkContainer, http_store, s3_store
from lake_core.icechunk.errors import (
    InvalidChunkIndex,
    InvalidVirtualReference,
    VirtualChunkError,
    VirtualChunkNotAuthorized,
)
from lake_core.icechunk.manifest import VirtualChunk
from lake_core.spark.executor import by_value
from lake_core.store import ObjectStore, open_store
from tests.store.s3_server import S3Server

CELLS = np.arange(8, dtype="<i4")
CHUNK = CELLS[:4].tobytes()
ARRAY: dict[str, Any] = {"shape": (8,), "chunks": (4,), "dtype": "i4", "compressors": None, "fill_value": -1}


@dataclass(frozen=True)
class Archive:
    """Objects in a folder of the server, which a repository refers to."""

    prefix: str
    """The URL prefix of the folder."""
    store: ObjectStore
    container: VirtualChunkContainer
    access: dict[str, Any] | None

    def put(self, data: bytes) -> None:
        """Put the object `data`, for everybody to read."""
        options = self.store.storage_options  # type: ignore[attr-defined]
        url = self.store.url("data").replace("s3://", f"{options['endpoint_url']}/")
        headers = {
            "x-amz-acl": "public-read",
            "Authorization": "AWS key:signature",
            "Content-Type": "application/octet-stream",
        }
        request = urllib.request.Request(url, data, headers, method="PUT")
        urllib.request.urlopen(request, timeout=30).close()

    @property
    def config(self) -> RepositoryConfig:
        config = RepositoryConfig()
        config.set_virtual_chunk_container(self.container)
        return config


@pytest.fixture(params=["s3", "http"])
def archive(request: pytest.FixtureRequest, s3_endpoint: S3Server, s3_url: str, s3_options: dict[str, Any]) -> Archive:
    folder = open_store(f"{s3_url}/archive", storage_options=s3_options)
    open_store(s3_url, storage_options=s3_options).put("secret", b"secret" * 10)
    if request.param == "http":
        prefix = f"{s3_endpoint.url}/{s3_url.removeprefix('s3://')}/archive/"
        archive = Archive(prefix, folder, VirtualChunkContainer(prefix, http_store()), None)
    else:
        prefix = f"{s3_url}/archive/"
        store = s3_store("us-east-1", s3_endpoint.url, allow_http=True, s3_compatible=True)
        access = {name: s3_options[name] for name in ("key", "secret")}
        archive = Archive(prefix, folder, VirtualChunkContainer(prefix, store), access)
    archive.put(b"head" + CELLS.tobytes())
    return archive


def create_array(repository: Any, archive: Archive, checksum: Any = None) -> None:
    """Commit an array of two virtual chunks by either package. The checksum is the first one's."""
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", **ARRAY)
    location = f"{archive.prefix}data"
    session.store.set_virtual_ref("a/c/0", location, offset=4, length=16, checksum=checksum)
    session.store.set_virtual_ref("a/c/1", location, offset=20, length=16)
    session.commit("virtual")


def their_access(archive: Archive) -> Any:
    assert archive.access is not None
    credentials = icechunk.s3_credentials(
        access_key_id=archive.access["key"], secret_access_key=archive.access["secret"]
    )
    return icechunk.containers_credentials({archive.prefix: credentials})


def values(repository: Any) -> list[int]:
    session = repository.readonly_session("main")
    return list(zarr.open_array(session.store, path="a", mode="r")[...].tolist())  # type: ignore[union-attr]


def chunk(repository: Repository, location: str, offset: int = 4, checksum: Any = None) -> bytes:
    """Return the bytes of a virtual chunk that a session refers to."""
    session = repository.writable_session("main")
    session.store.set_virtual_ref(
        "a/c/0", location, offset=offset, length=16, checksum=checksum, validate_container=False
    )
    reference = session.reference(session.array("/a"), (0,))
    assert reference is not None
    return session.fetch(reference)


@pytest.fixture
def repository(archive: Archive, tmp_path: Path) -> Repository:
    """Return a repository that may read the archive."""
    return repository_with_array(tmp_path, archive)


def repository_with_array(folder: Path, archive: Archive) -> Repository:
    access = {archive.prefix: archive.access}
    repository = Repository.create(folder / "r", config=archive.config, authorize_virtual_chunk_access=access)
    create_array(repository, archive)
    return repository


# icechunk itself takes no port in the URL of a web server.
@pytest.mark.parametrize("archive", ["s3"], indirect=True)
def test_icechunk_reads_the_same_references(repository: Repository, archive: Archive, tmp_path: Path) -> None:
    theirs = icechunk.Repository.open(
        icechunk.local_filesystem_storage(str(tmp_path / "r")), authorize_virtual_chunk_access=their_access(archive)
    )
    assert values(theirs) == values(repository) == CELLS.tolist()


@pytest.mark.parametrize("archive", ["s3"], indirect=True)
def test_references_that_icechunk_made_are_read(archive: Archive, s3_endpoint: S3Server, tmp_path: Path) -> None:
    config = icechunk.RepositoryConfig.default()
    store = icechunk.s3_store(
        region="us-east-1", endpoint_url=s3_endpoint.url, allow_http=True, s3_compatible=True, force_path_style=True
    )
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(archive.prefix, store))
    theirs = icechunk.Repository.create(
        icechunk.local_filesystem_storage(str(tmp_path / "r")),
        config=config,
        authorize_virtual_chunk_access=their_access(archive),
    )
    create_array(theirs, archive, checksum=archive.store.head("data").etag)
    ours = Repository.open(tmp_path / "r", authorize_virtual_chunk_access={archive.prefix: archive.access})
    assert values(ours) == values(theirs) == CELLS.tolist()
    archive.put(b"head" + CELLS[::-1].tobytes())
    with pytest.raises(VirtualChunkError, match="its etag differs"):
        values(ours)
    with pytest.raises(icechunk.IcechunkError):
        values(theirs)


def test_an_object_that_has_changed_is_refused(repository: Repository, archive: Archive) -> None:
    meta = archive.store.head("data")
    location = f"{archive.prefix}data"
    assert chunk(repository, location, checksum=meta.etag) == CHUNK
    assert chunk(repository, location, checksum=meta.last_modified) == CHUNK
    with pytest.raises(VirtualChunkError, match="has changed since"):
        chunk(repository, location, checksum=meta.last_modified - timedelta(hours=1))
    archive.put(b"HEAD" + CELLS.tobytes())
    with pytest.raises(VirtualChunkError, match="its etag differs"):
        chunk(repository, location, checksum=meta.etag)
    assert chunk(repository, location) == CHUNK


def test_objects_that_are_missing_or_too_short_are_errors(repository: Repository, archive: Archive) -> None:
    with pytest.raises(VirtualChunkError, match="cannot be read"):
        chunk(repository, f"{archive.prefix}absent")
    for offset in (30, 36, 1000):
        with pytest.raises(VirtualChunkError, match="is too short"):
            chunk(repository, f"{archive.prefix}data", offset)


def test_nothing_is_fetched_that_the_caller_does_not_allow(
    repository: Repository, archive: Archive, s3_endpoint: S3Server, tmp_path: Path
) -> None:
    above = archive.prefix.removesuffix("archive/")
    s3_endpoint.clear()
    for location in (f"{above}secret", f"{archive.prefix}../secret", f"{archive.prefix}x/../../secret"):
        with pytest.raises(InvalidVirtualReference, match="no virtual chunk container"):
            chunk(repository, location)
    # The name of a folder that begins like the container's.
    with pytest.raises(InvalidVirtualReference, match="no virtual chunk container"):
        chunk(repository, f"{archive.prefix.rstrip('/')}-other/data")
    for access in (None, {}, {above: archive.access}):
        closed = Repository.open(tmp_path / "r", authorize_virtual_chunk_access=access)
        with pytest.raises(VirtualChunkNotAuthorized):
            chunk(closed, f"{archive.prefix}data")
    assert s3_endpoint.requests() == []


@pytest.mark.parametrize("archive", ["s3"], indirect=True)
def test_a_bucket_that_was_opened_before_is_read_where_this_package_is_missing(
    repository: Repository, archive: Archive
) -> None:
    session = repository.readonly_session("main")
    reference = session.reference(session.array("/a"), (0,))
    assert isinstance(reference, VirtualChunk)
    others = ["s3://elsewhere/data", "s3://bucket", f"{archive.prefix}../../..", "file:///data"]
    session.virtual_chunks.open_buckets([*others, reference.location])
    program = """
import pickle, sys
sys.modules["lake_core"] = None
chunks, reference = pickle.load(sys.stdin.buffer)
sys.stdout.buffer.write(chunks.fetch(reference))
"""
    # In another process: classes that come back by value would replace the methods of this one's.
    payload = by_value((session.virtual_chunks, reference))
    run = subprocess.run([sys.executable, "-c", program], input=payload, capture_output=True, timeout=60)
    assert run.stdout == CHUNK, run.stderr.decode()


def test_credentials_appear_in_no_error(repository: Repository, archive: Archive, tmp_path: Path) -> None:
    access = {**(archive.access or {}), "key": "another-key", "secret": "another-secret"} if archive.access else None
    opened = Repository.open(tmp_path / "r", authorize_virtual_chunk_access={archive.prefix: access})
    with pytest.raises(VirtualChunkError) as caught:
        chunk(opened, f"{archive.prefix}absent")
    assert "another" not in str(caught.value)


# Web servers


@pytest.mark.parametrize("archive", ["http"], indirect=True)
@pytest.mark.parametrize("dots", ["%2e%2e", ".%2E", "x/%2e%2e", "..%2f..", "..%5c"])
def test_encoded_dots_lead_nowhere(repository: Repository, archive: Archive, s3_endpoint: S3Server, dots: str) -> None:
    s3_endpoint.clear()
    with pytest.raises(InvalidVirtualReference, match="encoded"):
        chunk(repository, f"{archive.prefix}{dots}/secret")
    assert s3_endpoint.requests() == []


class RedirectingServer(ThreadingHTTPServer):
    """A web server that serves no ranges, and redirects some paths."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.paths: list[str] = []
        """The paths that were asked for."""
        self.targets = {
            "/a/inside": "/a/data",
            "/a/outside": "/secret",
            "/a/dots": "/a/../secret",
            "/a/encoded": "/a/%2e%2e/secret",
            "/a/elsewhere": f"http://localhost:{self.server_port}/a/data",
            "/a/file": "file:///etc/passwd",
            "/a/circle": "/a/circle",
        }

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that do not wait for the answer's end."""


class _Handler(BaseHTTPRequestHandler):
    server: RedirectingServer

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        target = self.server.targets.get(self.path)
        self.send_response(200 if target is None else 302)
        if target is not None:
            self.send_header("Location", target)
        self.end_headers()
        self.wfile.write(b"secret" * 10)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def redirecting() -> Iterator[RedirectingServer]:
    with RedirectingServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def redirected(
    folder: Path, server: RedirectingServer, name: str, offset: int = 0, checksum: str | datetime | None = None
) -> bytes:
    prefix = f"http://127.0.0.1:{server.server_port}/a/"
    config = RepositoryConfig()
    config.set_virtual_chunk_container(VirtualChunkContainer(prefix, http_store()))
    repository = Repository.create(folder / "r", config=config, authorize_virtual_chunk_access={prefix: None})
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", **ARRAY)
    session.commit("array")
    return chunk(repository, prefix + name, offset, checksum)


@pytest.mark.parametrize("name", ["outside", "dots", "encoded", "elsewhere", "file"])
def test_redirects_out_of_the_container_are_not_followed(
    tmp_path: Path, redirecting: RedirectingServer, name: str
) -> None:
    with pytest.raises(VirtualChunkError, match="redirects to a location outside"):
        redirected(tmp_path, redirecting, name)
    assert redirecting.paths == [f"/a/{name}"]


def test_redirects_within_the_container_are_followed(tmp_path: Path, redirecting: RedirectingServer) -> None:
    assert redirected(tmp_path, redirecting, "inside") == (b"secret" * 3)[:16]


def test_redirects_in_a_circle_are_an_error(tmp_path: Path, redirecting: RedirectingServer) -> None:
    with pytest.raises(VirtualChunkError, match="redirects more than"):
        redirected(tmp_path, redirecting, "circle")


def test_a_server_without_ranges_gives_no_wrong_bytes(tmp_path: Path, redirecting: RedirectingServer) -> None:
    with pytest.raises(VirtualChunkError, match="does not serve ranges"):
        redirected(tmp_path, redirecting, "data", offset=4)


@pytest.mark.parametrize("checksum", ["etag", datetime(2100, 1, 1, tzinfo=UTC)])
def test_a_server_that_tells_no_change_is_not_said_to_have_changed(
    tmp_path: Path, redirecting: RedirectingServer, checksum: str | datetime
) -> None:
    with pytest.raises(VirtualChunkError, match="does not say whether it has changed"):
        redirected(tmp_path, redirecting, "data", checksum=checksum)


def test_a_connection_that_breaks_is_an_error(repository: Repository, archive: Archive, s3_endpoint: S3Server) -> None:
    s3_endpoint.fault("cut", times=20, method="GET", key="archive/data")
    with pytest.raises((VirtualChunkError, StoreUnavailable), match="data"):
        chunk(repository, f"{archive.prefix}data")


def test_a_box_of_chunks_is_set_by_columns(tmp_path: Path) -> None:
    config = RepositoryConfig()
    config.set_virtual_chunk_container(VirtualChunkContainer("file:///archive/", http_store()))
    session = Repository.create(str(tmp_path), config=config).writable_session("main")
    zarr.create_array(session.store, name="a", shape=(4, 6), chunks=(2, 2), dtype="i4", compressors=None)
    locations = ["file:///archive/x", "", "file:///archive/y", "file:///archive/x"]
    session.store.set_virtual_refs_arr(
        "a", (2, 2), locations, np.arange(4, dtype="u8") * 16, np.full(4, 16, "u8"), arr_offset=(0, 1)
    )
    array = session.array("/a")
    references = {index: session.reference(array, index) for index in np.ndindex(2, 3)}
    assert {index: reference for index, reference in references.items() if reference is not None} == {
        (0, 1): VirtualChunk("file:///archive/x", 0, 16),
        (1, 1): VirtualChunk("file:///archive/y", 32, 16),
        (1, 2): VirtualChunk("file:///archive/x", 48, 16),
    }


@pytest.mark.parametrize(
    ("shape", "count", "first", "error"),
    [
        ((2, 2), 3, (0, 0), InvalidChunkIndex),
        ((2,), 2, (0,), InvalidChunkIndex),
        ((2, 2), 4, (0,), InvalidChunkIndex),
        ((2, 2), 4, (1, 0), InvalidChunkIndex),
        ((2, 2), 4, (0, -1), InvalidChunkIndex),
    ],
    ids=["too few", "other dimensions", "other offset", "outside", "before the first"],
)
def test_a_box_that_does_not_fit_is_refused(
    tmp_path: Path, shape: tuple[int, ...], count: int, first: tuple[int, ...], error: type[Exception]
) -> None:
    session = Repository.create(str(tmp_path)).writable_session("main")
    zarr.create_array(session.store, name="a", shape=(4, 4), chunks=(2, 2), dtype="i4", compressors=None)
    columns = ["file:///archive/x"] * count, np.arange(count, dtype="u8"), np.ones(count, "u8")
    with pytest.raises(error):
        session.store.set_virtual_refs_arr("a", shape, *columns, arr_offset=first, validate_containers=False)
