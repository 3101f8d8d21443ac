"""The parts of arrays in Spark that need no Spark: codecs, encodings, coordinates and pruning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, TransposeCodec, ZstdCodec
from zarr.core.buffer import default_buffer_prototype

from lake_core.expression import matching, parse_predicate
from lake_core.icechunk import Repository
from lake_core.spark import InvalidColumns, InvalidValues, UnsupportedArray, read_array
from lake_core.spark.arrays.array_variable import ArrayGroup
from lake_core.spark.arrays.cf_encoding import CFEncoding
from lake_core.spark.arrays.chunk_codec import ChunkCodec, chunk_codec
from lake_core.spark.arrays.chunk_pruning import prune
from lake_core.spark.arrays.coordinates import Coordinates, coordinate_index
from tests.examples import examples

CELLS = np.arange(24).reshape(2, 3, 4)


def stored(dtype: str, **options: Any) -> tuple[ChunkCodec, bytes, dict[str, Any]]:
    """Return the codec of an array of one chunk, that chunk as Zarr stored it, and Zarr's store."""
    values: dict[str, Any] = {}
    array = zarr.create_array(
        zarr.storage.MemoryStore(values), shape=(2, 3, 4), chunks=(2, 3, 4), dtype=dtype, **options
    )
    array[...] = CELLS.astype(dtype)
    chunk_shape = array.shards or array.chunks
    return chunk_codec(values["zarr.json"].to_bytes(), array.dtype, chunk_shape), values["c/0/0/0"].to_bytes(), values


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float32", "float64"])
@pytest.mark.parametrize(
    ("options", "plain"),
    [
        ({"compressors": None}, True),
        ({"compressors": [ZstdCodec(level=7)]}, True),
        ({"compressors": [GzipCodec(level=1)], "filters": [TransposeCodec(order=(2, 0, 1))]}, True),
        ({"compressors": None, "serializer": BytesCodec(endian="big")}, True),
        ({"compressors": [BloscCodec()]}, False),
        ({"compressors": [ZstdCodec(checksum=True)]}, False),
    ],
)
def test_chunks_are_decoded_and_encoded_as_by_zarr(dtype: str, options: dict[str, Any], plain: bool) -> None:
    codec, data, values = stored(dtype, **options)
    assert codec.needs_zarr is not plain
    np.testing.assert_array_equal(codec.decode(data), CELLS.astype(dtype))
    changed = CELLS.astype(dtype)[::-1]
    values["c/0/0/0"] = default_buffer_prototype().buffer.from_bytes(codec.encode(changed))
    np.testing.assert_array_equal(zarr.open_array(zarr.storage.MemoryStore(values))[...], changed)  # type: ignore[arg-type]


@pytest.mark.parametrize("compressor", [None, ZstdCodec(), GzipCodec()])
@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"\xff" + data, lambda data: b""])
def test_damaged_chunks_are_not_decoded(compressor: Any, damage: Any) -> None:
    codec, data, _ = stored("int32", compressors=compressor)
    with pytest.raises(ValueError, match=r"it is not compressed|bytes of cells instead of 96"):
        codec.decode(damage(data))


@pytest.mark.parametrize("options", [{"compressors": BloscCodec()}, {"shards": (2, 3, 4), "chunks": (1, 3, 4)}])
def test_a_chunk_of_the_fill_value_is_encoded_like_any_other(options: dict[str, Any]) -> None:
    values: dict[str, Any] = {}
    chosen = {"chunks": (2, 3, 4), **options}
    array = zarr.create_array(zarr.storage.MemoryStore(values), shape=(2, 3, 4), dtype="i4", fill_value=0, **chosen)
    codec = chunk_codec(values["zarr.json"].to_bytes(), array.dtype, (2, 3, 4))
    zeros = np.zeros((2, 3, 4), "i4")
    assert codec.decode(codec.encode(zeros)).tolist() == zeros.tolist()


def test_values_that_would_be_read_back_otherwise_are_refused() -> None:
    packed = CFEncoding("/a", np.dtype("i2"), np.dtype("f8"), (np.int16(-1),), 0.5)
    assert packed.encode(pa.array([1.5, None, float("nan")])).tolist() == [3, -1, -1]
    single = CFEncoding("/a", np.dtype("f4"), np.dtype("f4"))
    for encoding, value, message in (
        (packed, -0.5, "a value would be stored as -1"),
        (packed, float("inf"), "does not fit /a, whose cells are int16"),
        (single, 1e300, "does not fit /a, whose cells are float32"),
        (CFEncoding("/a", np.dtype("i8"), np.dtype("f8"), (), 1.0), 2.0**63, "does not fit"),
        (CFEncoding("/a", np.dtype("u8"), np.dtype("u8")), -1, "does not fit"),
    ):
        with pytest.raises(InvalidValues, match=message):
            encoding.encode(pa.array([value]))


