"""Writes variables of VirtualiZarr: arrays whose chunks stay in other files. No value is read, decoded or copied."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
from xarray.backends.zarr import FillValueCoder, encode_zarr_attr_value
from zarr.core.buffer import default_buffer_prototype

from lake_core.icechunk.errors import MismatchedVariable
from lake_core.icechunk.snapshot import ArrayNode

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    import xarray as xr

    from lake_core.icechunk.session import Session

DECODING = ("units", "calendar", "_FillValue", "missing_value", "scale_factor", "add_offset")
"""The attributes by which xarray decodes the numbers of an array."""
_OF_CHUNKS = ("data_type", "chunk_grid", "codecs", "fill_value", "dimension_names")
"""The fields of `zarr.json` by which chunks become numbers, and these an array."""


def is_virtual(variable: xr.Variable) -> bool:
    """Return whether the chunks of a variable stay in other files."""
    manifests = sys.modules.get("virtualizarr.manifests")  # without it there are none
    return manifests is not None and isinstance(variable._data, manifests.ManifestArray)


def write_virtual(
    variables: Mapping[Hashable, xr.Variable],
    session: Session,
    group: str,
    *,
    coordinates: set[Hashable],
    append_dim: Hashable | None,
    region: Mapping[Hashable, slice],
    last_updated_at: datetime | None,
) -> None:
    """Write references to the chunks of virtual variables.

    Args:
        variables: The variables. Their arrays are created where there are none.
        session: A writable session that has the group.
        group: The path of the group, without slashes at its ends.
        coordinates: The variables that are coordinates without being dimensions.
        append_dim: The dimension along which they are appended to arrays that exist.
        region: The part of each dimension that is written.
        last_updated_at: The time since which no file may have changed when its chunks are read.

    Raises:
        MismatchedVariable: A variable does not fit its array.
        InvalidVirtualReference: No virtual chunk container of the repository holds a file.
    """
    checksum = last_updated_at or _whole_second(datetime.now(UTC))
    for name, variable in variables.items():
        path = f"/{group}/{name}" if group else f"/{name}"
        document = _document(variable)
        stored = session.node(path)
        begins = [0] * variable.ndim
        if isinstance(stored, ArrayNode):
            before = json.loads(stored.user_data)
            _check_same(name, document, before)
            begins = _begins(name, variable, before["shape"], append_dim, region)
            document = before
        if append_dim in variable.dims:
            axis = variable.dims.index(append_dim)
            document["shape"][axis] = begins[axis] + variable.shape[axis]
        chunks = document["chunk_grid"]["configuration"]["chunk_shape"]
        for dimension, begin, length, chunk, end in zip(
            variable.dims, begins, variable.shape, chunks, document["shape"], strict=True
        ):
            _check_whole_chunks(f"{name!r} along {dimension!r}", begin, begin + length, chunk, end)
        session.set_metadata(path, json.dumps(document).encode())
        first_chunk = [begin // chunk for begin, chunk in zip(begins, chunks, strict=True)]
        _set_references(session, path, variable, first_chunk, checksum)
    names = sorted(str(name) for name in variables.keys() & coordinates)
    if names:
        _add_coordinates(session, f"/{group}", names)


def _whole_second(time: datetime) -> datetime:
    """Return the end of the second: references have no fraction of it, and files may be as new as that."""
    return time.replace(microsecond=0) + timedelta(seconds=1)


def _check_whole_chunks(subject: str, begin: int, stop: int, chunk: int, end: int) -> None:
    """Raise MismatchedVariable if elements from `begin` to `stop` of an array have a part of a chunk."""
    if begin % chunk or (stop % chunk and stop < end):
        raise MismatchedVariable(
            f"{subject} would have elements {begin} to {stop}, but chunks in files stay whole: they begin and end at "
            f"multiples of {chunk}"
        )


def _document(variable: xr.Variable) -> dict[str, Any]:
    """Return the `zarr.json` of a new array."""
    data: Any = variable._data
    metadata = data.metadata
    document: dict[str, Any] = json.loads(metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes())
    of_values = {key: variable.encoding[key] for key in DECODING if variable.encoding.get(key) is not None}
    attributes = {key: encode_zarr_attr_value(value) for key, value in {**of_values, **variable.attrs}.items()}
    filler = attributes.get("_FillValue")
    if filler is not None and not isinstance(filler, str):
        # A text is encoded already, which VirtualiZarr does for the files that it reads itself.
        attributes["_FillValue"] = FillValueCoder.encode(filler, variable.dtype)
    return {
        **document,
        "attributes": attributes,
        "dimension_names": list(variable.dims),
        # That of the files is of no account, because the references say where the chunks are.
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    }


def _check_same(name: Hashable, new: dict[str, Any], stored: dict[str, Any]) -> None:
    """Raise MismatchedVariable if the chunks of an array are read in another way than those that it has."""
    different = [field for field in _OF_CHUNKS if new.get(field) != stored.get(field)]
    attributes = stored.get("attributes", {})
    # As texts, in which NaN is equal to NaN.
    different += [key for key in DECODING if json.dumps(new["attributes"].get(key)) != json.dumps(attributes.get(key))]
    if different:
        raise MismatchedVariable(
            f"the chunks of {name!r} have another {' and '.join(different)} in these files than in the stored array, "
            "which would read them wrong: write the variable as values (open it with loadable_variables), or to a "
            "group of its own"
        )


def _begins(
    name: Hashable,
    variable: xr.Variable,
    shape: list[int],
    append_dim: Hashable | None,
    region: Mapping[Hashable, slice],
) -> list[int]:
    """Return the index of a variable's first element in the array that it is written to."""
    begins = []
    for dimension, length, stored in zip(variable.dims, variable.shape, shape, strict=True):
        if dimension == append_dim:
            begins.append(stored)
            continue
        begin, stop, _ = region.get(dimension, slice(None)).indices(stored)
        if length != stop - begin:
            raise MismatchedVariable(
                f"{name!r} has the length {length} along {dimension!r}, but is written to {stop - begin} elements"
            )
        begins.append(begin)
    return begins


