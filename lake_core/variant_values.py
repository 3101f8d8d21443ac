"""Variants: values of any shape, as two binaries that the Parquet format defines. How they are decoded.

A column of variants is a struct of `value` and `metadata` (the names of fields). Format: Variant Encoding of Apache
Parquet.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import math
import struct
import uuid
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from lake_core.json_numbers import dumps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_MARK: Final = {b"delta.type": b"variant"}
VARIANT: Final = pa.struct([pa.field(name, pa.binary(), metadata=_MARK) for name in ("value", "metadata")])
"""The Arrow type of variants, whose fields are in Spark's order. A null struct is no value; the variant null is one."""

EPOCH = dt.datetime(1970, 1, 1)
PRIMITIVE, SHORT_TEXT, OBJECT, ARRAY = range(4)
NULL, TRUE, FALSE, INT8, INT16, INT32, INT64, DOUBLE = range(8)
DECIMAL4, DECIMAL8, DECIMAL16, DATE, TIMESTAMP, TIMESTAMP_NTZ, FLOAT, BINARY, TEXT = range(8, 17)
TIME, TIMESTAMP_NS, TIMESTAMP_NTZ_NS, UUID = range(17, 21)
FIXED: Mapping[int, str] = {INT8: "<b", INT16: "<h", INT32: "<i", INT64: "<q", DOUBLE: "<d", FLOAT: "<f"}
DECIMAL_BYTES: Mapping[int, int] = {DECIMAL4: 4, DECIMAL8: 8, DECIMAL16: 16}
SHORTEST_LONG_TEXT = 64
MOST_DIGITS = 38
NO_NAMES = b"\x01\x00\x00"
DIGITS = decimal.Context(prec=MOST_DIGITS + 1)


def is_variant(kind: pa.DataType) -> bool:
    """Return whether an Arrow type of a table's schema is that of variants, not of a struct with such fields."""
    return bool(pa.types.is_struct(kind) and kind.num_fields == 2 and kind.field(0).metadata == _MARK)


