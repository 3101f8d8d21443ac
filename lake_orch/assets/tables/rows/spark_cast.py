"""Casts of Spark's columns that fail at a value which they would round, cut or wrap around."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lake_core.delta.conform import widens
from lake_core.delta.errors import SchemaMismatch
from lake_core.delta.schema import schema_from_arrow, schema_to_json, type_from_arrow
from lake_core.expression import quote_identifier
from lake_orch.spark.type_name import spark_type_name

_ERROR = f"\n{SchemaMismatch.__module__}.{SchemaMismatch.__qualname__}: "
"""In this form, `lake_error` recognizes the error if the job fails with it."""


def cast_exactly(data: DataFrame, types: pa.Schema, schema: pa.Schema, name: str) -> DataFrame:
    """Return the columns of a schema, whose values Spark casts when it computes the rows.

    A value that is not the same in its new type fails the job with SchemaMismatch, in ANSI mode and without it.

    Args:
        data: The rows.
        types: The types of the rows.
        schema: The columns and types to cast to. `casting.cast_rows` has checked that they fit together.
        name: The name of the rows in errors.
    """
    # The table checks nulls in the values. Spark would refuse every nullable column.
    nullable = pa.schema([child.with_nullable(True) for child in schema])
    present = {child.name.lower(): child for child in types}
    changed = {}
    for child in schema:
        source = present[child.name.lower()]
        if _may_change(source.type, child.type):
            cast = _ExactCast(f"column {child.name!r} of {name}")
            changed[source.name] = cast(F.col(quote_identifier(source.name)), source.type, child.type)
    target = StructType.fromJson(json.loads(schema_to_json(schema_from_arrow(nullable))))
    return (data.withColumns(changed) if changed else data).to(target)


def _may_change(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether a cast to a type may change a value, at any level."""
    types = pa.types
    if types.is_struct(source) and types.is_struct(target):
        wanted = _by_name(target)
        return any(_may_change(child.type, wanted[child.name.lower()]) for child in source)
    if types.is_map(source) and types.is_map(target):
        return _may_change(source.key_type, target.key_type) or _may_change(source.item_type, target.item_type)
    if hasattr(source, "value_field") and hasattr(target, "value_field"):
        return _may_change(source.value_type, target.value_type)
    if types.is_null(source):
        return False
    old, new = type_from_arrow(source, ""), type_from_arrow(target, "")
    return old != new and not widens(old, new)


def _by_name(struct: pa.StructType) -> dict[str, pa.DataType]:
    return {child.name.lower(): child.type for child in struct}


@dataclass(frozen=True, slots=True)
class _ExactCast:
    what: str
    """The name of the column in errors."""

    def __call__(self, column: Column, source: pa.DataType, target: pa.DataType) -> Column:
        if not _may_change(source, target):
            return column
        if pa.types.is_struct(target):
            wanted = _by_name(target)
            parts = [
                self(column.getField(child.name), child.type, wanted[child.name.lower()]).alias(child.name)
                for child in source
            ]
            return F.when(column.isNotNull(), F.struct(*parts))
        if pa.types.is_map(target):
            keys = F.transform_keys(column, lambda key, _: self(key, source.key_type, target.key_type))
            return F.transform_values(keys, lambda _, item: self(item, source.item_type, target.item_type))
        if hasattr(target, "value_field"):
            return F.transform(column, lambda item: self(item, source.value_type, target.value_type))
        return self._leaf(column, source, target)

    def _leaf(self, column: Column, source: pa.DataType, target: pa.DataType) -> Column:
        types, kind = pa.types, spark_type_name(target)
        converted = column.try_cast(kind)
        is_same = converted.try_cast(spark_type_name(source)).eqNullSafe(column)
        # Spark takes the greatest integer for the float above it, and the other way around.
        if types.is_integer(source) and types.is_floating(target):
            is_same &= column.isNull() | (column != F.lit((1 << source.bit_width - 1) - 1))
        elif types.is_floating(source) and types.is_int64(target):
            is_same &= column.isNull() | (converted != F.lit((1 << 63) - 1))
        before = f"{_ERROR}{self.what} has a value that is not {kind}: "
        text = F.concat(F.lit(before), column.cast("string"), F.lit(" would be changed. Nothing was written"))
        return F.when(is_same, converted).otherwise(F.raise_error(text))
