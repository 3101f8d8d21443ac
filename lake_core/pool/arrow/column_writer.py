"""Turns an Arrow array into the tagged bodies of its values.

The bytes are those of values that are encoded one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.pool import types
from lake_core.pool.arrow.arrays import Mask, binaries, booleans, integers, numbers_of, true, valid
from lake_core.pool.arrow.arrow_type import NULL_CHILD, arrow_type, is_list
from lake_core.pool.arrow.bodies import Positions, validity
from lake_core.pool.errors import InvalidType, InvalidValue, InvalidZson
from lake_core.pool.primitive import ENCODERS, encode_int
from lake_core.pool.type_value import encode_type
from lake_core.pool.types import (
    FLOATS,
    SIGNED,
    UNSIGNED,
    ArrayType,
    EnumType,
    ErrorType,
    MapType,
    NamedType,
    PrimitiveType,
    RecordType,
    SetType,
    Type,
    UnionType,
)
from lake_core.pool.zng.tag import tagged
from lake_core.pool.zson.primitive_text import parse_ip, parse_net
from lake_core.pool.zson.reader import parse_type
from lake_core.pool.zson.type_text import format_type

if TYPE_CHECKING:
    from collections.abc import Callable

_BOUNDS: Final = np.array([1 << 8 * size for size in range(8)], np.uint64)
"""The smallest numbers that take one byte, two bytes, and so on up to eight."""
_BLOCK_BYTES: Final = 1 << 20
"""How many bytes are brought into the order of their rows at once, about: few enough for a processor's cache."""
_BLOCK_ELEMENTS: Final = 1 << 20
"""How many parts of rows are brought into that order at once, at most."""
_TOO_LARGE: Final = "the values of one column take more than 2 GiB; write fewer rows at a time"


def write_column(type: Type, array: pa.Array) -> pa.Array:
    """Return the tagged bodies of the values of an array, as a binary array without nulls.

    Args:
        type: The values' type. The array has its Arrow type, or one that casts to it without loss.
        array: The values.

    Raises:
        InvalidValue: A value cannot be stored as the type.
    """
    arrays = _parts(type, array).arrays
    return arrays[0] if len(arrays) == 1 else _joined(*arrays)


class _Parts(NamedTuple):
    """The tagged bodies of values, in parts: so the bytes of nested records are copied once.

    Attributes:
        arrays: Binary arrays that, concatenated row by row, are the tagged bodies. A null adds no bytes.
        sizes: How many bytes they add to each row.
    """

    arrays: list[pa.Array]
    sizes: Positions


def _parts(type: Type, array: pa.Array) -> _Parts:
    """Return the tagged bodies of the values of an array. The fields of a record stay apart."""
    match type:
        case NamedType(_, inner) | ErrorType(inner):
            return _parts(inner, array)
        case types.BYTES:
            return _tagged_parts(_cast(type, array))
        case types.STRING:
            return _tagged_parts(_cast(type, array).cast(pa.binary()))
        case PrimitiveType():
            return _whole(_PRIMITIVE[type](type, array))
        case RecordType():
            return _record(type, array)
        case ArrayType() | SetType() | MapType():
            return _whole(_container(type, array))
        case UnionType():
            return _whole(_union(type, array))
        case EnumType():
            return _whole(_enum(type, array))
    raise AssertionError(f"unexpected type {type!r}")


def _whole(tagged_bodies: pa.Array) -> _Parts:
    return _Parts([tagged_bodies], _lengths(tagged_bodies))


def offsets_of(array: pa.Array) -> Positions:
    """Return where the elements of a binary array begin in its data, and where the last one ends."""
    return _offsets(array).astype(np.int64)


def _offsets(array: pa.Array) -> npt.NDArray[np.int32]:
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)


