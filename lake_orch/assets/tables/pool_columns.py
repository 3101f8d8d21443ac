"""Fits rows that were read from pools to the columns of a table.

The types of a field differ between batches of a pool, while the column of a table has one type. The metadata of the
rows names their Zed types. That of the table tells which columns of text hold JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lake_core.delta.errors import SchemaMismatch
from lake_core.pool import types
from lake_core.pool.arrow.arrow_type import arrow_type
from lake_core.pool.arrow.columns import Column
from lake_core.pool.arrow.fuse import InexactInteger, widen_columns
from lake_core.pool.arrow.table import stated_type
from lake_core.pool.arrow.type_key import DELTA_KEY, TYPE_KEY
from lake_core.pool.errors import InvalidJson, InvalidValue
from lake_core.pool.fused_type import JSON
from lake_core.pool.types import ArrayType, ErrorType, Field, MapType, RecordType, SetType, Type, under
from lake_core.pool.zson.type_text import format_type
from lake_orch.assets.tables.rows import Rows

_LONG = (types.INT64, types.UINT64)
_REMEDY = (
    "Load one type of record with lake/shape, or annotate the input as collections.abc.Iterator and make the column "
    "from its records. Nothing was written"
)


class _Mixed(Exception):
    """A column would hold both text and JSON text."""


@dataclass(frozen=True, slots=True)
class _Fit:
    """A column of the rows, and the type that its values get.

    Attributes:
        field: The column, with the metadata that a table keeps.
        type: The Zed type of the values; None if it is unknown.
        target: The Zed type that they get; None to leave them as they are.
    """

    field: pa.Field
    type: Type | None = None
    target: Type | None = None


def fitted(rows: Rows, table: pa.Schema | None, name: str, *, keeps_rows: bool = True) -> Rows:
    """Return rows with the columns that come from a pool fitted to those of a table.

    Whole numbers become doubles if the column is one, and if that changes none of them. Values become JSON text if the
    column holds JSON text. New columns of text tell whether they hold JSON text. Rows of Spark are only checked.

    Args:
        rows: The rows.
        table: The schema of the table, or None before it exists.
        name: The name of the rows in errors.
        keeps_rows: Whether the table keeps rows that it has.

    Raises:
        SchemaMismatch: The rows have JSON text for a column of text, or a number that is not exact as a double. For a
            stream, the latter is raised while the rows are read.
    """
    columns = {} if table is None else {child.name.lower(): child for child in table}
    fits = [_fit(child, columns.get(child.name.lower()), name, keeps_rows=keeps_rows) for child in rows.schema]
    if all(each.type is None for each in fits):
        return rows
    schema = pa.schema([each.field for each in fits], rows.schema.metadata)

    def converted(data: pa.Table) -> pa.Table:
        columns = [_converted(column, fit, name) for column, fit in zip(data.columns, fits, strict=True)]
        return pa.Table.from_arrays(columns, schema=schema)

    fitted_rows = rows.mapped(converted, schema)
    if fitted_rows is not None:
        return fitted_rows
    unfit = [each for each in fits if each.target is not None and _has_json(each.target)]
    if unfit:
        raise SchemaMismatch(
            f"column {unfit[0].field.name!r} holds JSON text in the table, and other values in {name}: "
            "convert them with to_json. Nothing was written"
        )
    return rows


def _fit(child: pa.Field, column: pa.Field | None, name: str, *, keeps_rows: bool) -> _Fit:
    """Return how a column fits a table's column of that name, or a new one if there is none."""
    type = _stated_type(child)
    if type is None:
        return _Fit(child)
    target = type
    if column is not None:
        try:
            target = _target(type, column.type, _stated_type(column), child.name, keeps_rows=keeps_rows)
        except _Mixed as mixed:
            raise SchemaMismatch(
                f"column {str(mixed)!r} is text in the table, but JSON text in {name}, because its values there have "
                f'several types: the column would hold both, such as x and "x". {_REMEDY}'
            ) from None
    if target == type or child.type != arrow_type(type):
        return _Fit(_marked(child, type), type, None if target == type else target)
    return _Fit(_marked(pa.field(child.name, arrow_type(target), child.nullable), target), type, target)


def _stated_type(child: pa.Field) -> Type | None:
    """Return the Zed type that the metadata of a column names; None if it names none, or something else."""
    try:
        return stated_type(child.metadata)
    except InvalidValue:
        return None


