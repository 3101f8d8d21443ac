"""Names of Arrow types in Spark SQL."""

from __future__ import annotations

import re

import pyarrow as pa


def spark_type_name(data_type: pa.DataType) -> str:
    """Return the Spark SQL name of a type."""
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


def arrow_type_of(name: str) -> pa.DataType:
    """Return the Arrow type of a type name of Spark SQL (`bigint`, `array<struct<a:int>>`) or Arrow (`int64`).

    Raises ValueError for any other name.
    """
    text = name.strip()
    outer = _OUTER.fullmatch(text)
    if outer is None:
        return _leaf(text)
    kind, parts = outer[1].lower(), _split(outer[2])
    if kind == "array" and len(parts) == 1:
        return pa.list_(pa.field("element", arrow_type_of(parts[0])))
    if kind == "map" and len(parts) == 2:
        return pa.map_(arrow_type_of(parts[0]), arrow_type_of(parts[1]))
    if kind == "struct" and all(":" in part for part in parts):
        fields = [part.split(":", 1) for part in parts]
        return pa.struct([pa.field(child.strip().strip("`"), arrow_type_of(kind_)) for child, kind_ in fields])
    raise ValueError(f"{name!r} is not a type: use Spark SQL's names, such as bigint, decimal(10,2) or array<string>")


def _leaf(text: str) -> pa.DataType:
    folded = text.lower()
    decimal = _DECIMAL.fullmatch(folded)
    if decimal is not None and int(decimal[1] or 10) <= 38:
        return pa.decimal128(int(decimal[1] or 10), int(decimal[2] or 0))
    if folded in _ARROW_OF:
        return _ARROW_OF[folded]
    try:
        return pa.type_for_alias(folded)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a type: use Spark SQL's names, such as bigint, decimal(10,2) or array<string>"
        ) from None


def _split(text: str) -> list[str]:
    """Split a list at the commas outside brackets."""
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        depth += (char in "<(") - (char in ">)")
        if char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


_OUTER = re.compile(r"(array|map|struct)\s*<(.*)>", re.IGNORECASE | re.DOTALL)
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\(\s*(\d{1,2})\s*(?:,\s*(\d{1,2})\s*)?\))?")
_ARROW_OF = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "text": pa.string(),
    "varchar": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
