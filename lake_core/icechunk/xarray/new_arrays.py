"""Creates the arrays of a dataset, without their cells."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import xarray as xr
import zarr
from pandas.api.types import infer_dtype  # type: ignore[import-untyped]
from xarray.coding.strings import create_vlen_dtype
from xarray.conventions import encode_cf_variable
from zarr.abc.codec import Codec

from lake_core.icechunk.errors import UnstorableValues
from lake_core.icechunk.xarray.equality import is_missing
from lake_core.icechunk.xarray.stored_variable import REFUSALS, decoded_source, shown, without_warnings
from lake_core.icechunk.xarray.virtual_variables import DECODING, is_virtual

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Mapping

    from lake_core.icechunk.store import IcechunkStore

_TEXT: np.dtype[Any] = create_vlen_dtype(str)
_OF_ZARR = ("chunks", "shards", "compressors", "filters", "serializer", "fill_value")
_OF_CF = ("dtype", *DECODING)
_KINDS = {"integer": "iu", "floating": "f", "boolean": "b", "complex": "c", "bytes": "S"}
"""The kinds of numpy's types, by the kind of Python objects as pandas names it."""
_UNITS = "microseconds since 1970-01-01"
"""The units of dates along a growing dimension. Units by the first values would limit later ones."""
_NOT_A_TIME = int(np.iinfo(np.int64).min)


def prepared(dataset: xr.Dataset) -> xr.Dataset:
    """Return a dataset whose variables are of types that arrays have, with their encoding apart from their values.

    Raises UnstorableValues for a variable that has no such type, and for names that would not be read back.
    """
    _check_names(dataset)
    _check_attributes("the dataset", dataset.attrs)
    changed: dict[Hashable, xr.Variable] = {}
    for name, variable in dataset.variables.items():
        _check_attributes(repr(name), variable.attrs)
        if is_virtual(variable):
            continue  # its files say what its values are
        new = decoded_source(str(name), _of_one_type(str(name), variable))
        if new is not variable:
            changed[name] = new
    return dataset.assign(changed) if changed else dataset


def _check_names(dataset: xr.Dataset) -> None:
    for dimension in dataset.dims:
        if not isinstance(dimension, str):
            raise UnstorableValues(f"the name of the dimension {dimension!r} is no text: rename it")
    for name, variable in dataset.variables.items():
        if not isinstance(name, str) or name in ("", ".", "..", "zarr.json") or "/" in name:
            raise UnstorableValues(f"no array can have the name {name!r}: rename the variable")
        if name in dataset.coords and name not in dataset.dims and len(name.split()) > 1:
            raise UnstorableValues(
                f"xarray lists coordinates with blanks between their names, so {name!r} would not be read back as a "
                "coordinate: rename it, or make it a variable by reset_coords"
            )
        if np.isnan(variable.shape).any():
            raise UnstorableValues(
                f"{name!r} has dask chunks of unknown lengths: call compute_chunk_sizes() on its array first"
            )
        if isinstance(dataset.indexes.get(name), pd.MultiIndex):
            raise UnstorableValues(f"{name!r} is a MultiIndex, which no array holds: call reset_index({name!r}) first")


def _check_attributes(subject: str, attributes: Mapping[Any, Any]) -> None:
    """Raise UnstorableValues for an attribute that `zarr.json` cannot hold."""
    for name, value in attributes.items():
        try:
            json.dumps(value, default=_plain)
        except (TypeError, ValueError) as error:
            raise UnstorableValues(
                f"the attribute {name!r} of {subject} is {shown(value)}, which JSON cannot hold ({error}): "
                "convert it to a text or a number"
            ) from None


def _plain(value: Any) -> Any:
    # Xarray stores them so.
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind not in "mMV":
        return value.tolist()
    raise TypeError(f"it is of type {type(value).__name__}")


