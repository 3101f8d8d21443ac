"""Ids, headers and flatbuffers: what is written is read, and what is damaged is an error."""

from __future__ import annotations

import json

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from lake_core.icechunk.errors import DamagedObject, IcechunkError, InvalidIdentifier, UnsupportedSpecVersion
from lake_core.icechunk.file_header import HEADER_LENGTH, FileType, decode_file, encode_file
from lake_core.icechunk.identifier import INITIAL_SNAPSHOT, decode_id, encode_id
from lake_core.icechunk.manifest import (
    ChunkReference,
    InlineChunk,
    NativeChunk,
    VirtualChunk,
    concatenated,
    references_from,
)
from lake_core.icechunk.manifest_file import decode_manifest, encode_manifest
from lake_core.icechunk.snapshot import ArrayNode, GroupNode, ManifestFileInfo, ManifestRef, Snapshot
from lake_core.icechunk.snapshot_file import decode_snapshot, encode_snapshot
from lake_core.icechunk.transaction_log import TransactionLog, decode_transaction_log, encode_transaction_log
from tests.examples import examples

ID, OTHER = bytes(range(12)), bytes(range(12, 24))
NODE = b"node-id!"

positive = st.integers(0, 2**63 - 1)
references_of_kinds = st.one_of(
    st.builds(NativeChunk, st.binary(min_size=12, max_size=12), positive, positive),
    st.builds(InlineChunk, st.binary(max_size=40)),
    st.builds(
        VirtualChunk,
        st.text(min_size=1, max_size=20),
        positive,
        positive,
        st.none() | st.text(max_size=9),
        st.integers(0, 2**32 - 1),
    ),
)


def indexes(dimensions: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*[st.integers(0, 2**32 - 2)] * dimensions)


arrays = st.integers(0, 3).flatmap(
    lambda dimensions: st.tuples(
        st.just(dimensions), st.dictionaries(indexes(dimensions), references_of_kinds, max_size=20)
    )
)


@given(st.binary(min_size=12, max_size=12))
def test_ids_are_text_in_either_case(identifier: bytes) -> None:
    assert decode_id(encode_id(identifier)) == decode_id(encode_id(identifier).lower()) == identifier


def test_the_id_of_the_initial_snapshot() -> None:
    assert encode_id(INITIAL_SNAPSHOT) == "1CECHNKREP0F1RSTCMT0"


@pytest.mark.parametrize("text", ["", "1CECHNKREP0F1RSTCMT", "1CECHNKREP0F1RSTCMTU", "1CECHNKREP0F1RSTCMT00"])
def test_texts_that_are_no_ids(text: str) -> None:
    with pytest.raises(InvalidIdentifier):
        decode_id(text)


@given(arrays)
@settings(deadline=None)
def test_references_are_read_as_they_were_written(array: tuple[int, dict[tuple[int, ...], ChunkReference]]) -> None:
    dimensions, references = array
    manifest = decode_manifest(encode_manifest(ID, {NODE: references_from(dimensions, references)}), "manifests/X")
    stored = manifest.array(NODE)
    assert stored is not None
    assert {index: stored.find(index) for index in references} == references
    columns = stored.references(dimensions)
    assert {tuple(index): columns[number] for number, index in enumerate(columns.index.T.tolist())} == references
    assert stored.find((2**32 - 1,) * dimensions) is None or dimensions == 0


@given(st.data())
@settings(deadline=None)
def test_later_references_replace_earlier_ones(data: st.DataObject) -> None:
    parts = data.draw(st.lists(st.dictionaries(indexes(2), references_of_kinds, max_size=8), min_size=1, max_size=3))
    whole = concatenated([references_from(2, part) for part in parts])
    expected = {index: reference for part in parts for index, reference in part.items()}
    assert {tuple(index): whole[number] for number, index in enumerate(whole.index.T.tolist())} == expected
    assert whole.index.T.tolist() == sorted(map(list, expected))


def example_files() -> list[bytes]:
    references = references_from(
        2, {(0, 1): NativeChunk(ID, 1, 2), (1, 0): InlineChunk(b"xyz"), (1, 1): VirtualChunk("s3://b/k", 3, 4, "e", 5)}
    )
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [4, 4],
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 2]}},
        "dimension_names": ["x", None],
    }
    array = ArrayNode(
        NODE, "/a", json.dumps(document).encode(), (4, 4), (2, 2), ("x", None), (ManifestRef(ID, ((0, 2), (0, 2))),)
    )
    nodes = {"/": GroupNode(b"rootnode", "/", b"{}"), "/a": array}
    files = {ID: ManifestFileInfo(ID, 100, 3)}
    log = TransactionLog(new_arrays=frozenset({NODE}), updated_chunks={NODE: np.array([[0, 1], [1, 0]], np.uint32)})
    return [
        encode_manifest(ID, {NODE: references}),
        encode_snapshot(Snapshot(ID, OTHER, 5, "message", {"k": [1]}, files, nodes)),
        encode_transaction_log(log, ID),
    ]


def read_all(number: int, data: bytes) -> None:
    if number == 0:
        manifest = decode_manifest(data, "manifests/X")
        for array in manifest.arrays():
            array.find((1, 1))
            array.native_chunks()
            array.virtual_chunks()
            array.inline_bytes()
            columns = array.references(2)
            for position in range(min(len(columns), 10)):
                try:
                    columns[position]
                except UnicodeDecodeError:
                    raise DamagedObject("manifests/X", "a text") from None
    elif number == 1:
        dict(decode_snapshot(data, "snapshots/X").nodes)
    else:
        decode_transaction_log(data, "transactions/X")


def test_a_snapshot_is_read_as_it_was_written() -> None:
    snapshot = decode_snapshot(example_files()[1], "snapshots/X")
    assert encode_snapshot(snapshot) == example_files()[1]
    assert isinstance(snapshot.nodes["/a"], ArrayNode)


@given(st.integers(0, 2), st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6))
@settings(deadline=None, max_examples=examples(400))
def test_a_damaged_flatbuffer_is_read_or_refused(number: int, changes: list[tuple[int, int]]) -> None:
    data = example_files()[number]
    body = bytearray(zstandard.ZstdDecompressor().decompress(data[HEADER_LENGTH:]))
    for position, value in changes:
        body[position % len(body)] = value
    try:
        read_all(number, encode_file(FileType(data[37]), body))
    except IcechunkError:
        return


@given(st.integers(0, 2), st.integers(0, 10_000), st.integers(0, 255))
@settings(deadline=None, max_examples=examples(200))
def test_a_damaged_file_is_read_or_refused(number: int, position: int, value: int) -> None:
    data = bytearray(example_files()[number])
    data[position % len(data)] = value
    try:
        read_all(number, bytes(data))
    except IcechunkError:
        return


@pytest.mark.parametrize("length", [0, 5, 38, 39, 60])
def test_a_file_that_ends_early_is_refused(length: int) -> None:
    with pytest.raises(DamagedObject):
        decode_snapshot(example_files()[1][:length], "snapshots/X")


def test_another_version_of_the_specification_is_refused_by_name() -> None:
    data = bytearray(example_files()[1])
    data[36] = 3
    with pytest.raises(UnsupportedSpecVersion, match="snapshots/X"):
        decode_snapshot(bytes(data), "snapshots/X")


def test_a_small_file_that_expands_beyond_measure_is_refused() -> None:
    bomb = example_files()[0][:HEADER_LENGTH] + zstandard.ZstdCompressor(19).compress(bytes(2**28))
    with pytest.raises(DamagedObject, match="claims to hold"):
        decode_file(bomb, FileType.MANIFEST, "manifests/X")
