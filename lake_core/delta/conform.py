"""Conversion of Arrow data to a table's schema: strict for writes, lenient for reads of older Parquet files."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import scalar
from lake_core.delta.errors import ConstraintViolation, CorruptDataFile, SchemaMismatch
from lake_core.delta.schema import DataType, arrow_type, is_zoneless, schema_from_arrow, type_from_arrow, zoneless
from lake_core.delta.variant_shredding import STORED, whole
from lake_core.exact_cast import cast_exactly
from lake_core.nested_arrays import leaf_types, map_leaves, rebased
from lake_core.variant_values import is_variant

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


def check_fits(data: pa.Schema, table: pa.Schema, computed: Collection[str] = ()) -> None:
    """Raise SchemaMismatch unless data of one schema can be written to a table of the other without loss.

    Columns are matched by name, ignoring case. The data may lack nullable columns and those that are `computed`, but
    may not have columns that the table lacks. Its types must be the table's, or types that widen to them.

    Raises UnsupportedType for types that need the caller's decision.
    """
    if not len(data):
        raise SchemaMismatch("the data has no columns: pass the columns of the table even if there are no rows")
    schema_from_arrow(data)  # each column must have a Delta type; what has only nulls fits every column
    _check_struct(list(data), [child.with_nullable(True) if child.name in computed else child for child in table], "")


def without_new_voids(data: pa.Schema, table: pa.Schema) -> pa.Schema:
    """Return a schema of rows without the columns that have only nulls and that the table lacks, at any depth."""
    return pa.schema(_without_new_voids(data, table))


def _without_new_voids(data: Iterable[pa.Field], table: Iterable[pa.Field]) -> list[pa.Field]:
    known = {child.name.lower(): child.type for child in table}
    return [
        child.with_type(_with_known(child.type, known.get(child.name.lower())))
        for child in data
        if child.name.lower() in known or not pa.types.is_null(child.type)
    ]


def _with_known(data: pa.DataType, table: pa.DataType | None) -> pa.DataType:
    types = pa.types
    if types.is_struct(data):
        fields = _without_new_voids(data, table if table is not None and types.is_struct(table) else ())
        # A new struct with only such fields is refused by their names.
        return pa.struct(fields) if fields else data
    if types.is_map(data):
        key, item = (table.key_type, table.item_type) if table is not None and types.is_map(table) else (None, None)
        return pa.map_(
            data.key_field.with_type(_with_known(data.key_type, key)),
            data.item_field.with_type(_with_known(data.item_type, item)),
        )
    if hasattr(data, "value_field"):
        element = table.value_type if table is not None and types.is_list(table) else None
        return pa.list_(data.value_field.with_type(_with_known(data.value_type, element)))
    return data


class EmptyPartitionValueWarning(UserWarning):
    """Empty texts of a column that a table is partitioned by become null, as the Delta protocol says."""


def null_partitions(rows: pa.Table, schema: pa.Schema, partition_columns: Sequence[str]) -> pa.Table:
    """Replace the partition value '' by null, as the log does, so that rules are checked on what readers will see.

    Warns with EmptyPartitionValueWarning.
    """
    for name in partition_columns:
        column = rows[name]
        if pa.types.is_string(column.type) and pc.any(pc.equal(column, "")).as_py():
            warnings.warn(
                f"column {name!r} has empty texts, and the table is partitioned by it: Delta stores them as null, so "
                f"a filter {name} = '' will not find them",
                EmptyPartitionValueWarning,
                stacklevel=2,
            )
            column = pc.if_else(pc.equal(column, ""), scalar(None, column.type), column)
            rows = rows.set_column(rows.schema.get_field_index(name), schema.field(name), column)
    return rows


def check_nulls(rows: pa.Table, schema: pa.Schema) -> None:
    """Raise ConstraintViolation for a null in a column, or a field of one, that the schema declares NOT NULL."""
    for child in schema:
        for chunk in rows[child.name].chunks:
            _check_nulls(chunk, child, child.name)


def conform_in(batch: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert data to the table's schema: columns in its order, types decoded and widened, missing columns null.

    NOT NULL is not checked. Call `check_fits` first. Raises SchemaMismatch for a value that a widening cannot hold
    exactly (nanoseconds, decimals).
    """
    by_name = {name.lower(): index for index, name in enumerate(batch.column_names)}
    columns = []
    for child in schema:
        index = by_name.get(child.name.lower())
        if index is None:
            columns.append(pa.chunked_array([pa.nulls(batch.num_rows, child.type)], child.type))
            continue
        try:
            chunks = [_convert(chunk, child.type) for chunk in batch.column(index).chunks]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaMismatch(f"column {child.name!r} cannot be written as {child.type}: {error}") from None
        columns.append(pa.chunked_array(chunks, child.type))
    for child, column in zip(schema, columns, strict=True):
        _check_text(child, column)
    return pa.Table.from_arrays(columns, schema=schema)


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema as data files have it; the same if nothing differs.

    They have no columns, and no fields of structs, without a type (void), and all of a variant. Protocol sections:
    Primitive Types, Variant Data Type.
    """
    stored = pa.schema([_stored_field(child) for child in schema if not pa.types.is_null(child.type)])
    return schema if stored.equals(schema) else stored


def _stored_field(child: pa.Field) -> pa.Field:
    kind = child.type
    if is_variant(kind):
        kind = STORED
    elif pa.types.is_struct(kind):
        fields = [_stored_field(field) for field in kind if not pa.types.is_null(field.type)]
        # A struct needs a field in Parquet, so one without any other keeps its void ones.
        kind = pa.struct(fields or list(kind))
    elif pa.types.is_map(kind):
        kind = pa.map_(kind.key_field, _stored_field(kind.item_field))
    elif pa.types.is_list(kind):
        kind = pa.list_(_stored_field(kind.value_field))
    return child.with_type(kind)


def conform_out(batch: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert rows of a data file to the table's schema: missing columns null, extra ones dropped, older types widened.

    Raises CorruptDataFile for a type that cannot become the table's.
    """
    by_name = {name: index for index, name in enumerate(batch.column_names)}
    folded = {name.lower(): index for name, index in by_name.items()}
    columns = []
    for child in schema:
        index = by_name.get(child.name, folded.get(child.name.lower()))
        if index is None:
            columns.append(pa.chunked_array([pa.nulls(batch.num_rows, child.type)], child.type))
            continue
        column = batch.column(index)
        if column.type != child.type:
            try:
                chunks = [_convert(_in_microseconds(chunk), child.type) for chunk in column.chunks]
                column = pa.chunked_array(chunks, child.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
                raise CorruptDataFile(
                    f"column {child.name!r} is {column.type} in a data file and {child.type} in the table: {error}"
                ) from None
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def _in_microseconds(array: pa.Array) -> pa.Array:
    """Return times in nanoseconds as the microsecond that they are in, as other readers of Delta do, at any level."""
    has_nanoseconds = any(pa.types.is_timestamp(leaf) and leaf.unit == "ns" for leaf in leaf_types(array.type))
    return map_leaves(array, _in_microsecond) if has_nanoseconds else array


def _in_microsecond(leaf: pa.Array) -> pa.Array:
    if not pa.types.is_timestamp(leaf.type) or leaf.type.unit != "ns":
        return leaf
    # Arrow's floor_temporal overflows at the least nanoseconds.
    moments = leaf.cast(pa.int64())
    quotients = pc.divide(moments, 1000)  # rounded towards zero
    floors = pc.subtract(quotients, pc.greater(pc.multiply(quotients, 1000), moments).cast(pa.int64()))
    return floors.cast(pa.timestamp("us", leaf.type.tz))


def _check_struct(data: list[pa.Field], table: list[pa.Field], path: str) -> None:
    table_fields = {child.name.lower(): child for child in table}
    present = {child.name.lower() for child in data}
    extra = [child.name for child in data if child.name.lower() not in table_fields]
    if extra:
        raise SchemaMismatch(
            f"the data has columns that the table lacks: {', '.join(path + name for name in extra)}. "
            f"Drop them, or add them to the table first"
        )
    for child in table:
        if not child.nullable and child.name.lower() not in present:
            raise SchemaMismatch(f"the data lacks the column {path}{child.name!r}, which the table declares NOT NULL")
    for child in data:
        _check_type(child.type, table_fields[child.name.lower()].type, path + child.name)


def _check_type(data: pa.DataType, table: pa.DataType, path: str) -> None:
    if pa.types.is_dictionary(data) or pa.types.is_run_end_encoded(data):
        data = data.value_type
    if pa.types.is_struct(table) and pa.types.is_struct(data):
        _check_struct(list(data), list(table), f"{path}.")
    elif pa.types.is_map(table) and pa.types.is_map(data):
        _check_type(data.key_type, table.key_type, f"{path}.key")
        _check_type(data.item_type, table.item_type, f"{path}.value")
    elif pa.types.is_list(table) and hasattr(data, "value_field"):
        _check_type(data.value_type, table.value_type, f"{path}.element")
    elif is_zoneless(data) and not is_zoneless(table):
        raise zoneless(path)
    elif not pa.types.is_null(data) and not _widens(data, table, path):
        raise SchemaMismatch(
            f"column {path!r} is {data} in the data and {table} in the table. Cast it to {table} before writing"
        )


def widens(data: DataType, table: DataType) -> bool:
    """Return whether values of one leaf type go into a column of the other without loss."""
    return _widens(arrow_type(data), arrow_type(table), "")


def _widens(data: pa.DataType, table: pa.DataType, path: str) -> bool:
    types = pa.types
    source = arrow_type(type_from_arrow(data, path))
    if source == table:
        return True
    if types.is_integer(source) and types.is_integer(table):
        return bool(source.bit_width <= table.bit_width)
    if types.is_integer(source) and types.is_decimal(table):
        return bool({8: 3, 16: 5, 32: 10, 64: 19}[source.bit_width] <= table.precision - table.scale)
    if types.is_decimal(source) and types.is_decimal(table):
        return bool(source.scale <= table.scale and source.precision - source.scale <= table.precision - table.scale)
    if types.is_floating(table):
        if types.is_integer(source):
            return bool(source.bit_width <= (32 if types.is_float64(table) else 16))
        return bool(types.is_floating(source) and source.bit_width <= table.bit_width)
    return False


def plain(rows: pa.Table) -> pa.Table:
    """Convert rows of any origin to the types that a table would give them; columns with only nulls stay as they are.

    Raises UnsupportedType.
    """
    kinds = [arrow_type(type_from_arrow(child.type, child.name)) for child in rows.schema]
    columns = []
    for child, column, kind in zip(rows.schema, rows.columns, kinds, strict=True):
        try:
            columns.append(pa.chunked_array([_convert(chunk, kind) for chunk in column.chunks], kind))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaMismatch(f"column {child.name!r} cannot be converted to {kind}: {error}") from None
    return pa.Table.from_arrays(
        columns, schema=pa.schema([pa.field(c.name, kind) for c, kind in zip(rows.schema, kinds, strict=True)])
    )


def convert_exactly(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column in another type. Fields of structs are matched by name, ignoring case; missing ones are null.

    Raises ArrowInvalid for a value that is not the same in that type, ArrowNotImplementedError for types without a
    conversion.
    """
    return pa.chunked_array([_convert(chunk, kind) for chunk in column.chunks], kind)


def relabelled(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows under the names of another schema of the same shape, at every level."""
    if rows.schema.equals(schema, check_metadata=True):
        return rows
    columns = []
    for column, child in zip(rows.columns, schema, strict=True):
        columns.append(
            pa.chunked_array([_convert(chunk, child.type, by_position=True) for chunk in column.chunks], child.type)
        )
    return pa.Table.from_arrays(columns, schema=schema)


def _convert(array: pa.Array, kind: pa.DataType, *, by_position: bool = False) -> pa.Array:
    if array.type == kind:
        return array
    types = pa.types
    source = array.type
    if types.is_null(source):
        return pa.nulls(len(array), kind)
    if types.is_dictionary(source):
        return _convert(array.dictionary_decode(), kind)
    if types.is_run_end_encoded(source):
        return _convert(pc.run_end_decode(array), kind)
    if is_variant(kind) and types.is_struct(source):
        return whole(array, kind)
    if types.is_struct(kind) and types.is_struct(source):
        children = []
        for index, source_index in enumerate(_matching_fields(source, kind, by_position)):
            child = kind.field(index)
            part = pa.nulls(len(array), child.type) if source_index is None else pc.struct_field(array, [source_index])
            children.append(part if source_index is None else _convert(part, child.type, by_position=by_position))
        return (
            pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
            if children
            else _empty_structs(array, kind)
        )
    if types.is_list(kind) and hasattr(source, "value_field"):
        offsets, children = _lists(array)
        values = _convert(children, kind.value_type, by_position=by_position)
        return pa.ListArray.from_arrays(offsets, values, type=kind, mask=array.is_null() if array.null_count else None)
    if types.is_map(kind) and types.is_map(source):
        offsets, first, last = rebased(array)
        keys = _convert(array.keys.slice(first, last - first), kind.key_type, by_position=by_position)
        items = _convert(array.items.slice(first, last - first), kind.item_type, by_position=by_position)
        return pa.MapArray.from_arrays(
            offsets, keys, items, type=kind, mask=array.is_null() if array.null_count else None
        )
    if types.is_timestamp(kind) and types.is_timestamp(source):
        # The zone is only a label of an instant: only the unit is converted, and this must be exact.
        return array.cast(pa.timestamp(kind.unit, source.tz)).cast(kind)
    return cast_exactly(array, kind)


def _matching_fields(source: pa.StructType, kind: pa.StructType, by_position: bool) -> list[int | None]:
    """Return for each field of `kind` the index of the source's field of that name, ignoring case if necessary."""
    if by_position:
        return list(range(kind.num_fields))
    exact = {child.name: index for index, child in enumerate(source)}
    folded = {child.name.lower(): index for index, child in enumerate(source)}
    return [exact.get(child.name, folded.get(child.name.lower())) for child in kind]


def _empty_structs(array: pa.Array, kind: pa.StructType) -> pa.Array:
    return pa.array([None if missing else {} for missing in array.is_null().to_pylist()], kind)


def _lists(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return offsets from 0, and the child values that they span, of any kind of list."""
    if pa.types.is_list(array.type):
        offsets, first, last = rebased(array)
        return offsets, array.values.slice(first, last - first)
    # Views may overlap or be in any order, and fixed and large lists have no 32-bit offsets, so compute these.
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32()), array.flatten()


def _check_text(child: pa.Field, column: pa.ChunkedArray) -> None:
    if not any(map(pa.types.is_string, leaf_types(child.type))):
        return
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise SchemaMismatch(f"column {child.name!r} holds bytes that are not UTF-8 text: {error}") from None


def _check_nulls(array: pa.Array, child: pa.Field, path: str) -> None:
    if not child.nullable and array.null_count:
        raise ConstraintViolation(f"column {path!r} is NOT NULL, but {array.null_count} of its values are null")
    if pa.types.is_struct(child.type) and any(not c.nullable or pa.types.is_nested(c.type) for c in child.type):
        present = array.filter(array.is_valid()) if array.null_count else array
        for index, nested in enumerate(child.type):
            _check_nulls(pc.struct_field(present, [index]), nested, f"{path}.{nested.name}")
    elif pa.types.is_list(child.type) and (
        not child.type.value_field.nullable or pa.types.is_nested(child.type.value_type)
    ):
        _check_nulls(array.flatten(), child.type.value_field, f"{path}.element")
    elif pa.types.is_map(child.type) and (
        not child.type.item_field.nullable or pa.types.is_nested(child.type.item_type)
    ):
        present = array.filter(array.is_valid()) if array.null_count else array
        _check_nulls(present.items, child.type.item_field, f"{path}.value")
