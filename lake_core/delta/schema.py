"""Delta schemas, and their conversion from and to Spark's JSON and Arrow.

Protocol sections: Schema Serialization Format, Primitive Types. In Arrow, timestamps are in UTC and microseconds, and
offsets have 32 bits.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from lake_core.delta.errors import MalformedMetadata, NaiveTimestamp, SchemaMismatch, UnsupportedType
from lake_core.delta.variant import VARIANT, is_variant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ARROW_METADATA_KEY = b"SPARK::metadata::json"
"""The key of an Arrow field's metadata that holds its Delta (and Spark) field metadata, as in PySpark."""

_MAX_NESTING = 100

_ARROW_OF: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    "variant": VARIANT,
}

_DECIMAL = re.compile(r"decimal\(\s*([0-9]{1,9})\s*,\s*(-?[0-9]{1,9})\s*\)")
_MAX_PRECISION = 38


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A leaf type, by its name in Spark's JSON: `long`, `decimal(10,2)` and so on."""

    name: str

    def to_arrow(self, path: str = "") -> pa.DataType:
        """Return the Arrow type; `path` names the column in errors.

        Raises UnsupportedType for a type without an Arrow form.
        """
        if self.name in _ARROW_OF:
            return _ARROW_OF[self.name]
        match = _DECIMAL.fullmatch(self.name)
        if match is None:
            raise UnsupportedType(
                f"column {path!r} is of type {self.name!r}, which is not supported: read the table with another Delta "
                "client, or drop the column there"
            )
        return pa.decimal128(int(match[1]), int(match[2]))


@dataclass(frozen=True, slots=True)
class ArrayType:
    """An array, with the type of its elements."""

    element: DataType
    contains_null: bool = True


@dataclass(frozen=True, slots=True)
class MapType:
    """A map, with the types of its keys and values."""

    key: DataType
    value: DataType
    value_contains_null: bool = True


@dataclass(frozen=True, slots=True)
class StructField:
    """A column, or a field inside one."""

    name: str
    type: DataType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Spark's field metadata: comments, invariants, generation expressions, column mapping ids, …"""


@dataclass(frozen=True, slots=True)
class StructType:
    """A struct; the schema of a table is one."""

    fields: tuple[StructField, ...]

    @property
    def names(self) -> list[str]:
        """Return the names of the fields, in order."""
        return [child.name for child in self.fields]

    def field(self, name: str) -> StructField:
        """Return the field of that name: the exact one, else one that differs only in case.

        Raises KeyError if there is none.
        """
        folded: StructField | None = None
        for child in self.fields:
            if child.name == name:
                return child
            if child.name.lower() == name.lower():
                folded = child
        if folded is None:
            raise KeyError(name)
        return folded

    def to_arrow(self) -> pa.Schema:
        """Convert to the Arrow schema in which the table's rows are read and written."""
        return pa.schema([_field_to_arrow(child, child.name) for child in self.fields])


DataType: TypeAlias = PrimitiveType | ArrayType | MapType | StructType

VOID = PrimitiveType("void")
"""The type of a column that has only nulls, as Spark calls it."""


def walk(schema: StructType) -> Iterator[StructField]:
    """Yield every struct field, at any depth."""
    return (child for struct in structs(schema) for child in struct.fields)


def structs(data_type: DataType) -> Iterator[StructType]:
    """Yield every struct in a type, at any depth, itself included."""
    return (kind for kind in _types_in(data_type) if isinstance(kind, StructType))


def leaf_types(data_type: DataType) -> Iterator[PrimitiveType]:
    """Yield every primitive type in a type, at any depth."""
    return (kind for kind in _types_in(data_type) if isinstance(kind, PrimitiveType))


def _types_in(data_type: DataType) -> Iterator[DataType]:
    yield data_type
    match data_type:
        case ArrayType(element=element):
            yield from _types_in(element)
        case MapType(key=key, value=value):
            yield from _types_in(key)
            yield from _types_in(value)
        case StructType(fields=fields):
            for child in fields:
                yield from _types_in(child.type)


def edited_fields(schema: StructType, edit: Callable[[StructField], StructField]) -> StructType:
    """Return a schema with each field, at any depth, replaced by what `edit` returns for it. Its type stays."""

    def edited(kind: DataType) -> DataType:
        match kind:
            case StructType():
                return edited_fields(kind, edit)
            case ArrayType(element=element, contains_null=nulls):
                return ArrayType(edited(element), nulls)
            case MapType(key=key, value=value, value_contains_null=nulls):
                return MapType(edited(key), edited(value), nulls)
            case _:
                return kind

    def edited_field(child: StructField) -> StructField:
        new = edit(child)
        return StructField(new.name, edited(new.type), new.nullable, new.metadata)

    return StructType(tuple(map(edited_field, schema.fields)))


