"""The CF conventions for the values of an array, as xarray applies them: missing values, scale and offset.

This code runs in Spark's executors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.readable import count_of
from lake_core.spark.errors import InvalidValues

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class CFEncoding:
    """The encoding of an array's values in its cells."""

    path: str
    """The path of the array, for messages."""
    stored: np.dtype[Any]
    """The type of the cells."""
    decoded: np.dtype[Any]
    """The type of the values."""
    missing: tuple[Any, ...] = ()
    """The values of cells that stand for a missing value. The first one is used to write."""
    scale_factor: float | None = None
    add_offset: float | None = None

    @property
    def is_packed(self) -> bool:
        """Return whether values are scaled or shifted."""
        return self.scale_factor is not None or self.add_offset is not None

    def decode(self, cells: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the values of cells."""
        if not self.missing and not self.is_packed:
            plain: npt.NDArray[Any] = cells.astype(self.decoded, copy=False)
            return plain
        values: npt.NDArray[Any] = cells.astype(self.decoded)
        for missing in self.missing:
            # NaN is already a missing value.
            if missing == missing:
                values[cells == missing] = np.nan
        if self.scale_factor is not None:
            values *= self.scale_factor
        if self.add_offset is not None:
            values += self.add_offset
        return values

    def encode(self, values: pa.Array) -> npt.NDArray[Any]:
        """Return the cells of values.

        Raises:
            InvalidValues: A value is null and the array has no missing value, or a value does not fit the cells.
        """
        if self.stored.kind in "OT":
            return self._texts(values)
        if self.decoded.kind == "b":
            truths: npt.NDArray[Any] = self._without_nulls(values).to_numpy(zero_copy_only=False).astype(self.stored)
            return truths
        if self.stored.kind in "iu" and not self.is_packed and pa.types.is_integer(values.type):
            return self._integers(values)
        return self._reals(values)

    def _texts(self, values: pa.Array) -> npt.NDArray[Any]:
        texts: npt.NDArray[Any] = np.array(self._without_nulls(values).to_pylist(), object)
        return texts

    def _integers(self, values: pa.Array) -> npt.NDArray[Any]:
        """Return integers without a conversion to floats, which would round those beyond 2**53."""
        if not self.missing:
            values = self._without_nulls(values)
        absent = values.is_null().to_numpy(zero_copy_only=False)
        return self._with_missing(self._whole(values.fill_null(0).to_numpy(zero_copy_only=False)), absent)

    def _reals(self, values: pa.Array) -> npt.NDArray[Any]:
        numbers: npt.NDArray[Any] = pc.cast(values, pa.float64(), safe=False).to_numpy(
            zero_copy_only=False
        )  # null becomes NaN
        absent = np.isnan(numbers)
        if self.stored.kind != "f" and absent.any() and not self.missing:
            raise self._no_missing_value(int(absent.sum()))
        if self.add_offset is not None:
            numbers = numbers - self.add_offset
        if self.scale_factor is not None:
            numbers = numbers / self.scale_factor
        cells = (
            self._rounded(numbers) if self.stored.kind == "f" else self._whole(np.rint(np.where(absent, 0, numbers)))
        )
        return self._with_missing(cells, absent)

    def _with_missing(self, cells: npt.NDArray[Any], absent: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        """Set the cells of absent values to the missing value. Raises InvalidValues if another value is equal to it."""
        for missing in self.missing:
            if (cells[~absent] == missing).any():
                raise InvalidValues(
                    f"a value would be stored as {missing}, which stands for a missing value in {self.path}: filter "
                    "such rows, or store the array with another _FillValue"
                )
        if absent.any():
            cells[absent] = self.missing[0] if self.missing else np.nan
        return cells

    def _rounded(self, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        with np.errstate(over="ignore"):
            cells: npt.NDArray[Any] = numbers.astype(self.stored)
        outside = np.isinf(cells) & ~np.isinf(numbers)
        if outside.any():
            raise self._outside(numbers[outside][0])
        return cells

    def _whole(self, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        limits = np.iinfo(self.stored)
        # A float cannot hold the largest 64-bit number exactly, but it can hold the one after it.
        above = numbers >= float(limits.max) + 1 if numbers.dtype.kind == "f" else numbers > limits.max
        outside = above | (numbers < limits.min)
        if outside.any():
            raise self._outside(numbers[outside][0])
        return numbers.astype(self.stored)

    def _outside(self, number: Any) -> InvalidValues:
        return InvalidValues(
            f"a value would be stored as {number:g}, which does not fit {self.path}, whose cells are "
            f"{self.stored.name}: store the array with another type or scale_factor, or filter such rows"
        )

    def _without_nulls(self, values: pa.Array) -> pa.Array:
        if values.null_count:
            raise self._no_missing_value(values.null_count)
        return values

    def _no_missing_value(self, count: int) -> InvalidValues:
        return InvalidValues(
            f"{count_of(count, 'row')} without a value cannot be stored, because {self.path} has no "
            "_FillValue: filter them, which leaves their cells unchanged, "
            "or store the array with a _FillValue"
        )


def missing_values(encoding: dict[str, Any], stored: np.dtype[Any]) -> tuple[Any, ...]:
    """Return the missing values of an array from the encoding that xarray gives its variable."""
    values: list[Any] = []
    for name in ("_FillValue", "missing_value"):
        markers: Sequence[Any] = np.atleast_1d(encoding[name]).tolist() if name in encoding else []
        values.extend(stored.type(value) for value in markers)
    return tuple(values)
