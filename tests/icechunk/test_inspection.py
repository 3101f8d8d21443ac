"""What repositories and sessions say of themselves, held against icechunk, and the methods that are awaited."""

from __future__ import annotations

import asyncio
import inspect
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import zarr

from lake_core.icechunk import (
    ChunkType,
    CompressionConfig,
    ManifestConfig,
    ManifestPreloadConfig,
    ManifestSplittingConfig,
    NoChangesToCommit,
    Repository,
    RepositoryConfig,
    VirtualChunkContainer,
    in_memory_storage,
    local_filesystem_store,
)
from lake_core.icechunk.errors import IcechunkError, InvalidConfig, NodeNotFound
from lake_core.icechunk.session import ForkSession, Session
from lake_core.icechunk.store import IcechunkStore


def theirs(path: Path) -> icechunk.Repository:
    return icechunk.Repository.open(icechunk.local_filesystem_storage(str(path)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Create a repository with inline, native and virtual chunks. Two commits share some of them."""
    source = tmp_path / "source.bin"
    source.write_bytes(bytes(range(200)))
    config = RepositoryConfig(inline_chunk_threshold_bytes=16)
    config.set_virtual_chunk_container(
        VirtualChunkContainer(f"file://{tmp_path}/", local_filesystem_store(str(tmp_path)))
    )
    path = tmp_path / "repository"
    repository = Repository.create(path, config=config)
    session = repository.writable_session("main")
    small = zarr.create_array(
        session.store, name="g/small", shape=(6, 2), chunks=(2, 2), dtype="i2", compressors=None, fill_value=0
    )
    small[:4] = 1
    large = zarr.create_array(session.store, name="g/large", shape=(40,), chunks=(10,), dtype="f8", compressors=None)
    large[:20] = 1.5
    zarr.create_array(session.store, name="away", shape=(30,), chunks=(10,), dtype="u1", compressors=None)
    for number, offset in enumerate((0, 100, 100)):
        session.store.set_virtual_ref(f"away/c/{number}", f"file://{source}", offset=offset, length=10)
    session.commit("first", {"by": "a test"})
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="g/large")[20:] = 2.5
    session.commit("second")
    return path


def test_a_snapshot_is_shown_as_icechunk_shows_it(path: Path) -> None:
    for snapshot in Repository.open(path).ancestry(branch="main"):
        shown = json.loads(Repository.open(path).inspect_snapshot(snapshot.id))
        expected = json.loads(theirs(path).inspect_snapshot(snapshot.id))
        for document in (shown, expected):
            document["manifests"].sort(key=lambda manifest: manifest["id"])
        assert shown == expected


@pytest.mark.parametrize("microsecond", [0, 5000, 120_000, 7])
def test_the_time_of_a_snapshot_is_shown_as_icechunk_shows_it(tmp_path: Path, microsecond: int) -> None:
    repository = Repository.create(tmp_path, clock=lambda: datetime(2026, 1, 1, 12, 30, 0, microsecond, tzinfo=UTC))
    snapshot_id = repository.lookup_branch("main")
    shown = json.loads(repository.inspect_snapshot(snapshot_id))
    assert shown["flushed_at"] == json.loads(theirs(tmp_path).inspect_snapshot(snapshot_id))["flushed_at"]


def test_a_snapshot_is_shown_on_one_line(path: Path) -> None:
    repository = Repository.open(path)
    assert "\n" not in repository.inspect_snapshot(repository.lookup_branch("main"), pretty=False)


def test_the_bytes_of_chunks_are_those_that_icechunk_counts(path: Path) -> None:
    ours, expected = Repository.open(path).chunk_storage_stats(), theirs(path).chunk_storage_stats()
    counted = (ours.native_bytes, ours.virtual_bytes, ours.inlined_bytes, ours.non_virtual_bytes, ours.total_bytes)
    assert counted == (
        expected.native_bytes,
        expected.virtual_bytes,
        expected.inlined_bytes,
        expected.non_virtual_bytes(),  # type: ignore[operator]
        expected.total_bytes(),  # type: ignore[operator]
    )


def test_each_range_of_bytes_counts_once(path: Path) -> None:
    stats = Repository.open(path).chunk_storage_stats()
    assert (stats.native_bytes, stats.virtual_bytes, stats.inlined_bytes) == (320, 20, 16)


@pytest.mark.parametrize("array", ["g/small", "/g/large", "away"])
def test_the_chunks_of_an_array_are_those_that_icechunk_lists(path: Path, array: str) -> None:
    async def coordinates(session: Any) -> list[tuple[int, ...]]:
        return [index async for index in session.chunk_coordinates("/" + array.strip("/"), batch_size=2)]

    expected = asyncio.run(coordinates(theirs(path).readonly_session("main")))
    assert asyncio.run(coordinates(Repository.open(path).readonly_session("main"))) == sorted(expected)


@pytest.mark.parametrize(
    ("array", "index", "kind"),
    [
        ("g/small", (0, 0), ChunkType.INLINE),
        ("g/small", (2, 0), ChunkType.UNINITIALIZED),
        ("/g/large", (3,), ChunkType.NATIVE),
        ("away", [1], ChunkType.VIRTUAL),
    ],
)
def test_where_a_chunk_is(path: Path, array: str, index: tuple[int, ...], kind: ChunkType) -> None:
    assert Repository.open(path).readonly_session("main").chunk_type(array, index) is kind
    assert str(theirs(path).readonly_session("main").chunk_type("/" + array.strip("/"), list(index))).endswith(
        kind.name
    )


def test_chunks_of_no_array_are_an_error(path: Path) -> None:
    with pytest.raises(NodeNotFound):
        Repository.open(path).readonly_session("main").chunk_type("g", (0,))


def test_a_flushed_snapshot_is_on_no_branch(path: Path) -> None:
    repository = Repository.open(path)
    tip = repository.lookup_branch("main")
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="g/small")[4:] = 7
    flushed = session.flush("aside", {"kept": True})
    assert repository.lookup_branch("main") == tip
    assert session.read_only
    assert session.branch is None
    assert repository.lookup_snapshot(flushed).parent_id == tip
    assert repository.lookup_snapshot(flushed).metadata == {"kept": True}
    stored = zarr.open_array(theirs(path).readonly_session(snapshot_id=flushed).store, path="g/small", mode="r")
    assert np.asarray(stored[4:]).tolist() == [[7, 7], [7, 7]]


def test_a_branch_is_moved_to_a_flushed_snapshot(path: Path) -> None:
    repository = Repository.open(path)
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="g/small")[4:] = 7
    repository.reset_branch("main", session.flush("aside"))
    assert [snapshot.message for snapshot in theirs(path).ancestry(branch="main")][:2] == ["aside", "second"]


def test_nothing_is_flushed_of_an_untouched_session_nor_of_a_fork(path: Path) -> None:
    session = Repository.open(path).writable_session("main")
    with pytest.raises(NoChangesToCommit):
        session.flush("nothing")
    with pytest.raises(TypeError):
        session.fork().flush("a part")
    with pytest.raises(IcechunkError, match="forked"):
        session.flush("not merged")


def test_a_repository_is_opened_again_with_other_values(path: Path) -> None:
    repository = Repository.open(path)
    other = repository.reopen(RepositoryConfig(inline_chunk_threshold_bytes=0))
    assert other.config.inline_threshold == 0
    assert repository.config.inline_threshold == 16
    assert other.config.virtual_chunk_containers == repository.config.virtual_chunk_containers


def test_a_repository_is_not_opened_again_with_values_that_are_not_valid(path: Path) -> None:
    with pytest.raises(InvalidConfig, match="inline_chunk_threshold_bytes"):
        Repository.open(path).reopen(RepositoryConfig(inline_chunk_threshold_bytes=-1))


def test_a_repository_that_is_opened_again_compresses_as_it_is_told(path: Path) -> None:
    repository = Repository.open(path)
    other = repository.reopen(RepositoryConfig(compression=CompressionConfig(level=19)))
    assert (repository.assets.compression_level, other.assets.compression_level) == (3, 19)


def test_configurations_are_merged_as_icechunk_does_it() -> None:
    ours = RepositoryConfig(
        inline_chunk_threshold_bytes=9,
        compression=CompressionConfig(level=3),
        manifest=ManifestConfig(preload=ManifestPreloadConfig(max_total_refs=5)),
    ).merge(
        RepositoryConfig(
            compression=CompressionConfig(algorithm="zstd"),
            manifest=ManifestConfig(splitting=ManifestSplittingConfig()),
        )
    )
    assert (ours.inline_chunk_threshold_bytes, ours.compression) == (9, CompressionConfig(algorithm="zstd", level=3))
    assert ours.manifest == ManifestConfig(
        preload=ManifestPreloadConfig(max_total_refs=5), splitting=ManifestSplittingConfig()
    )


def test_a_store_is_cleared(path: Path) -> None:
    session = Repository.open(path).writable_session("main")
    session.store.sync_clear()
    assert list(session.node_paths()) == []


def test_a_repository_is_used_by_awaited_methods_alone() -> None:
    async def use() -> tuple[list[str], set[str]]:
        storage = in_memory_storage()
        repository = await Repository.create_async(storage)
        session = await repository.writable_session_async("main")
        await session.store.set("zarr.json", _buffer(b'{"zarr_format": 3, "node_type": "group"}'))
        snapshot = await session.commit_async("first")
        await repository.create_tag_async("v1", snapshot)
        await repository.create_branch_async("dev", snapshot)
        opened = await Repository.open_async(storage)
        return [entry.message async for entry in opened.async_ancestry(tag="v1")], await opened.list_branches_async()

    assert asyncio.run(use()) == (["first", "Repository initialized"], {"main", "dev"})


def _buffer(data: bytes) -> Any:
    return zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(data)


def test_a_fork_is_not_committed_by_an_awaited_method_either(path: Path) -> None:
    fork = Repository.open(path).writable_session("main").fork()
    with pytest.raises(TypeError, match="cannot be committed"):
        asyncio.run(fork.commit_async("a part"))


_ELSEWHERE = {"allow_pickling"}
"""What icechunk has for its own way of pickling."""


@pytest.mark.parametrize(
    ("ours", "other"),
    [
        (Repository, icechunk.Repository),
        (Session, icechunk.Session),
        (ForkSession, icechunk.ForkSession),
        (IcechunkStore, icechunk.IcechunkStore),
        (RepositoryConfig, icechunk.RepositoryConfig),
    ],
)
def test_every_public_name_of_icechunk_is_there(ours: type, other: type) -> None:
    names = {name for name, _ in inspect.getmembers(other) if not name.startswith("_")}
    assert {name for name in names if not hasattr(ours, name)} <= _ELSEWHERE