def schema_from_json(body: Any) -> StructType:
    """Parse a schema from decoded JSON.

    Raises MalformedMetadata for anything else, and for nesting past 100 levels.
    """
    parsed = _type_from_json(body, 0)
    if not isinstance(parsed, StructType):
        raise MalformedMetadata("a table's schema is a struct")
    return parsed


def schema_to_json(schema: StructType) -> str:
    """Encode the schema as Spark writes it: compact JSON."""
    return json.dumps(_type_to_json(schema), separators=(",", ":"), ensure_ascii=False)


def schema_from_arrow(schema: pa.Schema) -> StructType:
    """Return the Delta schema that holds data of an Arrow schema without loss.

    Large, view and dictionary types are decoded, unsigned integers widened, timestamps become microseconds. What has
    only nulls is void.
    Raises UnsupportedType if that is impossible; SchemaMismatch for names that differ only in case.
    """
    if not isinstance(schema, pa.Schema):
        raise SchemaMismatch(f"a schema must be a pyarrow Schema, not {type(schema).__name__}")
    struct = StructType(tuple(_field_from_arrow(child, child.name) for child in schema))
    check_names(struct)
    return struct


def check_names(schema: StructType) -> None:
    """Raise SchemaMismatch if a struct at any level has an empty name, or names that differ only in case."""
    for struct in structs(schema):
        names: dict[str, str] = {}
        for child in struct.fields:
            if not isinstance(child.name, str) or not child.name:
                raise SchemaMismatch(f"a column's name must be text that is not empty, not {child.name!r}")
            if any("\ud800" <= letter <= "\udfff" for letter in child.name):
                raise SchemaMismatch(
                    f"the name of column {child.name!r} is not Unicode text: it holds half of a surrogate pair"
                )
            if child.name.lower() in names:
                other = names[child.name.lower()]
                raise SchemaMismatch(
                    f"columns {other!r} and {child.name!r} have the same name, because Delta ignores case: "
                    "rename one of them"
                )
            names[child.name.lower()] = child.name


def check_storable(schema: StructType, before: StructType | None = None, *, allow_void: bool = False) -> None:
    """Raise UnsupportedType for a column, or a field inside one, that data files cannot hold.

    These are those without a type (void), and structs without fields. What a table has `before` may stay.
    """
    known = () if before is None else tuple(_unstorable(before, ""))
    for path, kind in _unstorable(schema, ""):
        if (path, kind) in known or (allow_void and kind == VOID):
            continue
        if kind == VOID:
            raise UnsupportedType(
                f"column {path!r} has only nulls, so its type is not known: cast it before writing, or leave it out"
            )
        raise UnsupportedType(
            f"column {path!r} is a struct without fields, which data files cannot hold: add a field, or leave it out"
        )


def _unstorable(kind: DataType, path: str) -> Iterator[tuple[str, DataType]]:
    below = f"{path}." if path else ""
    match kind:
        case PrimitiveType() if kind == VOID:
            yield path, kind
        case StructType(fields=()) if path:
            yield path, kind
        case StructType(fields=fields):
            for child in fields:
                yield from _unstorable(child.type, below + child.name)
        case ArrayType(element=element):
            yield from _unstorable(element, f"{below}element")
        case MapType(key=key, value=value):
            yield from _unstorable(key, f"{below}key")
            yield from _unstorable(value, f"{below}value")


def _type_from_json(body: Any, depth: int) -> DataType:
    if depth > _MAX_NESTING:
        raise MalformedMetadata(f"the table's schema nests deeper than {_MAX_NESTING} levels")
    if isinstance(body, str):
        return _primitive_from_json(body)
    try:
        match body.get("type"):
            case "struct":
                return StructType(
                    tuple(
                        StructField(
                            _text(child["name"]),
                            _type_from_json(child["type"], depth + 1),
                            bool(child.get("nullable", True)),
                            _object(child.get("metadata"), f"the metadata of column {child['name']!r}"),
                        )
                        for child in body["fields"]
                    )
                )
            case "array":
                return ArrayType(_type_from_json(body["elementType"], depth + 1), bool(body.get("containsNull", True)))
            case "map":
                return MapType(
                    _type_from_json(body["keyType"], depth + 1),
                    _type_from_json(body["valueType"], depth + 1),
                    bool(body.get("valueContainsNull", True)),
                )
            case other:
                raise MalformedMetadata(f"the table's schema holds the unknown type {other!r}")
    except (KeyError, TypeError, AttributeError) as error:
        raise MalformedMetadata(f"the table's schema is malformed near {str(body)[:80]!r}: {error!r}") from None


