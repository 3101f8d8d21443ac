"""Conversion between Zed types and Arrow types.

Integers, floats, bool, string and bytes (binary) have the Arrow type of their name; time is timestamp[ns, UTC],
duration is duration[ns]; ip, net and type are their text; null is null. A record is a struct, an array or set a list, a
map a list of structs of key and value (keys can be null), an enum a dictionary of its symbols. A union is a dense union
of its types by number; its last child represents null. Errors and named types have the Arrow type of what they hold.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import pyarrow as pa

from lake_core.pool import types
from lake_core.pool.errors import InvalidType
from lake_core.pool.types import (
    ArrayType,
    EnumType,
    ErrorType,
    Field,
    MapType,
    NamedType,
    PrimitiveType,
    RecordType,
    SetType,
    Type,
    UnionType,
)

MAX_UNION_TYPES: Final = 126
NULL_CHILD: Final = "null"
"""The name of the child that represents null in a union."""

_PRIMITIVES: Final = {
    types.UINT8: pa.uint8(),
    types.UINT16: pa.uint16(),
    types.UINT32: pa.uint32(),
    types.UINT64: pa.uint64(),
    types.INT8: pa.int8(),
    types.INT16: pa.int16(),
    types.INT32: pa.int32(),
    types.INT64: pa.int64(),
    types.DURATION: pa.duration("ns"),
    types.TIME: pa.timestamp("ns", "UTC"),
    types.FLOAT16: pa.float16(),
    types.FLOAT32: pa.float32(),
    types.FLOAT64: pa.float64(),
    types.BOOL: pa.bool_(),
    types.BYTES: pa.binary(),
    types.STRING: pa.string(),
    types.IP: pa.string(),
    types.NET: pa.string(),
    types.TYPE: pa.string(),
    types.NULL: pa.null(),
}


@lru_cache(maxsize=1024)
def arrow_type(type: Type) -> pa.DataType:
    """Return the Arrow type of the values of a Zed type.

    Raises InvalidType for a union of more types than Arrow allows.
    """
    match type:
        case NamedType(_, inner) | ErrorType(inner):
            return arrow_type(inner)
        case PrimitiveType():
            return _PRIMITIVES[type]
        case RecordType(fields):
            return pa.struct([pa.field(each.name, arrow_type(each.type)) for each in fields])
        case ArrayType(element) | SetType(element):
            return pa.list_(pa.field("item", arrow_type(element)))
        case MapType(key, value):
            return pa.list_(pa.field("item", entry_type(key, value)))
        case EnumType():
            return pa.dictionary(pa.int32(), pa.string())
        case UnionType(members):
            if len(members) > MAX_UNION_TYPES:
                raise InvalidType(
                    f"a union of {len(members)} types cannot be read as an Arrow column, which can have at most "
                    f"{MAX_UNION_TYPES} types; read the values one by one"
                )
            children = [pa.field(str(number), arrow_type(member)) for number, member in enumerate(members)]
            return pa.dense_union([*children, pa.field(NULL_CHILD, pa.null())])
    raise AssertionError(f"unexpected type {type!r}")


def entry_type(key: Type, value: Type) -> pa.DataType:
    """Return the Arrow type of the entries of a map."""
    return pa.struct([pa.field("key", arrow_type(key)), pa.field("value", arrow_type(value))])


_INFERRED: Final[dict[pa.DataType, PrimitiveType]] = {
    **{arrow: zed for zed, arrow in _PRIMITIVES.items() if zed not in (types.IP, types.NET, types.TYPE)},
    pa.large_string(): types.STRING,
    pa.string_view(): types.STRING,
    pa.large_binary(): types.BYTES,
    pa.binary_view(): types.BYTES,
    pa.date32(): types.TIME,
    pa.date64(): types.TIME,
}


def inferred_type(arrow: pa.DataType) -> Type:
    """Return the Zed type that corresponds to an Arrow type. Raises InvalidType if none does."""
    if arrow in _INFERRED:
        return _INFERRED[arrow]
    if pa.types.is_timestamp(arrow):
        return types.TIME
    if pa.types.is_duration(arrow):
        return types.DURATION
    if pa.types.is_fixed_size_binary(arrow):
        return types.BYTES
    if pa.types.is_dictionary(arrow):
        return inferred_type(arrow.value_type)
    if pa.types.is_struct(arrow):
        return RecordType(
            tuple(
                Field(arrow.field(number).name, inferred_type(arrow.field(number).type))
                for number in range(arrow.num_fields)
            )
        )
    if pa.types.is_map(arrow):
        return MapType(inferred_type(arrow.key_type), inferred_type(arrow.item_type))
    if is_list(arrow):
        return ArrayType(inferred_type(arrow.value_type))
    raise InvalidType(f"the Arrow type {arrow} has no corresponding Zed type; cast the column to another type")


def is_list(arrow: pa.DataType) -> bool:
    """Return whether values of an Arrow type are lists of one type, of any length or of a fixed one."""
    return bool(pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow))
