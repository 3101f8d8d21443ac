"""Schema evolution: the allowed changes of a table's schema, and the new metadata. Data files do not change.

Protocol sections: Change Metadata, Column Mapping (renaming and dropping need it: files keep the physical names).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lake_core.delta.column_mapping import MODE_PROPERTY, edited_metadata, with_mapping
from lake_core.delta.conform import widens, without_new_voids
from lake_core.delta.errors import SchemaMismatch
from lake_core.delta.row_rules import check_rules, rule_columns
from lake_core.delta.schema import (
    VOID,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    check_names,
    check_storable,
    resolve,
    schema_from_arrow,
    schema_to_json,
    type_from_arrow,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lake_core.delta.action import Metadata

TYPE_CHANGES = "delta.typeChanges"


def with_schema(metadata: Metadata, schema: StructType, partition_columns: Sequence[str] | None = None) -> Metadata:
    """Return the metadata with another schema. New columns get ids and physical names if column mapping needs them.

    Raises SchemaMismatch; UnsupportedType for a new column that data files cannot hold; UnsupportedExpression if a rule
    of the table no longer fits.
    """
    check_names(schema)
    check_storable(schema, metadata.schema)
    configuration = dict(metadata.configuration)
    if metadata.column_mapping.mode != "none":
        schema, configuration = with_mapping(schema, configuration, keep_names=False)
    columns = metadata.partition_columns if partition_columns is None else tuple(partition_columns)
    changed = replace(
        metadata,
        schema=schema,
        schema_string=schema_to_json(schema),
        configuration=configuration,
        partition_columns=columns,
    )
    check_rules(changed)
    return changed


def added(schema: StructType, new: StructType, path: str = "") -> StructType:
    """Return a schema with the additional columns of another schema, at any depth.

    They are added at the end of each struct, and are nullable. New columns keep their comments, but not the rules of
    the table that they come from, because existing rows could violate them. Raises SchemaMismatch if both schemas have
    a column with different types, or if a new column is NOT NULL.
    """
    fields = {child.name.lower(): child for child in schema.fields}
    for child in new.fields:
        existing = fields.get(child.name.lower())
        if existing is not None:
            kind = _added_type(existing.type, child.type, f"{path}{existing.name}")
            fields[child.name.lower()] = existing if kind == existing.type else replace(existing, type=kind)
        elif not child.nullable:
            raise SchemaMismatch(
                f"column {path}{child.name!r} is NOT NULL, but the existing rows have no value for it: "
                "add it as nullable"
            )
        else:
            fields[child.name.lower()] = edited_metadata(StructType((child,)), _foreign).fields[0]
    return StructType(tuple(fields.values()))


def evolved(metadata: Metadata, data: pa.Schema) -> Metadata:
    """Return the metadata with the additional columns of the rows to write, which become nullable.

    Raises what `added` raises.
    """
    # A column with only nulls does not have a type to add.
    typed = without_new_voids(data, metadata.arrow_schema)
    nullable = pa.schema([child.with_nullable(True) for child in typed])
    schema = added(metadata.schema, schema_from_arrow(nullable))
    return metadata if schema == metadata.schema else with_schema(metadata, schema)


def _added_type(existing: DataType, new: DataType, path: str) -> DataType:
    match existing, new:
        case StructType(), StructType():
            return added(existing, new, f"{path}.")
        case ArrayType(element=a, contains_null=nulls), ArrayType(element=b):
            return ArrayType(_added_type(a, b, f"{path}.element"), nulls)
        case MapType(key=key, value=a, value_contains_null=nulls), MapType(key=other, value=b):
            return MapType(_added_type(key, other, f"{path}.key"), _added_type(a, b, f"{path}.value"), nulls)
    if existing == VOID:
        return new
    if existing != new and new != VOID and not _fits(new, existing):
        raise SchemaMismatch(
            f"column {path!r} is {_name(existing)} in the table, and would become {_name(new)}: the type of "
            "a column cannot be changed. Write the values to another column, or to a new table"
        )
    return existing


def _fits(new: DataType, existing: DataType) -> bool:
    """Return whether data of one type can be written to a column of the other, by the rules of writes."""
    return (
        not isinstance(new, StructType | ArrayType | MapType)
        and not isinstance(existing, StructType | ArrayType | MapType)
        and widens(new, existing)
    )


def _name(kind: DataType) -> str:
    return (
        kind.name
        if not isinstance(kind, StructType | ArrayType | MapType)
        else type(kind).__name__.removesuffix("Type").lower()
    )


def replaced(schema: StructType, new: StructType) -> StructType:
    """Return the new schema. Fields with the same type and without metadata keep their old metadata."""
    existing = {child.name: child for child in schema.fields}
    fields = []
    for child in edited_metadata(new, _foreign).fields:
        before = existing.get(child.name)
        if before is not None and (kind := _replaced_type(before.type, child.type)) is not None:
            child = replace(child, type=kind, metadata={**before.metadata, **child.metadata})
        fields.append(child)
    return StructType(tuple(fields))


def _replaced_type(existing: DataType, new: DataType) -> DataType | None:
    """Return the new type with the metadata that fields have in the old one; None if it is another type."""
    match existing, new:
        case StructType(), StructType():
            return replaced(existing, new)
        case ArrayType(element=a), ArrayType(element=b, contains_null=nulls):
            element = _replaced_type(a, b)
            return None if element is None else ArrayType(element, nulls)
        case MapType(key=a, value=b), MapType(key=c, value=d, value_contains_null=nulls):
            key, value = _replaced_type(a, c), _replaced_type(b, d)
            return None if key is None or value is None else MapType(key, value, nulls)
    return new if existing == new else None


def _foreign(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a field that comes with rows, without the entries of the table it was read from."""
    return {key: value for key, value in metadata.items() if not key.startswith("delta.")}


