"""The gate before every write of values: an array's own encoding, and a check that each value can be read back.

Xarray encodes values by the CF conventions before it stores them: times as numbers of a unit, missing values as a
marker, packed numbers as small integers. An array that exists has one encoding. Values that it cannot hold would be
stored as other values, without an error. Here each block of values is encoded with the encoding of its array and
decoded again as `xarray.open_zarr` does it, and must come back as it was.
"""

from __future__ import annotations

import os
import warnings
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xarray as xr
from xarray.conventions import decode_cf_variable, encode_cf_variable

from lake_core import runtime
from lake_core.icechunk.errors import UnstorableValues
from lake_core.icechunk.xarray.equality import comes_back, is_missing

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

REFUSALS = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError)
"""What xarray raises for values that it cannot encode or decode, such as years after 9999."""
_MASKS = ("_FillValue", "missing_value")
_PACKING = ("scale_factor", "add_offset", "_Unsigned", "dtype")
"""The attributes by which xarray converts cells to values, apart from missing values and the units of times."""
_AT_ONCE = 1 << 18
"""How many values are encoded and compared at a time."""
_NOT_OF_VALUES = ("source", "original_shape", "preferred_chunks", "coordinates")


@dataclass(frozen=True, slots=True)
class StoredVariable:
    """An array as xarray reads it: the type of its cells, and the attributes by which they are decoded."""

    name: str
    dimensions: tuple[Hashable, ...]
    cells: np.dtype[Any]
    """The type of the cells."""
    attributes: Mapping[str, Any]
    """The attributes of the array, those of its encoding included."""
    is_rounded: bool = False
    """Whether floats may be rounded to the type of the cells, because the writer asked for that type."""

    @classmethod
    def of(cls, name: str, raw: xr.Variable, *, is_rounded: bool = False) -> StoredVariable:
        """Return an array from its variable in a dataset that was opened with `decode_cf=False`."""
        return cls(name, raw.dims, raw.dtype, dict(raw.attrs), is_rounded)

    def encode(self, values: npt.NDArray[Any], *, concurrently: bool = False) -> npt.NDArray[Any]:
        """Return the cells of values. With `concurrently`, several threads compute them.

        Raises UnstorableValues if a value would not be read back as it is.
        """
        if self._is_plain(values.dtype):
            return values
        if self.cells.kind in "OT":
            cells = self._texts(values)
            self._check_texts(values, cells)
            return cells
        parts = _parts(values)
        if len(parts) > 1:
            cells = np.empty(values.shape, self.cells)

            def encode_part(part: slice) -> None:
                cells[part] = self._checked(values[part])

            if concurrently:
                with runtime.thread_pool(min(len(parts), os.cpu_count() or 1)) as pool:
                    deque(pool.map(encode_part, parts), maxlen=0)
            else:
                deque(map(encode_part, parts), maxlen=0)
            return cells
        return self._checked(values)

    def _checked(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        # Threads of dask run this: the filters of warnings are not theirs to change.
        with np.errstate(all="ignore"):
            try:
                cells = self._encoded(values)
                decoded = self._decoded(cells, values.dtype)
            except REFUSALS as error:
                raise UnstorableValues(
                    f"{self.name!r} has values that cannot be stored as {self.description}. {self._remedy(values)}"
                ) from error
            if decoded.shape != values.shape:
                raise UnstorableValues(
                    f"{self.name!r} has the shape {values.shape}, and xarray would read it back as {decoded.shape}, "
                    "because it joins single characters to texts: return texts, or integers of the characters"
                )
            rounded = self.cells if self.is_rounded and self.cells.kind in "fc" else None
            same = comes_back(values, decoded, tolerance=self._tolerance(cells), rounded=rounded)
        if not same.all():
            self._refuse(values, decoded, ~same)
        return cells

    def read_back(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return values as they are read back. Raises UnstorableValues as `encode` does."""
        with without_warnings():
            return self._decoded(self.encode(values), values.dtype)

    @property
    def has_dates(self) -> bool:
        """Return whether xarray reads the cells as dates."""
        return _has_dates(self.attributes)

    def holds_numpy_dates(self, cells: npt.NDArray[Any]) -> bool:
        """Return whether xarray reads all cells of an array of dates as `datetime64[ns]`, each by itself.

        If one of them is more than 292 years from the first moment of the units, or has another calendar, xarray
        converts all of them by way of floats, and most often to objects of cftime.
        """
        coder = xr.coders.CFDatetimeCoder(use_cftime=False)
        with without_warnings(), np.errstate(all="ignore"):
            try:
                decode_cf_variable(self.name, self._raw(cells), decode_times=coder, decode_timedelta=False).load()
            except REFUSALS:
                return False
        return True

    def _decoded(self, cells: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return the values of cells, as xarray reads them, for values of a type."""
        spans = self._has_spans(dtype)
        decoded: npt.NDArray[Any] = decode_cf_variable(self.name, self._raw(cells), decode_timedelta=spans).values
        return decoded

    def _raw(self, cells: npt.NDArray[Any]) -> xr.Variable:
        if _is_decoded_in_place(cells.dtype, self.attributes):
            cells = cells.copy()  # these are the cells that are stored
        return xr.Variable(self.dimensions, cells, dict(self.attributes))

    def _has_spans(self, dtype: np.dtype[Any]) -> bool:
        """Return whether cells are spans of time. Numbers with the unit of a time can also be just that."""
        return dtype.kind == "m" or str(self.attributes.get("dtype")).startswith("timedelta64")

    @property
    def description(self) -> str:
        """Return the encoding in words, for messages."""
        type_ = "texts" if self.cells.kind in "OT" else self.cells.name
        units = self.attributes.get("units")
        named = [
            f"{name} {self.attributes[name]}" for name in ("calendar", *_MASKS, *_PACKING) if name in self.attributes
        ]
        return " ".join(
            [type_, *([f"in {units!r}"] if units is not None else []), *([f"({', '.join(named)})"] if named else [])]
        )

    def _is_plain(self, dtype: np.dtype[Any]) -> bool:
        """Return whether values of a type are their own cells, so that there is nothing to check."""
        if dtype != self.cells or dtype.kind not in "iufcbV" or _is_encoded(self.attributes):
            return False
        masks = [self.attributes[name] for name in _MASKS if name in self.attributes]
        return not masks or (dtype.kind == "f" and all(np.isnan(np.asarray(mask, np.float64)).all() for mask in masks))

    def _encoded(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        encoding = self._encoding(spans=self._has_spans(values.dtype))
        variable = xr.Variable(self.dimensions, _finer(values), {}, encoding)
        encoded: npt.NDArray[Any] = encode_cf_variable(variable, name=self.name).values
        return encoded if encoded.dtype == self.cells else encoded.astype(self.cells)

    def _encoding(self, *, spans: bool) -> dict[str, Any]:
        """Return the encoding that xarray gives a variable that it decoded from the array."""
        # Xarray cannot decode dates of other calendars if there are none.
        length = 1 if self.has_dates else 0
        sample = xr.Variable(self.dimensions, np.zeros((length,) * len(self.dimensions), self.cells), self.attributes)
        encoding = decode_cf_variable(self.name, sample, decode_timedelta=spans).encoding
        return {name: value for name, value in encoding.items() if name not in _NOT_OF_VALUES}

    def _texts(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return texts as cells. A missing text is stored as the array's `_FillValue`, if it has one."""
        cells = values.astype(object)
        marker = self.attributes.get("_FillValue")
        if marker is not None:
            missing = np.frompyfunc(is_missing, 1, 1)(cells).astype(bool)
            if (cells[~missing] == marker).any():
                raise UnstorableValues(
                    f"{self.name!r} has the text {marker!r}, which stands for a missing text (_FillValue): "
                    "use another text"
                )
            cells = np.where(missing, marker, cells)
        reason = "it is not a text"
        try:
            texts = pa.array(cells.ravel(), from_pandas=False)
            is_text = pa.types.is_string(texts.type) or pa.types.is_null(texts.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError) as error:
            is_text, reason = False, str(error)
        if not is_text:
            raise UnstorableValues(
                f"{self.name!r} has a value that is not a text, but its array holds texts: {reason}. "
                "Convert each value to a text first"
            )
        if texts.null_count:
            raise UnstorableValues(
                f"{self.name!r} has a missing text, which the array cannot hold: fill it first, such as by fillna('')"
            )
        return cells

    def _check_texts(self, values: npt.NDArray[Any], cells: npt.NDArray[Any]) -> None:
        """Raise UnstorableValues if attributes of the array make something else of texts."""
        named = [name for name in (*_MASKS, *_PACKING, "units") if name in self.attributes]
        if not named or not values.size:
            return
        with np.errstate(all="ignore"):
            try:
                # Spans are decoded as well, because `open_zarr` does it.
                decoded = decode_cf_variable(self.name, self._raw(cells), decode_timedelta=True).values
            except REFUSALS as error:
                raise UnstorableValues(
                    f"{self.name!r} has texts, and xarray could not read them by the attributes "
                    f"{', '.join(named)}: remove these"
                ) from error
        same = comes_back(values.astype(object), decoded)
        if not same.all():
            self._refuse(values, decoded, ~same)

    def _tolerance(self, cells: npt.NDArray[Any]) -> float | npt.NDArray[Any] | None:
        """Return how far packed values may be from what is read back: half a step, or None if they are not packed."""
        if not self._is_packed:
            return None
        step = abs(float(self.attributes.get("scale_factor", 1.0)))
        return step / 2 * (1 if self.cells.kind in "iu" else np.spacing(np.abs(cells)))

    @property
    def _is_packed(self) -> bool:
        return "scale_factor" in self.attributes or "add_offset" in self.attributes

    def _refuse(self, values: npt.NDArray[Any], decoded: npt.NDArray[Any], changed: npt.NDArray[np.bool_]) -> None:
        first = tuple(int(position[0]) for position in np.nonzero(np.atleast_1d(changed)))
        value, found = np.atleast_1d(values)[first], np.atleast_1d(decoded)[first]
        count = int(changed.sum())
        raise UnstorableValues(
            f"{self.name!r} has the value {shown(value)}{f' (and {count - 1} more such)' if count > 1 else ''}, which "
            f"would be read back as {shown(found)}, because it is stored as {self.description}. {self._remedy(values)}"
        )

    def _remedy(self, values: npt.NDArray[Any]) -> str:
        if values.dtype.kind in "mM" or (values.dtype.kind == "O" and self.cells.kind in "iuf"):
            return "Store the array anew with finer units in its encoding, or return times that the units can hold"
        if values.dtype.kind == "f" and self.cells.kind == "f" and not self._is_packed:
            return (
                f"Convert the values by astype({self.cells.name!r}), which rounds them, or store the array anew with "
                "another dtype in its encoding"
            )
        return (
            "Store the array anew with a dtype, scale_factor, add_offset or _FillValue in its encoding that can hold "
            "such values, or convert them first"
        )


@contextmanager
def without_warnings() -> Iterator[None]:
    """Silence xarray and numpy where they warn of what is an error here. Only for the thread that calls a write."""
    with warnings.catch_warnings():
        for category in (xr.SerializationWarning, np.exceptions.ComplexWarning, FutureWarning, RuntimeWarning):
            warnings.simplefilter("ignore", category)
        warnings.filterwarnings("ignore", ".*can't be serialized faithfully")
        yield


def _parts(values: npt.NDArray[Any]) -> list[slice]:
    """Return parts of values along the first axis that fit into a processor's cache."""
    if not values.ndim or values.size <= _AT_ONCE:
        return [slice(None)]
    rows = max(1, _AT_ONCE * len(values) // values.size)
    return [slice(start, start + rows) for start in range(0, len(values), rows)]


def _finer(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return times in the finest unit that holds all of them.

    Xarray encodes times of a coarser unit than that of their array as other numbers, or as missing.
    """
    if values.dtype.kind not in "mM":
        return values
    for unit in ("ns", "us"):
        finer = values.astype(f"{values.dtype.kind}8[{unit}]")
        if np.array_equal(finer.astype(values.dtype).view(np.int64), values.view(np.int64)):
            return finer
    return values


def decoded_source(name: str, variable: xr.Variable) -> xr.Variable:
    """Return a variable whose attributes hold an encoding as its values, with the encoding apart from them.

    A dataset that was opened with `decode_cf=False`, or an array of Zarr, holds cells. Whoever reads them back by
    xarray gets the values that they stand for. So these are what has to come back.

    Raises UnstorableValues if xarray cannot decode them.
    """
    if variable.dtype.kind not in "iuf" or not (_is_encoded(variable.attrs) or set(_MASKS) & set(variable.attrs)):
        return variable
    source = variable.to_base_variable()
    if _is_decoded_in_place(source.dtype, source.attrs):
        source = source.copy()
    try:
        decoded: xr.Variable = decode_cf_variable(name, source, decode_timedelta=False)
    except REFUSALS as error:
        raise UnstorableValues(f"xarray could not read {name!r} back by its attributes: {error}") from None
    data = decoded._data
    if decoded.dtype == bool:
        # Xarray reads every number but 0 as True. A lazy array is looked at when it is computed.
        check = partial(_as_booleans, name)
        data = xr.apply_ufunc(check, variable.to_base_variable(), dask="parallelized", output_dtypes=[bool])._data
    encoding = {**variable.encoding, **decoded.encoding}
    return xr.Variable(decoded.dims, data, decoded.attrs, encoding)


def _as_booleans(name: str, cells: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    values: npt.NDArray[np.bool_] = cells.astype(bool)
    others = cells[cells != values]
    if others.size:
        raise UnstorableValues(
            f"{name!r} has the value {shown(others.flat[0])}, but its attribute 'dtype' makes booleans of it: remove "
            "the attribute"
        )
    return values


def _is_encoded(attributes: Mapping[Any, Any]) -> bool:
    """Return whether attributes make other values of cells, apart from missing ones."""
    return any(name in attributes for name in _PACKING) or _has_dates(attributes)


def _is_decoded_in_place(dtype: np.dtype[Any], attributes: Mapping[Any, Any]) -> bool:
    """Return whether xarray may change the cells that it decodes: fractions of a unit of time, into spans."""
    return dtype.kind == "f" and "units" in attributes and not _has_dates(attributes)


def _has_dates(attributes: Mapping[Any, Any]) -> bool:
    """Return whether the units of attributes count from a moment."""
    return " since " in str(attributes.get("units", ""))


def shown(value: Any) -> str:
    """Return a value in words, for messages."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        return str(value)
    return repr(value.item() if isinstance(value, np.generic) else value)[:60]
