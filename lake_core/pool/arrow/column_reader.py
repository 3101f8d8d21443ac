"""Turns the bodies of many values of one type into an Arrow array.

It rejects the same bytes that decoding values one by one rejects.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.pool import types
from lake_core.pool.arrow.arrays import integers, numbers_of, true
from lake_core.pool.arrow.arrow_type import arrow_type
from lake_core.pool.arrow.bodies import Bodies, Positions, binary_columns, buffer_of, split_records, tagged_at
from lake_core.pool.arrow.walk import walk_elements
from lake_core.pool.errors import InvalidZng
from lake_core.pool.primitive import decode_ip, decode_net
from lake_core.pool.projection import projected_type
from lake_core.pool.type_value import decode_type
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
    under,
)
from lake_core.pool.zson.primitive_text import format_ip, format_net
from lake_core.pool.zson.type_text import format_type

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

_COPIED: Final = (types.BYTES, types.STRING)
"""The types whose values are the bytes of their bodies."""
_LOW_BYTES: Final = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
"""Masks that keep as many low bytes of a number as a body has."""


def read_column(type: Type, bodies: Bodies) -> pa.Array:
    """Return the values of a type as an array of its Arrow type.

    Raises InvalidZng if bytes are not valid for the type.
    """
    if bodies.largest() < 0 and _is_plain(type):
        return pa.nulls(len(bodies), arrow_type(type))
    match type:
        case NamedType(_, inner) | ErrorType(inner):
            return read_column(inner, bodies)
        case PrimitiveType():
            return _PRIMITIVE[type](type, bodies)
        case RecordType():
            return _record(type, bodies)
        case ArrayType(element):
            offsets, elements, _ = _elements(bodies)
            return _list(type, bodies, offsets, read_column(element, elements))
        case SetType(element):
            offsets, elements, encoded = _elements(bodies)
            _check_order(encoded, offsets, "the elements of a set")
            return _list(type, bodies, offsets, read_column(element, elements))
        case MapType():
            return _map(type, bodies)
        case UnionType():
            return _union(type, bodies)
        case EnumType():
            return _enum(type, bodies)
    raise AssertionError(f"unexpected type {type!r}")


@lru_cache(maxsize=1024)
def _is_plain(type: Type) -> bool:
    """Return whether nulls of a type are the nulls of its Arrow type: those of unions and enums are not."""
    match type:
        case NamedType(_, inner) | ErrorType(inner) | ArrayType(inner) | SetType(inner):
            return _is_plain(inner)
        case RecordType(fields):
            return all(_is_plain(each.type) for each in fields)
        case MapType(key, value):
            return _is_plain(key) and _is_plain(value)
    return isinstance(type, PrimitiveType)


def _fixed(type: Type, bodies: Bodies, values: npt.NDArray[Any]) -> pa.Array:
    buffers = [bodies.bitmap(), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(arrow_type(type), len(bodies), buffers)


def _integers(bodies: Bodies) -> npt.NDArray[np.uint64]:
    smallest, largest = bodies.extremes
    if largest > 8:
        raise InvalidZng(f"an integer has {largest} bytes; at most 8 are valid")
    numbers: npt.NDArray[np.uint64] = bodies.numbers("<u8")
    if smallest < largest:
        numbers &= _LOW_BYTES[np.maximum(bodies.sizes, 0) if smallest < 0 else bodies.sizes]
    elif largest < 8:
        numbers &= _LOW_BYTES[max(largest, 0)]
    return numbers


def _unsigned(type: PrimitiveType, bodies: Bodies) -> pa.Array:
    numbers = _integers(bodies)
    bits = UNSIGNED[type]
    if bits < 64 and len(numbers) and int(numbers.max()) >> bits:
        raise InvalidZng(f"{numbers.max()} is out of the range of {type.name}")
    return _fixed(type, bodies, numbers.astype(f"<u{bits // 8}"))


def _signed(type: PrimitiveType, bodies: Bodies) -> pa.Array:
    raw = _integers(bodies)
    numbers = (raw >> np.uint64(1)).view(np.int64)
    negative = (raw & np.uint64(1)).view(np.int64)
    if negative.any():
        numbers = (numbers ^ -negative) + negative
        numbers[raw == 1] = np.iinfo(np.int64).min
    bits = SIGNED[type]
    if bits < 64 and len(numbers):
        for number in (int(numbers.min()), int(numbers.max())):
            if not -(1 << bits - 1) <= number < 1 << bits - 1:
                raise InvalidZng(f"{number} is out of the range of {type.name}")
    return _fixed(type, bodies, numbers.astype(f"<i{bits // 8}"))


def _check_size(type: PrimitiveType, bodies: Bodies, size: int) -> None:
    smallest, largest = bodies.extremes
    if largest >= 0 and not smallest == largest == size and bool(((bodies.sizes != size) & bodies.valid()).any()):
        raise InvalidZng(f"a value of type {type.name} is not {size} bytes long")


def _float(type: PrimitiveType, bodies: Bodies) -> pa.Array:
    size = FLOATS[type]
    _check_size(type, bodies, size)
    return _fixed(type, bodies, bodies.numbers(f"<u{size}"))


def _bool(type: PrimitiveType, bodies: Bodies) -> pa.Array:
    _check_size(type, bodies, 1)
    bits = np.packbits(bodies.numbers("u1") != 0, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(bodies), [bodies.bitmap(), pa.py_buffer(bits)])


def _bytes(type: PrimitiveType, bodies: Bodies) -> pa.Array:
    return bodies.binary()


def _string(type: PrimitiveType, bodies: Bodies) -> pa.Array:
    return next(_texts_of([type], [bodies]))


def _is_ascii(data: pa.Buffer) -> bool:
    return not len(data) or int(np.maximum.reduce(np.frombuffer(data, np.uint8))) < 0x80


def _texts_of(types_: Sequence[Type], columns: Sequence[Bodies]) -> Iterator[pa.Array]:
    """Yield fields of records that are strings or bytes as arrays. They are copied together, which takes fewer steps.

    Raises InvalidZng.
    """
    checked: pa.Buffer | None = None
    is_ascii = False
    for type, column, buffers in zip(types_, columns, binary_columns(columns), strict=True):
        if under(type) == types.BYTES:
            yield pa.Array.from_buffers(pa.binary(), len(column), buffers)
            continue
        _, offsets, data = buffers
        # Consecutive columns share a buffer, which is looked at once.
        if checked is None or data.address != checked.address:
            checked, is_ascii = data, _is_ascii(data)
        if not is_ascii:
            bounds = np.frombuffer(offsets, np.int32)
            if not _is_ascii(data.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))):
                yield _decoded(pa.Array.from_buffers(pa.binary(), len(column), buffers))
                continue
        yield pa.Array.from_buffers(pa.string(), len(column), buffers)


def _decoded(binary: pa.Array) -> pa.Array:
    """Return a binary array as strings. Raises InvalidZng for bytes that are not UTF-8."""
    try:
        return binary.cast(pa.string())
    except pa.ArrowInvalid:
        raise InvalidZng("a string is not UTF-8") from None


def _texts(bodies: Bodies, text: Callable[[bytes], str]) -> pa.Array:
    """Return the text of each body. Each distinct body is decoded once."""
    encoded = bodies.binary().dictionary_encode()
    texts = pa.array([text(body) for body in encoded.dictionary.to_pylist()], pa.string())
    return texts.take(encoded.indices)


def _ip(type: PrimitiveType, bodies: Bodies) -> pa.Array:
    if not len(bodies) or bool((bodies.sizes != 4).any()):
        return _texts(bodies, lambda body: format_ip(decode_ip(body)))
    octets = bodies.numbers("<u4").view(np.uint8).reshape(-1, 4)
    return pc.binary_join_element_wise(*(integers(octets[:, number]).cast(pa.string()) for number in range(4)), ".")


def _net(type: PrimitiveType, bodies: Bodies) -> pa.Array:
    return _texts(bodies, lambda body: format_net(decode_net(body)))


def _type(type: PrimitiveType, bodies: Bodies) -> pa.Array:
    return _texts(bodies, lambda body: format_type(decode_type(body)))


def _null(type: PrimitiveType, bodies: Bodies) -> pa.Array:
    if bodies.largest() >= 0:
        raise InvalidZng("a value of type null has a body")
    return pa.nulls(len(bodies))


_PRIMITIVE: Final[dict[PrimitiveType, Callable[[PrimitiveType, Bodies], pa.Array]]] = {
    **dict.fromkeys(UNSIGNED, _unsigned),
    **dict.fromkeys(SIGNED, _signed),
    **dict.fromkeys(FLOATS, _float),
    types.BOOL: _bool,
    types.BYTES: _bytes,
    types.STRING: _string,
    types.IP: _ip,
    types.NET: _net,
    types.TYPE: _type,
    types.NULL: _null,
}


def read_fields(type: Type, bodies: Bodies, names: Collection[str]) -> tuple[Type, pa.Array]:
    """Return records with only the fields of some names: their type and their values.

    Other fields are skipped.

    Raises:
        InvalidValue: The values are not records.
        InvalidZng: Bytes are not valid for the type.
    """
    projected, record = projected_type(type, names), under(type)
    return projected, _record(record, bodies, names) if isinstance(record, RecordType) else read_column(
        projected, bodies
    )


def _record(type: RecordType, bodies: Bodies, names: Collection[str] | None = None) -> pa.Array:
    numbers = [number for number, each in enumerate(type.fields, 1) if names is None or each.name in names]
    projected = type if names is None else RecordType(tuple(type.fields[number - 1] for number in numbers))
    columns = split_records(bodies, len(numbers) if names is None else max(numbers, default=0), exact=names is None)
    pairs = zip(columns, type.fields, strict=False)
    fields = [(field.type, column) for column, field in pairs if names is None or field.name in names]
    texts = [(kind, column) for kind, column in fields if under(kind) in _COPIED]
    arrays = _texts_of([kind for kind, _ in texts], [column for _, column in texts])
    children = [next(arrays) if under(kind) in _COPIED else read_column(kind, column) for kind, column in fields]
    return pa.Array.from_buffers(arrow_type(projected), len(bodies), [bodies.bitmap()], children=children)


def _elements(bodies: Bodies) -> tuple[Positions, Bodies, pa.Array]:
    """Return the content of containers.

    Returns:
        The position of each container's first element and the total, all elements, and the elements with their tags.
    """
    joined = bodies.binary()
    container_starts = np.frombuffer(joined.buffers()[1], np.int32, len(bodies) + 1).astype(np.int64)
    payload = joined.buffers()[2]
    size = int(container_starts[-1])
    payload_bytes = payload.slice(0, size).to_pybytes() if payload is not None else b""
    starts = walk_elements(payload_bytes)
    bounds = np.append(starts, size)
    offsets = np.searchsorted(bounds, container_starts)
    if bool((bounds[offsets] != container_starts).any()):
        raise InvalidZng("a value extends past the end of its container")
    elements, _ = tagged_at(buffer_of(payload_bytes), starts, size)
    encoded = pa.Array.from_buffers(
        pa.binary(), len(starts), [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(payload_bytes)]
    )
    return offsets, elements, encoded


def _list(type: Type, bodies: Bodies, offsets: Positions, values: pa.Array) -> pa.Array:
    buffers = [bodies.bitmap(), pa.py_buffer(offsets.astype(np.int32))]
    return pa.Array.from_buffers(arrow_type(type), len(bodies), buffers, children=[values])


def _check_order(encoded: pa.Array, offsets: Positions, what: str) -> None:
    """Raise InvalidZng unless the elements of each container are in the order of their bytes, without duplicates."""
    if len(encoded) < 2:
        return
    ascending = true(pc.less(encoded.slice(0, len(encoded) - 1), encoded.slice(1)))
    firsts = offsets[(offsets > 0) & (offsets < len(encoded))]
    ascending[firsts - 1] = True
    if not ascending.all():
        raise InvalidZng(f"{what} are not sorted by their bytes, or are not unique")


def _map(type: MapType, bodies: Bodies) -> pa.Array:
    offsets, elements, encoded = _elements(bodies)
    if bool((offsets % 2).any()):
        raise InvalidZng("a map has a key without a value")
    evens = np.arange(0, len(elements), 2)
    _check_order(encoded.take(integers(evens)), offsets // 2, "the keys of a map")
    keys = read_column(type.key, elements.select(evens))
    values = read_column(type.value, elements.select(evens + 1))
    entry = arrow_type(type).value_type
    return _list(type, bodies, offsets // 2, pa.Array.from_buffers(entry, len(keys), [None], children=[keys, values]))


def _union(type: UnionType, bodies: Bodies) -> pa.Array:
    arrow = arrow_type(type)
    valid = bodies.valid()
    rows = bodies.select(valid)
    ends = rows.starts + rows.sizes
    tags, at = tagged_at(rows.data, rows.starts, ends)
    values, at = tagged_at(rows.data, at, ends)
    if bool((at != ends).any()) or not bool(tags.valid().all()):
        raise InvalidZng("a value of a union does not consist of a tag and a value")
    numbers = numbers_of(_signed(types.INT64, tags), "<i8")
    if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(type.types):
        raise InvalidZng(f"a value of a union of {len(type.types)} types has a tag that is out of range")
    codes = np.full(len(bodies), len(type.types), np.int8)
    codes[valid] = numbers
    offsets = np.zeros(len(bodies), np.int32)
    children = []
    for number, member in enumerate(type.types):
        offsets[codes == number] = np.arange(int((numbers == number).sum()))
        children.append(read_column(member, values.select(numbers == number)))
    nulls = len(bodies) - len(rows)
    offsets[~valid] = np.arange(nulls)
    children.append(pa.nulls(nulls))
    names = [arrow.field(number).name for number in range(arrow.num_fields)]
    return pa.UnionArray.from_dense(integers(codes), integers(offsets), children, names)


def _enum(type: EnumType, bodies: Bodies) -> pa.Array:
    positions = _integers(bodies)
    if len(positions) and int(positions.max()) >= len(type.symbols) and bool(bodies.valid().any()):
        raise InvalidZng(
            f"a value of an enum has the position {positions.max()}, but the enum has {len(type.symbols)} symbols"
        )
    indices = pa.Array.from_buffers(
        pa.int32(), len(bodies), [bodies.bitmap(), pa.py_buffer(positions.astype(np.int32))]
    )
    return pa.DictionaryArray.from_arrays(indices, pa.array(type.symbols, pa.string()))
