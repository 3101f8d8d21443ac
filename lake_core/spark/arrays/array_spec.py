"""The layout of an array that a write creates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """The layout of an array that `write_array` creates if it does not exist."""

    coordinates: Mapping[str, Any] = field(default_factory=dict)
    """The coordinates along each dimension, in the order of the cells, as xarray takes them.

    A dimension that already has coordinates in the array's group keeps those. Any other dimension that is not named
    here gets the distinct values of its column, sorted.
    """
    encoding: Mapping[str, Any] = field(default_factory=dict)
    """The encoding of the array in xarray's names, such as chunks, dtype, fill_value, _FillValue and scale_factor.

    By default, Zarr chooses the chunks, and the cells have the type of the column of values. Cells without a row hold
    `fill_value`. Its default is `_FillValue`, or else NaN. Cells that are not floats need one of the two.
    """
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """The attributes of the array, such as units."""
