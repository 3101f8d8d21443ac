"""Locations of virtual chunks are URLs with encoded paths: icechunk reads ours, and ours are read by icechunk."""

from __future__ import annotations

import os
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote

import icechunk
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lake_core.icechunk import (
    Repository,
    RepositoryConfig,
    VirtualChunkContainer,
    VirtualChunkSpec,
    http_store,
    local_filesystem_store,
    s3_store,
    unreadable_sources,
)
from lake_core.icechunk.errors import (
    InvalidConfig,
    InvalidVirtualReference,
    VirtualChunkError,
    VirtualChunkNotAuthorized,
)
from lake_core.icechunk.location import new_location, stored_location
from lake_core.icechunk.manifest import VirtualChunk
from lake_core.store import MemoryStore, open_store
from tests.store.s3_server import S3Server

CELLS = np.arange(4, dtype="<i4")
NAMES = [
    "plain.bin",
    "a b",
    "ü",
    "a#b",
    "a?b",
    "a+b",
    "a%20b",
    "a%b",
    "100%",
    "{x}<y>`\"'",
    "^|[x]~",
    "a&b=c;d,e:f@g!$*()",
    "\U0001f600",
    "a b/c#d/e",
]


def create_array(repository: Any) -> Any:
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="v", shape=(4,), chunks=(4,), dtype="i4", compressors=None, fill_value=-1)
    return session


def values(repository: Any) -> list[int]:
    return list(zarr.open_array(repository.readonly_session("main").store, path="v")[:].tolist())  # type: ignore[union-attr]


def our_config(container: VirtualChunkContainer) -> RepositoryConfig:
    config = RepositoryConfig()
    config.set_virtual_chunk_container(container)
    return config


def in_files(folder: Path, prefix: str) -> Repository:
    container = VirtualChunkContainer(prefix, local_filesystem_store(str(folder)))
    access: dict[str, Any] = {prefix: None}
    return Repository.create(MemoryStore(), config=our_config(container), authorize_virtual_chunk_access=access)


def put_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(CELLS.tobytes())


def put_for_everybody(url: str) -> None:
    headers = {
        "x-amz-acl": "public-read",
        "Authorization": "AWS key:signature",
        "Content-Type": "application/octet-stream",
    }
    urllib.request.urlopen(urllib.request.Request(url, CELLS.tobytes(), headers, method="PUT"), timeout=30).close()


@pytest.mark.parametrize(
    ("writer", "name", "encoded"),
    [
        (writer, name, encoded)
        for name in NAMES
        for writer in ("ours", "icechunk")
        for encoded in (False, True)
        # Such a name is part of a URL only if it is encoded.
        if encoded or not ("%2" in name or (writer == "icechunk" and {"#", "?"} & set(name)))
    ],
)
def test_both_read_a_file_that_either_refers_to(tmp_path: Path, name: str, encoded: bool, writer: str) -> None:
    put_file(tmp_path / "files" / name)
    prefix, root = f"file://{tmp_path}/files/", tmp_path / "r"
    location = prefix + (quote(name) if encoded else name)
    storage = icechunk.local_filesystem_storage(str(root))
    access: dict[str, Any] = {prefix: None}
    if writer == "ours":
        container = VirtualChunkContainer(prefix, local_filesystem_store(str(tmp_path)))
        session = create_array(
            Repository.create(root, config=our_config(container), authorize_virtual_chunk_access=access)
        )
    else:
        config = icechunk.RepositoryConfig.default()
        store = icechunk.local_filesystem_store(str(tmp_path))
        config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, store))
        theirs = icechunk.Repository.create(storage, config=config, authorize_virtual_chunk_access=access)
        theirs.save_config()
        session = create_array(theirs)
    session.store.set_virtual_ref("v/c/0", location, offset=0, length=16)
    session.commit("virtual")
    assert values(Repository.open(root, authorize_virtual_chunk_access=access)) == CELLS.tolist()
    assert values(icechunk.Repository.open(storage, authorize_virtual_chunk_access=access)) == CELLS.tolist()


