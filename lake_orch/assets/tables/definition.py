"""The table definition of an asset: applied when the table is created, and updated later where that is safe."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa

from lake_core.delta import DeltaTable
from lake_core.delta.conform import plain, widens
from lake_core.delta.errors import UnsupportedType
from lake_core.delta.row_rules import GENERATION_EXPRESSION
from lake_core.delta.schema import ARROW_METADATA_KEY, type_from_arrow
from lake_core.expression import InvalidExpression, parse_expression
from lake_orch.assets.tables.merge_settings import SOURCE, MergeSettings
from lake_orch.assets.tables.settings import (
    CLUSTER_BY,
    CLUSTER_PROPERTY,
    COLUMN_SCHEMA,
    CONSTRAINTS,
    GENERATED,
    PARTITION_BY,
    SCHEMA,
    DeclaredColumn,
    TableSettings,
)
from lake_orch.errors import DefinitionMismatch, InvalidDefinition
from lake_orch.spark.type_name import spark_type_name

_CONSTRAINT = "delta.constraints."


def creation_schema(settings: TableSettings, data: pa.Schema) -> pa.Schema:
    """Return the schema with which a table for such rows is created.

    It has the declared comments, NOT NULL and generated columns.

    Raises InvalidDefinition for a generation expression that does not fit the columns.
    """
    schema = settings.schema or data
    declared = {column.name.lower(): column for column in settings.columns}
    fields = [_declared_field(child, declared.get(child.name.lower())) for child in schema]
    folded = {child.name.lower() for child in fields}
    for name, sql in settings.generated.items():
        if name.lower() not in folded:
            column = declared.get(name.lower())
            kind = column.type if column else _type_of(name, sql, schema)
            fields.append(_declared_field(pa.field(name, kind), column))
    generated = {name.lower(): sql for name, sql in settings.generated.items()}
    return pa.schema(
        [
            _with_metadata(child, GENERATION_EXPRESSION, generated[child.name.lower()])
            if child.name.lower() in generated
            else child
            for child in fields
        ]
    )


def merge_schema(merge: MergeSettings, data: pa.Schema, rows_name: str) -> pa.Schema:
    """Return the columns of a table that a merge creates: those that it sets.

    Columns that only conditions name are left out. Raises InvalidDefinition if the clauses do not determine them.
    """
    values = merge.inserts()
    if values == "*":
        return data
    remedy = (
        f"there is no table yet: declare its columns by {SCHEMA}, or write its first rows otherwise. "
        "Nothing was written"
    )
    if not values:
        raise InvalidDefinition(f"the merge of {rows_name} inserts nothing, and {remedy}")
    scope = pa.schema([pa.field(SOURCE, pa.struct(list(plain(data.empty_table()).schema)))])
    fields = []
    for name, sql in values.items():
        try:
            kind = parse_expression(sql, scope, relations=True, now=0).type  # any time works: only the type matters
        except InvalidExpression as error:
            reason = f"the type of the column {name!r} = {sql!r} cannot be derived from only {rows_name} ({error})"
            raise InvalidDefinition(f"{reason}, and {remedy}") from None
        if pa.types.is_null(kind):
            raise InvalidDefinition(
                f"the merge of {rows_name} sets {name!r} to {sql!r}, which has no type, and {remedy}"
            )
        fields.append(pa.field(name, kind))
    return pa.schema(fields)


def creation_properties(settings: TableSettings) -> dict[str, str]:
    """Return the properties for creating a table, including its constraints."""
    properties = dict(settings.properties)
    properties |= {f"{_CONSTRAINT}{name.lower()}": sql for name, sql in settings.constraints.items()}
    if settings.cluster_by and not settings.is_clustered:
        properties[CLUSTER_PROPERTY] = json.dumps(list(settings.cluster_by))
    return properties


def check_data(settings: TableSettings, data: pa.Schema, rows_name: str) -> None:
    """Raise DefinitionMismatch if rows of this schema do not fit the column schema that the asset declares.

    Each declared column must exist, with its type or one that widens to it. Generated and nullable columns may be left
    out.
    """
    fields = {child.name.lower(): child for child in data}
    for column in settings.columns:
        child = fields.get(column.name.lower())
        if child is None:
            if not column.nullable and column.name.lower() not in {name.lower() for name in settings.generated}:
                raise DefinitionMismatch(
                    f"{rows_name} has no column {column.name!r}, which {COLUMN_SCHEMA} declares NOT NULL: "
                    "add it. Nothing was written"
                )
        elif not _fits(child.type, column):
            raise DefinitionMismatch(
                f"column {column.name!r} of {rows_name} is {spark_type_name(child.type)}, and {COLUMN_SCHEMA} declares "
                f"it {spark_type_name(column.type)}: cast it, or change the declaration. Nothing was written"
            )
    missing = [name for name in settings.cluster_by if name.lower() not in fields]
    if missing:
        raise InvalidDefinition(
            f"{CLUSTER_BY} of {rows_name} names the column {missing[0]!r}, but the columns are {list(data.names)}"
        )


def keep_up(table: DeltaTable, settings: TableSettings) -> None:
    """Update the properties, constraints and comments of a table to its asset's definition, as far as that is safe.

    Each change is a separate commit. Without a difference, there is no commit. Raises DefinitionMismatch, with the
    remedy, for a difference that cannot be updated, and ConstraintViolation if existing rows break a new constraint.
    """
    _check_fixed(table, settings)
    properties = dict(settings.properties)
    if settings.cluster_by and not settings.is_clustered:
        properties[CLUSTER_PROPERTY] = json.dumps(list(settings.cluster_by))
    changed = {name: value for name, value in properties.items() if table.properties.get(name) != value}
    if changed:
        table.set_properties(changed)
    if settings.is_clustered:
        table.cluster_by(settings.cluster_by)
    constraints = {name.lower(): sql for name, sql in table.constraints.items()}
    for name, sql in settings.constraints.items():
        if name.lower() not in constraints:
            table.add_constraint(name, sql)
    comments = {
        column.name: column.comment
        for column in settings.columns
        if column.comment is not None
        and (existing := _field(table.schema, column.name)) is not None
        and comment_of(existing) != column.comment
    }
    if comments:
        table.set_comments(comments)


def comment_of(child: pa.Field) -> str | None:
    """Return a column's comment."""
    raw = child.metadata or {}
    if ARROW_METADATA_KEY in raw:
        comment = json.loads(raw[ARROW_METADATA_KEY]).get("comment")
        return comment if isinstance(comment, str) else None
    return raw[b"comment"].decode() if b"comment" in raw else None


