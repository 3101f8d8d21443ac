"""The coordinates along a dimension of an array, as a column, and an index that finds their positions.

This code runs in Spark's executors, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.spark.arrays.cell_types import TIMESTAMP
from lake_core.spark.errors import InvalidColumns, InvalidCoordinates

_NAIVE = pa.timestamp("us")


@dataclass(frozen=True, slots=True)
class Coordinates:
    """The coordinates along one dimension."""

    dimension: str
    values: pa.Array
    """One for each position. They are 0, 1, … if the array's group has no coordinates along the dimension."""


@dataclass(frozen=True, slots=True)
class CoordinateIndex:
    """Finds the positions of coordinates along a dimension."""

    dimension: str
    type: pa.DataType
    """The type that coordinates are cast to before they are looked up."""
    sorted: pa.Array
    order: npt.NDArray[np.int64]
    """The position of each of the sorted coordinates."""

    def positions(self, column: pa.Array) -> npt.NDArray[np.int64]:
        """Return the position of each coordinate, or -1 if the dimension lacks it."""
        row_values = _comparable(column, self.type)
        if pa.types.is_string(self.type):
            numbers = pc.index_in(row_values, self.sorted).fill_null(-1).to_numpy(zero_copy_only=False)
            return (
                np.where(numbers < 0, -1, self.order[numbers]).astype(np.int64)
                if len(self.order)
                else numbers.astype(np.int64)
            )
        keys, row_keys = _keys(self.sorted), _keys(row_values)
        if not len(keys):
            return np.full(len(column), -1, np.int64)
        numbers = np.minimum(np.searchsorted(keys, row_keys), len(keys) - 1)
        exists = (keys[numbers] == row_keys) & row_values.is_valid().to_numpy(zero_copy_only=False)
        return np.where(exists, self.order[numbers], -1).astype(np.int64)


def coordinate_index(coordinates: Coordinates, column_type: pa.DataType) -> CoordinateIndex:
    """Return an index of coordinates for a DataFrame's column of the dimension.

    Raises:
        InvalidColumns: The type of the column cannot be compared with the coordinates.
        InvalidCoordinates: A coordinate occurs twice, or is missing.
    """
    values = coordinates.values
    if not _are_comparable(values.type, column_type):
        raise InvalidColumns(
            f"the column {coordinates.dimension!r} is of the type {column_type}, but the coordinates of the array "
            f"along that dimension are {values.type}: cast the column"
        )
    type_ = _type_to_compare(values.type)
    comparable = _comparable(values, type_)
    order = pc.sort_indices(comparable).to_numpy().astype(np.int64)
    ordered = comparable.take(pa.array(order))
    if values.null_count:
        raise InvalidCoordinates(
            f"a coordinate along {coordinates.dimension!r} is missing (NaT or None): set a coordinate for each position"
        )
    equal = pc.equal(ordered[1:], ordered[:-1]).to_numpy(zero_copy_only=False).astype(bool)
    if equal.any():
        twice = ordered[int(equal.argmax())].as_py()
        raise InvalidCoordinates(
            f"the coordinate {twice} occurs twice along {coordinates.dimension!r}, so rows cannot be "
            "assigned to one position"
        )
    return CoordinateIndex(coordinates.dimension, type_, ordered, order)


def _are_comparable(type_: pa.DataType, column_type: pa.DataType) -> bool:
    if pa.types.is_timestamp(type_):
        return bool(pa.types.is_timestamp(column_type) or pa.types.is_date(column_type))
    if pa.types.is_floating(type_):
        return bool(pa.types.is_floating(column_type) or pa.types.is_integer(column_type))
    if pa.types.is_integer(type_):
        return bool(pa.types.is_integer(column_type))
    return bool(type_ == column_type)


def _type_to_compare(type_: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_integer(type_) or pa.types.is_boolean(type_) else type_


def _comparable(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """Convert coordinates to one type. Times become instants. A time without a zone is UTC, as in CF.

    Integers that a float cannot hold become null, because the rounded numbers may be the coordinates of other cells.
    """
    if type_ == TIMESTAMP:
        return (
            column.cast(TIMESTAMP)
            if pa.types.is_timestamp(column.type) and column.type.tz
            else column.cast(_NAIVE).cast(TIMESTAMP)
        )
    values = column.cast(type_, safe=False)
    if pa.types.is_floating(type_) and pa.types.is_integer(column.type):
        is_exact = pc.equal(values.cast(pa.int64(), safe=False), column)
        values = pc.if_else(is_exact, values, pa.scalar(None, type_))
    return values


def _keys(values: pa.Array) -> npt.NDArray[Any]:
    """Return numbers that sort and compare as the values do. A null may become any number."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    if pa.types.is_integer(values.type):
        values = values.fill_null(0)
    numbers: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return numbers
