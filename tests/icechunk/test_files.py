"""Ids, headers and flatbuffers: what is written is read, and what is damaged is an error."""

from __future__ import annotations

import json

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from lake_core.icechunk.compressed_locations import LocationDecoder
from lake_core.icechunk.errors import DamagedObject, IcechunkError, InvalidIdentifier, UnsupportedSpecVersion
from lake_core.icechunk.file_header import HEADER_LENGTH, FileType, decode_file, encode_file
from lake_core.icechunk.flatbuffer import FlatbufferError
from lake_core.icechunk.flatbuffer_writer import FlatbufferWriter, table_layout
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
from lake_core.icechunk.transaction_log import MovedNode, TransactionLog, decode_transaction_log, encode_transaction_log
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
    manifest = decode_manifest(encode_manifest(ID, {NODE: references_from(dimensions, references)}), "manifests/X", ID)
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


def example_files(version: int = 1) -> list[bytes]:
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
    moved = (MovedNode("/b", "/a", NODE, True), MovedNode("/g", "/h", b"rootnode", False)) if version > 1 else ()
    chunks = {NODE: np.array([[0, 1], [1, 0]], np.uint32)}
    log = TransactionLog(new_arrays=frozenset({NODE}), updated_chunks=chunks, moved_nodes=moved)
    return [
        encode_manifest(ID, {NODE: references}, spec_version=version),
        encode_snapshot(Snapshot(ID, OTHER, 5, "message", {"k": [1, {"x": 2.5}]}, files, nodes), spec_version=version),
        encode_transaction_log(log, ID, spec_version=version),
    ]


def compressed_manifest() -> bytes:
    """Return a manifest with locations that are compressed by a dictionary of its own."""
    texts = [f"s3://bucket/a/long/prefix/of/all/part-{number}.bin".encode() for number in range(300)]
    dictionary = zstandard.train_dictionary(2048, texts)
    compressor = zstandard.ZstdCompressor(dict_data=dictionary)
    writer = FlatbufferWriter()
    root = writer.root(table_layout(24, (4, 16, 20)))
    writer.put(root + 4, ID)
    entries = writer.offsets(root + 16, 1)
    writer.blob(root + 20, dictionary.as_bytes())
    array = writer.table(table_layout(16, (4, 12)))
    writer.link(entries, array)
    writer.put(array + 4, NODE)
    refs = writer.offsets(array + 12, 40)
    for number in range(40):
        layout = table_layout(32, (4, 0, 8, 16, 0, 0, 0, 0, 24))
        ref = writer.table(layout)
        writer.link(refs + 4 * number, ref)
        writer.put(ref + 16, (8).to_bytes(8, "little"))
        writer.vector(ref + 4, np.array([number // 5, number % 5], "<u4"))
        writer.blob(ref + 24, compressor.compress(texts[number]))
    return encode_file(FileType.MANIFEST, writer.finish(), spec_version=2)


FILES = [*example_files(1), *example_files(2), compressed_manifest()]
VERSIONS = pytest.mark.parametrize("version", [1, 2])


def test_compressed_locations_are_read() -> None:
    stored = decode_manifest(compressed_manifest(), "manifests/X", ID).array(NODE)
    assert stored is not None
    one = stored.find((1, 2))
    columns = stored.references(2)
    assert one == columns.find((1, 2)) == VirtualChunk("s3://bucket/a/long/prefix/of/all/part-7.bin", 0, 8)
    assert len(columns.locations()) == len(stored.virtual_chunks().locations) == 40
    assert stored.inline_bytes() == 0
    again = decode_manifest(encode_manifest(ID, {NODE: columns}, spec_version=2), "manifests/X", ID).array(NODE)
    assert again is not None
    assert again.find((1, 2)) == one


def test_a_location_that_claims_to_be_giant_is_refused() -> None:
    frame = zstandard.ZstdCompressor().compress(bytes(2**26))
    with pytest.raises(FlatbufferError, match="claims"):
        LocationDecoder(None).decode(frame)
    with pytest.raises(FlatbufferError):
        LocationDecoder(None).decode(b"no frame")


@VERSIONS
def test_moves_and_metadata_are_read_as_they_were_written(version: int) -> None:
    files = example_files(version)
    log = decode_transaction_log(files[2], "transactions/X", ID)
    assert [move.to_path for move in log.moved_nodes] == (["/a", "/h"] if version > 1 else [])
    snapshot = decode_snapshot(files[1], "snapshots/X")
    assert snapshot.metadata == {"k": [1, {"x": 2.5}]}
    assert snapshot.manifest_files == {ID: ManifestFileInfo(ID, 100, 3)}
    assert snapshot.parent_id == (OTHER if version == 1 else None)


def read_all(number: int, data: bytes) -> None:
    if number in (0, 3, 6):
        manifest = decode_manifest(data, "manifests/X", ID)
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
    elif number in (1, 4):
        snapshot = decode_snapshot(data, "snapshots/X")
        dict(snapshot.nodes)
        dict(snapshot.metadata)
    else:
        decode_transaction_log(data, "transactions/X", ID)


@VERSIONS
def test_a_snapshot_is_read_as_it_was_written(version: int) -> None:
    snapshot = decode_snapshot(example_files(version)[1], "snapshots/X")
    assert encode_snapshot(snapshot, spec_version=version) == example_files(version)[1]
    assert isinstance(snapshot.nodes["/a"], ArrayNode)


@given(st.integers(0, 6), st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6))
@settings(deadline=None, max_examples=examples(400))
def test_a_damaged_flatbuffer_is_read_or_refused(number: int, changes: list[tuple[int, int]]) -> None:
    data = FILES[number]
    body = bytearray(zstandard.ZstdDecompressor().decompress(data[HEADER_LENGTH:]))
    for position, value in changes:
        body[position % len(body)] = value
    try:
        read_all(number, encode_file(FileType(data[37]), body, spec_version=data[36]))
    except IcechunkError:
        return


@given(st.integers(0, 6), st.integers(0, 10_000), st.integers(0, 255))
@settings(deadline=None, max_examples=examples(200))
def test_a_damaged_file_is_read_or_refused(number: int, position: int, value: int) -> None:
    data = bytearray(FILES[number])
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