@given(
    name=st.text(st.characters(blacklist_characters="/", blacklist_categories=("Cc", "Cs")), min_size=1, max_size=12)
)
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_name_is_read_as_icechunk_reads_it(tmp_path: Path, name: str) -> None:
    # icechunk's library takes a letter with a bar at the end of a name for a drive of Windows.
    is_drive = len(name) > 1 and name[-2].isascii() and name[-2].isalpha() and name[-1] == "|"
    if name in (".", "..") or len(name.encode()) > 200 or is_drive:
        return
    put_file(tmp_path / "any" / name)
    prefix = f"file://{tmp_path}/any/"
    access: dict[str, Any] = {prefix: None}
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store("/")))
    theirs = icechunk.Repository.create(
        icechunk.in_memory_storage(), config=config, authorize_virtual_chunk_access=access
    )
    ours = in_files(tmp_path, prefix)
    stored = new_location(prefix + quote(name, safe="")).url
    for repository in (ours, theirs):
        session = create_array(repository)
        session.store.set_virtual_ref("v/c/0", stored, offset=0, length=16)
        assert zarr.open_array(session.store, path="v")[:].tolist() == CELLS.tolist()
        assert session.all_virtual_chunk_locations() == [stored]
    os.unlink(tmp_path / "any" / name)


@given(st.text(st.characters(blacklist_categories=("Cs",)), max_size=20))
def test_a_normal_form_is_its_own(text: str) -> None:
    for prefix in ("file:///", "s3://bucket/", "https://host/", "gs://b/", "az://c/"):
        try:
            location = new_location(prefix + text)
        except InvalidVirtualReference:
            continue
        assert new_location(location.url) == location == stored_location(location.url)
        assert location.url.isascii()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["s3", "http", "store"])
def test_objects_of_any_name_are_read(
    name: str, kind: str, s3_endpoint: S3Server, s3_url: str, s3_options: dict[str, Any]
) -> None:
    bucket = open_store(f"{s3_url}/archive", storage_options=s3_options)
    bucket.put(name, CELLS.tobytes())
    prefix = f"{s3_url}/archive/"
    access: Any = bucket if kind == "store" else {name: s3_options[name] for name in ("key", "secret")}
    container = VirtualChunkContainer(
        prefix, s3_store("us-east-1", s3_endpoint.url, allow_http=True, s3_compatible=True)
    )
    if kind == "http":
        prefix = f"{s3_endpoint.url}/{s3_url.removeprefix('s3://')}/archive/"
        container = VirtualChunkContainer(prefix, http_store())
        access = None
        put_for_everybody(prefix + quote(name))
    repository = Repository.create(
        MemoryStore(), config=our_config(container), authorize_virtual_chunk_access={prefix: access}
    )
    session = create_array(repository)
    session.store.set_virtual_ref("v/c/0", prefix + quote(name), offset=0, length=16)
    session.commit("virtual")
    assert values(repository) == CELLS.tolist()


@pytest.mark.parametrize("name", NAMES)
def test_icechunk_reads_objects_of_any_name(
    name: str, s3_endpoint: S3Server, s3_url: str, s3_options: dict[str, Any], tmp_path: Path
) -> None:
    open_store(f"{s3_url}/archive", storage_options=s3_options).put(name, CELLS.tobytes())
    prefix = f"{s3_url}/archive/"
    container = VirtualChunkContainer(
        prefix, s3_store("us-east-1", s3_endpoint.url, allow_http=True, s3_compatible=True)
    )
    ours = Repository.create(tmp_path / "r", config=our_config(container))
    session = create_array(ours)
    raw = "%2" not in name
    session.store.set_virtual_ref("v/c/0", prefix + (name if raw else quote(name)), offset=0, length=16)
    session.commit("virtual")
    credentials = icechunk.s3_credentials(
        access_key_id=str(s3_options["key"]), secret_access_key=str(s3_options["secret"])
    )
    theirs = icechunk.Repository.open(
        icechunk.local_filesystem_storage(str(tmp_path / "r")),
        authorize_virtual_chunk_access=icechunk.containers_credentials({prefix: credentials}),
    )
    assert values(theirs) == CELLS.tolist()


# What was stored before locations were encoded


@pytest.mark.parametrize("name", ["a b", "ü", "a#b", "a?b", "100%", "a\nb"])
def test_locations_that_were_stored_as_they_were_given_are_read(tmp_path: Path, name: str) -> None:
    put_file(tmp_path / "files" / name)
    repository = in_files(tmp_path, f"file://{tmp_path}/files/")
    session = create_array(repository)
    session.set_reference("/v", (0,), VirtualChunk(f"file://{tmp_path}/files/{name}", 0, 16))
    session.commit("virtual")
    assert values(repository) == CELLS.tolist()