def _of_one_type(name: str, variable: xr.Variable) -> xr.Variable:
    """Return texts of variable length, because a later text may be longer, and objects of one kind as that kind."""
    if not isinstance(variable.dtype, np.dtype):
        raise UnstorableValues(
            f"{name!r} is of type {variable.dtype} of pandas, which arrays do not have: convert it, such as by "
            "astype('float64') or astype(str)"
        )
    if variable.dtype.kind in "fc" and variable.dtype.itemsize > (8 if variable.dtype.kind == "f" else 16):
        narrower = "float64" if variable.dtype.kind == "f" else "complex128"
        raise UnstorableValues(f"{name!r} is of type {variable.dtype}, which Zarr does not have: use {narrower}")
    if variable.dtype.kind in "UT":
        return variable.astype(object)
    if variable.dtype.fields is not None and not variable.dtype.isnative:
        # Zarr 3.1 stores the bytes of such records in the wrong order.
        return variable.astype(variable.dtype.newbyteorder("="))
    if variable.dtype != object or variable.chunks is not None:
        return variable
    values = np.asarray(variable.values)
    kind = infer_dtype(values.ravel(), skipna=True)
    if kind in ("string", "empty") or holds_dates(variable):
        return variable
    if kind in _KINDS and not any(map(is_missing, values.ravel())):
        exact = np.array(values.tolist())
        # Zarr knows only one of the names of a type.
        converted = exact.astype(exact.dtype.str)
        # Integers of 64 bits with and without a sign would become floats, and bytes lose zeros at their end.
        if converted.dtype.kind in _KINDS[kind] and bool((converted.astype(object) == values).all()):
            return xr.Variable(variable.dims, converted, variable.attrs, variable.encoding)
        raise UnstorableValues(
            f"{name!r} has Python objects of kind {kind!r}, and no type of numpy holds all of them as they are: "
            "convert them, such as to texts"
        )
    raise UnstorableValues(
        f"{name!r} has Python objects of kind {kind!r}, and arrays hold values of one type: convert it, such as by "
        "astype('float64') or astype(str)"
    )


def create_arrays(
    store: IcechunkStore,
    dataset: xr.Dataset,
    encodings: Mapping[Hashable, Mapping[str, Any]],
    *,
    group: str = "",
    growing: Collection[Hashable] = (),
    mode: str = "w",
) -> None:
    """Create the arrays of a prepared dataset, and its attributes.

    Xarray creates them from variables without elements, which are encoded already. So their metadata is what
    `to_zarr` would write.

    Args:
        store: The store of a writable session.
        dataset: The data. It defines the variables, types and attributes.
        encodings: The encodings of variables, in xarray's names.
        group: The path of the group.
        growing: The dimensions along which later writes add elements. The arrays have none along them yet.
        mode: The mode of `to_zarr`.

    Raises:
        UnstorableValues: A variable has values that its encoding cannot hold.
        ValueError: Zarr refuses an encoding.
    """
    templates = {
        name: _template(str(name), variable, encodings.get(name, {}), grows=bool(set(variable.dims) & set(growing)))
        for name, variable in dataset.variables.items()
    }
    coordinates = xr.Coordinates({name: templates[name] for name in dataset.coords}, indexes={})
    empty = xr.Dataset({name: templates[name] for name in dataset.data_vars}, coordinates, dataset.attrs)
    zarr_encodings = {
        name: _zarr_encoding(variable, templates[name], encodings.get(name, {}), growing)
        for name, variable in dataset.variables.items()
    }
    options: dict[str, Any] = {"group": group or None, "consolidated": False, "mode": mode}
    empty.to_zarr(store, encoding=zarr_encodings, **options)
    arrays = zarr.open_group(store, path=group, mode="r+", use_consolidated=False)
    for name, variable in dataset.variables.items():
        shape = tuple(
            0 if dimension in growing else length
            for dimension, length in zip(variable.dims, variable.shape, strict=True)
        )
        if any(shape):
            arrays[str(name)].resize(shape)  # type: ignore[union-attr]