def _primitive_from_json(name: str) -> PrimitiveType:
    if name.startswith("decimal("):
        match = _DECIMAL.fullmatch(name)
        if match is None or not 1 <= int(match[1]) <= _MAX_PRECISION or not 0 <= int(match[2]) <= int(match[1]):
            raise MalformedMetadata(
                f"the table's schema holds the type {name[:80]!r}: a decimal has 1 to {_MAX_PRECISION} digits, of "
                "which its scale is a part"
            )
    return PrimitiveType("decimal(10,0)" if name == "decimal" else "void" if name == "null" else name)


def _object(value: Any, what: str) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise MalformedMetadata(f"{what} is {str(value)[:80]!r}, not an object")
    return value or {}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise MalformedMetadata(f"a column's name is {value!r}, not text")
    return value


def _type_to_json(data_type: DataType) -> Any:
    match data_type:
        case PrimitiveType(name=name):
            return name
        case ArrayType(element=element, contains_null=nulls):
            return {"type": "array", "elementType": _type_to_json(element), "containsNull": nulls}
        case MapType(key=key, value=value, value_contains_null=nulls):
            return {
                "type": "map",
                "keyType": _type_to_json(key),
                "valueType": _type_to_json(value),
                "valueContainsNull": nulls,
            }
        case StructType(fields=fields):
            return {
                "type": "struct",
                "fields": [
                    {
                        "name": c.name,
                        "type": _type_to_json(c.type),
                        "nullable": c.nullable,
                        "metadata": dict(c.metadata),
                    }
                    for c in fields
                ],
            }


def arrow_type(data_type: DataType, path: str = "") -> pa.DataType:
    """Return the Arrow type in which values of a Delta type are read; `path` names the column in errors.

    Raises UnsupportedType.
    """
    match data_type:
        case PrimitiveType():
            return data_type.to_arrow(path)
        case ArrayType(element=element, contains_null=nulls):
            return pa.list_(pa.field("element", arrow_type(element, f"{path}.element"), nullable=nulls))
        case MapType(key=key, value=value, value_contains_null=nulls):
            if key == VOID:
                raise UnsupportedType(
                    f"column {path!r} is a map whose keys are of type void: cast it, for example to MAP<STRING, STRING>"
                )
            return pa.map_(
                pa.field("key", arrow_type(key, f"{path}.key"), nullable=False),
                pa.field("value", arrow_type(value, f"{path}.value"), nullable=nulls),
            )
        case StructType(fields=fields):
            return pa.struct([_field_to_arrow(child, f"{path}.{child.name}") for child in fields])


def _field_to_arrow(child: StructField, path: str) -> pa.Field:
    metadata = (
        {ARROW_METADATA_KEY: json.dumps(dict(child.metadata), ensure_ascii=False).encode()} if child.metadata else None
    )
    return pa.field(child.name, arrow_type(child.type, path), nullable=child.nullable, metadata=metadata)


def _field_from_arrow(child: pa.Field, path: str) -> StructField:
    return StructField(
        child.name, type_from_arrow(child.type, path), child.nullable, _metadata_from_arrow(child.metadata or {}, path)
    )


_KEPT_KEYS = (b"delta.", b"CURRENT_DEFAULT", b"__CHAR_VARCHAR_TYPE_STRING")
"""How the keys begin that other clients write into the metadata of Arrow fields, each for itself."""


def _metadata_value(key: str, text: str) -> Any:
    """Return a value of field metadata. Those of identity columns are numbers or flags."""
    return json.loads(text) if key.startswith("delta.identity.") else text


def _metadata_from_arrow(raw: Mapping[bytes, bytes], path: str) -> dict[str, Any]:
    try:
        if ARROW_METADATA_KEY in raw:
            metadata = json.loads(raw[ARROW_METADATA_KEY])
        else:
            metadata = {
                key.decode(): _metadata_value(key.decode(), value.decode())
                for key, value in raw.items()
                if key == b"comment" or key.startswith(_KEPT_KEYS)
            }
    except (ValueError, RecursionError):
        metadata = None
    if not isinstance(metadata, dict):
        raise SchemaMismatch(
            f"column {path!r} has field metadata that is not a JSON object, or a comment that is not text: remove it"
        )
    return metadata


_PATH_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED_PATH = re.compile(rf"(?:{_PATH_PART.pattern})(?:\.(?:{_PATH_PART.pattern}))*")


