"""Maps the types of Zed to those of Spark, and converts values to columns.

- bool, string, bytes, signed integers and floats: the Spark type of the same size
- float16: float
- uint8, uint16, uint32, uint64: smallint, int, bigint, decimal(20,0)
- time: timestamp
- duration: bigint, in nanoseconds
- ip, net, type, enum: string, with their text
- record: struct
- array, set: array
- map: map
- error: the type of the value that it holds
- union: string, with JSON text
- null: string
"""

from __future__ import annotations

import json
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from lake_core.delta.schema import schema_from_arrow, schema_to_json
from lake_core.pool import types
from lake_core.pool.arrow.arrays import valid
from lake_core.pool.arrow.arrow_type import arrow_type
from lake_core.pool.arrow.bodies import validity
from lake_core.pool.arrow.table import WHOLE, struct_array
from lake_core.pool.arrow.type_key import TYPE_KEY
from lake_core.pool.types import (
    ArrayType,
    EnumType,
    ErrorType,
    Field,
    MapType,
    NamedType,
    RecordType,
    SetType,
    Type,
    fields_of,
    under,
)
from lake_core.pool.zson.type_text import format_type
from lake_core.spark.errors import InvalidColumns, InvalidValues

_TIMESTAMP: Final = pa.timestamp("us", "UTC")
_WIDENED: Final[dict[Type, pa.DataType]] = {
    types.UINT8: pa.int16(),
    types.UINT16: pa.int32(),
    types.UINT32: pa.int64(),
    types.UINT64: pa.decimal128(20, 0),
    types.FLOAT16: pa.float32(),
    types.TIME: _TIMESTAMP,
    types.DURATION: pa.int64(),
    types.NULL: pa.string(),
}
"""Primitive types whose Arrow type Spark lacks, and the types that hold their values."""


def _columns_of(type: Type) -> tuple[Field, ...]:
    """Return the columns for values of a type. They are its fields, or `this` if the values are not records."""
    return fields_of(type) or (Field(WHOLE, type),)


def arrow_schema_of(type: Type) -> pa.Schema:
    """Return the Arrow schema of the columns for values of a type without unions.

    Raises InvalidColumns for names that Spark mixes up.
    """
    _check_names(type)
    return pa.schema([(each.name, _column_type(each.type)) for each in _columns_of(type)])


def spark_schema_of(type: Type) -> T.StructType:
    """Return the Spark schema of the columns for values of a type without unions.

    Metadata of each column keeps the Zed type.

    Raises InvalidColumns for names that Spark mixes up.
    """
    schema = T.StructType.fromJson(json.loads(schema_to_json(schema_from_arrow(arrow_schema_of(type)))))
    for column, each in zip(schema, _columns_of(type), strict=True):
        column.metadata = {TYPE_KEY.decode(): format_type(each.type)}
    return schema


def _check_names(type: Type) -> None:
    match type:
        case NamedType(_, inner) | ErrorType(inner) | ArrayType(inner) | SetType(inner):
            _check_names(inner)
        case MapType(key, value):
            _check_names(key)
            _check_names(value)
        case RecordType(fields):
            names: dict[str, str] = {}
            for each in fields:
                other = names.setdefault(each.name.lower(), each.name)
                if other != each.name:
                    raise InvalidColumns(
                        f"records have the fields {other!r} and {each.name!r}, which Spark cannot tell apart: choose "
                        "the records of one type by shape="
                    )
                _check_names(each.type)


def _column_type(type: Type) -> pa.DataType:
    plain = under(type)
    match plain:
        case RecordType(fields):
            return pa.struct([pa.field(each.name, _column_type(each.type)) for each in fields])
        case ArrayType(element) | SetType(element):
            return pa.list_(pa.field("item", _column_type(element)))
        case MapType(key, value):
            return pa.map_(_column_type(key), _column_type(value))
        case ErrorType(inner):
            return _column_type(inner)
        case EnumType():
            return pa.string()
    return _WIDENED[plain] if plain in _WIDENED else arrow_type(plain)


def to_batch(values: pa.Array, type: Type, schema: pa.Schema, *, truncate_times: bool) -> pa.RecordBatch:
    """Return values of a type without unions as rows.

    Args:
        values: The values, of the type's Arrow type.
        type: Their type.
        schema: Its `arrow_schema_of`.
        truncate_times: Cut times off at microseconds.

    Raises:
        InvalidValues: A time is between two microseconds, or a map has a null key.
    """
    # The fields of a null record are null themselves.
    columns = [values.field(number) for number in range(len(fields_of(type)))] or [values]
    converter = _Converter(truncate_times)
    converted = [
        converter.column(column, each.type, each.name) for column, each in zip(columns, _columns_of(type), strict=True)
    ]
    return pa.RecordBatch.from_arrays(converted, schema=schema)


class _Converter:
    def __init__(self, truncate_times: bool) -> None:
        self._truncate_times = truncate_times

    def column(self, array: pa.Array, type: Type, name: str) -> pa.Array:
        plain = under(type)
        match plain:
            case RecordType(fields):
                columns = [
                    self.column(array.field(number), each.type, f"{name}.{each.name}")
                    for number, each in enumerate(fields)
                ]
                return struct_array([each.name for each in fields], columns, len(array), is_valid=valid(array))
            case ArrayType(element) | SetType(element):
                return _nested(array, _column_type(plain), self.column(array.values, element, name))
            case MapType(key, value):
                keys, values = array.values.field(0), array.values.field(1)
                if keys.null_count:
                    raise InvalidValues(
                        f"a map in {name!r} has a null key, which Spark's maps do not allow: "
                        "read other records with shape="
                    )
                pair = [self.column(keys, key, name), self.column(values, value, name)]
                return _nested(array, _column_type(plain), struct_array(("key", "value"), pair, len(array.values)))
            case ErrorType(inner):
                return self.column(array, inner, name)
        if plain == types.TIME:
            return self._times(array, name)
        return array.cast(_column_type(plain))

    def _times(self, array: pa.Array, name: str) -> pa.Array:
        if self._truncate_times:
            array = pc.floor_temporal(array, unit="microsecond")
        try:
            return array.cast(_TIMESTAMP)
        except pa.ArrowInvalid:
            raise InvalidValues(
                f"times in {name!r} have nanoseconds, which Spark's timestamps cannot hold: "
                "truncate them with truncate_times=True"
            ) from None


def _nested(array: pa.Array, type: pa.DataType, entries: pa.Array) -> pa.Array:
    """Return lists or maps with other entries."""
    bitmap = validity(array.is_valid().to_numpy(zero_copy_only=False))
    offsets = pa.py_buffer(np.ascontiguousarray(array.offsets.to_numpy()))
    return pa.Array.from_buffers(type, len(array), [bitmap, offsets], children=[entries])
