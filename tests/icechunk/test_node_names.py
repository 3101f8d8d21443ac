"""Nodes may have any name of Zarr, and are stored and read as icechunk does it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import icechunk
import pytest
import zarr
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from zarr.core.buffer import cpu

from lake_core.icechunk import Repository
from lake_core.icechunk.errors import InvalidStoreKey
from lake_core.store import MemoryStore

GROUP = b'{"zarr_format":3,"node_type":"group"}'
# Zarr reads a backslash as a slash.
names = st.text(st.characters(blacklist_characters="/\\", blacklist_categories=("Cs",)), min_size=1, max_size=8)


def write(repository: Any, path: str) -> None:
    session = repository.writable_session("main")
    zarr.create_array(session.store, name=path, shape=(3,), chunks=(1,), dtype="i4")[:] = [1, 2, 3]
    zarr.create_array(session.store, name=f"{path} single", shape=(), dtype="i4")[...] = 7
    session.commit("array")


def read(repository: Any, path: str) -> tuple[Any, Any, list[str]]:
    store = repository.readonly_session("main").store

    async def keys() -> list[str]:
        return sorted([key async for key in store.list()])

    array, single = zarr.open_array(store, path=path, mode="r"), zarr.open_array(store, path=f"{path} single", mode="r")
    return array[:].tolist(), single[...].item(), asyncio.run(keys())  # type: ignore[union-attr]


@given(group=names, name=names, ours=st.booleans())
@example(group="line\nfeed", name="x", ours=False)
@example(group="\n", name="\n", ours=True)
@example(group="a\r\n", name="\x00\x0b\x0c\x1c\x85\u2028", ours=True)
@example(group="c", name="c", ours=True)
@example(group="a\\b", name="c", ours=False)
@example(group="zarr.json", name="0\n", ours=False)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_both_read_the_nodes_of_either(
    tmp_path_factory: pytest.TempPathFactory, group: str, name: str, ours: bool
) -> None:
    path = f"{group}/{name}"
    if {".", ".."} & {group, name} or any(part != part.strip() and not part.strip() for part in (group, name)):
        # Zarr's own paths have no such parts.
        return
    root = tmp_path_factory.mktemp("names") / "r"
    storage = icechunk.local_filesystem_storage(str(root))
    write(Repository.create(root) if ours else icechunk.Repository.create(storage), path)
    expected = read(icechunk.Repository.open(storage), path)
    assert expected[:2] == ([1, 2, 3], 7)
    assert read(Repository.open(root), path) == expected


@pytest.mark.parametrize("path", [".", "..", "a/../b", "a/./b", "a//b", "a/", "/a/b/", "\ud800", "x/\udfff"])
@pytest.mark.parametrize("document", [GROUP])
def test_a_name_whose_chunks_could_not_be_stored_is_refused_before_there_is_a_node(path: str, document: bytes) -> None:
    session = Repository.create(MemoryStore()).writable_session("main")
    with pytest.raises(InvalidStoreKey):
        asyncio.run(session.store.set(f"{path}/zarr.json", cpu.Buffer.from_bytes(document)))
    assert not session.has_uncommitted_changes


def test_chunks_of_an_array_with_a_line_feed_are_deleted(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "r")
    write(repository, "a\nb/x")
    session = repository.writable_session("main")
    asyncio.run(session.store.delete("a\nb/x/c/1"))
    asyncio.run(session.store.delete_dir("a\nb/x single/c"))
    session.commit("deleted")
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path / "r")))
    assert read(theirs, "a\nb/x")[:2] == ([1, 0, 3], 0)
