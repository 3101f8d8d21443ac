"""How values are encoded as variants: the bytes of a value, and of the names of fields.

Format: Variant Encoding of Apache Parquet.
"""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from lake_core.delta.errors import UnsupportedType
from lake_core.variant_values import (
    ARRAY,
    BINARY,
    DATE,
    DECIMAL4,
    DECIMAL8,
    DECIMAL16,
    DECIMAL_BYTES,
    DOUBLE,
    EPOCH,
    FALSE,
    INT8,
    INT16,
    INT32,
    INT64,
    MOST_DIGITS,
    NULL,
    OBJECT,
    PRIMITIVE,
    SHORT_TEXT,
    SHORTEST_LONG_TEXT,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TRUE,
    UUID,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def encoded(value: Any) -> tuple[bytes, bytes]:
    """Return the metadata and the value of a variant. Raises UnsupportedType."""
    ids: dict[str, int] = {}
    body = body_of(value, ids)
    return _metadata(list(ids)), body


def _metadata(names: Sequence[str]) -> bytes:
    texts = [name.encode() for name in names]
    ends = [0]
    for text in texts:
        ends.append(ends[-1] + len(text))
    width = _width(max(ends[-1], len(names)))
    header = bytes([1 | (width - 1) << 6])
    numbers = b"".join(number.to_bytes(width, "little") for number in (len(names), *ends))
    return header + numbers + b"".join(texts)


def _width(highest: int) -> int:
    return max(1, (highest.bit_length() + 7) // 8)


def body_of(value: Any, ids: dict[str, int]) -> bytes:
    """Return the bytes of a value, whose numbers take the smallest type, as in Spark.

    Args:
        value: The value, of a type that `to_python` returns.
        ids: The ids of the names of fields. New names are added.

    Raises:
        UnsupportedType: For a value of another type, or too long a number.
    """
    match value:
        case None:
            return tag(NULL)
        case bool():
            return tag(TRUE if value else FALSE)
        case int():
            return _whole_number(value)
        case float():
            return tag(DOUBLE) + struct.pack("<d", value)
        case Decimal():
            return _decimal(value)
        case str():
            return _text(value.encode())
        case bytes():
            return tag(BINARY) + len(value).to_bytes(4, "little") + value
        case dt.datetime():
            kind, moment = (TIMESTAMP_NTZ, value) if value.tzinfo is None else (TIMESTAMP, value.astimezone(dt.UTC))
            return tag(kind) + _microseconds(moment.replace(tzinfo=None) - EPOCH)
        case dt.date():
            return tag(DATE) + struct.pack("<i", (value - EPOCH.date()).days)
        case dt.time():
            return tag(TIME) + _microseconds(dt.datetime.combine(EPOCH.date(), value.replace(tzinfo=None)) - EPOCH)
        case uuid.UUID():
            return tag(UUID) + value.bytes
        case dict():
            return object_body({str(name): _named(str(name), child, ids) for name, child in value.items()}, ids)
        case list() | tuple():
            return array_body([body_of(child, ids) for child in value])
    raise UnsupportedType(f"a value of type {type(value).__name__} cannot be a variant: convert it first")


def _named(name: str, value: Any, ids: dict[str, int]) -> bytes:
    ids.setdefault(name, len(ids))
    return body_of(value, ids)


def tag(kind: int) -> bytes:
    """Return the first byte of a value of a primitive type."""
    return bytes([kind << 2 | PRIMITIVE])


def _microseconds(span: dt.timedelta) -> bytes:
    return struct.pack("<q", span // dt.timedelta(microseconds=1))


def _whole_number(value: int) -> bytes:
    for kind, layout, bits in ((INT8, "<b", 7), (INT16, "<h", 15), (INT32, "<i", 31), (INT64, "<q", 63)):
        if -(1 << bits) <= value < 1 << bits:
            return tag(kind) + struct.pack(layout, value)
    if abs(value) >= 10**MOST_DIGITS:
        return body_of(float(value), {})
    return _decimal(Decimal(value))


def _decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return body_of(float(value), {})
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    scale = -exponent
    if scale < 0:
        unscaled, scale = unscaled * 10**-scale, 0
    precision = max(len(str(abs(unscaled))), scale)
    if precision > MOST_DIGITS:
        raise UnsupportedType(
            f"{value} has more than {MOST_DIGITS} digits, which a variant cannot hold: round it first"
        )
    kind = DECIMAL4 if precision <= 9 else DECIMAL8 if precision <= 18 else DECIMAL16
    return tag(kind) + bytes([scale]) + unscaled.to_bytes(DECIMAL_BYTES[kind], "little", signed=True)


def _text(data: bytes) -> bytes:
    if len(data) < SHORTEST_LONG_TEXT:
        return bytes([len(data) << 2 | SHORT_TEXT]) + data
    return tag(TEXT) + len(data).to_bytes(4, "little") + data


def object_body(fields: Mapping[str, bytes], ids: Mapping[str, int]) -> bytes:
    """Return the bytes of an object. Its fields are listed by name, and their values follow by id, as Spark's do."""
    by_id = sorted(fields, key=ids.__getitem__)
    offsets, values = _joined([fields[name] for name in by_id])
    begins = dict(zip(by_id, offsets, strict=False))
    by_name = sorted(fields, key=str.encode)
    id_width, offset_width = _width(max((ids[name] for name in fields), default=0)), _width(offsets[-1])
    is_large = len(fields) > 0xFF
    header = is_large << 4 | (id_width - 1) << 2 | offset_width - 1
    parts = [bytes([header << 2 | OBJECT]), len(fields).to_bytes(4 if is_large else 1, "little")]
    parts += [ids[name].to_bytes(id_width, "little") for name in by_name]
    parts += [begins[name].to_bytes(offset_width, "little") for name in by_name]
    return b"".join([*parts, offsets[-1].to_bytes(offset_width, "little"), values])


def array_body(elements: Sequence[bytes]) -> bytes:
    """Return the bytes of an array."""
    offsets, values = _joined(elements)
    width, is_large = _width(offsets[-1]), len(elements) > 0xFF
    header = is_large << 2 | width - 1
    parts = [bytes([header << 2 | ARRAY]), len(elements).to_bytes(4 if is_large else 1, "little")]
    return b"".join([*parts, *(offset.to_bytes(width, "little") for offset in offsets), values])


def _joined(bodies: Sequence[bytes]) -> tuple[list[int], bytes]:
    offsets = [0]
    for body in bodies:
        offsets.append(offsets[-1] + len(body))
    return offsets, b"".join(bodies)
