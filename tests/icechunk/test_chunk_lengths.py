"""Lengths of chunks come from each array's `zarr.json`: snapshots of icechunk 2 hold others."""

from __future__ import annotations

import json
import struct
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pyarrow as pa
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from lake_core.icechunk import AppendSolver, Repository, Session
from lake_core.icechunk.errors import DamagedObject, InvalidArrayMetadata
from lake_core.icechunk.file_header import FileType, decode_file
from lake_core.icechunk.layout_v1 import LayoutV1
from lake_core.icechunk.refs import RefKind
from lake_core.icechunk.snapshot import ArrayNode
from lake_core.icechunk.snapshot_file import encode_snapshot
from lake_core.spark.arrays.array_variable import ArrayGroup
from lake_core.spark.arrays.chunk_writer import ChunkWriter
from lake_core.store import MemoryStore

_BY_ICECHUNK_2 = Path(__file__).parent / "icechunk-2.3.0.zip"
"""A repository of version 1 by icechunk 2.3.0: /a has 10 cells in chunks of 6, and its snapshot holds chunks of 5."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    zipfile.ZipFile(_BY_ICECHUNK_2).extractall(tmp_path / "r")
    return tmp_path / "r"


def icechunk_values(root: Path, name: str) -> list[int]:
    session = icechunk.Repository.open(icechunk.local_filesystem_storage(str(root))).readonly_session("main")
    return list(zarr.open_array(session.store, path=name, mode="r")[...].tolist())  # type: ignore[union-attr]


def as_icechunk_2_stores_it(node: ArrayNode) -> ArrayNode:
    """Return a node with the lengths of chunks that icechunk 2 computes."""
    lengths = zip(node.shape, node.grid, strict=True)
    return replace(node, chunk_shape=tuple(-(-length // count) if count else 0 for length, count in lengths))


def rewrite_tip(repository: Repository) -> None:
    """Rewrite the snapshot of branch main as icechunk 2 writes it."""
    store = repository.writable_session("main").assets.store
    snapshot = repository.readonly_session("main").snapshot
    nodes = {
        path: as_icechunk_2_stores_it(node) if isinstance(node, ArrayNode) else node
        for path, node in snapshot.nodes.items()
    }
    key = f"snapshots/{repository.lookup_branch('main')}"
    store.delete([key])
    store.put(key, encode_snapshot(replace(snapshot, nodes=nodes)))


def test_a_snapshot_of_icechunk_2_is_read_with_the_lengths_of_zarr_json(root: Path) -> None:
    session = Repository.open(root).readonly_session("main")
    assert session.array("/a").chunk_shape == (6,)
    stored = ArrayGroup(session, "").variable("a").stored(session)
    assert stored.read_box(((0, 10),)).tolist() == list(range(10))


def test_later_snapshots_hold_the_right_lengths(root: Path) -> None:
    repository = Repository.open(root)
    session = repository.writable_session("main")
    zarr.open_group(session.store).attrs["changed"] = True
    snapshot_id = session.commit("attributes")
    body = decode_file((root / "snapshots" / snapshot_id).read_bytes(), FileType.SNAPSHOT, "")
    assert struct.pack("<QQ", 10, 6) in body
    assert struct.pack("<QQ", 10, 5) not in body


def test_chunks_that_spark_writes_are_whole(root: Path) -> None:
    repository = Repository.open(root)
    session = repository.writable_session("main")
    array = ArrayGroup(session, "").variable("a")
    writer = ChunkWriter(array.stored(session), inline_threshold=512)
    cells = np.array([70, 90], array.encoding.stored)
    located = pa.record_batch(
        {
            "chunk": pa.array([1], pa.int64()),
            "positions": [np.array([1, 3], np.int64).tobytes()],
            "cells": [cells.tobytes()],
            "unknown": [0],
            "error": pa.nulls(1, pa.string()),
        }
    )
    written = next(writer.write(iter([located]))).to_pylist()[0]
    assert written["error"] is None
    session.write_chunk("/a", (1,), written["data"])
    session.commit("by Spark's writer")
    expected = [0, 1, 2, 3, 4, 5, 6, 70, 8, 90]
    assert zarr.open_array(Repository.open(root).readonly_session("main").store, path="a")[:].tolist() == expected  # type: ignore[union-attr,index]
    assert icechunk_values(root, "a") == expected


def test_icechunk_reads_what_is_resized_after_icechunk_2(root: Path) -> None:
    session = Repository.open(root).writable_session("main")
    array = zarr.open_array(session.store, path="a")
    array.resize((15,))
    array[10:] = np.arange(10, 15)
    session.commit("longer")
    assert icechunk_values(root, "a") == list(range(15))


def append(session: Session, values: list[int]) -> None:
    array = zarr.open_array(session.store, path="t")
    start = array.shape[0]
    array.resize((start + len(values),))
    array[start:] = values


def test_appends_are_moved_by_the_chunks_of_zarr_json() -> None:
    repository = Repository.create(MemoryStore())
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="t", shape=(12,), chunks=(12,), dtype="i4", dimension_names=["t"])[:] = 1
    session.commit("create")
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="t").resize((0,))
    session.commit("empty: a snapshot of icechunk 2 then holds chunks of no length")
    rewrite_tip(repository)
    repository = Repository.open(repository.writable_session("main").assets.store)
    first, second = repository.writable_session("main"), repository.writable_session("main")
    append(first, [2] * 12)
    append(second, [3] * 12)
    first.commit("first")
    rewrite_tip(repository)
    second.commit("second", rebase_with=AppendSolver("t"))
    values = zarr.open_array(repository.readonly_session("main").store, path="t")[:]
    assert values.tolist() == [2] * 12 + [3] * 12  # type: ignore[union-attr]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 15), st.integers(1, 3)), max_size=3))
def test_the_lengths_are_zarrs_whatever_a_snapshot_holds(axes: list[tuple[int, int, int]]) -> None:
    repository = Repository.create(MemoryStore())
    session = repository.writable_session("main")
    options: dict[str, Any] = {"shape": tuple(length for length, _, _ in axes), "dtype": "i2", "compressors": None}
    inner = tuple(chunk for _, chunk, _ in axes)
    outer = tuple(chunk * count for _, chunk, count in axes)
    zarr.create_array(session.store, name="plain", chunks=inner, **options)
    zarr.create_array(session.store, name="sharded", chunks=inner, shards=outer, **options)
    session.commit("arrays")
    rewrite_tip(repository)
    session = Repository.open(session.assets.store).readonly_session("main")
    assert session.array("/plain").chunk_shape == inner
    assert session.array("/sharded").chunk_shape == outer


def test_an_array_whose_zarr_json_is_none_names_its_path() -> None:
    repository = Repository.create(MemoryStore())
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(4,), chunks=(2,), dtype="i4")
    session.commit("array")
    store = session.assets.store
    tip = LayoutV1(store).lookup(RefKind.BRANCH, "main").snapshot_id
    snapshot = session.assets.snapshot(tip)
    node = snapshot.nodes["/a"]
    grid = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [[1, 3]]}}
    for document in (b"{", json.dumps({**json.loads(node.user_data), "chunk_grid": grid}).encode()):
        broken = replace(snapshot, nodes={**snapshot.nodes, "/a": replace(node, user_data=document)})
        key = f"snapshots/{repository.lookup_branch('main')}"
        store.delete([key])
        store.put(key, encode_snapshot(broken))
        opened = Repository.open(store).readonly_session("main")
        with pytest.raises(DamagedObject, match="/a"):
            opened.array("/a")


def test_the_chunks_of_an_array_keep_their_shape() -> None:
    session = Repository.create(MemoryStore()).writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(4,), chunks=(2,), dtype="i4")
    document = json.loads(session.array("/a").user_data)
    document["chunk_grid"]["configuration"]["chunk_shape"] = [4]
    array[:] = 1
    with pytest.raises(InvalidArrayMetadata, match=r"chunks of the shape \(2,\)"):
        session.set_metadata("/a", json.dumps(document).encode())
    assert array[:].tolist() == [1] * 4  # type: ignore[union-attr]
    session.delete_node("/a")
    session.set_metadata("/a", json.dumps(document).encode())
    assert session.array("/a").chunk_shape == (4,)