def source_encoding(variable: xr.Variable, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the encoding of a variable: `settings`, and the encoding of its source as far as Zarr v3 supports it."""
    source = {
        name: value
        for name, value in variable.encoding.items()
        if name in (*_OF_ZARR, *_OF_CF) and _is_of_v3(name, value)
    }
    if variable.dtype == object and not holds_dates(variable):
        # It is the text type of another store.
        source.pop("dtype", None)
        source.pop("_FillValue", None)
    if variable.dtype.kind in "cSV":
        # Xarray reads no marker of missing values in arrays of such types.
        source.pop("_FillValue", None)
    encoding = {**source, **settings}
    if "_FillValue" in encoding and "fill_value" not in encoding:
        # Elements without a chunk are missing values, not 0.
        encoding["fill_value"] = encoding["_FillValue"]
    return encoding


def _is_of_v3(name: str, value: Any) -> bool:
    if name not in ("compressors", "filters", "serializer"):
        return value is not None
    codecs = value if isinstance(value, list | tuple) else [value]
    return all(isinstance(codec, Codec) for codec in codecs)


def default_chunks(shape: tuple[int, ...], dtype: Any) -> tuple[int, ...]:
    """Return the shape of chunks that Zarr chooses for an array."""
    return zarr.create_array(zarr.storage.MemoryStore(), shape=shape, dtype=dtype).chunks


def _template(name: str, variable: xr.Variable, encoding: Mapping[str, Any], *, grows: bool) -> xr.Variable:
    """Return an encoded variable without elements, which has the type and attributes of the new array."""
    shape = (0,) * variable.ndim
    attributes = dict(variable.attrs)
    cf_encoding = {key: value for key, value in encoding.items() if key not in _OF_ZARR and value is not None}
    if variable.dtype == object and not holds_dates(variable):
        if "_FillValue" in cf_encoding:
            attributes["_FillValue"] = cf_encoding["_FillValue"]
        texts = xr.Variable(variable.dims, np.full(shape, "", _TEXT), attributes)
        _check_marker(name, texts)
        return texts
    sample = variable.isel(dict.fromkeys(variable.dims, slice(0, 0)))
    if holds_dates(variable) and "units" not in cf_encoding and grows:
        calendar = _first(variable).calendar
        cf_encoding |= {"units": _UNITS, "dtype": "int64", "calendar": calendar}
        sample = variable
    elif variable.dtype.kind in "mM" and "units" not in cf_encoding and (grows or variable.chunks is not None):
        if variable.dtype.kind == "M":
            units = _UNITS.replace("micro", "nano") if _has_nanoseconds(variable) else _UNITS
            cf_encoding |= {"units": units, "dtype": "int64", "calendar": "proleptic_gregorian"}
        else:
            # Xarray takes the unit of spans from their values: one step makes it that of their type.
            sample = xr.Variable(variable.dims, np.ones((1,) * variable.ndim, variable.dtype))
    elif variable.dtype == object or (variable.dtype.kind in "mM" and "units" not in cf_encoding):
        sample = variable
    try:
        # What an encoding cannot hold is refused when it is written.
        with without_warnings():
            encoded = encode_cf_variable(xr.Variable(variable.dims, sample._data, attributes, cf_encoding), name=name)
    except REFUSALS as error:
        raise UnstorableValues(f"{name!r} cannot be stored with the encoding {dict(encoding)}: {error}") from None
    _check_marker(name, encoded)
    return xr.Variable(variable.dims, np.zeros(shape, encoded.dtype), encoded.attrs)


def _check_marker(name: str, variable: xr.Variable) -> None:
    """Raise UnstorableValues for a `_FillValue` that xarray does not write, or cannot read."""
    if "_FillValue" in variable.attrs and variable.dtype.kind not in "biuf":
        kind = "texts" if variable.dtype == _TEXT else str(variable.dtype)
        raise UnstorableValues(
            f"{name!r} has a _FillValue, which xarray does not read in arrays of {kind}: remove it from the encoding "
            "and the attributes, and fill missing values first"
        )


def _zarr_encoding(
    variable: xr.Variable, template: xr.Variable, encoding: Mapping[str, Any], growing: Collection[Hashable]
) -> dict[str, Any]:
    zarr_encoding = {key: encoding[key] for key in _OF_ZARR if encoding.get(key) is not None}
    if variable.ndim and "chunks" not in zarr_encoding:
        if variable.chunks is not None:
            zarr_encoding["chunks"] = tuple(max(lengths[0], 1) for lengths in variable.chunks)
        else:
            dtype = str if template.dtype == _TEXT else template.dtype
            zarr_encoding["chunks"] = default_chunks(variable.shape, dtype)
    if set(variable.dims) & set(growing) and variable.dtype.kind in "mM" and template.dtype == np.int64:
        # Elements that were never written are no times, instead of the first moment of the unit.
        zarr_encoding.setdefault("fill_value", _NOT_A_TIME)
    return zarr_encoding


def holds_dates(variable: xr.Variable) -> bool:
    """Return whether values are dates of a calendar (cftime), and not texts, for example."""
    if variable.dtype != object or not variable.size:
        return False
    return hasattr(_first(variable), "calendar")


def _first(variable: xr.Variable) -> Any:
    return variable.isel(dict.fromkeys(variable.dims, 0)).values.item()


def _has_nanoseconds(variable: xr.Variable) -> bool:
    if variable.chunks is not None or variable.dtype != np.dtype("datetime64[ns]"):
        return False
    values = np.asarray(variable.values)
    return bool((values.astype("datetime64[us]").astype("datetime64[ns]") != values)[~np.isnat(values)].any())
