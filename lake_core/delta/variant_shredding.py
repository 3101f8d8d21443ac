"""Shredded variants: parts of the values that data files store in columns of their own.

A level of a shredded variant is a struct of `value`, the bytes of a value of any type, and `typed_value`, which has the
values of one type. Objects and arrays have levels inside. A variant is shredded only if putting it together gives the
same bytes, so that nothing changes by being written.
Protocol section: Variant Shredding. Format: Variant Shredding of Apache Parquet.
"""

from __future__ import annotations

import struct
import uuid
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta.errors import CorruptDataFile
from lake_core.delta.numpy_arrays import integers
from lake_core.delta.variant_encoding import array_body, body_of, object_body, tag
from lake_core.variant_values import (
    ARRAY,
    BINARY,
    DATE,
    DECIMAL_BYTES,
    DIGITS,
    DOUBLE,
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
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NS,
    TIMESTAMP_NTZ,
    TIMESTAMP_NTZ_NS,
    TRUE,
    VARIANT,
    field_names,
    is_variant,
    places_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

STORED: Final = pa.struct([child.with_nullable(False) for child in VARIANT])
"""The type of variants in data files that do not shred them."""

_SAMPLE_ROWS: Final = 4_096
_MOST_FIELDS: Final = 300
"""The most fields that a column of variants is shredded into, as in Spark."""
_DEEPEST: Final = 50
_RARE: Final = 10
"""A field that fewer than one in so many objects have stays with the bytes of the object."""


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of fields of a variant."""

    by_id: list[str]
    ids: dict[str, int]


# Reading


def whole(array: pa.StructArray, kind: pa.DataType) -> pa.StructArray:
    """Return variants as `VARIANT`, or as `STORED`: those that a data file has shredded are put together.

    Raises CorruptDataFile.
    """
    parts = _children(array)
    if "metadata" not in parts or not {"value", "typed_value"} & parts.keys():
        raise CorruptDataFile(f"a column of variants is {array.type} in a data file")
    mask = array.is_null() if array.null_count else None
    metadata = parts["metadata"].cast(pa.binary())
    if "typed_value" in parts:
        with _readable():
            bodies = _bodies(array, _names_of(metadata))
        value = pa.array(bodies, pa.binary()).fill_null(tag(NULL))
    else:
        value = parts["value"].cast(pa.binary())
    if metadata.null_count or value.null_count:
        _check_whole(array, metadata, value)
    if mask is not None:
        # What a null holds is never read, but must be there.
        metadata, value = (column.fill_null(b"") for column in (metadata, value))
    return pa.StructArray.from_arrays([value, metadata], fields=list(kind), mask=mask)


@contextmanager
def _readable() -> Iterator[None]:
    """Say which error it is that the bytes of a variant are none."""
    try:
        yield
    except (KeyError, IndexError, struct.error, ValueError) as error:
        raise CorruptDataFile(f"a variant cannot be read ({error!r}): write it anew") from None


def _check_whole(array: pa.StructArray, *parts: pa.Array) -> None:
    """Raise CorruptDataFile for a variant without its metadata or its value."""
    for part in parts:
        if pc.any(pc.and_(array.is_valid(), part.is_null())).as_py():
            raise CorruptDataFile("a variant has no metadata or no value, though it is not null: write it anew")


def _children(level: pa.StructArray) -> dict[str, pa.Array]:
    """Return the parts of a level, which are null where the level is, by their names."""
    return {child.name.lstrip("\x00").lower(): part for child, part in zip(level.type, level.flatten(), strict=True)}


def _names_of(metadata: pa.Array) -> list[_Names]:
    """Return the names of each variant. Variants of the same metadata share them."""
    known: dict[bytes | None, _Names] = {None: _Names([], {})}
    binaries = metadata.to_pylist()
    for binary in binaries:
        if binary not in known:
            by_id = field_names(binary)
            known[binary] = _Names(by_id, {name: number for number, name in enumerate(by_id)})
    return [known[binary] for binary in binaries]


def _bodies(level: pa.StructArray, names: Sequence[_Names]) -> list[bytes | None]:
    """Return the bytes of each value of a level; None where it is missing."""
    parts = _children(level)
    rest = parts["value"].to_pylist() if "value" in parts else [None] * len(level)
    typed = parts.get("typed_value")
    if typed is None:
        return rest
    if pa.types.is_struct(typed.type):
        return _objects(typed, rest, names)
    if pa.types.is_list(typed.type) or pa.types.is_large_list(typed.type):
        bodies = _arrays(typed, names)
    else:
        bodies = _typed_bodies(typed)
    return [body if other is None else other for other, body in zip(bodies, rest, strict=True)]


def _objects(typed: pa.StructArray, rest: Sequence[bytes | None], names: Sequence[_Names]) -> list[bytes | None]:
    columns = [
        (child.name.lstrip("\x00"), _bodies(part, names))
        for child, part in zip(typed.type, typed.flatten(), strict=True)
    ]
    objects = list(rest)
    for row in np.flatnonzero(typed.is_valid().to_numpy(zero_copy_only=False)).tolist():
        body = rest[row]
        fields = {} if body is None else _fields(body, names[row])
        for name, bodies in columns:
            if (field := bodies[row]) is not None:
                fields[name] = field
        objects[row] = object_body(fields, names[row].ids)
    return objects


def _arrays(typed: pa.ListArray, names: Sequence[_Names]) -> list[bytes | None]:
    counts = typed.value_lengths().to_pylist()
    elements = _bodies(typed.flatten(), _repeated(names, counts))
    bodies: list[bytes | None] = []
    end = 0
    for count in counts:
        end, start = end + (count or 0), end
        bodies.append(None if count is None else array_body([each or tag(NULL) for each in elements[start:end]]))
    return bodies


def _repeated(names: Sequence[_Names], counts: Sequence[int | None]) -> list[_Names]:
    return [each for each, count in zip(names, counts, strict=True) for _ in range(count or 0)]


def _fields(body: bytes, names: _Names) -> dict[str, bytes]:
    """Return the bytes of each field of an object, by name. Raises ValueError, IndexError or KeyError."""
    if body[0] & 3 != OBJECT:
        raise ValueError("a value beside typed fields is no object")
    places = places_of(body, 0)
    ends = _ends(body, places)
    return {names.by_id[number]: body[place : ends[place]] for number, place in places}


def _elements(body: bytes) -> list[bytes]:
    """Return the bytes of each element of an array. Raises IndexError."""
    places = places_of(body, 0)
    ends = _ends(body, places)
    return [body[place : ends[place]] for _, place in places]


def _ends(body: bytes, places: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Return where the value that begins at each place ends."""
    begins = sorted({place for _, place in places})
    return dict(pairwise([*begins, len(body)]))


def _typed_bodies(typed: pa.Array) -> list[bytes | None]:
    """Return the bytes of values of one type. Whole numbers and decimals take the smallest type, as in Spark."""
    kind = typed.type
    if isinstance(kind, pa.BaseExtensionType):
        typed, kind = typed.storage, kind.storage_type
    types = pa.types
    if types.is_timestamp(kind) or types.is_time(kind):
        number = _moment_type(kind)
        return _packed(typed.cast(pa.int64()), number, "<q")
    if types.is_date32(kind):
        return _packed(typed.cast(pa.int32()), DATE, "<i")
    if types.is_float32(kind):
        return _packed(typed, FLOAT, FIXED[FLOAT])
    values = typed.to_pylist()
    if types.is_fixed_size_binary(kind) and kind.byte_width == 16:
        values = [None if value is None else uuid.UUID(bytes=value) for value in values]
    return [None if value is None else body_of(value, {}) for value in values]


def _packed(numbers: pa.Array, kind: int, layout: str) -> list[bytes | None]:
    head, pack = tag(kind), struct.Struct(layout).pack
    return [None if number is None else head + pack(number) for number in numbers.to_pylist()]


def _moment_type(kind: pa.DataType) -> int:
    """Return the type in variants of an Arrow type of times. Raises ValueError."""
    if pa.types.is_time(kind):
        if kind.unit != "us":
            raise ValueError(f"values of type {kind}")
        return TIME
    if kind.unit not in ("us", "ns"):
        raise ValueError(f"values of type {kind}")
    if kind.unit == "ns":
        return TIMESTAMP_NTZ_NS if kind.tz is None else TIMESTAMP_NS
    return TIMESTAMP_NTZ if kind.tz is None else TIMESTAMP


# Writing


@dataclass(frozen=True, slots=True)
class ShreddedColumns:
    """The columns of variants that a data file shreds, and into what."""

    levels: Mapping[str, Level]

    @classmethod
    def of(cls, rows: pa.Table) -> ShreddedColumns:
        """Choose the columns of a file that begins with these rows, whose variants are `STORED`.

        Raises CorruptDataFile.
        """
        with _readable():
            levels = {child.name: _chosen(rows.column(child.name)) for child in rows.schema if is_variant(child.type)}
        return cls({name: level for name, level in levels.items() if level.is_typed})

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of the file."""
        for name, level in self.levels.items():
            place = schema.get_field_index(name)
            schema = schema.set(place, schema.field(place).with_type(level.column_type))
        return schema

    def shred(self, rows: pa.Table) -> pa.Table:
        """Return rows as the file has them. Raises CorruptDataFile."""
        schema = self.schema(rows.schema)
        for name, level in self.levels.items():
            place = rows.schema.get_field_index(name)
            with _readable():
                chunks = [_shredded(chunk, level) for chunk in rows.column(place).chunks]
            rows = rows.set_column(place, schema.field(place), pa.chunked_array(chunks, level.column_type))
        return rows


@dataclass(frozen=True, slots=True)
class Level:
    """A level of a shredded variant. It has one of a type, fields and an element, or none."""

    kind: pa.DataType | None = None
    """The type of the values that get into `typed_value`."""
    fields: Mapping[str, Level] | None = None
    element: Level | None = None

    @property
    def is_typed(self) -> bool:
        """Return whether there is a `typed_value`."""
        return self.typed is not None

    @property
    def typed(self) -> Any:
        """Return the type of `typed_value`, or None."""
        if self.fields is not None:
            return pa.struct([pa.field(name, level.type, nullable=False) for name, level in self.fields.items()])
        if self.element is not None:
            return pa.list_(pa.field("element", self.element.type, nullable=False))
        return self.kind

    @property
    def type(self) -> pa.StructType:
        """Return the type of the level."""
        parts = {"value": pa.binary()} | ({} if (typed := self.typed) is None else {"typed_value": typed})
        return pa.struct(list(parts.items()))

    @property
    def column_type(self) -> pa.StructType:
        """Return the type of a column of which this is the first level."""
        return pa.struct([pa.field("metadata", pa.binary(), nullable=False), *self.type])

    def column(self, bodies: Sequence[bytes | None], names: Sequence[_Names]) -> pa.StructArray:
        """Return values as this level has them, from their bytes. None is missing."""
        rest = list(bodies)
        if self.fields is not None:
            typed = self._objects(self.fields, rest, names)
        elif self.element is not None:
            typed = self._arrays(self.element, rest, names)
        elif self.kind is not None:
            typed = _typed(self.kind, rest)
        else:
            typed = None
        value = pa.array(rest, pa.binary())
        return pa.StructArray.from_arrays([value] if typed is None else [value, typed], fields=list(self.type))

    def _objects(self, fields: Mapping[str, Level], rest: list[bytes | None], names: Sequence[_Names]) -> pa.Array:
        columns: dict[str, list[bytes | None]] = {name: [None] * len(rest) for name in fields}
        is_other = np.ones(len(rest), np.bool_)
        for row, body in enumerate(rest):
            if body is None or body[0] & 3 != OBJECT:
                continue
            own = _fields(body, names[row])
            for name in fields.keys() & own.keys():
                columns[name][row] = own.pop(name)
            rest[row] = object_body(own, names[row].ids) if own else None
            is_other[row] = False
        children = [level.column(columns[name], names) for name, level in fields.items()]
        return pa.StructArray.from_arrays(children, fields=list(self.typed), mask=pa.array(is_other))

    def _arrays(self, element: Level, rest: list[bytes | None], names: Sequence[_Names]) -> pa.Array:
        elements: list[bytes | None] = []
        names_of_elements: list[_Names] = []
        ends = [0]
        is_other = np.ones(len(rest), np.bool_)
        for row, body in enumerate(rest):
            if body is not None and body[0] & 3 == ARRAY:
                own = _elements(body)
                elements += own
                names_of_elements += [names[row]] * len(own)
                rest[row], is_other[row] = None, False
            ends.append(len(elements))
        values = element.column(elements, names_of_elements)
        return pa.ListArray.from_arrays(
            integers(np.array(ends, np.int32)), values, type=self.typed, mask=pa.array(is_other)
        )


def _shredded(array: pa.StructArray, level: Level) -> pa.StructArray:
    """Return variants as a column of a level. Those that would come back with other bytes stay whole."""
    value, metadata = array.flatten()
    bodies, names = value.to_pylist(), _names_of(metadata)
    column = level.column(bodies, names)
    is_kept = [back != body for back, body in zip(_bodies(column, names), bodies, strict=True)]
    if any(is_kept):
        shredded = [None if kept else body for kept, body in zip(is_kept, bodies, strict=True)]
        column = level.column(shredded, names)
    rest, typed = column.flatten()
    rest = pc.if_else(pa.array(is_kept), value, rest)
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays([metadata.fill_null(b""), rest, typed], fields=list(level.column_type), mask=mask)


def _chosen(column: pa.ChunkedArray) -> Level:
    sample = column.slice(0, _SAMPLE_ROWS).combine_chunks()
    value, metadata = sample.drop_null().flatten()
    return _level(list(zip(value.to_pylist(), _names_of(metadata), strict=True)), _MOST_FIELDS, _DEEPEST)


def _level(values: Sequence[tuple[bytes, _Names]], most: int, deepest: int) -> Level:
    """Return the level for values: that of the type that most of them have, apart from the variant null.

    Args:
        values: The bytes of each value, and the names of its variant.
        most: The most columns that it may have.
        deepest: The most levels inside.
    """
    kinds = Counter(kind for body, _ in values if (kind := _kind(body)) != _NULLS)
    if not kinds or not most:
        return Level()
    kind, count = kinds.most_common(1)[0]
    if 2 * count <= kinds.total() or kind is None:
        return Level()
    if not isinstance(kind, int):
        return Level(kind)
    if not deepest:
        return Level()
    alike = [(body, names) for body, names in values if _kind(body) == kind]
    if kind == ARRAY:
        inner = [(element, names) for body, names in alike for element in _elements(body)]
        return Level(element=_level(inner, most, deepest - 1))
    by_name: dict[str, list[tuple[bytes, _Names]]] = {}
    for body, names in alike:
        for name, field in _fields(body, names).items():
            by_name.setdefault(name, []).append((field, names))
    # Readers mark names by a zero byte at the front.
    frequent = {
        name: fields for name, fields in by_name.items() if _RARE * len(fields) >= len(alike) and "\x00" not in name
    }
    chosen = sorted(frequent, key=lambda name: -len(frequent[name]))[:most]
    fields = {name: _level(frequent[name], most // len(chosen), deepest - 1) for name in sorted(chosen)}
    return Level(fields=fields) if fields else Level()


_NULLS: Final = pa.null()
_Kind: TypeAlias = pa.DataType | int | None


def _kind(body: bytes) -> _Kind:
    """Return the type that a value is shredded to; OBJECT, ARRAY, or None for a type that is not shredded."""
    basic, header = body[0] & 3, body[0] >> 2
    if basic == SHORT_TEXT:
        return pa.string()
    if basic != PRIMITIVE:
        return basic
    if header in DECIMAL_BYTES:
        return pa.decimal128(MOST_DIGITS, body[1]) if body[1] <= MOST_DIGITS else None
    return _KINDS.get(header)


_KINDS: Final[Mapping[int, pa.DataType]] = {
    NULL: _NULLS,
    TRUE: pa.bool_(),
    FALSE: pa.bool_(),
    INT8: pa.int64(),
    INT16: pa.int64(),
    INT32: pa.int64(),
    INT64: pa.int64(),
    DOUBLE: pa.float64(),
    FLOAT: pa.float32(),
    DATE: pa.date32(),
    TIMESTAMP: pa.timestamp("us", "UTC"),
    TIMESTAMP_NTZ: pa.timestamp("us"),
    BINARY: pa.binary(),
    TEXT: pa.string(),
}


def _typed(kind: pa.DataType, rest: list[bytes | None]) -> pa.Array:
    """Return the values of one type, and take them out of the bytes."""
    values: list[Any] = [None] * len(rest)
    for row, body in enumerate(rest):
        if body is not None and _kind(body) == kind:
            values[row], rest[row] = _plain(body), None
    if pa.types.is_date(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


def _plain(body: bytes) -> Any:
    """Return a value of a primitive type, times as numbers."""
    basic, header = body[0] & 3, body[0] >> 2
    if basic == SHORT_TEXT:
        return body[1 : 1 + header].decode()
    if header in (TRUE, FALSE):
        return header == TRUE
    if header in DECIMAL_BYTES:
        unscaled = int.from_bytes(body[2 : 2 + DECIMAL_BYTES[header]], "little", signed=True)
        return Decimal(unscaled).scaleb(-body[1], DIGITS)
    if header in (TEXT, BINARY):
        content = body[5 : 5 + int.from_bytes(body[1:5], "little")]
        return content.decode() if header == TEXT else content
    layout = FIXED.get(header) or ("<i" if header == DATE else "<q")
    return struct.unpack_from(layout, body, 1)[0]