def generation_of(child: pa.Field) -> str | None:
    """Return the SQL expression of a generated column."""
    raw = child.metadata or {}
    generation = json.loads(raw[ARROW_METADATA_KEY]).get(GENERATION_EXPRESSION) if ARROW_METADATA_KEY in raw else None
    return generation if isinstance(generation, str) else None


def _check_fixed(table: DeltaTable, settings: TableSettings) -> None:
    url = table.store.url()
    replacing = settings.mode == "overwrite" and settings.schema_mode == "overwrite"
    if (
        settings.partition_by is not None
        and not replacing
        and settings.partition_by != table.metadata.partition_columns
    ):
        raise DefinitionMismatch(
            f"the table {url} is partitioned by {list(table.metadata.partition_columns)}, "
            f"but {PARTITION_BY} says {list(settings.partition_by)}: to change the partition columns, "
            "overwrite the table once with lake/schema_mode 'overwrite'"
        )
    constraints = {name.lower(): sql for name, sql in table.constraints.items()}
    for name, sql in settings.constraints.items():
        if constraints.get(name.lower(), sql) != sql:
            raise DefinitionMismatch(
                f"the constraint {name!r} of the table {url} is {constraints[name.lower()]!r}, but {CONSTRAINTS} says "
                f"{sql!r}: give the new one another name, or drop the old one with DeltaTable.drop_constraint({name!r})"
            )
    for name, sql in settings.generated.items():
        existing = _field(table.schema, name)
        if existing is None or generation_of(existing) != sql:
            actual = (
                "no such column"
                if existing is None
                else f"it as {generation_of(existing)!r}"
                if generation_of(existing)
                else "it as a plain column"
            )
            raise DefinitionMismatch(
                f"{GENERATED} says {name} = {sql!r}, but the table {url} has {actual}: only a new table can get "
                "generated columns. Compute the column in the asset, or write to another lake/path"
            )
    if replacing:
        return
    for column in settings.columns:
        existing = _field(table.schema, column.name)
        if existing is not None and existing.nullable and not column.nullable:
            raise DefinitionMismatch(
                f"{COLUMN_SCHEMA} declares {column.name!r} NOT NULL, but it is nullable in the table {url}, "
                "which cannot be changed. Add a constraint instead, "
                f"{CONSTRAINTS} = {{'{column.name}_not_null': '{column.name} IS NOT NULL'}}, and declare it nullable"
            )


def _fits(kind: pa.DataType, column: DeclaredColumn) -> bool:
    if pa.types.is_null(kind):
        return column.nullable
    try:
        actual, declared = (type_from_arrow(arrow_type, column.name) for arrow_type in (kind, column.type))
    except UnsupportedType:
        return False
    if pa.types.is_nested(column.type):
        return spark_type_name(kind) == spark_type_name(column.type)
    return not pa.types.is_nested(kind) and (actual == declared or widens(actual, declared))


def _declared_field(child: pa.Field, column: DeclaredColumn | None) -> pa.Field:
    if column is None:
        return child
    if not pa.types.is_nested(column.type) and not pa.types.is_nested(child.type):
        child = child.with_type(column.type)
    if not column.nullable:
        child = child.with_nullable(False)
    return child if column.comment is None else _with_metadata(child, "comment", column.comment)


def _with_metadata(child: pa.Field, name: str, value: str) -> pa.Field:
    raw: Mapping[bytes, bytes] = child.metadata or {}
    attributes = json.loads(raw[ARROW_METADATA_KEY]) if ARROW_METADATA_KEY in raw else {}
    if not attributes and b"comment" in raw:
        attributes["comment"] = raw[b"comment"].decode()
    return child.with_metadata(
        {ARROW_METADATA_KEY: json.dumps({**attributes, name: value}, ensure_ascii=False).encode()}
    )


def _type_of(name: str, sql: str, schema: pa.Schema) -> pa.DataType:
    try:
        return parse_expression(sql, schema).type
    except InvalidExpression as error:
        raise InvalidDefinition(
            f"{GENERATED} says {name} = {sql!r}, which cannot be computed from the other columns: {error}"
        ) from None


def _field(schema: pa.Schema, name: str) -> pa.Field | None:
    return next((child for child in schema if child.name.lower() == name.lower()), None)