def test_whole_numbers_are_stored_as_they_are_beside_missing_ones() -> None:
    large = 2**53 + 1
    encoding = CFEncoding("/a", np.dtype("i8"), np.dtype("f8"), (np.int64(-1),))
    assert encoding.encode(pa.array([large, None, 0])).tolist() == [large, -1, 0]
    with pytest.raises(InvalidValues, match="a value would be stored as -1"):
        encoding.encode(pa.array([large, -1]))


@pytest.mark.parametrize("attributes", [{"_FillValue": 999}, {"scale_factor": "a"}, {"add_offset": [1]}])
def test_attributes_without_a_meaning_for_the_cells_are_refused(tmp_path: Path, attributes: dict[str, Any]) -> None:
    session = Repository.create(tmp_path).writable_session("main")
    group = zarr.open_group(session.store, mode="a")
    group.create_array("v", shape=(4,), chunks=(2,), dtype="i1", dimension_names=["x"], attributes=attributes)
    with pytest.raises(UnsupportedArray, match=r"/v: .* are numbers, and that the last two fit its cells"):
        ArrayGroup(session, "").variable("v")


def test_arrays_whose_names_differ_in_case_alone_are_not_read_together(tmp_path: Path) -> None:
    session = Repository.create(tmp_path).writable_session("main")
    group = zarr.open_group(session.store, mode="a")
    for name in ("v", "V"):
        group.create_array(name, shape=(4,), chunks=(2,), dtype="i1", dimension_names=["x"])
    with pytest.raises(UnsupportedArray, match="/v: its name differs from 'V' only in case"):
        read_array(None, session, variables=["v", "V"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "wanted", "positions"),
    [
        (pa.array([5, 3, 9], pa.int32()), pa.array([9, 4, 3, None, 2**40], pa.int64()), [2, -1, 1, -1, -1]),
        (pa.array(np.float32([0.1, -0.0, 7])), pa.array([0.1, 0.0, 0.2, None, float("nan")]), [0, 1, -1, -1, -1]),
        (pa.array([2.0**53, 2.0**54]), pa.array([2**53, 2**53 + 1, None, 2**54]), [0, -1, -1, 1]),
        (pa.array(["b", "a"]), pa.array(["a", "c", None, "b"]), [1, -1, -1, 0]),
        (pa.array([True, False]), pa.array([False, None, True]), [1, -1, 0]),
        (pa.array([], pa.int64()), pa.array([1]), [-1]),
        (pa.array([], pa.string()), pa.array(["a"]), [-1]),
    ],
)
def test_coordinates_are_found_by_their_values(values: pa.Array, wanted: pa.Array, positions: list[int]) -> None:
    assert coordinate_index(Coordinates("x", values), wanted.type).positions(wanted).tolist() == positions


def test_columns_of_other_types_are_no_coordinates() -> None:
    with pytest.raises(
        InvalidColumns,
        match="'x' is of the type double, but the coordinates of the array along that dimension are int64",
    ):
        coordinate_index(Coordinates("x", pa.array([1])), pa.float64())


_LEAVES = st.sampled_from(
    ["x > 4", "x IN (1, 8)", "x % 3 = 1", "10 / (x - 9) > -3", "y = 'b'", "y >= 'c'", "NOT (y = 'a')", "v > 0", "x = v"]
)
_PREDICATES = st.recursive(
    _LEAVES,
    lambda parts: st.tuples(parts, st.sampled_from(["AND", "OR"]), parts).map(lambda three: f"({' '.join(three)})"),
    max_leaves=5,
)


@settings(max_examples=examples(40))
@given(_PREDICATES)
def test_no_row_is_pruned_that_a_predicate_keeps(where: str) -> None:
    coordinates = (Coordinates("x", pa.array([1, 2, 3, 4, 5, 6, 8])), Coordinates("y", pa.array(["d", "a", "b", "c"])))
    cells = [(x, y) for x in range(7) for y in range(4)]
    rows = pa.table(
        {
            "x": [coordinates[0].values[x].as_py() for x, _ in cells],
            "y": [coordinates[1].values[y].as_py() for _, y in cells],
            "v": [float(x - y) for x, y in cells],
            "cell": [*range(28)],
        }
    )
    predicate = parse_predicate(where, rows.schema)
    kept = {cells[cell] for cell in matching(rows, predicate)["cell"].to_pylist()}
    pruning = prune(predicate, coordinates, (2, 3))
    boxes = {(number // 2, number % 2) for number in pruning.boxes.tolist()}
    for x, y in kept:
        assert (x // 2, y // 3) in boxes
        assert pruning.positions[0][x]
        assert pruning.positions[1][y]
