"""Turns rows of other kinds into values: Arrow data, and mappings of names to Python objects."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from lake_core.pool.arrow.arrow_type import inferred_type
from lake_core.pool.arrow.columns import values_of
from lake_core.pool.errors import InvalidType, InvalidValue
from lake_core.pool.key_range import key_value
from lake_core.pool.row_files import batches_of_path, batches_of_stream
from lake_core.pool.value import NULL_VALUE, Value
from lake_core.pool.value_batch import ValueBatch, batches_of_arrow, batches_of_values


def batches_of_rows(rows: Any) -> Iterator[ValueBatch]:
    """Yield rows as values.

    Args:
        rows: Arrow data (a table, a record batch, what has an Arrow stream); the path of a file or an open one, see `batches_of_path` and
            `batches_of_stream`; or an iterable of objects as `value_of` takes them.

    Raises:
        InvalidValue: A row has no form as a value.
        InvalidType: A column of Arrow data has no Zed type.
    """
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if hasattr(rows, "__arrow_c_stream__"):
        for batch in pa.RecordBatchReader.from_stream(rows):
            yield from batches_of_arrow(batch)
    elif isinstance(rows, str | os.PathLike):
        yield from batches_of_path(rows)
    elif hasattr(rows, "read"):
        yield from batches_of_stream(rows)
    elif isinstance(rows, Iterable) and not isinstance(rows, bytes | Mapping):
        yield from batches_of_values(map(value_of, rows))
    else:
        raise InvalidValue(f"{str(rows)[:80]!r} has no rows; give Arrow data, a file, or a list of mappings or values")


def value_of(row: Any) -> Value:
    """Return a Python object as a value. Raises InvalidValue.

    Args:
        row: A Value, None, a scalar as `key_value` takes it, or a mapping or list of what Arrow finds a type for. A field that a mapping
            does not have is missing in the record; one that is None is null.
    """
    if row is None:
        return NULL_VALUE
    if not isinstance(row, Mapping | list):
        return row if isinstance(row, Value) else key_value(row)
    try:
        array = pa.array([dict(row) if isinstance(row, Mapping) else row])
        return values_of(inferred_type(array.type), array)[0]
    except (pa.ArrowException, InvalidType, TypeError, OverflowError) as error:
        raise InvalidValue(f"a row has no form as a value: {error}; give it as a Value or as an Arrow table") from None
