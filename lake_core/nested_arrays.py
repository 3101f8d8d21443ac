"""The leaves of nested Arrow arrays and types: the values below structs, lists and maps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def leaf_types(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the types of the leaves, in the order of a file of Parquet."""
    if pa.types.is_nested(kind):
        for number in range(kind.num_fields):
            yield from leaf_types(kind.field(number).type)
    else:
        yield kind


def map_leaf_types(kind: pa.DataType, convert: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type with other leaves. `convert` is called for each of them, in the order of `leaf_types`."""
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([child.with_type(map_leaf_types(child.type, convert)) for child in kind])
    if types.is_map(kind):
        children = (child.with_type(map_leaf_types(child.type, convert)) for child in (kind.key_field, kind.item_field))
        return pa.map_(*children, keys_sorted=kind.keys_sorted)
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(map_leaf_types(kind.value_type, convert)))
    return convert(kind)


def map_leaves(array: pa.Array, convert: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Return an array with other leaves. `convert` is called for each of them, in the order of `leaf_types`."""
    kind, types = array.type, pa.types
    mask = array.is_null() if array.null_count else None
    if types.is_struct(kind):
        children = [map_leaves(child, convert) for child in array.flatten()]
        fields = [child.with_type(values.type) for child, values in zip(kind, children, strict=True)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    if types.is_map(kind):
        offsets, first, last = rebased(array)
        keys, items = (map_leaves(part.slice(first, last - first), convert) for part in (array.keys, array.items))
        map_type = pa.map_(
            kind.key_field.with_type(keys.type), kind.item_field.with_type(items.type), keys_sorted=kind.keys_sorted
        )
        return pa.MapArray.from_arrays(offsets, keys, items, type=map_type, mask=mask)
    if types.is_list(kind):
        offsets, first, last = rebased(array)
        values = map_leaves(array.values.slice(first, last - first), convert)
        list_type = pa.list_(kind.value_field.with_type(values.type))
        return pa.ListArray.from_arrays(offsets, values, type=list_type, mask=mask)
    return convert(array)


def rebased(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Return offsets of a list or map from 0 in an array of their own, and which of the child values they span."""
    offsets = array.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    return pa.array(offsets - first), first, last