def test_a_stored_location_is_decoded_once(tmp_path: Path) -> None:
    put_file(tmp_path / "files" / "a%20b")
    repository = in_files(tmp_path, f"file://{tmp_path}/files/")
    session = create_array(repository)
    session.set_reference("/v", (0,), VirtualChunk(f"file://{tmp_path}/files/a%20b", 0, 16))
    session.commit("virtual")
    with pytest.raises(VirtualChunkError, match="missing or unreachable"):
        values(repository)


# Containers


@pytest.mark.parametrize("prefix", ["my files/", "my%20files/", "ü/", "%C3%BC/"])
def test_the_prefix_of_a_container_may_be_encoded(tmp_path: Path, prefix: str) -> None:
    folder = "my files" if prefix.startswith("my") else "ü"
    put_file(tmp_path / folder / "data")
    repository = in_files(tmp_path, f"file://{tmp_path}/{prefix}")
    session = create_array(repository)
    spec = VirtualChunkSpec([0], f"file://{tmp_path}/{quote(folder)}/data", 0, 16)
    session.store.set_virtual_refs("v", [spec])
    session.commit("virtual")
    assert values(repository) == CELLS.tolist()


@pytest.mark.parametrize("dots", ["%2e%2e/secret", "x/.%2E/../secret", "x%2F..%2F..%2Fsecret", "%2E/x", "a%2F%2Fb"])
@pytest.mark.parametrize("prefix", ["file:///files/", "s3://bucket/files/", "https://host/files/", "gs://b/files/"])
def test_encoded_dots_are_refused(prefix: str, dots: str) -> None:
    for read in (new_location, stored_location):
        with pytest.raises(InvalidVirtualReference, match=r"encoded|has the part"):
            read(prefix + dots)


def test_a_reference_does_not_leave_its_container_by_another_spelling(tmp_path: Path) -> None:
    put_file(tmp_path / "secret")
    put_file(tmp_path / "files" / "data")
    repository = in_files(tmp_path, f"file://{tmp_path}/files/")
    for location in ("files/../secret", "fi%6ces/../secret", "files%2F..%2Fsecret", "files%2f%2e%2e%2fsecret"):
        session = create_array(Repository.create(MemoryStore(), config=repository.config))
        with pytest.raises(InvalidVirtualReference):
            session.store.set_virtual_ref("v/c/0", f"file://{tmp_path}/{location}", offset=0, length=16)
        session = create_array(repository)
        session.set_reference("/v", (0,), VirtualChunk(f"file://{tmp_path}/{location}", 0, 16))
        with pytest.raises(InvalidVirtualReference):
            session.fetch(session.reference(session.array("/v"), (0,)))


@pytest.mark.parametrize(
    "location",
    [
        "file:///a%00b",
        "file:///a%FFb",
        "file:///\ud800",
        "file:///a\nb",
        "file:///a%0Ab",
        "file://host/x",
        "s3://bu cket/x",
        "s3://b?x/y",
        "s3://b#x/y",
        "s3:///x",
        "s3://b%41/x",
        "vcc://name/x",
        "s3://bucket",
        "S3://bucket/x",
    ],
)
def test_locations_that_name_no_object_are_refused(location: str) -> None:
    with pytest.raises(InvalidVirtualReference):
        new_location(location)


def test_a_file_of_this_host_has_no_host() -> None:
    assert new_location("file://localhost/a").url == new_location("file:/a").url == "file:///a"


@pytest.mark.parametrize("path", ["a//b", "a/../b", "./a", "a/"])
def test_keys_that_icechunk_2_stores_verbatim_are_not_taken_for_others(path: str) -> None:
    for prefix in ("s3://bucket/", "https://host/", "gs://bucket/"):
        with pytest.raises(InvalidVirtualReference, match="has the part"):
            stored_location(prefix + path)


# Relative to a container


def relative(repository: Repository, location: str) -> bytes:
    session = create_array(repository)
    session.set_reference("/v", (0,), VirtualChunk(location, 0, 16))
    reference = session.reference(session.array("/v"), (0,))
    return bytes(session.fetch(reference))


