"""Compares values with those that are read back from their cells, exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def comes_back(
    values: npt.NDArray[Any],
    decoded: npt.NDArray[Any],
    *,
    tolerance: float | npt.NDArray[Any] | None = None,
    rounded: np.dtype[Any] | None = None,
) -> npt.NDArray[np.bool_]:
    """Return which values are equal to the decoded ones. Missing values are equal to one another.

    Args:
        values: The values.
        decoded: The values that were read back, of the same shape.
        tolerance: How far a number may be from its value.
        rounded: A type of floats or complex numbers. Values of the same kind may be rounded to it.
    """
    if values.dtype.kind == "O" or decoded.dtype.kind == "O":
        return _equal_objects(values, decoded)
    if values.dtype.kind == "V" or decoded.dtype.kind == "V":
        return _equal_records(values, decoded)
    if values.dtype.kind in "mM" or decoded.dtype.kind in "mM":
        missing = _missing(values), _missing(decoded)
        return (missing[0] & missing[1]) | (_equal_times(values, decoded) & ~missing[0] & ~missing[1])
    if values.dtype.kind not in "biufc" or decoded.dtype.kind not in "biufc":
        return np.asarray((_missing(values) & _missing(decoded)) | (values == decoded), bool)
    if tolerance is None or values.dtype.kind == "c":
        return _equal_numbers(values, decoded, rounded)
    # Most packed values are near. Only the others are looked at closely.
    same = np.asarray(np.abs(values - decoded) <= tolerance, bool)
    if not same.all():
        others = ~same
        tolerances = np.broadcast_to(tolerance, values.shape)[others]
        same[others] = _equal_numbers(values[others], decoded[others], rounded) | _is_near(
            values[others], decoded[others], tolerances
        )
    return same


def _equal_numbers(
    values: npt.NDArray[Any], decoded: npt.NDArray[Any], rounded: np.dtype[Any] | None
) -> npt.NDArray[np.bool_]:
    same = _converts(values, decoded.dtype) & (values.astype(decoded.dtype) == decoded)
    same |= _missing(values) & _missing(decoded)
    if rounded is not None and values.dtype.kind in "fc" and np.can_cast(values.dtype, rounded, "same_kind"):
        nearest = values.astype(rounded)
        same |= (nearest.astype(decoded.dtype) == decoded) & (np.isfinite(nearest) == np.isfinite(values))
    return np.asarray(same, bool)


def _is_near(values: npt.NDArray[Any], decoded: npt.NDArray[Any], tolerance: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which packed values are as near as the arithmetic allows: it adds some of the last digits of each side."""
    digits = np.spacing(np.abs(decoded)).astype(np.float64)
    if values.dtype.kind == "f":
        # Half floats are converted before.
        digits = np.maximum(digits, np.spacing(np.abs(values.astype(np.promote_types(values.dtype, np.float32)))))
    widened = tolerance * (1 + 1e-9) + 2 * digits
    return np.asarray(np.isfinite(values) & (np.abs(values.astype(np.float64) - decoded) <= widened), bool)


def _converts(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[np.bool_]:
    """Return which numbers a type holds exactly.

    A comparison of integers with floats alone would not see it: it rounds the integers first.
    """
    if values.dtype == dtype or (
        np.can_cast(values.dtype, dtype, "safe")
        and not (values.dtype.kind in "iu" and values.dtype.itemsize == 8 and dtype.kind in "fc")
    ):
        return np.ones(values.shape, bool)
    converted = values.astype(dtype)
    same: npt.NDArray[np.bool_] = converted.astype(values.dtype) == values
    if values.dtype.kind in "iu" and dtype.kind in "iu":
        # A negative number and a large one without a sign can be of the same bits.
        same &= (converted < 0) == (values < 0)
    if values.dtype.kind in "iu" and dtype.kind in "fc":
        # The largest integers are rounded up to a float that no integer of the type is equal to.
        same &= converted.real < float(np.iinfo(values.dtype).max)
    return same


def _equal_times(values: npt.NDArray[Any], decoded: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Compare moments or spans of other units without an overflow."""
    if values.dtype.kind != decoded.dtype.kind:
        return np.zeros(values.shape, bool)
    converted = values.astype(decoded.dtype)
    same: npt.NDArray[np.bool_] = (converted == decoded) & (converted.astype(values.dtype) == values)
    return same


def _missing(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    if values.dtype.kind in "mM":
        return np.asarray(np.isnat(values), bool)
    missing: npt.NDArray[np.bool_] = np.isnan(values) if values.dtype.kind in "fc" else np.zeros(values.shape, bool)
    return missing


def _equal_records(values: npt.NDArray[Any], decoded: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    names = values.dtype.names
    if names is None or names != decoded.dtype.names:
        return np.asarray(values == decoded, bool) if values.dtype == decoded.dtype else np.zeros(values.shape, bool)
    same = np.ones(values.shape, bool)
    for name in names:
        part = comes_back(values[name], decoded[name])
        # A field can be an array itself.
        same &= part.reshape(*values.shape, -1).all(axis=-1)
    return same


def _equal_objects(values: npt.NDArray[Any], decoded: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    if decoded.dtype.kind == "M":
        # Xarray reads dates of the standard calendar as numpy's, if they are between 1678 and 2262.
        decoded = decoded.astype("datetime64[us]").astype(object)
    return np.asarray(np.frompyfunc(_is_equal, 2, 1)(values, decoded), bool)


def is_missing(value: Any) -> bool:
    """Return whether an object is a missing value: None, NaN or another that is not equal to itself."""
    return bool(value is None or value != value)


def _is_equal(value: Any, found: Any) -> bool:
    if is_missing(value):
        return is_missing(found)
    if hasattr(value, "calendar") and not hasattr(found, "calendar") and hasattr(found, "isoformat"):
        return bool(value.isoformat() == found.isoformat())
    return type(value) is type(found) and bool(value == found)