def renamed(metadata: Metadata, column: str, name: str) -> Metadata:
    """Return the metadata with a column, or a field inside one (by dots), under another name. Raises SchemaMismatch."""
    _check_mapped(metadata, "renamed")
    path = _path(metadata.schema, column)
    _check_unused(metadata, path, "renamed")
    schema = _edited(metadata.schema, path, lambda child: replace(child, name=name))
    partition_columns = [
        name if (partition_column,) == path else partition_column for partition_column in metadata.partition_columns
    ]
    return with_schema(metadata, schema, partition_columns)


def dropped(metadata: Metadata, names: Sequence[str]) -> Metadata:
    """Return the metadata without these columns, or fields inside columns (by dots). Raises SchemaMismatch."""
    _check_mapped(metadata, "dropped")
    schema = metadata.schema
    for column in names:
        path = _path(schema, column)
        if path[0] in metadata.partition_columns:
            raise SchemaMismatch(
                f"column {column!r} is a partition column and cannot be dropped: "
                "overwrite the table with another partitioning"
            )
        _check_unused(metadata, path, "dropped")
        schema = _edited(schema, path, lambda child: None)
    if len(schema.fields) <= len(metadata.partition_columns):
        raise SchemaMismatch(
            "no column would remain for the data files: keep at least one that is not a partition column"
        )
    return with_schema(metadata, schema)


def made_nullable(metadata: Metadata, column: str) -> Metadata:
    """Return the metadata with a column, or a field inside one (by dots), made nullable. Raises SchemaMismatch."""
    return with_schema(
        metadata, _edited(metadata.schema, _path(metadata.schema, column), lambda child: replace(child, nullable=True))
    )


def widened(metadata: Metadata, column: str, kind: pa.DataType) -> Metadata:
    """Return the metadata with a column, or a field inside one (by dots), of a wider type.

    Protocol section: Type Widening. Raises SchemaMismatch, UnsupportedType.
    """
    path = _path(metadata.schema, column)
    _check_unused(metadata, path, "widened")
    new = type_from_arrow(kind, column)

    def edit(child: StructField) -> StructField:
        if child.type == new:
            return child
        old = child.type
        if not (isinstance(old, PrimitiveType) and isinstance(new, PrimitiveType) and is_wider(old, new)):
            raise SchemaMismatch(
                f"column {column!r} is {_name(old)}, which cannot become {_name(new)}: whole numbers can become longer "
                "ones, doubles (but for long) or decimals with as many digits before the point, floats doubles, "
                "decimals larger ones, and dates timestamps without a zone. Write the values to another column"
            )
        changes = [*child.metadata.get(TYPE_CHANGES, ()), {"fromType": old.name, "toType": new.name}]
        return replace(child, type=new, metadata={**child.metadata, TYPE_CHANGES: changes})

    return with_schema(metadata, _edited(metadata.schema, path, edit))