def named(folder: Path, **names: str) -> Repository:
    config = RepositoryConfig()
    for name, path in names.items():
        container = VirtualChunkContainer(f"file://{folder}/{path}/", local_filesystem_store(str(folder)), name)
        config.set_virtual_chunk_container(container)
    access: dict[str, Any] = {f"file://{folder}/{path}/": None for path in names.values() if path != "closed"}
    return Repository.create(MemoryStore(), config=config, authorize_virtual_chunk_access=access)


def test_references_relative_to_a_container_are_read(tmp_path: Path) -> None:
    put_file(tmp_path / "files" / "sub" / "a b")
    repository = named(tmp_path, data="files", other="more")
    for rest in ("sub/a%20b", "sub/a b", "sub/x/../a%20b"):
        assert relative(repository, f"vcc://data/{rest}") == CELLS.tobytes()
    session = create_array(repository)
    session.set_reference("/v", (0,), VirtualChunk("vcc://data/sub/a%20b", 0, 16))
    assert session.all_virtual_chunk_locations() == [f"file://{tmp_path}/files/sub/a%20b"]
    session.commit("relative")
    assert values(repository) == CELLS.tolist()


def test_a_relative_reference_reads_only_what_is_authorized(tmp_path: Path) -> None:
    put_file(tmp_path / "secret")
    put_file(tmp_path / "closed" / "x")
    repository = named(tmp_path, data="files", shut="closed")
    with pytest.raises(InvalidVirtualReference, match="no virtual chunk container"):
        relative(repository, "vcc://data/../secret")
    with pytest.raises(VirtualChunkNotAuthorized):
        relative(repository, "vcc://shut/x")
    with pytest.raises(VirtualChunkNotAuthorized):
        relative(repository, "vcc://data/../closed/x")


def test_a_relative_reference_to_an_unknown_container_is_an_error(tmp_path: Path) -> None:
    repository = named(tmp_path, data="files")
    for location in ("vcc://elsewhere/x", "vcc://data", "vcc:///x", "vcc://Data/x"):
        with pytest.raises(InvalidVirtualReference):
            relative(repository, location)


def test_two_containers_of_one_name_are_an_error(tmp_path: Path) -> None:
    put_file(tmp_path / "files" / "x")
    repository = named(tmp_path, data="files", other="more")
    twice = RepositoryConfig()
    for path in ("files", "more"):
        store = local_filesystem_store(str(tmp_path))
        twice.set_virtual_chunk_container(VirtualChunkContainer(f"file://{tmp_path}/{path}/", store, "data"))
    repository = Repository.create(MemoryStore(), config=twice)
    with pytest.raises(InvalidVirtualReference, match="has 2 of this name"):
        relative(repository, "vcc://data/x")


SIGNED = [
    "https://user:hidden@host/a",
    "https://host/a?sv=1&sig=hidden",
    "https://host/a?X-Amz-Credential=hidden",
    "https://host/a?X-Amz-Security-Token=hidden&X-Amz-Expires=60",
    "https://host/a?X-Goog-Signature=hidden",
    "https://host/a?access_token=hidden",
    "s3://key:hidden@bucket/a",
    "ftp://user:hidden@host/a",
]


@pytest.mark.parametrize("location", SIGNED)
def test_credentials_are_neither_stored_nor_told(location: str) -> None:
    with pytest.raises(InvalidVirtualReference) as caught:
        new_location(location)
    assert "hidden" not in str(caught.value)
    with pytest.raises(InvalidConfig) as refused:
        RepositoryConfig().set_virtual_chunk_container(VirtualChunkContainer(f"{location}/", http_store()))
    assert "hidden" not in str(refused.value)


def test_other_parameters_of_a_query_are_part_of_the_location() -> None:
    assert new_location("https://host/a?design=x&part=2").url == "https://host/a?design=x&part=2"


def test_a_signed_location_that_another_client_stored_is_not_told() -> None:
    location, prefix = "http://localhost:9/a?sig=hidden", "http://localhost:9/"
    config = our_config(VirtualChunkContainer(prefix, http_store()))
    repository = Repository.create(MemoryStore(), config=config, authorize_virtual_chunk_access={prefix: None})
    session = create_array(repository)
    session.set_reference("/v", (0,), VirtualChunk(location, 0, 16))
    ((shown, reason),) = unreadable_sources(session).items()
    assert "hidden" not in shown + reason