def _target(type: Type, column: pa.DataType, stated: Type | None, path: str, *, keeps_rows: bool) -> Type:
    """Return the type that values get in a table's column. Raises _Mixed, with the path of the column.

    Args:
        type: The type of the values.
        column: The type of the column.
        stated: The Zed type that the table's metadata names.
        path: The path of the column.
        keeps_rows: Whether the column keeps values that it has.
    """
    plain, stated = _nested(type), None if stated is None else _nested(stated)

    def inner(type: Type, field: pa.Field, parent: Type | None, path: str) -> Type:
        own = _stated_type(field)
        return _target(type, field.type, parent if own is None else own, path, keeps_rows=keeps_rows)

    if pa.types.is_string(column):
        if stated == JSON:
            return JSON
        if type == JSON and keeps_rows:
            raise _Mixed(path)
    elif isinstance(error := under(type), ErrorType):
        target = _target(error.inner, column, stated, path, keeps_rows=keeps_rows)
        return type if target == error.inner else ErrorType(target)
    elif pa.types.is_float64(column):
        if plain in _LONG:
            return types.FLOAT64
    elif pa.types.is_struct(column) and isinstance(plain, RecordType):
        fields = {each.name.lower(): each for each in column}
        known = {each.name: each.type for each in stated.fields} if isinstance(stated, RecordType) else {}
        changed = [
            each
            if (field := fields.get(each.name.lower())) is None
            else Field(each.name, inner(each.type, field, known.get(each.name), f"{path}.{each.name}"))
            for each in plain.fields
        ]
        return type if tuple(changed) == plain.fields else RecordType(tuple(changed))
    elif pa.types.is_list(column) and isinstance(plain, ArrayType):
        element = stated.element if isinstance(stated, ArrayType) else None
        target = inner(plain.element, column.value_field, element, path)
        return type if target == plain.element else _with_elements(type, target)
    return type


def _nested(type: Type) -> Type:
    """Return a type without names and errors. Sets and maps are lists in Arrow, a map of keys and values."""
    plain = JSON if type == JSON else under(type)
    match plain:
        case ErrorType(inner):
            return _nested(inner)
        case SetType(element):
            return ArrayType(element)
        case MapType(key, value):
            return ArrayType(RecordType((Field("key", key), Field("value", value))))
    return plain


def _with_elements(type: Type, element: Type) -> Type:
    """Return an array, a set or a map with other elements.

    A map stays as it is if the elements are no keys and values.
    """
    match under(type), element:
        case ArrayType(), _:
            return ArrayType(element)
        case SetType(), _:
            return SetType(element)
        case MapType(), RecordType((key, value)):
            return MapType(key.type, value.type)
    return type


def _converted(column: pa.ChunkedArray, fit: _Fit, name: str) -> pa.ChunkedArray:
    if fit.type is None or fit.target is None or column.type != arrow_type(fit.type):
        return column
    # `take` makes arrays that begin at the begin of their buffers.
    chunks = [chunk.take(pa.array(np.arange(len(chunk)))) for chunk in column.chunks]
    try:
        arrays = [widen_columns([Column(fit.type, each, np.arange(len(each)))], fit.target)[0] for each in chunks]
    except InexactInteger:
        raise SchemaMismatch(
            f"column {fit.field.name!r} is double in the table, and {name} has a whole number that a double would "
            "round: cast it in the asset, or write it to another column. Nothing was written"
        ) from None
    except InvalidJson as error:
        raise SchemaMismatch(
            f"column {fit.field.name!r} holds JSON text in the table: {error}. Nothing was written"
        ) from None
    return pa.chunked_array(arrays, fit.field.type)


def _has_json(type: Type) -> bool:
    match type if type == JSON else _nested(type):
        case RecordType(fields):
            return any(_has_json(each.type) for each in fields)
        case ArrayType(element):
            return _has_json(element)
        case plain:
            return plain == JSON


def _marked(child: pa.Field, type: Type) -> pa.Field:
    """Return a column with the Zed types of its text, at any depth, in the metadata that a Delta table keeps."""
    marked = child.with_type(_marked_type(child.type, type))
    metadata: dict[Any, Any] = {**(child.metadata or {}), TYPE_KEY: format_type(type).encode()}
    if DELTA_KEY not in metadata and _is_text(type):
        metadata[DELTA_KEY] = json.dumps({TYPE_KEY.decode(): format_type(type)}).encode()
    return marked.with_metadata(metadata)


def _marked_type(kind: pa.DataType, type: Type) -> pa.DataType:
    match _nested(type):
        case RecordType(fields) if pa.types.is_struct(kind) and kind.num_fields == len(fields):
            return pa.struct(_marked_fields(kind, fields))
        case ArrayType(element) if pa.types.is_list(kind):
            return pa.list_(kind.value_field.with_type(_marked_type(kind.value_type, element)))
    return kind


def _marked_fields(kind: pa.DataType, fields: Iterable[Field]) -> list[pa.Field]:
    return [_marked(kind.field(number), each.type) for number, each in enumerate(fields)]


def _is_text(type: Type) -> bool:
    """Return whether values are text, or lists of text."""
    plain = _nested(type)
    return _is_text(plain.element) if isinstance(plain, ArrayType) else plain in (JSON, types.STRING)