def _binary(offsets: npt.NDArray[Any], data: Any, valid: Mask | None = None) -> pa.Array:
    """Return a binary array. Raises InvalidValue beyond 2 GiB."""
    if int(offsets[-1]) > np.iinfo(np.int32).max:
        raise InvalidValue(_TOO_LARGE)
    bitmap = None if valid is None else validity(valid)
    positions = pa.py_buffer(np.ascontiguousarray(offsets, np.int32))
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [bitmap, positions, pa.py_buffer(data)])


def _joined(*columns: pa.Array) -> pa.Array:
    """Return the elements of binary arrays, concatenated row by row; a null adds no bytes.

    Raises InvalidValue beyond 2 GiB.
    """
    rows = len(columns[0])
    sizes = [int(offsets[-1]) - int(offsets[0]) for offsets in map(_offsets, columns)]
    size = sum(sizes)
    # Columns without bytes are left out, unless all are.
    columns = tuple(column for column, bytes_ in zip(columns, sizes, strict=True) if bytes_) or columns[:1]
    count = len(columns)
    if count == 1 and not columns[0].null_count:
        return columns[0]
    if size > np.iinfo(np.int32).max:
        raise InvalidValue(_TOO_LARGE)
    # The parts of a row are far apart in the columns. Those of few rows fit into the processor's cache together.
    most_rows = max(1, min(rows, _BLOCK_BYTES * rows // max(size, 1), _BLOCK_ELEMENTS // count))
    by_row = np.arange(most_rows * count, dtype=np.int32).reshape(count, most_rows).T.ravel()
    blocks = [_binary(np.zeros(1), b"")]
    for start in range(0, rows, most_rows):
        block_rows = min(most_rows, rows - start)
        if block_rows < most_rows:
            by_row = np.arange(block_rows * count, dtype=np.int32).reshape(count, block_rows).T.ravel()
        joined = pa.concat_arrays([column.slice(start, block_rows) for column in columns]).take(integers(by_row))
        blocks.append(_binary(_offsets(joined)[::count], joined.buffers()[2] or b""))
    return blocks[1] if len(blocks) == 2 else pa.concat_arrays(blocks)


def _uvarints(numbers: Positions) -> pa.Array:
    """Return numbers as variable-length integers."""
    count = len(numbers)
    if not count or int(numbers.max()) < 0x80:
        return _binary(np.arange(count + 1, dtype=np.int32), numbers.astype(np.uint8))
    width = (int(numbers.max()).bit_length() + 6) // 7
    shifts = 7 * np.arange(width)
    groups = numbers[:, None] >> shifts
    used = groups > 0
    used[:, 0] = True
    more = np.zeros_like(used)
    more[:, :-1] = used[:, 1:]
    encoded = (groups & 0x7F | np.where(more, 0x80, 0)).astype(np.uint8)
    return _binary(np.append(0, np.cumsum(used.sum(axis=1))), encoded[used])


def _lengths(array: pa.Array) -> Positions:
    """Return how many bytes each element of a binary array adds: none for null."""
    offsets = _offsets(array)
    lengths: Positions = np.subtract(offsets[1:], offsets[:-1], dtype=np.int64)
    return np.where(valid(array), lengths, 0) if array.null_count else lengths


def _tagged(bodies: pa.Array) -> pa.Array:
    """Return bodies with their tags in front of them; null stays null."""
    return _joined(*_tagged_parts(bodies).arrays)


def _tagged_parts(bodies: pa.Array) -> _Parts:
    """Return the tags of bodies, and the bodies."""
    lengths = _lengths(bodies)
    sizes = lengths + 1
    tags = _uvarints(np.where(valid(bodies), sizes, 0) if bodies.null_count else sizes)
    if int(_offsets(tags)[-1]) > len(tags):
        sizes = lengths + _lengths(tags)
    return _Parts([tags, bodies], sizes)


def _cast(type: Type, array: pa.Array) -> pa.Array:
    """Return an array, cast to the type's Arrow type. Raises InvalidValue if the cast loses something."""
    expected = arrow_type(type)
    if array.type == expected:
        return array
    try:
        if pa.types.is_dictionary(array.type):
            # Some value types, such as views, cannot be cast as a dictionary.
            return array.dictionary.cast(expected).take(array.indices)
        return array.cast(expected)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidValue(f"a column of type {array.type} cannot be stored as {format_type(type)}: {error}") from None


def _tagged_rows(sizes: npt.NDArray[Any], raw: npt.NDArray[np.uint8], valid: Mask) -> pa.Array:
    """Return tagged bodies of at most eight bytes, which are the first bytes of each row."""
    lengths = np.where(valid, sizes + 1, 1)
    if lengths.size and bool((lengths == lengths[0]).all()):
        length = int(lengths[0])
        matrix = np.empty((len(raw), length), np.uint8)
        matrix[:, 0] = np.where(valid, length, 0)
        matrix[:, 1:] = raw[:, : length - 1]
        return _binary(np.arange(0, len(raw) * length + 1, length), matrix)
    longest = int(lengths.max(initial=1))
    matrix = np.empty((len(raw), longest), np.uint8)
    matrix[:, 0] = np.where(valid, lengths, 0)
    matrix[:, 1:] = raw[:, : longest - 1]
    return _binary(np.append(0, np.cumsum(lengths)), matrix[np.arange(matrix.shape[1]) < lengths[:, None]])


def _integer_rows(numbers: npt.NDArray[np.uint64], valid: Mask) -> pa.Array:
    sizes = np.zeros(len(numbers), np.int64)
    for bound in _BOUNDS[: np.searchsorted(_BOUNDS, numbers.max(initial=0), side="right")]:
        # To compare all of them takes less time than a search for each.
        sizes += numbers >= bound
    raw = numbers.astype("<u8").view(np.uint8).reshape(-1, 8)
    return _tagged_rows(sizes, raw, valid)


def _unsigned(type: PrimitiveType, array: pa.Array) -> pa.Array:
    column = _cast(type, array)
    return _integer_rows(numbers_of(column, f"<u{UNSIGNED[type] // 8}").astype(np.uint64), valid(column))


def _signed(type: PrimitiveType, array: pa.Array) -> pa.Array:
    column = _cast(type, array)
    return _integer_rows(_with_sign(numbers_of(column, f"<i{SIGNED[type] // 8}").astype(np.int64)), valid(column))


def _with_sign(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Return numbers with the sign as their lowest bit.

    The lowest number of 64 bits becomes 1, as the format requires.
    """
    magnitudes = np.where(numbers < 0, -numbers, numbers).view(np.uint64)
    signs = (numbers < 0).astype(np.uint64)
    return (magnitudes << np.uint64(1)) | signs


def _float(type: PrimitiveType, array: pa.Array) -> pa.Array:
    size = FLOATS[type]
    column = _cast(type, array)
    raw = np.ascontiguousarray(numbers_of(column, f"<u{size}")).view(np.uint8).reshape(-1, size)
    return _tagged_rows(np.full(len(column), size), raw, valid(column))


def _bool(type: PrimitiveType, array: pa.Array) -> pa.Array:
    column = _cast(type, array)
    raw = true(column).astype(np.uint8).reshape(-1, 1)
    return _tagged_rows(np.full(len(column), 1), raw, valid(column))


def _from_texts(parse: Callable[[str], bytes]) -> Callable[[PrimitiveType, pa.Array], pa.Array]:
    """Return a function that encodes texts, each distinct one once."""

    def write(type: PrimitiveType, array: pa.Array) -> pa.Array:
        encoded = _cast(type, array).dictionary_encode()
        bodies = binaries([parse(text) for text in encoded.dictionary.to_pylist()])
        return _tagged(bodies.take(encoded.indices))

    return write


def _type_body(text: str) -> bytes:
    try:
        return encode_type(parse_type(text))
    except (InvalidZson, InvalidType) as error:
        raise InvalidValue(f"{text!r} is not a type: {error}") from None


def _null(type: PrimitiveType, array: pa.Array) -> pa.Array:
    if array.null_count < len(array):
        raise InvalidValue("a column of type null contains a value; give the field another type")
    return _uvarints(np.zeros(len(array), np.int64))


_PRIMITIVE: Final[dict[PrimitiveType, Callable[[PrimitiveType, pa.Array], pa.Array]]] = {
    **dict.fromkeys(UNSIGNED, _unsigned),
    **dict.fromkeys(SIGNED, _signed),
    **dict.fromkeys(FLOATS, _float),
    types.BOOL: _bool,
    types.IP: _from_texts(lambda text: ENCODERS[types.IP](parse_ip(text))),
    types.NET: _from_texts(lambda text: ENCODERS[types.NET](parse_net(text))),
    types.TYPE: _from_texts(_type_body),
    types.NULL: _null,
}


def _record(type: RecordType, array: pa.Array) -> _Parts:
    if not pa.types.is_struct(array.type) or [each.name for each in array.type] != [each.name for each in type.fields]:
        raise InvalidValue(f"a column of type {array.type} cannot be stored as {format_type(type)}: field names differ")
    is_valid = valid(array)
    if not is_valid.all():
        return _tagged_parts(_bodies_of_records(type, array, is_valid))
    fields = [_parts(each.type, array.field(number)) for number, each in enumerate(type.fields)]
    arrays = [each for field in fields for each in field.arrays]
    if not arrays:
        return _tagged_parts(_binary(np.zeros(len(array) + 1), b""))
    sizes = np.zeros(len(array), np.int64)
    for field in fields:
        sizes += field.sizes
    tags = _uvarints(sizes + 1)
    return _Parts([tags, *arrays], sizes + _lengths(tags))


def _bodies_of_records(type: RecordType, array: pa.Array, is_valid: Mask) -> pa.Array:
    """Return the bodies of records, as a binary array that is null where they are.

    Only fields of records that are not null are encoded: often most are.
    """
    try:
        rows = array.filter(booleans(is_valid))
    except pa.ArrowNotImplementedError:
        # Arrow cannot select values of some types, such as views.
        return pc.if_else(booleans(is_valid), _joined_fields(type, array), pa.nulls(1, pa.binary())[0])
    bodies = _joined_fields(type, rows)
    lengths = np.zeros(len(array), np.int64)
    lengths[is_valid] = _lengths(bodies)
    offsets = int(_offsets(bodies)[0]) + np.append(0, np.cumsum(lengths))
    return _binary(offsets, bodies.buffers()[2] or b"", is_valid)


def _joined_fields(type: RecordType, array: pa.Array) -> pa.Array:
    """Return the tagged bodies of the fields of records, concatenated record by record."""
    fields = [_parts(each.type, array.field(number)) for number, each in enumerate(type.fields)]
    arrays = [each for field in fields for each in field.arrays]
    return _joined(*arrays) if arrays else _binary(np.zeros(len(array) + 1), b"")


def _container(type: ArrayType | SetType | MapType, array: pa.Array) -> pa.Array:
    if pa.types.is_map(array.type):
        array = array.cast(pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])))
    if not is_list(array.type):
        raise InvalidValue(f"a column of type {array.type} cannot be stored as {format_type(type)}: it is not a list")
    lengths = _list_lengths(array)
    bounds = np.append(0, np.cumsum(lengths, dtype=np.int64))
    values = array.flatten()
    match type:
        case ArrayType(element):
            elements = write_column(element, values)
        case SetType(element):
            elements = write_column(element, values)
            elements, bounds = _normalized(elements, elements, bounds)
        case MapType(key, value):
            keys = write_column(key, values.field("key"))
            elements, bounds = _normalized(keys, _joined(keys, write_column(value, values.field("value"))), bounds)
            if bounds[-1] < len(values):
                raise InvalidValue(
                    f"a map in a column of type {array.type} has duplicate keys; the keys of a Zed map must be unique"
                )
    offsets = offsets_of(elements)
    return _tagged(_binary(offsets[bounds], elements.buffers()[2] or b"", valid(array)))


def _list_lengths(array: pa.Array) -> Positions:
    """Return how many elements each list has; 0 for null."""
    lengths = array.value_lengths()
    return np.where(valid(array), numbers_of(lengths, f"<i{lengths.type.bit_width // 8}"), 0).astype(np.int64)


def _normalized(keys: pa.Array, entries: pa.Array, bounds: Positions) -> tuple[pa.Array, Positions]:
    """Return the entries of sets or maps in the order of their keys' bytes, and their new bounds.

    Of several entries with the same key, the first is kept.
    """
    count = len(keys)
    owners = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    if count < 2 or _is_ascending(keys, owners):
        return entries, bounds
    order = pc.sort_indices(
        pa.table({"owner": integers(owners), "key": keys, "row": integers(np.arange(count))}),
        [("owner", "ascending"), ("key", "ascending"), ("row", "ascending")],
    )
    keys, owners = keys.take(order), owners[numbers_of(order, "<u8")]
    same = true(pc.equal(keys.slice(0, count - 1), keys.slice(1))) & (owners[1:] == owners[:-1])
    first = np.append(True, ~same)
    counts = np.bincount(owners[first], minlength=len(bounds) - 1)
    return entries.take(order.filter(booleans(first))), np.append(0, np.cumsum(counts))


def _is_ascending(keys: pa.Array, owners: Positions) -> bool:
    """Return whether the keys of each owner are in the order of their bytes, without duplicates."""
    ascending = true(pc.less(keys.slice(0, len(keys) - 1), keys.slice(1)))
    return bool((ascending | (owners[1:] != owners[:-1])).all())


def _union(type: UnionType, array: pa.Array) -> pa.Array:
    arrow = arrow_type(type)
    names = (
        [array.type.field(number).name for number in range(array.type.num_fields)]
        if pa.types.is_union(array.type)
        else []
    )
    if names != [str(number) for number in range(len(type.types))] + [NULL_CHILD] or array.type.mode != "dense":
        raise InvalidValue(
            f"a column of type {array.type} cannot be stored as {format_type(type)}: it needs the type {arrow}"
        )
    codes, offsets = union_codes(array)
    parts, rows = [], []
    for number, member in enumerate(type.types):
        of_member = np.flatnonzero(codes == number)
        values = write_column(member, array.field(number).take(integers(offsets[of_member])))
        tag = binaries([tagged(encode_int(number))]).take(integers(np.zeros(len(of_member), np.int64)))
        parts.append(_tagged(_joined(tag, values)))
        rows.append(of_member)
    nulls = np.flatnonzero(codes == len(type.types))
    parts.append(_uvarints(np.zeros(len(nulls), np.int64)))
    rows.append(nulls)
    return pa.concat_arrays(parts).take(integers(np.argsort(np.concatenate(rows), kind="stable")))


def union_codes(array: pa.Array) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int32]]:
    """Return the code of each value of a dense union, and its position in the child of that code."""
    # The accessors of pyarrow ignore the offset of a slice.
    _, codes, offsets = array.buffers()[:3]
    return np.frombuffer(codes, np.int8, len(array), array.offset), np.frombuffer(
        offsets, np.int32, len(array), 4 * array.offset
    )


def _enum(type: EnumType, array: pa.Array) -> pa.Array:
    encoded = array if pa.types.is_dictionary(array.type) else _cast(types.STRING, array).dictionary_encode()
    positions = pc.index_in(encoded.dictionary.cast(pa.string()), pa.array(type.symbols, pa.string()))
    if positions.null_count:
        used = encoded.dictionary.filter(positions.is_null()).to_pylist()
        if bool(pc.any(pc.is_null(positions.take(encoded.indices.drop_null()))).as_py()):
            shown = ", ".join(map(repr, used[:10]))
            raise InvalidValue(f"the column has values that are not symbols of {format_type(type)}: {shown}")
    column = positions.take(encoded.indices)
    return _integer_rows(numbers_of(column, "<i4").astype(np.uint64), valid(column))
