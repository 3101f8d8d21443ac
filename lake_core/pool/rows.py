"""Turns rows of other kinds into values: Arrow data, and mappings of names to Python objects."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import Any

import numpy as np
import pyarrow as pa

from lake_core.pool import types
from lake_core.pool.arrow.arrow_type import inferred_type
from lake_core.pool.arrow.columns import values_of
from lake_core.pool.errors import InvalidType, InvalidValue
from lake_core.pool.row_files import batches_of_path, batches_of_stream
from lake_core.pool.types import ArrayType, Field, RecordType
from lake_core.pool.value import NULL_VALUE, Tagged, Value, united
from lake_core.pool.value_batch import ValueBatch, batches_of_arrow, batches_of_values
from lake_core.pool.zng.tag import tagged


def batches_of_rows(rows: Any) -> Iterator[ValueBatch]:
    """Yield rows as values.

    Args:
        rows: Arrow data (a table, a record batch, any object with an Arrow stream); the path of a file or an open one,
            see `batches_of_path` and `batches_of_stream`; or an iterable of objects as `value_of` takes them.

    Raises:
        InvalidValue: A row cannot be stored as a value.
        InvalidType: A column of Arrow data has no Zed type.
    """
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if hasattr(rows, "__arrow_c_stream__"):
        for batch in _arrow_stream(rows):
            yield from batches_of_arrow(batch)
    elif isinstance(rows, str | os.PathLike):
        yield from batches_of_path(rows)
    elif hasattr(rows, "read"):
        yield from batches_of_stream(rows)
    elif isinstance(rows, Iterable) and not isinstance(rows, bytes | Mapping):
        yield from batches_of_values(map(value_of, rows))
    else:
        raise InvalidValue(
            f"{str(rows)[:80]!r} cannot be read as rows; give Arrow data, a file, or a list of mappings or values"
        )


def _arrow_stream(rows: Any) -> pa.RecordBatchReader:
    try:
        return pa.RecordBatchReader.from_stream(rows)
    except (pa.ArrowException, TypeError) as error:
        raise InvalidValue(
            f"rows of the type {type(rows).__name__} cannot be converted to Arrow columns: {error}; "
            "give each column one type, or pass a list of mappings"
        ) from None


def value_of(row: Any) -> Value:
    """Return a Python object as a value. Raises InvalidValue.

    Args:
        row: A Value; None, a bool, a number, a string, bytes, a date, time or duration, an address or network of the
            module ipaddress; or a mapping or list of all these. A field that a mapping does not have is missing in the
            record; one that is None is null. The elements of a list keep their types: several make a union. A datetime
            without a time zone is in UTC. Arrow converts other objects.
    """
    try:
        return _value_of(row)
    except RecursionError:
        raise InvalidValue("a row is nested too deeply, or contains itself; give one with fewer levels") from None


def _value_of(row: Any) -> Value:
    match row:
        case Value():
            return row
        case Tagged():
            return _value_of(row.value)
        case None:
            return NULL_VALUE
        case bool():
            return Value.of(types.BOOL, row)
        case int():
            return Value.of(types.INT64 if row < 1 << 63 else types.UINT64, int(row))
        case float():
            return Value.of(types.FLOAT64, float(row))
        case str():
            return Value.of(types.STRING, row)
        case bytes() | bytearray() | memoryview():
            return Value.of(types.BYTES, row)
        case IPv4Interface() | IPv6Interface():
            raise InvalidValue(f"{row!r} is an address with a network; give its `ip`, or its `network`")
        case IPv4Address() | IPv6Address():
            return Value.of(types.IP, row)
        case IPv4Network() | IPv6Network():
            return Value.of(types.NET, row)
        case Mapping():
            return _record(row)
        case list() | tuple() | set() | frozenset():
            element, bodies = united([_value_of(each) for each in row])
            return Value(ArrayType(element), b"".join(map(tagged, bodies)))
    return _by_arrow(row)


def _record(row: Mapping[Any, Any]) -> Value:
    for name in row:
        if not isinstance(name, str):
            raise InvalidValue(f"{name!r} is not the name of a field; give a string")
    fields = [(name, _value_of(each)) for name, each in row.items()]
    return Value(
        RecordType(tuple(Field(name, value.type) for name, value in fields)),
        b"".join([tagged(value.body) for _, value in fields]),
    )


def _by_arrow(row: Any) -> Value:
    """Return a date, a time, a duration, or an object of another library."""
    # Those of pandas have nanoseconds, which Arrow would leave out.
    to_numpy = getattr(row, "to_datetime64", None) or getattr(row, "to_timedelta64", None)
    row = row if to_numpy is None else to_numpy()
    if isinstance(row, np.datetime64 | np.timedelta64):
        row = _in_nanoseconds(row)
    try:
        array = pa.array([row])
        return values_of(inferred_type(array.type), array)[0]
    except (pa.ArrowException, InvalidType, TypeError, ValueError, OverflowError) as error:
        raise InvalidValue(
            f"an object of the type {type(row).__name__} cannot be stored as a value: {error}; "
            "give a number, a string or a Value instead"
        ) from None


def _in_nanoseconds(row: np.datetime64 | np.timedelta64) -> np.datetime64 | np.timedelta64:
    """Return a time or duration of NumPy in nanoseconds: Arrow does not take all units. Raises InvalidValue."""
    exact = np.datetime_data(row.dtype)[0] != "generic"
    nanoseconds: np.datetime64 | np.timedelta64 = row.astype(f"{row.dtype.kind}8[ns]") if exact else row
    if not exact or np.isnat(row) or nanoseconds.astype(row.dtype) != row:
        raise InvalidValue(f"{row!r} cannot be stored as a value: it is no number of nanoseconds in 64 bits")
    return nanoseconds