def _set_references(
    session: Session, path: str, variable: xr.Variable, first_chunk: list[int], last_updated_at: datetime
) -> None:
    """Set the references of all chunks of a variable, and erase those that its files do not have.

    Args:
        session: A writable session.
        path: The path of the array.
        variable: The variable.
        first_chunk: The index in the array of the variable's first chunk.
        last_updated_at: The time since which no file may have changed.
    """
    data: Any = variable._data
    shape = data.manifest.shape_chunk_grid
    locations = np.full(shape, "", object)
    offsets, lengths = np.zeros(shape, np.uint64), np.ones(shape, np.uint64)
    for index, entry in data.manifest.iter_refs():
        locations[index], offsets[index], lengths[index] = entry["path"], entry["offset"], entry["length"]
    if not variable.ndim:  # kerchunk's references have the chunk of a scalar at 0
        shape, locations = (), locations.reshape(())
    session.store.set_virtual_refs_arr(
        path,
        shape,
        locations.ravel().tolist(),
        offsets,
        lengths,
        arr_offset=first_chunk,
        checksum=last_updated_at,
    )
    for index in np.argwhere(locations == "") + np.array(first_chunk, np.int64):
        session.erase_chunk(path, tuple(index.tolist()))


def _add_coordinates(session: Session, path: str, names: list[str]) -> None:
    """Name coordinates where xarray looks for those that are no dimensions."""
    node = session.node(path)
    assert node is not None
    document = json.loads(node.user_data)
    attributes = document.setdefault("attributes", {})
    listed = str(attributes.get("coordinates", "")).split()
    attributes["coordinates"] = " ".join([*listed, *(name for name in names if name not in listed)])
    session.set_metadata(path, json.dumps(document).encode())
