"""The packages of the extra `arrays`. Importing this module checks that they are installed."""

from __future__ import annotations

from importlib.util import find_spec

_PACKAGES = ("cftime", "msgpack", "xarray", "yaml", "zarr", "zstandard")

_missing = [name for name in _PACKAGES if find_spec(name) is None]
if _missing:
    raise ModuleNotFoundError(
        f"arrays need the package {_missing[0]}, which is not installed: "
        "install it with `pip install 'lake-orch[arrays]'`",
        name=_missing[0],
    )