def resolve(name: str, schema: pa.Schema) -> tuple[tuple[str, ...], pa.DataType]:
    """Find a column by its name, ignoring case, or a field inside it by dots. Returns (names, type).

    Backticks are as in SQL. Raises SchemaMismatch.
    """
    if isinstance(name, str):
        parts = [name] if any(child.name.lower() == name.lower() for child in schema) else _parts(name)
        path: list[str] = []
        fields, kind = list(schema), None
        for part in parts:
            child = next((child for child in fields if child.name.lower() == part.lower()), None)
            if child is None:
                break
            path.append(child.name)
            kind = child.type
            fields = list(kind) if pa.types.is_struct(kind) else []
        else:
            return tuple(path), kind
    raise SchemaMismatch(f"there is no column {name!r} in the table; the columns are {', '.join(schema.names)}")


def quoted_path(path: Sequence[str]) -> str:
    """Return a column, or a field inside one, as text that `resolve` reads, with backticks where they must be."""
    return ".".join(name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`" for name in path)


def _parts(name: str) -> list[str]:
    if not _QUOTED_PATH.fullmatch(name):
        return name.split(".")
    return [quoted.replace("``", "`") or plain for quoted, plain in _PATH_PART.findall(name)]


def type_from_arrow(data_type: pa.DataType, path: str) -> DataType:
    """Return the Delta type that holds values of an Arrow type without loss; `path` names the column in errors."""
    types = pa.types
    if types.is_dictionary(data_type) or types.is_run_end_encoded(data_type):
        return type_from_arrow(data_type.value_type, path)
    if is_variant(data_type):
        return PrimitiveType("variant")
    if types.is_struct(data_type):
        return StructType(tuple(_field_from_arrow(child, f"{path}.{child.name}") for child in data_type))
    if types.is_map(data_type):
        return MapType(
            type_from_arrow(data_type.key_type, f"{path}.key"),
            type_from_arrow(data_type.item_type, f"{path}.value"),
            data_type.item_field.nullable,
        )
    if hasattr(data_type, "value_field"):  # every kind of list
        return ArrayType(type_from_arrow(data_type.value_type, f"{path}.element"), data_type.value_field.nullable)
    if types.is_decimal(data_type):
        if data_type.precision > 38:
            raise UnsupportedType(
                f"column {path!r}: {data_type} has more than the 38 digits that Delta can hold; cast it to decimal128"
            )
        if not 0 <= data_type.scale <= data_type.precision:
            raise UnsupportedType(
                f"column {path!r}: {data_type} has a scale that is negative or larger than its precision; cast it"
            )
        return PrimitiveType(f"decimal({data_type.precision},{data_type.scale})")
    if types.is_timestamp(data_type):
        return PrimitiveType("timestamp_ntz" if is_zoneless(data_type) else "timestamp")
    for name, test in _LEAF_OF_ARROW:
        if test(data_type):
            return PrimitiveType(name)
    raise UnsupportedType(f"column {path!r}: Arrow type {data_type} has no Delta type; cast it before writing")


def is_zoneless(kind: pa.DataType) -> bool:
    """Return whether these are timestamps without a time zone."""
    return bool(pa.types.is_timestamp(kind) and kind.tz is None)


def zoneless(path: str) -> NaiveTimestamp:
    """Return the error for timestamps without a zone in a table that does not enable them. The caller must decide."""
    return NaiveTimestamp(
        f"column {path!r} has timestamps without a time zone, so their instants are unknown. Set their "
        "time zone with pc.assume_timezone(column, 'UTC'), for example, or cast them to "
        "pa.timestamp('us', tz='UTC') if they are in UTC already. To store them without a time zone, "
        "create the table with the property delta.feature.timestampNtz = supported (readers must "
        "support it)",
        column=path,
    )


def is_text(data_type: pa.DataType) -> bool:
    """Return whether an Arrow type is one of text."""
    return bool(
        pa.types.is_string(data_type) or pa.types.is_large_string(data_type) or pa.types.is_string_view(data_type)
    )


def _is_bytes(data_type: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_binary(data_type)
        or t.is_large_binary(data_type)
        or t.is_binary_view(data_type)
        or t.is_fixed_size_binary(data_type)
    )


_LEAF_OF_ARROW: tuple[tuple[str, Any], ...] = (
    ("string", is_text),
    ("binary", _is_bytes),
    ("boolean", pa.types.is_boolean),
    ("byte", pa.types.is_int8),
    ("short", lambda t: pa.types.is_int16(t) or pa.types.is_uint8(t)),
    ("integer", lambda t: pa.types.is_int32(t) or pa.types.is_uint16(t)),
    ("long", lambda t: pa.types.is_int64(t) or pa.types.is_uint32(t)),
    ("decimal(20,0)", pa.types.is_uint64),
    ("float", lambda t: pa.types.is_float32(t) or pa.types.is_float16(t)),
    ("double", pa.types.is_float64),
    ("date", lambda t: pa.types.is_date32(t)),
    ("void", pa.types.is_null),
)
