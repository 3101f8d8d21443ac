"""MERGE by keys: each source row has a key, and no two rows have the same."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta.errors import DuplicateKeys, NullKeys, SchemaMismatch
from lake_core.delta.operations.merge_condition import Key, common_type
from lake_core.delta.operations.merge_match import key_columns
from lake_core.expression import Column
from lake_core.readable import shown_values

if TYPE_CHECKING:
    from collections.abc import Sequence

SHOWN = 3
"""Keys that an error shows."""


def key_names(source: pa.Schema, keys: Sequence[str]) -> list[str]:
    """Return the names of the key columns as in a source.

    Raises SchemaMismatch for a missing column, and for a nested one.
    """
    spelled = {name.lower(): name for name in source.names}
    for key in keys:
        if key.lower() not in spelled:
            raise SchemaMismatch(
                f"the merge key {key!r} is not a column of the source: its columns are {list(source.names)}"
            )
        if pa.types.is_nested(source.field(spelled[key.lower()]).type):
            raise SchemaMismatch(
                f"the merge key {key!r} is a nested column: only columns of a primitive type can be keys"
            )
    return [spelled[key.lower()] for key in keys]


def check_keys(source: pa.Table, keys: Sequence[str]) -> None:
    """Raise NullKeys or DuplicateKeys unless each row of a source has a distinct key without nulls."""
    names = key_names(source.schema, keys)
    without_key = pc.sum(reduce(pc.or_, [pc.is_null(source[name]) for name in names])).as_py()
    if without_key:
        raise null_keys(names, without_key)
    columns = [Column((name,), source.schema.field(name).type) for name in names]
    keys_of_rows = [
        Key(f"k{number}", column, column, common_type(column.type, column.type) or column.type)
        for number, column in enumerate(columns)
    ]
    values = key_columns(source, keys_of_rows, target=False)
    rows = pa.table({**values, "row": np.arange(len(source))})
    groups = rows.group_by(list(values)).aggregate([("row", "count"), ("row", "min")])
    shared = groups.filter(pc.greater(groups["row_count"], 1)).sort_by("row_min")
    if len(shared):
        shown = source.select(names).take(shared["row_min"][:SHOWN])
        first = list(zip(*map(shown_values, shown.columns), strict=True))
        raise duplicate_keys(names, pc.sum(shared["row_count"]).as_py(), len(shared), first)


def null_keys(names: Sequence[str], rows: int) -> NullKeys:
    """Return the error for rows without a key."""
    return NullKeys(
        f"{rows} of the rows to merge have a null in the key ({', '.join(names)}): they match no row, "
        "and each merge would insert them again. Leave them out, give them a key, or write the merge "
        "with a condition and clauses. Nothing was changed"
    )


def duplicate_keys(names: Sequence[str], rows: int, keys: int, shown: Sequence[tuple[object, ...]]) -> DuplicateKeys:
    """Return the error for rows that share their keys. `shown`: some of these keys."""
    samples = ", ".join(str(key[0]) if len(key) == 1 else f"({', '.join(map(str, key))})" for key in shown)
    more = ", …" if keys > len(shown) else ""
    return DuplicateKeys(
        f"{rows} of the rows to merge share a key ({', '.join(names)}) with another one, such as "
        f"{samples}{more}, so the result is ambiguous. Keep one row for each key, such as the latest, or "
        "add a column to the key. Nothing was changed"
    )