def has_variants(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is that of variants, or has them at any depth."""
    if is_variant(kind):
        return True
    return any(has_variants(kind.field(place).type) for place in range(kind.num_fields))


def with_json(kind: pa.DataType) -> pa.DataType:
    """Return an Arrow type with text in the place of variants, at any depth."""
    if is_variant(kind):
        return pa.string()
    if not has_variants(kind):
        return kind
    if pa.types.is_struct(kind):
        return pa.struct([child.with_type(with_json(child.type)) for child in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, with_json(kind.item_type))
    return pa.list_(kind.value_field.with_type(with_json(kind.value_type)))


def json_values(value: Any, kind: pa.DataType, text_of: Callable[[Mapping[str, bytes]], Any]) -> Any:
    """Return a Python value of an Arrow type with other values in the place of its variants, at any depth.

    Args:
        value: The value, as `to_pylist` returns it.
        kind: Its type.
        text_of: Returns what to put in the place of the two binaries of a variant.
    """
    if value is None or not has_variants(kind):
        return value
    if is_variant(kind):
        return text_of(value)
    if pa.types.is_struct(kind):
        return {child.name: json_values(value[child.name], child.type, text_of) for child in kind}
    if pa.types.is_map(kind):
        return [(key, json_values(item, kind.item_type, text_of)) for key, item in value]
    return [json_values(item, kind.value_type, text_of) for item in value]


class InvalidVariant(ValueError):
    """The two binaries are not those of a variant."""


def decoded(metadata: bytes, value: bytes) -> Any:
    """Return a variant as a Python value. Raises InvalidVariant."""
    try:
        return _value(field_names(metadata), value, 0)
    except (IndexError, struct.error, ValueError, OverflowError) as error:
        raise InvalidVariant(str(error)) from None


def json_text(value: Any) -> str:
    """Return a decoded variant as JSON, as Spark's `to_json` writes it."""
    return dumps(_as_json(value))


def _as_json(value: Any) -> Any:
    match value:
        case dict():
            return {name: _as_json(child) for name, child in value.items()}
        case list():
            return [_as_json(child) for child in value]
        case Decimal():
            return value.normalize(DIGITS)
        case float():
            return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        case bytes():
            return base64.b64encode(value).decode()
        case dt.datetime():
            text = value.replace(tzinfo=None).isoformat(" ")
            text = text.rstrip("0") if "." in text else text
            return f"{text}+00:00" if value.tzinfo else text
        case dt.date() | dt.time():
            return value.isoformat()
        case uuid.UUID():
            return str(value)
        case _:
            return value


def field_names(metadata: bytes) -> list[str]:
    """Return the names of fields that `metadata` holds, by their ids."""
    width = (metadata[0] >> 6) + 1
    if metadata[0] & 0xF != 1:
        raise ValueError(f"version {metadata[0] & 0xF} of its metadata")
    count = _unsigned(metadata, 1, width)
    offsets = _numbers(metadata, 1 + width, count + 1, width)
    start = 1 + width * (count + 2)
    return [metadata[start + begin : start + end].decode() for begin, end in pairwise(offsets)]


def _unsigned(data: bytes, at: int, width: int) -> int:
    if at + width > len(data):
        raise IndexError("it is cut off")
    return int.from_bytes(data[at : at + width], "little")


def _value(names: Sequence[str], data: bytes, at: int) -> Any:
    basic, header = data[at] & 3, data[at] >> 2
    if basic == PRIMITIVE:
        return _primitive(header, data, at + 1)
    if basic == SHORT_TEXT:
        return _slice(data, at + 1, header).decode()
    places = places_of(data, at)
    if basic == ARRAY:
        return [_value(names, data, place) for _, place in places]
    return {names[number]: _value(names, data, place) for number, place in places}


def places_of(data: bytes, at: int) -> list[tuple[int, int]]:
    """Return the id of each field of an object, or 0 for the elements of an array, and where its value begins."""
    layout = _Layout.of(data, at)
    count, values = layout.elements, layout.values
    offsets = _numbers(data, layout.offsets, count, layout.offset_width)
    ids = _numbers(data, layout.ids, count, layout.id_width) if layout.id_width else [0] * count
    return [(number, values + offset) for number, offset in zip(ids, offsets, strict=True)]


def _numbers(data: bytes, at: int, count: int, width: int) -> Sequence[int]:
    """Return unsigned numbers of `width` bytes. Raises IndexError if the data is cut off."""
    stop = at + count * width
    if stop > len(data):
        raise IndexError("it is cut off")
    if width == 1:
        return data[at:stop]
    return [int.from_bytes(data[place : place + width], "little") for place in range(at, stop, width)]


class _Layout(NamedTuple):
    """Where the parts of an object or array are."""

    elements: int
    ids: int
    id_width: int
    """Bytes; 0 for an array."""
    offsets: int
    offset_width: int
    values: int

    @classmethod
    def of(cls, data: bytes, at: int) -> _Layout:
        is_object, header = data[at] & 3 == OBJECT, data[at] >> 2
        is_large = header >> (4 if is_object else 2) & 1
        offset_width, id_width = (header & 3) + 1, (header >> 2 & 3) + 1 if is_object else 0
        count_width = 4 if is_large else 1
        count = _unsigned(data, at + 1, count_width)
        ids = at + 1 + count_width
        offsets = ids + count * id_width
        return cls(count, ids, id_width, offsets, offset_width, offsets + (count + 1) * offset_width)

    def offset(self, data: bytes, number: int) -> int:
        """Return where a value begins among the values; for `elements`, where they end."""
        return _unsigned(data, self.offsets + number * self.offset_width, self.offset_width)


def split(data: bytes) -> tuple[bytes, bytes]:
    """Return the metadata and the value of an object that are stored one after the other, in either order.

    They begin with different bits. Raises IndexError if the first part is cut off.
    """
    if data[0] & 3 == OBJECT:
        layout = _Layout.of(data, 0)
        length = layout.values + layout.offset(data, layout.elements)
        return data[length:], data[:length]
    width = (data[0] >> 6) + 1
    length = 1 + width * (2 + _unsigned(data, 1, width))
    length += _unsigned(data, length - width, width)
    return data[:length], data[length:]


def _slice(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise IndexError("it is cut off")
    return data[at : at + size]


def _primitive(kind: int, data: bytes, at: int) -> Any:
    if kind in (NULL, TRUE, FALSE):
        return {NULL: None, TRUE: True, FALSE: False}[kind]
    if kind in FIXED:
        return struct.unpack_from(FIXED[kind], data, at)[0]
    if kind in DECIMAL_BYTES:
        unscaled = int.from_bytes(_slice(data, at + 1, DECIMAL_BYTES[kind]), "little", signed=True)
        return Decimal(unscaled).scaleb(-data[at], DIGITS)
    if kind in (BINARY, TEXT):
        content = _slice(data, at + 4, _unsigned(data, at, 4))
        return content if kind == BINARY else content.decode()
    if kind == DATE:
        return EPOCH.date() + dt.timedelta(days=struct.unpack_from("<i", data, at)[0])
    if kind == UUID:
        return uuid.UUID(bytes=_slice(data, at, 16))
    if kind in (TIMESTAMP, TIMESTAMP_NTZ, TIME, TIMESTAMP_NS, TIMESTAMP_NTZ_NS):
        (number,) = struct.unpack_from("<q", data, at)
        # Python has no nanoseconds.
        moment = EPOCH + dt.timedelta(microseconds=number // 1000 if kind >= TIMESTAMP_NS else number)
        if kind == TIME:
            return moment.time()
        return moment.replace(tzinfo=dt.UTC) if kind in (TIMESTAMP, TIMESTAMP_NS) else moment
    raise ValueError(f"type {kind}")
