"""The arrays of a group, as variables that values are written to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
import zarr

from lake_core.icechunk.errors import MismatchedVariable, UnstorableValues
from lake_core.icechunk.xarray.blocks import Block, block, write_blocks
from lake_core.icechunk.xarray.stored_variable import StoredVariable

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Mapping

    from lake_core.icechunk.store import IcechunkStore

_MEANING = ("units", "calendar", "standard_name", "positive", "cell_methods", "grid_mapping")
"""The attributes that say what numbers mean. The same numbers with others are other values."""


class StoredDataset:
    """The arrays of a group that exist. Every value passes the gate of its `StoredVariable`."""

    def __init__(
        self,
        store: IcechunkStore,
        *,
        group: str = "",
        rounded: Collection[Hashable] = (),
        names: Collection[Hashable] | None = None,
    ) -> None:
        """Open the arrays of a group.

        Args:
            store: The store of a session.
            group: The path of the group.
            rounded: The variables whose floats may be rounded to the type of their cells.
            names: The arrays to open. The default is all.
        """
        self._store = store
        self._group = group
        self._rounded = rounded
        others = []
        if names is not None:
            members = zarr.open_group(store, path=group, mode="r", use_consolidated=False).array_keys()
            others = [name for name in members if name not in names]
        # Zarr's metadata is read by xarray, which decodes attributes of its own. It reads texts, and the values of
        # indexes, which may be in files that this process may not read.
        self._raw: xr.Dataset = xr.open_zarr(
            store,
            group=group or None,
            consolidated=False,
            chunks=None,
            decode_cf=False,
            create_default_indexes=False,
            drop_variables=others,
        )

    def __contains__(self, name: Hashable) -> bool:
        """Return whether there is an array of a name."""
        return name in self._raw.variables

    def variable(self, name: Hashable) -> StoredVariable:
        """Return an array of the group."""
        return StoredVariable.of(str(name), self._raw.variables[name], is_rounded=name in self._rounded)

    def read_back(self, name: Hashable, variable: xr.Variable) -> xr.Variable:
        """Return a variable as it is read back once it is stored. Raises UnstorableValues."""
        values = self.variable(name).read_back(np.asarray(variable.values))
        return xr.Variable(variable.dims, values, variable.attrs)

    def write(self, variables: Mapping[Any, xr.Variable], region: Mapping[Any, slice] | None = None) -> None:
        """Write variables whole, or to a region of their arrays.

        Raises UnstorableValues if an array cannot hold a value.
        """
        arrays = zarr.open_group(self._store, path=self._group, mode="r+", use_consolidated=False)
        blocks = [
            block(variable, self.variable(name), arrays[str(name)], region or {})  # type: ignore[arg-type]
            for name, variable in variables.items()
            if variable.size
        ]
        dates = [part for part in blocks if part.stored.has_dates]
        of_numpy = [part for part in dates if _must_be_dates_of_numpy(part)]
        write_blocks(blocks)
        for part in of_numpy:
            if not part.stored.holds_numpy_dates(np.asarray(part.array[...])):
                raise UnstorableValues(
                    f"{part.stored.name!r} would have dates that xarray reads as datetime64, and others, outside of "
                    "1678 to 2262 or too far from the start of its units, because of which all of them would be read "
                    "by way of floats: write the array anew with units since 1970-01-01, or with dates of cftime alone"
                )

    def check_attributes(self, name: Hashable, variable: xr.Variable) -> None:
        """Raise MismatchedVariable if the units of a variable, for example, are not those of the stored numbers."""
        stored = self._raw.variables[name].attrs
        for attribute in _MEANING:
            given = variable.attrs.get(attribute)
            if given is not None and given != stored.get(attribute):
                has = f"has {stored[attribute]!r}" if attribute in stored else "has none"
                raise MismatchedVariable(
                    f"{name!r} has the {attribute} {given!r}, but the stored array {has}: convert the values, or "
                    "write all of the arrays anew"
                )

    def differing_attributes(self, name: Hashable, variable: xr.Variable) -> list[str]:
        """Return the attributes of a variable that the array has not, or with another value."""
        stored = self._raw.variables[name].attrs
        return [
            str(attribute) for attribute, given in variable.attrs.items() if not _is_same(given, stored.get(attribute))
        ]


def _must_be_dates_of_numpy(part: Block) -> bool:
    """Return whether all dates of an array must be read as `datetime64`: those that are written, or those there are."""
    if part.values.dtype.kind == "M":
        return True
    is_whole = part.array.size == part.values.size
    return not is_whole and part.stored.holds_numpy_dates(np.asarray(part.array[...]))


def _is_same(given: Any, stored: Any) -> bool:
    plain = given.tolist() if isinstance(given, np.ndarray | np.generic) else given
    if isinstance(plain, tuple):
        plain = list(plain)
    return bool(plain == stored or (plain != plain and stored != stored) or str(plain) == str(stored))
