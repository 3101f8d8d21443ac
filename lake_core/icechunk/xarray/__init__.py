"""Datasets of xarray in repositories: `to_icechunk`.

`stored_variable` is the gate that every value passes: it is encoded with the encoding of its array, and must be read
back as it was. `new_arrays` creates arrays, `stored_dataset` writes to those that exist, in `blocks`.
"""

from lake_core.icechunk.xarray.dataset import to_icechunk

__all__ = ["to_icechunk"]
