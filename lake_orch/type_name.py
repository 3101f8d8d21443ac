"""Arrow types by the names that Spark SQL gives them."""

from __future__ import annotations

import pyarrow as pa


def spark_type_name(data_type: pa.DataType) -> str:
    """A type as Spark SQL spells it."""
    types = pa.types
    if types.is_dictionary(data_type):
        return spark_type_name(data_type.value_type)
    if types.is_struct(data_type):
        return f"struct<{','.join(f'{child.name}:{spark_type_name(child.type)}' for child in data_type)}>"
    if types.is_map(data_type):
        return f"map<{spark_type_name(data_type.key_type)},{spark_type_name(data_type.item_type)}>"
    if types.is_list(data_type) or types.is_large_list(data_type):
        return f"array<{spark_type_name(data_type.value_type)}>"
    if types.is_timestamp(data_type):
        return "timestamp_ntz" if data_type.tz is None else "timestamp"
    if types.is_decimal(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    return _SPARK_NAMES.get(str(data_type), str(data_type))


_SPARK_NAMES = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "uint8": "smallint",
    "uint16": "int",
    "uint32": "bigint",
    "large_string": "string",
    "string_view": "string",
    "large_binary": "binary",
    "date32[day]": "date",
    "null": "void",
}
