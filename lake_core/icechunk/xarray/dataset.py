"""Writes a dataset to a session, with the arguments of `icechunk.xarray.to_icechunk`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import xarray as xr
import zarr

from lake_core.icechunk.errors import MismatchedVariable
from lake_core.icechunk.snapshot import ArrayNode
from lake_core.icechunk.xarray.new_arrays import create_arrays, prepared, source_encoding
from lake_core.icechunk.xarray.stored_dataset import StoredDataset
from lake_core.icechunk.xarray.virtual_variables import is_virtual, write_virtual

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping
    from datetime import datetime

    from lake_core.icechunk.session import Session
    from lake_core.icechunk.store import IcechunkStore

Mode: TypeAlias = Literal["w", "w-", "a", "r+"]


def to_icechunk(
    obj: xr.Dataset | xr.DataArray,
    session: Session,
    *,
    group: str | None = None,
    mode: Mode | None = None,
    append_dim: Hashable | None = None,
    region: Mapping[Hashable, slice] | None = None,
    encoding: Mapping[Hashable, Mapping[str, Any]] | None = None,
    last_updated_at: datetime | None = None,
) -> None:
    """Write a dataset or array to a group of a session. The session is not committed.

    After an error the session has the changes that it had before.

    Unlike `Dataset.to_zarr`, a value that its array cannot hold is an error: a time that the stored units cannot hold,
    a number that overflows its type or packing, a missing text. Arrays of dask are written by whole chunks or shards,
    so no task overwrites the cells of another. Of virtual variables, which VirtualiZarr makes of files, only references
    to their chunks are stored.

    Args:
        obj: The dataset, or an array, which is stored under its name.
        session: A writable session.
        group: The path of the group. The default is the root.
        mode: `w` replaces the group, `w-` creates it, `a` creates or overwrites variables, `r+` writes to arrays that
            exist. The default is `a` with `append_dim`, `r+` with `region`, and otherwise `w-`.
        append_dim: The dimension along which the variables are appended. Arrays that do not exist are created, with
            units that later times fit.
        region: The part of each dimension that is written. Dimensions that are left out are written whole.
        encoding: The encodings of new variables, in xarray's names.
        last_updated_at: The time when the files of virtual variables were looked at. Chunks of files that changed after
            it are errors when they are read. The default is now.

    Raises:
        UnstorableValues: A value would not be read back as it is.
        MismatchedVariable: A variable does not fit its array, or there is something where a group was to be created.
        InvalidVirtualReference: No virtual chunk container of the repository holds a file of a virtual variable.
    """
    dataset = prepared(obj if isinstance(obj, xr.Dataset) else obj.to_dataset(name=obj.name or "data"))
    before = session.change_set.copy()
    try:
        _write(dataset, session, (group or "").strip("/"), mode, append_dim, region, encoding or {}, last_updated_at)
    except BaseException:
        # A session that is committed nevertheless must not have a part of the dataset.
        session.change_set = before
        raise


def _write(
    dataset: xr.Dataset,
    session: Session,
    path: str,
    mode: Mode | None,
    append_dim: Hashable | None,
    region: Mapping[Hashable, slice] | None,
    encodings: Mapping[Hashable, Mapping[str, Any]],
    last_updated_at: datetime | None,
) -> None:
    chosen: Mode = mode or ("a" if append_dim is not None else "r+" if region is not None else "w-")
    virtual = {name: variable for name, variable in dataset.variables.items() if is_virtual(variable)}
    if append_dim is not None and append_dim not in dataset.dims:
        raise MismatchedVariable(
            f"append_dim is {append_dim!r}, but the dimensions are {', '.join(map(str, dataset.dims))}"
        )
    for name in encodings:
        if name in virtual or name not in dataset.variables:
            what = "whose chunks stay as they are in their files" if name in virtual else "which is no variable"
            raise MismatchedVariable(f"encoding names {name!r}, {what} of the dataset")
    exists = _has_nodes(session, path)
    if chosen == "w-" and exists:
        raise MismatchedVariable(f"there is something at /{path} already: use mode 'w' to replace it, or 'a'")
    if chosen == "r+" and not exists:
        raise MismatchedVariable(f"there are no arrays at /{path}, which mode 'r+' writes to")
    is_new = chosen in ("w", "w-") or not exists
    if not is_new:
        _check_stored(session, path, dataset, append_dim, may_create=chosen == "a" and append_dim is None)
    _write_values(dataset.drop_vars(virtual), session, path, append_dim, region, encodings, is_new=is_new)
    write_virtual(
        virtual,
        session,
        path,
        coordinates=dataset.coords.keys() - dataset.dims,
        append_dim=append_dim,
        region=region or {},
        last_updated_at=last_updated_at,
    )


def _write_values(
    dataset: xr.Dataset,
    session: Session,
    path: str,
    append_dim: Hashable | None,
    region: Mapping[Hashable, slice] | None,
    encodings: Mapping[Hashable, Mapping[str, Any]],
    *,
    is_new: bool,
) -> None:
    store = session.store
    full = {name: source_encoding(item, encodings.get(name, {})) for name, item in dataset.variables.items()}
    rounded = {name for name, settings in encodings.items() if "dtype" in settings}
    if is_new:
        growing = () if append_dim is None else (append_dim,)
        create_arrays(store, dataset, full, group=path, growing=growing)
        stored = StoredDataset(store, group=path, rounded=rounded, names=dataset.variables)
        if append_dim is None:
            stored.write(dataset.variables)
        else:
            _append(stored, store, path, dataset, append_dim)
        return
    stored = StoredDataset(store, group=path, rounded=rounded, names=dataset.variables)
    if any(name not in stored for name in dataset.variables):
        only_new = dataset.drop_vars([name for name in dataset.variables if name in stored])
        create_arrays(store, only_new, full, group=path, mode="a")
        stored = StoredDataset(store, group=path, rounded=rounded, names=dataset.variables)
    arrays = zarr.open_group(store, path=path, mode="r", use_consolidated=False)
    for name, variable in dataset.variables.items():
        stored.check_attributes(name, variable)
        _check_shape(
            name, variable, stored.variable(name).dimensions, _array(arrays, name).shape, append_dim, region or {}
        )
    if append_dim is not None:
        _append(stored, store, path, dataset, append_dim)
        return
    stored.write(dataset.variables, region)


def _append(stored: StoredDataset, store: IcechunkStore, path: str, dataset: xr.Dataset, dimension: Hashable) -> None:
    arrays = zarr.open_group(store, path=path, mode="r+", use_consolidated=False)
    along = {name: variable for name, variable in dataset.variables.items() if dimension in variable.dims}
    start = 0
    for name, variable in along.items():
        array, axis = _array(arrays, name), variable.dims.index(dimension)
        start = array.shape[axis]  # which all of them have in common
        array.resize((*array.shape[:axis], start + dataset.sizes[dimension], *array.shape[axis + 1 :]))
    if along:
        stored.write(along, {dimension: slice(start, start + dataset.sizes[dimension])})
    stored.write({name: variable for name, variable in dataset.variables.items() if name not in along})


def _check_stored(
    session: Session, path: str, dataset: xr.Dataset, append_dim: Hashable | None, *, may_create: bool
) -> None:
    """Check that there are arrays for all variables, of one length along the dimension that grows.

    Raises MismatchedVariable.
    """
    lengths = set()
    for name, variable in dataset.variables.items():
        node = session.node(f"/{path}/{name}" if path else f"/{name}")
        if not isinstance(node, ArrayNode):
            if may_create:
                continue
            raise MismatchedVariable(f"there is no array {name!r} at /{path}: create it first, by mode 'a'")
        if append_dim in variable.dims and len(node.shape) == variable.ndim:
            lengths.add(node.shape[variable.dims.index(append_dim)])
    if len(lengths) > 1:
        raise MismatchedVariable(
            f"the stored arrays have the lengths {', '.join(map(str, sorted(lengths)))} along {append_dim!r}: "
            "resize them to one length first"
        )


def _check_shape(
    name: Hashable,
    variable: xr.Variable,
    dimensions: tuple[Hashable, ...],
    shape: tuple[int, ...],
    append_dim: Hashable | None,
    region: Mapping[Hashable, slice],
) -> None:
    if variable.dims != dimensions:
        raise MismatchedVariable(
            f"{name!r} has the dimensions ({', '.join(map(str, variable.dims))}), but the stored array has "
            f"({', '.join(map(str, dimensions))}): transpose it"
        )
    for dimension, length, stored in zip(variable.dims, variable.shape, shape, strict=True):
        if dimension == append_dim:
            continue
        room = len(range(*region[dimension].indices(stored))) if dimension in region else stored
        if length != room:
            raise MismatchedVariable(
                f"{name!r} has the length {length} along {dimension!r}, but is written to {room} elements"
            )


def _array(group: zarr.Group, name: Hashable) -> zarr.Array[Any]:
    array = group[str(name)]
    assert isinstance(array, zarr.Array)
    return array


def _has_nodes(session: Session, path: str) -> bool:
    prefix = f"/{path}" if path else "/"
    return any(
        node != "/" and (node == prefix or node.startswith(prefix.rstrip("/") + "/")) for node in session.node_paths()
    )
