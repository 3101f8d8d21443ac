"""Variants: values of any shape, as two binaries that the Parquet format defines.

A column of variants is a struct of `value` and `metadata` (the names of fields); files may store parts of the values in
columns of their own (shredded), which are put together again when they are read. `to_python` and `to_json` decode a
column, `from_python` and `from_json` make one.
Protocol section: Variant Data Type. Format: Variant Encoding and Variant Shredding of Apache Parquet.
"""

from __future__ import annotations

import datetime as dt
import json
import struct
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta.errors import CorruptDataFile, UnsupportedType
from lake_core.variant_values import (
    ARRAY,
    BINARY,
    DATE,
    DECIMAL4,
    DECIMAL8,
    DECIMAL16,
    DECIMAL_BYTES,
    DIGITS,
    DOUBLE,
    EPOCH,
    FALSE,
    FIXED,
    FLOAT,
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
    VARIANT,
    InvalidVariant,
    decoded,
    field_names,
    is_variant,
    json_text,
    places_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["STORED", "VARIANT", "from_json", "from_python", "is_variant", "to_json", "to_python", "whole"]

STORED: Final = pa.struct([child.with_nullable(False) for child in VARIANT])
"""Their type in data files."""

# Decoding


def to_python(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return variants as Python values: None, bool, int, float, Decimal, str, bytes, dates and times, dict and list.

    No value and the variant null are both None. Raises CorruptDataFile.
    """
    return [None if row is None else _decoded(row["metadata"], row["value"]) for row in column.to_pylist()]


def to_json(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return variants as JSON, as Spark's `to_json` writes them; null where there is none. Raises CorruptDataFile."""
    texts = (None if row is None else json_text(_decoded(row["metadata"], row["value"])) for row in column.to_pylist())
    return pa.array(texts, pa.string())


def _decoded(metadata: bytes, value: bytes) -> Any:
    try:
        return decoded(metadata, value)
    except InvalidVariant as error:
        raise CorruptDataFile(f"a variant cannot be decoded ({error}). Restore its file from a backup") from None


# Encoding


def from_python(values: Iterable[Any]) -> pa.Array:
    """Return Python values, of those that `to_python` returns, as variants. None is no value.

    Inside of lists and dicts, None is the variant null. Raises UnsupportedType for a value of another type.
    """
    return _column(None if value is None else _encoded(value) for value in values)


def from_json(texts: Iterable[str | None]) -> pa.Array:
    """Return JSON texts as variants, as Spark's `parse_json` reads them. None is no value. Raises ValueError."""
    decoder = json.JSONDecoder(
        parse_float=_json_number, parse_constant=_refuse_constant, object_pairs_hook=_distinct_fields
    )
    return _column(None if text is None else _encoded(decoder.decode(text)) for text in texts)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a value of JSON")


def _distinct_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError(f"an object has a field twice: {[name for name, _ in pairs]}")
    return fields


def _json_number(text: str) -> Decimal | float:
    number = Decimal(text)
    digits, exponent = number.as_tuple().digits, number.as_tuple().exponent
    is_plain = "e" not in text.lower() and isinstance(exponent, int) and max(len(digits), -exponent) <= MOST_DIGITS
    return number if is_plain else float(text)


def _column(pairs: Iterable[tuple[bytes, bytes] | None]) -> pa.Array:
    rows = [None if pair is None else {"metadata": pair[0], "value": pair[1]} for pair in pairs]
    return pa.array(rows, VARIANT)


def _encoded(value: Any) -> tuple[bytes, bytes]:
    ids: dict[str, int] = {}
    body = _body(value, ids)
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


def _body(value: Any, ids: dict[str, int]) -> bytes:
    match value:
        case None:
            return _tag(NULL)
        case bool():
            return _tag(TRUE if value else FALSE)
        case int():
            return _whole_number(value)
        case float():
            return _tag(DOUBLE) + struct.pack("<d", value)
        case Decimal():
            return _decimal(value)
        case str():
            return _text(value.encode())
        case bytes():
            return _tag(BINARY) + len(value).to_bytes(4, "little") + value
        case dt.datetime():
            kind, moment = (TIMESTAMP_NTZ, value) if value.tzinfo is None else (TIMESTAMP, value.astimezone(dt.UTC))
            return _tag(kind) + _microseconds(moment.replace(tzinfo=None) - EPOCH)
        case dt.date():
            return _tag(DATE) + struct.pack("<i", (value - EPOCH.date()).days)
        case dt.time():
            return _tag(TIME) + _microseconds(dt.datetime.combine(EPOCH.date(), value.replace(tzinfo=None)) - EPOCH)
        case uuid.UUID():
            return _tag(UUID) + value.bytes
        case dict():
            return _object({str(name): _named(str(name), child, ids) for name, child in value.items()}, ids)
        case list() | tuple():
            return _array([_body(child, ids) for child in value])
    raise UnsupportedType(f"a value of type {type(value).__name__} cannot be a variant: convert it first")


def _named(name: str, value: Any, ids: dict[str, int]) -> bytes:
    ids.setdefault(name, len(ids))
    return _body(value, ids)


def _tag(kind: int) -> bytes:
    return bytes([kind << 2 | PRIMITIVE])


def _microseconds(span: dt.timedelta) -> bytes:
    return struct.pack("<q", span // dt.timedelta(microseconds=1))


def _whole_number(value: int) -> bytes:
    for kind, layout, bits in ((INT8, "<b", 7), (INT16, "<h", 15), (INT32, "<i", 31), (INT64, "<q", 63)):
        if -(1 << bits) <= value < 1 << bits:
            return _tag(kind) + struct.pack(layout, value)
    if abs(value) >= 10**MOST_DIGITS:
        return _body(float(value), {})
    return _decimal(Decimal(value))


def _decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return _body(float(value), {})
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
    return _tag(kind) + bytes([scale]) + unscaled.to_bytes(DECIMAL_BYTES[kind], "little", signed=True)


def _text(data: bytes) -> bytes:
    if len(data) < SHORTEST_LONG_TEXT:
        return bytes([len(data) << 2 | SHORT_TEXT]) + data
    return _tag(TEXT) + len(data).to_bytes(4, "little") + data


def _object(fields: Mapping[str, bytes], ids: Mapping[str, int]) -> bytes:
    ordered = sorted(fields.items(), key=lambda item: item[0].encode())
    numbers = [ids[name] for name, _ in ordered]
    offsets, values = _joined([body for _, body in ordered])
    id_width, offset_width = _width(max(numbers, default=0)), _width(offsets[-1])
    is_large = len(ordered) > 0xFF
    header = is_large << 4 | (id_width - 1) << 2 | offset_width - 1
    parts = [bytes([header << 2 | OBJECT]), len(ordered).to_bytes(4 if is_large else 1, "little")]
    parts += [number.to_bytes(id_width, "little") for number in numbers]
    parts += [offset.to_bytes(offset_width, "little") for offset in offsets]
    return b"".join([*parts, values])


def _array(elements: Sequence[bytes]) -> bytes:
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


# Shredding


def whole(array: pa.StructArray, kind: pa.DataType) -> pa.StructArray:
    """Return variants as `VARIANT`, or as `STORED`: those that a data file has shredded are put together.

    Raises CorruptDataFile.
    """
    children = {child.name.lstrip("\x00").lower(): number for number, child in enumerate(array.type)}
    if "metadata" not in children or not {"value", "typed_value"} & children.keys():
        raise CorruptDataFile(f"a column of variants is {array.type} in a data file")
    mask = array.is_null() if array.null_count else None
    metadata = array.field(children["metadata"]).cast(pa.binary())
    if "typed_value" in children:
        value = _together(array, children)
    else:
        value = array.field(children["value"]).cast(pa.binary())
    if metadata.null_count or value.null_count:
        _check_whole(array, metadata, value)
    if mask is not None:
        # What a null holds is never read, but must be there.
        metadata, value = (column.fill_null(b"") for column in (metadata, value))
    return pa.StructArray.from_arrays([value, metadata], fields=list(kind), mask=mask)


def _check_whole(array: pa.StructArray, *parts: pa.Array) -> None:
    """Raise CorruptDataFile for a variant without its metadata or its value."""
    for part in parts:
        if pc.any(pc.and_(array.is_valid(), part.is_null())).as_py():
            raise CorruptDataFile("a variant has no metadata or no value, though it is not null: write it anew")


def _together(array: pa.StructArray, children: Mapping[str, int]) -> pa.Array:
    kind = _Shredded(array.type)
    values: list[bytes | None] = []
    metadata = array.field(children["metadata"])
    for number, row in enumerate(array.to_pylist()):
        if row is None:
            values.append(b"")
            continue
        names = metadata[number].as_py()
        try:
            ids = {name: place for place, name in enumerate(field_names(names))}
            body = kind.body(row, ids)
        except (KeyError, IndexError, struct.error, ValueError) as error:
            raise CorruptDataFile(f"a shredded variant cannot be put together ({error!r})") from None
        values.append(_tag(NULL) if body is None else body)
    return pa.array(values, pa.binary())


class _Shredded:
    """A level of a shredded variant: a value of any type, or one of the type that its column has."""

    def __init__(self, kind: pa.StructType) -> None:
        names = {child.name.lstrip("\x00").lower(): child.name for child in kind}
        self._value, self._typed = names.get("value"), names.get("typed_value")
        self._kind: pa.DataType = None if self._typed is None else kind.field(self._typed).type
        self._fields: dict[str, tuple[str, _Shredded]] = {}
        self._element: _Shredded | None = None
        if self._kind is not None and pa.types.is_struct(self._kind):
            self._fields = {child.name.lstrip("\x00"): (child.name, _Shredded(child.type)) for child in self._kind}
        elif self._kind is not None and (pa.types.is_list(self._kind) or pa.types.is_large_list(self._kind)):
            self._element = _Shredded(self._kind.value_type)

    def body(self, row: Mapping[str, Any], ids: Mapping[str, int]) -> bytes | None:
        """Return the bytes of a value; None if the field is missing."""
        value: bytes | None = None if self._value is None else row[self._value]
        typed = None if self._typed is None else row[self._typed]
        if typed is None:
            return value
        if self._element is not None:
            return _array([self._element.body(each, ids) or _tag(NULL) for each in typed])
        if pa.types.is_struct(self._kind):
            fields = {} if value is None else _fields_of(value, ids)
            for name, (column, level) in self._fields.items():
                part = None if typed[column] is None else level.body(typed[column], ids)
                if part is not None:
                    fields[name] = part
            return _object(fields, ids)
        return _typed_body(typed, self._kind)


def _fields_of(value: bytes, ids: Mapping[str, int]) -> dict[str, bytes]:
    """Return the bytes of each field of an object."""
    if value[0] & 3 != OBJECT:
        raise ValueError("a value beside typed fields is no object")
    names = {number: name for name, number in ids.items()}
    places = places_of(value, 0)
    ends = sorted([place for _, place in places] + [len(value)])
    return {names[number]: value[place : ends[ends.index(place) + 1]] for number, place in places}


def _typed_body(value: Any, kind: pa.DataType) -> bytes:
    """Return the bytes of a value of a typed column, of the type that the column has."""
    types = pa.types
    for is_kind, number in (
        (types.is_int8, INT8),
        (types.is_int16, INT16),
        (types.is_int32, INT32),
        (types.is_int64, INT64),
    ):
        if is_kind(kind):
            return _tag(number) + struct.pack(FIXED[number], value)
    if types.is_float32(kind):
        return _tag(FLOAT) + struct.pack("<f", value)
    if types.is_decimal(kind):
        number = DECIMAL4 if kind.precision <= 9 else DECIMAL8 if kind.precision <= 18 else DECIMAL16
        unscaled = int(value.scaleb(kind.scale, DIGITS))
        return _tag(number) + bytes([kind.scale]) + unscaled.to_bytes(DECIMAL_BYTES[number], "little", signed=True)
    if types.is_fixed_size_binary(kind) and kind.byte_width == 16:
        return _body(uuid.UUID(bytes=value), {})
    return _body(value, {})
