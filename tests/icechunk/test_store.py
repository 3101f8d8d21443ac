"""The store of a session: keys, ranges, listings, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import cpu, default_buffer_prototype

from lake_core.icechunk import (
    IcechunkStore,
    Repository,
    RepositoryConfig,
    VirtualChunkContainer,
    VirtualChunkSpec,
    local_filesystem_store,
)
from lake_core.icechunk.errors import (
    DamagedObject,
    EmptyChunk,
    InvalidArrayMetadata,
    InvalidChunkIndex,
    InvalidStoreKey,
    InvalidVirtualReference,
    VirtualChunkError,
    VirtualChunkNotAuthorized,
)
from lake_core.icechunk.manifest import VirtualChunk

GROUP = json.dumps({"zarr_format": 3, "node_type": "group"}).encode()


def document(*shape: int) -> bytes:
    grid = {"name": "regular", "configuration": {"chunk_shape": [1] * len(shape)}}
    return json.dumps({"zarr_format": 3, "node_type": "array", "shape": shape, "chunk_grid": grid}).encode()


def put(store: IcechunkStore, key: str, value: bytes) -> None:
    asyncio.run(store.set(key, cpu.Buffer.from_bytes(value)))


def get(store: IcechunkStore, key: str, byte_range: ByteRequest | None = None) -> bytes | None:
    value = asyncio.run(store.get(key, default_buffer_prototype(), byte_range))
    return None if value is None else value.to_bytes()


def listed(names: AsyncIterator[str]) -> list[str]:
    async def collect() -> list[str]:
        return sorted([name async for name in names])

    return asyncio.run(collect())


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    config = RepositoryConfig()
    prefix = f"file://{tmp_path}/files/"
    config.set_virtual_chunk_container(VirtualChunkContainer(prefix, local_filesystem_store(str(tmp_path))))
    repository = Repository.create(
        tmp_path / "repository", config=config, authorize_virtual_chunk_access={prefix: None}
    )
    store = repository.writable_session("main").store
    put(store, "zarr.json", GROUP)
    put(store, "g/zarr.json", GROUP)
    put(store, "g/a/zarr.json", document(3, 2))
    put(store, "g/a/c/0/1", b"0123456789")
    put(store, "g/a/c/2/0", b"x" * 600)
    store.session.commit("first")
    return repository


@pytest.mark.parametrize("committed", [True, False])
def test_listings(repository: Repository, committed: bool) -> None:
    store = repository.writable_session("main").store
    keys = ["g/a/c/0/1", "g/a/c/2/0", "g/a/zarr.json", "g/zarr.json", "zarr.json"]
    if not committed:
        put(store, "g/a/c/1/1", b"new")
        asyncio.run(store.delete("g/a/c/0/1"))
        keys = ["g/a/c/1/1", *keys[1:]]
    assert listed(store.list()) == keys
    assert listed(store.list_prefix("g/a/c/2")) == ["g/a/c/2/0"]
    assert listed(store.list_dir("")) == ["g", "zarr.json"]
    assert listed(store.list_dir("g")) == ["a", "zarr.json"]
    assert listed(store.list_dir("g/a")) == ["c", "zarr.json"]
    assert listed(store.list_dir("g/a/c")) == (["0", "2"] if committed else ["1", "2"])
    assert listed(store.list_dir("g/a/c/2")) == ["0"]
    assert listed(store.list_dir("absent")) == []


@pytest.mark.parametrize(
    ("byte_range", "expected"),
    [
        (RangeByteRequest(2, 4), b"23"),
        (RangeByteRequest(8, 20), b"89"),
        (OffsetByteRequest(7), b"789"),
        (SuffixByteRequest(3), b"789"),
        (SuffixByteRequest(30), b"0123456789"),
    ],
)
def test_ranges(repository: Repository, byte_range: ByteRequest, expected: bytes) -> None:
    store = repository.readonly_session("main").store
    assert get(store, "g/a/c/0/1", byte_range) == expected
    assert get(store, "g/a/c/2/0", byte_range) == b"x" * (
        600 - 7 if byte_range == OffsetByteRequest(7) else _length(byte_range)
    )


def _length(byte_range: ByteRequest) -> int:
    if isinstance(byte_range, RangeByteRequest):
        return byte_range.end - byte_range.start
    assert isinstance(byte_range, SuffixByteRequest)
    return byte_range.suffix


@pytest.mark.parametrize(
    "key", ["g/a/foo", "g/.zgroup", ".zmetadata", "g/a/0/0", "g/a/c/00/1", "g/a/c/-1/0", "g/a/c/1/99999999999", ""]
)
def test_foreign_keys_are_refused_and_read_as_absent(repository: Repository, key: str) -> None:
    store = repository.writable_session("main").store
    with pytest.raises(InvalidStoreKey):
        put(store, key, b"x")
    assert get(store, key) is None


def test_chunks_outside_of_the_array_are_refused(repository: Repository) -> None:
    store = repository.writable_session("main").store
    for key in ("g/a/c/3/0", "g/a/c/0", "g/a/c/0/0/0"):
        with pytest.raises(InvalidChunkIndex):
            put(store, key, b"x")


@pytest.mark.parametrize(
    "value",
    [
        b"{",
        b"[]",
        b'{"zarr_format": 2, "node_type": "group"}',
        b'{"zarr_format": 3, "node_type": "array", "shape": [-1]}',
    ],
)
def test_documents_that_are_not_of_zarr_v3_are_refused(repository: Repository, value: bytes) -> None:
    with pytest.raises(InvalidArrayMetadata):
        put(repository.writable_session("main").store, "g/b/zarr.json", value)


def test_a_store_that_only_reads_refuses_writes(repository: Repository) -> None:
    session = repository.writable_session("main")
    for store in (repository.readonly_session("main").store, session.store.with_read_only(True)):
        with pytest.raises(ValueError, match="read-only"):
            put(store, "zarr.json", GROUP)
    assert not session.store.with_read_only(False).read_only


def test_a_session_that_only_reads_is_pickled(repository: Repository) -> None:
    store = pickle.loads(pickle.dumps(repository.readonly_session("main").store))
    assert get(store, "g/a/c/0/1") == b"0123456789"
    with pytest.raises(ValueError, match="fork"):
        pickle.dumps(repository.writable_session("main").store)


def test_a_missing_chunk_object_is_an_error(repository: Repository) -> None:
    (key,) = [meta.key for meta in repository.storage.list("chunks/")]
    repository.storage.delete([key])
    with pytest.raises(DamagedObject, match=key):
        get(repository.readonly_session("main").store, "g/a/c/2/0")


def test_a_shrunk_array_that_grows_again_has_lost_what_was_outside(repository: Repository) -> None:
    session = repository.writable_session("main")
    for shape in ((1, 2), (3, 2)):
        put(session.store, "g/a/zarr.json", document(*shape))
    assert get(session.store, "g/a/c/2/0") is None
    session.commit("shrunk")
    store = repository.readonly_session("main").store
    assert get(store, "g/a/c/2/0") is None
    assert get(store, "g/a/c/0/1") == b"0123456789"


@pytest.mark.parametrize("committed", [False, True])
def test_a_chunk_that_was_written_after_an_array_had_shrunk_and_grown_outlives_another_shrink(
    repository: Repository, committed: bool
) -> None:
    session = repository.writable_session("main")
    for rows in (1, 4):
        put(session.store, "g/a/zarr.json", document(rows, 2))
    put(session.store, "g/a/c/2/1", b"single")
    session.store.set_virtual_refs(
        "g/a", [VirtualChunkSpec([1, 1], "s3://bucket/key", 0, 2)], validate_containers=False
    )
    put(session.store, "g/a/zarr.json", document(3, 2))
    if committed:
        session.commit("shrunk twice")
        session = repository.readonly_session("main")
    assert listed(session.store.list_prefix("g/a/c/")) == ["g/a/c/0/1", "g/a/c/1/1", "g/a/c/2/1"]


def test_an_array_without_chunks_that_had_shrunk_takes_other_dimensions(repository: Repository) -> None:
    session = repository.writable_session("main")
    for shape in ((4,), (2,), (3, 3), (2, 3)):
        put(session.store, "g/b/zarr.json", document(*shape))
    put(session.store, "g/b/c/1/2", b"chunk")
    session.commit("two dimensions")
    assert listed(repository.readonly_session("main").store.list_prefix("g/b/c/")) == ["g/b/c/1/2"]


def test_virtual_references(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "data").write_bytes(b"abcdefgh")
    location = f"file://{tmp_path}/files/sub/..//data"
    session = repository.writable_session("main")
    store = session.store
    store.set_virtual_ref("g/a/c/0/0", location, offset=2, length=3, checksum=datetime(2100, 1, 1, tzinfo=UTC))
    store.set_virtual_refs("/g/a", [VirtualChunkSpec([1, 0], location, 0, 2)])
    store.set_virtual_ref("g/a/c/2/1", location, offset=2, length=3, checksum=datetime(2001, 1, 1, tzinfo=UTC))
    store.set_virtual_ref("g/a/c/2/0", location, offset=6, length=3)
    session.commit("virtual")
    session = repository.readonly_session("main")
    assert get(session.store, "g/a/c/0/0") == b"cde"
    assert get(session.store, "g/a/c/1/0") == b"ab"
    assert session.all_virtual_chunk_locations() == [f"file://{tmp_path}/files/data"]
    for key in ("g/a/c/2/1", "g/a/c/2/0"):
        with pytest.raises(VirtualChunkError):
            get(session.store, key)
    closed = Repository.open(tmp_path / "repository").readonly_session("main")
    with pytest.raises(VirtualChunkNotAuthorized):
        get(closed.store, "g/a/c/0/0")


@pytest.mark.parametrize(
    "location", ["relative/path", "s3://bucket/../../x", "ftp://host/x", "s3://key:secret@bucket/x", "file:///"]
)
def test_locations_that_are_no_absolute_urls_are_refused(repository: Repository, location: str) -> None:
    with pytest.raises(InvalidVirtualReference):
        repository.writable_session("main").store.set_virtual_ref(
            "g/a/c/0/0", location, offset=0, length=1, validate_container=False
        )


def test_locations_that_no_container_holds_are_refused_together(repository: Repository, tmp_path: Path) -> None:
    session = repository.writable_session("main")
    held = VirtualChunkSpec([1, 0], f"file://{tmp_path}/files/x", 0, 4)
    elsewhere = VirtualChunkSpec([1, 1], "file:///elsewhere/x", 0, 4)
    with pytest.raises(InvalidVirtualReference, match="holds file:///elsewhere/x"):
        session.store.set_virtual_refs("g/a", [held, elsewhere])
    assert not session.has_uncommitted_changes
    session.store.set_virtual_refs("g/a", [held, elsewhere], validate_containers=False)
    assert sorted(session.all_virtual_chunk_locations()) == sorted(["file:///elsewhere/x", held.location])


def test_a_chunk_of_no_bytes_is_refused(repository: Repository) -> None:
    session = repository.writable_session("main")
    with pytest.raises(EmptyChunk, match=r"the chunk \(0, 0\) of /g/a has no bytes"):
        put(session.store, "g/a/c/0/0", b"")
    with pytest.raises(InvalidVirtualReference, match="at least 1"):
        session.store.set_virtual_ref("g/a/c/0/0", "file:///x/y", offset=0, length=0, validate_container=False)
    assert not session.has_uncommitted_changes


def test_many_virtual_references_are_checked_and_kept_by_columns(repository: Repository, tmp_path: Path) -> None:
    folder = f"file://{tmp_path}/files"
    session = repository.writable_session("main")
    store = session.store
    specs = [
        VirtualChunkSpec([row, 0], f"{folder}//{row}", row, 4, etag_checksum="x" if row else None) for row in (2, 0)
    ]
    twice = VirtualChunkSpec([0, 0], f"{folder}/later", 5, 6, last_updated_at_checksum=datetime(2030, 1, 1, tzinfo=UTC))
    store.set_virtual_refs("g/a", [*specs, twice])
    assert session.all_virtual_chunk_locations() == [f"{folder}/2", f"{folder}/later"]
    put(store, "g/a/c/2/0", b"single")
    store.set_virtual_refs("g/a", [VirtualChunkSpec([1, 1], f"{folder}/1", 0, 4)])
    asyncio.run(store.delete("g/a/c/1/1"))
    assert session.status().updated_chunks == {"/g/a": [[0, 0], [1, 1], [2, 0]]}
    keys = ["g/a/c/0/0", "g/a/c/0/1", "g/a/c/2/0", "g/a/zarr.json", "g/zarr.json", "zarr.json"]
    assert listed(store.list()) == keys
    session.commit("references")
    store = repository.readonly_session("main").store
    assert listed(store.list()) == keys
    assert get(store, "g/a/c/2/0") == b"single"
    reference = store.session.reference(store.session.array("/g/a"), (0, 0))
    assert reference == VirtualChunk(f"{folder}/later", 5, 6, None, 1893456000)


@pytest.mark.parametrize(
    "spec",
    [
        VirtualChunkSpec([3, 0], "file:///x/y", 0, 4),
        VirtualChunkSpec([-1, 0], "file:///x/y", 0, 4),
        VirtualChunkSpec([0], "file:///x/y", 0, 4),
        VirtualChunkSpec([0.5, 0], "file:///x/y", 0, 4),  # type: ignore[list-item]
        VirtualChunkSpec([0, 0], "x/y", 0, 4),
        VirtualChunkSpec([0, 0], "file:///x/y", -1, 4),
        VirtualChunkSpec([0, 0], "file:///x/y", 0, 0),
        VirtualChunkSpec([0, 0], "file:///x/y", 0, 2**63),
        VirtualChunkSpec([0, 0], "file:///x/y", 0, 4, last_updated_at_checksum=datetime(2030, 1, 1)),
    ],
)
def test_one_invalid_virtual_reference_keeps_all_from_being_set(repository: Repository, spec: VirtualChunkSpec) -> None:
    session = repository.writable_session("main")
    with pytest.raises((InvalidVirtualReference, InvalidChunkIndex)):
        session.store.set_virtual_refs(
            "g/a", [VirtualChunkSpec([1, 1], "file:///x/y", 0, 4), spec], validate_containers=False
        )
    assert not session.has_uncommitted_changes
