"""Column mapping: the physical names of columns in data files and the log, if they differ from the schema's names.

Protocol section: Column Mapping. Mode `name` finds a file's columns by their physical names, mode `id` by their field
ids. Partition values and statistics use physical names in both modes.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lake_core import runtime
from lake_core.delta.errors import MalformedMetadata, SchemaMismatch
from lake_core.delta.schema import ArrayType, DataType, MapType, StructField, StructType, edited_fields, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MODE_PROPERTY = "delta.columnMapping.mode"
PHYSICAL_NAME = "delta.columnMapping.physicalName"
ID = "delta.columnMapping.id"
_PREFIX = "delta.columnMapping."
MAX_ID = "delta.columnMapping.maxColumnId"
_NESTED_IDS = "delta.columnMapping.nested.ids"
_NESTING = ("delta.enableIcebergCompatV2", "delta.enableIcebergCompatV3")
"""Properties of tables of which also what has no name, such as the elements of arrays, has an id."""
"""The field ids of what has no name of its own: elements of arrays, keys and values of maps."""
_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """The names of a table's columns in its files. Modes `none`, `name` and `id`."""

    mode: str
    schema: StructType

    def physical_path(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """Translate a column's path of names to physical names."""
        if self.mode == "none":
            return path
        names: list[str] = []
        kind: DataType = self.schema
        for name in path:
            if not isinstance(kind, StructType):
                raise SchemaMismatch(f"{'.'.join(path)} passes through {name!r}, which is not a struct")
            child = kind.field(name)
            names.append(self._name(child))
            kind = child.type
        return tuple(names)

    def physical_schema(self, names: list[str]) -> StructType:
        """Return the columns of these names, in physical names at every level."""
        by_name = {child.name: child for child in self.schema.fields}
        schema = StructType(tuple(by_name[name] for name in names))
        return (
            schema
            if self.mode == "none"
            else edited_fields(schema, lambda child: replace(child, name=self._name(child)))
        )

    def names_by_id(self) -> dict[int, str]:
        """Return the physical name of every field, at any depth, by its id. Empty unless files are read by id."""
        if self.mode != "id":
            return {}
        names: dict[int, str] = {}
        for child in walk(self.schema):
            name = self._name(child)
            if names.setdefault(child.metadata[ID], name) != name:
                raise MalformedMetadata(
                    f"column {child.name!r} has the column mapping id of another column: {child.metadata[ID]}"
                )
        return names

    def data_file_schema(self, names: list[str]) -> pa.Schema:
        """Return the schema of these columns in data files: physical names and field ids, every field nullable."""
        return pa.schema([self._file_field(child) for child in self.physical_schema(names).fields])

    def _file_field(self, child: StructField) -> pa.Field:
        ids = {_FIELD_ID: str(child.metadata[ID])} if self.mode != "none" and ID in child.metadata else None
        nested = child.metadata.get(_NESTED_IDS) if self.mode != "none" else None
        return pa.field(child.name, self._file_type(child.type, child.name, nested or {}), metadata=ids)

    def _file_type(self, kind: DataType, path: str, nested: Mapping[str, Any]) -> pa.DataType:
        """Return a type in data files. `nested`: the ids of what has no name, by paths that begin with `path`."""

        def part(name: str, inner: DataType, *, nullable: bool = True) -> pa.Field:
            key = f"{path}.{name}"
            ids = {_FIELD_ID: str(nested[key])} if key in nested else None
            return pa.field(name, self._file_type(inner, key, nested), nullable=nullable, metadata=ids)

        match kind:
            case StructType(fields=fields):
                return pa.struct([self._file_field(child) for child in fields])
            case ArrayType(element=element):
                return pa.list_(part("element", element))
            case MapType(key=key, value=value):
                return pa.map_(part("key", key, nullable=False), part("value", value))
            case _:
                return kind.to_arrow()

    def _name(self, child: StructField) -> str:
        name = child.metadata.get(PHYSICAL_NAME)
        if not isinstance(name, str) or (self.mode == "id" and type(child.metadata.get(ID)) is not int):
            raise MalformedMetadata(
                f"column {child.name!r} of a table with column mapping lacks its physical name or id"
            )
        return name


def with_mapping(
    schema: StructType, properties: Mapping[str, str], *, keep_names: bool
) -> tuple[StructType, dict[str, str]]:
    """Return a schema whose fields all have an id and a physical name, and the properties that go with it.

    With `keep_names`, the name of a field becomes its physical name, because files already exist. Otherwise fields get
    a new physical name, which no rename changes. Fields that have an id and a physical name do not change.
    """
    used = [child.metadata[ID] for child in walk(schema) if type(child.metadata.get(ID)) is int]
    nests = any(properties.get(name, "false").lower() == "true" for name in _NESTING)
    text = properties.get(MAX_ID, "0")
    counter = itertools.count(max([*used, int(text) if _is_number(text) else 0]) + 1)

    def mapped(child: StructField) -> StructField:
        metadata = dict(child.metadata)
        if type(metadata.get(ID)) is not int:
            metadata[ID] = next(counter)
        metadata.setdefault(PHYSICAL_NAME, child.name if keep_names else f"col-{runtime.uuid4()}")
        if nests:
            known = dict(metadata.get(_NESTED_IDS) or {})
            for path in _unnamed(child.type, metadata[PHYSICAL_NAME]):
                if path not in known:
                    known[path] = next(counter)
            metadata[_NESTED_IDS] = known
        return replace(child, metadata=metadata)

    result = edited_fields(schema, mapped)
    return result, {**properties, MAX_ID: str(next(counter) - 1)}


def _unnamed(kind: DataType, path: str) -> Iterator[str]:
    """Yield the paths of the elements of arrays, and the keys and values of maps, down to the next struct."""
    match kind:
        case ArrayType(element=element):
            yield f"{path}.element"
            yield from _unnamed(element, f"{path}.element")
        case MapType(key=key, value=value):
            yield f"{path}.key"
            yield from _unnamed(key, f"{path}.key")
            yield f"{path}.value"
            yield from _unnamed(value, f"{path}.value")


def with_highest_id(properties: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a table's new definition with the highest column id that was ever given.

    The new definition may be an earlier one. Files of the versions in between have columns of the ids that it lacks, so
    these must not be given again.
    """
    texts = [each[MAX_ID] for each in (before, properties) if _is_number(each.get(MAX_ID))]
    return {**properties, MAX_ID: max(texts, key=int)} if texts else dict(properties)


def _is_number(text: str | None) -> bool:
    return text is not None and text.isascii() and text.isdigit()


def without_mapping(schema: StructType) -> StructType:
    """Return a schema without the ids and physical names of a table with column mapping, at any depth."""
    return edited_metadata(
        schema, lambda metadata: {key: value for key, value in metadata.items() if not key.startswith(_PREFIX)}
    )


def edited_metadata(schema: StructType, edit: Callable[[Mapping[str, Any]], dict[str, Any]]) -> StructType:
    """Return a schema with the metadata of each field, at any depth, replaced by what `edit` returns for it."""
    return edited_fields(schema, lambda child: replace(child, metadata=edit(child.metadata)))


def renamed_by_id(kind: pa.DataType, names: Mapping[int, str]) -> pa.DataType:
    """Return a file's type with each field that has a known id under its physical name."""
    if pa.types.is_struct(kind):
        return pa.struct([renamed_field(child, names) for child in kind])
    if pa.types.is_map(kind):
        return pa.map_(renamed_by_id(kind.key_type, names), pa.field("value", renamed_by_id(kind.item_type, names)))
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, renamed_by_id(kind.value_type, names)))
    return kind


def renamed_field(child: pa.Field, names: Mapping[int, str]) -> pa.Field:
    """Return a file's field under the physical name of its id.

    A field with an unknown id gets a name that no column has.
    """
    field_id = (child.metadata or {}).get(_FIELD_ID)
    # The id in a file may be any text.
    number = int(field_id) if field_id is not None and re.fullmatch(rb"-?[0-9]{1,19}", field_id) else None
    name = f"\x00{child.name}" if number is None else names.get(number, f"\x00{child.name}")
    return pa.field(name, renamed_by_id(child.type, names), nullable=child.nullable)
