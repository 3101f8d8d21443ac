"""Store assignment: conversion of values to the type of the column they are written to, by Spark's ANSI policy."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.exact_cast import cast_exactly
from lake_core.expression.cast import cast_array, castable
from lake_core.expression.coercion import TIMESTAMP, TIMESTAMP_NTZ, is_number, spark_name
from lake_core.expression.errors import EvaluationFailed, InvalidExpression

_MOMENTS = (pa.date32(), TIMESTAMP, TIMESTAMP_NTZ)


def check_assignable(source: pa.DataType, target: pa.DataType, name: str, *, fill: bool = False) -> None:
    """Raise InvalidExpression if values of type `source` cannot be written to the column `name` of type `target`.

    With `fill`, structs are matched by the names of their fields, ignoring case, and may lack fields, which are null.
    """
    if not _assignable(source, target, fill):
        raise InvalidExpression(f"{spark_name(source)} cannot be assigned to {name} ({spark_name(target)}); cast it")


def store_assign(
    array: pa.ChunkedArray, target: pa.DataType, *, fill: bool = False, exact: bool = False
) -> pa.ChunkedArray:
    """Convert the values to `target`. `fill` is as in `check_assignable`.

    Spark cuts the fractions of numbers, and the times of days; with `exact` such a value is an error.

    Raises InvalidExpression for types that cannot be assigned, and EvaluationFailed for a value that does not fit.
    """
    check_assignable(array.type, target, "a column", fill=fill)
    return pa.chunked_array([_assigned(chunk, target, exact) for chunk in array.chunks], target)


def fields_by_name(source: pa.StructType, target: pa.StructType) -> list[int | None]:
    """Return for each field of `target` the number of the source's field of that name, ignoring case."""
    numbers = {child.name.lower(): number for number, child in enumerate(source)}
    return [numbers.get(child.name.lower()) for child in target]


def _assignable(source: pa.DataType, target: pa.DataType, fill: bool) -> bool:
    types = pa.types
    if source == target or types.is_null(source):
        return True
    if is_number(source) and is_number(target):
        return castable(source, target)
    if source in _MOMENTS and target in _MOMENTS:
        return True
    if types.is_string(target):
        return not types.is_nested(source) and castable(source, target)
    if types.is_struct(source) and types.is_struct(target):
        if not fill:
            return [child.name for child in source] == [child.name for child in target] and all(
                _assignable(old.type, new.type, fill) for old, new in zip(source, target, strict=True)
            )
        numbers = fields_by_name(source, target)
        return {*range(source.num_fields)} <= {*numbers} and all(
            number is None or _assignable(source.field(number).type, child.type, fill)
            for number, child in zip(numbers, target, strict=True)
        )
    if types.is_list(source) and types.is_list(target):
        return _assignable(source.value_type, target.value_type, fill)
    if types.is_map(source) and types.is_map(target):
        return _assignable(source.key_type, target.key_type, fill) and _assignable(
            source.item_type, target.item_type, fill
        )
    return False


def _assigned(array: pa.Array, target: pa.DataType, exact: bool) -> pa.Array:
    if array.type == target:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    if pa.types.is_struct(target):
        # `flatten` makes children null where their struct is null, so values below a null are not checked.
        parts = array.flatten()
        children = [
            pa.nulls(len(array), child.type) if number is None else _assigned(parts[number], child.type, exact)
            for number, child in zip(fields_by_name(array.type, target), target, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())
    if pa.types.is_list(target):
        return _list(array, target, exact)
    if pa.types.is_map(target):
        # A map has the same layout as a list of its entries.
        entries = pa.list_(pa.struct([array.type.key_field, array.type.item_field]))
        entry_lists = pa.list_(pa.struct([target.key_field, target.item_field]))
        assigned = _assigned(array.cast(entries), entry_lists, exact)
        keys, items = assigned.values.flatten()
        return pa.MapArray.from_arrays(assigned.offsets, keys, items, target, mask=array.is_null())
    return _exactly(array, target) if exact else cast_array(array, target)


def _exactly(array: pa.Array, target: pa.DataType) -> pa.Array:
    is_day = pa.types.is_timestamp(array.type) and pa.types.is_date(target)
    if not is_day and not (is_number(array.type) and is_number(target)):
        return cast_array(array, target)
    try:
        if is_day and not pc.all(pc.equal(pc.floor_temporal(array, unit="day"), array)).as_py():
            raise pa.ArrowInvalid("a time of the day would be cut off")
        return cast_array(array, target) if is_day else cast_exactly(array, target)
    except pa.ArrowInvalid as error:
        raise EvaluationFailed(
            f"a {spark_name(array.type)} of the source is not the same as {spark_name(target)}: {error}. Cast the "
            "column of the source, or name the columns and their values in the merge"
        ) from None


def _list(array: pa.Array, target: pa.DataType, exact: bool) -> pa.Array:
    sizes = pc.fill_null(pc.list_value_length(array), 0)
    ends = pc.cumulative_sum(sizes)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])
    try:
        # `flatten` leaves out values below a null.
        return pa.ListArray.from_arrays(
            offsets, _assigned(array.flatten(), target.value_type, exact), type=target, mask=array.is_null()
        )
    except pa.ArrowException as error:
        raise EvaluationFailed(f"a list cannot be assigned to {target}: {error}") from None