def is_wider(old: PrimitiveType, new: PrimitiveType) -> bool:
    """Return whether readers of tables with widened types read values of one type as the other."""
    before, after = old.to_arrow(), new.to_arrow()
    if pa.types.is_integer(before):
        if pa.types.is_decimal(after):
            return bool(after.precision - after.scale >= (20 if before.bit_width == 64 else 10))
        longer = pa.types.is_integer(after) and after.bit_width > before.bit_width
        return bool(longer or (pa.types.is_float64(after) and before.bit_width <= 32))
    if pa.types.is_decimal(before) and pa.types.is_decimal(after):
        more_digits = after.precision - after.scale >= before.precision - before.scale
        return bool(more_digits and after.scale >= before.scale)
    is_float = pa.types.is_float32(before) and pa.types.is_float64(after)
    return bool(is_float or (pa.types.is_date(before) and new.name == "timestamp_ntz"))


def commented(metadata: Metadata, comments: Mapping[str, str | None]) -> Metadata:
    """Return the metadata with other comments on columns, or fields inside them (by dots); None removes one.

    Raises SchemaMismatch.
    """
    schema = metadata.schema
    for column, comment in comments.items():
        if comment is not None and not isinstance(comment, str):
            raise SchemaMismatch(
                f"the comment on column {column!r} must be text, or None to remove it, not {comment!r}"
            )
        entry = {} if comment is None else {"comment": comment}

        def edit(child: StructField, entry: Mapping[str, str] = entry) -> StructField:
            return replace(
                child, metadata={key: value for key, value in child.metadata.items() if key != "comment"} | dict(entry)
            )

        schema = _edited(schema, _path(schema, column), edit)
    return with_schema(metadata, schema)


def reordered(metadata: Metadata, names: Sequence[str]) -> Metadata:
    """Return the metadata with these columns first, in this order, followed by the others as before.

    Raises SchemaMismatch.
    """
    paths = [_path(metadata.schema, name) for name in names]
    if any(len(path) > 1 for path in paths) or len(set(paths)) < len(paths):
        raise SchemaMismatch(f"the order of columns must contain each of their names once: {list(names)}")
    first = [metadata.schema.field(path[0]) for path in paths]
    return with_schema(
        metadata, StructType((*first, *(child for child in metadata.schema.fields if child not in first)))
    )


def _check_mapped(metadata: Metadata, verb: str) -> None:
    if metadata.column_mapping.mode == "none":
        raise SchemaMismatch(
            f"a column can be {verb} only in a table with column mapping, which older readers cannot read. "
            f"To enable it, call set_properties({{{MODE_PROPERTY!r}: 'name'}})"
        )


def _check_unused(metadata: Metadata, path: tuple[str, ...], verb: str) -> None:
    for what, used in rule_columns(metadata):
        if any(other[: len(path)] == path or path[: len(other)] == other for other in used):
            raise SchemaMismatch(f"column {'.'.join(path)!r} cannot be {verb}: {what} uses it. Drop that first")


def _path(schema: StructType, column: str) -> tuple[str, ...]:
    return resolve(column, schema.to_arrow())[0]


def _edited(schema: StructType, path: tuple[str, ...], edit: Callable[[StructField], StructField | None]) -> StructType:
    fields = []
    for child in schema.fields:
        if child.name != path[0]:
            fields.append(child)
        elif len(path) == 1:
            changed = edit(child)
            if changed is not None:
                fields.append(changed)
        else:
            if not isinstance(child.type, StructType):
                raise SchemaMismatch(f"{path[0]!r} is not a struct: it has no field {path[1]!r}")
            fields.append(replace(child, type=_edited(child.type, path[1:], edit)))
    if not fields:
        raise SchemaMismatch(f"{path[0]!r} is the only field of its struct: drop the struct")
    return StructType(tuple(fields))
